// Made of moe.h by generate.rs, with bindgen 0.60; do not edit.

pub const MOE_VERSION_MAJOR: u32 = 0;
pub const MOE_VERSION_MINOR: u32 = 1;
pub const MOE_VERSION_PATCH: u32 = 0;
pub const MOE_VERSION_NUMBER: u32 = 1000;
pub const MOE_ABI_VERSION: u32 = 1;
pub const MOE_ROLE_COUNT: u32 = 26;
pub const MOE_ALL_EXPERTS: i32 = -1;
pub type __int8_t = ::std::os::raw::c_schar;
pub type __int32_t = ::std::os::raw::c_int;
pub type __uint32_t = ::std::os::raw::c_uint;
pub type __int64_t = ::std::os::raw::c_long;
pub type __uint64_t = ::std::os::raw::c_ulong;
pub type moe_status = i32;
pub const MOE_OK: _bindgen_ty_1 = 0;
pub const MOE_ERROR_INVALID_ARGUMENT: _bindgen_ty_1 = -1;
pub const MOE_ERROR_OUT_OF_MEMORY: _bindgen_ty_1 = -2;
pub const MOE_ERROR_UNSUPPORTED: _bindgen_ty_1 = -3;
pub const MOE_ERROR_NOT_BUILT: _bindgen_ty_1 = -4;
pub const MOE_ERROR_NO_DEVICE: _bindgen_ty_1 = -5;
pub const MOE_ERROR_LAYOUT_MISMATCH: _bindgen_ty_1 = -6;
pub const MOE_ERROR_WORKSPACE_TOO_SMALL: _bindgen_ty_1 = -7;
pub const MOE_ERROR_CANCELLED: _bindgen_ty_1 = -8;
pub const MOE_ERROR_FORKED: _bindgen_ty_1 = -9;
pub const MOE_ERROR_IO: _bindgen_ty_1 = -10;
pub const MOE_ERROR_CORRUPT_FILE: _bindgen_ty_1 = -11;
pub const MOE_ERROR_NOT_FOUND: _bindgen_ty_1 = -12;
pub const MOE_ERROR_ABI: _bindgen_ty_1 = -13;
pub const MOE_ERROR_DEVICE: _bindgen_ty_1 = -14;
pub const MOE_ERROR_BUSY: _bindgen_ty_1 = -15;
pub const MOE_ERROR_BUFFER_TOO_SMALL: _bindgen_ty_1 = -16;
pub const MOE_ERROR_INTERNAL: _bindgen_ty_1 = -17;
pub type _bindgen_ty_1 = ::std::os::raw::c_int;
impl moe_type {
    pub const MOE_TYPE_NONE: moe_type = moe_type(0);
}
impl moe_type {
    pub const MOE_TYPE_F32: moe_type = moe_type(1);
}
impl moe_type {
    pub const MOE_TYPE_F16: moe_type = moe_type(2);
}
impl moe_type {
    pub const MOE_TYPE_BF16: moe_type = moe_type(3);
}
impl moe_type {
    pub const MOE_TYPE_F64: moe_type = moe_type(4);
}
impl moe_type {
    pub const MOE_TYPE_I8: moe_type = moe_type(10);
}
impl moe_type {
    pub const MOE_TYPE_U8: moe_type = moe_type(11);
}
impl moe_type {
    pub const MOE_TYPE_I32: moe_type = moe_type(12);
}
impl moe_type {
    pub const MOE_TYPE_I64: moe_type = moe_type(13);
}
impl moe_type {
    pub const MOE_TYPE_F8_E4M3: moe_type = moe_type(20);
}
impl moe_type {
    pub const MOE_TYPE_F8_E5M2: moe_type = moe_type(21);
}
impl moe_type {
    pub const MOE_TYPE_F8_E8M0: moe_type = moe_type(22);
}
impl moe_type {
    pub const MOE_TYPE_F8_E4M4: moe_type = moe_type(23);
}
impl moe_type {
    pub const MOE_TYPE_E2M1: moe_type = moe_type(30);
}
impl moe_type {
    pub const MOE_TYPE_INT: moe_type = moe_type(31);
}
impl moe_type {
    pub const MOE_TYPE_CODEBOOK: moe_type = moe_type(32);
}
impl moe_type {
    pub const MOE_TYPE_GGUF: moe_type = moe_type(33);
}
impl moe_type {
    pub const MOE_TYPE_FORCE_INT32: moe_type = moe_type(2147483647);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct moe_type(pub ::std::os::raw::c_uint);
impl moe_role {
    pub const MOE_ROLE_NONE: moe_role = moe_role(0);
}
impl moe_role {
    pub const MOE_ROLE_ROUTER: moe_role = moe_role(1);
}
impl moe_role {
    pub const MOE_ROLE_ROUTER_BIAS: moe_role = moe_role(2);
}
impl moe_role {
    pub const MOE_ROLE_SELECTION_BIAS: moe_role = moe_role(3);
}
impl moe_role {
    pub const MOE_ROLE_ROUTER_NORM: moe_role = moe_role(4);
}
impl moe_role {
    pub const MOE_ROLE_HASH_TABLE: moe_role = moe_role(5);
}
impl moe_role {
    pub const MOE_ROLE_EXPERT_SCALE: moe_role = moe_role(6);
}
impl moe_role {
    pub const MOE_ROLE_GATE: moe_role = moe_role(7);
}
impl moe_role {
    pub const MOE_ROLE_UP: moe_role = moe_role(8);
}
impl moe_role {
    pub const MOE_ROLE_DOWN: moe_role = moe_role(9);
}
impl moe_role {
    pub const MOE_ROLE_GATE_UP: moe_role = moe_role(10);
}
impl moe_role {
    pub const MOE_ROLE_GATE_BIAS: moe_role = moe_role(11);
}
impl moe_role {
    pub const MOE_ROLE_UP_BIAS: moe_role = moe_role(12);
}
impl moe_role {
    pub const MOE_ROLE_DOWN_BIAS: moe_role = moe_role(13);
}
impl moe_role {
    pub const MOE_ROLE_GATE_UP_BIAS: moe_role = moe_role(14);
}
impl moe_role {
    pub const MOE_ROLE_SHARED_GATE: moe_role = moe_role(15);
}
impl moe_role {
    pub const MOE_ROLE_SHARED_UP: moe_role = moe_role(16);
}
impl moe_role {
    pub const MOE_ROLE_SHARED_DOWN: moe_role = moe_role(17);
}
impl moe_role {
    pub const MOE_ROLE_SHARED_GATE_UP: moe_role = moe_role(18);
}
impl moe_role {
    pub const MOE_ROLE_SHARED_EXPERT_GATE: moe_role = moe_role(19);
}
impl moe_role {
    pub const MOE_ROLE_LATENT_IN: moe_role = moe_role(20);
}
impl moe_role {
    pub const MOE_ROLE_LATENT_OUT: moe_role = moe_role(21);
}
impl moe_role {
    pub const MOE_ROLE_LATENT_NORM: moe_role = moe_role(22);
}
impl moe_role {
    pub const MOE_ROLE_SECOND_SELECTION_BIAS: moe_role = moe_role(23);
}
impl moe_role {
    pub const MOE_ROLE_LATENT_IN_NORM: moe_role = moe_role(24);
}
impl moe_role {
    pub const MOE_ROLE_EXPERT_NORM: moe_role = moe_role(25);
}
impl moe_role {
    pub const MOE_ROLE_FORCE_INT32: moe_role = moe_role(2147483647);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct moe_role(pub ::std::os::raw::c_uint);
impl moe_score {
    pub const MOE_SCORE_NONE: moe_score = moe_score(0);
}
impl moe_score {
    pub const MOE_SCORE_SOFTMAX: moe_score = moe_score(1);
}
impl moe_score {
    pub const MOE_SCORE_SIGMOID: moe_score = moe_score(2);
}
impl moe_score {
    pub const MOE_SCORE_SQRT_SOFTPLUS: moe_score = moe_score(3);
}
impl moe_score {
    pub const MOE_SCORE_FORCE_INT32: moe_score = moe_score(2147483647);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct moe_score(pub ::std::os::raw::c_uint);
impl moe_selection {
    pub const MOE_SELECT_TOP_K: moe_selection = moe_selection(0);
}
impl moe_selection {
    pub const MOE_SELECT_SPARSEMIXER: moe_selection = moe_selection(1);
}
impl moe_selection {
    pub const MOE_SELECT_HASH: moe_selection = moe_selection(2);
}
impl moe_selection {
    pub const MOE_SELECT_FORCE_INT32: moe_selection = moe_selection(2147483647);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct moe_selection(pub ::std::os::raw::c_uint);
impl moe_group_score {
    pub const MOE_GROUP_SCORE_NONE: moe_group_score = moe_group_score(0);
}
impl moe_group_score {
    pub const MOE_GROUP_SCORE_MAX: moe_group_score = moe_group_score(1);
}
impl moe_group_score {
    pub const MOE_GROUP_SCORE_TOP2_SUM: moe_group_score = moe_group_score(2);
}
impl moe_group_score {
    pub const MOE_GROUP_SCORE_FORCE_INT32: moe_group_score = moe_group_score(2147483647);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct moe_group_score(pub ::std::os::raw::c_uint);
impl moe_group_mask {
    pub const MOE_GROUP_MASK_INFINITY: moe_group_mask = moe_group_mask(0);
}
impl moe_group_mask {
    pub const MOE_GROUP_MASK_ZERO: moe_group_mask = moe_group_mask(1);
}
impl moe_group_mask {
    pub const MOE_GROUP_MASK_FORCE_INT32: moe_group_mask = moe_group_mask(2147483647);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct moe_group_mask(pub ::std::os::raw::c_uint);
impl moe_renormalize {
    pub const MOE_RENORMALIZE_NONE: moe_renormalize = moe_renormalize(0);
}
impl moe_renormalize {
    pub const MOE_RENORMALIZE_SUM_ADD: moe_renormalize = moe_renormalize(1);
}
impl moe_renormalize {
    pub const MOE_RENORMALIZE_SUM_CLAMP: moe_renormalize = moe_renormalize(2);
}
impl moe_renormalize {
    pub const MOE_RENORMALIZE_FORCE_INT32: moe_renormalize = moe_renormalize(2147483647);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct moe_renormalize(pub ::std::os::raw::c_uint);
impl moe_weight_on {
    pub const MOE_WEIGHT_ON_OUTPUT: moe_weight_on = moe_weight_on(0);
}
impl moe_weight_on {
    pub const MOE_WEIGHT_ON_INPUT: moe_weight_on = moe_weight_on(1);
}
impl moe_weight_on {
    pub const MOE_WEIGHT_ON_FORCE_INT32: moe_weight_on = moe_weight_on(2147483647);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct moe_weight_on(pub ::std::os::raw::c_uint);
impl moe_combine_rule {
    pub const MOE_COMBINE_SUM: moe_combine_rule = moe_combine_rule(0);
}
impl moe_combine_rule {
    pub const MOE_COMBINE_MEAN: moe_combine_rule = moe_combine_rule(1);
}
impl moe_combine_rule {
    pub const MOE_COMBINE_FORCE_INT32: moe_combine_rule = moe_combine_rule(2147483647);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct moe_combine_rule(pub ::std::os::raw::c_uint);
impl moe_activation {
    pub const MOE_ACTIVATION_NONE: moe_activation = moe_activation(0);
}
impl moe_activation {
    pub const MOE_ACTIVATION_SILU: moe_activation = moe_activation(1);
}
impl moe_activation {
    pub const MOE_ACTIVATION_GELU_TANH: moe_activation = moe_activation(2);
}
impl moe_activation {
    pub const MOE_ACTIVATION_GELU_ERF: moe_activation = moe_activation(3);
}
impl moe_activation {
    pub const MOE_ACTIVATION_RELU2: moe_activation = moe_activation(4);
}
impl moe_activation {
    pub const MOE_ACTIVATION_SITU: moe_activation = moe_activation(5);
}
impl moe_activation {
    pub const MOE_ACTIVATION_FORCE_INT32: moe_activation = moe_activation(2147483647);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct moe_activation(pub ::std::os::raw::c_uint);
impl moe_device_kind {
    pub const MOE_DEVICE_AUTO: moe_device_kind = moe_device_kind(0);
}
impl moe_device_kind {
    pub const MOE_DEVICE_CPU: moe_device_kind = moe_device_kind(1);
}
impl moe_device_kind {
    pub const MOE_DEVICE_CUDA: moe_device_kind = moe_device_kind(2);
}
impl moe_device_kind {
    pub const MOE_DEVICE_FORCE_INT32: moe_device_kind = moe_device_kind(2147483647);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct moe_device_kind(pub ::std::os::raw::c_uint);
impl moe_space {
    pub const MOE_SPACE_HOST: moe_space = moe_space(0);
}
impl moe_space {
    pub const MOE_SPACE_PINNED: moe_space = moe_space(1);
}
impl moe_space {
    pub const MOE_SPACE_DEVICE: moe_space = moe_space(2);
}
impl moe_space {
    pub const MOE_SPACE_FORCE_INT32: moe_space = moe_space(2147483647);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct moe_space(pub ::std::os::raw::c_uint);
impl moe_stage {
    pub const MOE_STAGE_ROUTE: moe_stage = moe_stage(1);
}
impl moe_stage {
    pub const MOE_STAGE_DISPATCH: moe_stage = moe_stage(2);
}
impl moe_stage {
    pub const MOE_STAGE_EXPERTS: moe_stage = moe_stage(4);
}
impl moe_stage {
    pub const MOE_STAGE_COMBINE: moe_stage = moe_stage(8);
}
impl moe_stage {
    pub const MOE_STAGE_FINISH: moe_stage = moe_stage(16);
}
impl moe_stage {
    pub const MOE_STAGE_FORCE_INT32: moe_stage = moe_stage(2147483647);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct moe_stage(pub ::std::os::raw::c_uint);
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moe_runtime {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moe_allocator {
    pub struct_size: u32,
    pub reserved: u32,
    pub allocate: ::std::option::Option<
        unsafe extern "C" fn(
            bytes: u64,
            alignment: u64,
            space: moe_space,
            stream: *mut ::std::os::raw::c_void,
            user_data: *mut ::std::os::raw::c_void,
        ) -> *mut ::std::os::raw::c_void,
    >,
    pub release: ::std::option::Option<
        unsafe extern "C" fn(
            memory: *mut ::std::os::raw::c_void,
            bytes: u64,
            alignment: u64,
            space: moe_space,
            stream: *mut ::std::os::raw::c_void,
            user_data: *mut ::std::os::raw::c_void,
        ),
    >,
    pub user_data: *mut ::std::os::raw::c_void,
}
impl moe_log_level {
    pub const MOE_LOG_DEFAULT: moe_log_level = moe_log_level(0);
}
impl moe_log_level {
    pub const MOE_LOG_ERROR: moe_log_level = moe_log_level(1);
}
impl moe_log_level {
    pub const MOE_LOG_WARNING: moe_log_level = moe_log_level(2);
}
impl moe_log_level {
    pub const MOE_LOG_INFO: moe_log_level = moe_log_level(3);
}
impl moe_log_level {
    pub const MOE_LOG_DEBUG: moe_log_level = moe_log_level(4);
}
impl moe_log_level {
    pub const MOE_LOG_OFF: moe_log_level = moe_log_level(5);
}
impl moe_log_level {
    pub const MOE_LOG_FORCE_INT32: moe_log_level = moe_log_level(2147483647);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct moe_log_level(pub ::std::os::raw::c_uint);
pub type moe_log_fn = ::std::option::Option<
    unsafe extern "C" fn(
        level: moe_log_level,
        message: *const ::std::os::raw::c_char,
        user_data: *mut ::std::os::raw::c_void,
    ),
>;
pub type moe_task_fn =
    ::std::option::Option<unsafe extern "C" fn(index: i32, task_data: *mut ::std::os::raw::c_void)>;
pub type moe_parallel_for_fn = ::std::option::Option<
    unsafe extern "C" fn(
        n_tasks: i32,
        task: moe_task_fn,
        task_data: *mut ::std::os::raw::c_void,
        user_data: *mut ::std::os::raw::c_void,
    ),
>;
pub type moe_progress_fn = ::std::option::Option<
    unsafe extern "C" fn(done: u64, total: u64, user_data: *mut ::std::os::raw::c_void) -> i32,
>;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moe_runtime_desc {
    pub struct_size: u32,
    pub n_threads: i32,
    pub allocator: *const moe_allocator,
    pub parallel_for: moe_parallel_for_fn,
    pub parallel_for_user_data: *mut ::std::os::raw::c_void,
    pub log: moe_log_fn,
    pub log_user_data: *mut ::std::os::raw::c_void,
    pub log_level: moe_log_level,
    pub reserved: u32,
    pub cublaslt_path: *const ::std::os::raw::c_char,
    pub nccl_path: *const ::std::os::raw::c_char,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moe_device_info {
    pub struct_size: u32,
    pub kind: moe_device_kind,
    pub index: i32,
    pub n_cores: i32,
    pub memory_bytes: u64,
    pub arch_major: i32,
    pub arch_minor: i32,
    pub name: [::std::os::raw::c_char; 128usize],
    pub features: [::std::os::raw::c_char; 256usize],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moe_layer_desc {
    pub struct_size: u32,
    pub hidden: i32,
    pub intermediate: i32,
    pub n_experts: i32,
    pub top_k: i32,
    pub n_identity_experts: i32,
    pub has_router: i32,
    pub has_router_bias: i32,
    pub has_selection_bias: i32,
    pub has_router_norm: i32,
    pub has_router_norm_weight: i32,
    pub has_router_input_scale: i32,
    pub router_norm_eps: f32,
    pub router_input_scale: f32,
    pub has_logit_softcap: i32,
    pub logit_softcap: f32,
    pub score: moe_score,
    pub post_score: moe_score,
    pub selection: moe_selection,
    pub sparsemixer_jitter: f32,
    pub hash_vocabulary: i32,
    pub n_group: i32,
    pub topk_group: i32,
    pub group_score: moe_group_score,
    pub renormalize: moe_renormalize,
    pub renormalize_eps: f32,
    pub has_routed_scale: i32,
    pub routed_scale: f32,
    pub has_expert_scale: i32,
    pub weight_on: moe_weight_on,
    pub round_logits: i32,
    pub round_weights: i32,
    pub activation: moe_activation,
    pub is_gated: i32,
    pub has_activation_alpha: i32,
    pub activation_alpha: f32,
    pub activation_up_offset: f32,
    pub has_gate_limit: i32,
    pub gate_limit: f32,
    pub has_up_limit: i32,
    pub up_limit: f32,
    pub has_post_limit: i32,
    pub post_limit: f32,
    pub situ_beta: f32,
    pub situ_beta_up: f32,
    pub has_gate_bias: i32,
    pub has_up_bias: i32,
    pub has_down_bias: i32,
    pub latent: i32,
    pub has_latent_norm: i32,
    pub latent_norm_eps: f32,
    pub shared_intermediate: i32,
    pub has_shared_expert_gate: i32,
    pub has_shared_scale: i32,
    pub shared_scale: f32,
    pub shared_activation: moe_activation,
    pub shared_is_gated: i32,
    pub has_shared_activation_alpha: i32,
    pub shared_activation_alpha: f32,
    pub shared_activation_up_offset: f32,
    pub has_shared_gate_limit: i32,
    pub shared_gate_limit: f32,
    pub has_shared_up_limit: i32,
    pub shared_up_limit: f32,
    pub has_shared_post_limit: i32,
    pub shared_post_limit: f32,
    pub shared_situ_beta: f32,
    pub shared_situ_beta_up: f32,
    pub combine: moe_combine_rule,
    pub group_mask: moe_group_mask,
    pub has_second_selection_bias: i32,
    pub has_latent_in_norm: i32,
    pub latent_in_norm_eps: f32,
    pub has_expert_norm: i32,
    pub expert_norm_eps: f32,
    pub expert_norm_weight_first: i32,
}
impl moe_packing {
    pub const MOE_PACKING_DENSE: moe_packing = moe_packing(0);
}
impl moe_packing {
    pub const MOE_PACKING_NIBBLE_LOW_FIRST: moe_packing = moe_packing(1);
}
impl moe_packing {
    pub const MOE_PACKING_NIBBLE_HIGH_FIRST: moe_packing = moe_packing(2);
}
impl moe_packing {
    pub const MOE_PACKING_BIT_PLANES: moe_packing = moe_packing(3);
}
impl moe_packing {
    pub const MOE_PACKING_BIT_STREAM: moe_packing = moe_packing(4);
}
impl moe_packing {
    pub const MOE_PACKING_GPTQ: moe_packing = moe_packing(5);
}
impl moe_packing {
    pub const MOE_PACKING_AWQ: moe_packing = moe_packing(6);
}
impl moe_packing {
    pub const MOE_PACKING_FORCE_INT32: moe_packing = moe_packing(2147483647);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct moe_packing(pub ::std::os::raw::c_uint);
impl moe_global_scale {
    pub const MOE_GLOBAL_SCALE_NONE: moe_global_scale = moe_global_scale(0);
}
impl moe_global_scale {
    pub const MOE_GLOBAL_SCALE_MULTIPLY: moe_global_scale = moe_global_scale(1);
}
impl moe_global_scale {
    pub const MOE_GLOBAL_SCALE_DIVIDE: moe_global_scale = moe_global_scale(2);
}
impl moe_global_scale {
    pub const MOE_GLOBAL_SCALE_FORCE_INT32: moe_global_scale = moe_global_scale(2147483647);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct moe_global_scale(pub ::std::os::raw::c_uint);
impl moe_zero_point {
    pub const MOE_ZERO_POINT_NONE: moe_zero_point = moe_zero_point(0);
}
impl moe_zero_point {
    pub const MOE_ZERO_POINT_MIDDLE: moe_zero_point = moe_zero_point(1);
}
impl moe_zero_point {
    pub const MOE_ZERO_POINT_PACKED: moe_zero_point = moe_zero_point(2);
}
impl moe_zero_point {
    pub const MOE_ZERO_POINT_PACKED_MINUS_ONE: moe_zero_point = moe_zero_point(3);
}
impl moe_zero_point {
    pub const MOE_ZERO_POINT_FLOAT: moe_zero_point = moe_zero_point(4);
}
impl moe_zero_point {
    pub const MOE_ZERO_POINT_FORCE_INT32: moe_zero_point = moe_zero_point(2147483647);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct moe_zero_point(pub ::std::os::raw::c_uint);
impl moe_codebook {
    pub const MOE_CODEBOOK_NONE: moe_codebook = moe_codebook(0);
}
impl moe_codebook {
    pub const MOE_CODEBOOK_GIVEN: moe_codebook = moe_codebook(1);
}
impl moe_codebook {
    pub const MOE_CODEBOOK_NORMAL_FLOAT: moe_codebook = moe_codebook(2);
}
impl moe_codebook {
    pub const MOE_CODEBOOK_BNB_NF4: moe_codebook = moe_codebook(3);
}
impl moe_codebook {
    pub const MOE_CODEBOOK_BNB_FP4: moe_codebook = moe_codebook(4);
}
impl moe_codebook {
    pub const MOE_CODEBOOK_FORCE_INT32: moe_codebook = moe_codebook(2147483647);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct moe_codebook(pub ::std::os::raw::c_uint);
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moe_format {
    pub struct_size: u32,
    pub type_: moe_type,
    pub bits: i32,
    pub group_rows: i32,
    pub group_columns: i32,
    pub scale_type: moe_type,
    pub global_scale: moe_global_scale,
    pub zero_point: moe_zero_point,
    pub packing: moe_packing,
    pub codebook: moe_codebook,
    pub block_id: i32,
    pub act_order: i32,
    pub nested_scales: i32,
    pub pre_quant_scale: i32,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moe_format_info {
    pub struct_size: u32,
    pub block_rows: i32,
    pub block_columns: i32,
    pub has_decode: i32,
    pub has_encode: i32,
    pub reserved: u32,
    pub bits_per_weight: f64,
    pub name: [::std::os::raw::c_char; 64usize],
}
impl moe_orientation {
    pub const MOE_ORIENTATION_OUT_IN: moe_orientation = moe_orientation(0);
}
impl moe_orientation {
    pub const MOE_ORIENTATION_IN_OUT: moe_orientation = moe_orientation(1);
}
impl moe_orientation {
    pub const MOE_ORIENTATION_FORCE_INT32: moe_orientation = moe_orientation(2147483647);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct moe_orientation(pub ::std::os::raw::c_uint);
impl moe_gate_up_order {
    pub const MOE_GATE_UP_NONE: moe_gate_up_order = moe_gate_up_order(0);
}
impl moe_gate_up_order {
    pub const MOE_GATE_UP_GATE_FIRST: moe_gate_up_order = moe_gate_up_order(1);
}
impl moe_gate_up_order {
    pub const MOE_GATE_UP_UP_FIRST: moe_gate_up_order = moe_gate_up_order(2);
}
impl moe_gate_up_order {
    pub const MOE_GATE_UP_INTERLEAVED: moe_gate_up_order = moe_gate_up_order(3);
}
impl moe_gate_up_order {
    pub const MOE_GATE_UP_FORCE_INT32: moe_gate_up_order = moe_gate_up_order(2147483647);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct moe_gate_up_order(pub ::std::os::raw::c_uint);
impl moe_scale_layout {
    pub const MOE_SCALE_LAYOUT_LINEAR: moe_scale_layout = moe_scale_layout(0);
}
impl moe_scale_layout {
    pub const MOE_SCALE_LAYOUT_TILED_128X4: moe_scale_layout = moe_scale_layout(1);
}
impl moe_scale_layout {
    pub const MOE_SCALE_LAYOUT_FORCE_INT32: moe_scale_layout = moe_scale_layout(2147483647);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct moe_scale_layout(pub ::std::os::raw::c_uint);
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moe_tensor {
    pub struct_size: u32,
    pub role: moe_role,
    pub expert: i32,
    pub orientation: moe_orientation,
    pub gate_up_order: moe_gate_up_order,
    pub space: moe_space,
    pub format: *const moe_format,
    pub n_experts: i64,
    pub rows: i64,
    pub columns: i64,
    pub row_stride: i64,
    pub expert_stride: i64,
    pub data: *const ::std::os::raw::c_void,
    pub data_bytes: u64,
    pub data_per_expert: *const *const ::std::os::raw::c_void,
    pub scales: *const ::std::os::raw::c_void,
    pub scale_bytes: u64,
    pub scales_per_expert: *const *const ::std::os::raw::c_void,
    pub scale_row_stride: i64,
    pub scale_expert_stride: i64,
    pub global_scale: *const f32,
    pub n_global_scales: i64,
    pub codebook: *const f32,
    pub codebook_bytes: u64,
    pub zero_points: *const ::std::os::raw::c_void,
    pub zero_point_bytes: u64,
    pub permutation: *const i32,
    pub permutation_bytes: u64,
    pub nested_scales: *const f32,
    pub nested_scale_bytes: u64,
    pub nested_codebook: *const f32,
    pub nested_offset: f32,
    pub reserved: u32,
    pub input_scale: *const f32,
    pub n_input_scales: i64,
    pub pre_quant_scale: *const ::std::os::raw::c_void,
    pub pre_quant_scale_bytes: u64,
    pub scale_layout: moe_scale_layout,
    pub reserved2: u32,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moe_plan {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moe_checkpoint {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moe_slice {
    pub struct_size: u32,
    pub has_expert_range: i32,
    pub expert_begin: i32,
    pub expert_count: i32,
    pub expert_to_local: *const i32,
    pub n_expert_to_local: i32,
    pub has_intermediate_range: i32,
    pub intermediate_begin: i32,
    pub intermediate_count: i32,
    pub has_shared_range: i32,
    pub shared_begin: i32,
    pub shared_count: i32,
    pub reserved: u32,
}
impl moe_residency {
    pub const MOE_RESIDENCY_AUTO: moe_residency = moe_residency(0);
}
impl moe_residency {
    pub const MOE_RESIDENCY_PACKED: moe_residency = moe_residency(1);
}
impl moe_residency {
    pub const MOE_RESIDENCY_SOURCE: moe_residency = moe_residency(2);
}
impl moe_residency {
    pub const MOE_RESIDENCY_FORCE_INT32: moe_residency = moe_residency(2147483647);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct moe_residency(pub ::std::os::raw::c_uint);
impl moe_activation_quantization {
    pub const MOE_ACTIVATION_QUANTIZATION_NONE: moe_activation_quantization = moe_activation_quantization(0);
}
impl moe_activation_quantization {
    pub const MOE_ACTIVATION_QUANTIZATION_FP8: moe_activation_quantization = moe_activation_quantization(1);
}
impl moe_activation_quantization {
    pub const MOE_ACTIVATION_QUANTIZATION_INT8: moe_activation_quantization = moe_activation_quantization(2);
}
impl moe_activation_quantization {
    pub const MOE_ACTIVATION_QUANTIZATION_FORCE_INT32: moe_activation_quantization =
        moe_activation_quantization(2147483647);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct moe_activation_quantization(pub ::std::os::raw::c_uint);
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moe_plan_desc {
    pub struct_size: u32,
    pub device: moe_device_kind,
    pub device_index: i32,
    pub x_type: moe_type,
    pub router_input_type: moe_type,
    pub out_type: moe_type,
    pub intermediate_type: moe_type,
    pub stages: u32,
    pub checkpoint_layer: i32,
    pub reserved: u32,
    pub checkpoint: *const moe_checkpoint,
    pub layer: *const moe_layer_desc,
    pub formats: *const *const moe_format,
    pub n_formats: u32,
    pub partial: i32,
    pub slice: *const moe_slice,
    pub max_tokens: i64,
    pub max_workspace_bytes: u64,
    pub residency: moe_residency,
    pub activation_quantization: moe_activation_quantization,
    pub batch_invariant: i32,
    pub unfused: i32,
    pub kernel_filter: *const ::std::os::raw::c_char,
    pub tuning_path: *const ::std::os::raw::c_char,
    pub formats_per_expert: *const *const moe_format,
    pub n_formats_per_expert: u32,
    pub reserved2: u32,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moe_workspace_need {
    pub struct_size: u32,
    pub reserved: u32,
    pub device_bytes: u64,
    pub host_bytes: u64,
    pub alignment: u64,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moe_candidate {
    pub struct_size: u32,
    pub stage: moe_stage,
    pub chosen: i32,
    pub applicable: i32,
    pub kernel: *const ::std::os::raw::c_char,
    pub reason_code: *const ::std::os::raw::c_char,
    pub reason: *const ::std::os::raw::c_char,
}
impl moe_explain_form {
    pub const MOE_EXPLAIN_TEXT: moe_explain_form = moe_explain_form(0);
}
impl moe_explain_form {
    pub const MOE_EXPLAIN_JSON: moe_explain_form = moe_explain_form(1);
}
impl moe_explain_form {
    pub const MOE_EXPLAIN_FORCE_INT32: moe_explain_form = moe_explain_form(2147483647);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct moe_explain_form(pub ::std::os::raw::c_uint);
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moe_weights {
    _unused: [u8; 0],
}
impl moe_ownership {
    pub const MOE_OWN_COPY: moe_ownership = moe_ownership(0);
}
impl moe_ownership {
    pub const MOE_OWN_BORROW: moe_ownership = moe_ownership(1);
}
impl moe_ownership {
    pub const MOE_OWN_CALLER: moe_ownership = moe_ownership(2);
}
impl moe_ownership {
    pub const MOE_OWN_FORCE_INT32: moe_ownership = moe_ownership(2147483647);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct moe_ownership(pub ::std::os::raw::c_uint);
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moe_weights_desc {
    pub struct_size: u32,
    pub ownership: moe_ownership,
    pub tensors: *const *const moe_tensor,
    pub n_tensors: u32,
    pub memory_space: moe_space,
    pub memory: *mut ::std::os::raw::c_void,
    pub memory_bytes: u64,
    pub stream: *mut ::std::os::raw::c_void,
    pub progress: moe_progress_fn,
    pub progress_user_data: *mut ::std::os::raw::c_void,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moe_memory_report {
    pub struct_size: u32,
    pub n_local_experts: u32,
    pub host_bytes: u64,
    pub pinned_bytes: u64,
    pub device_bytes: u64,
    pub borrowed_bytes: u64,
    pub bookkeeping_bytes: u64,
    pub role_bytes: [u64; 32usize],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moe_workspace {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moe_workspace_desc {
    pub struct_size: u32,
    pub device: moe_device_kind,
    pub device_index: i32,
    pub reserved: u32,
    pub plan: *const moe_plan,
    pub device_bytes: u64,
    pub device_memory: *mut ::std::os::raw::c_void,
    pub host_bytes: u64,
    pub host_memory: *mut ::std::os::raw::c_void,
    pub stream: *mut ::std::os::raw::c_void,
}
pub const MOE_FAULT_ID_OUT_OF_RANGE: _bindgen_ty_2 = 1;
pub const MOE_FAULT_TOKEN_ID_OUT_OF_RANGE: _bindgen_ty_2 = 2;
pub const MOE_FAULT_TOKENS_OUT_OF_RANGE: _bindgen_ty_2 = 4;
pub const MOE_FAULT_OFFSETS_OUT_OF_RANGE: _bindgen_ty_2 = 8;
pub type _bindgen_ty_2 = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moe_workspace_faults {
    pub struct_size: u32,
    pub faults: u32,
    pub n_skipped: i64,
}
impl moe_routing {
    pub const MOE_ROUTING_COMPUTE: moe_routing = moe_routing(0);
}
impl moe_routing {
    pub const MOE_ROUTING_LOGITS: moe_routing = moe_routing(1);
}
impl moe_routing {
    pub const MOE_ROUTING_IDS: moe_routing = moe_routing(2);
}
impl moe_routing {
    pub const MOE_ROUTING_IDS_AND_WEIGHTS: moe_routing = moe_routing(3);
}
impl moe_routing {
    pub const MOE_ROUTING_FORCE_INT32: moe_routing = moe_routing(2147483647);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct moe_routing(pub ::std::os::raw::c_uint);
impl moe_out_layout {
    pub const MOE_OUT_REDUCED: moe_out_layout = moe_out_layout(0);
}
impl moe_out_layout {
    pub const MOE_OUT_PER_SLOT: moe_out_layout = moe_out_layout(1);
}
impl moe_out_layout {
    pub const MOE_OUT_ROWS: moe_out_layout = moe_out_layout(2);
}
impl moe_out_layout {
    pub const MOE_OUT_FORCE_INT32: moe_out_layout = moe_out_layout(2147483647);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct moe_out_layout(pub ::std::os::raw::c_uint);
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moe_forward_args {
    pub struct_size: u32,
    pub routing: moe_routing,
    pub n_tokens: i64,
    pub n_tokens_device: *const i32,
    pub x: *const ::std::os::raw::c_void,
    pub x_row_stride: i64,
    pub x_scales: *const ::std::os::raw::c_void,
    pub x_scale_row_stride: i64,
    pub router_input: *const ::std::os::raw::c_void,
    pub router_input_row_stride: i64,
    pub logits: *const f32,
    pub logits_row_stride: i64,
    pub ids: *const ::std::os::raw::c_void,
    pub ids_type: moe_type,
    pub weights_type: moe_type,
    pub ids_row_stride: i64,
    pub weights: *const ::std::os::raw::c_void,
    pub weights_row_stride: i64,
    pub token_ids: *const ::std::os::raw::c_void,
    pub token_ids_type: moe_type,
    pub n_expert_map: i32,
    pub expert_map: *const i32,
    pub out: *mut ::std::os::raw::c_void,
    pub out_row_stride: i64,
    pub out_layout: moe_out_layout,
    pub accumulate: i32,
    pub out_logits: *mut f32,
    pub out_logits_row_stride: i64,
    pub out_ids: *mut i32,
    pub out_ids_row_stride: i64,
    pub out_weights: *mut f32,
    pub out_weights_row_stride: i64,
    pub out_expert_counts: *mut i64,
    pub stream: *mut ::std::os::raw::c_void,
    pub n_threads: i32,
    pub reserved: u32,
    pub uses_second_bias: *const i8,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moe_route_args {
    pub struct_size: u32,
    pub routing: moe_routing,
    pub n_tokens: i64,
    pub n_tokens_device: *const i32,
    pub x: *const ::std::os::raw::c_void,
    pub x_row_stride: i64,
    pub router_input: *const ::std::os::raw::c_void,
    pub router_input_row_stride: i64,
    pub logits: *const f32,
    pub logits_row_stride: i64,
    pub ids: *const ::std::os::raw::c_void,
    pub ids_type: moe_type,
    pub token_ids_type: moe_type,
    pub ids_row_stride: i64,
    pub token_ids: *const ::std::os::raw::c_void,
    pub out_ids: *mut i32,
    pub out_ids_row_stride: i64,
    pub out_weights: *mut f32,
    pub out_weights_row_stride: i64,
    pub out_logits: *mut f32,
    pub out_logits_row_stride: i64,
    pub stream: *mut ::std::os::raw::c_void,
    pub n_threads: i32,
    pub reserved: u32,
    pub uses_second_bias: *const i8,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moe_dispatch_args {
    pub struct_size: u32,
    pub block_rows: i32,
    pub n_tokens: i64,
    pub n_tokens_device: *const i32,
    pub ids: *const ::std::os::raw::c_void,
    pub ids_type: moe_type,
    pub n_expert_map: i32,
    pub ids_row_stride: i64,
    pub expert_map: *const i32,
    pub out_offsets: *mut i64,
    pub out_counts: *mut i64,
    pub out_row_ids: *mut i32,
    pub row_capacity: i64,
    pub stream: *mut ::std::os::raw::c_void,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moe_gather_args {
    pub struct_size: u32,
    pub x_is_latent: i32,
    pub n_tokens: i64,
    pub x: *const ::std::os::raw::c_void,
    pub x_row_stride: i64,
    pub offsets: *const i64,
    pub counts: *const i64,
    pub row_ids: *const i32,
    pub n_rows: i64,
    pub out: *mut ::std::os::raw::c_void,
    pub out_row_stride: i64,
    pub weights: *const f32,
    pub weights_row_stride: i64,
    pub out_row_tokens: *mut i32,
    pub out_row_weights: *mut f32,
    pub stream: *mut ::std::os::raw::c_void,
    pub n_threads: i32,
    pub reserved: u32,
}
impl moe_in_layout {
    pub const MOE_IN_TOKENS: moe_in_layout = moe_in_layout(0);
}
impl moe_in_layout {
    pub const MOE_IN_SORTED: moe_in_layout = moe_in_layout(1);
}
impl moe_in_layout {
    pub const MOE_IN_BATCHED: moe_in_layout = moe_in_layout(2);
}
impl moe_in_layout {
    pub const MOE_IN_FORCE_INT32: moe_in_layout = moe_in_layout(2147483647);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct moe_in_layout(pub ::std::os::raw::c_uint);
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moe_experts_args {
    pub struct_size: u32,
    pub in_layout: moe_in_layout,
    pub out_layout: moe_out_layout,
    pub stop_before_activation: i32,
    pub n_tokens: i64,
    pub n_tokens_device: *const i32,
    pub x: *const ::std::os::raw::c_void,
    pub x_row_stride: i64,
    pub x_is_latent: i32,
    pub ids_type: moe_type,
    pub ids: *const ::std::os::raw::c_void,
    pub ids_row_stride: i64,
    pub weights: *const f32,
    pub weights_row_stride: i64,
    pub expert_map: *const i32,
    pub n_expert_map: i32,
    pub reserved: u32,
    pub offsets: *const i64,
    pub counts: *const i64,
    pub row_ids: *const i32,
    pub row_weights: *const f32,
    pub n_rows: i64,
    pub batch_capacity: i64,
    pub out: *mut ::std::os::raw::c_void,
    pub out_row_stride: i64,
    pub accumulate: i32,
    pub reserved2: u32,
    pub stream: *mut ::std::os::raw::c_void,
    pub n_threads: i32,
    pub reserved3: u32,
    pub x_scales: *const ::std::os::raw::c_void,
    pub x_scale_row_stride: i64,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moe_combine_args {
    pub struct_size: u32,
    pub rows_layout: moe_in_layout,
    pub n_tokens: i64,
    pub n_tokens_device: *const i32,
    pub rows: *const ::std::os::raw::c_void,
    pub rows_row_stride: i64,
    pub row_ids: *const i32,
    pub n_rows: i64,
    pub ids: *const ::std::os::raw::c_void,
    pub ids_row_stride: i64,
    pub ids_type: moe_type,
    pub accumulate: i32,
    pub weights: *const f32,
    pub weights_row_stride: i64,
    pub x: *const ::std::os::raw::c_void,
    pub x_row_stride: i64,
    pub out: *mut ::std::os::raw::c_void,
    pub out_row_stride: i64,
    pub stream: *mut ::std::os::raw::c_void,
    pub n_threads: i32,
    pub reserved: u32,
}
pub const MOE_FINISH_ALL: _bindgen_ty_3 = 0;
pub const MOE_FINISH_DOWN_BIAS: _bindgen_ty_3 = 1;
pub const MOE_FINISH_LATENT: _bindgen_ty_3 = 2;
pub const MOE_FINISH_SHARED: _bindgen_ty_3 = 4;
pub const MOE_FINISH_COMBINE: _bindgen_ty_3 = 8;
pub const MOE_FINISH_IDENTITY: _bindgen_ty_3 = 16;
pub type _bindgen_ty_3 = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moe_finish_args {
    pub struct_size: u32,
    pub parts: u32,
    pub n_tokens: i64,
    pub n_tokens_device: *const i32,
    pub routed: *const ::std::os::raw::c_void,
    pub routed_row_stride: i64,
    pub x: *const ::std::os::raw::c_void,
    pub x_row_stride: i64,
    pub ids: *const ::std::os::raw::c_void,
    pub ids_row_stride: i64,
    pub ids_type: moe_type,
    pub accumulate: i32,
    pub weights: *const f32,
    pub weights_row_stride: i64,
    pub out: *mut ::std::os::raw::c_void,
    pub out_row_stride: i64,
    pub stream: *mut ::std::os::raw::c_void,
    pub n_threads: i32,
    pub reserved: u32,
}
impl moe_io {
    pub const MOE_IO_MMAP: moe_io = moe_io(0);
}
impl moe_io {
    pub const MOE_IO_READ: moe_io = moe_io(1);
}
impl moe_io {
    pub const MOE_IO_FORCE_INT32: moe_io = moe_io(2147483647);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct moe_io(pub ::std::os::raw::c_uint);
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moe_checkpoint_options {
    pub struct_size: u32,
    pub io: moe_io,
    pub family: *const ::std::os::raw::c_char,
    pub has_orientation: i32,
    pub orientation: moe_orientation,
    pub gate_up_order: moe_gate_up_order,
    pub reserved: u32,
    pub overrides: *const ::std::os::raw::c_char,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moe_checkpoint_info {
    pub struct_size: u32,
    pub n_layers: i32,
    pub n_files: i32,
    pub is_gguf: i32,
    pub n_tensors: u64,
    pub file_bytes: u64,
    pub family: [::std::os::raw::c_char; 64usize],
    pub model_type: [::std::os::raw::c_char; 64usize],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moe_load_options {
    pub struct_size: u32,
    pub ownership: moe_ownership,
    pub memory: *mut ::std::os::raw::c_void,
    pub memory_bytes: u64,
    pub stream: *mut ::std::os::raw::c_void,
    pub progress: moe_progress_fn,
    pub progress_user_data: *mut ::std::os::raw::c_void,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moe_loading {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moe_loading_progress {
    pub struct_size: u32,
    pub is_done: i32,
    pub status: moe_status,
    pub reserved: u32,
    pub bytes_done: u64,
    pub bytes_total: u64,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moe_quantize_args {
    pub struct_size: u32,
    pub reserved: u32,
    pub format: *const moe_format,
    pub source: *const f32,
    pub rows: i64,
    pub columns: i64,
    pub data: *mut ::std::os::raw::c_void,
    pub data_bytes: u64,
    pub scales: *mut ::std::os::raw::c_void,
    pub scale_bytes: u64,
    pub global_scale: *mut f32,
    pub codebook: *const f32,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct moe_convert_scales_args {
    pub struct_size: u32,
    pub reserved: u32,
    pub source_layout: moe_scale_layout,
    pub layout: moe_scale_layout,
    pub rows: i64,
    pub columns: i64,
    pub source: *const ::std::os::raw::c_void,
    pub source_bytes: u64,
    pub scales: *mut ::std::os::raw::c_void,
    pub scale_bytes: u64,
}
