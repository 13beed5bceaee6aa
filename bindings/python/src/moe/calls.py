"""moe_forward and the five stages, each over numpy arrays, torch tensors or DLPack objects where they lie.

Arrays are memory of the plan's device. Where out is not given, it is made of the sort of the input. Streams are
torch's current one for tensors on a GPU, else the default stream, unless stream says another; a call on a GPU returns
when its work is on the stream. What moe.h says of each argument holds; strided rows are taken as they are.
"""
from __future__ import annotations

import ctypes as c
from collections.abc import Sequence
from typing import Any, NamedTuple

from . import abi
from .arrays import (
    Array,
    DeviceArrayLike,
    View,
    check_dense,
    check_shape,
    check_type,
    check_writable,
    current_stream,
    empty,
    row_stride,
    view,
)
from .enums import DeviceKind, InLayout, OutLayout, Routing, Type
from .handle import using
from .loading import library
from .plan import Plan
from .weights import Weights
from .workspace import Workspace

IDS = (Type.I32, Type.I64)
FLOATS = (Type.F32, Type.BF16, Type.F16)


class Routed(NamedTuple):
    ids: Array
    weights: Array


class Dispatched(NamedTuple):
    offsets: Array  # [local experts + 1] int64
    counts: Array  # [local experts] int64, without padding
    row_ids: Array  # [capacity] int32: slot of each row; what lies beyond offsets[-1] is undefined


class Gathered(NamedTuple):
    rows: Array  # [rows, hidden]: the row of x that each row stands for; rows without a token are undefined
    tokens: Array  # [rows] int32: the token of each row, -1 where there is none
    weights: Array | None  # [rows] float32: its routing weight, 0 where there is none; None without expert_weights


class _Call:
    """Checks arrays against the plan and writes them into the arguments of one call."""

    def __init__(self, plan: Plan, args: abi.Struct, first: Array, stream: Any) -> None:
        self.plan, self.args = plan, args
        self.stream = stream
        self.args.stream = current_stream(stream, first)
        self.shape, self.device = plan.shape, plan.device
        self.views: list[View] = []

    def look(self, name: str, given: Array, types: Sequence[Type], shape: Sequence[int] | None) -> View:
        found = view(name, given, self.args.stream)
        check_type(found, types)
        if shape is not None:
            check_shape(found, shape)
        self._check_device(found)
        self.views.append(found)
        return found

    def _check_device(self, found: View) -> None:
        where, wanted = (found.device, found.device_index), (self.device.kind, self.device.index)
        if found.device != wanted[0] or (found.device == DeviceKind.CUDA and where != wanted):
            names = [f"{DeviceKind(kind).name.lower()} {index}" for kind, index in (where, wanted)]
            raise ValueError(f"{found.name}: is memory of {names[0]}, the plan is for {names[1]}")

    def rows(self, field: str, given: Array | None, shape: Sequence[int], types: Sequence[Type]) -> View | None:
        """An array whose rows may be strided; None leaves the field NULL."""
        if given is None:
            return None
        found = self.look(field, given, types, shape)
        setattr(self.args, field, found.address)
        setattr(self.args, f"{field}_row_stride", row_stride(found))
        return found

    def dense(self, field: str, given: Array | None, shape: Sequence[int], types: Sequence[Type]) -> View | None:
        if given is None:
            return None
        found = self.look(field, given, types, shape)
        check_dense(found)
        setattr(self.args, field, found.address)
        return found

    def ids(self, given: Array | None, n_tokens: int) -> None:
        found = self.rows("ids", given, (n_tokens, self.shape.top_k), IDS)
        if found is not None:
            self.args.ids_type = found.type

    def token_ids(self, given: Array | None, n_tokens: int) -> None:
        found = self.dense("token_ids", given, (n_tokens,), IDS)
        if found is not None:
            self.args.token_ids_type = found.type

    def expert_map(self, given: Array | None) -> None:
        if self.dense("expert_map", given, (self.shape.n_experts,), [Type.I32]) is not None:
            self.args.n_expert_map = self.shape.n_experts

    def writable(self, field: str, given: Array | None, shape: Sequence[int], kind: Type) -> None:
        self._written(self.rows(field, given, shape, [kind]))

    def new(self, field: str, given: Array | None, shape: tuple[int, ...], kind: Type) -> Array:
        """An output: the one given, or a new one."""
        made = given if given is not None else empty(shape, kind, self.views[0])
        if f"{field}_row_stride" in self.args.kinds:
            self.writable(field, made, shape, kind)
        else:
            self.dense_output(field, made, shape, kind)
        return made

    def dense_output(self, field: str, given: Array | None, shape: Sequence[int], kind: Type) -> None:
        self._written(self.dense(field, given, shape, [kind]))

    def _written(self, found: View | None) -> None:
        if found is not None:
            check_writable(found)
            if isinstance(found.owner, DeviceArrayLike):
                found.owner.written_on(self.stream)

    def run(self, function: str, handles: Sequence[Any], *more: int) -> None:
        with using(*handles) as addresses:
            library().call(function, *addresses, c.addressof(self.args), *more)


