"""GGUF files of the architectures with rules of their own, and of those that leave a key out which
llama.cpp completes from others."""
from gguf import GGMLQuantizationType as Type

import gguf_cases
from gguf_family_cases import SIGMOID_KEY, model
from routing_reference import Rule, gelu_tanh, limited, situ

NORMALISED, PLAIN = Rule(2, norm=True), Rule(2)
WIDTH, SHARED = 32, 64
BIASED = dict(selection_bias=True)
NORM_KEY = {"expert_weights_norm": True}
ONE_SHARED = {"expert_shared_count": 1}


def small(arch, rule, notes, **changes):
    return model(arch, rule, notes, **(dict(hidden=32, down_gain=1.0) | changes))


def sigmoid(**changes):
    return Rule(2, "sigmoid", **(dict(norm=True) | changes))


def softmax_models():
    own_width = dict(width_key=False, dense_intermediate=WIDTH)
    return [
        small("mistral3", NORMALISED, "as llama", **own_width),
        small("llama", NORMALISED, "a tensor for each expert, of three types in every role",
              variant="llama-mixed", expert_types=(Type.Q8_0, Type.Q4_0, Type.BF16), **own_width),
        small("llama-embed", NORMALISED, "as llama", **own_width),
        small("minicpm", NORMALISED, "as granite", **own_width),
        small("granite", NORMALISED, "as granitemoe", shared=SHARED, **own_width),
        small("minimax-01", NORMALISED, "as llama", **own_width),
        small("arctic", NORMALISED, "the dense MLP beside it is the program's", **own_width),
        small("rnd1", NORMALISED, "as qwen3moe"),
        small("mellum", NORMALISED, "as qwen3moe"),
        small("qwen4exp", NORMALISED, "gate above up in one stack; a gated shared expert",
              merged=True, shared=SHARED, shared_gate=True),
        small("llada-moe", PLAIN, "not normalised"),
        small("deepseek", Rule(2, scale=1.5), "not normalised, a scale",
              shared_intermediate=SHARED,
              keys={"expert_shared_count": 2, "expert_weights_scale": 1.5}),
        small("granite_swa", NORMALISED, "gate above up, in the shared expert as well",
              merged=True, shared=SHARED, shared_merged=True, **own_width),
        small("maple", NORMALISED, "limits before the activation, an array", gain=3.0,
              down_gain=0.7, activation=limited(1.5, before=True),
              keys={"swiglu_clamp_exp": [1.5]}),
        small("nomic-bert-moe", PLAIN, "experts without a gate; GELU", gated=False,
              activation=gelu_tanh, down_gain=2.5, **own_width),
        small("qwen3moe", Rule(2, norm=True, n_group=3, topk_group=2, group_score="top2_sum"),
              "groups, which no model of the architecture has", variant="qwen3moe-groups",
              experts=9, keys={"expert_group_count": 3, "expert_group_used_count": 2}),
    ]


def completed_models():
    """Without expert_gating_func."""
    keys = ONE_SHARED | {"expert_weights_scale": 1.8}
    glm = dict(shared_intermediate=WIDTH, blocks=48, **BIASED)
    glm_keys = keys | NORM_KEY | {"nextn_predict_layers": 1, "vocab_size": 154880}
    return [
        small("deepseek2", Rule(2, scale=1.8), "27 blocks: a softmax", blocks=27,
              variant="deepseek2-lite", shared_intermediate=WIDTH, keys=keys),
        small("deepseek2", sigmoid(scale=1.8), "48 blocks, one of them for the next token but one, "
              "and a vocabulary of 154880: GLM-4.7-Flash, a sigmoid", variant="deepseek2-glm-flash",
              keys=glm_keys, **glm),
        small("deepseek2", Rule(2, norm=True, scale=1.8), "as many blocks, another vocabulary: a "
              "softmax, with the bias that the file has", variant="deepseek2-other-vocabulary",
              keys=glm_keys | {"vocab_size": 128256}, **glm),
        small("deepseek2-ocr", PLAIN, "a softmax, not normalised, no scale", shared=WIDTH,
              keys=ONE_SHARED),
        small("mistral4", NORMALISED, "a softmax", shared_intermediate=WIDTH,
              keys=ONE_SHARED | NORM_KEY),
        small("hy_v3", sigmoid(scale=2.5), "a sigmoid; the bias has no suffix",
              bias_name="exp_probs_b", shared=WIDTH,
              keys=NORM_KEY | {"expert_weights_scale": 2.5}, **BIASED),
        small("laguna", sigmoid(scale=2.5), "a sigmoid", shared=WIDTH,
              keys=NORM_KEY | {"expert_weights_scale": 2.5}, **BIASED),
        small("cohere2moe", sigmoid(norm=False), "a sigmoid; the mean with the shared expert",
              shared=WIDTH, mean=True, keys=ONE_SHARED),
        small("step35", sigmoid(scale=3.0), "a sigmoid; limits after the activation, one for each "
              "block", layers=2, dense=1, shared=WIDTH, gain=3.0, down_gain=0.7,
              activation=limited(1.2, before=False), shared_activation=limited(2.0, before=False),
              keys=NORM_KEY | {"expert_weights_scale": 3.0, "swiglu_clamp_exp": [0.0, 1.2],
                               "swiglu_clamp_shexp": [0.0, 2.0]}, **BIASED),
        small("glm5-next", sigmoid(scale=2.5), "a sigmoid; limits before the activation, those of "
              "the shared expert left out", shared_intermediate=WIDTH, gain=3.0, down_gain=0.7,
              activation=limited(1.5, before=True),
              keys=NORM_KEY | ONE_SHARED | {"expert_weights_scale": 2.5,
                                            "swiglu_clamp_exp": [1.5]}, **BIASED),
        small("mimo2", sigmoid(), "a sigmoid, normalised, without keys", **BIASED),
        small("nemotron_h_moe", sigmoid(scale=2.5), "a sigmoid; no gate, squared ReLU, a latent, "
              "and experts in use for each block", layers=2, dense=1, gated=False,
              hidden=64, shared=WIDTH, activation="relu2", latent=32, gain=1.0, down_gain=0.8,
              latent_names=("ffn_latent_down", "ffn_latent_up"),
              plain={"expert_used_count": [0, 2]},
              keys=NORM_KEY | {"expert_weights_scale": 2.5, "expert_group_count": 1,
                               "moe_latent_size": 32}, **BIASED),
    ]


