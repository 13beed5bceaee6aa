"""The callbacks and sized structs of moe.h as ctypes: moe_plan_desc is PlanDesc.

Fields are annotations, so that a type checker sees them too. The tests hold names, sizes and offsets
against the header.
"""
import ctypes as c
import operator
import re
from typing import Annotated, Any, ClassVar, Dict, Optional, Type, TypeVar

ABI_VERSION = 1
ROLE_COUNT = 26
ALL_EXPERTS = -1

I32, U32, I64, U64, PTR, TEXT = c.c_int32, c.c_uint32, c.c_int64, c.c_uint64, c.c_void_p, c.c_char_p

AllocateFn = c.CFUNCTYPE(PTR, U64, U64, I32, PTR, PTR)
ReleaseFn = c.CFUNCTYPE(None, PTR, U64, U64, I32, PTR, PTR)
LogFn = c.CFUNCTYPE(None, I32, TEXT, PTR)
TaskFn = c.CFUNCTYPE(None, I32, PTR)
ParallelForFn = c.CFUNCTYPE(None, I32, TaskFn, PTR, PTR)
ProgressFn = c.CFUNCTYPE(I32, U64, U64, PTR)

i32 = Annotated[int, I32]
u32 = Annotated[int, U32]
i64 = Annotated[int, I64]
u64 = Annotated[int, U64]
f32 = Annotated[float, c.c_float]
f64 = Annotated[float, c.c_double]
ptr = Annotated[Optional[int], PTR]
text = Annotated[Optional[bytes], TEXT]
char64 = Annotated[bytes, c.c_char * 64]
char128 = Annotated[bytes, c.c_char * 128]
char256 = Annotated[bytes, c.c_char * 256]
u64_32 = Annotated[Any, U64 * 32]
allocate_fn = Annotated[Any, AllocateFn]
release_fn = Annotated[Any, ReleaseFn]
parallel_for_fn = Annotated[Any, ParallelForFn]
log_fn = Annotated[Any, LogFn]
progress_fn = Annotated[Any, ProgressFn]


INTEGERS = {
    I32: ("int32", -(1 << 31), (1 << 31) - 1),
    U32: ("uint32", 0, (1 << 32) - 1),
    I64: ("int64", -(1 << 63), (1 << 63) - 1),
    U64: ("uint64", 0, (1 << 64) - 1),
    PTR: ("an address", 0, (1 << 64) - 1),
}


def fitting(name: str, kind: Any, value: Any) -> Any:
    """What goes into a field or an argument of C, as it is: ctypes takes the low bits of integers, C text up to a zero byte."""
    if kind in INTEGERS and hasattr(value, "__index__"):
        value = operator.index(value)
        word, least, most = INTEGERS[kind]
        if not least <= value <= most:
            raise ValueError(f"{name}: {value} does not fit {word}")
    if kind is TEXT and isinstance(value, bytes) and b"\0" in value:
        raise ValueError(f"{name}: {value!r} has a zero byte in it")
    return value


class Struct(c.Structure):
    """A struct of moe.h: zero but for struct_size, then the fields given by name. A name it lacks is an error."""

    kinds: ClassVar[Dict[str, Any]] = {"struct_size": U32}
    struct_size: int

    def __init__(self, **fields: Any) -> None:
        super().__init__()
        self.struct_size = c.sizeof(self)
        for name, value in fields.items():
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.kinds:
            raise AttributeError(f"{type(self).__name__} has no field {name!r}")
        super().__setattr__(name, fitting(name, self.kinds[name], value))

    @classmethod
    def c_name(cls) -> str:
        """LayerDesc is moe_layer_desc."""
        return "moe" + re.sub("[A-Z]", lambda letter: "_" + str(letter.group()).lower(), cls.__name__)

    def as_dict(self) -> Dict[str, Any]:
        fields = [field[0] for field in self._fields_]
        return {name: getattr(self, name) for name in fields if name != "struct_size"}

    def __repr__(self) -> str:
        shown = (f"{name}={value!r}" for name, value in self.as_dict().items() if value)
        return f"{type(self).__name__}({', '.join(shown)})"


Kind = TypeVar("Kind", bound=Struct)


