"""Families that transformers has since autumn 2026, and older ones in the names of its memory.

The same as hf_family_cases.py otherwise. The limits of clamped activations are small enough to be
reached.
"""
import json
import shutil

import safetensors.torch
import torch
import transformers

import fixture_case
from hf_cases import LATENT_ATTENTION
from hf_family_cases import ONE_LAYER, SIGMOID, SIZES, case, config_of
from routing_reference import Rule

SPARSE = dict(mlp_layer_types=["sparse"])
GROUPS = dict(n_group=2, topk_group=1)
TOP2_SUM = dict(group_score="top2_sum", n_group=2, topk_group=1)
INDEXER = dict(index_n_heads=2, index_head_dim=16, index_topk=16)
LINEAR = dict(linear_key_head_dim=16, linear_value_head_dim=16, linear_num_key_heads=1,
              linear_num_value_heads=2)


def text_model(name, config, rule, meta, model_class, layers=lambda m: m.layers, **more):
    """One layer of a text model of a larger one."""
    case(name, config, rule, 0, meta, model_class=getattr(transformers, model_class),
         pick=more.pop("pick", lambda m: layers(m)[0].mlp), **more)


def glm5_next(name="glm5_next_bf16"):
    config = config_of("Glm5NextTextConfig", SIZES, ONE_LAYER, LATENT_ATTENTION, SPARSE, INDEXER,
                       n_routed_experts=6, num_experts_per_tok=3, swiglu_limit=1.0,
                       linear_head_dim=16, linear_num_heads=2, hc_mult=2, index_kpool=4,
                       qk_rope_head_dim=0)
    text_model(name, config, Rule(3, scale=2.5, **SIGMOID),
               dict(shared_I=32, notes="gate and up of both kinds of experts clamped at 1"),
               "Glm5NextTextModel")


def qwen4_exp(name="qwen4_exp_bf16"):
    config = config_of("Qwen4ExpTextConfig", SIZES, ONE_LAYER, LINEAR, num_experts=5,
                       shared_expert_intermediate_size=48, num_experts_per_tok=3, head_dim=16,
                       layer_types=["linear_attention"])
    text_model(name, config, Rule(3, norm=True), dict(shared_I=48, notes="as Qwen3.5"),
               "Qwen4ExpTextModel", dropped=("hyper_connection_mixer", "layers.0.attn_hyper",
                                             "layers.0.mlp_hyper"))


def flint(name="flint_bf16"):
    config = config_of("FlintConfig", SIZES, ONE_LAYER, num_experts=6, num_experts_per_tok=3,
                       shared_expert_intermediate_size=48, head_dim=16, mlp_only_layers=[])
    case(name, config, Rule(3, **SIGMOID), 0,
         dict(shared_I=48, notes="no bias; the shared expert has no gate"))


def mellum(name="mellum_bf16"):
    config = config_of("MellumConfig", SIZES, ONE_LAYER, SPARSE, num_experts=6, head_dim=16,
                       num_experts_per_tok=3)
    case(name, config, Rule(3, norm=True), 0, dict(notes="softmax, normalised"))


def lara_mini(name="lara_mini_bf16"):
    config = config_of("LaraMiniConfig", SIZES, ONE_LAYER, LINEAR, num_experts=6, head_dim=16,
                       num_experts_per_tok=3, shared_expert_intermediate_size=48,
                       layer_types=["linear_attention"])
    case(name, config, Rule(3, norm=True), 0,
         dict(shared_I=48, notes="softmax; the shared expert has no gate"))


def mistral_large4(name="mistral_large4_bf16"):
    config = config_of("MistralLarge4TextConfig", SIZES, ONE_LAYER, LATENT_ATTENTION, INDEXER,
                       GROUPS, SPARSE, n_routed_experts=6, num_experts_per_tok=3,
                       routed_scaling_factor=1.5)
    text_model(name, config, Rule(3, norm=True, scale=1.5, **TOP2_SUM),
               dict(shared_I=32, notes="softmax, groups by top-2 sum"), "MistralLarge4TextModel")


def hy_v4(name="hy_v4_bf16"):
    config = config_of("HYV4Config", SIZES, ONE_LAYER, LATENT_ATTENTION, INDEXER, SPARSE,
                       n_routed_experts=6, num_experts_per_tok=3, swiglu_limit=1.0, hc_mult=2)
    case(name, config, Rule(3, scale=2.827, **SIGMOID), 0,
         dict(shared_I=32, notes="the routed experts alone are clamped, at 1"))


def dots3_note(name="dots3_note_bf16"):
    config = config_of("Dots3NoteTextConfig", SIZES, ONE_LAYER, LATENT_ATTENTION, INDEXER, SPARSE,
                       n_routed_experts=6, num_experts_per_tok=3, routed_scaling_factor=1.5,
                       shared_experts_intermediate_size=48)
    case(name, config, Rule(3, scale=1.5, **SIGMOID), 0,
         dict(shared_I=48, notes="a shared expert of a width of its own"))


def beam(name="beam_bf16"):
    config = config_of("BeamConfig", SIZES, ONE_LAYER, GROUPS, SPARSE, num_experts=6, head_dim=16,
                       num_experts_per_tok=3)
    case(name, config, Rule(3, scale=2.5, **SIGMOID, **TOP2_SUM), 0,
         dict(notes="the module scales the sum, not the weights"), scale_after=2.5, check=False)


def granitemoe_swa(name="granitemoe_swa_bf16"):
    config = config_of("GraniteMoeSWAConfig", ONE_LAYER, intermediate_size=32,
                       num_local_experts=5, num_experts_per_tok=3, shared_intermediate_size=48)

    def forward(block):
        both = lambda x: block.block_sparse_moe(x) + block.shared_mlp(x)
        return both

    case(name, config, Rule(3, score="none", post="softmax"), 0,
         dict(shared_I=48, notes="block_sparse_moe.experts.gate_up_proj, shared_mlp beside it"),
         pick=lambda m: Whole(m.model.layers[0]), forward=forward)


