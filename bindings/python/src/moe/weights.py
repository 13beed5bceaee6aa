"""Weights: the tensors of one layer, in the layout of a plan."""
from __future__ import annotations

import ctypes as c
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

from . import abi
from .arrays import Array, check_dense, check_writable, stream_address, view
from .checkpoint import Checkpoint, CheckpointTensor
from .enums import DeviceKind, Ownership, Role, Space, Status
from .tensors import Tensor
from .handle import Handle, using
from .loading import library
from .plan import Plan

Progress = Callable[[int, int], object]


class MemoryReport(NamedTuple):
    n_local_experts: int
    host_bytes: int
    pinned_bytes: int
    device_bytes: int
    borrowed_bytes: int
    bookkeeping_bytes: int
    role_bytes: dict[Role, int]


class _ProgressHook:
    """A progress callback for one call. An exception in it cancels the call and is raised again behind it."""

    def __init__(self, progress: Progress | None) -> None:
        self.error: BaseException | None = None
        self.callback = abi.ProgressFn(self._called) if progress is not None else cast(Any, abi.ProgressFn)()
        self._progress = progress

    def _called(self, done: int, total: int, _user_data: object) -> int:
        try:
            return 1 if self._progress is not None and self._progress(done, total) else 0
        except BaseException as error:
            self.error = error
            return 1

    def call(self, function: str, *arguments: Any) -> None:
        try:
            library().call(function, *arguments)
        except Exception:
            if self.error is not None:
                raise self.error from None
            raise


class Weights(Handle):
    """Made by load() or load_checkpoint(). Refers to no plan: plans and weights with equal layout_id go together."""

    destroy = "moe_weights_destroy"

    def __init__(self, pointer: int, keep: tuple[Any, ...] = (), borrows: bool = False) -> None:
        super().__init__(pointer, keep)
        self._borrows = borrows
        self._borrowed: dict[tuple[int, int], Tensor | CheckpointTensor] = {}

    @classmethod
    def load(
        cls,
        plan: Plan,
        tensors: Sequence[Tensor | CheckpointTensor],
        *,
        ownership: Ownership | str | int = Ownership.COPY,
        memory: Array | None = None,
        stream: Any = None,
        progress: Progress | None = None,
    ) -> Weights:
        """From tensors given by hand. With "borrow" the matrices are read where they lie, and their arrays are kept;
        memory, for "caller", is an array of bytes that takes them.

        progress(done, total) is called with bytes; a true answer cancels the load (CancelledError)."""
        desc, kept = _desc(tensors, ownership, memory, stream)
        hook = _ProgressHook(progress)
        desc.progress = hook.callback
        out = c.c_void_p()
        with using(plan) as [address]:
            hook.call("moe_weights_load", address, c.addressof(desc), c.addressof(out))
        return cls(out.value or 0, *_kept_by_load(plan, tensors, desc, kept))

    @classmethod
    def load_checkpoint(
        cls,
        plan: Plan,
        checkpoint: Checkpoint,
        layer: int,
        *,
        ownership: Ownership | str | int = Ownership.COPY,
        memory: Array | None = None,
        stream: Any = None,
        progress: Progress | None = None,
    ) -> Weights:
        """One layer of a checkpoint, only the bytes that the plan needs. The rest as in load()."""
        options, kept = _load_options(ownership, memory, stream)
        hook = _ProgressHook(progress)
        options.progress = hook.callback
        out = c.c_void_p()
        with using(plan, checkpoint) as [plan_address, source]:
            arguments = (plan_address, source, layer, c.addressof(options), c.addressof(out))
            hook.call("moe_weights_load_checkpoint", *arguments)
        borrows = options.ownership == Ownership.BORROW
        return cls(out.value or 0, (*plan._keep, *checkpoint._keep, *kept), borrows)

    @classmethod
    def open(cls, plan: Plan, path: str | os.PathLike[str]) -> Weights:
        """Packed weights from a file that save() wrote."""
        out = c.c_void_p()
        with using(plan) as [address]:
            library().call("moe_weights_open", address, os.fsencode(path), c.addressof(out))
        return cls(out.value or 0, plan._keep)

    @staticmethod
    def size(plan: Plan, tensors: Sequence[Tensor | CheckpointTensor]) -> int:
        """Bytes of memory that load() takes for them under "copy" and "caller"."""
        desc, _ = _desc(tensors, Ownership.COPY, None, None)
        n_bytes = c.c_uint64()
        with using(plan) as [address]:
            library().call("moe_weights_size", address, c.addressof(desc), c.addressof(n_bytes))
        return n_bytes.value

    def update(self, tensor: Tensor | CheckpointTensor, stream: Any = None) -> None:
        """Replaces the tensor of one expert, or of a role without experts. No forward may be running on the CPU."""
        with self.use() as weights:
            arguments = (weights, c.addressof(tensor.struct), stream_address(stream))
            self._library.call("moe_weights_update", *arguments)
            if self._borrows:
                self._borrowed[tensor.struct.role, tensor.struct.expert] = tensor

    def save(self, path: str | os.PathLike[str]) -> None:
        with self.use() as weights:
            self._library.call("moe_weights_save", weights, os.fsencode(path))

    @property
    def layout_id(self) -> bytes:
        found = (c.c_uint8 * 16)()
        with self.use() as weights:
            self._library.call("moe_weights_layout_id", weights, c.addressof(found))
        return bytes(found)

    @property
    def memory(self) -> MemoryReport:
        report = abi.MemoryReport()
        with self.use() as weights:
            self._library.call("moe_weights_memory", weights, c.addressof(report))
        by_role = {Role(role): n_bytes for role, n_bytes in enumerate(report.role_bytes) if n_bytes}
        spaces = (report.host_bytes, report.pinned_bytes, report.device_bytes, report.borrowed_bytes)
        return MemoryReport(report.n_local_experts, *spaces, report.bookkeeping_bytes, by_role)


