"""Folders as mlx-lm writes them: stacks of experts, packed codes with scales and biases, settings
of single modules in config.json. y is what mlx-lm's own block computes in float32 on those codes,
whose scales and biases are bfloat16.
"""
import functools

import mlx.core as mx
import mlx_lm
import numpy as np
from mlx.utils import tree_flatten, tree_map, tree_unflatten
from mlx_lm.models import gpt_oss, granitemoehybrid, mixtral, qwen3_5_moe, qwen3_moe
from mlx_lm.models.switch_layers import SwitchLinear
from mlx_lm.utils import quantize_model, save_config, save_model

import fixture_case
import routing_reference
from routing_reference import Rule

ATTENTION = dict(
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=32,
    vocab_size=32,
    rms_norm_eps=1e-6,
    max_position_embeddings=64,
    rope_theta=1e4,
    tie_word_embeddings=False,
)
QWEN3 = dict(
    model_type="qwen3_moe",
    hidden_size=64,
    intermediate_size=64,
    moe_intermediate_size=96,
    num_experts=4,
    num_experts_per_tok=2,
    norm_topk_prob=True,
    decoder_sparse_step=1,
    mlp_only_layers=[],
    **ATTENTION,
)
LINEAR_ATTENTION = dict(
    linear_num_value_heads=2,
    linear_num_key_heads=2,
    linear_key_head_dim=32,
    linear_value_head_dim=32,
    linear_conv_kernel_dim=4,
    full_attention_interval=1,
)


def randomise(model, rng, wide):
    """Every parameter in bfloat16: matrices of a gain that keeps the rms of y near one. wide is
    that of gate and up."""

    def draw(name, array):
        gain = wide if "gate_proj.w" in name or "up_proj.w" in name else 1.6
        gain = gain / np.sqrt(array.shape[-1]) if array.ndim > 1 else 0.5
        return mx.array(rng.standard_normal(array.shape) * gain).astype(mx.bfloat16)

    pairs = [(name, draw(name, array)) for name, array in tree_flatten(model.parameters())]
    model.update(tree_unflatten(pairs))


def widen(model):
    """Floats as float32, which changes no value."""
    floats = (mx.bfloat16, mx.float32)
    model.update(
        tree_map(lambda p: p.astype(mx.float32) if p.dtype in floats else p, model.parameters())
    )


def take_global_scales(block):
    """mlx multiplies under these on a GPU alone: such weights are dequantized."""
    for name, child in block.switch_mlp.children().items():
        if child.get("global_scale") is None:
            continue
        experts = [
            mx.dequantize(
                child.weight[e],
                child.scales[e],
                group_size=child.group_size,
                bits=child.bits,
                mode=child.mode,
                global_scale=child.global_scale[e],
                dtype=mx.float32,
            )
            for e in range(child.num_experts)
        ]
        plain = SwitchLinear(child.input_dims, child.output_dims, child.num_experts, bias=False)
        plain.weight = mx.stack(experts)
        setattr(block.switch_mlp, name, plain)


def write(name, module, config, settings, router, rule, notes, format, mode="affine", wide=1.6):
    """settings(path) is what a module is quantised by: True, False or a dictionary."""
    rng = fixture_case.case_rng(name)
    folder = fixture_case.empty_folder(name)
    model = module.Model(module.ModelArgs.from_dict(config))
    randomise(model, rng, wide)
    if settings:
        model, config = quantize_model(
            model, config, 32, 4, mode, quant_predicate=lambda path, _: settings(path)
        )
    save_model(folder, model)
    (folder / "model.safetensors.index.json").unlink()
    save_config(dict(config), folder / "config.json")
    widen(model)
    layer = model.layers[0]
    block = layer.block_sparse_moe if hasattr(layer, "block_sparse_moe") else layer.mlp
    if hasattr(block, "switch_mlp"):
        take_global_scales(block)
    gate = functools.reduce(getattr, router.split("."), block)
    sizes = {**config, **config.get("text_config", {})}
    hidden = sizes["hidden_size"]

    def acceptable(x):
        logits = np.array(gate(mx.array(x)), dtype=np.float64)
        routed = routing_reference.route(rule, logits)
        return routed if routed.gap > fixture_case.MIN_GAP else None

    x, routed = fixture_case.draw_input(rng, 5, hidden, acceptable)
    y = block(mx.array(x)[None])[0]
    if hasattr(layer, "shared_mlp"):
        y = y + layer.shared_mlp(mx.array(x))
    y = np.array(y)
    meta = dict(
        layer=0,
        tool=f"mlx-lm {mlx_lm.__version__}, mlx {mx.__version__}",
        y_from=f"{type(block).__name__} of mlx-lm in float32 on the saved codes",
        dtype="float32",
        family=config["model_type"],
        H=hidden,
        I=sizes.get("moe_intermediate_size", sizes["intermediate_size"]),
        E=sizes.get("num_experts", sizes.get("num_local_experts")),
        k=rule.top_k,
        format=format,
        routing=dict(
            score=rule.score,
            post=rule.post,
            norm=rule.norm,
            scale=1.0,
            n_group=1,
            topk_group=1,
            group_score="none",
            has_selection_bias=False,
            has_router_bias="bias" in gate,
        ),
        notes=notes,
    )
    fixture_case.write_case(folder, meta, x, y, routed.ids, routed.weights)


