"""Experts under scales in the spellings that engines read and no quantising tool at hand writes:
W4AFP8, FP4 in other groups, E5M2, and FP8 of all experts in one tensor, as it is and transposed.
Each is a qwen3_moe of four experts (or the same under another family's name), decoded here by the
published layouts.
"""
import json

import safetensors.torch
import torch

import fixture_case
import hf_quantised_cases as quantised
from tool_cases import write

HERE = "written and decoded here by the published layouts"
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
SIZES = dict(hidden=256, width=128)


def nibbles(codes):
    codes = codes.to(torch.uint8)
    return codes[:, 0::2] | codes[:, 1::2] << 4


def w4afp8(weight, rng, group=128):
    """Two's complement, bf16 scales, as SGLang loads it."""
    groups = weight.reshape(weight.shape[0], -1, group)
    scale = (groups.abs().amax(-1) / 7).to(torch.bfloat16)
    codes = (groups / scale.float()[..., None]).round().clamp(-8, 7)
    stored = {
        "weight": nibbles(codes.reshape(weight.shape).to(torch.int8) & 15).view(torch.int8),
        "weight_scale_inv": scale,
        "input_scale": torch.tensor([0.02], dtype=torch.bfloat16),
    }
    return stored, (codes * scale.float()[..., None]).reshape(weight.shape)


def fp4(group, scale_of, name):
    def quantise(weight, rng):
        groups = weight.reshape(weight.shape[0], -1, group)
        scale, exact_scale = scale_of(groups.abs().amax(-1) / 6)
        scaled = groups / exact_scale[..., None]
        codes = (scaled.abs()[..., None] - E2M1).abs().argmin(-1)
        values = torch.where(scaled < 0, -1.0, 1.0) * E2M1[codes]
        bits = (codes | (scaled < 0).long() << 3).reshape(weight.shape)
        stored = {"weight": nibbles(bits).view(torch.int8), name: scale}
        return stored, (values * exact_scale[..., None]).reshape(weight.shape)

    return quantise


def e8m0(scale):
    exponent = torch.ceil(torch.log2(scale))
    return (exponent + 127).to(torch.uint8).view(torch.float8_e8m0fnu), torch.exp2(exponent)


def e4m3(scale):
    narrow = scale.to(torch.float8_e4m3fn)
    return narrow, narrow.float()


def bf16(scale):
    narrow = scale.to(torch.bfloat16)
    return narrow, narrow.float()


def e5m2(strategy):
    def quantise(weight, rng):
        if strategy == "none":
            code = weight.to(torch.float8_e5m2)
            return {"weight": code}, code.float()
        if strategy == "block":
            scale = quantised.fp8_encode(weight)[1] * 0.01
            grid = quantised.fp8_grid(scale, weight.shape)
        else:
            grid = scale = (weight.abs().amax(1, keepdim=True) / 57344).to(torch.float32)
        code = (weight / grid).to(torch.float8_e5m2)
        return {"weight": code, "weight_scale": scale}, code.float() * grid

    return quantise


def change_config(name, **values):
    path = fixture_case.FIXTURES / name / "config.json"
    fixture_case.write_json(path, {**json.loads(path.read_text()), **values})


def w4afp8_case(name="qwen3_moe_w4afp8"):
    parts = dict.fromkeys(("gate", "up", "down"), w4afp8)
    config = dict(quant_method="w4afp8", activation_scheme="static", weight_block_size=[128, 128])
    write(name, parts, config, HERE, "int4 in I8, bf16 scales for 128 columns", **SIZES)


def fp4_groups_case(name="qwen3_moe_fp4_groups"):
    parts = dict(
        gate=fp4(128, e8m0, "scale"),
        up=fp4(64, bf16, "weight_scale"),
        down=fp4(64, e4m3, "scale"),
    )
    notes = "gate in groups of 128 under E8M0, up 64 under bf16, down 64 under E4M3"
    write(name, parts, dict(quant_method="fp8"), HERE, notes, **SIZES)
    change_config(name, expert_dtype="fp4")


def e5m2_case(name="qwen3_moe_e5m2"):
    parts = dict(gate=e5m2("none"), up=e5m2("row"), down=e5m2("block"))
    notes = "gate without scales, up under one for each row, down for 128 x 128"
    write(name, parts, dict(quant_method="fp8"), HERE, notes, hidden=160, width=144)


