"""Describes what an experts module of transformers computes, as a LayerDesc of its routed experts alone.

Modules differ in the function between their matrices, and models come that nobody here has seen. So the function is not known by
the name of a class: every form that libmoe has is tried on probe values against the module's own, and one must agree.
"""
from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from ..layer_desc import LayerDesc

TOLERANCE = 1e-5  # relative to the largest value of a probe


class NotServed(NotImplementedError):
    """An experts module has something that libmoe lacks; the sentence says what."""


class Form(NamedTuple):
    """A function of gate and up (up alone where there is no gate), and the fields of LayerDesc that say it."""

    fields: dict[str, Any]
    apply: Callable[[Any, Any], Any]


def _limits(limit: float | None) -> Iterator[dict[str, float]]:
    yield {}
    if limit is not None:
        yield {"gate_limit": limit, "up_limit": limit}
        yield {"post_limit": limit, "up_limit": limit}


def _silu(fields: dict[str, Any]) -> Callable[[Any, Any], Any]:
    alpha, offset = fields.get("activation_alpha", 1.0), fields.get("activation_up_offset", 0.0)
    gate_limit, post_limit, up_limit = (fields.get(f"{name}_limit", math.inf) for name in ("gate", "post", "up"))

    def apply(gate: Any, up: Any) -> Any:
        gate = gate.clamp(max=gate_limit)
        gate = (gate * torch.sigmoid(alpha * gate)).clamp(max=post_limit)
        return gate if up is None else gate * (up.clamp(-up_limit, up_limit) + offset)

    return apply


def _gelu(approximate: str) -> Callable[[Any, Any], Any]:
    def apply(gate: Any, up: Any) -> Any:
        gate = torch.nn.functional.gelu(gate, approximate=approximate)
        return gate if up is None else gate * up

    return apply


def _situ(beta: float, beta_up: float) -> Callable[[Any, Any], Any]:
    def apply(gate: Any, up: Any) -> Any:
        return beta * torch.tanh(gate / beta) * torch.sigmoid(gate) * beta_up * torch.tanh(up / beta_up)

    return apply


def _forms(module: Any) -> Iterator[Form]:
    """The forms that a module with these attributes may have."""
    limit = _number(module, "limit", "swiglu_limit")
    alpha = _number(module, "alpha", "swiglu_alpha")
    alphas: list[dict[str, float]] = [{}, {"activation_alpha": 1.702}]
    if alpha is not None:
        alphas.append({"activation_alpha": alpha})
    offsets: list[dict[str, float]] = [{}, {"activation_up_offset": 1.0}] if module.has_gate else [{}]
    for limits, scale, offset in itertools.product(_limits(limit if module.has_gate else None), alphas, offsets):
        fields: dict[str, Any] = {"activation": "silu", **scale, **offset, **limits}
        fields |= {f"has_{name}": 1 for name in fields if name.endswith(("_limit", "_alpha"))}
        yield Form(fields, _silu(fields))
    yield Form({"activation": "gelu_tanh"}, _gelu("tanh"))
    yield Form({"activation": "gelu_erf"}, _gelu("none"))
    if not module.has_gate:
        yield Form({"activation": "relu2"}, lambda up, _: up.clamp(min=0).square())
        return
    softcaps = [getattr(getattr(module, "act_fn", None), f"{name}_softcap", None) for name in ("gate", "up")]
    betas = [one for one in (_number(softcap, "softcap") for softcap in softcaps) if one is not None]
    if len(betas) == 2:
        yield Form({"activation": "situ", "situ_beta": betas[0], "situ_beta_up": betas[1]}, _situ(betas[0], betas[1]))


def _number(module: Any, *names: str) -> float | None:
    found = (getattr(module, name, None) for name in names)
    return next((float(one) for one in found if isinstance(one, (int, float))), None)


def _agree(found: Any, wanted: Any) -> bool:
    if found.shape != wanted.shape:
        return False
    return bool((found - wanted).abs().max() <= TOLERANCE * wanted.abs().max().clamp(min=1e-30))


def activation_fields(module: Any) -> dict[str, Any]:
    """The fields of LayerDesc, activation, limits and offsets, with which libmoe computes what the module does."""
    reach = 1.5 * (_number(module, "limit", "swiglu_limit") or 8.0)
    line = torch.linspace(-reach, reach, 61, dtype=torch.float32, device="cpu")
    gate, up = (one.reshape(1, -1) for one in torch.meshgrid(line, line, indexing="ij"))
    try:
        with torch.no_grad():
            if not module.has_gate:
                gate, up = line.reshape(1, -1), None
                wanted = module.act_fn(gate)
            elif module.is_concatenated:
                wanted = module._apply_gate(torch.cat([gate, up], dim=-1))
            else:
                wanted = module._apply_gate(torch.stack([gate, up], dim=-1).flatten(-2))
    except Exception as error:
        raise NotServed(f"its activation cannot be tried on values in host memory: {error}") from error
    for form in _forms(module):
        if _agree(form.apply(gate, up), wanted):
            return form.fields
    name = type(getattr(module, "act_fn", module)).__name__
    raise NotServed(f"its activation ({name}) is none that libmoe has")


def norm_fields(norm: Any) -> tuple[dict[str, Any], Any]:
    """Fields of LayerDesc, and the EXPERT_NORM vector, for the norm behind every expert."""
    eps = _number(norm, "eps", "variance_epsilon")
    weight = getattr(norm, "weight", None)
    if eps is None or weight is None:
        raise NotServed(f"the norm behind its experts ({type(norm).__name__}) has no eps or no weight")
    with torch.no_grad():
        stored = weight.detach()
        weight = stored.float()
        x = torch.linspace(-2.0, 3.0, weight.numel(), device=weight.device).reshape(1, -1)
        wanted = norm(x)
        for vector, first in itertools.product((weight, 1.0 + weight, (1.0 + stored).float()), (1, 0)):
            scaled = x * vector if first else x
            found = scaled * torch.rsqrt(scaled.square().mean(-1, keepdim=True) + eps)
            if _agree(found if first else found * vector, wanted):
                return {"has_expert_norm": 1, "expert_norm_eps": eps, "expert_norm_weight_first": first}, vector
    raise NotServed(f"the norm behind its experts ({type(norm).__name__}) is no RMS norm that libmoe has")


def describe(module: Any, hidden: int, intermediate: int, more: dict[str, Any]) -> LayerDesc:
    """The routed experts with top_k 1; plans for calls replace it."""
    bias = int(module.has_bias)
    fields = {"hidden": hidden, "intermediate": intermediate, "n_experts": module.num_experts, "top_k": 1}
    fields |= {"is_gated": int(module.has_gate), "has_gate_bias": bias * int(module.has_gate)}
    fields |= {"has_up_bias": bias, "has_down_bias": bias}
    return LayerDesc(**fields, **activation_fields(module), **more)
