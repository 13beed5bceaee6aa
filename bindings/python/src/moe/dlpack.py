"""DLPack without compiled code: reads what __dlpack__ gives, and exports memory of the library.

The structs are those of DLPack 1.3; a producer that only has the form before 1.0 is read as well.
"""
from __future__ import annotations

import atexit
import ctypes as c
import itertools
import math
from typing import Any, NamedTuple

from .enums import Type

VERSION = (1, 3)
CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
ON_STREAMS = (CUDA, CUDA_MANAGED)
DEFAULT_STREAM, NO_ORDER = 1, -1  # of the argument stream: the legacy default stream; "do not synchronize"
READ_ONLY, IS_COPIED, IS_PADDED = 1, 2, 4
OLD_NAME, NEW_NAME = b"dltensor", b"dltensor_versioned"

# (code, bits, lanes) of DLDataType. An element of E2M1 is a byte with two codes, the first one in its low bits.
TYPES = {
    (2, 32, 1): Type.F32,
    (2, 16, 1): Type.F16,
    (4, 16, 1): Type.BF16,
    (2, 64, 1): Type.F64,
    (0, 8, 1): Type.I8,
    (1, 8, 1): Type.U8,
    (0, 32, 1): Type.I32,
    (0, 64, 1): Type.I64,
    (10, 8, 1): Type.F8_E4M3,
    (12, 8, 1): Type.F8_E5M2,
    (14, 8, 1): Type.F8_E8M0,
    (17, 4, 2): Type.E2M1,
}
CODES = {kind: code for code, kind in TYPES.items()}
ONE_E2M1 = (17, 4, 1)  # as an element of its own


class _Tensor(c.Structure):
    _fields_ = [
        ("data", c.c_void_p),
        ("device_type", c.c_int32),
        ("device_id", c.c_int32),
        ("ndim", c.c_int32),
        ("code", c.c_uint8),
        ("bits", c.c_uint8),
        ("lanes", c.c_uint16),
        ("shape", c.POINTER(c.c_int64)),
        ("strides", c.POINTER(c.c_int64)),
        ("byte_offset", c.c_uint64),
    ]


_Deleter = c.CFUNCTYPE(None, c.c_void_p)


class _Old(c.Structure):
    _fields_ = [("tensor", _Tensor), ("context", c.c_void_p), ("deleter", c.c_void_p)]


class _New(c.Structure):
    _fields_ = [
        ("major", c.c_uint32),
        ("minor", c.c_uint32),
        ("context", c.c_void_p),
        ("deleter", c.c_void_p),
        ("flags", c.c_uint64),
        ("tensor", _Tensor),
    ]


def _python(name: str, result: Any, *arguments: Any) -> Any:
    return c.PYFUNCTYPE(result, *arguments)((name, c.pythonapi))


_is_valid = _python("PyCapsule_IsValid", c.c_int, c.py_object, c.c_char_p)
_get_pointer = _python("PyCapsule_GetPointer", c.c_void_p, c.py_object, c.c_char_p)
_set_name = _python("PyCapsule_SetName", c.c_int, c.py_object, c.c_char_p)
_new_capsule = _python("PyCapsule_New", c.py_object, c.c_void_p, c.c_char_p, c.c_void_p)
# The same two for a destructor, which gets the capsule while it is dying: by address, without a reference.
_dying_is_valid = _python("PyCapsule_IsValid", c.c_int, c.c_void_p, c.c_char_p)
_dying_pointer = _python("PyCapsule_GetPointer", c.c_void_p, c.c_void_p, c.c_char_p)


class Imported(NamedTuple):
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements
    type: Type
    device_type: int
    device_index: int
    is_read_only: bool
    is_copied: bool
    owner: object  # the memory is the producer's until this goes


class _Owner:
    """Calls the producer's deleter once, when nobody needs the memory any more."""

    def __init__(self, address: int, deleter: int | None) -> None:
        self.address = address
        self.deleter = _Deleter(deleter) if deleter else None

    def __del__(self) -> None:
        if self.deleter:
            self.deleter(self.address)


_USED_OLD, _USED_NEW = b"used_dltensor", b"used_dltensor_versioned"  # a capsule keeps the pointer to its name


def _dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    behind = itertools.accumulate((*shape[:0:-1],), lambda a, b: a * b, initial=1)
    return tuple(behind)[::-1] if shape else ()


def _ask(given: Any, stream: int | None) -> Any:
    kind, _ = given.__dlpack_device__()
    arguments = {"stream": stream or DEFAULT_STREAM} if kind in ON_STREAMS else {}
    try:
        return given.__dlpack__(max_version=VERSION, **arguments)
    except TypeError:  # a producer older than DLPack 1.0
        return given.__dlpack__(**arguments)


