"""Arrays of callers as addresses: numpy arrays, torch tensors and whatever has __dlpack__, without a copy.

Everything here checks before anything is called, and names the argument that is wrong.
"""
from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy

from . import dlpack
from .enums import DeviceKind, Type

Array = Any  # numpy.ndarray, torch.Tensor, DeviceArray, or an object with __dlpack__

BY_NAME = {
    "float32": Type.F32,
    "float16": Type.F16,
    "bfloat16": Type.BF16,
    "float64": Type.F64,
    "int8": Type.I8,
    "uint8": Type.U8,
    "int32": Type.I32,
    "int64": Type.I64,
    "uint16": Type.BF16,  # the bits: numpy has no bfloat16 of its own
    "float8_e4m3fn": Type.F8_E4M3,
    "float8_e5m2": Type.F8_E5M2,
    "float8_e8m0fnu": Type.F8_E8M0,
    "float4_e2m1fn_x2": Type.E2M1,  # two codes in a byte
}
NAMES = {kind: name for name, kind in BY_NAME.items() if name != "uint16"}
ELEMENT_BYTES = {Type.F32: 4, Type.F16: 2, Type.BF16: 2, Type.F64: 8, Type.I8: 1, Type.U8: 1}
ELEMENT_BYTES |= {Type.I32: 4, Type.I64: 8, Type.F8_E4M3: 1, Type.F8_E5M2: 1, Type.F8_E8M0: 1, Type.E2M1: 1}


def type_of(value: Any) -> Type:
    """A Type from itself, its number or name ("bf16", "bfloat16"), or a dtype of numpy or torch."""
    if isinstance(value, int):
        return Type(value)
    if not isinstance(value, str):
        try:
            value = str(value).removeprefix("torch.") if is_torch_dtype(value) else numpy.dtype(value).name
        except TypeError:
            raise TypeError(f"{value!r} is no type of elements") from None
    return BY_NAME[value] if value in BY_NAME else Type.of(value)


def torch_module() -> Any:
    """torch if the program has imported it: without that no argument can be a tensor."""
    return sys.modules.get("torch")


def is_torch_dtype(value: object) -> bool:
    torch = torch_module()
    return torch is not None and isinstance(value, torch.dtype)


def is_tensor(value: object) -> bool:
    torch = torch_module()
    return torch is not None and isinstance(value, torch.Tensor)


class DeviceArrayLike:
    """What device.DeviceArray is to this module, which it needs."""

    shape: tuple[int, ...]
    type: Type
    device: DeviceKind
    index: int

    @property
    def address(self) -> int:
        raise NotImplementedError

    def like(self, shape: tuple[int, ...], kind: Type) -> DeviceArrayLike:
        raise NotImplementedError

    def written_on(self, stream: Any) -> None:
        raise NotImplementedError


@dataclass
class View:
    """Where an array lies. Strides are in elements; owner keeps the memory."""

    name: str
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    type: Type
    device: DeviceKind
    device_index: int
    writable: bool
    owner: Any
    is_copied: bool = False  # by the producer, for us

    @property
    def size(self) -> int:
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    @property
    def n_bytes(self) -> int:
        return self.size * ELEMENT_BYTES[self.type]

    def is_dense(self) -> bool:
        if not self.size:
            return True
        expected = 1
        for extent, stride in zip(reversed(self.shape), reversed(self.strides)):
            if extent > 1 and stride != expected:
                return False
            expected *= extent
        return True


