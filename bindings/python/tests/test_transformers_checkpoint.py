"""moe.transformers.use_checkpoint and load: quantised experts of a folder under a model of transformers."""
import pathlib
import shutil
import subprocess

import numpy
import pytest
from oracle import Golden
from transformers_models import FIXTURES, TOKENS, compiled, config_of, experts_names, model_of, outputs, overall
from transformers_models import qwen3_moe, torch, transformers, worst

import moe
import moe.transformers

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")
# By what wrote them. Their y is the routed sum alone, of weights that another program dequantised.
FORMATS = {
    "GPTQ": ["qwen3_moe_gptq_v1", "qwen3_moe_gptq_3bit", "qwen3_moe_gptq_v2_act_order", "qwen3_moe_autoround_gptq"],
    "AWQ": ["qwen3_moe_awq", "qwen3_moe_autoround_awq"],
    "compressed-tensors": ["qwen3_moe_ct_int", "qwen3_moe_ct_int_g_idx", "qwen3_moe_ct_fp8", "qwen3_moe_ct_fp4"],
    "FP8": ["qwen3_moe_fp8_straddling", "qwen3_moe_e5m2"],
    "MXFP4": ["gpt_oss_mxfp4", "gpt_oss_mlx"],
    "NVFP4": ["qwen3_moe_nvfp4_modelopt", "qwen3_moe_nvfp4_awq"],
    "bitsandbytes": ["qwen3_moe_bnb_4bit", "qwen3_moe_bnb_int8"],
    "MLX": ["qwen3_moe_mlx_bits", "qwen3_moe_mlx_fp"],
}
FOLDERS = [name for names in FORMATS.values() for name in names]


def dequantised(model, folder):
    """Puts what libmoe's host tool decodes into the model's parameters."""
    with moe.Checkpoint(folder) as checkpoint, torch.no_grad():
        for name in experts_names(model):
            module, number = model.get_submodule(name), int(name.split(".layers.")[1].split(".")[0])
            for tensor in checkpoint.tensors(number):
                experts = range(tensor.n_experts) if tensor.n_experts else [tensor.expert]
                for at in experts:
                    _put(module, tensor, at, torch.from_numpy(moe.dequantize(tensor, at if tensor.n_experts else 0)))
    return model


def _put(module, tensor, expert, matrix):
    """A matrix or bias of one expert; a fused one as two, and in the order of the module."""
    part = tensor.role.name.lower()
    if part == "expert_norm" or "shared" in part or not part.startswith(("gate", "up", "down")):
        return
    is_bias = part.endswith("_bias")
    part, matrix = part.removesuffix("_bias"), matrix[0] if is_bias else matrix
    into = getattr(module, ("down_proj" if part == "down" else "gate_up_proj") + ("_bias" if is_bias else ""))[expert]
    into = into.t() if module.is_transposed and not is_bias else into
    if part == "down":
        into.copy_(matrix)
        return
    half = into.shape[0] // 2
    rows = (slice(0, half), slice(half, None)) if module.is_concatenated else (slice(0, None, 2), slice(1, None, 2))
    if part == "gate_up":
        order = moe.GateUpOrder(tensor.struct.gate_up_order)
        given = (slice(0, half), slice(half, None))
        given = (slice(0, None, 2), slice(1, None, 2)) if order == moe.GateUpOrder.INTERLEAVED else given
        given = given[::-1] if order == moe.GateUpOrder.UP_FIRST else given
        parts = dict(zip(("gate", "up"), (matrix[one] for one in given)))
    else:
        parts = {part: matrix}
    for name, one in parts.items():
        into[rows[name == "up"]].copy_(one)


@pytest.mark.parametrize("name", FOLDERS)
def test_against_the_fixture(name):
    """The experts alone, on the inputs and outputs of the fixture."""
    golden = Golden(FIXTURES / name)
    model = model_of(config_of(name))
    moe.transformers.use_checkpoint(model, golden.path)
    module = model.model.layers[golden.layer].mlp.experts
    with torch.no_grad():
        found = module(*(torch.from_numpy(one) for one in (golden.x, golden.ids.astype(numpy.int64), golden.weights)))
    assert worst(found, torch.from_numpy(golden.y)) <= 1e-5


@pytest.mark.parametrize("name", [*FOLDERS, "deepseek_v3_fp8_block", "inkling2_mxfp8"])
def test_logits(name):
    """The whole model, prefill and decode: attention, router and shared experts by transformers."""
    model = dequantised(model_of(config_of(name)), FIXTURES / name)
    wanted = outputs(model, "eager")
    names = moe.transformers.use_checkpoint(model, FIXTURES / name)
    assert names == experts_names(model) and not any(one.numel() for one in model.get_submodule(names[0]).parameters())
    assert worst(outputs(model, "libmoe"), wanted) <= 1e-5
    memory = [one.weights.memory for one in moe.transformers.served(model).values()]
    assert all(one.borrowed_bytes > 0 and one.host_bytes < one.borrowed_bytes / 8 for one in memory)  # biases are copied


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("model")
    model_of(qwen3_moe(2), torch.bfloat16).save_pretrained(made)
    return made