def _count(first: Array) -> int:
    return int(first.shape[0]) if hasattr(first, "shape") else view("x", first).shape[0]


def _routing(logits: Array | None, ids: Array | None, expert_weights: Array | None) -> Routing:
    if expert_weights is not None:
        if ids is None:
            raise ValueError("expert_weights: given without ids")
        return Routing.IDS_AND_WEIGHTS
    if ids is not None:
        return Routing.IDS
    return Routing.LOGITS if logits is not None else Routing.COMPUTE


def _forward_call(
    plan: Plan,
    x: Array,
    out: Array | None,
    router_input: Array | None,
    logits: Array | None,
    ids: Array | None,
    expert_weights: Array | None,
    token_ids: Array | None,
    uses_second_bias: Array | None,
    expert_map: Array | None,
    n_tokens_device: Array | None,
    per_slot: bool,
    accumulate: bool,
    outputs: dict[str, Array | None],
    stream: Any,
) -> tuple[_Call, Array]:
    n_tokens = _count(x)
    args = abi.ForwardArgs(n_tokens=n_tokens, accumulate=accumulate)
    args.routing = _routing(logits, ids, expert_weights)
    call, shape = _Call(plan, args, x, stream), plan.shape
    call.rows("x", x, (n_tokens, shape.hidden), [plan.type("x")])
    call.rows("router_input", router_input, (n_tokens, shape.hidden), [plan.type("router_input")])
    call.rows("logits", logits, (n_tokens, shape.n_all_experts), [Type.F32])
    call.ids(ids, n_tokens)
    given = call.rows("weights", expert_weights, (n_tokens, shape.top_k), FLOATS)
    args.weights_type = given.type if given is not None else Type.NONE
    call.token_ids(token_ids, n_tokens)
    call.dense("uses_second_bias", uses_second_bias, (n_tokens,), [Type.I8])
    call.expert_map(expert_map)
    call.dense("n_tokens_device", n_tokens_device, (1,), [Type.I32])
    if accumulate and out is None:
        raise ValueError("out: must be given to accumulate into")
    args.out_layout = OutLayout.PER_SLOT if per_slot else OutLayout.REDUCED
    out_shape = (n_tokens, shape.top_k, shape.latent) if per_slot else (n_tokens, shape.out_width)
    out = call.new("out", out, out_shape, plan.type("out"))
    call.writable("out_logits", outputs["logits"], (n_tokens, shape.n_all_experts), Type.F32)
    call.writable("out_ids", outputs["ids"], (n_tokens, shape.top_k), Type.I32)
    call.writable("out_weights", outputs["weights"], (n_tokens, shape.top_k), Type.F32)
    call.dense_output("out_expert_counts", outputs["counts"], (shape.n_all_experts,), Type.I64)
    return call, out


def forward(
    plan: Plan,
    weights: Weights,
    workspace: Workspace,
    x: Array,
    out: Array | None = None,
    *,
    router_input: Array | None = None,
    logits: Array | None = None,
    ids: Array | None = None,
    expert_weights: Array | None = None,
    token_ids: Array | None = None,
    uses_second_bias: Array | None = None,
    expert_map: Array | None = None,
    n_tokens_device: Array | None = None,
    per_slot: bool = False,
    accumulate: bool = False,
    out_logits: Array | None = None,
    out_ids: Array | None = None,
    out_weights: Array | None = None,
    out_expert_counts: Array | None = None,
    stream: Any = None,
    n_threads: int = 0,
    spmd: tuple[int, int] | None = None,
) -> Array:
    """x [T, hidden] -> out [T, hidden], or [T, top_k, latent] with per_slot.

    Routing is computed, or comes from logits, ids, or ids and expert_weights. uses_second_bias is int8 by token, for a
    layer that has a second selection bias. out_logits, out_ids, out_weights and
    out_expert_counts are arrays to be written. spmd = (thread_index, n_threads): moe_forward_spmd, entered by
    n_threads threads with equal arguments (out given). n_threads, here and in the stages, is how many CPU threads the
    call may use; 0: the runtime's.
    """
    outputs = {"logits": out_logits, "ids": out_ids, "weights": out_weights, "counts": out_expert_counts}
    routing = (router_input, logits, ids, expert_weights, token_ids, uses_second_bias, expert_map, n_tokens_device)
    call, out = _forward_call(plan, x, out, *routing, per_slot, accumulate, outputs, stream)
    call.args.n_threads = n_threads
    handles = (plan, weights, workspace)
    if spmd is None:
        call.run("moe_forward", handles)
    else:
        call.run("moe_forward_spmd", handles, *spmd)
    return out