def sized(cls: Type[Kind]) -> Type[Kind]:
    """Makes the annotations of a class its C fields, behind struct_size."""
    fields = [(name, hint.__metadata__[0]) for name, hint in cls.__annotations__.items()]
    cls._fields_ = [("struct_size", U32), *fields]
    cls.kinds = {"struct_size": U32, **dict(fields)}
    return cls


@sized
class Allocator(Struct):
    reserved: u32
    allocate: allocate_fn
    release: release_fn
    user_data: ptr


@sized
class RuntimeDesc(Struct):
    n_threads: i32
    allocator: ptr
    parallel_for: parallel_for_fn
    parallel_for_user_data: ptr
    log: log_fn
    log_user_data: ptr
    log_level: i32
    reserved: u32
    cublaslt_path: text
    nccl_path: text


@sized
class DeviceInfo(Struct):
    kind: i32
    index: i32
    n_cores: i32
    memory_bytes: u64
    arch_major: i32
    arch_minor: i32
    name: char128
    features: char256


@sized
class LayerDesc(Struct):
    hidden: i32
    intermediate: i32
    n_experts: i32
    top_k: i32
    n_identity_experts: i32
    has_router: i32
    has_router_bias: i32
    has_selection_bias: i32
    has_router_norm: i32
    has_router_norm_weight: i32
    has_router_input_scale: i32
    router_norm_eps: f32
    router_input_scale: f32
    has_logit_softcap: i32
    logit_softcap: f32
    score: i32
    post_score: i32
    selection: i32
    sparsemixer_jitter: f32
    hash_vocabulary: i32
    n_group: i32
    topk_group: i32
    group_score: i32
    renormalize: i32
    renormalize_eps: f32
    has_routed_scale: i32
    routed_scale: f32
    has_expert_scale: i32
    weight_on: i32
    round_logits: i32
    round_weights: i32
    activation: i32
    is_gated: i32
    has_activation_alpha: i32
    activation_alpha: f32
    activation_up_offset: f32
    has_gate_limit: i32
    gate_limit: f32
    has_up_limit: i32
    up_limit: f32
    has_post_limit: i32
    post_limit: f32
    situ_beta: f32
    situ_beta_up: f32
    has_gate_bias: i32
    has_up_bias: i32
    has_down_bias: i32
    latent: i32
    has_latent_norm: i32
    latent_norm_eps: f32
    shared_intermediate: i32
    has_shared_expert_gate: i32
    has_shared_scale: i32
    shared_scale: f32
    shared_activation: i32
    shared_is_gated: i32
    has_shared_activation_alpha: i32
    shared_activation_alpha: f32
    shared_activation_up_offset: f32
    has_shared_gate_limit: i32
    shared_gate_limit: f32
    has_shared_up_limit: i32
    shared_up_limit: f32
    has_shared_post_limit: i32
    shared_post_limit: f32
    shared_situ_beta: f32
    shared_situ_beta_up: f32
    combine: i32
    group_mask: i32
    has_second_selection_bias: i32
    has_latent_in_norm: i32
    latent_in_norm_eps: f32
    has_expert_norm: i32
    expert_norm_eps: f32
    expert_norm_weight_first: i32


@sized
class Format(Struct):
    type: i32
    bits: i32
    group_rows: i32
    group_columns: i32
    scale_type: i32
    global_scale: i32
    zero_point: i32
    packing: i32
    codebook: i32
    block_id: i32
    act_order: i32
    nested_scales: i32
    pre_quant_scale: i32


@sized
class FormatInfo(Struct):
    block_rows: i32
    block_columns: i32
    has_decode: i32
    has_encode: i32
    reserved: u32
    bits_per_weight: f64
    name: char64


