"""moe.transformers: models of transformers whose experts libmoe computes, against the same models by "eager"."""
import copy
import gc
import threading

import pytest
from transformers_models import FIXTURES, TOKENS, compiled, config_of, experts_names, model_of, outputs, overall
from transformers_models import qwen3_moe, torch, worst

import moe
import moe.transformers

# Models of code that transformers does not have, and models whose experts do not go through the interface.
NOT_THERE = {"arctic_bf16", "bailing_moe_bf16", "bailing_moe_1_bf16"}
NO_INTERFACE = {"dbrx_bf16", "llama4_bf16", "longcat_flash_bf16", "step3p7_bf16"}
NO_AUTO_CLASS = {"qwen3_omni_moe_bf16"}
# These configs have one layer, with linear attention, whose cache knows no length.
NO_CACHE = {"bailing_hybrid", "glm5_next", "jamba", "kimi_linear", "lara_mini", "openai_privacy_filter"}
NO_CACHE |= {"qwen3_5_moe", "qwen4_exp"}
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")
LEFT_OUT = NOT_THERE | NO_INTERFACE | NO_AUTO_CLASS
ALL = sorted(one.name for one in FIXTURES.iterdir() if one.name.endswith("_bf16") and not one.name.startswith("gguf"))
MODELS = [name for name in ALL if name not in LEFT_OUT]
FLOAT32 = 1e-5
BFLOAT16 = 1.2  # times the error of eager


def uses_cache(name):
    return name.removesuffix("_bf16") not in NO_CACHE


@pytest.fixture
def model():
    return model_of(qwen3_moe())


@pytest.mark.parametrize("name", MODELS)
def test_float32(name):
    model = model_of(config_of(name))
    wanted = outputs(model, "eager", use_cache=uses_cache(name))
    found = outputs(model, "libmoe", use_cache=uses_cache(name))
    assert worst(found, wanted) <= FLOAT32
    n_calls = 4 if uses_cache(name) else 1
    counts = {one.n_calls for one in moe.transformers.served(model).values()}
    assert len(moe.transformers.served(model)) == len(experts_names(model)) and counts == {n_calls}


@pytest.mark.parametrize("name", MODELS)
def test_bfloat16(name):
    """Against the same weights in float32: routing and rounding differ, so over all tokens, and no worse than eager is."""
    model = model_of(config_of(name), torch.bfloat16)
    wanted = outputs(copy.deepcopy(model).float(), "eager", use_cache=False)
    eager = overall(outputs(model, "eager", use_cache=False), wanted)
    assert overall(outputs(model, "libmoe", use_cache=False), wanted) <= BFLOAT16 * eager
    kernels = {one.kernel(1) for one in moe.transformers.served(model).values()}
    assert kernels and all("bf16" in kernel or "ref" in kernel for kernel in kernels)


def test_models_outside_the_interface_say_so():
    """transformers itself leaves them as they are; nothing of libmoe runs."""
    model = model_of(config_of("dbrx_bf16"))
    assert experts_names(model) == [] and moe.transformers.served(model) == {}


def test_weights_are_borrowed(model):
    outputs(model, "libmoe")
    for name, one in moe.transformers.served(model).items():
        module = model.get_submodule(name)
        n_bytes = sum(parameter.nbytes for parameter in (module.gate_up_proj, module.down_proj))
        memory = one.weights.memory
        assert (memory.borrowed_bytes, memory.host_bytes, memory.device_bytes) == (n_bytes, 0, 0)


def test_no_second_copy_in_the_process():
    """512 MiB of experts; the resident memory grows by less than a tenth of them."""
    statm = lambda: int(open("/proc/self/statm").read().split()[1]) * 4096  # noqa: E731
    config = qwen3_moe(1, hidden_size=1024, moe_intermediate_size=512, num_experts=80)
    model = model_of(config)
    n_bytes = sum(one.nbytes for one in model.model.layers[0].mlp.experts.parameters())
    outputs(model, "eager", use_cache=False)
    before = statm()
    outputs(model, "libmoe", use_cache=False)
    assert n_bytes > 5e8 and statm() - before < n_bytes / 10


def test_weights_written_in_place_are_seen(model):
    first = outputs(model, "libmoe")
    with torch.no_grad():
        for layer in model.model.layers:
            layer.mlp.experts.down_proj.mul_(3)
    assert worst(outputs(model, "libmoe"), first) > 0.1
    assert worst(outputs(model, "libmoe"), outputs(model, "eager")) <= FLOAT32


def test_biases_written_in_place_are_seen():
    model = model_of(config_of("gpt_oss_bf16"))
    first = outputs(model, "libmoe")
    with torch.no_grad():
        for name in experts_names(model):
            model.get_submodule(name).down_proj_bias.add_(1)
    found = outputs(model, "libmoe")
    assert worst(found, first) > 0.1 and worst(found, outputs(model, "eager")) <= FLOAT32


