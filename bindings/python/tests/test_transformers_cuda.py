"""moe.transformers on a GPU. Skipped where there is none, or a libmoe without CUDA."""
import copy

import pytest
from transformers_models import FIXTURES, TOKENS, config_of, experts_names, model_of, outputs, overall, qwen3_moe, torch, worst

import moe
import moe.transformers

HAS_GPU = torch.cuda.is_available() and "cuda" in moe.build_info()["backends"]
pytestmark = [
    pytest.mark.skipif(not HAS_GPU, reason="no GPU, or this libmoe is built without CUDA"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
MODELS = ["qwen3_moe_bf16", "mixtral_mlx_bf16", "gpt_oss_bf16", "deepseek_v3_bf16", "olmoe_bf16", "phimoe_bf16", "qwen2_moe_bf16"]
MODELS += ["minimax_m2_bf16", "glm4_moe_bf16", "nemotron_h_bf16", "deepseek_v4_bf16", "ernie4_5_moe_bf16"]


@pytest.fixture(autouse=True)
def tokens_on_the_gpu(monkeypatch):
    if HAS_GPU:
        monkeypatch.setattr("transformers_models.TOKENS", TOKENS.cuda())


def on_gpu(config, dtype=torch.float32):
    return model_of(config, dtype).cuda()


@pytest.mark.parametrize("name", MODELS)
def test_float32(name):
    model = on_gpu(config_of(name))
    wanted = outputs(copy.deepcopy(model), "eager")
    assert worst(outputs(model, "libmoe"), wanted) <= 1e-4
    assert all(one.n_calls == 4 for one in moe.transformers.served(model).values())


@pytest.mark.parametrize("name", MODELS)
def test_bfloat16(name):
    model = on_gpu(config_of(name), torch.bfloat16)
    wanted = outputs(copy.deepcopy(model).float(), "eager", use_cache=False)
    eager = overall(outputs(copy.deepcopy(model), "eager", use_cache=False), wanted)
    assert overall(outputs(model, "libmoe", use_cache=False), wanted) <= 1.5 * eager


def test_parameters_are_freed():
    """Resident memory is that of the packed weights; another implementation fails, and does not compute with nothing."""
    model = on_gpu(qwen3_moe(2, hidden_size=512, moe_intermediate_size=512, num_experts=64), torch.bfloat16)
    n_bytes = sum(one.nbytes for name in experts_names(model) for one in model.get_submodule(name).parameters())
    before = torch.cuda.memory_allocated()
    moe.transformers.prepare(model)
    after = torch.cuda.memory_allocated()
    assert abs(after - before) < n_bytes / 10
    assert not any(one.numel() for name in experts_names(model) for one in model.get_submodule(name).parameters())
    assert outputs(model, "libmoe").isfinite().all()
    with pytest.raises((RuntimeError, IndexError)):
        outputs(model, "eager")


def test_parameters_that_are_kept(monkeypatch):
    monkeypatch.setenv("MOE_TRANSFORMERS_KEEP", "1")
    model = on_gpu(qwen3_moe())
    wanted = outputs(model, "eager")
    assert worst(outputs(model, "libmoe"), wanted) <= 1e-4 and worst(outputs(model, "eager"), wanted) <= 1e-6
    with torch.no_grad():
        model.model.layers[0].mlp.experts.down_proj.mul_(2)
    assert worst(outputs(model, "libmoe"), outputs(model, "eager")) <= 1e-4


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compile(mode):
    model = on_gpu(qwen3_moe(), torch.bfloat16)
    model.set_experts_implementation("libmoe")
    torch._dynamo.reset()
    called = torch.compile(model, fullgraph=True, mode=mode)
    wanted = outputs(copy.deepcopy(model), "eager", use_cache=False)
    with torch.no_grad():
        for _ in range(4):
            found = called(input_ids=TOKENS.cuda(), use_cache=False).logits.float().clone()
            assert overall(found, wanted) <= 3e-2


def test_graph_capture():
    model = on_gpu(qwen3_moe(), torch.bfloat16)
    model.set_experts_implementation("libmoe")
    module, x = model.model.layers[0].mlp.experts, torch.randn(8, 64, device="cuda", dtype=torch.bfloat16)
    ids, weights = torch.randint(0, 8, (8, 2), device="cuda"), torch.rand(8, 2, device="cuda")
    with torch.no_grad():
        with pytest.raises(RuntimeError, match="a stream is captured before libmoe"), torch.cuda.graph(torch.cuda.CUDAGraph()):
            module(x, ids, weights)
        module(x, ids, weights)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = module(x, ids, weights)
        for _ in range(3):
            x.copy_(x.flip(0))
            graph.replay()
            torch.cuda.synchronize()
            assert torch.equal(out, module(x, ids, weights))


def test_masked_ids():
    model = on_gpu(qwen3_moe(1))
    model.set_experts_implementation("libmoe")
    x, weights = torch.randn(3, 64, device="cuda"), torch.full((3, 2), 0.5, device="cuda")
    with torch.no_grad():
        ids = torch.tensor([[0, 8], [8, 8], [3, -1]], device="cuda")
        found = model.model.layers[0].mlp.experts(x, ids, weights)
        alone = model.model.layers[0].mlp.experts(x, ids.where(ids != 8, -1), weights)
    assert torch.equal(found, alone) and not found[1].any() and found[0].any()


@pytest.mark.parametrize("name", ["qwen3_moe_gptq_v1", "qwen3_moe_awq", "qwen3_moe_ct_int", "qwen3_moe_nvfp4_modelopt"])
def test_a_quantised_folder(name):
    """Against the CPU, whose tests have the dequantised weights."""
    model = model_of(config_of(name))
    there = copy.deepcopy(model).cuda()
    moe.transformers.use_checkpoint(model, FIXTURES / name)
    moe.transformers.use_checkpoint(there, FIXTURES / name)
    found = outputs(there, "libmoe", use_cache=False).cpu()
    with torch.no_grad():
        wanted = model(input_ids=TOKENS, use_cache=False).logits
    assert overall(found, wanted) <= 1e-4
