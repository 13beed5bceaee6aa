"""Experts packed by AutoRound's own classes, one case for each of its integer packings: a qwen3_moe
of four experts whose gate, up and down differ in bits, as extra_config says.
"""
import importlib.metadata

import torch
from auto_round.export.export_to_awq.utils import WQLinear_GEMM, dequantize_gemm
from auto_round_extension.torch import qlinear_torch, qlinear_torch_zp

from tool_cases import write

TOOL = f"auto-round {importlib.metadata.version('auto-round')}"


def grid_of(weight, bits, group, symmetric):
    """(scales, zeros) [rows, groups] as the tool's packers take them; one zero if symmetric."""
    groups = weight.reshape(weight.shape[0], -1, group)
    low, high = groups.amin(-1).clamp(max=0), groups.amax(-1).clamp(min=0)
    if symmetric:  # half of the scales negative, which the tool's search also leaves
        scales = torch.maximum(-low, high) / (2 ** (bits - 1) - 0.5)
        scales[:, ::2] *= -1
        return scales.half().float(), 2 ** (bits - 1)
    scales = ((high - low) / (2**bits - 1)).half().float()
    return scales, (-low / scales).round().clamp(0, 2**bits - 1)


def linear_of(weight):
    linear = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    linear.weight.data = weight
    return linear


def gptq(layer_class, bits, symmetric, group=32, **more):
    def quantise(weight, rng):
        scales, zeros = grid_of(weight, bits, group, symmetric)
        if not symmetric:
            zeros = zeros.clamp(min=1)  # what is stored may be one less
        rows, columns = weight.shape
        layer = layer_class(bits, group, columns, rows, False, **more)
        layer.device = "cpu"
        layer.pack(linear_of(weight), scales, zeros, None, device="cpu")
        stored = {key: value.clone() for key, value in layer.state_dict().items()}
        layer.scales = layer.scales.float()
        if "g_idx" in stored:  # in order; the tool's forward takes no more rows with it than columns
            del layer.g_idx
        exact = layer(torch.eye(columns)).T.contiguous()
        assert (exact - weight).norm() < 0.5 * weight.norm()
        return stored, exact

    return quantise


def awq(weight, rng, group=32):
    scales, zeros = grid_of(weight, 4, group, False)
    layer = WQLinear_GEMM.from_linear(
        linear_of(weight), 4, group, False, scales.T.contiguous(), zeros.T.contiguous(), "cpu"
    )
    stored = {key: value.clone() for key, value in layer.state_dict().items()}
    wide = layer.scales.float()
    exact = dequantize_gemm(layer.qweight, layer.qzeros, wide, 4, group).T.contiguous()
    assert (exact - weight).norm() < 0.5 * weight.norm()
    return stored, exact


def config(packing, symmetric, **more):
    return dict(
        autoround_version="0.16.1",
        bits=4,
        block_name_to_quantize="model.layers",
        data_type="int",
        group_size=32,
        packing_format=packing,
        quant_method="auto-round",
        sym=symmetric,
        **more,
    )


def gptq_case(name="qwen3_moe_autoround_gptq"):
    tool = qlinear_torch_zp.QuantLinear
    parts = dict(gate=gptq(tool, 4, True), up=gptq(tool, 8, True), down=gptq(tool, 2, False))
    extra = {".*up_proj.*": {"bits": 8}}
    for expert in range(4):
        extra[f"model.layers.0.mlp.experts.{expert}.down_proj"] = {"bits": 2, "sym": False}
    notes = "gate 4 bits, up 8 bits by a pattern of extra_config, down 2 bits with zero points by "
    notes += "its names; scales of both signs"
    write(name, parts, config("auto_round:auto_gptq", True, extra_config=extra), TOOL, notes)


def own_case(name="qwen3_moe_autoround"):
    tool = qlinear_torch.QuantLinear
    parts = dict(
        gate=gptq(tool, 4, False), up=gptq(tool, 3, False), down=gptq(tool, 8, False, group=16)
    )
    extra = {".*up_proj.*": {"bits": 3}, ".*\\.down_proj$": {"bits": 8, "group_size": 16}}
    notes = "zero points as they are; gate 4 bits, up 3 bits, down 8 bits in groups of 16"
    write(name, parts, config("auto_round", False, extra_config=extra), TOOL, notes)


def gptqmodel_case(name="qwen3_moe_autoround_gptqmodel"):
    tool = qlinear_torch.QuantLinear
    parts = dict.fromkeys(("gate", "up", "down"), gptq(tool, 4, True, g_idx=True))
    notes = "zero points as they are, g_idx in order"
    write(name, parts, config("auto_round:gptqmodel", True), TOOL, notes)


def wide_case(name="qwen3_moe_autoround_wide"):
    tool = qlinear_torch_zp.QuantLinear
    parts = dict(gate=gptq(tool, 5, True), up=gptq(tool, 6, False), down=gptq(tool, 7, True))
    extra = {
        ".*gate_proj.*": {"bits": 5},
        ".*up_proj.*": {"bits": 6, "sym": False},
        ".*down_proj.*": {"bits": 7},
    }
    notes = "gate 5 bits, up 6 bits with zero points, down 7 bits"
    write(name, parts, config("auto_round:auto_gptq", True, extra_config=extra), TOOL, notes)


def awq_case(name="qwen3_moe_autoround_awq"):
    parts = dict.fromkeys(("gate", "up", "down"), awq)
    write(name, parts, config("auto_round:auto_awq", False), TOOL, "4 bits with zero points")


CASES = [gptq_case, own_case, gptqmodel_case, wide_case, awq_case]
