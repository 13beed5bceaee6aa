"""Checkpoints as transformers' save_pretrained writes them, in bf16."""
import transformers

import fixture_case
import hf_model
from routing_reference import Rule

SMALL = dict(
    vocab_size=32,
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    max_position_embeddings=64,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
)
LATENT_ATTENTION = dict(
    num_key_value_heads=2,
    q_lora_rank=16,
    kv_lora_rank=16,
    qk_nope_head_dim=16,
    qk_rope_head_dim=16,
    v_head_dim=16,
)


def save_case(name, config, rule, layer, meta, tokens=7, fill_args=None, save_args=None):
    rng = fixture_case.case_rng(name)
    folder = fixture_case.empty_folder(name)
    model = hf_model.new_model(config, rng, **(fill_args or {}))
    model.save_pretrained(folder, **(save_args or {}))
    (folder / "generation_config.json").unlink(missing_ok=True)
    loaded = hf_model.load_fp32(folder)
    hf_model.finish_case(folder, loaded, layer, rule, rng, tokens, meta)


def mixtral(name="mixtral_bf16_sharded"):
    config = transformers.MixtralConfig(
        **SMALL, intermediate_size=32, num_local_experts=6, num_experts_per_tok=2
    )
    meta = dict(I=32, format="bf16", notes="three or more shards; w1 gate, w3 up, w2 down")
    save_case(
        name, config, Rule(2, norm=True), 1, meta, save_args=dict(max_shard_size="80KB")
    )


def mixtral_merged(name="mixtral_bf16_merged"):
    config = transformers.MixtralConfig(
        **{**SMALL, "num_hidden_layers": 1},
        intermediate_size=32,
        num_local_experts=5,
        num_experts_per_tok=2,
    )
    notes = "save_original_format=False: mlp.experts.gate_up_proj [E,2I,H], gate rows first"
    meta = dict(I=32, format="bf16 merged", notes=notes)
    save_args = dict(save_original_format=False)
    save_case(name, config, Rule(2, norm=True), 0, meta, tokens=5, save_args=save_args)


def qwen2_moe(name="qwen2_moe_bf16"):
    config = transformers.Qwen2MoeConfig(
        **SMALL,
        intermediate_size=40,
        moe_intermediate_size=48,
        shared_expert_intermediate_size=80,
        num_experts=6,
        num_experts_per_tok=4,
        norm_topk_prob=False,
        mlp_only_layers=[0],
    )
    notes = "layer 0 dense by mlp_only_layers; shared expert times sigmoid(gate); no normalisation"
    save_case(name, config, Rule(4), 1, dict(I=48, shared_I=80, format="bf16", notes=notes))


def qwen3_moe(name="qwen3_moe_bf16"):
    config = transformers.Qwen3MoeConfig(
        **SMALL,
        head_dim=16,
        intermediate_size=40,
        moe_intermediate_size=32,
        num_experts=12,
        num_experts_per_tok=4,
        norm_topk_prob=True,
        decoder_sparse_step=2,
    )
    notes = "layer 0 dense by decoder_sparse_step 2; config.json says num_local_experts"
    save_case(name, config, Rule(4, norm=True), 1, dict(I=32, format="bf16", notes=notes))


def qwen3_next(name="qwen3_next_bf16"):
    config = transformers.Qwen3NextConfig(
        **SMALL,
        head_dim=16,
        intermediate_size=40,
        moe_intermediate_size=32,
        shared_expert_intermediate_size=48,
        num_experts=10,
        num_experts_per_tok=5,
        linear_key_head_dim=16,
        linear_value_head_dim=16,
        linear_num_key_heads=1,
        linear_num_value_heads=2,
        layer_types=["linear_attention", "full_attention"],
        mlp_only_layers=[1],
    )
    notes = "layer 1 dense by mlp_only_layers; shared expert times sigmoid(gate); normalised"
    meta = dict(I=32, shared_I=48, format="bf16", notes=notes)
    save_case(name, config, Rule(5, norm=True), 0, meta, tokens=5)


def deepseek_v2(name="deepseek_v2_bf16"):
    config = transformers.DeepseekV2Config(
        **{**SMALL, **LATENT_ATTENTION},
        intermediate_size=40,
        moe_intermediate_size=32,
        n_routed_experts=8,
        num_experts_per_tok=3,
        n_shared_experts=2,
        n_group=4,
        topk_group=2,
        topk_method="group_limited_greedy",
        norm_topk_prob=False,
        routed_scaling_factor=2.0,
        first_k_dense_replace=1,
    )
    rule = Rule(3, scale=2.0, n_group=4, topk_group=2, group_score="max")
    notes = "softmax, group score is the maximum, no normalisation, two shared experts as one MLP"
    save_case(name, config, rule, 1, dict(I=32, shared_I=64, format="bf16", notes=notes))


def deepseek_v3_config(**sizes):
    return transformers.DeepseekV3Config(**{**SMALL, **LATENT_ATTENTION, **sizes})


def deepseek_v3(name="deepseek_v3_bf16"):
    config = deepseek_v3_config(
        intermediate_size=40,
        moe_intermediate_size=32,
        n_routed_experts=12,
        num_experts_per_tok=4,
        n_shared_experts=1,
        n_group=4,
        topk_group=2,
        routed_scaling_factor=2.5,
        first_k_dense_replace=1,
    )
    rule = Rule(4, "sigmoid", norm=True, scale=2.5, n_group=4, topk_group=2, group_score="top2_sum")
    notes = "e_score_correction_bias is F32 and not representable in bf16; it never enters weights"
    save_case(name, config, rule, 1, dict(I=32, shared_I=32, format="bf16", notes=notes))


GPT_OSS_FILL = dict(expert_gain=3.5, down_gain=0.2, transposed_experts=True)


def gpt_oss_config(**sizes):
    return transformers.GptOssConfig(**{**SMALL, **sizes}, head_dim=16, sliding_window=16)


def gpt_oss(name="gpt_oss_bf16"):
    config = gpt_oss_config(
        num_hidden_layers=1, intermediate_size=64, num_local_experts=4, num_experts_per_tok=2
    )
    notes = (
        "experts.gate_up_proj [E,H,2I] and down_proj [E,I,H] are stored transposed, gate and up "
        "interleaved; H = I, so shapes cannot tell; the clamps at 7 are reached"
    )
    meta = dict(I=64, format="bf16 merged transposed", notes=notes)
    rule = Rule(2, score="none", post="softmax")
    save_case(name, config, rule, 0, meta, fill_args=GPT_OSS_FILL)


CASES = [
    mixtral,
    qwen2_moe,
    qwen3_moe,
    qwen3_next,
    deepseek_v2,
    deepseek_v3,
    gpt_oss,
    mixtral_merged,
]
