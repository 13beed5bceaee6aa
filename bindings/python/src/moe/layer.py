"""A layer of a checkpoint, ready to be called: plan, weights and workspaces in one object."""
from __future__ import annotations

import os
import threading
from types import TracebackType
from typing import Any

from .arrays import Array, current_stream, torch_module
from .checkpoint import Checkpoint
from .enums import DeviceKind, Ownership
from .calls import forward
from .plan import Plan
from .runtime import Runtime
from .weights import Progress, Weights
from .workspace import Workspace


class Layer:
    """The layer-th decoder layer of a checkpoint (its first MoE layer if None), planned for x_type and max_tokens.

    layer(x) gives out; x is [..., hidden] in memory of the layer's device. Any number of threads and streams may call: each
    thread has a workspace per stream. CUDA graphs that are captured through one Layer share one more (graphs=False does
    without); to replay two of them at once, give each call a workspace of its own. More options are those of PlanOptions.
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
        runtime: Runtime | None = None,
        **options: Any,
    ) -> None:
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
        self._lock = threading.Lock()
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
        found = forward(self.plan, self.weights, workspace or self._workspace(on), x, out, stream=on, **more)
        return found if leading is None else found.reshape(*leading, *found.shape[1:])

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
