"""The means of the library: memory, threads, log; and the devices it sees.

Exceptions of callbacks that have no answer leave them: ctypes gives them to sys.unraisablehook, and C sees nothing of them.
"""
from __future__ import annotations

import ctypes as c
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from . import abi
from .enums import DeviceKind, LogLevel, Space
from .handle import Handle
from .loading import library

LogCallback = Callable[[LogLevel, str], object]
ParallelFor = Callable[[int, Callable[[int], None]], object]


class Allocator(Protocol):
    """Serves every byte that handles keep. Both methods may be called from any thread."""

    def allocate(self, n_bytes: int, alignment: int, space: Space, stream: int | None) -> int | None:
        """An address, or None when there is no memory."""

    def release(self, address: int, n_bytes: int, alignment: int, space: Space, stream: int | None) -> None:
        """The same numbers as at allocation."""


@c.CFUNCTYPE(None, c.py_object)
def _report(error: BaseException) -> None:
    """A callback for those that have an answer to give: what it raises goes to sys.unraisablehook as well."""
    raise error


def _log_callback(log: LogCallback | logging.Logger) -> Any:
    if isinstance(log, logging.Logger):
        log = _to_logger(log)
    write = log

    def called(level: int, message: bytes, _user_data: object) -> None:
        write(LogLevel(level), message.decode(errors="replace"))

    return abi.LogFn(called)


def _to_logger(logger: logging.Logger) -> LogCallback:
    levels = {LogLevel.ERROR: logging.ERROR, LogLevel.WARNING: logging.WARNING, LogLevel.INFO: logging.INFO}
    return lambda level, message: logger.log(levels.get(level, logging.DEBUG), "%s", message)


def _parallel_for_callback(parallel_for: ParallelFor) -> Any:
    def called(n_tasks: int, task: Any, task_data: int | None, _user_data: object) -> None:
        started: set[int] = set()

        def run(index: int) -> None:
            started.add(index)
            task(index, task_data)

        try:
            parallel_for(n_tasks, run)
        finally:
            for index in set(range(n_tasks)) - started:  # each task must run once, whatever the callback did
                run(index)

    return abi.ParallelForFn(called)


def _allocator_struct(allocator: Allocator) -> abi.Allocator:
    def allocate(n_bytes: int, alignment: int, space: int, stream: int | None, _user: object) -> int | None:
        address = None  # without an answer ctypes would give the library any
        try:
            given = allocator.allocate(n_bytes, alignment, Space(space), stream)
            address = c.c_void_p(abi.fitting("allocate", abi.PTR, given)).value
        except BaseException as error:
            _report(error)
        return address

    def release(address: int, n_bytes: int, alignment: int, space: int, stream: int | None, _user: object) -> None:
        allocator.release(address, n_bytes, alignment, Space(space), stream)

    return abi.Allocator(allocate=abi.AllocateFn(allocate), release=abi.ReleaseFn(release))


class Runtime(Handle):
    """Memory, threads and log of the handles made with it. None in its place is the process default.

    log: a callable(level, message) or a logging.Logger. parallel_for: a callable(n_tasks, task) that calls
    task(i) once for each i, on any threads, and returns when all are done. allocator: see Allocator.
    """

    destroy = "moe_runtime_destroy"

    def __init__(
        self,
        *,
        n_threads: int = 0,
        log: LogCallback | logging.Logger | None = None,
        log_level: LogLevel | str | int = LogLevel.DEFAULT,
        allocator: Allocator | None = None,
        parallel_for: ParallelFor | None = None,
        cublaslt_path: str | None = None,
        nccl_path: str | None = None,
    ) -> None:
        desc = abi.RuntimeDesc(n_threads=n_threads, log_level=LogLevel.of(log_level))
        keep: list[Any] = []
        if log is not None:
            keep.append(_log_callback(log))
            desc.log = keep[-1]
        if parallel_for is not None:
            keep.append(_parallel_for_callback(parallel_for))
            desc.parallel_for = keep[-1]
        if allocator is not None:
            hook = _allocator_struct(allocator)
            desc.allocator = c.addressof(hook)
            keep.append(hook)
        desc.cublaslt_path = cublaslt_path.encode() if cublaslt_path else None
        desc.nccl_path = nccl_path.encode() if nccl_path else None
        out = c.c_void_p()
        library().call("moe_runtime_create", c.addressof(desc), c.addressof(out))
        super().__init__(out.value or 0, tuple(keep))


def kept_by(runtime: Runtime | None) -> tuple[Any, ...]:
    """What a handle made with this runtime must keep: the callbacks live as long as it does."""
    return runtime._keep if runtime is not None else ()


@dataclass(frozen=True)
class DeviceInfo:
    kind: DeviceKind
    index: int
    name: str
    n_cores: int
    memory_bytes: int
    arch: tuple[int, int]
    features: str


def device_count(kind: DeviceKind | str | int) -> int:
    count = c.c_int32()
    library().call("moe_device_count", DeviceKind.of(kind), c.addressof(count))
    return count.value


def device_info(kind: DeviceKind | str | int, index: int = 0) -> DeviceInfo:
    info = abi.DeviceInfo()
    library().call("moe_device_get_info", DeviceKind.of(kind), index, c.addressof(info))
    arch = (info.arch_major, info.arch_minor)
    words = (info.name.decode(), info.n_cores, info.memory_bytes, arch, info.features.decode())
    return DeviceInfo(DeviceKind(info.kind), info.index, *words)


def version() -> int:
    return int(library().ask("moe_version"))


def abi_version() -> int:
    return int(library().ask("moe_abi_version"))


def version_string() -> str:
    return library().text("moe_version_string") or ""


def build_info() -> dict[str, str]:
    """What the library says of its build, by key; put it in bug reports."""
    lines = (library().text("moe_build_info") or "").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def role_name(role: int) -> str:
    return library().text("moe_role_name", role) or ""


def type_name(kind: int) -> str:
    return library().text("moe_type_name", kind) or ""
