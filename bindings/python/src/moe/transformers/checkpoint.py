"""Experts from a checkpoint folder, in whatever format it has them, under a model whose other parts transformers has loaded."""
from __future__ import annotations

import contextlib
import os
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import torch

from ..checkpoint import Checkpoint
from ..enums import Role
from ..layer_desc import LayerDesc
from .description import NotServed, activation_fields
from .serving import experts_of, is_experts, named
from .source import Source

MATRICES = (Role.GATE, Role.UP, Role.DOWN)
VECTORS = (Role.GATE_BIAS, Role.UP_BIAS, Role.DOWN_BIAS, Role.EXPERT_NORM)
FUSED = (Role.GATE_UP, Role.GATE_UP_BIAS)
ACTIVATION = [
    *("activation", "has_activation_alpha", "activation_alpha", "activation_up_offset", "has_gate_limit", "gate_limit"),
    *("has_up_limit", "up_limit", "has_post_limit", "post_limit", "situ_beta", "situ_beta_up"),
]
EXPERTS = [
    *("intermediate", "n_experts", "is_gated", "has_gate_bias", "has_up_bias", "has_down_bias"),
    *("has_expert_norm", "expert_norm_eps", "expert_norm_weight_first"),
]


def use_checkpoint(model: Any, folder: Checkpoint | str | os.PathLike[str]) -> list[str]:
    """Gives every experts module of the model weights that libmoe reads from the folder, and sets "libmoe".

    The module's parameters, which may never have been loaded, are freed. On the CPU the files are mapped and read in place.
    The answer is the names of the modules.
    """
    opened = folder if isinstance(folder, Checkpoint) else Checkpoint(folder)
    found = _numbered(model)
    missing = sorted(found.keys() - set(opened.layers))
    if missing or not found:
        raise ValueError(f"{opened.path}: has MoE layers {opened.layers}, the model has experts in layers {sorted(found)}")
    sources = {}
    for number, (name, module) in found.items():
        with named(module):
            sources[name] = (module, _source(opened, number, module, model.dtype), _device(model, name))
    for module, source, device in sources.values():
        with named(module):
            experts_of(module).give(source, device)
        for key, one in list(module.named_parameters(recurse=False)):
            empty = torch.empty(0, dtype=one.dtype, device=device)
            setattr(module, key, torch.nn.Parameter(empty, requires_grad=False))
    model.set_experts_implementation("libmoe")
    return list(sources)


def _numbered(model: Any) -> dict[int, tuple[str, Any]]:
    """By the number of the decoder layer, which is the last one in the module's name."""
    found: dict[int, tuple[str, Any]] = {}
    for name, module in model.named_modules():
        if not is_experts(module):
            continue
        numbers = re.findall(r"(?:^|\.)(\d+)(?=\.)", name)
        if not numbers or int(numbers[-1]) in found:
            raise NotServed(f"{name}: experts modules are told apart by the number of their layer; it shares one or has none")
        found[int(numbers[-1])] = (name, module)
    return found


def _source(opened: Checkpoint, number: int, module: Any, dtype: Any) -> Source:
    layer = opened.layer(number)
    fields = {name: getattr(layer, name) for name in (*EXPERTS, *ACTIVATION)}
    desc = LayerDesc(hidden=layer.latent or layer.hidden, top_k=1, **fields)
    _compare(opened, number, desc, module)
    roles = {*MATRICES, *FUSED, *VECTORS}
    formats = {role.name.lower(): form for role, form in opened.formats(number).items() if role in MATRICES}
    tensors = [one for one in opened.tensors(number) if one.role in roles]
    return Source(desc, formats, tensors, dtype)


def _compare(opened: Checkpoint, number: int, desc: LayerDesc, module: Any) -> None:
    """Refuses a folder whose experts are not those that the module computes."""
    wanted = LayerDesc(**{"n_experts": module.num_experts, "is_gated": int(module.has_gate), **activation_fields(module)})
    for name in ("n_experts", "is_gated", *ACTIVATION):
        theirs, ours = getattr(desc, name), getattr(wanted, name)
        if theirs != ours:
            raise NotServed(f"{name} is {theirs} in layer {number} of {opened.path}, and {ours} in the model")


def _device(model: Any, name: str) -> Any:
    """That of the nearest parameter outside the experts: the layer's own, or the model's."""
    inside = {id(one) for one in model.get_submodule(name).parameters()}
    while name:
        name = name.rpartition(".")[0]
        for one in model.get_submodule(name).parameters():
            if id(one) not in inside and one.device.type in ("cpu", "cuda"):
                return one.device
    raise NotServed("no other parameter of the model is on the CPU or a GPU")


def load(folder: str | os.PathLike[str], auto_class: Any = None, **options: Any) -> Any:
    """A model of a folder of safetensors: its experts by use_checkpoint, so that they never exist as parameters, the rest, which
    must not be quantised, by transformers' from_pretrained, which takes the options. auto_class: AutoModelForCausalLM if None."""
    import transformers

    config = transformers.AutoConfig.from_pretrained(folder)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    kind = (auto_class or transformers.AutoModelForCausalLM)._model_mapping[type(config)]
    rest = _rest_of(folder)
    with _experts_stay_on_meta(kind):
        model, said = kind.from_pretrained(None, config=config, state_dict=rest, output_loading_info=True, **options)
    missing = sorted(said["missing_keys"])
    if missing:
        names = ", ".join(missing[:8])
        raise NotServed(f"{os.fspath(folder)}: has no plain tensor for {names}: only the experts may be quantised here")
    use_checkpoint(model, folder)
    return model.eval()


_EXPERTS = re.compile(r"(^|\.)experts\.")


def _rest_of(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Every tensor that is not of the experts, from mapped files."""
    from safetensors import safe_open

    found: dict[str, Any] = {}
    for file in sorted(pathlib.Path(folder).glob("*.safetensors")):
        with safe_open(file, framework="pt") as tensors:
            found |= {name: tensors.get_tensor(name) for name in tensors.keys() if not _EXPERTS.search(name)}
    return found


@contextlib.contextmanager
def _experts_stay_on_meta(kind: Any) -> Iterator[None]:
    """transformers makes a model on the device "meta", then memory for all parameters that the files have not; not for these."""
    move, ignored = kind._move_missing_keys_from_meta_to_device, kind._keys_to_ignore_on_load_missing

    def without_experts(self: Any, missing_keys: Any, *more: Any, **named: Any) -> Any:
        return move(self, {one for one in missing_keys if not _EXPERTS.search(one)}, *more, **named)

    kind._move_missing_keys_from_meta_to_device = without_experts
    kind._keys_to_ignore_on_load_missing = [*(ignored or ()), _EXPERTS.pattern]
    try:
        yield
    finally:
        kind._move_missing_keys_from_meta_to_device, kind._keys_to_ignore_on_load_missing = move, ignored
