"""A layer as a torch operator, so that torch.compile and CUDA graphs see one node and not Python. For inference: it has no
backward.

    module = moe.torch_op.MoeLayer(moe.Layer("model", 0, x_type="bf16", device="cuda"))
    compiled = torch.compile(module)
"""
import itertools
import weakref

import torch

from .arrays import NAMES
from .layer import Layer

_numbers = itertools.count()
_layers: "weakref.WeakValueDictionary[int, Layer]" = weakref.WeakValueDictionary()


def _layer(number: int) -> Layer:
    found = _layers.get(number)
    if found is None:
        raise RuntimeError(f"libmoe layer {number} no longer exists")
    return found


@torch.library.custom_op("libmoe::layer", mutates_args=())
def layer_op(x: torch.Tensor, number: int) -> torch.Tensor:
    """number is that of MoeLayer.number."""
    return _layer(number)(x if x.stride(-1) == 1 else x.contiguous())


@layer_op.register_fake
def _fake(x: torch.Tensor, number: int) -> torch.Tensor:
    plan = _layer(number).plan
    dtype = getattr(torch, NAMES[plan.type("out")])
    return x.new_empty((*x.shape[:-1], plan.shape.out_width), dtype=dtype)


class MoeLayer(torch.nn.Module):
    """x [..., hidden] -> out [..., hidden]."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.layer = layer
        self.number = next(_numbers)
        _layers[self.number] = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return layer_op(x, self.number)
