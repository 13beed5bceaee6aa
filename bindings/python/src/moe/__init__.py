"""libmoe, the Mixture-of-Experts layer of a language model, from Python.

    layer = moe.Layer("model", x_type="f32", device="cpu")
    out = layer(x)

The nouns are those of moe.h: Runtime, Checkpoint, Plan, Weights, Workspace, and forward() with its stages. Handles are context
managers with close(). Errors are MoeError, one class for each status. torch is optional: moe.torch_op has its operator.
"""
from . import abi, enums, errors
from .checkpoint import Checkpoint, CheckpointInfo, CheckpointTensor
from .enums import *
from .errors import *
from .tensors import ALL_EXPERTS, Format, FormatInfo, FormatSize, Quantized, Tensor
from .tensors import convert_scales, dequantize, families, formats, quantize, scale_layout_size
from .device import DeviceArray, Stream
from .calls import Dispatched, Gathered, Routed, combine, dispatch, experts, finish, forward, gather, route
from .layer import Layer
from .layer_desc import LayerDesc, Slice
from .loading import Library, library, load
from .plan import Candidate, Plan, PlanDevice, PlanOptions, WorkspaceNeed
from .runtime import Allocator, DeviceInfo, Runtime, abi_version, build_info, device_count, device_info
from .runtime import role_name, type_name, version, version_string
from .weights import Loading, LoadingProgress, MemoryReport, Weights
from .workspace import Faults, Workspace

__version__ = "0.1.0"

__all__ = [*enums.__all__, *errors.__all__]
__all__ += [
    "ALL_EXPERTS",
    "Allocator",
    "Candidate",
    "Checkpoint",
    "CheckpointInfo",
    "CheckpointTensor",
    "DeviceArray",
    "DeviceInfo",
    "Dispatched",
    "Faults",
    "Format",
    "FormatInfo",
    "FormatSize",
    "Gathered",
    "Layer",
    "LayerDesc",
    "Library",
    "Loading",
    "LoadingProgress",
    "MemoryReport",
    "Plan",
    "PlanDevice",
    "PlanOptions",
    "Quantized",
    "Routed",
    "Runtime",
    "Slice",
    "Stream",
    "Tensor",
    "Weights",
    "Workspace",
    "WorkspaceNeed",
    "abi",
    "abi_version",
    "build_info",
    "combine",
    "convert_scales",
    "dequantize",
    "device_count",
    "device_info",
    "dispatch",
    "enums",
    "errors",
    "experts",
    "families",
    "finish",
    "formats",
    "forward",
    "gather",
    "library",
    "load",
    "quantize",
    "role_name",
    "route",
    "scale_layout_size",
    "type_name",
    "version",
    "version_string",
]
