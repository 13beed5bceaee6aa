"""Every class of experts that goes through the interface of transformers: libmoe computes what the class itself does.

The classes are found in the sources of the transformers that is installed, so that one with something new fails here.
"""
import importlib
import pathlib
import re
import types

import pytest
from transformers_models import fill, overall, torch, transformers

import moe.transformers

DECORATED = re.compile(r"^@use_experts_implementation.*\nclass (\w+)", re.MULTILINE)
SIZES = dict(hidden_size=64, moe_hidden_size=64, moe_latent_size=None, intermediate_size=48, moe_intermediate_size=48)
SIZES |= dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 6)
ACTIVATIONS = dict(hidden_act="silu", hidden_activation="gelu_pytorch_tanh", mlp_hidden_act="relu2", post_norm_eps=1e-6)
LIMITS = dict(swiglu_limit=0.8, swiglu_alpha=1.5, mlp_gate_softcap=2.0, mlp_up_softcap=3.0)


def classes():
    folder = pathlib.Path(transformers.__file__).parent / "models"
    for file in sorted(folder.glob("*/modeling_*.py")):
        for name in DECORATED.findall(file.read_text(encoding="utf-8")):
            yield f"{file.parent.name}.{name}"


def experts_of(name, dtype=torch.float32, **more):
    package, kind = name.split(".")
    module = importlib.import_module(f"transformers.models.{package}.modeling_{package}")
    torch.manual_seed(5)
    config = types.SimpleNamespace(**(SIZES | ACTIVATIONS | LIMITS | more), _experts_implementation="eager")
    made = getattr(module, kind)(config)
    fill(made)
    if getattr(made, "has_post_expert_norm", False):
        torch.nn.init.normal_(made.post_expert_norm.weight)
    return made.to(dtype).eval()


@torch.no_grad()
def run(module, implementation, dtype=torch.float32, n_tokens=13):
    module.config._experts_implementation = implementation
    torch.manual_seed(6)
    x, scores = torch.randn(n_tokens, 64).to(dtype), torch.rand(n_tokens, 6)
    weights, ids = scores.topk(3, dim=-1)
    return module(x, ids, weights.to(dtype)).float()


def test_they_are_found():
    assert len(list(classes())) >= 8


@pytest.mark.parametrize("n_tokens", [1, 13])
@pytest.mark.parametrize("name", classes())
def test_agrees(name, n_tokens):
    module = experts_of(name)
    wanted = run(module, "eager", n_tokens=n_tokens)
    assert overall(run(module, "libmoe", n_tokens=n_tokens), wanted) <= 1e-6
    half = experts_of(name, torch.bfloat16)
    wanted = run(half.float(), "eager", n_tokens=n_tokens)
    half = half.to(torch.bfloat16)
    eager = overall(run(half, "eager", torch.bfloat16, n_tokens), wanted)
    assert overall(run(half, "libmoe", torch.bfloat16, n_tokens), wanted) <= 1.5 * eager


@pytest.mark.parametrize("act", ["silu", "swish", "gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "quick_gelu"])
def test_activations(act):
    module = experts_of("qwen3_moe.Qwen3MoeExperts", hidden_act=act)
    assert overall(run(module, "libmoe"), run(module, "eager")) <= 1e-6


@pytest.mark.parametrize("act", ["relu2", "silu", "gelu", "gelu_pytorch_tanh", "quick_gelu"])
def test_activations_without_a_gate(act):
    module = experts_of("nemotron_h.NemotronHExperts", mlp_hidden_act=act)
    assert overall(run(module, "libmoe"), run(module, "eager")) <= 1e-6


@pytest.mark.parametrize("act", ["relu", "gelu_10", "tanh", "sigmoid", "leaky_relu", "mish", "xielu", "prelu"])
def test_activations_that_libmoe_lacks(act):
    with pytest.raises(moe.transformers.NotServed, match="its activation"):
        run(experts_of("qwen3_moe.Qwen3MoeExperts", hidden_act=act), "libmoe")


def test_a_norm_that_libmoe_lacks():
    module = experts_of("muse_spark.MuseSparkExperts")
    module.post_expert_norm = torch.nn.LayerNorm(64)
    torch.nn.init.normal_(module.post_expert_norm.weight)
    with pytest.raises(moe.transformers.NotServed, match=r"the norm behind its experts \(LayerNorm\) is no RMS norm"):
        run(module, "libmoe")
