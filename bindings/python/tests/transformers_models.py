"""Small random models of transformers, from the configs of tests/oracle, for the tests of moe.transformers."""
import functools

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("transformers.integrations.moe", reason="this transformers has no experts interface")

from oracle import FIXTURES  # noqa: E402

TOKENS = torch.tensor([[3, 9, 27, 5, 15, 8, 24, 7, 21], [30, 4, 12, 6, 18, 23, 9, 27, 17]])


def config_of(fixture):
    config = transformers.AutoConfig.from_pretrained(FIXTURES / fixture)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    return config


def model_of(config, dtype=torch.float32):
    """With weights of a size that keeps every layer's output near one."""
    torch.manual_seed(11)
    try:
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)
    except ValueError:
        model = transformers.AutoModel.from_config(config, dtype=dtype)
    fill(model)
    return model.eval()


@torch.no_grad()
def fill(module):
    for one in module.parameters():
        if one.ndim >= 2:
            one.normal_(0, one.shape[-1] ** -0.5)


def qwen3_moe(layers=3, **more):
    sizes = dict(vocab_size=64, hidden_size=64, intermediate_size=96, num_attention_heads=4, num_key_value_heads=2, head_dim=16)
    sizes |= dict(moe_intermediate_size=32, num_experts=8, num_experts_per_tok=2, num_hidden_layers=layers)
    return transformers.Qwen3MoeConfig(**(sizes | more))


@torch.no_grad()
def outputs(model, implementation, steps=3, use_cache=True):
    """First output of a prefill of all tokens but the last few, then of these one by one: [sequences, tokens, features]."""
    model.set_experts_implementation(implementation)
    if not use_cache:
        return model(input_ids=TOKENS, use_cache=False)[0].float()
    found = model(input_ids=TOKENS[:, :-steps], use_cache=True)
    each, cache = [found[0]], found.past_key_values
    for at in range(TOKENS.shape[1] - steps, TOKENS.shape[1]):
        found = model(input_ids=TOKENS[:, at : at + 1], past_key_values=cache, use_cache=True)
        each.append(found[0])
        cache = found.past_key_values
    return torch.cat(each, dim=1).float()


def compiled(model, **options):
    """By the backend that needs no compiler. What other tests compiled is forgotten: it counts against a limit."""
    torch._dynamo.reset()
    return torch.compile(model, fullgraph=True, backend="aot_eager", **options)


def worst(found, wanted):
    """The largest relative error of a token. NaN is infinite."""
    error = (found - wanted).norm(dim=-1) / wanted.norm(dim=-1)
    return float(torch.nan_to_num(error, nan=float("inf")).max())


def overall(found, wanted):
    return float((found - wanted).norm() / wanted.norm())


@functools.cache
def experts_names(model):
    return [name for name, one in model.named_modules() if hasattr(one, "is_concatenated")]