# FP8 of all experts in one tensor.


def fp8_of(grid_of):
    """The scale of each element in place of one; merge() makes one of them."""

    def quantise(weight, rng):
        grid = grid_of(weight)
        code = (weight / grid).clamp(-448, 448).to(torch.float8_e4m3fn)
        return {"weight": code, "weight_scale": grid}, code.float() * grid

    return quantise


def tensor_grid(weight):
    return (weight.abs().max() / 448).expand(weight.shape).contiguous()


def row_grid(weight):
    return (weight.abs().amax(1, keepdim=True) / 448).expand(weight.shape).contiguous()


def block_grid(weight):
    return quantised.fp8_grid(quantised.fp8_encode(weight)[1], weight.shape).contiguous()


def merge(name, scales_of, transposed, scale_name):
    """gate_up_proj and down_proj of the experts; scales_of(grid [E, N, K], is_down)."""
    path = fixture_case.FIXTURES / name / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    prefix = "model.layers.0.mlp.experts."

    def stack(part, suffix):
        names = [f"{prefix}{expert}.{part}_proj.{suffix}" for expert in range(4)]
        return torch.stack([tensors.pop(one) for one in names])

    for merged, parts in (("gate_up_proj", ("gate", "up")), ("down_proj", ("down",))):
        codes = torch.cat([stack(part, "weight").view(torch.uint8) for part in parts], 1)
        grid = torch.cat([stack(part, "weight_scale") for part in parts], 1)
        scales = scales_of(grid, merged == "down_proj")
        if transposed:
            codes = codes.transpose(1, 2).contiguous()
            scales = scales.transpose(1, 2) if scales.dim() == 3 else scales
        tensors[prefix + merged] = codes.view(torch.float8_e4m3fn)
        tensors[prefix + merged + scale_name] = scales.contiguous()
    safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})


def of_blocks(grid, is_down):
    return grid[:, ::128, ::128]


def of_pairs(grid, is_down):
    return grid[:, 0, 0] if is_down else torch.stack([grid[:, 0, 0], grid[:, -1, 0]], 1)


def of_rows(grid, is_down):
    return grid[:, :, :1]


def merged_case(name, grids, scales_of, notes, transposed=False, scale_name="_scale", **sizes):
    """grids: of gate, up and down, or one for all."""
    grids = grids if isinstance(grids, tuple) else (grids,) * 3
    parts = {part: fp8_of(grid) for part, grid in zip(("gate", "up", "down"), grids)}
    config = dict(quant_method="fp8", activation_scheme="dynamic")
    if scale_name == "_scale_inv":
        config["weight_block_size"] = [128, 128]
    write(name, parts, config, HERE, notes, **sizes)
    merge(name, scales_of, transposed, scale_name)
    if transposed:
        change_config(name, model_type="qwen3_vl_moe")


def merged_cases():
    small = dict(hidden=64, width=96)
    merged_case("qwen3_moe_fp8_pairs", tensor_grid, of_pairs, "[E, 2]: gate and up", **small)
    notes = "transposed, [E, 1, 2I] and [E, 1, H]"
    merged_case("qwen3_vl_moe_fp8_rows", row_grid, of_rows, notes, transposed=True, **small)
    notes = "transposed, scales of 128 x 128 transposed alike"
    merged_case("qwen3_vl_moe_fp8_blocks", block_grid, of_blocks, notes, transposed=True,
                scale_name="_scale_inv", **SIZES)
    notes = "blocks of 128 rows over gate and up together, whose boundary is at row 160"
    grids = (rows_from(0), rows_from(160), block_grid)
    merged_case("qwen3_moe_fp8_straddling", grids, of_blocks, notes, scale_name="_scale_inv",
                hidden=64, width=160)


def rows_from(first):
    """A scale for each 128 rows, counted from row `first` of the merged tensor."""

    def grid_of(weight):
        block = (torch.arange(weight.shape[0]) + first) // 128
        return ((1 + block / 4) / 448)[:, None].expand(weight.shape).float().contiguous()

    return grid_of


CASES = [w4afp8_case, fp4_groups_case, e5m2_case, merged_cases]