def route(
    plan: Plan,
    weights: Weights,
    workspace: Workspace,
    x: Array | None = None,
    *,
    router_input: Array | None = None,
    logits: Array | None = None,
    ids: Array | None = None,
    token_ids: Array | None = None,
    uses_second_bias: Array | None = None,
    n_tokens_device: Array | None = None,
    out_ids: Array | None = None,
    out_weights: Array | None = None,
    out_logits: Array | None = None,
    stream: Any = None,
    n_threads: int = 0,
) -> Routed:
    """x, router input or logits -> ids int32 and weights float32, [T, top_k]. ids given: only weights are new."""
    first = next((one for one in (x, router_input, logits) if one is not None), None)
    if first is None:
        raise ValueError("x: neither x nor router_input nor logits is given")
    n_tokens = _count(first)
    args = abi.RouteArgs(n_tokens=n_tokens, routing=_routing(logits, ids, None), n_threads=n_threads)
    call, shape = _Call(plan, args, first, stream), plan.shape
    call.rows("x", x, (n_tokens, shape.hidden), [plan.type("x")])
    call.rows("router_input", router_input, (n_tokens, shape.hidden), [plan.type("router_input")])
    call.rows("logits", logits, (n_tokens, shape.n_all_experts), [Type.F32])
    call.ids(ids, n_tokens)
    call.token_ids(token_ids, n_tokens)
    call.dense("uses_second_bias", uses_second_bias, (n_tokens,), [Type.I8])
    call.dense("n_tokens_device", n_tokens_device, (1,), [Type.I32])
    slots = (n_tokens, shape.top_k)
    if ids is None or out_ids is not None:
        out_ids = call.new("out_ids", out_ids, slots, Type.I32)
    out_weights = call.new("out_weights", out_weights, slots, Type.F32)
    call.writable("out_logits", out_logits, (n_tokens, shape.n_all_experts), Type.F32)
    call.run("moe_route", (plan, weights, workspace))
    return Routed(out_ids if out_ids is not None else ids, out_weights)


def dispatch(
    plan: Plan,
    workspace: Workspace,
    ids: Array,
    *,
    block_rows: int = 0,
    row_capacity: int | None = None,
    expert_map: Array | None = None,
    n_tokens_device: Array | None = None,
    stream: Any = None,
) -> Dispatched:
    """ids [T, top_k] -> where the rows of each local expert begin, how many there are, and the slot of each row."""
    n_tokens, shape = _count(ids), plan.shape
    least = n_tokens * shape.top_k + shape.n_local_experts * (max(block_rows, 1) - 1)
    capacity = least if row_capacity is None else row_capacity
    args = abi.DispatchArgs(block_rows=block_rows, n_tokens=n_tokens, row_capacity=capacity)
    call = _Call(plan, args, ids, stream)
    call.ids(ids, n_tokens)
    call.expert_map(expert_map)
    call.dense("n_tokens_device", n_tokens_device, (1,), [Type.I32])
    offsets = call.new("out_offsets", None, (shape.n_local_experts + 1,), Type.I64)
    counts = call.new("out_counts", None, (shape.n_local_experts,), Type.I64)
    row_ids = call.new("out_row_ids", None, (capacity,), Type.I32)
    call.run("moe_dispatch", (plan, workspace))
    return Dispatched(offsets, counts, row_ids)


