"""moe_forward over torch tensors, for a decode step in which every microsecond before the call counts.

moe.forward takes any array and asks each argument many questions; here all are tensors, and what can be wrong is checked.
"""
from __future__ import annotations

import ctypes as c
from typing import Any

import torch

from .. import abi
from ..enums import Routing, Type
from ..loading import library
from ..plan import Plan
from ..weights import Weights
from ..workspace import Workspace

IDS = {torch.int32: int(Type.I32), torch.int64: int(Type.I64)}
FLOATS = {torch.float32: int(Type.F32), torch.bfloat16: int(Type.BF16), torch.float16: int(Type.F16)}


class _Args(c.Structure):
    """moe_forward_args without the checks of abi.ForwardArgs, which are made once, here."""

    _fields_ = abi.ForwardArgs._fields_


class _Faults(c.Structure):
    _fields_ = abi.WorkspaceFaults._fields_


class Scratch:
    """A workspace of one thread and stream, and how large a need it serves."""

    def __init__(self, workspace: Workspace, need: int) -> None:
        self.workspace, self.need = workspace, need
        self._address = workspace._pointer
        self._status = library().function("moe_workspace_status")
        self._found = _Faults(struct_size=c.sizeof(_Faults))

    def has_faults(self) -> bool:
        """Asks moe_workspace_status, which forgets what it says."""
        self._status(self._address, c.addressof(self._found))
        return bool(self._found.faults)


class Call:
    """A plan with weights, which it keeps. Neither is ever closed by hand, so their addresses hold."""

    def __init__(self, plan: Plan, weights: Weights, device: Any) -> None:
        self.plan, self.weights, self.device = plan, weights, device
        self.hidden, self.top_k = plan.shape.hidden, plan.shape.top_k
        self._library = library()
        self._forward = self._library.function("moe_forward")
        self._fixed = _Args(struct_size=c.sizeof(_Args), routing=int(Routing.IDS_AND_WEIGHTS))

    def _check(self, x: Any, ids: Any, expert_weights: Any) -> None:
        for name, one in (("hidden_states", x), ("top_k_index", ids), ("top_k_weights", expert_weights)):
            if one.device != self.device:
                raise ValueError(f"{name}: is on {one.device}, the weights of the experts are on {self.device}")
        slots = (x.shape[0], self.top_k)
        if x.shape[1] != self.hidden or ids.shape != slots or expert_weights.shape != slots:
            shapes = f"{tuple(x.shape)}, {tuple(ids.shape)} and {tuple(expert_weights.shape)}"
            names = "hidden_states, top_k_index and top_k_weights"
            raise ValueError(f"{names} have shapes {shapes}, with {self.hidden} features a token")

    def __call__(self, scratch: Scratch, x: Any, ids: Any, expert_weights: Any, stream: int | None, n_threads: int) -> Any:
        self._check(x, ids, expert_weights)
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        args = _Args.from_buffer_copy(self._fixed)
        args.n_tokens, args.stream, args.n_threads = x.shape[0], stream, n_threads
        args.x, args.x_row_stride = x.data_ptr(), x.stride(0)
        args.ids, args.ids_row_stride, args.ids_type = ids.data_ptr(), ids.stride(0), IDS[ids.dtype]
        args.weights, args.weights_row_stride = expert_weights.data_ptr(), expert_weights.stride(0)
        args.weights_type = FLOATS[expert_weights.dtype]
        args.out, args.out_row_stride = out.data_ptr(), out.stride(0)
        status = self._forward(self.plan._pointer, self.weights._pointer, scratch.workspace._pointer, c.addressof(args))
        if status:
            raise self._library.failure(status, "moe_forward")
        return out
