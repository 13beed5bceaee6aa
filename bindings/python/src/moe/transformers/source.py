"""Where the weights of an experts module come from: its own parameters."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..arrays import type_of
from ..layer_desc import LayerDesc
from ..tensors import DENSE, Format, Tensor
from .description import NotServed, describe, norm_fields


class Source(NamedTuple):
    desc: LayerDesc  # with top_k 1
    formats: dict[str, Format]  # by role
    tensors: Sequence[Any]
    dtype: Any  # of the parameters
    freeable: Sequence[Any] = ()  # parameters that nothing reads once weights have been packed


def parameters_of(module: Any) -> list[Any]:
    """All that the weights are made of."""
    found = list(module._parameters.values())
    return found if not getattr(module, "has_post_expert_norm", False) else [*found, module.post_expert_norm.weight]


def _matrix(name: str, parameter: Any, is_transposed: bool, order: str) -> Tensor:
    """A stack [experts, out, in], or [experts, in, out] where it is transposed, whichever way it lies in memory."""
    if parameter.ndim != 3:
        raise NotServed(f"{name} has {parameter.ndim} dimensions, and must be a stack of matrices")
    data = parameter.detach()
    if not data.is_contiguous():
        data, is_transposed = data.transpose(1, 2), not is_transposed
    if not data.is_contiguous():
        raise NotServed(f"{name} lies in memory with strides {tuple(parameter.stride())}, and must be contiguous")
    role = name.removesuffix("_proj")
    return Tensor(role, data, orientation="in_out" if is_transposed else "out_in", gate_up_order=order)


def _bias(name: str, parameter: Any, order: str) -> Tensor:
    data = parameter.detach().contiguous()
    shape = {"rows": 1, "columns": data.shape[1], "n_experts": data.shape[0]}
    return Tensor(name.replace("_proj", ""), data, gate_up_order=order, **shape)


def of_parameters(module: Any) -> Source:
    first = "gate_up_proj" if module.has_gate else "up_proj"
    order = ("gate_first" if module.is_concatenated else "interleaved") if module.has_gate else "none"
    orders = {first: order, "down_proj": "none"}
    parameters = {name: getattr(module, name) for name in orders}
    dtypes = {one.dtype for one in parameters.values()}
    if len(dtypes) != 1 or type_of(next(iter(dtypes))) not in DENSE:
        names = ", ".join(sorted(str(one).removeprefix("torch.") for one in dtypes))
        raise NotServed(
            f"its weights are {names}, and must be float32, float16 or bfloat16; those of a quantised checkpoint are read from "
            "its folder: moe.transformers.use_checkpoint(model, folder)"
        )
    for name, one in parameters.items():
        if one.numel() == 0 or one.device.type not in ("cpu", "cuda"):
            raise NotServed(f"{name} is on device {one.device} with {one.numel()} elements: it was freed, or never loaded")
    transposed = bool(module.is_transposed)
    tensors = [_matrix(name, one, transposed, orders[name]) for name, one in parameters.items()]
    if module.has_bias:
        tensors += [_bias(f"{name}_bias", getattr(module, f"{name}_bias"), orders[name]) for name in orders]
    more: dict[str, Any] = {}
    if getattr(module, "has_post_expert_norm", False):
        more, vector = norm_fields(module.post_expert_norm)
        tensors.append(Tensor("expert_norm", vector))
    columns, rows = tensors[0].struct.columns, tensors[1].struct.columns
    desc = describe(module, columns, rows, more)
    dtype = next(iter(dtypes))
    form = Format.named(DENSE[type_of(dtype)])
    roles = ("gate", "up", "down") if module.has_gate else ("up", "down")
    return Source(desc, dict.fromkeys(roles, form), tensors, dtype, list(parameters.values()))
