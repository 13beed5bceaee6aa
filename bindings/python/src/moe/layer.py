"""A layer of a checkpoint, ready to be called: plan, weights and workspaces in one object."""
from __future__ import annotations

import functools
import operator
import os
import threading
from types import TracebackType
from typing import Any, Literal

from .arrays import Array, current_stream, torch_module
from .checkpoint import Checkpoint
from .enums import DeviceKind, Ownership
from .errors import FaultError
from .calls import forward
from .plan import Plan
from .runtime import Runtime
from .weights import Progress, Weights
from .workspace import Faults, Workspace


class Layer:
    """The layer-th decoder layer of a checkpoint (its first MoE layer if None), planned for x_type and max_tokens.

    layer(x) gives out; x is [..., hidden] in memory of the layer's device. Any number of threads and streams may call: each
    thread has a workspace per stream. CUDA graphs that are captured through one Layer share one more (graphs=False does
    without); to replay two of them at once, give each call a workspace of its own. More options are those of PlanOptions.

    Ids that the layer does not have, and other faults of moe_workspace_status, are a FaultError behind the call, whose output
    is written. On a GPU it is raised by the first call, or faults(), after the work has ended; calls that are captured look at
    nothing. With on_fault="keep" they are counted until faults() is asked.
    """

    def __init__(
        self,
        checkpoint: Checkpoint | str | os.PathLike[str],
        layer: int | None = None,
        *,
        x_type: Any = "f32",
        max_tokens: int = 512,
        ownership: Ownership | str | int = Ownership.COPY,
        progress: Progress | None = None,
        stream: Any = None,
        graphs: bool = True,
        on_fault: Literal["raise", "keep"] = "raise",
        runtime: Runtime | None = None,
        **options: Any,
    ) -> None:
        if on_fault not in ("raise", "keep"):
            raise ValueError(f"on_fault: is {on_fault!r}, must be 'raise' or 'keep'")
        is_ours = not isinstance(checkpoint, Checkpoint)
        opened = checkpoint if isinstance(checkpoint, Checkpoint) else Checkpoint(checkpoint, runtime=runtime)
        try:
            number = opened.layer_at(0) if layer is None else layer
            options |= {"x_type": x_type, "max_tokens": max_tokens, "checkpoint_layer": number}
            self.plan = Plan(checkpoint=opened, runtime=runtime, **options)
            how = {"ownership": ownership, "progress": progress, "stream": stream}
            self.weights = Weights.load_checkpoint(self.plan, opened, number, **how)
        finally:
            if is_ours:
                opened.close()
        self.number, self.hidden, self._runtime = number, self.plan.shape.hidden, runtime
        self._lock, self._raises = threading.Lock(), on_fault == "raise"
        self._workspaces: dict[tuple[int, int | None], Workspace] = {}
        self._is_cuda = self.plan.device.kind == DeviceKind.CUDA
        self._for_graphs = Workspace(self.plan, runtime=runtime) if self._is_cuda and graphs else None

    def _workspace(self, stream: int | None) -> Workspace:
        key = (threading.get_ident(), stream)
        with self._lock:
            if key in self._workspaces:
                return self._workspaces[key]
        if self._is_cuda and _is_capturing():  # nothing can be made now
            if self._for_graphs is None:
                raise RuntimeError("a stream is captured that has no workspace yet: make the Layer with graphs=True")
            return self._for_graphs
        made = Workspace(self.plan, stream=stream, runtime=self._runtime)
        with self._lock:
            return self._workspaces.setdefault(key, made)

    def __call__(
        self, x: Array, out: Array | None = None, *, stream: Any = None, workspace: Workspace | None = None, **more: Any
    ) -> Array:
        """More arguments are those of forward()."""
        on = current_stream(stream, x)
        leading = None
        if getattr(x, "ndim", 2) != 2:
            leading, x = x.shape[:-1], x.reshape(-1, x.shape[-1])
            if out is not None:
                raise ValueError(f"out: can only be given for x of two dimensions, x has leading shape {leading}")
        used = self._workspace(on) if workspace is None else workspace
        found = forward(self.plan, self.weights, used, x, out, stream=on, **more)
        if workspace is None and self._raises and not (self._is_cuda and _is_capturing()):
            self._raise_faults(used)
        return found if leading is None else found.reshape(*leading, *found.shape[1:])

    def _raise_faults(self, used: Workspace) -> None:
        with self._lock:
            found = used.status()
        if found.faults:
            raise FaultError(*found)

    def faults(self) -> Faults:
        """What went wrong in calls that have finished, in all workspaces of the layer together, and forgets it. Does not wait."""
        with self._lock:
            ours = [*self._workspaces.values(), self._for_graphs]
            each = [one.status() for one in ours if one is not None]
        return Faults(functools.reduce(operator.or_, (one.faults for one in each), 0), sum(one.n_skipped for one in each))

    def close(self) -> None:
        with self._lock:
            handles = [*self._workspaces.values(), self._for_graphs, self.weights, self.plan]
        for handle in handles:
            if handle is not None:
                handle.close()

    def __enter__(self) -> Layer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _is_capturing() -> bool:
    torch = torch_module()
    return torch is not None and torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