@pytest.mark.parametrize("change", ["replace", "data", "cast", "load"])
def test_parameters_that_are_others_after_a_call(model, change):
    first = outputs(model, "libmoe")
    other = model_of(qwen3_moe(initializer_range=0.05))
    with torch.no_grad():
        for one in other.parameters():
            one.mul_(1.25)
    for mine, theirs in zip(model.model.layers, other.model.layers):
        if change == "replace":
            mine.mlp.experts.down_proj = torch.nn.Parameter(theirs.mlp.experts.down_proj.detach().clone())
        elif change == "data":
            mine.mlp.experts.gate_up_proj.data = theirs.mlp.experts.gate_up_proj.data.clone()
    if change == "load":
        model.load_state_dict(other.state_dict())
    if change == "cast":
        model = model.half().float()
    del other
    gc.collect()
    found = outputs(model, "libmoe")
    assert worst(found, outputs(model, "eager")) <= FLOAT32
    assert worst(found, first) > (1e-5 if change == "cast" else 1e-2)


def test_a_copy_of_a_model_has_weights_of_its_own(model):
    first = outputs(model, "libmoe")
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.model.layers[0].mlp.experts.down_proj.zero_()
    assert worst(outputs(other, "libmoe"), first) > 1e-2
    assert torch.equal(outputs(model, "libmoe"), first)


def test_weights_go_with_their_model(model):
    outputs(model, "libmoe")
    from moe.transformers import serving

    numbers = {id(model.get_submodule(name)) for name in experts_names(model)}
    experts_names.cache_clear()
    assert numbers <= serving._experts.keys()
    del model
    gc.collect()
    assert not [number for number in numbers if number in serving._experts and serving._experts[number][0]() is None]


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile(model, dynamic):
    wanted = outputs(model, "libmoe", use_cache=False)
    with torch.no_grad():
        called = compiled(model, dynamic=dynamic)
        for length in (9, 5, 1):
            found = called(input_ids=TOKENS[:, :length], use_cache=False).logits
            assert worst(found, wanted[:, :length]) <= FLOAT32
        model.model.layers[1].mlp.experts.down_proj.mul_(2)
        found = called(input_ids=TOKENS, use_cache=False).logits
    assert worst(found, wanted) > 1e-2 and worst(found, outputs(model, "libmoe", use_cache=False)) <= FLOAT32


def test_compile_before_the_first_call(model):
    """One compiled function for the layers of a model: each has its own weights in it."""
    wanted = outputs(model, "eager", use_cache=False)
    model.set_experts_implementation("libmoe")
    torch._dynamo.reset()
    for layer in model.model.layers:
        layer.mlp.compile(fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        assert worst(model(input_ids=TOKENS, use_cache=False).logits, wanted) <= FLOAT32
    assert {one.n_calls for one in moe.transformers.served(model).values()} == {1}


def test_operator(model):
    outputs(model, "libmoe")
    module = model.model.layers[0].mlp.experts
    x, ids = torch.randn(5, 64), torch.randint(0, 8, (5, 2))
    arguments = (x, ids, torch.rand(5, 2), id(module))
    torch.library.opcheck(torch.ops.libmoe.experts, arguments, test_utils=["test_schema", "test_faketensor"])


def test_threads(model):
    """The same bits from several threads of the program at once, and with any number of libmoe's."""
    wanted, found = outputs(model, "libmoe"), {}
    ours = [threading.Thread(target=lambda i=i: found.__setitem__(i, outputs(model, "libmoe"))) for i in range(4)]
    for one in ours:
        one.start()
    for one in ours:
        one.join()
    assert len(found) == 4 and all(worst(one, wanted) <= 1e-6 for one in found.values())
    before = torch.get_num_threads()
    module, x = model.model.layers[0].mlp.experts, torch.randn(40, 64)
    call = (x, torch.randint(0, 8, (40, 2)), torch.rand(40, 2))
    try:
        each = []
        for n_threads in (1, 2):
            torch.set_num_threads(n_threads)
            with torch.no_grad():
                each.append(module(*call))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*each)


def test_first_call_from_threads(model):
    """The weights of a module are loaded once."""
    from moe.transformers import serving

    wanted, loads = outputs(copy.deepcopy(model), "libmoe"), []
    load = serving.Experts._load
    serving.Experts._load = lambda self, source: (loads.append(self), load(self, source))
    try:
        model.set_experts_implementation("libmoe")
        ours = [threading.Thread(target=outputs, args=(model, "libmoe")) for _ in range(4)]
        for one in ours:
            one.start()
        for one in ours:
            one.join()
    finally:
        serving.Experts._load = load
    assert len(loads) == len(set(loads)) == 3 and torch.equal(outputs(model, "libmoe"), wanted)


def call(module, ids, weights=None):
    x = torch.linspace(-1, 1, len(ids) * 64).reshape(-1, 64)
    with torch.no_grad():
        return module(x, ids, torch.full(ids.shape, 0.5) if weights is None else weights)


