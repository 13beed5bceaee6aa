"""Tokens per second of a model of transformers with every experts implementation that is registered, "libmoe" among them.

    MOE_LIBRARY=build/cuda/lib/libmoe.so PYTHONPATH=bindings/python/src python3 bench/transformers_tokens.py --out speed.json

The model is a Qwen3-MoE with random weights, of Qwen3-30B-A3B's sizes but for the number of layers and the vocabulary. Phases:
prefill is one forward of the prompt without a cache; decode is one token at a time behind the prompt, in a static cache. Modes:

    plain    the model as it is
    compile  torch.compile(fullgraph=True), which eager's loop over the experts is not for
    reduce   torch.compile(mode="reduce-overhead"), which records CUDA graphs; CUDA only
    graph    one forward, captured by torch.cuda.graph and replayed; CUDA only

Implementations take turns in every round; the first rounds warm up. One that fails is left out with its error. Nothing is
downloaded."""
import argparse
import inspect
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("MOE_TRANSFORMERS_KEEP", "1")  # the others read the parameters

import torch  # noqa: E402
import transformers  # noqa: E402
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS  # noqa: E402

import moe  # noqa: E402
import moe.transformers  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODES = {"cpu": ["plain", "compile"], "cuda": ["plain", "compile", "reduce", "graph"]}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=["cpu", "cuda"])
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float16", "float32"])
    sizes = dict(layers=4, hidden=2048, intermediate=768, experts=128, top_k=8, heads=32, kv_heads=4, head_dim=128)
    sizes["vocabulary"] = 1024
    for name, value in sizes.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=value)
    parser.add_argument("--prompt", type=int, default=512, help="tokens of a prefill")
    parser.add_argument("--steps", type=int, default=32, help="tokens of a decode")
    parser.add_argument("--batch", type=int, nargs="+", default=[1], help="sequences at a time")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--threads", type=int, default=0, help="of torch and libmoe; 0: as torch has them")
    parser.add_argument("--phases", nargs="+", default=["prefill", "decode"], choices=["prefill", "decode"])
    parser.add_argument("--modes", nargs="+", choices=MODES["cuda"], help="default: all that the device has")
    parser.add_argument("--implementations", nargs="+", help="default: eager and all that are registered")
    parser.add_argument("--smoke", action="store_true", help="small and short; exit code 1 unless libmoe runs in every mode")
    parser.add_argument("--out", type=pathlib.Path, help="where to write the results, as JSON")
    args = parser.parse_args()
    if args.smoke:
        small = dict(layers=2, hidden=128, intermediate=64, experts=8, top_k=2, heads=4, kv_heads=2, head_dim=32)
        vars(args).update(small, prompt=32, steps=8, rounds=2, warmup=1, threads=1)
    return args


