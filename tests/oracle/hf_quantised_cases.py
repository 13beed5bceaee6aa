"""Quantised safetensors checkpoints: MXFP4 (gpt-oss), FP8 128x128 (DeepSeek), NVFP4 (ModelOpt).

Each starts as a bf16 checkpoint of save_pretrained whose expert tensors are then replaced. y comes
from the transformers module holding the dequantised values in fp32.
"""
import json
import os
import tempfile
import warnings

import numpy as np
import safetensors.torch
import torch
import transformers

import fixture_case
import hf_cases
import hf_model
from routing_reference import Rule

FP8_BLOCK = 128
E2M1 = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], dtype=np.float32)


def save_base(name, config, **fill_args):
    """(rng, folder, tensors) of a bf16 checkpoint; the caller replaces tensors and saves again."""
    rng = fixture_case.case_rng(name)
    folder = fixture_case.empty_folder(name)
    hf_model.new_model(config, rng, **fill_args).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    return rng, folder, safetensors.torch.load_file(folder / "model.safetensors")


def save_quantised(folder, tensors, quantization_config):
    path = folder / "model.safetensors"
    safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = quantization_config
    fixture_case.write_json(folder / "config.json", config)


def load_dequantised(config, tensors):
    """An fp32 model holding exactly these float tensors."""
    with tempfile.TemporaryDirectory() as scratch:
        config.save_pretrained(scratch)
        wide = {name: tensor.float().contiguous() for name, tensor in tensors.items()}
        path = os.path.join(scratch, "model.safetensors")
        safetensors.torch.save_file(wide, path, metadata={"format": "pt"})
        return hf_model.load_fp32(scratch)


def mxfp4_encode(weight):
    """[E, rows, K] -> blocks U8 [E, rows, K/32, 16], scales U8 [E, rows, K/32]."""
    groups = weight.reshape(*weight.shape[:-1], -1, 32)
    exponent = np.floor(np.log2(np.abs(groups).max(axis=-1, keepdims=True))) - 2
    scaled = groups / np.exp2(exponent)
    codes = np.abs(np.abs(scaled)[..., None] - E2M1).argmin(axis=-1).astype(np.uint8)
    codes |= np.where(scaled < 0, 8, 0).astype(np.uint8)
    blocks = codes[..., 0::2] | (codes[..., 1::2] << 4)
    return torch.from_numpy(blocks), torch.from_numpy((exponent[..., 0] + 127).astype(np.uint8))


def gpt_oss_mxfp4(name="gpt_oss_mxfp4"):
    config = hf_cases.gpt_oss_config(
        intermediate_size=96, num_local_experts=6, num_experts_per_tok=4
    )
    rng, folder, tensors = save_base(name, config, **hf_cases.GPT_OSS_FILL)
    for key in [k for k in tensors if k.endswith((".gate_up_proj", ".down_proj"))]:
        weight = tensors.pop(key).float().transpose(1, 2).contiguous().numpy()
        weight *= np.exp2(rng.integers(-2, 1, (*weight.shape[:2], 1)))  # spread the scale bytes
        tensors[f"{key}_blocks"], tensors[f"{key}_scales"] = mxfp4_encode(weight)
    skipped = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens"]
    quantization = {"quant_method": "mxfp4", "modules_to_not_convert": [*skipped, "lm_head"]}
    save_quantised(folder, tensors, quantization)
    model = hf_model.load_fp32(
        folder, quantization_config=transformers.Mxfp4Config(dequantize=True)
    )
    meta = dict(
        I=96,
        format="mxfp4",
        y_from="GptOssMLP of transformers in fp32 on blocks that its own MXFP4 loader dequantised",
        notes="*_blocks [E,rows,K/32,16] and *_scales; gate and up rows interleaved; bf16 biases",
    )
    rule = Rule(4, score="none", post="softmax")
    hf_model.finish_case(folder, model, 1, rule, rng, 7, meta)


def fp8_grid(scale, shape):
    """One scale per element: rows and columns of 128, the last block being what is left."""
    grid = scale.repeat_interleave(FP8_BLOCK, 0).repeat_interleave(FP8_BLOCK, 1)
    return grid[: shape[0], : shape[1]]