def gather(
    plan: Plan,
    workspace: Workspace,
    x: Array,
    placed: Dispatched,
    out: Array | None = None,
    *,
    expert_weights: Array | None = None,
    x_is_latent: bool = False,
    stream: Any = None,
    n_threads: int = 0,
) -> Gathered:
    """Rows of x in the order of a dispatch: row r is x[row_ids[r] // top_k], rows of an expert lie from offsets[e] on."""
    n_tokens, n_rows, shape = _count(x), _count(placed.row_ids), plan.shape
    args = abi.GatherArgs(n_tokens=n_tokens, n_rows=n_rows, x_is_latent=x_is_latent, n_threads=n_threads)
    call, width = _Call(plan, args, x, stream), shape.latent if x_is_latent else shape.hidden
    call.rows("x", x, (n_tokens, width), [plan.type("x")])
    call.dense("offsets", placed.offsets, (shape.n_local_experts + 1,), [Type.I64])
    call.dense("counts", placed.counts, (shape.n_local_experts,), [Type.I64])
    call.dense("row_ids", placed.row_ids, (n_rows,), [Type.I32])
    call.rows("weights", expert_weights, (n_tokens, shape.top_k), [Type.F32])
    out = call.new("out", out, (n_rows, width), plan.type("x"))
    tokens = call.new("out_row_tokens", None, (n_rows,), Type.I32)
    weights = call.new("out_row_weights", None, (n_rows,), Type.F32) if expert_weights is not None else None
    call.run("moe_gather", (plan, workspace))
    return Gathered(out, tokens, weights)


def experts(
    plan: Plan,
    weights: Weights,
    workspace: Workspace,
    x: Array,
    out: Array | None = None,
    *,
    in_layout: InLayout | str | int = InLayout.TOKENS,
    out_layout: OutLayout | str | int = OutLayout.REDUCED,
    ids: Array | None = None,
    expert_weights: Array | None = None,
    offsets: Array | None = None,
    counts: Array | None = None,
    row_ids: Array | None = None,
    row_weights: Array | None = None,
    n_rows: int | None = None,
    n_tokens: int | None = None,
    n_tokens_device: Array | None = None,
    expert_map: Array | None = None,
    x_is_latent: bool = False,
    stop_before_activation: bool = False,
    accumulate: bool = False,
    stream: Any = None,
    n_threads: int = 0,
) -> Array:
    """Rows -> rows through the experts; the layouts are those of the table above moe_experts in moe.h.

    x is [T, .] of tokens, [rows, .] sorted or [local experts, capacity, .] batched. n_tokens is needed for sorted rows
    with an output by token. n_rows is the number of row_ids where x has tokens, else that of the rows of x.
    """
    rows_in, rows_out, shape = InLayout.of(in_layout), OutLayout.of(out_layout), plan.shape
    args = abi.ExpertsArgs(in_layout=rows_in, out_layout=rows_out, accumulate=accumulate, n_threads=n_threads)
    args.stop_before_activation, args.x_is_latent = stop_before_activation, x_is_latent
    call = _Call(plan, args, x, stream)
    extents = tuple(view("x", x, args.stream).shape[:-1])
    _set_rows_in(call, x, extents, shape.latent if x_is_latent else shape.hidden)
    n_rows = _rows_of(rows_in, extents, row_ids, n_rows)
    args.n_tokens = tokens = _tokens_of(rows_in, extents, n_tokens)
    args.n_rows = n_rows if rows_in != InLayout.BATCHED or row_ids is not None or row_weights is not None else 0
    call.ids(ids, tokens)
    call.rows("weights", expert_weights, (tokens, shape.top_k), [Type.F32])
    call.expert_map(expert_map)
    call.dense("n_tokens_device", n_tokens_device, (1,), [Type.I32])
    call.dense("offsets", offsets, (shape.n_local_experts + 1,), [Type.I64])
    call.dense("counts", counts, (shape.n_local_experts,), [Type.I64])
    call.dense("row_ids", row_ids, (n_rows,), [Type.I32])
    call.dense("row_weights", row_weights, (n_rows,), [Type.F32])
    width = shape.n_features if stop_before_activation else shape.latent
    by_row = extents if rows_in == InLayout.BATCHED else (n_rows,)
    leading = {OutLayout.REDUCED: (tokens,), OutLayout.PER_SLOT: (tokens, shape.top_k)}.get(rows_out, by_row)
    out = _set_rows_out(call, out, (*leading, width), plan.type("out"), rows_in == InLayout.BATCHED)
    call.run("moe_experts", (plan, weights, workspace))
    return out


def _rows_of(layout: InLayout, extents: tuple[int, ...], row_ids: Array | None, n_rows: int | None) -> int:
    if layout == InLayout.TOKENS:
        given = _count(row_ids) if row_ids is not None else 0
        return given if n_rows is None else n_rows
    rows = extents[0] * (extents[1] if layout == InLayout.BATCHED else 1)
    if n_rows is not None and n_rows != rows:
        raise ValueError(f"n_rows: is {n_rows}, x has {rows} rows")
    return rows


