"""Inkling, whose router has rows for the shared experts and whose one sum divides the sigmoids of all, and Inkling 2.

libmoe has the shared experts as the last of the routed ones, which a token takes first: ids and
weights say it so. In the model's own files (which transformers writes), in the names of its memory,
and with routed experts in NVFP4 as the released files have them, where the shared ones are bf16.
"""
import json
import shutil

import numpy as np
import safetensors.torch
import torch
import transformers

import fixture_case
import hf_quantised_cases
import routing_reference
from hf_cases import SMALL
from hf_family_cases import ONE_LAYER, SIGMOID, SIZES, drop, logits_of, pick_input, run, save, write
from hf_later_cases import SPARSE, copy_results
from routing_reference import Rule

ROUTED, SHARED, K, SCALE = 5, 2, 3, 1.5
BESIDE = ("model.visual", "model.audio", "model.llm.embed", "model.llm.unembed",
          "model.llm.layers.0.attn", "model.vision", "lm_head", "model.language_model.embed",
          "model.language_model.layers.0.self_attn", "model.language_model.layers.0.attn_sconv",
          "model.language_model.layers.0.input_layernorm")
MODEL = transformers.InklingForConditionalGeneration
E2M1 = torch.from_numpy(hf_quantised_cases.E2M1)


def config():
    text = dict(SMALL, **SIZES, **ONE_LAYER, **SPARSE, n_routed_experts=ROUTED,
                num_experts_per_tok=K, n_shared_experts=SHARED, route_scale=SCALE, head_dim=16,
                swa_head_dim=16, swa_num_attention_heads=2, swa_num_key_value_heads=1, d_rel=4,
                rel_extent=8, sliding_window_size=8)
    vision = dict(num_hidden_layers=2, hidden_size=16, num_attention_heads=1, patch_size=4,
                  temporal_patch_size=2, num_channels=1)
    return transformers.InklingConfig(text_config=text, vision_config=vision,
                                      audio_config=dict(n_mel_bins=2, mel_vocab_size=2))


def block_of(model):
    return model.model.language_model.layers[0].mlp


def finish(folder, model, rng, **meta):
    block, rule = block_of(model), Rule(K, score="sigmoid")

    def acceptable(x):
        logits, bias = logits_of(block, x)
        routed = routing_reference.route(rule, logits[:, :ROUTED], bias)
        unbiased = routing_reference.route(rule, logits[:, :ROUTED], None)
        matters = not np.array_equal(routed.ids, unbiased.ids)
        return routed if routed.gap >= fixture_case.MIN_GAP and matters else None

    x, routed = fixture_case.draw_input(rng, 7, 64, acceptable)
    with torch.no_grad():
        y = block(torch.from_numpy(x)[None])[0].numpy()
        _, chosen, ids, shared = block.gate(torch.from_numpy(x))
    place = np.array([[r.index(i) for i in w] for r, w in zip(ids.tolist(), routed.ids)])
    shared_ids = np.tile(np.arange(ROUTED, ROUTED + SHARED, dtype=np.int32), (len(x), 1))
    weights = np.take_along_axis(chosen.numpy(), place, axis=1)
    arrays = (x, y, np.concatenate([shared_ids, routed.ids], 1),
              np.concatenate([shared.numpy(), weights], 1))
    rule = Rule(K + SHARED, scale=SCALE * float(block.gate.global_scale.detach()), **SIGMOID)
    write(folder, model, 0, rule, arrays, ROUTED + SHARED, True, meta, block)


def inkling(name="inkling_bf16"):
    folder, model, rng = save(name, config(), MODEL)
    drop(folder / "model.safetensors", BESIDE)
    finish(folder, model, rng, notes="w13 interleaved, shared_w13; global_scale of its own")


def inkling_merged(name="inkling_bf16_merged"):
    source, folder = fixture_case.FIXTURES / "inkling_bf16", fixture_case.empty_folder(name)
    model = MODEL.from_pretrained(source, dtype=torch.bfloat16)
    model.save_pretrained(folder, save_original_format=False)
    (folder / "generation_config.json").unlink(missing_ok=True)
    drop(folder / "model.safetensors", BESIDE)
    copy_results(source, folder, "inkling_bf16, saved with save_original_format=False",
                 "bf16 merged")


def nvfp4(weight):
    """[E, rows, K] -> codes, scales of 16 columns, a scale of each expert, and the values of it."""
    groups = weight.float().reshape(*weight.shape[:-1], -1, 16)
    most = groups.abs().amax(-1)
    whole = most.amax((1, 2)) / (6 * 448)
    scales = (most / 6 / whole[:, None, None]).to(torch.float8_e4m3fn)
    step = (scales.float() * whole[:, None, None])[..., None]
    scaled = groups / step
    codes = (scaled.abs()[..., None] - E2M1).abs().argmin(-1)
    values = torch.where(scaled < 0, -1, 1) * E2M1[codes] * step
    codes = (codes + torch.where(scaled < 0, 8, 0)).to(torch.uint8).reshape(weight.shape)
    return codes[..., 0::2] | (codes[..., 1::2] << 4), scales, whole, values.reshape(weight.shape)