@sized
class Tensor(Struct):
    role: i32
    expert: i32
    orientation: i32
    gate_up_order: i32
    space: i32
    format: ptr
    n_experts: i64
    rows: i64
    columns: i64
    row_stride: i64
    expert_stride: i64
    data: ptr
    data_bytes: u64
    data_per_expert: ptr
    scales: ptr
    scale_bytes: u64
    scales_per_expert: ptr
    scale_row_stride: i64
    scale_expert_stride: i64
    global_scale: ptr
    n_global_scales: i64
    codebook: ptr
    codebook_bytes: u64
    zero_points: ptr
    zero_point_bytes: u64
    permutation: ptr
    permutation_bytes: u64
    nested_scales: ptr
    nested_scale_bytes: u64
    nested_codebook: ptr
    nested_offset: f32
    reserved: u32
    input_scale: ptr
    n_input_scales: i64
    pre_quant_scale: ptr
    pre_quant_scale_bytes: u64
    scale_layout: i32
    reserved2: u32


@sized
class Slice(Struct):
    has_expert_range: i32
    expert_begin: i32
    expert_count: i32
    expert_to_local: ptr
    n_expert_to_local: i32
    has_intermediate_range: i32
    intermediate_begin: i32
    intermediate_count: i32
    has_shared_range: i32
    shared_begin: i32
    shared_count: i32
    reserved: u32


@sized
class PlanDesc(Struct):
    device: i32
    device_index: i32
    x_type: i32
    router_input_type: i32
    out_type: i32
    intermediate_type: i32
    stages: u32
    checkpoint_layer: i32
    reserved: u32
    checkpoint: ptr
    layer: ptr
    formats: ptr
    n_formats: u32
    partial: i32
    slice: ptr
    max_tokens: i64
    max_workspace_bytes: u64
    residency: i32
    activation_quantization: i32
    batch_invariant: i32
    unfused: i32
    kernel_filter: text
    tuning_path: text
    formats_per_expert: ptr
    n_formats_per_expert: u32
    reserved2: u32


@sized
class WorkspaceNeed(Struct):
    reserved: u32
    device_bytes: u64
    host_bytes: u64
    alignment: u64


@sized
class Candidate(Struct):
    stage: i32
    chosen: i32
    applicable: i32
    kernel: text
    reason_code: text
    reason: text


@sized
class WeightsDesc(Struct):
    ownership: i32
    tensors: ptr
    n_tensors: u32
    memory_space: i32
    memory: ptr
    memory_bytes: u64
    stream: ptr
    progress: progress_fn
    progress_user_data: ptr


@sized
class MemoryReport(Struct):
    n_local_experts: u32
    host_bytes: u64
    pinned_bytes: u64
    device_bytes: u64
    borrowed_bytes: u64
    bookkeeping_bytes: u64
    role_bytes: u64_32


@sized
class WorkspaceDesc(Struct):
    device: i32
    device_index: i32
    reserved: u32
    plan: ptr
    device_bytes: u64
    device_memory: ptr
    host_bytes: u64
    host_memory: ptr
    stream: ptr


@sized
class WorkspaceFaults(Struct):
    faults: u32
    n_skipped: i64


@sized
class ForwardArgs(Struct):
    routing: i32
    n_tokens: i64
    n_tokens_device: ptr
    x: ptr
    x_row_stride: i64
    x_scales: ptr
    x_scale_row_stride: i64
    router_input: ptr
    router_input_row_stride: i64
    logits: ptr
    logits_row_stride: i64
    ids: ptr
    ids_type: i32
    weights_type: i32
    ids_row_stride: i64
    weights: ptr
    weights_row_stride: i64
    token_ids: ptr
    token_ids_type: i32
    n_expert_map: i32
    expert_map: ptr
    out: ptr
    out_row_stride: i64
    out_layout: i32
    accumulate: i32
    out_logits: ptr
    out_logits_row_stride: i64
    out_ids: ptr
    out_ids_row_stride: i64
    out_weights: ptr
    out_weights_row_stride: i64
    out_expert_counts: ptr
    stream: ptr
    n_threads: i32
    reserved: u32
    uses_second_bias: ptr


@sized
class RouteArgs(Struct):
    routing: i32
    n_tokens: i64
    n_tokens_device: ptr
    x: ptr
    x_row_stride: i64
    router_input: ptr
    router_input_row_stride: i64
    logits: ptr
    logits_row_stride: i64
    ids: ptr
    ids_type: i32
    token_ids_type: i32
    ids_row_stride: i64
    token_ids: ptr
    out_ids: ptr
    out_ids_row_stride: i64
    out_weights: ptr
    out_weights_row_stride: i64
    out_logits: ptr
    out_logits_row_stride: i64
    stream: ptr
    n_threads: i32
    reserved: u32
    uses_second_bias: ptr