def make_model(args):
    config = transformers.Qwen3MoeConfig(
        vocab_size=args.vocabulary, hidden_size=args.hidden, intermediate_size=args.intermediate, num_hidden_layers=args.layers,
        moe_intermediate_size=args.intermediate, num_experts=args.experts, num_experts_per_tok=args.top_k, norm_topk_prob=True,
        num_attention_heads=args.heads, num_key_value_heads=args.kv_heads, head_dim=args.head_dim, max_position_embeddings=8192,
    )  # fmt: skip
    torch.manual_seed(1)
    with torch.device("meta"):
        model = transformers.Qwen3MoeForCausalLM(config)
    model = model.to(getattr(torch, args.dtype)).to_empty(device=args.device)
    for parameter in model.parameters():
        if parameter.ndim == 3:  # experts repeat after eight, on the CPU a normal distribution takes long
            some = torch.randn(min(8, len(parameter)), *parameter.shape[1:], device=args.device) * parameter.shape[-1] ** -0.5
            parameter.data.copy_(some.repeat(-(-len(parameter) // len(some)), 1, 1)[: len(parameter)])
        elif parameter.ndim == 2:
            parameter.data.normal_(0, parameter.shape[-1] ** -0.5)
        else:
            parameter.data.fill_(1)
    rotary = model.model.rotary_emb
    model.model.rotary_emb = type(rotary)(config).to(args.device)
    return model.eval().requires_grad_(False)


class Runner:
    """One phase in one mode: calls of all implementations on the same model, prompt and cache."""

    def __init__(self, model, args, phase, mode, batch):
        self.model, self.args, self.phase, self.mode = model, args, phase, mode
        self.ids = torch.randint(0, args.vocabulary, (batch, args.prompt), device=args.device)
        self.token = self.ids[:, -1:].clone()
        self.cache = transformers.StaticCache(config=model.config, max_cache_len=args.prompt + args.steps + 8)
        takes = inspect.signature(type(model).forward).parameters
        self.cached = {"cache" if "cache" in takes else "past_key_values": self.cache, "use_cache": True, "logits_to_keep": 1}
        self.graphs, self.compiled = {}, {}

    def called(self, name):
        if self.mode not in ("compile", "reduce"):
            return self.model
        if name not in self.compiled:
            options = {"fullgraph": True, "dynamic": False}
            more = {"mode": "reduce-overhead"} if self.mode == "reduce" else {}
            self.compiled[name] = torch.compile(self.model, **options, **more)
        return self.compiled[name]

    def forward(self, name):
        if self.phase == "prefill":
            return self.called(name)(input_ids=self.ids, use_cache=False, logits_to_keep=1).logits
        return self.called(name)(input_ids=self.token, **self.cached).logits

    def fill(self):
        """The prompt into the cache, outside all clocks and compilers; by an implementation that copies no matrix per slot."""
        if self.phase == "decode":
            current = self.model.config._experts_implementation
            self.model.set_experts_implementation("libmoe")
            if self.cache.is_initialized:
                self.cache.reset()
            self.model(input_ids=self.ids, **self.cached)
            self.model.set_experts_implementation(current)

    def capture(self, name):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self.forward(name)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = self.forward(name)
        self.graphs[name] = (graph, out)
        self.fill()

    def step(self, name):
        if self.mode == "graph":
            self.graphs[name][0].replay()
        else:
            if self.mode == "reduce":
                torch.compiler.cudagraph_mark_step_begin()
            self.forward(name)

    def seconds(self, name):
        """The time of one prefill, or of all steps of a decode, and how often libmoe was called."""
        self.model.set_experts_implementation(name)
        self.fill()
        if self.mode == "graph" and name not in self.graphs:
            self.capture(name)
        self.synchronize()
        before, begin = calls(self.model), time.perf_counter()
        for _ in range(self.args.steps if self.phase == "decode" else 1):
            self.step(name)
        self.synchronize()
        return time.perf_counter() - begin, calls(self.model) - before

    def synchronize(self):
        if self.args.device == "cuda":
            torch.cuda.synchronize()


def tokens(args, phase, batch):
    return batch * (args.steps if phase == "decode" else args.prompt)


def free_bytes(args):
    if args.device == "cuda":
        return torch.cuda.mem_get_info()[0]
    lines = pathlib.Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))


def too_large(args, phase, batch, names):
    """batched_mm copies the matrices of every slot of a call."""
    slots = batch * (args.prompt if phase == "prefill" else 1) * args.top_k
    n_bytes = slots * 2 * args.intermediate * args.hidden * getattr(torch, args.dtype).itemsize
    if "batched_mm" not in names or 2 * n_bytes < free_bytes(args):
        return {}
    return {"batched_mm": f"left out: its copies of matrices would take {n_bytes / 2**30:.1f} GiB"}


def calls(model):
    return sum(one.n_calls for one in moe.transformers.served(model).values())


def measure(model, args, phase, mode, batch, names):
    """By implementation: the seconds of each round, or the error."""
    runner = Runner(model, args, phase, mode, batch)
    times, errors = {name: [] for name in names}, too_large(args, phase, batch, names)
    for turn in range(args.warmup + args.rounds):
        for name in [one for one in names if one not in errors]:
            try:
                taken, n_calls = runner.seconds(name)
            except Exception as error:  # whatever an implementation lacks here, the others go on
                errors[name] = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200] if str(error) else ''}"
                continue
            if mode in ("plain", "compile") and (n_calls > 0) != (name == "libmoe"):
                errors[name] = "this is not the implementation that ran"
                continue
            if turn >= args.warmup:
                times[name].append(taken)
    return times, errors


def rows(args, phase, mode, batch, times, errors):
    count = tokens(args, phase, batch)
    for name, each in times.items():
        row = {"phase": phase, "mode": mode, "batch": batch, "implementation": name}
        if name in errors:
            yield row | {"error": errors[name]}
        else:
            yield row | {"best": count / min(each), "median": count / statistics.median(each), "seconds": each}


def show(row):
    head = f"{row['phase']:8} {row['mode']:8} batch {row['batch']:<4} {row['implementation']:12}"
    print(head, row.get("error") or f"{row['best']:10.1f} best {row['median']:10.1f} median tokens/s", flush=True)


def heading(args, names):
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    device = torch.cuda.get_device_name() if args.device == "cuda" else moe.device_info("cpu").name
    versions = {"torch": torch.__version__, "transformers": transformers.__version__, "libmoe": moe.version_string()}
    options = {name: str(value) if isinstance(value, pathlib.Path) else value for name, value in vars(args).items()}
    where = {"device": device, "threads": torch.get_num_threads(), "python": platform.python_version(), "commit": commit}
    return {**where, "versions": versions, "options": options, "registered": names}


def main():
    args = arguments()
    if args.threads:
        torch.set_num_threads(args.threads)
    torch._dynamo.config.recompile_limit = 64
    names = args.implementations or ["eager", *sorted(ALL_EXPERTS_FUNCTIONS.keys())]
    found = {**heading(args, names), "results": []}
    print(json.dumps(found | {"results": None}), flush=True)
    with torch.no_grad():
        model = make_model(args)
        for phase in args.phases:
            for batch in args.batch:
                for mode in args.modes or MODES[args.device]:
                    times, errors = measure(model, args, phase, mode, batch, names)
                    for row in rows(args, phase, mode, batch, times, errors):
                        found["results"].append(row)
                        show(row)
                    if args.out:
                        args.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    ours = [row for row in found["results"] if row["implementation"] == "libmoe"]
    return 1 if args.smoke and (not ours or any("error" in row for row in ours)) else 0


if __name__ == "__main__":
    sys.exit(main())