def dequantised(source, model_class, block_of, exact):
    """The model of a folder, its routed experts with these values: rows of gate and up by turns."""
    model = model_class.from_pretrained(source, dtype=torch.float32, experts_implementation="eager")
    experts, rows = block_of(model).experts, exact["w13_weight"]
    with torch.no_grad():
        experts.gate_up_proj.copy_(torch.cat([rows[:, 0::2], rows[:, 1::2]], 1))
        experts.down_proj.copy_(exact["w2_weight"])
    return model.eval()


def inkling_nvfp4(name="inkling_nvfp4"):
    source, folder = fixture_case.FIXTURES / "inkling_bf16", fixture_case.empty_folder(name)
    tensors = safetensors.torch.load_file(source / "model.safetensors")
    stem = "model.llm.layers.0.mlp.experts."
    exact = {}
    for key in ("w13_weight", "w2_weight"):
        weight = tensors[stem + key]
        # Each expert's scale is another.
        weight = weight * torch.arange(1, ROUTED + 1, dtype=weight.dtype)[:, None, None] / 2
        codes, scales, whole, exact[key] = nvfp4(weight)
        tensors[stem + key] = codes.contiguous()
        tensors[f"{stem}{key}.scale"] = scales
        tensors[f"{stem}{key}.scale2"] = whole
        tensors[f"{stem}{key}.input_amax"] = torch.ones(1, dtype=torch.bfloat16)
        tensors[f"{stem}{key}.original_shape"] = torch.tensor(weight.shape)
    safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    shutil.copy(source / "config.json", folder)
    quantization = dict(quant_algo="NVFP4", group_size=16, kv_cache_quant_algo="none",
                        exclude_modules=["model.llm.layers.0.mlp.shared_experts",
                                         "model.llm.layers.0.mlp.gate"])
    (folder / "hf_quant_config.json").write_text(json.dumps({"quantization": quantization}))
    model = dequantised(source, MODEL, block_of, exact)
    finish(folder, model, fixture_case.case_rng(name), format="nvfp4 mixed",
           y_from="InklingMoE of transformers in fp32 on the decoded values",
           notes="routed experts in NVFP4 (.scale, .scale2), shared ones in bf16; by the script")


def inkling2_config():
    text = dict(SMALL, moe_intermediate_size=32, num_hidden_layers=1, n_routed_experts=6,
                num_experts_per_tok=K, route_scale=SCALE, head_dim=16, swa_head_dim=16,
                swa_num_attention_heads=2, swa_num_key_value_heads=1, d_rel=4, rel_extent=8,
                sliding_window_size=8, mlp_gate_softcap=1.5, mlp_up_softcap=2.0, unpadded_vocab_size=32)
    return transformers.Inkling2TextConfig(**text)


def block_of_inkling2(model):
    return model.model.layers[0].mlp


def finish_inkling2(folder, model, rng, **meta):
    block, rule = block_of_inkling2(model), Rule(K, scale=SCALE, **SIGMOID)
    x, routed = pick_input(block, rule, rng, 7, 64)
    y, weights = run(block, x, routed)
    assert np.allclose(weights, routed.weights, rtol=1e-5), "the rule in the script is wrong"
    write(folder, model, 0, rule, (x, y, routed.ids, weights), 6, True, meta, block)


def inkling2(name="inkling2_bf16"):
    folder, model, rng = save(name, inkling2_config())
    drop(folder / "model.safetensors", BESIDE)
    finish_inkling2(folder, model, rng, notes="soft caps of gate and up, which values reach")


def mxfp8(weight):
    """[E, rows, K] -> codes in E4M3, a power of two for 32 columns, and the values of it."""
    groups = weight.float().reshape(*weight.shape[:-1], -1, 32)
    exponent = torch.floor(torch.log2(groups.abs().amax(-1))) - 8
    step = torch.exp2(exponent)[..., None]
    codes = (groups / step).clamp(-448, 448).to(torch.float8_e4m3fn)
    values = (codes.float() * step).reshape(weight.shape)
    return codes.reshape(weight.shape), (exponent + 127).to(torch.uint8), values


def inkling2_mxfp8(name="inkling2_mxfp8"):
    source, folder = fixture_case.FIXTURES / "inkling2_bf16", fixture_case.empty_folder(name)
    tensors = safetensors.torch.load_file(source / "model.safetensors")
    exact = {}
    for key in ("w13_weight", "w2_weight"):
        stem = "model.llm.layers.0.mlp.experts." + key
        tensors[stem], tensors[stem + "_scale"], exact[key] = mxfp8(tensors[stem])
    safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    shutil.copy(source / "config.json", folder)
    model = dequantised(source, transformers.AutoModelForCausalLM, block_of_inkling2, exact)
    finish_inkling2(folder, model, fixture_case.case_rng(name), format="mxfp8",
                    y_from="Inkling2SparseMoeBlock of transformers in fp32 on the decoded values",
                    notes="E4M3 under E8M0 scales of 32 columns; by the script")


CASES = [inkling, inkling_merged, inkling_nvfp4, inkling2, inkling2_mxfp8]