def _numpy_view(name: str, array: numpy.ndarray) -> View:
    kind = BY_NAME.get(array.dtype.name)
    if kind is None or not array.dtype.isnative:
        raise TypeError(f"{name}: elements of type {array.dtype} are not known to libmoe")
    if any(stride % array.itemsize for stride in array.strides):
        raise ValueError(f"{name}: strides of {array.strides} bytes are no multiples of the element")
    strides = tuple(stride // array.itemsize for stride in array.strides)
    writable = array.flags.writeable
    return View(name, array.ctypes.data, array.shape, strides, kind, DeviceKind.CPU, 0, writable, array)


def _torch_view(name: str, tensor: Any) -> View:
    kind = BY_NAME.get(str(tensor.dtype).removeprefix("torch."))
    if kind is None or tensor.layout != torch_module().strided:
        raise TypeError(f"{name}: a tensor of {tensor.dtype}, {tensor.layout} is not known to libmoe")
    if tensor.device.type not in ("cpu", "cuda"):
        raise ValueError(f"{name}: is on device {tensor.device}, not cpu or cuda")
    device = DeviceKind.CPU if tensor.device.type == "cpu" else DeviceKind.CUDA
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    return View(name, tensor.data_ptr(), shape, strides, kind, device, tensor.device.index or 0, True, tensor)


def _dlpack_view(name: str, given: Any, stream: int | None) -> View:
    try:
        found = dlpack.read(given, stream)
    except (TypeError, BufferError) as error:
        raise type(error)(f"{name}: {error}") from error
    devices = {dlpack.CPU: DeviceKind.CPU, dlpack.CUDA_HOST: DeviceKind.CPU}
    devices |= {dlpack.CUDA: DeviceKind.CUDA, dlpack.CUDA_MANAGED: DeviceKind.CUDA}
    if found.device_type not in devices:
        raise ValueError(f"{name}: is on DLPack device {found.device_type}, not the CPU or CUDA")
    device, writable = devices[found.device_type], not found.is_read_only
    where = (found.address, found.shape, found.strides, found.type)
    return View(name, *where, device, found.device_index, writable, (given, found.owner), found.is_copied)


def _device_view(name: str, given: DeviceArrayLike) -> View:
    strides = tuple(math.prod(given.shape[i + 1 :]) for i in range(len(given.shape)))
    return View(name, given.address, given.shape, strides, given.type, given.device, given.index, True, given)


def view(name: str, given: Array, stream: int | None = None) -> View:
    if isinstance(given, numpy.ndarray):
        return _numpy_view(name, given)
    if isinstance(given, DeviceArrayLike):
        return _device_view(name, given)
    if is_tensor(given):
        return _torch_view(name, given)
    if hasattr(given, "__dlpack__"):
        return _dlpack_view(name, given, stream)
    raise TypeError(f"{name}: {type(given).__name__} is no numpy array, torch tensor or DLPack object")


def check_type(found: View, allowed: Sequence[Type]) -> None:
    if found.type not in allowed:
        names = " or ".join(NAMES[kind] for kind in allowed)
        raise TypeError(f"{found.name}: is {NAMES[found.type]}, must be {names}")


def check_shape(found: View, shape: Sequence[int]) -> None:
    if tuple(found.shape) != tuple(shape):
        raise ValueError(f"{found.name}: has shape {tuple(found.shape)}, must be {tuple(shape)}")


def row_stride(found: View) -> int:
    """Elements from row to row, over all inner dimensions; 0, the library's "dense", where it cannot matter."""
    if not found.size:
        return 0
    inner = replace(found, shape=found.shape[1:], strides=found.strides[1:])
    if not inner.is_dense():
        raise ValueError(f"{found.name}: only rows may be strided, its columns are not contiguous {found.strides}")
    if found.shape[0] <= 1:
        return 0
    if found.strides[0] < inner.size:
        raise ValueError(f"{found.name}: rows of {inner.size} elements overlap at a stride of {found.strides[0]}")
    return found.strides[0]


def check_dense(found: View) -> None:
    if not found.is_dense():
        raise ValueError(f"{found.name}: must be contiguous, has strides {found.strides}")


def check_writable(found: View) -> None:
    if not found.writable:
        raise ValueError(f"{found.name}: is read-only")
    if found.is_copied:
        raise ValueError(f"{found.name}: its __dlpack__ made a copy, which nobody would see written")


def empty(shape: tuple[int, ...], kind: Type, like: View) -> Array:
    """A new array of the caller's own sort, where like lies."""
    if is_tensor(like.owner):
        torch = torch_module()
        return torch.empty(shape, dtype=getattr(torch, NAMES[kind]), device=like.owner.device)
    if isinstance(like.owner, DeviceArrayLike):
        return like.owner.like(shape, kind)
    if like.device != DeviceKind.CPU:
        raise ValueError(f"out: must be given where {like.name} is a DLPack object on a device")
    return numpy.empty(shape, numpy_type(kind, like.owner))


def numpy_type(kind: Type, like: Any = None) -> numpy.dtype:
    """bfloat16 is the type of ml_dtypes where an argument or the program has it, else uint16 with its bits."""
    if kind == Type.E2M1:
        return numpy.dtype("uint8")
    if kind != Type.BF16:
        return numpy.dtype(NAMES[kind])
    if isinstance(like, numpy.ndarray) and BY_NAME[like.dtype.name] == kind:
        return like.dtype
    ml_dtypes = sys.modules.get("ml_dtypes")
    return numpy.dtype(ml_dtypes.bfloat16) if ml_dtypes else numpy.dtype("uint16")


def stream_address(stream: Any) -> int | None:
    """A stream given as a number, or as an object of torch (cuda_stream) or CuPy (ptr)."""
    if stream is None or isinstance(stream, int):
        return stream
    for attribute in ("cuda_stream", "ptr"):
        if hasattr(stream, attribute):
            return int(getattr(stream, attribute))
    raise TypeError(f"stream: {type(stream).__name__} is no number and no stream of torch or CuPy")


def current_stream(stream: Any, given: Array) -> int | None:
    """The requested stream, else torch's current one where the argument is a tensor on a GPU."""
    if stream is None and is_tensor(given) and given.is_cuda:
        return int(torch_module().cuda.current_stream(given.device).cuda_stream)
    return stream_address(stream)