def _tokens_of(layout: InLayout, extents: tuple[int, ...], n_tokens: int | None) -> int:
    if layout != InLayout.TOKENS:
        return n_tokens or 0
    if n_tokens is not None and n_tokens != extents[0]:
        raise ValueError(f"n_tokens: is {n_tokens}, x has {extents[0]} tokens")
    return extents[0]


def _set_rows_in(call: _Call, x: Array, extents: tuple[int, ...], width: int) -> None:
    """Batched rows are [local experts, capacity, .]: one run of rows to the library, so they are dense here."""
    if call.args.in_layout == InLayout.BATCHED:
        if len(extents) != 2 or extents[0] != call.shape.n_local_experts:
            raise ValueError(f"x: has leading shape {extents}, must be ({call.shape.n_local_experts}, capacity)")
        call.args.batch_capacity = extents[1]
        call.dense("x", x, (*extents, width), [call.plan.type("x")])
    elif len(extents) != 1:
        raise ValueError(f"x: has leading shape {extents}, must be rows")
    else:
        call.rows("x", x, (*extents, width), [call.plan.type("x")])


def _set_rows_out(call: _Call, out: Array | None, shape: tuple[int, ...], kind: Type, is_batched: bool) -> Array:
    if not is_batched:
        return call.new("out", out, shape, kind)
    made = out if out is not None else empty(shape, kind, call.views[0])
    call.dense_output("out", made, shape, kind)
    return made


def combine(
    plan: Plan,
    workspace: Workspace,
    rows: Array,
    ids: Array,
    expert_weights: Array,
    out: Array | None = None,
    *,
    row_ids: Array | None = None,
    x: Array | None = None,
    n_tokens_device: Array | None = None,
    accumulate: bool = False,
    stream: Any = None,
    n_threads: int = 0,
) -> Array:
    """Rows -> tokens [T, latent]. rows are [T, top_k, latent], or with row_ids [rows, latent] sorted."""
    n_tokens, shape = _count(ids), plan.shape
    args = abi.CombineArgs(n_tokens=n_tokens, accumulate=accumulate, n_threads=n_threads)
    call = _Call(plan, args, rows, stream)
    if row_ids is None:
        call.rows("rows", rows, (n_tokens, shape.top_k, shape.latent), [plan.type("out")])
    else:
        args.rows_layout, args.n_rows = InLayout.SORTED, _count(row_ids)
        call.rows("rows", rows, (args.n_rows, shape.latent), [plan.type("out")])
        call.dense("row_ids", row_ids, (args.n_rows,), [Type.I32])
    call.ids(ids, n_tokens)
    call.rows("weights", expert_weights, (n_tokens, shape.top_k), [Type.F32])
    call.rows("x", x, (n_tokens, shape.hidden), [plan.type("x")])
    call.dense("n_tokens_device", n_tokens_device, (1,), [Type.I32])
    out = call.new("out", out, (n_tokens, shape.latent), plan.type("out"))
    call.run("moe_combine", (plan, workspace))
    return out


def finish(
    plan: Plan,
    weights: Weights,
    workspace: Workspace,
    routed: Array | None,
    x: Array | None = None,
    out: Array | None = None,
    *,
    ids: Array | None = None,
    expert_weights: Array | None = None,
    parts: int = 0,
    n_tokens_device: Array | None = None,
    accumulate: bool = False,
    stream: Any = None,
    n_threads: int = 0,
) -> Array:
    """Routed sum [T, latent], x -> output [T, hidden]; parts are bits of Finish, 0 is all."""
    first = routed if routed is not None else x
    if first is None:
        raise ValueError("routed: neither routed nor x is given")
    n_tokens, shape = _count(first), plan.shape
    args = abi.FinishArgs(n_tokens=n_tokens, parts=parts, accumulate=accumulate, n_threads=n_threads)
    call = _Call(plan, args, first, stream)
    call.rows("routed", routed, (n_tokens, shape.latent), [plan.type("out")])
    call.rows("x", x, (n_tokens, shape.hidden), [plan.type("x")])
    call.ids(ids, n_tokens)
    call.rows("weights", expert_weights, (n_tokens, shape.top_k), [Type.F32])
    call.dense("n_tokens_device", n_tokens_device, (1,), [Type.I32])
    out = call.new("out", out, (n_tokens, shape.hidden), plan.type("out"))
    call.run("moe_finish", (plan, weights, workspace))
    return out