def _in_pairs(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and strides of bytes with two codes each, of those of the codes."""
    if not shape or shape[-1] % 2 or strides[-1] != 1 or any(one % 2 for one in strides[:-1]):
        raise TypeError(f"codes of 4 bits, shape {shape} and strides {strides}, do not lie in pairs")
    return (*shape[:-1], shape[-1] // 2), (*(one // 2 for one in strides[:-1]), 1)


def read(given: Any, stream: int | None = None) -> Imported:
    """Takes what given.__dlpack__ gives, ordered on a CUDA stream where there is one."""
    capsule = _ask(given, stream)
    is_new = bool(_is_valid(capsule, NEW_NAME))
    address = _get_pointer(capsule, NEW_NAME if is_new else OLD_NAME)
    managed = (_New if is_new else _Old).from_address(address)
    if is_new and managed.major != VERSION[0]:
        raise BufferError(f"DLPack {managed.major}.{managed.minor} is not known here")
    _set_name(capsule, _USED_NEW if is_new else _USED_OLD)
    owner = _Owner(address, managed.deleter)
    tensor, flags = managed.tensor, managed.flags if is_new else 0
    code = (tensor.code, tensor.bits, tensor.lanes)
    kind = Type.E2M1 if code == ONE_E2M1 else TYPES.get(code)
    if kind is None:
        raise TypeError(f"no type for DLPack code {tensor.code}, {tensor.bits} bits, {tensor.lanes} lanes")
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else _dense_strides(shape)
    if kind == Type.E2M1 and flags & IS_PADDED:
        raise TypeError("codes of 4 bits have a byte each (DLPack calls it padded), two must share one")
    if code == ONE_E2M1:
        shape, strides = _in_pairs(shape, strides)
    start = (tensor.data or 0) + tensor.byte_offset
    where = (tensor.device_type, tensor.device_id)
    return Imported(start, shape, strides, kind, *where, bool(flags & READ_ONLY), bool(flags & IS_COPIED), owner)


_exported: dict[int, tuple[Any, ...]] = {}  # what a consumer of ours refers to, until it calls the deleter


@_Deleter
def _forget(address: int) -> None:
    _exported.pop(address, None)


@c.PYFUNCTYPE(None, c.c_void_p)
def _drop_unused(capsule: int) -> None:
    for name in (NEW_NAME, OLD_NAME):
        if _dying_is_valid(capsule, name):
            _forget(_dying_pointer(capsule, name))


@atexit.register
def _leave_exported() -> None:
    """What is still exported when Python ends stays where it is: there is no Python then to run a deleter."""
    for managed, *_ in _exported.values():
        managed.deleter = None
    for kept in (_exported, _drop_unused):
        c.pythonapi.Py_IncRef(c.py_object(kept))


class Request(NamedTuple):
    """The arguments of __dlpack__."""

    max_version: tuple[int, int] | None = None
    dl_device: tuple[int, int] | None = None
    copy: bool | None = None

    def check(self, device: tuple[int, int], *, read_only: bool) -> None:
        if self.dl_device is not None and tuple(self.dl_device) != device:
            raise BufferError(f"dl_device: is {tuple(self.dl_device)}, the memory is on {device}")
        if self.copy and device[0] != CPU:
            raise BufferError("copy: memory of a device is copied by numpy() alone")
        if read_only and not self.copy and not self.is_versioned:
            raise BufferError("read-only memory needs a consumer of DLPack 1.0 (max_version)")

    @property
    def is_versioned(self) -> bool:
        return self.max_version is not None and self.max_version[0] >= VERSION[0]


def check_stream(device: tuple[int, int], stream: int | None) -> None:
    """What a consumer may say of streams."""
    if device[0] not in ON_STREAMS:
        if stream is not None:
            raise BufferError(f"stream: is {stream}, must be None for host memory")
    elif stream is not None and (stream == 0 or stream < NO_ORDER):
        raise BufferError(f"stream: is {stream}, must be -1, 1 (the default stream), 2 (that of the thread) or a stream")


def export(
    address: int,
    shape: tuple[int, ...],
    kind: Type,
    owner: object,
    request: Request,
    *,
    device: tuple[int, int] = (CPU, 0),
    read_only: bool = False,
) -> Any:
    """A capsule for dense memory that owner keeps alive, or for a copy of it."""
    request.check(device, read_only=read_only)
    code, bits, lanes = CODES[kind]
    flags = READ_ONLY if read_only else 0
    if request.copy:
        n_bytes = math.prod(shape) * bits * lanes // 8
        owner, flags = c.create_string_buffer(c.string_at(address, n_bytes), n_bytes), IS_COPIED
        address = c.addressof(owner)
    managed: _New | _Old = _Old()
    if request.is_versioned:
        managed = _New(major=VERSION[0], minor=VERSION[1], flags=flags)
    shape_array = (c.c_int64 * len(shape))(*shape)
    strides_array = (c.c_int64 * len(shape))(*_dense_strides(shape))
    start = address if math.prod(shape) else None
    managed.tensor = _Tensor(start, *device, len(shape), code, bits, lanes, shape_array, strides_array, 0)
    managed.deleter = c.cast(_forget, c.c_void_p)
    place = c.addressof(managed)
    _exported[place] = (managed, shape_array, strides_array, owner)
    return _new_capsule(place, NEW_NAME if request.is_versioned else OLD_NAME, c.cast(_drop_unused, c.c_void_p))
