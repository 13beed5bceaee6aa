"""One exception for each status of moe.h, all of them MoeError; and what the binding itself raises."""
from __future__ import annotations

from .enums import Fault, Status

__all__ = [
    "AbiError",
    "AbiVersionError",
    "BufferTooSmallError",
    "BusyError",
    "CancelledError",
    "ClosedError",
    "CorruptFileError",
    "DeviceError",
    "FaultError",
    "ForkedError",
    "InternalError",
    "InvalidArgumentError",
    "IoError",
    "LayoutMismatchError",
    "LibraryError",
    "MoeError",
    "NoDeviceError",
    "NotBuiltError",
    "NotFoundError",
    "OutOfMemoryError",
    "UnsupportedError",
    "WorkspaceTooSmallError",
]


class MoeError(Exception):
    """A call of the library failed. status has the number, also one that this binding does not know.

    name is the status as moe.h writes it, message the library's sentence, call the function's name.
    """

    def __init__(self, status: int, message: str = "", call: str = "", name: str = "") -> None:
        self.status = Status(status)
        self.message = message
        self.call = call
        self.name = name or name_of(status)
        super().__init__(status, message, call, self.name)

    def __str__(self) -> str:
        return f"{self.call}: {self.name}: {self.message}".removeprefix(": ").removesuffix(": ")


def name_of(status: int) -> str:
    known = status in Status.__members__.values()
    return f"MOE_ERROR_{Status(status).name}" if known else "MOE_ERROR_UNKNOWN"


class InvalidArgumentError(MoeError, ValueError):
    pass


class OutOfMemoryError(MoeError, MemoryError):
    pass


class UnsupportedError(MoeError, NotImplementedError):
    pass


class NotBuiltError(MoeError):
    pass


class NoDeviceError(MoeError):
    pass


class LayoutMismatchError(MoeError, ValueError):
    pass


class WorkspaceTooSmallError(MoeError):
    pass


class CancelledError(MoeError):
    pass


class ForkedError(MoeError, RuntimeError):
    pass


class IoError(MoeError, OSError):
    pass


class CorruptFileError(MoeError, ValueError):
    pass


class NotFoundError(MoeError, LookupError):
    pass


class AbiError(MoeError):
    pass


class DeviceError(MoeError, RuntimeError):
    pass


class BusyError(MoeError, RuntimeError):
    pass


class BufferTooSmallError(MoeError, ValueError):
    pass


class InternalError(MoeError, RuntimeError):
    pass


BY_STATUS: dict[int, type[MoeError]] = {
    Status.INVALID_ARGUMENT: InvalidArgumentError,
    Status.OUT_OF_MEMORY: OutOfMemoryError,
    Status.UNSUPPORTED: UnsupportedError,
    Status.NOT_BUILT: NotBuiltError,
    Status.NO_DEVICE: NoDeviceError,
    Status.LAYOUT_MISMATCH: LayoutMismatchError,
    Status.WORKSPACE_TOO_SMALL: WorkspaceTooSmallError,
    Status.CANCELLED: CancelledError,
    Status.FORKED: ForkedError,
    Status.IO: IoError,
    Status.CORRUPT_FILE: CorruptFileError,
    Status.NOT_FOUND: NotFoundError,
    Status.ABI: AbiError,
    Status.DEVICE: DeviceError,
    Status.BUSY: BusyError,
    Status.BUFFER_TOO_SMALL: BufferTooSmallError,
    Status.INTERNAL: InternalError,
}


def error_of(status: int, message: str = "", call: str = "", name: str = "") -> MoeError:
    """The exception of a status; MoeError itself for one that is not known."""
    return BY_STATUS.get(status, MoeError)(status, message, call, name)


class LibraryError(ImportError):
    """libmoe cannot be loaded: the sentence says what was tried, or which function is missing."""


class AbiVersionError(LibraryError):
    """The library found speaks another ABI version than this package."""

    def __init__(self, path: str, found: int, wanted: int) -> None:
        super().__init__(f"{path}: found ABI version {found}, wanted {wanted}", path=path)
        self.found = found
        self.wanted = wanted


class FaultError(IndexError):
    """A call of a Layer left out slots or rows, such as those of ids that the layer does not have; everything else was computed
    and is in the output. faults has the bits of Fault, n_skipped counts slots or rows."""

    def __init__(self, faults: int, n_skipped: int) -> None:
        names = [one.name.lower() for one in Fault if faults & one]
        super().__init__(f"{n_skipped} slots or rows were skipped: {', '.join(names) or faults}")
        self.faults = faults
        self.n_skipped = n_skipped


class ClosedError(ValueError):
    """A handle was used after close()."""
