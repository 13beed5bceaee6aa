"""The mathematics of a layer, and the part of it that a plan computes."""
from __future__ import annotations

import ctypes as c
from collections.abc import Sequence
from typing import Any

from . import abi
from .enums import OpenEnum, Activation, CombineRule, GroupMask, GroupScore, Renormalize, Score, Selection, WeightOn
from .loading import library

ENUMS: dict[str, type[OpenEnum]] = {
    "score": Score,
    "post_score": Score,
    "selection": Selection,
    "group_score": GroupScore,
    "group_mask": GroupMask,
    "renormalize": Renormalize,
    "weight_on": WeightOn,
    "activation": Activation,
    "shared_activation": Activation,
    "combine": CombineRule,
}


class LayerDesc(abi.LayerDesc):
    """moe_layer_desc: its fields by their own names, zero unless given; enums also by name ("softmax").

    LayerDesc(hidden=64, intermediate=32, n_experts=8, top_k=2, has_router=1, activation="silu", is_gated=1)
    """

    @classmethod
    def c_name(cls) -> str:
        return "moe_layer_desc"

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, ENUMS[name].of(value) if name in ENUMS else value)

    def validate(self) -> None:
        """Raises InvalidArgumentError, which names the first wrong field."""
        library().call("moe_layer_validate", c.addressof(self))

    def replace(self, **changes: Any) -> LayerDesc:
        """A copy with some fields changed."""
        changed = type(self).from_buffer_copy(self)
        for name, value in changes.items():
            setattr(changed, name, value)
        return changed


class Slice:
    """Some experts, some of the intermediate features, or both; for plans that are partial.

    experts: a range of global ids, or for each expert its local index or -1. intermediate, shared: ranges of features.
    """

    def __init__(
        self,
        experts: range | Sequence[int] | None = None,
        intermediate: range | None = None,
        shared: range | None = None,
    ) -> None:
        self.struct = abi.Slice()
        if isinstance(experts, range):
            self._set_range("expert", experts)
        elif experts is not None:
            self._map = (abi.I32 * len(experts))(*(abi.fitting("experts", abi.I32, one) for one in experts))
            self.struct.expert_to_local = c.addressof(self._map)
            self.struct.n_expert_to_local = len(experts)
        if intermediate is not None:
            self._set_range("intermediate", intermediate)
        if shared is not None:
            self._set_range("shared", shared)

    def _set_range(self, what: str, given: range) -> None:
        if given.step != 1:
            raise ValueError(f"{what}: {given} has a step other than 1")
        setattr(self.struct, f"has_{what}_range", 1)
        setattr(self.struct, f"{what}_begin", given.start)
        setattr(self.struct, f"{what}_count", len(given))
