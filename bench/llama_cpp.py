"""Tokens per second of a stock llama.cpp without and with libggml-libmoe.so, by turns, on a model of a few layers of true size.

    PACKAGES=folder PLUGIN=libggml-libmoe.so python3 bench/llama_cpp.py [--model qwen3-30b] [--layers 4] [--threads 2] [--rounds 5]
        [--version 3.22.1] [--read] [--polling 50,0,none] [--json FILE [--commit HASH]]    which gets one run more
        [--gpu [--no-op-offload] --libraries FOLDER]    of a build with CUDA: all but the experts on the GPU, as with --cpu-moe

The model is written to a temporary folder: random weights that repeat after eight experts, a vocabulary of 288. qwen3-30b has
Qwen3-30B-A3B's sizes and Q4_K_M's types (down is Q6_K in every other layer), gpt-oss-20b has experts in MXFP4, the rest in
Q8_0. Each side is a process of its own that waits while the other one works, and a second longer, until its threads have
stopped spinning. Polling N is a thread pool of ggml's with that polling, as llama.cpp's programs attach it (they: 50); "none"
is what libllama does without one. Beside a GPU stock llama.cpp copies the experts of long batches there, unless the option
--no-op-offload, which llama.cpp's programs have too, forbids it."""
import argparse
import ctypes
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/clients/llama_cpp"))
import libllama  # noqa: E402
import models  # noqa: E402
import packages  # noqa: E402
import quantize  # noqa: E402

PROMPT, DECODE = 512, 64
DISTINCT_EXPERTS = 8
SECONDS_OF_SPINNING = 1.0
SCHEMA = "libmoe.bench-llama-cpp.1"

def q4_k_m(name, shape):
    if name.endswith("_exps.weight"):
        is_fine = "ffn_down" in name and int(name.split(".")[1]) % 2 == 0
        return "q6_K" if is_fine else "q4_K"
    return "q4_K" if shape[0] > 1024 else "q6_K"


def mxfp4_experts(name, _):
    return "mxfp4" if name.endswith("_exps.weight") else "q8_0"


# How models.py builds it, with which sizes, and the type of a matrix by its name and shape.
MODELS = {
    "qwen3-30b": (models.qwen3moe, {"hidden": 2048, "intermediate": 768, "experts": 128, "top_k": 8, "heads": 32, "kv_heads": 4,
                                    "head": 128}, q4_k_m),
    "gpt-oss-20b": (models.gpt_oss, {"hidden": 2880, "intermediate": 2880, "experts": 32, "top_k": 4, "heads": 64, "kv_heads": 8},
                    mxfp4_experts),
}


class LargeMaker(models.Maker):
    """Every matrix is quantized, and experts repeat."""

    def __init__(self, arch, quantize, kind_of):
        super().__init__(arch, quantize, {}, False)
        self.kind_of = kind_of

    def matrix(self, name, *shape, scale=1.0):
        if "ffn_gate_inp" in name:
            return super().matrix(name, *shape, scale=scale)
        self.quantized(name, self.kind_of(name, shape), shape, scale)

    def quantized(self, name, kind, shape, scale=1.0):
        values = (scale * self.random.standard_normal(shape, dtype="float32") / shape[-1] ** 0.5).astype("float32")
        self.store(name, kind, values)

    def experts(self, name, role, *shape):
        self.quantized(name, self.kind_of(name, shape), (DISTINCT_EXPERTS, *shape[1:]))
        kind, _, data = self.tensors[name]
        self.tensors[name] = (kind, shape[::-1], data * (shape[0] // DISTINCT_EXPERTS))


def write_model(path, library, name, layers):
    build, sizes, kind_of = MODELS[name]
    arch = next(arch for made_by, arch in models.ARCHITECTURES.values() if made_by is build)
    maker = LargeMaker(arch, quantize.Quantizer(library.base), kind_of)
    build(maker, layers, **sizes)
    maker.write(path)


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))