def test_a_folder_that_is_not_quantised(folder):
    wanted = outputs(transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).float().eval(), "eager")
    found = outputs(moe.transformers.load(folder, dtype=torch.float32), "libmoe")
    assert worst(found, wanted) <= 1e-5


@pytest.mark.parametrize("to, most", [("int4", 0.2), ("nvfp4", 0.2), ("fp8", 0.05), ("kbit4", 0.2), ("mxfp4", 0.3)])
def test_a_folder_of_moe_quantize(folder, tmp_path, to, most):
    command = pathlib.Path(moe.library().path).parents[1] / "bin/moe"
    if not command.exists():
        pytest.skip("the command moe does not lie beside the library")
    subprocess.run([command, "quantize", "--to", to, folder, tmp_path / "out"], check=True, capture_output=True)
    model = moe.transformers.load(tmp_path / "out", dtype=torch.float32)
    found = outputs(model, "libmoe")
    plain = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    error = overall(found, outputs(plain, "eager"))
    assert 1e-3 < error < most
    assert worst(found, outputs(dequantised(plain, tmp_path / "out"), "eager")) <= 1e-5
    tokens = model.generate(TOKENS, max_new_tokens=4, do_sample=False)
    assert tokens.shape == (2, TOKENS.shape[1] + 4)
    with torch.no_grad():
        again = compiled(model)(input_ids=TOKENS, use_cache=False).logits
    assert worst(again, outputs(model, "libmoe", use_cache=False)) <= 1e-5


def test_load_never_makes_the_experts(folder, monkeypatch):
    made = []
    real = torch.empty_like
    monkeypatch.setattr(torch, "empty_like", lambda *a, **k: made.append(a[0].shape) or real(*a, **k))
    model = moe.transformers.load(folder)
    assert not [shape for shape in made if len(shape) == 3 and shape[0] == 8]
    assert {one.device.type for one in model.parameters()} == {"cpu"} and model.dtype == torch.bfloat16
    kind = type(model)
    assert kind._keys_to_ignore_on_load_missing is transformers.Qwen3MoeForCausalLM._keys_to_ignore_on_load_missing


def test_what_load_cannot_read(folder, tmp_path):
    """A tensor outside the experts that has another name, as that of a quantised matrix has."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["model.layers.0.self_attn.q_proj.weight_packed"] = tensors.pop("model.layers.0.self_attn.q_proj.weight")
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(moe.transformers.NotServed, match="has no plain tensor for model.layers.0.self_attn.q_proj.weight"):
        moe.transformers.load(tmp_path)


def test_refusals(folder):
    with pytest.raises(ValueError, match=r"has MoE layers \[0, 1\], the model has experts in layers \[0, 1, 2\]"):
        moe.transformers.use_checkpoint(model_of(qwen3_moe(3)), folder)
    other = model_of(qwen3_moe(2, num_experts=6))
    with pytest.raises(moe.transformers.NotServed, match="Qwen3MoeExperts: n_experts is 8 in layer 0 of .*, and 6 in the model"):
        moe.transformers.use_checkpoint(other, folder)
    assert all(one.numel() for one in other.parameters()), "a refusal leaves the model as it was"
    with pytest.raises(moe.transformers.NotServed, match="activation is"):
        moe.transformers.use_checkpoint(model_of(qwen3_moe(2, hidden_act="gelu")), folder)
    config = transformers.LlamaConfig(hidden_size=64, num_hidden_layers=1, vocab_size=64)
    dense = transformers.AutoModelForCausalLM.from_config(config)
    with pytest.raises(ValueError, match=r"the model has experts in layers \[\]"):
        moe.transformers.use_checkpoint(dense, folder)


def test_quantised_parameters_name_the_way_out(folder):
    """transformers' own FP8 experts go to the same function."""
    from transformers.integrations import finegrained_fp8 as fp8

    assert fp8.ALL_FP8_EXPERTS_FUNCTIONS["libmoe"] is moe.transformers.experts_forward
    model = model_of(qwen3_moe(1))
    module = model.model.layers[0].mlp.experts
    for name in ("gate_up_proj", "down_proj"):
        setattr(module, name, torch.nn.Parameter(getattr(module, name).detach().to(torch.float8_e4m3fn), requires_grad=False))
    with pytest.raises(moe.transformers.NotServed, match=r"float8_e4m3fn, .* moe.transformers.use_checkpoint\(model, folder\)"):
        outputs(model, "libmoe")
