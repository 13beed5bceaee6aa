"""Quantised experts by compressed-tensors, bitsandbytes and ModelOpt, and GPTQ and AWQ by their
layouts: each case is a qwen3_moe of four experts whose gate, up and down may differ in format.

y comes from the transformers module holding in fp32 what the tool itself decodes.
"""
import bitsandbytes
import bitsandbytes.functional as bnb
import compressed_tensors
import numpy as np
import torch
import transformers
from compressed_tensors.compressors.base import BaseCompressor
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam

import hf_cases
import hf_model
import hf_quantised_cases as quantised
from routing_reference import Rule

EXPERTS = 4
CT = f"compressed-tensors {compressed_tensors.__version__}"


def write(name, parts, quantization, tool, notes, hidden=64, width=96):
    """parts: gate, up, down -> f(weight, rng), which gives ({suffix: tensor}, float32 weight)."""
    config = transformers.Qwen3MoeConfig(
        **{**hf_cases.SMALL, "hidden_size": hidden, "num_hidden_layers": 1},
        head_dim=16,
        intermediate_size=40,
        moe_intermediate_size=width,
        num_experts=EXPERTS,
        num_experts_per_tok=2,
        norm_topk_prob=True,
    )
    rng, folder, tensors = quantised.save_base(name, config)
    exact = dict(tensors)
    for expert in range(EXPERTS):
        for part, quantise in parts.items():
            stem = f"model.layers.0.mlp.experts.{expert}.{part}_proj"
            weight = tensors.pop(f"{stem}.weight").float()
            stored, exact[f"{stem}.weight"] = quantise(weight, rng)
            for suffix, tensor in stored.items():
                tensors[f"{stem}.{suffix}"] = tensor.contiguous()
    quantised.save_quantised(folder, tensors, quantization)
    meta = dict(
        I=width,
        format=name.removeprefix("qwen3_moe_"),
        tool=f"transformers {transformers.__version__}, {tool}",
        y_from="Qwen3MoeSparseMoeBlock of transformers in fp32 on the weights as the tool decodes "
        "them; activations not quantised",
        notes=notes,
    )
    model = quantised.load_dequantised(config, exact)
    hf_model.finish_case(folder, model, 0, Rule(2, norm=True), rng, 5, meta)


# compressed-tensors


def compressor(format_name, **args):
    weights = QuantizationArgs(**args)
    scheme = QuantizationScheme(targets=["Linear"], weights=weights)
    return BaseCompressor.get_value_from_registry(format_name), scheme, weights


def decoded(tool, scheme, stored):
    """In float32: the tool computes in the type of the scales."""
    wide = {k: v.float() if v.dtype == torch.bfloat16 else v for k, v in stored.items()}
    return tool.decompress(wide, scheme)["weight"].float()


def ct_int(bits, symmetric, group):
    def quantise(weight, rng):
        strategy = dict(strategy="group", group_size=group) if group else dict(strategy="channel")
        tool, scheme, args = compressor(
            "pack-quantized", num_bits=bits, type="int", symmetric=symmetric, **strategy
        )
        groups = weight.reshape(weight.shape[0], -1, group or weight.shape[1])
        scale, zero = calculate_qparams(groups.amin(-1), groups.amax(-1), args)
        state = {"weight": weight, "weight_scale": scale.to(torch.bfloat16)}
        if not symmetric:
            state["weight_zero_point"] = zero.to(torch.int8)
        stored = tool.compress(state, scheme)
        return stored, decoded(tool, scheme, stored)

    return quantise