def serve(folder, path, n_threads, polling, use_mmap, is_on_gpu, op_offload):
    """A child: reads "prompt" and "decode" from standard input, answers seconds."""
    library = libllama.Llama(folder)
    assert ("LIBMOE" in library.devices()) == ("GGML_BACKEND_PATH" in os.environ), "the plug-in was not loaded"
    model = libllama.Model(library, path, use_mmap, is_on_gpu)
    context = libllama.Context(model, 1, PROMPT + DECODE, n_threads, is_exact=False, op_offload=op_offload)
    if polling != "none":
        context.attach_pool(n_threads, int(polling))
    memory = library.llama
    memory.llama_get_memory.restype = ctypes.c_void_p
    print("ready", flush=True)
    for line in sys.stdin:
        start = time.perf_counter()
        if line.strip() == "prompt":
            memory.llama_memory_clear(ctypes.c_void_p(memory.llama_get_memory(context.handle)), True)
            context.decode([(0, i, 3 + 7 * i % 250) for i in range(PROMPT)])
        else:
            for i in range(DECODE):
                context.decode([(0, PROMPT + i, 3 + 11 * i % 250)])
        context.logits(1)
        print(time.perf_counter() - start, flush=True)


class Child:
    def __init__(self, has_plugin, *arguments):
        environment = {name: value for name, value in os.environ.items() if name != "GGML_BACKEND_PATH"}
        if has_plugin:
            environment["GGML_BACKEND_PATH"] = os.environ["PLUGIN"]
        self.process = subprocess.Popen([sys.executable, __file__, "--serve", *map(str, arguments)], env=environment,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline().strip() == "ready"

    def seconds(self, what):
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def measure(folder, path, n_threads, polling, rounds, *flags):
    """Median tokens per second, and the median ratio of neighbours, of prompt and decode."""
    sides = {side: Child(side == "libmoe", folder, path, n_threads, polling, *map(int, flags)) for side in ("stock", "libmoe")}
    seconds = {(side, what): [] for side in sides for what in ("prompt", "decode")}
    for i in range(rounds + 1):
        for side in sorted(sides, reverse=i % 2):
            time.sleep(SECONDS_OF_SPINNING)
            for what in ("prompt", "decode"):
                seconds[side, what].append(sides[side].seconds(what))
    for child in sides.values():
        child.end()
    result = {"polling": polling}
    for what, tokens in (("prompt", PROMPT), ("decode", DECODE)):
        for side in sides:
            result[f"{side} {what}"] = round(tokens / statistics.median(seconds[side, what][1:]), 1)
        ratios = [a / b for a, b in zip(seconds["stock", what][1:], seconds["libmoe", what][1:])]
        result[f"ratio {what}"] = round(statistics.median(ratios), 2)
    return result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=MODELS, default="qwen3-30b")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--version", default=list(packages.VERSIONS)[-1])
    parser.add_argument("--read", action="store_true", help="read the file instead of mapping it")
    parser.add_argument("--polling", default="50,0,none")
    parser.add_argument("--libraries", help="a folder of llama.cpp's shared libraries, instead of the package's")
    parser.add_argument("--gpu", action="store_true", help="all but the experts on the GPU")
    parser.add_argument("--no-op-offload", action="store_true", help="with --gpu: experts of long batches are not copied there")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--commit", default="")
    options = parser.parse_args()
    if options.no_op_offload and not options.gpu:
        parser.error("--no-op-offload without --gpu says nothing")
    folder = options.libraries or packages.libraries(os.environ["PACKAGES"], options.version)
    with tempfile.TemporaryDirectory() as temporary:
        path = f"{temporary}/model.gguf"
        library = libllama.Llama(folder)
        gpu = library.gpu() if options.gpu else None
        if options.gpu and not gpu:
            sys.exit(f"{folder}: no GPU that ggml can use")
        write_model(path, library, options.model, options.layers)
        print(f"{processor()}, ggml {library.version}, {options.model}, {options.layers} layers, {options.threads} threads, "
              f"{os.path.getsize(path) / 1e9:.2f} GB", flush=True)
        results = []
        for polling in options.polling.split(","):
            results.append(measure(folder, path, options.threads, polling, options.rounds, not options.read, options.gpu,
                                   not options.no_op_offload))
            print(json.dumps(results[-1]), flush=True)
    if options.json:
        run = {"commit": options.commit, "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "processor": processor(),
               "n_processors": os.cpu_count(), "ggml": library.version, "package": options.version, "model": options.model,
               "layers": options.layers, "threads": options.threads, "rounds": options.rounds, "results": results}
        if gpu:
            run |= {"gpu": gpu, "op_offload": not options.no_op_offload}
        document = json.loads(options.json.read_text()) if options.json.exists() else {"schema": SCHEMA, "runs": []}
        document["runs"].append(run)
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    if "--serve" in sys.argv:
        serve(sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5], *(flag == "1" for flag in sys.argv[6:9]))
    else:
        main()
