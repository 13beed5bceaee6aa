"""The enums of moe.h. A test compares every name and value with the header.

All of them are open, as in C: a value that this list lacks stays a number and is never an error here.
"""
from __future__ import annotations

import enum
from typing import Any, ClassVar, TypeVar

__all__ = [
    "Activation",
    "ActivationQuantization",
    "Codebook",
    "CombineRule",
    "DeviceKind",
    "ExplainForm",
    "Fault",
    "Finish",
    "GateUpOrder",
    "GlobalScale",
    "GroupMask",
    "GroupScore",
    "InLayout",
    "Io",
    "LogLevel",
    "OpenEnum",
    "Orientation",
    "OutLayout",
    "Ownership",
    "Packing",
    "Renormalize",
    "Residency",
    "Role",
    "Routing",
    "ScaleLayout",
    "Score",
    "Selection",
    "Space",
    "Stage",
    "Status",
    "Type",
    "WeightOn",
    "ZeroPoint",
]


Self = TypeVar("Self", bound="OpenEnum")


class OpenEnum(enum.IntEnum):
    """An enum of moe.h. prefix is what the C names have before the member's name."""

    prefix: ClassVar[str]

    def __init_subclass__(cls, prefix: str = "", **rest: Any) -> None:
        super().__init_subclass__(**rest)
        type.__setattr__(cls, "prefix", prefix)

    @classmethod
    def _missing_(cls, value: object) -> OpenEnum | None:
        if not isinstance(value, int):
            return None
        unknown = int.__new__(cls, value)
        unknown._name_ = f"UNKNOWN_{value}"
        unknown._value_ = value  # type: ignore[assignment]
        return unknown

    @classmethod
    def of(cls: type[Self], value: int | str) -> Self:
        """A member, by number or by name: Activation.of("silu") is Activation.SILU."""
        if isinstance(value, str):
            try:
                return cls[value.upper()]
            except KeyError:
                raise ValueError(f"{value!r} is no {cls.__name__}: {', '.join(m.name.lower() for m in cls)}") from None
        return cls(value)


class Status(OpenEnum, prefix="MOE_ERROR_"):
    OK = 0
    INVALID_ARGUMENT = -1
    OUT_OF_MEMORY = -2
    UNSUPPORTED = -3
    NOT_BUILT = -4
    NO_DEVICE = -5
    LAYOUT_MISMATCH = -6
    WORKSPACE_TOO_SMALL = -7
    CANCELLED = -8
    FORKED = -9
    IO = -10
    CORRUPT_FILE = -11
    NOT_FOUND = -12
    ABI = -13
    DEVICE = -14
    BUSY = -15
    BUFFER_TOO_SMALL = -16
    INTERNAL = -17


class Type(OpenEnum, prefix="MOE_TYPE_"):
    NONE = 0
    F32 = 1
    F16 = 2
    BF16 = 3
    F64 = 4
    I8 = 10
    U8 = 11
    I32 = 12
    I64 = 13
    F8_E4M3 = 20
    F8_E5M2 = 21
    F8_E8M0 = 22
    F8_E4M4 = 23
    E2M1 = 30
    INT = 31
    CODEBOOK = 32
    GGUF = 33


class Role(OpenEnum, prefix="MOE_ROLE_"):
    NONE = 0
    ROUTER = 1
    ROUTER_BIAS = 2
    SELECTION_BIAS = 3
    ROUTER_NORM = 4
    HASH_TABLE = 5
    EXPERT_SCALE = 6
    GATE = 7
    UP = 8
    DOWN = 9
    GATE_UP = 10
    GATE_BIAS = 11
    UP_BIAS = 12
    DOWN_BIAS = 13
    GATE_UP_BIAS = 14
    SHARED_GATE = 15
    SHARED_UP = 16
    SHARED_DOWN = 17
    SHARED_GATE_UP = 18
    SHARED_EXPERT_GATE = 19
    LATENT_IN = 20
    LATENT_OUT = 21
    LATENT_NORM = 22
    SECOND_SELECTION_BIAS = 23
    LATENT_IN_NORM = 24
    EXPERT_NORM = 25


class Score(OpenEnum, prefix="MOE_SCORE_"):
    NONE = 0
    SOFTMAX = 1
    SIGMOID = 2
    SQRT_SOFTPLUS = 3


class Selection(OpenEnum, prefix="MOE_SELECT_"):
    TOP_K = 0
    SPARSEMIXER = 1
    HASH = 2


class GroupScore(OpenEnum, prefix="MOE_GROUP_SCORE_"):
    NONE = 0
    MAX = 1
    TOP2_SUM = 2


