"""Plans, weights and workspaces behind the experts modules of a process.

Layers of one shape share a plan, and all calls of a thread on one stream share a workspace: of a model with many layers there is
one of each. Weights belong to a module and are made again when its parameters are others than they were.
"""
from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import torch

from ..enums import Stage
from ..errors import MoeError
from ..layer import _is_capturing
from ..layer_desc import LayerDesc
from ..plan import Plan
from ..weights import Weights
from ..workspace import Workspace
from .call import FLOATS, Call, Scratch
from .description import NotServed
from .source import Source, of_parameters, parameters_of

STAGES = Stage.DISPATCH | Stage.EXPERTS | Stage.COMBINE | Stage.FINISH
LEAST_CAPACITY = 512
CAPTURED = "a stream is captured before libmoe"
_plans: "weakref.WeakValueDictionary[tuple[Any, ...], Plan]" = weakref.WeakValueDictionary()
_lock = threading.RLock()


def _where(device: Any) -> dict[str, Any]:
    return {"device": device.type, "device_index": device.index or 0}


def _plan(source: Source, device: Any, dtype: Any, top_k: int, capacity: int) -> Plan:
    desc = source.desc.replace(top_k=top_k)
    formats = tuple((role, bytes(form)) for role, form in source.formats.items())
    key = (bytes(desc), formats, device.type, device.index, dtype, capacity)
    with _lock:
        found = _plans.get(key)
        if found is None:
            options = {"x_type": dtype, "max_tokens": capacity, "stages": int(STAGES), **_where(device)}
            found = _plans[key] = Plan(desc, source.formats, **options)
    return found


class _Scratches(threading.local):
    """One thread's, by device and stream, each as large as the largest plan that it has served."""

    def __init__(self) -> None:
        self.by_place: dict[tuple[Any, int | None], Scratch] = {}


_scratches = _Scratches()
# For calls under capture, when nothing can be made. A graph keeps on using its scratch, so none is ever freed.
_for_graphs: dict[Any, list[Scratch]] = {}


class _Ready:
    """Calls of one type and top_k, of up to so many tokens."""

    def __init__(self, call: Call, capacity: int) -> None:
        need = call.plan.workspace_need(capacity)
        self.call, self.capacity, self.need = call, capacity, max(need.device_bytes, need.host_bytes)
        ours = _for_graphs.setdefault(call.device, [])
        if call.device.type == "cuda" and (not ours or ours[-1].need < self.need):
            ours.append(Scratch(Workspace(call.plan), self.need))

    def scratch(self, stream: int | None, is_capturing: bool) -> Scratch:
        if is_capturing:
            return _for_graphs[self.call.device][-1]
        place = (self.call.device, stream)
        found = _scratches.by_place.get(place)
        if found is None or found.need < self.need:
            found = _scratches.by_place[place] = Scratch(Workspace(self.call.plan, stream=stream), self.need)
        return found


def _identity(parameters: list[Any]) -> tuple[Any, ...]:
    """Changes when a parameter is replaced, moved, cast or written to in a way that torch counts."""
    return tuple((one.data_ptr(), one.dtype, one.shape, None if one.is_inference() else one._version) for one in parameters)


