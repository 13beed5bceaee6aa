"""Memory and streams of a device, for programs that have neither torch nor CuPy. On the CPU they are host memory and no stream.

A DeviceArray goes wherever an array of the plan's device does; numpy arrays are copied in and out of it, and users of DLPack
read and write it where it lies.
"""
from __future__ import annotations

import ctypes as c
import math
import weakref
from typing import Any

import numpy

from . import dlpack
from .arrays import ELEMENT_BYTES, DeviceArrayLike, numpy_type, stream_address, type_of
from .enums import DeviceKind, Space, Type
from .errors import ClosedError
from .handle import using
from .loading import Library, library
from .runtime import Runtime


class Stream:
    """A stream of a device. address is None on the CPU, which has no other."""

    def __init__(self, device: DeviceKind | str | int = DeviceKind.CUDA, index: int = 0) -> None:
        self.device, self.index = DeviceKind.of(device), index
        out = c.c_void_p()
        library().call("moe_stream_create", self.device, index, c.addressof(out))
        self.address = out.value
        self._close = weakref.finalize(self, _destroy_stream, library(), self.device, index, self.address)

    @property
    def ptr(self) -> int:
        """As CuPy calls it: this goes wherever a stream does."""
        return self.address or 0

    def synchronize(self) -> None:
        """Waits for all work on it."""
        library().call("moe_stream_synchronize", self.device, self.index, self.address)

    def close(self) -> None:
        """Waits for all work on it. A second time does nothing."""
        if self._close.alive:
            self.synchronize()
        self._close()
        self.address = None


def _destroy_stream(lib: Library, device: DeviceKind, index: int, address: int | None) -> None:
    lib.call("moe_stream_destroy", device, index, address)


class DeviceArray(DeviceArrayLike):
    """A dense array in memory of a device. runtime's allocator serves it; space may be "host" or "pinned", too."""

    def __init__(
        self,
        shape: tuple[int, ...],
        kind: Any,
        *,
        device: DeviceKind | str | int = DeviceKind.CUDA,
        index: int = 0,
        space: Space | str | int = Space.DEVICE,
        runtime: Runtime | None = None,
    ) -> None:
        self.shape, self.type = tuple(shape), type_of(kind)
        self.device, self.index = DeviceKind.of(device), index
        self.n_bytes = math.prod(self.shape) * ELEMENT_BYTES[self.type]
        out, where = c.c_void_p(), (self.device, index, Space.of(space), self.n_bytes)
        with using(runtime) as [means]:
            library().call("moe_memory_allocate", means, *where, c.addressof(out))
        self._address = out.value or 0
        self._where = where[2]
        self._stream: Any = None  # of the last call that wrote here
        hold = runtime.hold() if runtime is not None else None  # the memory goes back to the same allocator
        self._close = weakref.finalize(self, _free, library(), means, hold, where, self._address)

    @classmethod
    def of(cls, given: numpy.ndarray, *, stream: Any = None, **where: Any) -> DeviceArray:
        """A copy of a numpy array on the device, there when this returns."""
        made = cls(given.shape, type_of(given.dtype), **where)
        made.put(given, stream=stream)
        return made

    @property
    def address(self) -> int:
        if not self._close.alive:
            raise ClosedError("this DeviceArray is closed")
        return self._address

    def put(self, given: numpy.ndarray, *, stream: Any = None) -> None:
        """Copies a numpy array of the same size in, and waits for the stream."""
        given = numpy.ascontiguousarray(given)
        self._copy(self.address, given.ctypes.data, given.nbytes, stream)

    def numpy(self, *, stream: Any = None) -> numpy.ndarray:
        """A copy in host memory, after all work on the stream."""
        out = numpy.empty(self.shape, numpy_type(self.type))
        self._copy(out.ctypes.data, self.address, out.nbytes, stream)
        return out

    def zero(self, *, stream: Any = None) -> None:
        """All bits zero, and waits for the stream."""
        at = stream_address(stream)
        library().call("moe_memory_zero", self.device, self.index, self.address, self.n_bytes, at)
        library().call("moe_stream_synchronize", self.device, self.index, at)

    def _copy(self, to: int, source: int, n_bytes: int, stream: Any) -> None:
        if n_bytes != self.n_bytes:
            raise ValueError(f"array: has {n_bytes} bytes, must have {self.n_bytes}")
        at = stream_address(stream) or None
        library().call("moe_memory_copy", self.device, self.index, to, source, n_bytes, at)
        library().call("moe_stream_synchronize", self.device, self.index, at)

    def written_on(self, stream: Any) -> None:
        self._stream = stream

    def __dlpack_device__(self) -> tuple[int, int]:
        if self.device == DeviceKind.CUDA and self._where == Space.DEVICE:
            return dlpack.CUDA, self.index
        is_pinned = self.device == DeviceKind.CUDA and self._where == Space.PINNED
        return (dlpack.CUDA_HOST if is_pinned else dlpack.CPU), 0

    def __dlpack__(self, *, stream: int | None = None, **request: Any) -> Any:
        """Where a call wrote here on another stream than the consumer's, it is waited for."""
        device = self.__dlpack_device__()
        dlpack.check_stream(device, stream)
        self._close.atexit = False  # a consumer may have it until Python has ended
        made = dlpack.export(self.address, self.shape, self.type, self, dlpack.Request(**request), device=device)
        if self.device == DeviceKind.CUDA and stream != dlpack.NO_ORDER:
            last, wanted = stream_address(self._stream) or dlpack.DEFAULT_STREAM, stream or dlpack.DEFAULT_STREAM
            if last != wanted or device[0] != dlpack.CUDA:
                last_address = None if last == dlpack.DEFAULT_STREAM else last
                library().call("moe_stream_synchronize", self.device, self.index, last_address)
        return made

    def like(self, shape: tuple[int, ...], kind: Type) -> DeviceArray:
        return DeviceArray(shape, kind, device=self.device, index=self.index)

    def close(self) -> None:
        """Frees the memory; work that uses it must have ended. A second time does nothing."""
        self._close()


def _free(lib: Library, runtime: int | None, hold: Any, where: tuple[Any, ...], address: int) -> None:
    lib.call("moe_memory_free", runtime, *where, address or None)
