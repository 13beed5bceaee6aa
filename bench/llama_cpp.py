"""Tokens per second of a stock llama.cpp without and with libggml-libmoe.so, by turns, on a model of a few layers of true size.

    PACKAGES=folder PLUGIN=libggml-libmoe.so python3 bench/llama_cpp.py [--layers 4] [--threads 2] [--rounds 5] [--version 3.22.1] [--read]
        [--polling 50,0,none]

The model is written to a temporary folder: Qwen3-30B-A3B's sizes, Q4_K_M's types (down is Q6_K in every other layer), random
weights that repeat after eight experts, a vocabulary of 288. Each side is a process of its own that waits while the other one
works. Polling N is a thread pool of ggml's with that polling, as llama.cpp's programs attach it (they: 50); "none" is what
libllama does without one."""
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
# ggml_threadpool_params: after the mask of processors.
PARAMS_BYTES, POLL_OFFSET = 544, 520


class LargeMaker(models.Maker):
    """Every matrix is quantized, and experts repeat."""

    def matrix(self, name, *shape, scale=1.0):
        if "ffn_gate_inp" in name:
            return super().matrix(name, *shape, scale=scale)
        self.quantized(name, "q4_K" if len(shape) == 2 and shape[0] > 1024 else "q6_K", shape, scale)

    def quantized(self, name, kind, shape, scale=1.0):
        values = (scale * self.random.standard_normal(shape, dtype="float32") / shape[-1] ** 0.5).astype("float32")
        self.store(name, kind, values)

    def experts(self, name, role, *shape):
        is_fine = role == "down" and int(name.split(".")[1]) % 2 == 0
        self.quantized(name, "q6_K" if is_fine else "q4_K", (DISTINCT_EXPERTS, *shape[1:]))
        kind, _, data = self.tensors[name]
        self.tensors[name] = (kind, shape[::-1], data * (shape[0] // DISTINCT_EXPERTS))


def write_model(path, library, layers):
    maker = LargeMaker("qwen3moe", quantize.Quantizer(library.base), {}, False)
    models.qwen3moe(maker, layers, hidden=2048, intermediate=768, experts=128, top_k=8, heads=32, kv_heads=4, head=128)
    maker.write(path)


def attach_pool(library, context, n_threads, poll):
    with open("/proc/self/maps", encoding="utf-8") as maps:
        path = next(line.split()[-1] for line in maps if "libggml-cpu" in line)
    cpu = ctypes.CDLL(path)
    cpu.ggml_threadpool_new.restype = ctypes.c_void_p
    params = (ctypes.c_uint8 * PARAMS_BYTES)()
    library.base.ggml_threadpool_params_init(params, n_threads)
    ctypes.c_uint32.from_buffer(params, POLL_OFFSET).value = poll
    pool = ctypes.c_void_p(cpu.ggml_threadpool_new(params))
    library.llama.llama_attach_threadpool(context.handle, pool, pool)
    return pool


def serve(folder, path, n_threads, polling, use_mmap):
    """A child: reads "prompt" and "decode" from standard input, answers seconds."""
    library = libllama.Llama(folder)
    assert ("LIBMOE" in library.devices()) == ("GGML_BACKEND_PATH" in os.environ), "the plug-in was not loaded"
    model = libllama.Model(library, path, use_mmap)
    context = libllama.Context(model, 1, PROMPT + DECODE, n_threads, is_exact=False)
    if polling != "none":
        attach_pool(library, context, n_threads, int(polling))
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


def measure(folder, path, n_threads, polling, rounds, use_mmap):
    """Median tokens per second, and the median ratio of neighbours, of prompt and decode."""
    sides = {side: Child(side == "libmoe", folder, path, n_threads, polling, int(use_mmap)) for side in ("stock", "libmoe")}
    seconds = {(side, what): [] for side in sides for what in ("prompt", "decode")}
    for i in range(rounds + 1):
        for side in sorted(sides, reverse=i % 2):
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
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--version", default=list(packages.VERSIONS)[-1])
    parser.add_argument("--read", action="store_true", help="read the file instead of mapping it")
    parser.add_argument("--polling", default="50,0,none")
    options = parser.parse_args()
    folder = packages.libraries(os.environ["PACKAGES"], options.version)
    with tempfile.TemporaryDirectory() as temporary:
        path = f"{temporary}/model.gguf"
        library = libllama.Llama(folder)
        write_model(path, library, options.layers)
        print(f"ggml {library.version}, {options.layers} layers, {options.threads} threads, {os.path.getsize(path) / 1e9:.2f} GB",
              flush=True)
        for polling in options.polling.split(","):
            print(json.dumps(measure(folder, path, options.threads, polling, options.rounds, not options.read)), flush=True)


if __name__ == "__main__":
    if "--serve" in sys.argv:
        serve(sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5], sys.argv[6] == "1")
    else:
        main()