@sized
class DispatchArgs(Struct):
    block_rows: i32
    n_tokens: i64
    n_tokens_device: ptr
    ids: ptr
    ids_type: i32
    n_expert_map: i32
    ids_row_stride: i64
    expert_map: ptr
    out_offsets: ptr
    out_counts: ptr
    out_row_ids: ptr
    row_capacity: i64
    stream: ptr


@sized
class GatherArgs(Struct):
    x_is_latent: i32
    n_tokens: i64
    x: ptr
    x_row_stride: i64
    offsets: ptr
    counts: ptr
    row_ids: ptr
    n_rows: i64
    out: ptr
    out_row_stride: i64
    weights: ptr
    weights_row_stride: i64
    out_row_tokens: ptr
    out_row_weights: ptr
    stream: ptr
    n_threads: i32
    reserved: u32


@sized
class ExpertsArgs(Struct):
    in_layout: i32
    out_layout: i32
    stop_before_activation: i32
    n_tokens: i64
    n_tokens_device: ptr
    x: ptr
    x_row_stride: i64
    x_is_latent: i32
    ids_type: i32
    ids: ptr
    ids_row_stride: i64
    weights: ptr
    weights_row_stride: i64
    expert_map: ptr
    n_expert_map: i32
    reserved: u32
    offsets: ptr
    counts: ptr
    row_ids: ptr
    row_weights: ptr
    n_rows: i64
    batch_capacity: i64
    out: ptr
    out_row_stride: i64
    accumulate: i32
    reserved2: u32
    stream: ptr
    n_threads: i32
    reserved3: u32
    x_scales: ptr
    x_scale_row_stride: i64


@sized
class CombineArgs(Struct):
    rows_layout: i32
    n_tokens: i64
    n_tokens_device: ptr
    rows: ptr
    rows_row_stride: i64
    row_ids: ptr
    n_rows: i64
    ids: ptr
    ids_row_stride: i64
    ids_type: i32
    accumulate: i32
    weights: ptr
    weights_row_stride: i64
    x: ptr
    x_row_stride: i64
    out: ptr
    out_row_stride: i64
    stream: ptr
    n_threads: i32
    reserved: u32


@sized
class FinishArgs(Struct):
    parts: u32
    n_tokens: i64
    n_tokens_device: ptr
    routed: ptr
    routed_row_stride: i64
    x: ptr
    x_row_stride: i64
    ids: ptr
    ids_row_stride: i64
    ids_type: i32
    accumulate: i32
    weights: ptr
    weights_row_stride: i64
    out: ptr
    out_row_stride: i64
    stream: ptr
    n_threads: i32
    reserved: u32


@sized
class CheckpointOptions(Struct):
    io: i32
    family: text
    has_orientation: i32
    orientation: i32
    gate_up_order: i32
    reserved: u32
    overrides: text


@sized
class CheckpointInfo(Struct):
    n_layers: i32
    n_files: i32
    is_gguf: i32
    n_tensors: u64
    file_bytes: u64
    family: char64
    model_type: char64


@sized
class LoadOptions(Struct):
    ownership: i32
    memory: ptr
    memory_bytes: u64
    stream: ptr
    progress: progress_fn
    progress_user_data: ptr


@sized
class LoadingProgress(Struct):
    is_done: i32
    status: i32
    reserved: u32
    bytes_done: u64
    bytes_total: u64


@sized
class QuantizeArgs(Struct):
    reserved: u32
    format: ptr
    source: ptr
    rows: i64
    columns: i64
    data: ptr
    data_bytes: u64
    scales: ptr
    scale_bytes: u64
    global_scale: ptr
    codebook: ptr


@sized
class ConvertScalesArgs(Struct):
    reserved: u32
    source_layout: i32
    layout: i32
    rows: i64
    columns: i64
    source: ptr
    source_bytes: u64
    scales: ptr
    scale_bytes: u64
