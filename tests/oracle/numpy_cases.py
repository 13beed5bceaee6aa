"""Families whose code transformers does not have: tensors and configuration as released, and y in
float64 by the published formulas, with the parts of routing_reference.py.
"""
import dataclasses

import numpy as np
import safetensors.torch
import torch

import fixture_case
import routing_reference
from hf_quantised_cases import E2M1, mxfp4_encode
from routing_reference import Rule


def plain(rng, rows, columns, gain):
    values = rng.standard_normal((rows, columns)) * gain / np.sqrt(columns)
    return fixture_case.to_bf16(values)


def mxfp4_decode(blocks, scales):
    codes = np.stack([blocks & 15, blocks >> 4], axis=-1).reshape(*scales.shape, 32)
    values = np.where(codes & 8, -1.0, 1.0) * E2M1[codes & 7]
    values *= np.exp2(scales.astype(np.float64) - 127)[..., None]
    return values.reshape(*scales.shape[:-1], -1)


FLAGS = dict(has_selection_bias=True, has_router_bias=False)


class Tensors:
    """Those of a file, and the values it then holds."""

    def __init__(self, prefix):
        self.prefix, self.file = prefix, {}

    def bf16(self, name, values):
        self.file[self.prefix + name] = torch.from_numpy(values).to(torch.bfloat16)
        return values.astype(np.float64)

    def mxfp4(self, name, values):
        blocks, scales = mxfp4_encode(values)
        self.file[f"{self.prefix}{name}_packed"] = blocks.flatten(-2).contiguous()
        self.file[f"{self.prefix}{name}_scale"] = scales
        return mxfp4_decode(blocks.numpy(), scales.numpy())


def situ(gate, up, beta=4.0, up_beta=25.0):
    gate = beta * np.tanh(gate / beta) * routing_reference.sigmoid(gate)
    return gate * up_beta * np.tanh(up / up_beta)


def rms_norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight


KIMI_K3 = dict(
    model_type="kimi_linear",
    hidden_size=64,
    intermediate_size=16,
    moe_intermediate_size=96,
    num_experts=5,
    num_experts_per_token=3,
    num_shared_experts=1,
    moe_renormalize=True,
    moe_router_activation_func="sigmoid",
    topk_method="noaux_tc",
    use_grouped_topk=True,
    num_expert_group=1,
    topk_group=1,
    routed_scaling_factor=1.0,
    routed_expert_hidden_size=32,
    latent_moe_use_norm=True,
    rms_norm_eps=1e-5,
    hidden_act="situ",
    activation_situ_beta=4.0,
    activation_situ_linear_beta=25.0,
    quantization_config=dict(quant_method="compressed-tensors", format="mxfp4-pack-quantized"),
)


class KimiK3:
    """Experts that work in a latent of 32, whose sum is normalised before it is left."""

    rule = Rule(KIMI_K3["num_experts_per_token"], score="sigmoid", norm=True)

    def __init__(self, rng):
        hidden, latent = KIMI_K3["hidden_size"], KIMI_K3["routed_expert_hidden_size"]
        experts, width = KIMI_K3["num_experts"], KIMI_K3["moe_intermediate_size"]
        self.tensors = Tensors("language_model.model.layers.1.block_sparse_moe.")
        bf16 = lambda name, *size: self.tensors.bf16(f"{name}.weight", plain(rng, *size, 1.5))
        mxfp4 = lambda name, *size: self.tensors.mxfp4(f"{name}.weight", plain(rng, *size, 2.0))
        self.router = bf16("gate", experts, hidden)
        self.bias = (0.3 * rng.standard_normal(experts)).astype(np.float32)
        self.tensors.file[f"{self.tensors.prefix}gate.e_score_correction_bias"] = torch.from_numpy(
            self.bias
        )
        self.enter = bf16("routed_expert_down_proj", latent, hidden)
        self.leave = bf16("routed_expert_up_proj", hidden, latent)
        norm = fixture_case.to_bf16(1.0 + 0.2 * rng.standard_normal(latent))
        self.norm = self.tensors.bf16("routed_expert_norm.weight", norm)
        self.shared = dict(
            gate=bf16("shared_experts.gate_proj", width, hidden),
            up=bf16("shared_experts.up_proj", width, hidden),
            down=bf16("shared_experts.down_proj", hidden, width),
        )
        self.experts = [
            dict(
                gate=mxfp4(f"experts.{e}.w1", width, latent),
                up=mxfp4(f"experts.{e}.w3", width, latent),
                down=mxfp4(f"experts.{e}.w2", latent, width),
            )
            for e in range(experts)
        ]

    def route(self, x):
        """None where a near-tie decides, or where the bias does not matter."""
        logits = x.astype(np.float64) @ self.router.T
        routed = routing_reference.route(self.rule, logits, self.bias)
        matters = routing_reference.every_setting_matters(
            self.rule, logits, self.bias, routed.ids
        )
        return routed if matters and routed.gap >= fixture_case.MIN_GAP else None

    def forward(self, x, routed):
        x = x.astype(np.float64)
        inner = routing_reference.moe_layer(x @ self.enter.T, routed, self.experts, situ)
        inner = rms_norm(inner, self.norm, KIMI_K3["rms_norm_eps"])
        return inner @ self.leave.T + routing_reference.ffn(x, self.shared, situ)


