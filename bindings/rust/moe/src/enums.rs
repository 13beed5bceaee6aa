//! The enums of `moe.h`, all open: a value that this list lacks stays a number and reaches the library as it is.
use moe_sys as sys;
use std::fmt;

macro_rules! open_enum {
    ($(#[$doc:meta])* $name:ident($number:ident) { $($member:ident = $value:expr),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[repr(transparent)]
        pub struct $name(pub $number);

        impl $name {
            $(pub const $member: $name = $name($value as $number);)*
            /// The values that this crate knows.
            pub const KNOWN: &'static [$name] = &[$($name::$member),*];

            /// As in the header without its prefix, `None` for a value that this crate does not know.
            pub fn name(self) -> Option<&'static str> {
                $(if self == $name::$member { return Some(stringify!($member)); })*
                None
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.name() {
                    Some(name) => write!(out, "{}::{}", stringify!($name), name),
                    None => write!(out, "{}({})", stringify!($name), self.0),
                }
            }
        }
    };
}

macro_rules! header_enum {
    ($(#[$doc:meta])* $name:ident of $raw:ident { $($member:ident = $value:ident),* $(,)? }) => {
        open_enum! { $(#[$doc])* $name(u32) { $($member = sys::$raw::$value.0),* } }

        impl From<$name> for sys::$raw {
            fn from(value: $name) -> sys::$raw {
                sys::$raw(value.0)
            }
        }

        impl From<sys::$raw> for $name {
            fn from(value: sys::$raw) -> $name {
                $name(value.0)
            }
        }
    };
}

open_enum! {
    /// Outcome of a call.
    Status(i32) {
        OK = sys::MOE_OK,
        INVALID_ARGUMENT = sys::MOE_ERROR_INVALID_ARGUMENT,
        OUT_OF_MEMORY = sys::MOE_ERROR_OUT_OF_MEMORY,
        UNSUPPORTED = sys::MOE_ERROR_UNSUPPORTED,
        NOT_BUILT = sys::MOE_ERROR_NOT_BUILT,
        NO_DEVICE = sys::MOE_ERROR_NO_DEVICE,
        LAYOUT_MISMATCH = sys::MOE_ERROR_LAYOUT_MISMATCH,
        WORKSPACE_TOO_SMALL = sys::MOE_ERROR_WORKSPACE_TOO_SMALL,
        CANCELLED = sys::MOE_ERROR_CANCELLED,
        FORKED = sys::MOE_ERROR_FORKED,
        IO = sys::MOE_ERROR_IO,
        CORRUPT_FILE = sys::MOE_ERROR_CORRUPT_FILE,
        NOT_FOUND = sys::MOE_ERROR_NOT_FOUND,
        ABI = sys::MOE_ERROR_ABI,
        DEVICE = sys::MOE_ERROR_DEVICE,
        BUSY = sys::MOE_ERROR_BUSY,
        BUFFER_TOO_SMALL = sys::MOE_ERROR_BUFFER_TOO_SMALL,
        INTERNAL = sys::MOE_ERROR_INTERNAL,
    }
}

header_enum! {
    /// Element types.
    Type of moe_type {
        NONE = MOE_TYPE_NONE,
        F32 = MOE_TYPE_F32,
        F16 = MOE_TYPE_F16,
        BF16 = MOE_TYPE_BF16,
        F64 = MOE_TYPE_F64,
        I8 = MOE_TYPE_I8,
        U8 = MOE_TYPE_U8,
        I32 = MOE_TYPE_I32,
        I64 = MOE_TYPE_I64,
        F8_E4M3 = MOE_TYPE_F8_E4M3,
        F8_E5M2 = MOE_TYPE_F8_E5M2,
        F8_E8M0 = MOE_TYPE_F8_E8M0,
        F8_E4M4 = MOE_TYPE_F8_E4M4,
        E2M1 = MOE_TYPE_E2M1,
        INT = MOE_TYPE_INT,
        CODEBOOK = MOE_TYPE_CODEBOOK,
        GGUF = MOE_TYPE_GGUF,
    }
}

header_enum! {
    /// Tensor roles of a layer.
    Role of moe_role {
        NONE = MOE_ROLE_NONE,
        ROUTER = MOE_ROLE_ROUTER,
        ROUTER_BIAS = MOE_ROLE_ROUTER_BIAS,
        SELECTION_BIAS = MOE_ROLE_SELECTION_BIAS,
        ROUTER_NORM = MOE_ROLE_ROUTER_NORM,
        HASH_TABLE = MOE_ROLE_HASH_TABLE,
        EXPERT_SCALE = MOE_ROLE_EXPERT_SCALE,
        GATE = MOE_ROLE_GATE,
        UP = MOE_ROLE_UP,
        DOWN = MOE_ROLE_DOWN,
        GATE_UP = MOE_ROLE_GATE_UP,
        GATE_BIAS = MOE_ROLE_GATE_BIAS,
        UP_BIAS = MOE_ROLE_UP_BIAS,
        DOWN_BIAS = MOE_ROLE_DOWN_BIAS,
        GATE_UP_BIAS = MOE_ROLE_GATE_UP_BIAS,
        SHARED_GATE = MOE_ROLE_SHARED_GATE,
        SHARED_UP = MOE_ROLE_SHARED_UP,
        SHARED_DOWN = MOE_ROLE_SHARED_DOWN,
        SHARED_GATE_UP = MOE_ROLE_SHARED_GATE_UP,
        SHARED_EXPERT_GATE = MOE_ROLE_SHARED_EXPERT_GATE,
        LATENT_IN = MOE_ROLE_LATENT_IN,
        LATENT_OUT = MOE_ROLE_LATENT_OUT,
        LATENT_NORM = MOE_ROLE_LATENT_NORM,
        SECOND_SELECTION_BIAS = MOE_ROLE_SECOND_SELECTION_BIAS,
        LATENT_IN_NORM = MOE_ROLE_LATENT_IN_NORM,
        EXPERT_NORM = MOE_ROLE_EXPERT_NORM,
    }
}

header_enum! {
    /// `moe_score` of the header.
    Score of moe_score {
        NONE = MOE_SCORE_NONE,
        SOFTMAX = MOE_SCORE_SOFTMAX,
        SIGMOID = MOE_SCORE_SIGMOID,
        SQRT_SOFTPLUS = MOE_SCORE_SQRT_SOFTPLUS,
    }
}

header_enum! {
    /// `moe_selection` of the header.
    Selection of moe_selection {
        TOP_K = MOE_SELECT_TOP_K,
        SPARSEMIXER = MOE_SELECT_SPARSEMIXER,
        HASH = MOE_SELECT_HASH,
    }
}

header_enum! {
    /// `moe_group_score` of the header.
    GroupScore of moe_group_score {
        NONE = MOE_GROUP_SCORE_NONE,
        MAX = MOE_GROUP_SCORE_MAX,
        TOP2_SUM = MOE_GROUP_SCORE_TOP2_SUM,
    }
}

header_enum! {
    /// `moe_group_mask` of the header.
    GroupMask of moe_group_mask {
        INFINITY = MOE_GROUP_MASK_INFINITY,
        ZERO = MOE_GROUP_MASK_ZERO,
    }
}

header_enum! {
    /// `moe_renormalize` of the header.
    Renormalize of moe_renormalize {
        NONE = MOE_RENORMALIZE_NONE,
        SUM_ADD = MOE_RENORMALIZE_SUM_ADD,
        SUM_CLAMP = MOE_RENORMALIZE_SUM_CLAMP,
    }
}

header_enum! {
    /// `moe_weight_on` of the header.
    WeightOn of moe_weight_on {
        OUTPUT = MOE_WEIGHT_ON_OUTPUT,
        INPUT = MOE_WEIGHT_ON_INPUT,
    }
}

header_enum! {
    /// `moe_combine_rule` of the header.
    CombineRule of moe_combine_rule {
        SUM = MOE_COMBINE_SUM,
        MEAN = MOE_COMBINE_MEAN,
    }
}

header_enum! {
    /// `moe_activation` of the header.
    Activation of moe_activation {
        NONE = MOE_ACTIVATION_NONE,
        SILU = MOE_ACTIVATION_SILU,
        GELU_TANH = MOE_ACTIVATION_GELU_TANH,
        GELU_ERF = MOE_ACTIVATION_GELU_ERF,
        RELU2 = MOE_ACTIVATION_RELU2,
        SITU = MOE_ACTIVATION_SITU,
    }
}

header_enum! {
    /// `AUTO`, `CPU` or `CUDA`.
    DeviceKind of moe_device_kind {
        AUTO = MOE_DEVICE_AUTO,
        CPU = MOE_DEVICE_CPU,
        CUDA = MOE_DEVICE_CUDA,
    }
}

header_enum! {
    /// `moe_space` of the header.
    Space of moe_space {
        HOST = MOE_SPACE_HOST,
        PINNED = MOE_SPACE_PINNED,
        DEVICE = MOE_SPACE_DEVICE,
    }
}

header_enum! {
    /// The stages; bits.
    Stage of moe_stage {
        ROUTE = MOE_STAGE_ROUTE,
        DISPATCH = MOE_STAGE_DISPATCH,
        EXPERTS = MOE_STAGE_EXPERTS,
        COMBINE = MOE_STAGE_COMBINE,
        FINISH = MOE_STAGE_FINISH,
    }
}

header_enum! {
    /// `moe_log_level` of the header.
    LogLevel of moe_log_level {
        DEFAULT = MOE_LOG_DEFAULT,
        ERROR = MOE_LOG_ERROR,
        WARNING = MOE_LOG_WARNING,
        INFO = MOE_LOG_INFO,
        DEBUG = MOE_LOG_DEBUG,
        OFF = MOE_LOG_OFF,
    }
}

header_enum! {
    /// `moe_packing` of the header.
    Packing of moe_packing {
        DENSE = MOE_PACKING_DENSE,
        NIBBLE_LOW_FIRST = MOE_PACKING_NIBBLE_LOW_FIRST,
        NIBBLE_HIGH_FIRST = MOE_PACKING_NIBBLE_HIGH_FIRST,
        BIT_PLANES = MOE_PACKING_BIT_PLANES,
        BIT_STREAM = MOE_PACKING_BIT_STREAM,
        GPTQ = MOE_PACKING_GPTQ,
        AWQ = MOE_PACKING_AWQ,
    }
}

header_enum! {
    /// `moe_global_scale` of the header.
    GlobalScale of moe_global_scale {
        NONE = MOE_GLOBAL_SCALE_NONE,
        MULTIPLY = MOE_GLOBAL_SCALE_MULTIPLY,
        DIVIDE = MOE_GLOBAL_SCALE_DIVIDE,
    }
}

header_enum! {
    /// `moe_zero_point` of the header.
    ZeroPoint of moe_zero_point {
        NONE = MOE_ZERO_POINT_NONE,
        MIDDLE = MOE_ZERO_POINT_MIDDLE,
        PACKED = MOE_ZERO_POINT_PACKED,
        PACKED_MINUS_ONE = MOE_ZERO_POINT_PACKED_MINUS_ONE,
        FLOAT = MOE_ZERO_POINT_FLOAT,
    }
}

header_enum! {
    /// `moe_codebook` of the header.
    Codebook of moe_codebook {
        NONE = MOE_CODEBOOK_NONE,
        GIVEN = MOE_CODEBOOK_GIVEN,
        NORMAL_FLOAT = MOE_CODEBOOK_NORMAL_FLOAT,
        BNB_NF4 = MOE_CODEBOOK_BNB_NF4,
        BNB_FP4 = MOE_CODEBOOK_BNB_FP4,
    }
}

header_enum! {
    /// `moe_orientation` of the header.
    Orientation of moe_orientation {
        OUT_IN = MOE_ORIENTATION_OUT_IN,
        IN_OUT = MOE_ORIENTATION_IN_OUT,
    }
}

header_enum! {
    /// `moe_scale_layout` of the header.
    ScaleLayout of moe_scale_layout {
        LINEAR = MOE_SCALE_LAYOUT_LINEAR,
        TILED_128X4 = MOE_SCALE_LAYOUT_TILED_128X4,
    }
}

header_enum! {
    /// `moe_gate_up_order` of the header.
    GateUpOrder of moe_gate_up_order {
        NONE = MOE_GATE_UP_NONE,
        GATE_FIRST = MOE_GATE_UP_GATE_FIRST,
        UP_FIRST = MOE_GATE_UP_UP_FIRST,
        INTERLEAVED = MOE_GATE_UP_INTERLEAVED,
    }
}

header_enum! {
    /// `moe_residency` of the header.
    Residency of moe_residency {
        AUTO = MOE_RESIDENCY_AUTO,
        PACKED = MOE_RESIDENCY_PACKED,
        SOURCE = MOE_RESIDENCY_SOURCE,
    }
}

header_enum! {
    /// `moe_activation_quantization` of the header.
    ActivationQuantization of moe_activation_quantization {
        NONE = MOE_ACTIVATION_QUANTIZATION_NONE,
        FP8 = MOE_ACTIVATION_QUANTIZATION_FP8,
        INT8 = MOE_ACTIVATION_QUANTIZATION_INT8,
    }
}

header_enum! {
    /// `moe_explain_form` of the header.
    ExplainForm of moe_explain_form {
        TEXT = MOE_EXPLAIN_TEXT,
        JSON = MOE_EXPLAIN_JSON,
    }
}

header_enum! {
    /// `moe_ownership` of the header.
    Ownership of moe_ownership {
        COPY = MOE_OWN_COPY,
        BORROW = MOE_OWN_BORROW,
        CALLER = MOE_OWN_CALLER,
    }
}

header_enum! {
    /// `moe_routing` of the header.
    Routing of moe_routing {
        COMPUTE = MOE_ROUTING_COMPUTE,
        LOGITS = MOE_ROUTING_LOGITS,
        IDS = MOE_ROUTING_IDS,
        IDS_AND_WEIGHTS = MOE_ROUTING_IDS_AND_WEIGHTS,
    }
}

header_enum! {
    /// `moe_out_layout` of the header.
    OutLayout of moe_out_layout {
        REDUCED = MOE_OUT_REDUCED,
        PER_SLOT = MOE_OUT_PER_SLOT,
        ROWS = MOE_OUT_ROWS,
    }
}

header_enum! {
    /// `moe_in_layout` of the header.
    InLayout of moe_in_layout {
        TOKENS = MOE_IN_TOKENS,
        SORTED = MOE_IN_SORTED,
        BATCHED = MOE_IN_BATCHED,
    }
}

header_enum! {
    /// `moe_io` of the header.
    Io of moe_io {
        MMAP = MOE_IO_MMAP,
        READ = MOE_IO_READ,
    }
}

open_enum! {
    /// What went wrong at run time; bits.
    Fault(u32) {
        ID_OUT_OF_RANGE = sys::MOE_FAULT_ID_OUT_OF_RANGE,
        TOKEN_ID_OUT_OF_RANGE = sys::MOE_FAULT_TOKEN_ID_OUT_OF_RANGE,
        TOKENS_OUT_OF_RANGE = sys::MOE_FAULT_TOKENS_OUT_OF_RANGE,
        OFFSETS_OUT_OF_RANGE = sys::MOE_FAULT_OFFSETS_OUT_OF_RANGE,
    }
}

open_enum! {
    /// What [`crate::Finish`] adds; bits.
    FinishParts(u32) {
        ALL = sys::MOE_FINISH_ALL,
        DOWN_BIAS = sys::MOE_FINISH_DOWN_BIAS,
        LATENT = sys::MOE_FINISH_LATENT,
        SHARED = sys::MOE_FINISH_SHARED,
        COMBINE = sys::MOE_FINISH_COMBINE,
        IDENTITY = sys::MOE_FINISH_IDENTITY,
    }
}

macro_rules! bits {
    ($($name:ident),*) => {$(
        impl std::ops::BitOr for $name {
            type Output = $name;
            fn bitor(self, other: $name) -> $name {
                $name(self.0 | other.0)
            }
        }

        impl $name {
            /// Whether all bits of `other` are set.
            pub fn contains(self, other: $name) -> bool {
                self.0 & other.0 == other.0
            }
        }
    )*};
}
bits!(Stage, Fault, FinishParts);

impl Role {
    /// "gate", "shared_down" and the like; "unknown" for other values.
    pub fn text(self) -> crate::Result<&'static str> {
        crate::error::gate()?;
        // SAFETY: any number is taken.
        Ok(unsafe { crate::error::text(sys::moe_role_name(self.into())) })
    }
}

impl Type {
    /// "f8_e4m3" and the like; "unknown" for other values.
    pub fn text(self) -> crate::Result<&'static str> {
        crate::error::gate()?;
        // SAFETY: any number is taken.
        Ok(unsafe { crate::error::text(sys::moe_type_name(self.into())) })
    }
}