def kolibri1(name="kolibri1_bf16"):
    config = config_of("Kolibri1Config", SIZES, ONE_LAYER, num_experts=6, num_experts_per_tok=3,
                       shared_expert_intermediate_size=48, head_dim=16, norm_topk_prob=True)
    case(name, config, Rule(3, score="none", post="sigmoid", norm=True), 0,
         dict(shared_I=48, notes="chosen by logits and a bias; sigmoid of the chosen"))


def axk2(name="axk2_bf16"):
    config = config_of("AXK2Config", SIZES, ONE_LAYER, LATENT_ATTENTION, INDEXER, GROUPS, SPARSE,
                       n_routed_experts=6, num_experts_per_tok=2, head_dim=16, gated_norm_rank=4)
    case(name, config, Rule(2, scale=2.5, **SIGMOID, **TOP2_SUM), 0,
         dict(shared_I=32, notes="groups masked by zero, which no chosen key is below here"),
         dropped=("model.layers.0.self_attn",))


class Whole:
    """A layer whose router and experts lie in a block, beside which its shared expert is."""

    def __init__(self, layer):
        self.block_sparse_moe, self.shared_mlp = layer.block_sparse_moe, layer.shared_mlp
        self.router, self.experts = layer.block_sparse_moe.router, layer.block_sparse_moe.experts


def privacy_filter(name="openai_privacy_filter_bf16"):
    config = config_of("OpenAIPrivacyFilterConfig", ONE_LAYER, intermediate_size=32, head_dim=16,
                       num_local_experts=5, num_experts_per_tok=3, sliding_window=16)
    text_model(name, config, Rule(3, score="none", post="softmax"),
               dict(notes="stacks [E,H,2I], gate before up; weights of which 3 make one"),
               "OpenAIPrivacyFilterModel", scale_after=3.0, check=False)


def muse_spark(name="muse_spark_bf16"):
    config = config_of("MuseSparkTextConfig", SIZES, ONE_LAYER, num_local_experts=6,
                       num_experts_per_tok=3, moe_hidden_size=96, routed_scaling_factor=2.5,
                       output_multiplier=0.75, head_dim=32)
    text_model(name, config, Rule(3, scale=2.5, **SIGMOID),
               dict(notes="latent 96; an RMS norm of what experts read and of what each gives, whose "
                          "weight multiplies first; logits times 0.75"),
               "MuseSparkTextModel", before=lambda block: lambda x: x * 0.75)


def copy_results(source, folder, notes, form):
    for file in ("x.npy", "y.npy", "ids.npy", "weights.npy"):
        shutil.copy(source / file, folder / file)
    meta = json.loads((source / "case.json").read_text())
    fixture_case.write_json(folder / "case.json", {**meta, "format": form, "notes": notes})


def save_merged(name):
    """An older case in the names that its model has in memory."""
    source, folder = fixture_case.FIXTURES / name, fixture_case.empty_folder(f"{name}_merged")
    model = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=torch.bfloat16)
    model.save_pretrained(folder, save_original_format=False)
    (folder / "generation_config.json").unlink(missing_ok=True)
    copy_results(source, folder, f"{name}, saved with save_original_format=False", "bf16 merged")


def merged_families():
    for name in ("granitemoeshared_bf16", "longcat_flash_bf16", "nemotron_h_bf16"):
        save_merged(name)


def apart(tensors, lists):
    """gpt-oss with a linear module for each expert's matrix, or for its gate and up together."""
    out = {n: t for n, t in tensors.items() if ".experts." not in n}
    block = "model.layers.0.mlp.experts."
    gate_up, gate_up_bias, down, down_bias = (
        tensors[block + n]
        for n in ("gate_up_proj", "gate_up_proj_bias", "down_proj", "down_proj_bias")
    )
    for e in range(len(down)):
        rows, bias = gate_up[e].T, gate_up_bias[e]
        if lists:
            parts = {f"gate_up_projs.{e}": (rows, bias), f"down_projs.{e}": (down[e].T, down_bias[e])}
        else:
            stem = f"experts.{e}."
            parts = {stem + "gate_proj": (rows[0::2], bias[0::2]),
                     stem + "up_proj": (rows[1::2], bias[1::2]),
                     stem + "down_proj": (down[e].T, down_bias[e])}
        for name, (weight, vector) in parts.items():
            out[f"{block}{name}.weight"] = weight.contiguous()
            out[f"{block}{name}.bias"] = vector.contiguous()
    return out


def gpt_oss_apart():
    """In the names of llm-compressor's linear experts, and of GPTQModel's and Unsloth's two lists."""
    source = fixture_case.FIXTURES / "gpt_oss_bf16"
    tensors = safetensors.torch.load_file(source / "model.safetensors")
    for name, lists in (("gpt_oss_bf16_apart", False), ("gpt_oss_bf16_lists", True)):
        folder = fixture_case.empty_folder(name)
        safetensors.torch.save_file(apart(tensors, lists), folder / "model.safetensors",
                                    metadata={"format": "pt"})
        shutil.copy(source / "config.json", folder / "config.json")
        copy_results(source, folder, "gpt_oss_bf16, its experts apart; by the script", "bf16")


CASES = [
    glm5_next,
    qwen4_exp,
    flint,
    mellum,
    lara_mini,
    mistral_large4,
    hy_v4,
    dots3_note,
    beam,
    granitemoe_swa,
    privacy_filter,
    kolibri1,
    axk2,
    muse_spark,
    merged_families,
    gpt_oss_apart,
]