def kimi_k3(name="kimi_k3_mxfp4"):
    rng = fixture_case.case_rng(name)
    folder = fixture_case.empty_folder(name)
    layer = KimiK3(rng)
    x, routed = fixture_case.draw_input(rng, 7, KIMI_K3["hidden_size"], layer.route)
    safetensors.torch.save_file(layer.tensors.file, folder / "model.safetensors")
    config = dict(model_type="kimi_k3", text_config=KIMI_K3)
    fixture_case.write_json(folder / "config.json", config)
    meta = dict(
        layer=1,
        family="kimi_k3",
        tool="numpy",
        y_from="the published formulas in float64, on the values of the file",
        dtype="float64",
        notes="experts in MXFP4, in a latent of 32 that is normalised before it is left; SiTU",
        H=KIMI_K3["hidden_size"],
        I=KIMI_K3["moe_intermediate_size"],
        shared_I=KIMI_K3["moe_intermediate_size"],
        E=KIMI_K3["num_experts"],
        k=layer.rule.top_k,
        format="mxfp4",
        routing={**dataclasses.asdict(layer.rule), **FLAGS},
    )
    y = layer.forward(x, routed)
    fixture_case.write_case(folder, meta, x, y, routed.ids, routed.weights)


class SoftmaxLayer:
    """Softmax of the logits, the best of them normalised; a shared expert where there is one."""

    def __init__(self, rng, block, experts, names, sizes, rule):
        hidden, width, shared_width = sizes
        self.hidden, self.rule, self.tensors = hidden, rule, Tensors(block)
        self.router = self.matrix(rng, "gate", experts, hidden, 2.0)
        each = [f"experts.{e}" for e in range(experts)]
        self.experts = [self.expert(rng, stem, names, hidden, width) for stem in each]
        self.shared = None
        if shared_width:
            self.shared = self.expert(rng, "shared_experts", names, hidden, shared_width)

    def matrix(self, rng, name, rows, columns, gain=1.5):
        return self.tensors.bf16(f"{name}.weight", plain(rng, rows, columns, gain))

    def expert(self, rng, stem, names, hidden, width):
        shapes = dict(gate=(width, hidden), up=(width, hidden), down=(hidden, width))
        return {
            part: self.matrix(rng, f"{stem}.{name}", *shapes[part])
            for part, name in zip(("gate", "up", "down"), names)
        }

    def beside(self, rng, prefix, names, hidden, width):
        """An MLP of the file that is no part of the block."""
        block, self.tensors.prefix = self.tensors.prefix, prefix
        self.expert(rng, "", names, hidden, width)
        self.tensors.prefix = block

    def route(self, x):
        logits = x.astype(np.float64) @ self.router.T
        routed = routing_reference.route(self.rule, logits)
        return routed if routed.gap >= fixture_case.MIN_GAP else None

    def forward(self, x, routed):
        silu = routing_reference.silu_glu
        x = x.astype(np.float64)
        return routing_reference.moe_layer(x, routed, self.experts, silu, self.shared)


def write_softmax_case(name, rng, layer, config, meta):
    folder = fixture_case.empty_folder(name)
    x, routed = fixture_case.draw_input(rng, 7, layer.hidden, layer.route)
    safetensors.torch.save_file(layer.tensors.file, folder / "model.safetensors")
    fixture_case.write_json(folder / "config.json", config)
    full = dict(
        family=config["model_type"],
        tool="numpy",
        y_from="the published formulas in float64, on the values of the file",
        dtype="float64",
        H=layer.hidden,
        E=len(layer.experts),
        k=layer.rule.top_k,
        format="bf16",
        routing={
            **dataclasses.asdict(layer.rule), "has_selection_bias": False, "has_router_bias": False
        },
    )
    y = layer.forward(x, routed)
    fixture_case.write_case(folder, {**meta, **full}, x, y, routed.ids, routed.weights)


def arctic(name="arctic_bf16"):
    """Layer 0 is dense under the same name; beside the experts lies the dense residual MLP."""
    rng = fixture_case.case_rng(name)
    names = ("w1", "w3", "w2")
    config = dict(
        architectures=["ArcticForCausalLM"], model_type="arctic", hidden_size=64,
        intermediate_size=48, num_hidden_layers=2, num_local_experts=6, num_experts_per_tok=2,
        moe_layer_frequency=2, use_residual=True, parallel_attn_mlp_res=True, hidden_act="silu",
    )
    layer = SoftmaxLayer(rng, "model.layers.1.block_sparse_moe.", 6, names, (64, 48, 0),
                         Rule(2, norm=True))
    layer.beside(rng, "model.layers.0.block_sparse_moe.mlp", names, 64, 48)
    layer.beside(rng, "model.layers.1.residual_mlp", names, 64, 64)
    notes = "w1/w3/w2; layer 0 dense under block_sparse_moe.mlp; the residual MLP is the program's"
    write_softmax_case(name, rng, layer, config, dict(layer=1, I=48, notes=notes))


def bailing_moe_1(name="bailing_moe_1_bf16"):
    rng = fixture_case.case_rng(name)
    config = dict(
        architectures=["BailingMoeForCausalLM"], model_type="bailing_moe", hidden_size=64,
        intermediate_size=16, moe_intermediate_size=32, num_hidden_layers=1, num_experts=6,
        num_experts_per_tok=3, num_shared_experts=2, norm_topk_prob=True, first_k_dense_replace=0,
        hidden_act="silu", norm_head=True, norm_softmax=False, use_bias=False,
    )
    layer = SoftmaxLayer(rng, "model.layers.0.mlp.", 6, ("gate_proj", "up_proj", "down_proj"),
                         (64, 32, 64), Rule(3, norm=True))
    notes = "Ling 1: softmax, normalised, no bias; two shared experts are one MLP of width 64"
    write_softmax_case(name, rng, layer, config, dict(layer=0, I=32, shared_I=64, notes=notes))


CASES = [kimi_k3, arctic, bailing_moe_1]