def test_masked_ids(model):
    """num_experts stands for no expert; a token that has no other gets zeros."""
    module = model.model.layers[0].mlp.experts
    model.set_experts_implementation("eager")
    ids = torch.tensor([[0, 8], [8, 8], [3, 7]])
    wanted = call(module, ids)
    model.set_experts_implementation("libmoe")
    found = call(module, ids)
    assert worst(found[::2], wanted[::2]) <= FLOAT32 and not found[1].any() and not wanted[1].any()
    for dtype in (torch.int32, torch.int64):
        assert torch.equal(call(module, ids.to(dtype)), found)
    module._is_expert_parallel = True
    assert torch.equal(call(module, ids.masked_fill(ids == 8, 11)), found)


@pytest.mark.parametrize("wrong", [9, -2])
def test_ids_of_no_expert(model, wrong):
    model.set_experts_implementation("libmoe")
    with pytest.raises(IndexError, match="top_k_index: has ids from .*the layer has 8 experts"):
        call(model.model.layers[0].mlp.experts, torch.tensor([[0, wrong]]))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_types_of_routing_weights(model, dtype):
    module, ids = model.model.layers[0].mlp.experts, torch.tensor([[0, 5], [3, 7]])
    model.set_experts_implementation("libmoe")
    assert torch.equal(call(module, ids, torch.full((2, 2), 0.5, dtype=dtype)), call(module, ids))


def test_rows_that_are_not_dense(model):
    module = model.model.layers[0].mlp.experts
    model.set_experts_implementation("libmoe")
    x, ids, weights = torch.randn(6, 64), torch.randint(0, 8, (6, 2)), torch.rand(6, 2)
    wide = torch.zeros(6, 80)
    wide[:, :64] = x
    with torch.no_grad():
        wanted = module(x, ids, weights)
        assert torch.equal(module(wide[:, :64], ids, weights), wanted)
        assert torch.equal(module(x.t().contiguous().t(), ids.t().contiguous().t(), weights), wanted)
        assert module(x[:0], ids[:0], weights[:0]).shape == (0, 64)
        assert torch.equal(module(x[:1].expand(6, 64), ids, weights)[0], wanted[0])


def test_many_tokens(model):
    """More than the first plan was made for."""
    module = model.model.layers[0].mlp.experts
    x, ids, weights = torch.randn(3000, 64), torch.randint(0, 8, (3000, 2)), torch.rand(3000, 2)
    with torch.no_grad():
        model.set_experts_implementation("eager")
        wanted = module(x, ids, weights)
        model.set_experts_implementation("libmoe")
        assert worst(module(x[:4], ids[:4], weights[:4]), wanted[:4]) <= FLOAT32
        assert worst(module(x, ids, weights), wanted) <= FLOAT32


def test_gradients_are_refused(model):
    model.set_experts_implementation("libmoe")
    with pytest.raises(RuntimeError, match="libmoe has no backward: call the model under torch.no_grad"):
        model(input_ids=TOKENS)
    with torch.inference_mode():
        found = model(input_ids=TOKENS, use_cache=False).logits
    assert worst(found.clone(), outputs(model, "eager", use_cache=False)) <= FLOAT32
    model.requires_grad_(False)
    model(input_ids=TOKENS)


def test_memory_of_another_device_is_refused(model):
    outputs(model, "libmoe")
    module = model.model.layers[0].mlp.experts
    one = moe.transformers.experts_of(module)
    with pytest.raises(ValueError, match="hidden_states: is on meta, the weights of the experts are on cpu"):
        one(torch.empty(2, 64, device="meta"), torch.zeros(2, 2, dtype=torch.long), torch.zeros(2, 2))
    with pytest.raises(ValueError, match="have shapes .*, with 64 features a token"):
        one(torch.zeros(2, 32), torch.zeros(2, 2, dtype=torch.long), torch.zeros(2, 2))


def test_prepare(model):
    assert moe.transformers.served(model) == {}
    moe.transformers.prepare(model)
    assert [one.n_calls for one in moe.transformers.served(model).values()] == [0, 0, 0]


def put(data, module):
    module.down_proj.data = data.detach()


class Strange(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x)


@pytest.mark.parametrize(
    "change, sentence",
    [
        (lambda one: setattr(one, "act_fn", Strange()), r"its activation \(Strange\) is none that libmoe has"),
        (lambda one: one.to(torch.float64), "its weights are float64, and must be float32, float16 or bfloat16"),
        (lambda one: put(one.down_proj[:, :32].contiguous(), one), "down"),
        (lambda one: put(one.down_proj.new_empty(0), one), "down_proj is on device cpu with 0 elements"),
        (lambda one: put(one.down_proj.repeat(1, 1, 2)[..., ::2], one), "down_proj lies in memory with strides"),
    ],
)
def test_refusals(model, change, sentence):
    """In words, with the class, and never by computing something else."""
    module = model.model.layers[0].mlp.experts
    change(module)
    model.set_experts_implementation("libmoe")
    with pytest.raises(moe.transformers.NotServed, match=f"libmoe cannot serve Qwen3MoeExperts: .*{sentence}"):
        call(module, torch.tensor([[0, 1]]))


def test_sizes_that_the_library_refuses():
    model = model_of(qwen3_moe(1, hidden_size=72, head_dim=18))
    with pytest.raises(moe.transformers.NotServed, match="libmoe cannot serve Qwen3MoeExperts: .*hidden"):
        outputs(model, "libmoe")