def scored_models():
    """Which name the score."""
    scale = NORM_KEY | SIGMOID_KEY | ONE_SHARED | {"expert_weights_scale": 2.5}
    shared = dict(shared_intermediate=WIDTH, **BIASED)
    limits = dict(gain=3.0, down_gain=0.7)
    v4 = NORM_KEY | ONE_SHARED | {"expert_weights_scale": 2.5, "swiglu_clamp_exp": [1.5],
                                  "swiglu_clamp_shexp": [1.5]}
    v4_parts = dict(shared_intermediate=WIDTH, activation=limited(1.5, before=True), **limits,
                    plain={"expert_gating_func": 4})
    return [
        small("deepseek32", sigmoid(scale=2.5), "as deepseek2", keys=scale, **shared),
        small("dots3note", sigmoid(scale=2.5), "as dots1", keys=scale, **shared),
        small("bailingmoe3", sigmoid(scale=2.5), "limits after the activation", **limits,
              activation=limited(1.2, before=False), shared_activation="silu_glu",
              keys=scale | {"swiglu_clamp_exp": [1.2]}, **shared),
        small("kimi-linear", sigmoid(scale=2.5), "normalised without a key", **shared,
              keys=SIGMOID_KEY | ONE_SHARED | {"expert_weights_scale": 2.5}),
        small("kimi-k3", sigmoid(scale=2.5), "SiTU, a latent with a norm", hidden=64, latent=32,
              latent_names=("ffn_routed_down", "ffn_routed_up", "ffn_routed_norm"),
              activation=situ(4.0, 25.0), **shared, keys=scale,
              plain={"activation.situ_beta": 4.0, "activation.situ_linear_beta": 25.0}),
        small("hy_v4", sigmoid(scale=2.5), "a limit of the routed experts alone", **limits,
              activation=limited(1.5, before=True), shared_activation="silu_glu",
              keys=scale | {"swiglu_clamp_exp": [1.5]}, **shared),
        small("minimax-m3", sigmoid(scale=2.0), "the activation of gpt-oss, in both",
              activation="oai_swiglu", gain=2.5, down_gain=0.3,
              keys=scale | {"expert_weights_scale": 2.0}, **shared),
        small("deepseek4", Rule(2, "sqrtsoftplus", norm=True, scale=2.5), "limits in both",
              keys=v4, **v4_parts, **BIASED),
        small("deepseek4", Rule(2, "sqrtsoftplus", norm=True, scale=2.5), "experts by token ids",
              variant="deepseek4-hash", vocabulary=32, keys=v4, **v4_parts),
        small("gemma4", NORMALISED, "a norm before the router, a factor for each expert",
              activation="gelu_glu", merged=True, expert_scale=True, router_norm=True,
              down=Type.Q8_0),
    ]


def gguf_rules():
    for each in [*softmax_models(), *completed_models(), *scored_models()]:
        gguf_cases.make(each)


CASES = [gguf_rules]
