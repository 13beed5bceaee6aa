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


CASES = [kimi_k3]