def fp8_encode(weight):
    rows, columns = (-(-size // FP8_BLOCK) for size in weight.shape)
    scale = torch.empty(rows, columns)
    for r in range(rows):
        for c in range(columns):
            block = weight[r * FP8_BLOCK : (r + 1) * FP8_BLOCK, c * FP8_BLOCK : (c + 1) * FP8_BLOCK]
            scale[r, c] = block.abs().max() / 448.0
    return (weight / fp8_grid(scale, weight.shape)).to(torch.float8_e4m3fn), scale


def deepseek_v3_fp8(name="deepseek_v3_fp8_block"):
    config = hf_cases.deepseek_v3_config(
        num_hidden_layers=1,
        hidden_size=160,
        intermediate_size=40,
        moe_intermediate_size=144,
        n_routed_experts=4,
        num_experts_per_tok=2,
        n_shared_experts=1,
        n_group=2,
        topk_group=1,
        routed_scaling_factor=2.5,
        first_k_dense_replace=0,
    )
    rng, folder, tensors = save_base(name, config)
    exact = dict(tensors)
    for key in [k for k in tensors if k.endswith("_proj.weight") and ".mlp." in k]:
        weight = tensors[key].float()
        # Different blocks get clearly different scales, so that a misplaced edge is seen.
        spread = 0.4 + 0.8 * torch.from_numpy(rng.random((2, 2)))
        weight = (weight * fp8_grid(spread, weight.shape)).float()
        tensors[key], scale = fp8_encode(weight)
        tensors[f"{key}_scale_inv"] = scale
        exact[key] = tensors[key].float() * fp8_grid(scale, weight.shape)
    quantization = {
        "activation_scheme": "dynamic",
        "fmt": "e4m3",
        "quant_method": "fp8",
        "weight_block_size": [FP8_BLOCK, FP8_BLOCK],
        "modules_to_not_convert": ["self_attn", "lm_head"],
    }
    save_quantised(folder, tensors, quantization)
    meta = dict(
        I=144,
        shared_I=144,
        format="fp8 128x128",
        y_from="DeepseekV3MoE of transformers in fp32 on code times weight_scale_inv of its "
        "128x128 block, dequantised here by DeepSeek's rule (edge blocks are smaller)",
        notes="H = 128 + 32 and I = 128 + 16 have edge blocks; attention stays bf16",
    )
    rule = Rule(2, "sigmoid", norm=True, scale=2.5, n_group=2, topk_group=1, group_score="top2_sum")
    model = load_dequantised(config, exact)
    hf_model.finish_case(folder, model, 0, rule, rng, 5, meta)


def nvfp4_tool():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import modelopt
        from modelopt.torch.quantization.qtensor import NVFP4QTensor
    return modelopt.__version__, NVFP4QTensor


def nvfp4_replace(tensors, exact, prefix, tool, rng, shared_global):
    """Quantise one expert's three matrices; gate and up share their global scale or do not."""
    weights = {p: tensors[f"{prefix}.{p}_proj.weight"].float() for p in ("gate", "up", "down")}
    weights["up"] = weights["up"] * (1.0 if shared_global else 1.7)
    global_scale = {p: tool.get_weights_scaling_factor_2(w) for p, w in weights.items()}
    if shared_global:
        both = torch.maximum(global_scale["gate"], global_scale["up"])
        global_scale["gate"] = global_scale["up"] = both
    for part, weight in weights.items():
        key = f"{prefix}.{part}_proj"
        quantised, scale, scale_2 = tool.quantize(
            weight, 16, weights_scaling_factor_2=global_scale[part]
        )
        tensors[f"{key}.weight"] = quantised._quantized_data.contiguous()
        tensors[f"{key}.weight_scale"] = scale.contiguous()
        tensors[f"{key}.weight_scale_2"] = scale_2.float().reshape(()).clone()
        tensors[f"{key}.input_scale"] = torch.tensor(float(rng.uniform(0.001, 0.002)))
        exact[f"{key}.weight"] = quantised.dequantize(
            dtype=torch.float32, scale=scale, double_scale=scale_2, block_sizes={-1: 16}
        )


def qwen3_moe_nvfp4(name="qwen3_moe_nvfp4_modelopt"):
    version, tool = nvfp4_tool()
    config = transformers.Qwen3MoeConfig(
        **hf_cases.SMALL,
        head_dim=16,
        intermediate_size=40,
        moe_intermediate_size=96,
        num_experts=8,
        num_experts_per_tok=3,
        norm_topk_prob=True,
        mlp_only_layers=[0],
    )
    rng, folder, tensors = save_base(name, config)
    exact = dict(tensors)
    for expert in range(8):
        prefix = f"model.layers.1.mlp.experts.{expert}"
        nvfp4_replace(tensors, exact, prefix, tool, rng, shared_global=expert % 2 == 0)
    excluded = ["lm_head", "model.layers.0.mlp*", "model.layers.1.mlp.gate"]
    excluded += [f"model.layers.{i}.self_attn*" for i in range(2)]
    producer = {"name": "modelopt", "version": version}
    save_quantised(
        folder,
        tensors,
        {
            "config_groups": {
                "group_0": {
                    "input_activations": {
                        "dynamic": False, "num_bits": 4, "type": "float", "group_size": 16
                    },
                    "weights": {
                        "dynamic": False, "num_bits": 4, "type": "float", "group_size": 16
                    },
                    "targets": ["Linear"],
                }
            },
            "ignore": excluded,
            "quant_algo": "NVFP4",
            "producer": producer,
            "quant_method": "modelopt",
        },
    )
    quantization = {
        "quant_algo": "NVFP4",
        "kv_cache_quant_algo": None,
        "group_size": 16,
        "exclude_modules": excluded,
    }
    fixture_case.write_json(
        folder / "hf_quant_config.json", {"producer": producer, "quantization": quantization}
    )
    meta = dict(
        I=96,
        format="nvfp4 modelopt",
        tool=f"transformers {transformers.__version__}, nvidia-modelopt {version}",
        y_from="Qwen3MoeSparseMoeBlock of transformers in fp32 on weights that ModelOpt's "
        "NVFP4QTensor quantised and dequantised; activations not quantised",
        notes="tensors by NVFP4QTensor, names and json written here after ModelOpt's export; even "
        "experts: one weight_scale_2 for gate and up, odd ones: two",
    )
    model = load_dequantised(config, exact)
    hf_model.finish_case(folder, model, 1, Rule(3, norm=True), rng, 7, meta)


CASES = [gpt_oss_mxfp4, deepseek_v3_fp8, qwen3_moe_nvfp4]