def ct_int_g_idx(bits, symmetric, group):
    """Codes by column groups in a random order, packed by the tool's own packer."""

    def quantise(weight, rng):
        rows, columns = weight.shape
        g_idx = torch.from_numpy(rng.permutation(columns).astype(np.int32) // group)
        half = 1 << (bits - 1)
        scale = torch.empty(rows, columns // group, dtype=torch.bfloat16)
        zero = torch.zeros(rows, columns // group, dtype=torch.int8)
        for g in range(columns // group):
            part = weight[:, g_idx == g]
            low, high = part.amin(1).clamp(max=0), part.amax(1).clamp(min=0)
            if symmetric:
                scale[:, g] = torch.maximum(-low, high) / (half - 0.5)
            else:
                scale[:, g] = (high - low) / (2 * half - 1)
                wide = (-half - low / scale[:, g].float()).round()
                zero[:, g] = wide.clamp(-half, half - 1).to(torch.int8)
        s, z = scale.float()[:, g_idx.long()], zero.float()[:, g_idx.long()]
        q = (weight / s + z).round().clamp(-half, half - 1)
        stored = {
            "weight_packed": pack_to_int32(q.to(torch.int8), bits),
            "weight_scale": scale,
            "weight_shape": torch.tensor(weight.shape),
            "weight_g_idx": g_idx,
        }
        if not symmetric:
            stored["weight_zero_point"] = pack_to_int32(zero, bits, packed_dim=0)
        return stored, (q - z) * s

    return quantise


def ct_fp8(strategy):
    def quantise(weight, rng):
        more = dict(block_structure=[128, 128]) if strategy == "block" else {}
        tool, scheme, args = compressor(
            "float-quantized", num_bits=8, type="float", symmetric=True, strategy=strategy, **more
        )
        if strategy == "tensor":
            scale = weight.abs().max().reshape(1) / 448
        elif strategy == "channel":
            scale = weight.abs().amax(1, keepdim=True) / 448
        else:
            spread = 0.4 + 0.8 * torch.from_numpy(rng.random((2, 2)))
            weight = (weight * quantised.fp8_grid(spread, weight.shape)).float()
            scale = quantised.fp8_encode(weight)[1]
        scale = scale.to(torch.bfloat16)
        grid = quantised.fp8_grid(scale, weight.shape) if strategy == "block" else scale
        code = (weight / grid.float()).clamp(-448, 448).to(torch.float8_e4m3fn)
        stored = {"weight": code, "weight_scale": scale}
        if strategy == "tensor":
            stored["input_scale"] = torch.tensor([0.0125], dtype=torch.bfloat16)
        if strategy == "block":
            return stored, code.float() * grid.float()
        return stored, decoded(tool, scheme, {k: stored[k] for k in ("weight", "weight_scale")})

    return quantise


def ct_nvfp4(weight, rng):
    tool, scheme, args = compressor(
        "nvfp4-pack-quantized",
        num_bits=4,
        type="float",
        symmetric=True,
        strategy="tensor_group",
        group_size=16,
    )
    largest = weight.abs().max().reshape(1)
    global_scale = generate_gparam(-largest, largest)
    amax = weight.reshape(weight.shape[0], -1, 16).abs().amax(-1)
    scale = (global_scale * amax / 6).to(torch.float8_e4m3fn)
    state = {"weight": weight, "weight_scale": scale.float(), "weight_global_scale": global_scale}
    stored = tool.compress(state, scheme)
    stored["input_global_scale"] = torch.tensor([400.0])
    codes = unpack_fp4_from_uint8(stored["weight_packed"], *weight.shape).float()
    grid = (stored["weight_scale"].float() / global_scale).repeat_interleave(16, 1)
    own = tool.decompress({k: v for k, v in stored.items() if k[0] == "w"}, scheme)["weight"]
    assert torch.allclose(own.float(), codes * grid, rtol=2**-7), "bf16 in the tool"
    return stored, codes * grid


def e8m0(groups, largest_exponent):
    exponent = torch.floor(torch.log2(groups.abs().amax(-1))) - largest_exponent
    return (exponent + 127).to(torch.uint8)


def ct_mxfp4(weight, rng):
    blocks, scale = quantised.mxfp4_encode(weight.reshape(1, *weight.shape).numpy())
    packed = blocks.reshape(weight.shape[0], -1)
    e2m1 = torch.from_numpy(np.concatenate([quantised.E2M1, -quantised.E2M1]))
    codes = torch.stack([packed & 15, packed >> 4], -1).reshape(weight.shape).long()
    grid = torch.exp2(scale[0].float() - 127).repeat_interleave(32, 1)
    return {"weight_packed": packed, "weight_scale": scale[0]}, e2m1[codes] * grid


def mxfp8(weight, rng):
    scale = e8m0(weight.reshape(weight.shape[0], -1, 32), 8)
    grid = torch.exp2(scale.float() - 127).repeat_interleave(32, 1)
    code = (weight / grid).clamp(-448, 448).to(torch.float8_e4m3fn)
    return {"weight": code, "weight_scale": scale}, code.float() * grid


def ct_config(**more):
    return {"quant_method": "compressed-tensors", "quantization_status": "compressed", **more}


def groups_of(size):
    return {"config_groups": {"group_0": {"weights": {"group_size": size}}}}


def ct_int_case(name="qwen3_moe_ct_int"):
    parts = dict(
        gate=ct_int(4, True, 32), up=ct_int(4, False, None), down=ct_int(3, False, 32)
    )
    notes = "gate: 4 bits, symmetric, groups of 32; up: 4 bits, zero points, per channel; down: 3 "
    notes += "bits, zero points, groups of 32"
    write(name, parts, ct_config(format="pack-quantized", **groups_of(32)), CT, notes)


def ct_g_idx_case(name="qwen3_moe_ct_int_g_idx"):
    parts = dict(
        gate=ct_int(8, True, None), up=ct_int_g_idx(2, True, 16), down=ct_int_g_idx(4, False, 32)
    )
    notes = "gate: 8 bits per channel; up: 2 bits in groups of 16, down: 4 bits with zero points in "
    notes += "groups of 32, both with weight_g_idx, coded here and packed by the tool's pack_to_int32"
    write(name, parts, ct_config(format="pack-quantized", **groups_of(16)), CT, notes)


def ct_fp8_case(name="qwen3_moe_ct_fp8"):
    parts = dict(gate=ct_fp8("tensor"), up=ct_fp8("channel"), down=ct_fp8("block"))
    notes = "gate per tensor with an input scale, up per channel, down 128x128; scales in bf16; the "
    notes += "blocks, and the code values of all, are made here"
    config = ct_config(format="float-quantized")
    write(name, parts, config, CT, notes, hidden=160, width=144)


def ct_fp4_case(name="qwen3_moe_ct_fp4"):
    parts = dict(gate=ct_nvfp4, up=ct_mxfp4, down=mxfp8)
    notes = "gate NVFP4 with a dividing global scale, by the tool; up MXFP4 and down MXFP8 in the "
    notes += "tool's names, coded and decoded here"
    write(name, parts, ct_config(format="mixed-precision"), CT, notes)


# bitsandbytes


def bnb_4bit(kind, nested):
    def quantise(weight, rng):
        packed, state = bnb.quantize_4bit(
            weight, blocksize=64, compress_statistics=nested, quant_type=kind
        )
        stored = {f"weight.{k}": v for k, v in state.as_dict(packed=True).items()}
        # Flat: the tool's CPU code takes a block that crosses rows for another when it knows rows
        # (0.50.2; 0.25 off the weight instead of 0.09), which its quantiser does not.
        state.shape = torch.Size([weight.numel()])
        exact = bnb.dequantize_4bit(packed, state).float().reshape(weight.shape)
        assert (exact - weight).norm() < 0.15 * weight.norm()
        return {"weight": packed, **stored}, exact

    return quantise


def bnb_int8(weight, rng):
    codes, scb, _ = bnb.int8_vectorwise_quant(weight.half())
    stored = {"weight": codes, "SCB": scb.float(), "weight_format": torch.tensor(0).to(torch.uint8)}
    return stored, bnb.int8_vectorwise_dequant(codes, scb.float())


def bnb_cases(tool=f"bitsandbytes {bitsandbytes.__version__}"):
    parts = dict(gate=bnb_4bit("nf4", False), up=bnb_4bit("nf4", True), down=bnb_4bit("fp4", True))
    notes = "gate NF4, up nested NF4, down nested FP4; a row of down is a block and a half"
    config = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    write("qwen3_moe_bnb_4bit", parts, config, tool, notes)
    parts = dict.fromkeys(("gate", "up", "down"), bnb_int8)
    config = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    write("qwen3_moe_bnb_int8", parts, config, tool, "weight I8, SCB, weight_format")


# GPTQ and AWQ


def stream(codes, bits):
    """Codes along axis 0, lowest bits first, into int32 words along axis 0."""
    planes = (codes[:, None].astype(np.uint32) >> np.arange(bits)[None, :, None]) & 1
    planes = planes.reshape(-1, 32, codes.shape[1]).astype(np.uint32)
    words = (planes << np.arange(32, dtype=np.uint32)[None, :, None]).sum(1, dtype=np.uint32)
    return torch.from_numpy(words.view(np.int32).copy())


def awq_words(codes):
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    eight = codes.reshape(codes.shape[0], -1, 8)[:, :, order].astype(np.uint32)
    words = (eight << (4 * np.arange(8, dtype=np.uint32))).sum(-1, dtype=np.uint32)
    return torch.from_numpy(words.view(np.int32).copy())


def grouped_codes(weight, bits, group_of, scale_type):
    """Asymmetric codes of the transposed matrix: (codes [K,N], zeros [G,N], scales [G,N], exact)."""
    w = weight.numpy().T
    top = (1 << bits) - 1
    count = int(group_of.max()) + 1
    low = np.stack([np.minimum(w[group_of == g].min(0), 0) for g in range(count)])
    high = np.stack([np.maximum(w[group_of == g].max(0), 0) for g in range(count)])
    scale = torch.from_numpy((high - low) / top).to(scale_type)
    s = scale.float().numpy()
    zero = np.clip(np.round(-low / s), 0, top)
    codes = np.clip(np.round(w / s[group_of] + zero[group_of]), 0, top)
    exact = (codes - zero[group_of]) * s[group_of]
    return codes, zero, scale, torch.from_numpy(exact.T.astype(np.float32)).contiguous()


def gptq(bits, group, version, act_order):
    def quantise(weight, rng):
        columns = weight.shape[1]
        group_of = np.arange(columns) // group
        if act_order:
            group_of = group_of[rng.permutation(columns)]
        codes, zero, scale, exact = grouped_codes(weight, bits, group_of, torch.float16)
        if version == 1:  # what is stored is one less, so a zero point is at least one
            zero = np.maximum(zero, 1)
            exact = ((codes - zero[group_of]) * scale.float().numpy()[group_of]).T
            exact = torch.from_numpy(exact.astype(np.float32)).contiguous()
        stored = {
            "qweight": stream(codes, bits),
            "qzeros": stream((zero - (version == 1)).T, bits).T,
            "scales": scale,
            "g_idx": torch.from_numpy(group_of.astype(np.int32)),
        }
        return stored, exact

    return quantise


def awq(weight, rng):
    group_of = np.arange(weight.shape[1]) // 32
    codes, zero, scale, exact = grouped_codes(weight, 4, group_of, torch.bfloat16)
    return {"qweight": awq_words(codes), "qzeros": awq_words(zero), "scales": scale}, exact


def int4_cases(tool="packed here by the published layouts"):
    every = ("gate", "up", "down")
    for name, bits, group, version, act_order in (
        ("qwen3_moe_gptq_v1", 4, 32, 1, False),
        ("qwen3_moe_gptq_v2_act_order", 4, 32, 2, True),
        ("qwen3_moe_gptq_3bit", 3, 32, 1, True),
    ):
        config = {"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": act_order}
        config["checkpoint_format"] = "gptq" if version == 1 else "gptq_v2"
        notes = f"{bits} bits, zero points, groups of {group}, g_idx "
        notes += "in a random order" if act_order else "in order"
        parts = dict.fromkeys(every, gptq(bits, group, version, act_order))
        write(name, parts, config, tool, notes)
    config = {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm"}
    write(
        "qwen3_moe_awq",
        dict.fromkeys(every, awq),
        {**config, "zero_point": True},
        tool,
        "scales in bf16, as a bf16 model gets them",
    )


# ModelOpt


def modelopt_awq_case(name="qwen3_moe_nvfp4_awq"):
    version, tool = quantised.nvfp4_tool()

    def quantise(weight, rng):
        pre = torch.from_numpy(0.5 + rng.random(weight.shape[1])).to(torch.bfloat16)
        packed, scale, scale_2 = tool.quantize(weight / pre.float(), 16)
        stored = {
            "weight": packed._quantized_data,
            "weight_scale": scale,
            "weight_scale_2": scale_2.float().reshape(()).clone(),
            "input_scale": torch.tensor(0.0015),
            "pre_quant_scale": pre,
        }
        exact = packed.dequantize(
            dtype=torch.float32, scale=scale, double_scale=scale_2, block_sizes={-1: 16}
        )
        return stored, exact * pre.float()

    config = {"quant_method": "modelopt", "quant_algo": "NVFP4_AWQ"}
    notes = "as qwen3_moe_nvfp4_modelopt, and a pre_quant_scale that multiplies the activations"
    parts = dict.fromkeys(("gate", "up", "down"), quantise)
    write(name, parts, config, f"nvidia-modelopt {version}", notes)


CASES = [
    ct_int_case,
    ct_g_idx_case,
    ct_fp8_case,
    ct_fp4_case,
    bnb_cases,
    int4_cases,
    modelopt_awq_case,
]
