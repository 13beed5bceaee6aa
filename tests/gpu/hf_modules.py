"""The MoE blocks of transformers' own models against libmoe on a GPU.

    hf_modules.py --library build/cuda/lib/libmoe.so [--device cuda|cpu] [--report FILE]

Makes a small random model of each family, saves it as transformers does, opens the folder with
libmoe and compares its forward with the block run by torch in float32 on the same bfloat16 weights
and the same x. Prints a table; with --report the results become cases of that report.
"""
import argparse
import json
import pathlib
import sys
import tempfile
import time

import torch
import transformers

transformers.utils.logging.disable_progress_bar()

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bindings/python/src"))
import moe

LIMITS = {torch.float32: 1e-5, torch.float16: 6e-3, torch.bfloat16: 6e-3}
SMALL = dict(vocab_size=32, hidden_size=256, num_hidden_layers=1, num_attention_heads=4)
SMALL |= dict(num_key_value_heads=2, max_position_embeddings=64)
SMALL |= dict(pad_token_id=0, bos_token_id=1, eos_token_id=2)
EXPERTS = dict(moe_intermediate_size=128, num_experts=16, num_experts_per_tok=4)
SHARED = dict(shared_expert_intermediate_size=96)
LINEAR = dict(linear_key_head_dim=32, linear_value_head_dim=32, layer_types=["linear_attention"])
LINEAR |= dict(linear_num_key_heads=2, linear_num_value_heads=4, head_dim=32)
LATENT = dict(num_key_value_heads=4, q_lora_rank=32, kv_lora_rank=32, v_head_dim=16)
LATENT |= dict(qk_nope_head_dim=16, qk_rope_head_dim=16)
DEEPSEEK = dict(n_routed_experts=16, n_shared_experts=1, num_experts_per_tok=4, n_group=4)
DEEPSEEK |= dict(moe_intermediate_size=128, topk_group=2, routed_scaling_factor=2.5)
FEW = dict(intermediate_size=128, num_local_experts=8, num_experts_per_tok=2)
FAMILIES = {
    "mixtral": ("MixtralConfig", FEW),
    "qwen2_moe": ("Qwen2MoeConfig", EXPERTS | SHARED),
    "qwen3_moe": ("Qwen3MoeConfig", EXPERTS | dict(head_dim=32, norm_topk_prob=True)),
    "qwen3_next": ("Qwen3NextConfig", EXPERTS | SHARED | LINEAR),
    "deepseek_v3": ("DeepseekV3Config", LATENT | DEEPSEEK | dict(first_k_dense_replace=0)),
    "gpt_oss": ("GptOssConfig", FEW | dict(head_dim=32)),
}


def fill(model, seed):
    """Random values in every tensor, so that every output is of the order of one."""
    torch.manual_seed(seed)
    for name, tensor in model.state_dict().items():
        values = torch.randn(tensor.shape, dtype=torch.float32)
        if name.endswith("norm.weight"):
            values = 1 + 0.1 * values
        elif tensor.dim() < 2 or name.endswith("_bias"):
            values = 0.3 * values
        else:
            values *= 1.6 / min(tensor.shape[-2:]) ** 0.5
        tensor.copy_(values)


def saved_model(name, folder):
    config_class, sizes = FAMILIES[name]
    config = getattr(transformers, config_class)(**{**SMALL, **sizes})
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    for key, buffer in model.named_buffers():
        if key.endswith("e_score_correction_bias"):  # kept in float32 by the files
            buffer.data = buffer.data.float()
    with torch.no_grad():
        fill(model, len(name))
    model.save_pretrained(folder)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, experts_implementation="eager"
    )
    layer = loaded.eval().model.layers[0]
    return getattr(layer, "mlp", None) or layer.block_sparse_moe


def row_error(got, wanted):
    got, wanted = got.double(), wanted.double()
    norm = wanted.norm(dim=1)
    assert norm.min() > 0, "the block gives a row of zeros"
    return ((got - wanted).norm(dim=1) / norm).nan_to_num(nan=float("inf")).max().item()


def compare(block, folder, device, dtype, n_tokens):
    torch.manual_seed(n_tokens)
    x = torch.randn(n_tokens, SMALL["hidden_size"]).to(dtype).to(device)
    out = torch.full_like(x, float("nan"))
    with torch.no_grad():
        wanted = block(x.float()[None])
    wanted = (wanted[0] if isinstance(wanted, tuple) else wanted).reshape(n_tokens, -1)
    with moe.Layer(folder, 0, device=device, x_type=dtype, max_tokens=n_tokens) as layer:
        layer(x, out)
        if device == "cuda":
            torch.cuda.synchronize()
        kernels = {layer.plan.kernel(stage, n_tokens) for stage in moe.Stage}
    return row_error(out, wanted), kernels


def family_cases(name, device):
    with tempfile.TemporaryDirectory() as folder:
        block = saved_model(name, folder).to(device)
        for dtype, limit in LIMITS.items():
            begin, worst, kernels = time.time(), 0.0, set()
            for n_tokens in (1, 7, 64):
                error, used = compare(block, folder, device, dtype, n_tokens)
                worst, kernels = max(worst, error), kernels | used
            case = dict(name=f"hf/{name}/{str(dtype).removeprefix('torch.')}", ok=worst <= limit)
            case |= dict(metric=worst if worst < float("inf") else None, limit=limit)
            yield case | dict(seconds=round(time.time() - begin, 3), kernels=sorted(kernels))


def merge(path, cases):
    report = json.loads(path.read_text())
    names = {case["name"] for case in cases}
    report["cases"] = [old for old in report["cases"] if old["name"] not in names] + cases
    report["transformers"], report["torch"] = transformers.__version__, torch.__version__
    rows = ",\n".join("    " + json.dumps(case) for case in report.pop("cases"))
    head = json.dumps(report, indent=2)[:-2]
    path.write_text(f'{head},\n  "cases": [\n{rows}\n  ]\n}}\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", type=pathlib.Path, required=True)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--report", type=pathlib.Path)
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    moe.load(options.library)
    cases = []
    for name, (config_class, _) in FAMILIES.items():
        if not hasattr(transformers, config_class):
            print(f"skip hf/{name}: this transformers has no {config_class}")
            continue
        for case in family_cases(name, options.device):
            cases.append(case)
            word = "ok  " if case["ok"] else "FAIL"
            print(f"{word} {case['name']:32} {case['metric']} of {case['limit']:.0e}", flush=True)
    if options.report:
        merge(options.report, cases)
    return 0 if cases and all(case["ok"] for case in cases) else 1


if __name__ == "__main__":
    sys.exit(main())