class GroupMask(OpenEnum, prefix="MOE_GROUP_MASK_"):
    INFINITY = 0
    ZERO = 1


class Renormalize(OpenEnum, prefix="MOE_RENORMALIZE_"):
    NONE = 0
    SUM_ADD = 1
    SUM_CLAMP = 2


class WeightOn(OpenEnum, prefix="MOE_WEIGHT_ON_"):
    OUTPUT = 0
    INPUT = 1


class CombineRule(OpenEnum, prefix="MOE_COMBINE_"):
    SUM = 0
    MEAN = 1


class Activation(OpenEnum, prefix="MOE_ACTIVATION_"):
    NONE = 0
    SILU = 1
    GELU_TANH = 2
    GELU_ERF = 3
    RELU2 = 4
    SITU = 5


class DeviceKind(OpenEnum, prefix="MOE_DEVICE_"):
    AUTO = 0
    CPU = 1
    CUDA = 2


class Space(OpenEnum, prefix="MOE_SPACE_"):
    HOST = 0
    PINNED = 1
    DEVICE = 2


class Stage(OpenEnum, prefix="MOE_STAGE_"):
    ROUTE = 1
    DISPATCH = 2
    EXPERTS = 4
    COMBINE = 8
    FINISH = 16


class LogLevel(OpenEnum, prefix="MOE_LOG_"):
    DEFAULT = 0
    ERROR = 1
    WARNING = 2
    INFO = 3
    DEBUG = 4
    OFF = 5


class Packing(OpenEnum, prefix="MOE_PACKING_"):
    DENSE = 0
    NIBBLE_LOW_FIRST = 1
    NIBBLE_HIGH_FIRST = 2
    BIT_PLANES = 3
    BIT_STREAM = 4
    GPTQ = 5
    AWQ = 6


class GlobalScale(OpenEnum, prefix="MOE_GLOBAL_SCALE_"):
    NONE = 0
    MULTIPLY = 1
    DIVIDE = 2


class ZeroPoint(OpenEnum, prefix="MOE_ZERO_POINT_"):
    NONE = 0
    MIDDLE = 1
    PACKED = 2
    PACKED_MINUS_ONE = 3
    FLOAT = 4


class Codebook(OpenEnum, prefix="MOE_CODEBOOK_"):
    NONE = 0
    GIVEN = 1
    NORMAL_FLOAT = 2
    BNB_NF4 = 3
    BNB_FP4 = 4


class Orientation(OpenEnum, prefix="MOE_ORIENTATION_"):
    OUT_IN = 0
    IN_OUT = 1


class ScaleLayout(OpenEnum, prefix="MOE_SCALE_LAYOUT_"):
    LINEAR = 0
    TILED_128X4 = 1


class GateUpOrder(OpenEnum, prefix="MOE_GATE_UP_"):
    NONE = 0
    GATE_FIRST = 1
    UP_FIRST = 2
    INTERLEAVED = 3


class Residency(OpenEnum, prefix="MOE_RESIDENCY_"):
    AUTO = 0
    PACKED = 1
    SOURCE = 2


class ActivationQuantization(OpenEnum, prefix="MOE_ACTIVATION_QUANTIZATION_"):
    NONE = 0
    FP8 = 1
    INT8 = 2


class ExplainForm(OpenEnum, prefix="MOE_EXPLAIN_"):
    TEXT = 0
    JSON = 1


class Ownership(OpenEnum, prefix="MOE_OWN_"):
    COPY = 0
    BORROW = 1
    CALLER = 2


class Routing(OpenEnum, prefix="MOE_ROUTING_"):
    COMPUTE = 0
    LOGITS = 1
    IDS = 2
    IDS_AND_WEIGHTS = 3


class OutLayout(OpenEnum, prefix="MOE_OUT_"):
    REDUCED = 0
    PER_SLOT = 1
    ROWS = 2


class InLayout(OpenEnum, prefix="MOE_IN_"):
    TOKENS = 0
    SORTED = 1
    BATCHED = 2


class Io(OpenEnum, prefix="MOE_IO_"):
    MMAP = 0
    READ = 1


class Fault(OpenEnum, prefix="MOE_FAULT_"):
    ID_OUT_OF_RANGE = 1
    TOKEN_ID_OUT_OF_RANGE = 2
    TOKENS_OUT_OF_RANGE = 4
    OFFSETS_OUT_OF_RANGE = 8


class Finish(OpenEnum, prefix="MOE_FINISH_"):
    ALL = 0
    DOWN_BIAS = 1
    LATENT = 2
    SHARED = 4
    COMBINE = 8
    IDENTITY = 16
