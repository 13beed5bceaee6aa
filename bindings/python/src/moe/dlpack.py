"""DLPack without compiled code: reads what __dlpack__ gives, and exports memory of the library.

The structs are those of DLPack 1.x; a producer that only has the form before it is read as well.
"""
from __future__ import annotations

import ctypes as c
import itertools
from typing import Any, NamedTuple

from .enums import Type

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
READ_ONLY = 1
OLD_NAME, NEW_NAME = b"dltensor", b"dltensor_versioned"

# (code, bits) of DLDataType
TYPES = {
    (2, 32): Type.F32,
    (2, 16): Type.F16,
    (4, 16): Type.BF16,
    (2, 64): Type.F64,
    (0, 8): Type.I8,
    (1, 8): Type.U8,
    (0, 32): Type.I32,
    (0, 64): Type.I64,
    (10, 8): Type.F8_E4M3,
    (12, 8): Type.F8_E5M2,
    (14, 8): Type.F8_E8M0,
}
CODES = {kind: code for code, kind in TYPES.items()}


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
    arguments = {} if kind == CPU else {"stream": stream or 1}  # 1 is the default stream
    try:
        return given.__dlpack__(max_version=(1, 0), **arguments)
    except TypeError:  # a producer older than DLPack 1.0
        return given.__dlpack__(**arguments)


def read(given: Any, stream: int | None = None) -> Imported:
    """Takes what given.__dlpack__ gives, ordered on a CUDA stream where there is one."""
    capsule = _ask(given, stream)
    is_new = bool(_is_valid(capsule, NEW_NAME))
    address = _get_pointer(capsule, NEW_NAME if is_new else OLD_NAME)
    managed = (_New if is_new else _Old).from_address(address)
    if is_new and managed.major != 1:
        raise BufferError(f"DLPack {managed.major}.{managed.minor} is not known here")
    _set_name(capsule, _USED_NEW if is_new else _USED_OLD)
    owner = _Owner(address, managed.deleter)
    tensor = managed.tensor
    kind = TYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if kind is None:
        raise TypeError(f"no type for DLPack code {tensor.code}, {tensor.bits} bits, {tensor.lanes} lanes")
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else _dense_strides(shape)
    is_read_only = is_new and bool(managed.flags & READ_ONLY)
    start = (tensor.data or 0) + tensor.byte_offset
    return Imported(start, shape, strides, kind, tensor.device_type, tensor.device_id, is_read_only, owner)


_exported: dict[int, tuple[object, ...]] = {}  # what a consumer of ours refers to, until it calls the deleter


@_Deleter
def _forget(address: int) -> None:
    _exported.pop(address, None)


@c.PYFUNCTYPE(None, c.c_void_p)
def _drop_unused(capsule: int) -> None:
    for name in (NEW_NAME, OLD_NAME):
        if _dying_is_valid(capsule, name):
            _forget(_dying_pointer(capsule, name))


def export(address: int, shape: tuple[int, ...], kind: Type, owner: object, *, read_only: bool, versioned: bool) -> Any:
    """A capsule for dense host memory that owner keeps alive."""
    if read_only and not versioned:
        raise BufferError("read-only memory needs a consumer of DLPack 1.0 (max_version)")
    managed = _New(major=1, minor=0, flags=READ_ONLY if read_only else 0) if versioned else _Old()
    shape_array = (c.c_int64 * len(shape))(*shape)
    strides_array = (c.c_int64 * len(shape))(*_dense_strides(shape))
    code, bits = CODES[kind]
    managed.tensor = _Tensor(address, CPU, 0, len(shape), code, bits, 1, shape_array, strides_array, 0)
    managed.deleter = c.cast(_forget, c.c_void_p)
    place = c.addressof(managed)
    _exported[place] = (managed, shape_array, strides_array, owner)
    return _new_capsule(place, NEW_NAME if versioned else OLD_NAME, c.cast(_drop_unused, c.c_void_p))
