"""The MoE blocks of transformers' own models against libmoe on a GPU.

    hf_modules.py --library build/cuda/lib/libmoe.so [--device cuda|cpu] [--report FILE]

Makes a small random model of each family, saves it as transformers does, opens the folder with
libmoe and compares its forward with the block run by torch in float32 on the same bfloat16 weights
and the same x. Prints a table; with --report the results become cases of that report.
"""
import argparse
import ctypes as c
import json
import pathlib
import sys
import tempfile
import time

import torch
import transformers

transformers.utils.logging.disable_progress_bar()

I32, U32, I64, U64, PTR = c.c_int32, c.c_uint32, c.c_int64, c.c_uint64, c.c_void_p
TYPES = {torch.float32: 1, torch.float16: 2, torch.bfloat16: 3}
LIMITS = {torch.float32: 1e-5, torch.float16: 6e-3, torch.bfloat16: 6e-3}
STAGES = {"route": 1, "dispatch": 2, "experts": 4, "combine": 8, "finish": 16}
DEVICES = {"cpu": 1, "cuda": 2}


def struct(name, fields):
    """A sized struct of moe.h: lines of a type and the fields of it that follow each other."""
    types = {"i32": I32, "u32": U32, "i64": I64, "u64": U64, "ptr": PTR, "str": c.c_char_p}
    listed = [("struct_size", U32)]
    for line in fields.strip().splitlines():
        kind, *names = line.split()
        listed += [(field, types[kind]) for field in names]
    return type(name, (c.Structure,), {"_fields_": listed})


PlanDesc = struct(
    "PlanDesc",
    """
    i32 device device_index x_type router_input_type out_type intermediate_type
    u32 stages
    i32 checkpoint_layer
    ptr checkpoint layer formats
    u32 n_formats
    i32 partial
    ptr slice
    i64 max_tokens
    u64 max_workspace_bytes
    i32 residency activation_quantization batch_invariant unfused
    str kernel_filter tuning_path
    """,
)
WorkspaceDesc = struct(
    "WorkspaceDesc",
    """
    i32 device device_index
    u32 reserved
    ptr plan
    u64 device_bytes
    ptr device_memory
    u64 host_bytes
    ptr host_memory stream
    """,
)
ForwardArgs = struct(
    "ForwardArgs",
    """
    i32 routing
    i64 n_tokens
    ptr n_tokens_device x
    i64 x_row_stride
    ptr x_scales
    i64 x_scale_row_stride
    ptr router_input
    i64 router_input_row_stride
    ptr logits
    i64 logits_row_stride
    ptr ids
    i32 ids_type weights_type
    i64 ids_row_stride
    ptr weights
    i64 weights_row_stride
    ptr token_ids
    i32 token_ids_type n_expert_map
    ptr expert_map out
    i64 out_row_stride
    i32 out_layout accumulate
    ptr out_logits
    i64 out_logits_row_stride
    ptr out_ids
    i64 out_ids_row_stride
    ptr out_weights
    i64 out_weights_row_stride
    ptr out_expert_counts stream
    """,
)


class Library:
    def __init__(self, path):
        self.handle = c.CDLL(str(path))
        self.handle.moe_last_error.restype = c.c_char_p

    def call(self, name, *arguments):
        """Arguments are ctypes values, structs (passed by address) or byref()."""
        given = [c.byref(a) if isinstance(a, c.Structure) else a for a in arguments]
        status = getattr(self.handle, name)(*given)
        if status:
            raise RuntimeError(f"{name}: {status}: {self.handle.moe_last_error().decode()}")

    def make(self, name, *arguments):
        out = PTR()
        self.call(name, *arguments, c.byref(out))
        return out


def sized(kind, **fields):
    return kind(struct_size=c.sizeof(kind), **fields)


class Layer:
    """One layer of a saved model, planned for a type of x."""

    def __init__(self, library, folder, layer, device, x_type, max_tokens):
        self.library = library
        checkpoint = library.make("moe_checkpoint_open", None, str(folder).encode(), None)
        desc = sized(
            PlanDesc,
            device=DEVICES[device],
            x_type=x_type,
            checkpoint=checkpoint,
            checkpoint_layer=layer,
            max_tokens=max_tokens,
        )
        self.plan = library.make("moe_plan_create", None, desc)
        self.weights = library.make(
            "moe_weights_load_checkpoint", self.plan, checkpoint, I32(layer), None
        )
        self.workspace = library.make(
            "moe_workspace_create", None, sized(WorkspaceDesc, plan=self.plan)
        )
        library.handle.moe_checkpoint_destroy(checkpoint)

    def forward(self, n_tokens, x, out, stream=None):
        """x and out are addresses in the memory of the plan's device."""
        args = sized(ForwardArgs, n_tokens=n_tokens, x=x, out=out, stream=stream)
        self.library.call("moe_forward", self.plan, self.weights, self.workspace, args)

    def kernels(self, n_tokens):
        names, name = set(), c.c_char_p()
        for stage in STAGES.values():
            self.library.call(
                "moe_plan_kernel", self.plan, I32(stage), I64(n_tokens), c.byref(name)
            )
            names.add(name.value.decode())
        return sorted(names)

    def close(self):
        for kind in ("workspace", "weights", "plan"):
            getattr(self.library.handle, f"moe_{kind}_destroy")(getattr(self, kind))


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


def compare(library, block, folder, device, dtype, n_tokens):
    torch.manual_seed(n_tokens)
    x = torch.randn(n_tokens, SMALL["hidden_size"]).to(dtype).to(device)
    out = torch.full_like(x, float("nan"))
    with torch.no_grad():
        wanted = block(x.float()[None])
    wanted = (wanted[0] if isinstance(wanted, tuple) else wanted).reshape(n_tokens, -1)
    layer = Layer(library, folder, 0, device, TYPES[dtype], n_tokens)
    stream = torch.cuda.current_stream().cuda_stream if device == "cuda" else None
    layer.forward(n_tokens, x.data_ptr(), out.data_ptr(), stream)
    if device == "cuda":
        torch.cuda.synchronize()
    kernels = layer.kernels(n_tokens)
    layer.close()
    return row_error(out, wanted), kernels


def family_cases(library, name, device):
    with tempfile.TemporaryDirectory() as folder:
        block = saved_model(name, folder).to(device)
        for dtype, limit in LIMITS.items():
            begin, worst, kernels = time.time(), 0.0, set()
            for n_tokens in (1, 7, 64):
                error, used = compare(library, block, folder, device, dtype, n_tokens)
                worst, kernels = max(worst, error), kernels | set(used)
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
    parser.add_argument("--device", choices=DEVICES, default="cuda")
    parser.add_argument("--report", type=pathlib.Path)
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    library, cases = Library(options.library), []
    for name, (config_class, _) in FAMILIES.items():
        if not hasattr(transformers, config_class):
            print(f"skip hf/{name}: this transformers has no {config_class}")
            continue
        for case in family_cases(library, name, options.device):
            cases.append(case)
            word = "ok  " if case["ok"] else "FAIL"
            print(f"{word} {case['name']:32} {case['metric']} of {case['limit']:.0e}", flush=True)
    if options.report:
        merge(options.report, cases)
    return 0 if cases and all(case["ok"] for case in cases) else 1


if __name__ == "__main__":
    sys.exit(main())