class LoadingProgress(NamedTuple):
    is_done: bool
    status: Status  # once it is done
    bytes_done: int
    bytes_total: int


class Loading(Handle):
    """Weights that are loaded in the background, by start() or start_checkpoint(); the arguments are those of Weights.load and
    Weights.load_checkpoint. close() cancels and waits. Any number of threads may ask, wait and cancel."""

    destroy = "moe_loading_destroy"

    def __init__(self, pointer: int, keep: tuple[Any, ...], hook: _ProgressHook, source: tuple[Any, ...]) -> None:
        super().__init__(pointer, (*keep, hook, source))
        self._hook, self._weights_keep = hook, keep
        self._borrows = False

    @classmethod
    def start(
        cls,
        plan: Plan,
        tensors: Sequence[Tensor | CheckpointTensor],
        *,
        ownership: Ownership | str | int = Ownership.COPY,
        memory: Array | None = None,
        stream: Any = None,
        progress: Progress | None = None,
    ) -> Loading:
        desc, kept = _desc(tensors, ownership, memory, stream)
        hook = _ProgressHook(progress)
        desc.progress = hook.callback
        out = c.c_void_p()
        with using(plan) as [address]:
            library().call("moe_loading_start", address, c.addressof(desc), c.addressof(out))
        keep, borrows = _kept_by_load(plan, tensors, desc, kept)
        made = cls(out.value or 0, keep, hook, (*tensors, stream))
        made._borrows = borrows
        return made

    @classmethod
    def start_checkpoint(
        cls,
        plan: Plan,
        checkpoint: Checkpoint,
        layer: int,
        *,
        ownership: Ownership | str | int = Ownership.COPY,
        memory: Array | None = None,
        stream: Any = None,
        progress: Progress | None = None,
    ) -> Loading:
        options, kept = _load_options(ownership, memory, stream)
        hook = _ProgressHook(progress)
        options.progress = hook.callback
        out = c.c_void_p()
        with using(plan, checkpoint) as [plan_address, source]:
            arguments = (plan_address, source, layer, c.addressof(options), c.addressof(out))
            library().call("moe_loading_start_checkpoint", *arguments)
        made = cls(out.value or 0, (*plan._keep, *checkpoint._keep, *kept), hook, (stream,))
        made._borrows = options.ownership == Ownership.BORROW
        return made

    def poll(self) -> LoadingProgress:
        found = abi.LoadingProgress()
        with self.use() as loading:
            self._library.call("moe_loading_poll", loading, c.addressof(found))
        return LoadingProgress(bool(found.is_done), Status(found.status), found.bytes_done, found.bytes_total)

    def cancel(self) -> None:
        """Asks the load to stop and returns at once."""
        with self.use() as loading:
            self._library.call("moe_loading_cancel", loading)

    def wait(self) -> Weights:
        """The weights, once they are there; a second time they are a NotFoundError. A load that failed raises its error."""
        out = c.c_void_p()
        with self.use() as loading:
            self._hook.call("moe_loading_wait", loading, c.addressof(out))
        return Weights(out.value or 0, self._weights_keep, self._borrows)


def _kept_by_load(
    plan: Plan, tensors: Sequence[Tensor | CheckpointTensor], desc: abi.WeightsDesc, kept: tuple[Any, ...]
) -> tuple[tuple[Any, ...], bool]:
    borrows = desc.ownership == Ownership.BORROW
    borrowed = tuple(tensors) if borrows else ()
    return (*plan._keep, *borrowed, *kept), borrows


def _load_options(ownership: Any, memory: Array | None, stream: Any) -> tuple[abi.LoadOptions, tuple[Any, ...]]:
    options = abi.LoadOptions(ownership=Ownership.of(ownership), stream=stream_address(stream))
    found = _memory(memory)
    if found is not None:
        options.memory, options.memory_bytes = found.address, found.n_bytes
    return options, (found.owner,) if found is not None else ()


def _memory(memory: Array | None) -> Any:
    if memory is None:
        return None
    found = view("memory", memory)
    check_dense(found)
    check_writable(found)
    return found


def _desc(
    tensors: Sequence[Tensor | CheckpointTensor], ownership: Any, memory: Array | None, stream: Any
) -> tuple[abi.WeightsDesc, tuple[Any, ...]]:
    pointers = (c.c_void_p * len(tensors))(*(c.addressof(tensor.struct) for tensor in tensors))
    desc = abi.WeightsDesc(ownership=Ownership.of(ownership), stream=stream_address(stream))
    desc.tensors, desc.n_tensors = c.addressof(pointers), len(tensors)
    found = _memory(memory)
    if found is not None:
        desc.memory, desc.memory_bytes = found.address, found.n_bytes
        desc.memory_space = Space.HOST if found.device == DeviceKind.CPU else Space.DEVICE
    return desc, (pointers, found)