class Experts:
    """The weights of one experts module, and its calls."""

    def __init__(self, module: Any) -> None:
        self._module = weakref.ref(module)
        self._given: Source | None = None  # of a checkpoint folder
        self._seen: tuple[Any, ...] | None = None
        self._ready: dict[tuple[Any, int], _Ready] = {}
        self.n_calls = 0
        self.source: Source
        self.weights: Weights
        self.device: Any

    @property
    def borrowed_bytes(self) -> int:
        return self.weights.memory.borrowed_bytes

    def kernel(self, n_tokens: int) -> str:
        """The kernel of gate and up for a call of so many tokens, of the plan that was used last."""
        return list(self._ready.values())[-1].call.plan.kernel("experts", n_tokens)

    def give(self, source: Source, device: Any) -> None:
        """Weights of another origin in place of the module's parameters."""
        with _lock:
            self._given, self._seen, self.device = source, (), device
            self._load(source)

    def refresh(self, module: Any) -> None:
        """Loads the weights if that has not been done, or not of these parameters."""
        if self._given is not None:
            return
        seen = _identity(parameters_of(module))
        if seen == self._seen:
            return
        if _is_capturing():
            raise RuntimeError(f"{CAPTURED} has loaded the weights: run the same call once, then capture")
        with _lock, named(module), torch.inference_mode(False):
            if _identity(parameters_of(module)) == self._seen:  # another thread was here first
                return
            source = of_parameters(module)
            self.device = source.freeable[0].device
            self._load(source)
            if self.device.type == "cuda" and frees_parameters():
                for one in source.freeable:
                    one.data = one.data.new_empty(0)
            self._seen = _identity(parameters_of(module))

    def _load(self, source: Source) -> None:
        """On the CPU matrices are read where they are. On a GPU they are packed, a copy, into a tensor."""
        self._ready.clear()
        if self.device.type == "cpu":
            plan = _plan(source, self.device, source.dtype, 1, 1)
            self.weights = Weights.load(plan, source.tensors, ownership="borrow")
        else:
            with torch.cuda.device(self.device):
                plan = _plan(source, self.device, source.dtype, 1, 1)
                size = Weights.size(plan, source.tensors)
                memory = torch.empty(size, dtype=torch.uint8, device=self.device)
                stream = torch.cuda.current_stream(self.device)
                self.weights = Weights.load(plan, source.tensors, ownership="caller", memory=memory, stream=stream)
        self.source = source._replace(tensors=(), freeable=())

    def _ready_for(self, n_tokens: int, dtype: Any, top_k: int, is_capturing: bool) -> _Ready:
        found = self._ready.get((dtype, top_k))
        if found is None or found.capacity < n_tokens:
            if is_capturing:
                raise RuntimeError(f"{CAPTURED} has been called with {n_tokens} tokens: run the same call once, then capture")
            capacity = max(LEAST_CAPACITY, 1 << (n_tokens - 1).bit_length())
            plan = _plan(self.source, self.device, dtype, top_k, capacity)
            call = Call(plan, self.weights, self.device)
            found = self._ready[dtype, top_k] = _Ready(call, capacity)
        return found

    def __call__(self, x: Any, ids: Any, expert_weights: Any) -> Any:
        module = self._module()
        if module is None:
            raise RuntimeError("the experts module no longer exists")
        self.refresh(module)
        self.n_calls += 1
        if expert_weights.dtype not in FLOATS:
            expert_weights = expert_weights.float()
        tensors = (_rows(x), _rows(ids), _rows(expert_weights))
        if self.device.type == "cpu":
            return self._on_cpu(*tensors)
        with torch.cuda.device(self.device):
            is_capturing, stream = _is_capturing(), torch.cuda.current_stream(self.device).cuda_stream
            ready = self._ready_for(x.shape[0], x.dtype, ids.shape[1], is_capturing)
            return ready.call(ready.scratch(stream, is_capturing), *tensors, stream, 0)

    def _on_cpu(self, x: Any, ids: Any, expert_weights: Any) -> Any:
        ready = self._ready_for(x.shape[0], x.dtype, ids.shape[1], False)
        scratch = ready.scratch(None, False)
        out = ready.call(scratch, x, ids, expert_weights, None, torch.get_num_threads())
        if scratch.has_faults():
            self._check(ids)
        return out

    def _check(self, ids: Any) -> None:
        """n_experts is an id that stands for no expert, in transformers; others that are not there are an error."""
        n_experts = self.source.desc.n_experts
        limit = None if self._is_parallel() else n_experts
        if ids.min() < -1 or (limit is not None and ids.max() > limit):
            raise IndexError(f"top_k_index: has ids from {int(ids.min())} to {int(ids.max())}, the layer has {n_experts} experts")

    def _is_parallel(self) -> bool:
        return bool(getattr(self._module(), "_is_expert_parallel", False))


def _rows(x: Any) -> Any:
    return x if x.stride(-1) == 1 and (x.shape[0] <= 1 or x.stride(0) >= x.shape[1]) else x.contiguous()


def is_experts(module: Any) -> bool:
    """Whether it is of a class that the experts interface of transformers serves."""
    return all(hasattr(module, name) for name in ("has_gate", "has_bias", "is_transposed", "is_concatenated"))


def frees_parameters() -> bool:
    """MOE_TRANSFORMERS_KEEP=1 keeps the parameters on a GPU beside the packed weights."""
    return os.environ.get("MOE_TRANSFORMERS_KEEP", "0") in ("", "0")


@contextlib.contextmanager
def named(module: Any) -> Iterator[None]:
    """Puts the class before what is said of it."""
    name = type(module).__name__
    try:
        yield
    except NotServed as error:
        raise NotServed(f"libmoe cannot serve {name}: {error}") from error
    except MoeError as error:
        raise NotServed(f"libmoe cannot serve {name}: {error.message or error}") from error


_experts: dict[int, tuple[Any, Experts]] = {}  # by id of the module, which a weak reference guards against another one of that id


def experts_of(module: Any) -> Experts:
    """The one Experts of a module."""
    found = _experts.get(id(module))
    if found is not None and found[0]() is module:
        return found[1]
    with _lock:
        number = id(module)
        made = Experts(module)
        _experts[number] = (weakref.ref(module, lambda _: _experts.pop(number, None)), made)
    return made


def by_number(number: int) -> Experts:
    found = _experts.get(number)
    if found is None:
        raise RuntimeError("the experts module of this call no longer exists")
    return found[1]
