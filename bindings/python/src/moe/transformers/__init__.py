"""libmoe as an experts implementation of transformers: registered as "libmoe" by the import.

    import moe.transformers
    model.set_experts_implementation("libmoe")

docs/transformers.md says what is served and what becomes of the weights.
"""
from __future__ import annotations

import ctypes
from typing import Any

import torch
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

from .checkpoint import load, use_checkpoint
from .description import NotServed
from .serving import Experts, by_number, experts_of, is_experts

__all__ = ["Experts", "NotServed", "load", "prepare", "served", "use_checkpoint"]


@torch.library.custom_op("libmoe::experts", mutates_args=())
def experts_op(x: torch.Tensor, ids: torch.Tensor, expert_weights: torch.Tensor, number: int) -> torch.Tensor:
    """number is the id() of the experts module."""
    return by_number(number)(x, ids, expert_weights)


@experts_op.register_fake
def _fake(x: torch.Tensor, ids: torch.Tensor, expert_weights: torch.Tensor, number: int) -> torch.Tensor:
    return x.new_empty(x.shape)


@torch.compiler.assume_constant_result
def _make_ready(number: int) -> None:
    """Under torch.compile this runs while a graph is traced, so that no weights are loaded while one runs or is recorded.

    Not every version of torch takes a module here: its id() is its address, and the caller holds it.
    """
    module = ctypes.cast(number, ctypes.py_object).value
    experts_of(module).refresh(module)


def experts_forward(self: Any, hidden_states: Any, top_k_index: Any, top_k_weights: Any) -> Any:
    """The experts implementation: its arguments are those that transformers gives."""
    if torch.is_grad_enabled() and (hidden_states.requires_grad or top_k_weights.requires_grad):
        raise RuntimeError(
            "libmoe has no backward: call the model under torch.no_grad() or torch.inference_mode(), or train it with "
            'model.set_experts_implementation("eager")'
        )
    if torch.compiler.is_compiling():
        _make_ready(id(self))
    else:
        experts_of(self)
    return experts_op(hidden_states, top_k_index, top_k_weights, id(self))


def _modules(model: Any) -> dict[str, Any]:
    """The experts modules of a model, by their names in it."""
    return {name: one for name, one in model.named_modules() if is_experts(one)}


def prepare(model: Any) -> None:
    """Loads the weights of every layer now, and not at its first call."""
    for module in _modules(model).values():
        experts_of(module).refresh(module)


def served(model: Any) -> dict[str, Experts]:
    """The modules of a model that libmoe computes, by name; those whose weights it has not loaded yet are left out."""
    found = {name: experts_of(module) for name, module in _modules(model).items()}
    return {name: one for name, one in found.items() if hasattr(one, "weights")}


def _register() -> None:
    ALL_EXPERTS_FUNCTIONS.register("libmoe", experts_forward)
    from transformers.integrations.finegrained_fp8 import ALL_FP8_EXPERTS_FUNCTIONS

    ALL_FP8_EXPERTS_FUNCTIONS.register("libmoe", experts_forward)


_register()
