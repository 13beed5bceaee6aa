"""One small GGUF file for each architecture beside those of gguf_cases.py: what llama.cpp's graph
says of routing and of the shared expert, and the keys and tensors that its converter writes.
"""
import gguf
from gguf import GGMLQuantizationType as Type

import gguf_cases
from gguf_cases import Model
from routing_reference import Rule

SIGMOID_KEY = {"expert_gating_func": gguf.ExpertGatingFuncType.SIGMOID}
HIDDEN, WIDTH, SHARED = 64, 32, 96


def model(arch, rule, notes, *, variant="", shared=0, keys=None, width_key=True, **changes):
    sizes = {"expert_feed_forward_length": WIDTH} if width_key else {}
    if shared:
        sizes["expert_shared_feed_forward_length"] = shared
    arguments = dict(experts=6, rule=rule, notes=notes, keys=sizes | (keys or {}),
                     gate=Type.Q8_0, up=Type.Q8_0, down=Type.Q8_0,
                     shared_intermediate=shared, shared_type=Type.Q8_0)
    name = "gguf_" + (variant or arch).replace("-", "_")
    hidden = changes.pop("hidden", HIDDEN)
    return Model(name, arch, hidden, WIDTH, **(arguments | changes))


def softmax_models():
    """In most of these files nothing says how the weights are made: the architecture does."""
    normalised, plain = Rule(3, norm=True), Rule(3)
    own_width = dict(width_key=False, dense_intermediate=WIDTH)
    return [
        model("qwen3vlmoe", normalised, "softmax, normalised"),
        model("qwen3next", normalised, "shared expert times sigmoid(gate)", shared=SHARED,
              shared_gate=True),
        model("qwen35moe", normalised, "shared expert times sigmoid(gate)", shared=SHARED,
              shared_gate=True),
        model("hunyuan-moe", normalised, "shared expert as it is", shared=SHARED),
        model("ernie4_5-moe", normalised, "exp_probs_b.bias beside a softmax; block 0 dense",
              shared=SHARED, selection_bias=True, layers=2, dense=1,
              keys={"leading_dense_block_count": 1, "interleave_moe_layer_step": 1,
                    "expert_shared_count": 3}),
        model("olmoe", plain, "not normalised; the width is feed_forward_length", **own_width),
        model("phimoe", normalised, "llama.cpp runs it as a softmax", **own_width),
        model("dbrx", normalised, "the width is feed_forward_length", **own_width),
        model("jamba", plain, "not normalised; the width is feed_forward_length", **own_width),
        model("granitemoe", normalised, "the width is feed_forward_length", shared=SHARED,
              **own_width),
        model("granitehybrid", normalised, "the width is feed_forward_length", shared=SHARED,
              **own_width),
        model("deepseek2", Rule(3, scale=2.0), "DeepSeek-V2-Lite: not normalised, no groups",
              variant="deepseek2-softmax", shared_intermediate=2 * WIDTH, layers=2, dense=1,
              keys={"leading_dense_block_count": 1, "expert_shared_count": 2,
                    "expert_weights_scale": 2.0, "expert_weights_norm": False,
                    "expert_gating_func": gguf.ExpertGatingFuncType.SOFTMAX}),
        model("bailingmoe", normalised, "Ling 1: normalised because a key says so; two shared "
              "experts are one MLP", shared_intermediate=2 * WIDTH,
              keys={"expert_shared_count": 2, "expert_weights_norm": True,
                    "expert_weights_scale": 1.0, "leading_dense_block_count": 0}),
    ]


def sigmoid_models():
    """Scores by a sigmoid, with a bias that only selects."""
    def rule(**changes):
        return Rule(3, "sigmoid", **(dict(norm=True) | changes))

    lead = {"leading_dense_block_count": 1}
    norm = {"expert_weights_norm": True}
    biased = dict(selection_bias=True)
    after_dense = dict(selection_bias=True, layers=2, dense=1)
    return [
        model("glm4moe", rule(scale=1.5), "no gating key: the architecture implies it",
              shared_intermediate=WIDTH, **after_dense,
              keys=lead | norm | {"expert_shared_count": 1, "expert_weights_scale": 1.5}),
        model("glm-dsa", rule(scale=2.5), "block 0 dense", shared_intermediate=WIDTH, **after_dense,
              keys=lead | norm | SIGMOID_KEY
              | {"expert_shared_count": 1, "expert_weights_scale": 2.5}),
        model("minimax-m2", rule(), "normalised without a key", keys=SIGMOID_KEY, **biased),
        model("dots1", rule(norm=False, scale=2.5), "expert_weights_norm false",
              shared_intermediate=2 * WIDTH, **after_dense,
              keys=lead | SIGMOID_KEY | {"expert_shared_count": 2, "expert_weights_scale": 2.5,
                                         "expert_weights_norm": False}),
        model("bailingmoe2", rule(scale=2.5, n_group=3, topk_group=2, group_score="top2_sum"),
              "Ling 2: groups by top-2 sum", shared=WIDTH, experts=9, **after_dense,
              keys=lead | norm | SIGMOID_KEY
              | {"expert_shared_count": 1, "expert_weights_scale": 2.5, "expert_group_count": 3,
                 "expert_group_used_count": 2}),
        model("lfm2moe", rule(), "normalised without a key; block 0 dense", **after_dense,
              keys=lead | SIGMOID_KEY),
        model("afmoe", rule(scale=2.826), "no gating key: the architecture implies it",
              shared_intermediate=WIDTH, **after_dense,
              keys=lead | norm | {"expert_shared_count": 1, "expert_weights_scale": 2.826}),
        model("exaone-moe", rule(scale=2.5), "block 0 dense", shared=WIDTH, **after_dense,
              keys=lead | norm | SIGMOID_KEY
              | {"expert_shared_count": 1, "expert_weights_scale": 2.5}),
    ]


def llama4(arch="llama4"):
    """Logits choose; the sigmoid of the logit multiplies what goes into the expert."""
    return model(arch, Rule(1, "none", "sigmoid"), "the weight multiplies the input",
                 shared_intermediate=WIDTH, weight_on_input=True, down_gain=3.0,
                 keys={"interleave_moe_layer_step": 1})


def gguf_families():
    for each in [*softmax_models(), *sigmoid_models(), llama4()]:
        gguf_cases.make(each)


CASES = [gguf_families]