def by_end(path, table, default):
    for end, settings in table.items():
        if path.endswith(end):
            return settings
    return default


def affine(bits, group):
    return dict(group_size=group, bits=bits)


def qwen3_moe_mlx_bits():
    table = {
        "mlp.gate": affine(8, 64),
        "switch_mlp.gate_proj": affine(3, 32),
        "switch_mlp.up_proj": affine(6, 64),
        "switch_mlp.down_proj": affine(5, 32),
    }
    write(
        "qwen3_moe_mlx_bits",
        qwen3_moe,
        QWEN3,
        lambda path: by_end(path, table, True),
        "gate",
        Rule(2, norm=True),
        "router of 8 bits, gate of 3, up of 6 in groups of 64, down of 5",
        "mlx affine",
    )


def qwen3_moe_mlx_fp():
    table = {
        "mlp.gate": False,
        "switch_mlp.gate_proj": dict(group_size=16, bits=4, mode="nvfp4", global_scale=True),
        "switch_mlp.up_proj": dict(group_size=32, bits=8, mode="mxfp8"),
        "switch_mlp.down_proj": dict(group_size=16, bits=4, mode="nvfp4"),
    }
    write(
        "qwen3_moe_mlx_fp",
        qwen3_moe,
        QWEN3,
        lambda path: by_end(path, table, True),
        "gate",
        Rule(2, norm=True),
        "gate nvfp4 with a global scale for each expert, up mxfp8, down nvfp4 without one",
        "mlx nvfp4 mxfp8",
        mode="mxfp4",
    )


def qwen3_5_moe_mlx():
    config = dict(
        model_type="qwen3_5_moe",
        text_config=dict(
            QWEN3,
            model_type="qwen3_5_moe_text",
            num_experts=6,
            num_experts_per_tok=3,
            shared_expert_intermediate_size=64,
            **LINEAR_ATTENTION,
        ),
    )
    table = {
        "mlp.gate": affine(8, 64),
        "shared_expert_gate": affine(8, 64),
        "switch_mlp.down_proj": affine(2, 32),
        "shared_expert.gate_proj": affine(8, 32),
        "shared_expert.up_proj": affine(4, 64),
        "shared_expert.down_proj": False,
    }
    write(
        "qwen3_5_moe_mlx",
        qwen3_5_moe,
        config,
        lambda path: by_end(path, table, True),
        "gate",
        Rule(3, norm=True),
        "prefix language_model, gate and up of 4 bits, down of 2, the shared expert of 8 and 4 "
        "bits and in part not quantised",
        "mlx affine",
    )


def gpt_oss_mlx():
    config = dict(
        ATTENTION,
        model_type="gpt_oss",
        hidden_size=64,
        intermediate_size=96,
        num_local_experts=4,
        num_experts_per_tok=2,
        num_hidden_layers=2,
        layer_types=["sliding_attention", "full_attention"],
    )
    write(
        "gpt_oss_mlx",
        gpt_oss,
        config,
        lambda path: affine(8, 64) if path.endswith("router") else True,
        "router",
        Rule(2, score="none", post="softmax"),
        "gate, up and down apart in mxfp4, each with a bias; router affine of 8 bits with a bias",
        "mlx mxfp4",
        mode="mxfp4",
        wide=2.7,
    )


def mixtral_mlx_bf16():
    config = dict(
        ATTENTION,
        model_type="mixtral",
        hidden_size=64,
        intermediate_size=96,
        num_local_experts=4,
        num_experts_per_tok=2,
    )
    write(
        "mixtral_mlx_bf16",
        mixtral,
        config,
        None,
        "gate",
        Rule(2, norm=True),
        "stacks of experts in bf16, block_sparse_moe.switch_mlp",
        "bf16",
    )


def granitemoehybrid_mlx():
    config = dict(
        ATTENTION,
        model_type="granitemoehybrid",
        hidden_size=64,
        intermediate_size=96,
        shared_intermediate_size=64,
        num_local_experts=4,
        num_experts_per_tok=2,
        layer_types=["attention"],
        attention_bias=False,
        embedding_multiplier=1.0,
        attention_multiplier=1.0,
        logits_scaling=1.0,
        residual_multiplier=1.0,
        tie_word_embeddings=True,
    )
    write(
        "granitemoehybrid_mlx",
        granitemoehybrid,
        config,
        lambda path: affine(8, 64) if path.endswith("router.layer") else True,
        "router.layer",
        Rule(2, score="none", post="softmax"),
        "gate and up of the shared expert, which lies beside the block, in one matrix of codes",
        "mlx affine",
    )


CASES = [
    qwen3_moe_mlx_bits,
    qwen3_moe_mlx_fp,
    qwen3_5_moe_mlx,
    gpt_oss_mlx,
    granitemoehybrid_mlx,
    mixtral_mlx_bf16,
]
