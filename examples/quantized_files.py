"""From file to device: MoE layers of Qwen3-30B's size as files of Q4_K_M (GGUF), GPTQ and AWQ, with their times.

    quantized_files.py [--device cuda] [--layers 1] [--files q4_k_m,gptq,awq] [--tokens 1,32,512,8192] [--folder FOLDER] [--small]

Writes each file with random codes, loads it with libmoe and prints what that takes: the bytes of the file and of the packed weights, the
time to load, the kernels, and the time of a layer for each number of tokens. Then single tokens are compared with the CPU reference, which
reads the same file; a difference ends the program with 1. It needs numpy, and the package moe on PYTHONPATH with its library
(bindings/python/README.md). --small makes sizes for a test.
"""
import argparse
import contextlib
import ctypes
import dataclasses
import json
import math
import pathlib
import statistics
import struct
import sys
import tempfile
import time
from typing import Callable, NamedTuple

import numpy

import moe

GROUP = 128  # columns that share a scale in GPTQ and AWQ
LIMIT = 1e-2  # relative error of a token: operands, intermediate and output are bfloat16
CHECKED = 4  # tokens
COMMON = {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_act": "silu", "num_attention_heads": 32,
          "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [], "torch_dtype": "bfloat16"}


@dataclasses.dataclass(frozen=True)
class Sizes:
    hidden: int = 2048
    intermediate: int = 768
    n_experts: int = 128
    top_k: int = 8
    n_layers: int = 1


SMALL = Sizes(hidden=256, intermediate=256, n_experts=8, top_k=2)


class Entry(NamedTuple):
    """A tensor of a file, made when it is written."""
    name: str
    dtype: str
    shape: tuple
    n_bytes: int
    make: Callable


# --- tensors: codes are random, weights are about 1 / sqrt(columns), so that activations stay near one ---------------------------------------


def f16_bytes(rng, count, middle):
    """Float16 values from half of `middle` to 1.5 times as much."""
    return (middle * rng.uniform(0.5, 1.5, count)).astype("<f2")


def blocks_of(rng, count, n_bytes, halves):
    """Blocks of ggml: random bytes, with the float16 factors {offset: size}."""
    blocks = numpy.frombuffer(rng.bytes(count * n_bytes), numpy.uint8).reshape(count, n_bytes).copy()
    for offset, middle in halves.items():
        blocks[:, offset:offset + 2] = f16_bytes(rng, count, middle).view(numpy.uint8).reshape(count, 2)
    return blocks


def q4_k(rng, rows, columns):
    """144 bytes for 256 weights: d, dmin, scales and minima of 6 bits, codes. The spread of d scale code - dmin minimum is about 258 d."""
    d = 1 / (258 * math.sqrt(columns))
    return blocks_of(rng, rows * columns // 256, 144, {0: d, 2: 7.5 * d})


def q6_k(rng, rows, columns):
    """210 bytes for 256 weights: codes, signed scales, d. The spread of d scale (code - 32) is about 1366 d."""
    return blocks_of(rng, rows * columns // 256, 210, {208: 1 / (1366 * math.sqrt(columns))})


def words(rng, shape, low_bits=0xFFFFFFFF, offset=0):
    """Eight codes of four bits in each int32."""
    return (rng.integers(0, 1 << 32, shape, numpy.uint32) & numpy.uint32(low_bits)) + numpy.uint32(offset)


def router(rng, sizes):
    """Float32 values that bfloat16 holds."""
    values = rng.standard_normal((sizes.n_experts, sizes.hidden), numpy.float32) / math.sqrt(sizes.hidden)
    return to_bf16(values).astype(numpy.uint32) << 16


def to_bf16(values):
    return ((values.view(numpy.uint32) + 0x8000) >> 16).astype(numpy.uint16)


def to_f32(bits):
    return (bits.astype(numpy.uint32) << 16).view(numpy.float32)


# --- files -----------------------------------------------------------------------------------------------------------------------------------


def write_entries(file, entries, alignment):
    for entry in entries:
        file.write(bytes(-file.tell() % alignment))
        data = entry.make()
        assert data.nbytes == entry.n_bytes, entry.name
        file.write(data.tobytes())


def gguf_text(text):
    return struct.pack("<Q", len(text)) + text.encode()


def gguf_entries(rng, sizes):
    """Gate and up in q4_k, down in q6_k: the mix of Q4_K_M."""
    types = {"gate": (12, q4_k, 144), "up": (12, q4_k, 144), "down": (14, q6_k, 210)}
    for layer in range(sizes.n_layers):
        yield Entry(f"blk.{layer}.ffn_gate_inp.weight", 0, (sizes.hidden, sizes.n_experts), 4 * sizes.hidden * sizes.n_experts,
                    lambda: router(rng, sizes))
        for name, (type_id, make, block) in types.items():
            rows, columns = (sizes.hidden, sizes.intermediate) if name == "down" else (sizes.intermediate, sizes.hidden)
            yield Entry(f"blk.{layer}.ffn_{name}_exps.weight", type_id, (columns, rows, sizes.n_experts),
                        sizes.n_experts * rows * columns // 256 * block,
                        lambda make=make, rows=rows, columns=columns: make(rng, rows * sizes.n_experts, columns))


def write_gguf(folder, rng, sizes):
    path, alignment = folder / "model-Q4_K_M.gguf", 32
    numbers = {"block_count": sizes.n_layers, "embedding_length": sizes.hidden, "expert_feed_forward_length": sizes.intermediate,
               "expert_count": sizes.n_experts, "expert_used_count": sizes.top_k}
    keys = [gguf_text("general.architecture") + struct.pack("<I", 8) + gguf_text("qwen3moe"),
            *(gguf_text(f"qwen3moe.{name}") + struct.pack("<II", 4, value) for name, value in numbers.items())]
    entries, offset, infos = list(gguf_entries(rng, sizes)), 0, b""
    for entry in entries:
        infos += gguf_text(entry.name) + struct.pack(f"<I{len(entry.shape)}Q", len(entry.shape), *entry.shape)
        infos += struct.pack("<IQ", entry.dtype, offset)
        offset += entry.n_bytes + -entry.n_bytes % alignment
    with path.open("wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, len(entries), len(keys)) + b"".join(keys) + infos)
        write_entries(file, entries, alignment)
    return path


def gptq_matrix(rng, name, rows, columns):
    """Symmetric: the zero point of all is 8, stored as 7. Codes lie along k."""
    groups, scale = columns // GROUP, 1 / (4.6 * math.sqrt(columns))
    yield Entry(f"{name}.qweight", "I32", (columns // 8, rows), rows * columns // 2, lambda: words(rng, (columns // 8, rows)))
    yield Entry(f"{name}.qzeros", "I32", (groups, rows // 8), groups * rows // 2, lambda: words(rng, (groups, rows // 8), 0, 0x77777777))
    yield Entry(f"{name}.scales", "F16", (groups, rows), groups * rows * 2, lambda: f16_bytes(rng, groups * rows, scale))
    yield Entry(f"{name}.g_idx", "I32", (columns,), columns * 4, lambda: (numpy.arange(columns) // GROUP).astype("<i4"))


def awq_matrix(rng, name, rows, columns):
    """Zero points from 6 to 9. Codes lie along the rows of the matrix."""
    groups, scale = columns // GROUP, 1 / (4.7 * math.sqrt(columns))
    yield Entry(f"{name}.qweight", "I32", (columns, rows // 8), rows * columns // 2, lambda: words(rng, (columns, rows // 8)))
    yield Entry(f"{name}.qzeros", "I32", (groups, rows // 8), groups * rows // 2,
                lambda: words(rng, (groups, rows // 8), 0x33333333, 0x66666666))
    yield Entry(f"{name}.scales", "F16", (groups, rows), groups * rows * 2, lambda: f16_bytes(rng, groups * rows, scale))


def safetensors_entries(rng, sizes, matrix):
    for layer in range(sizes.n_layers):
        stem = f"model.layers.{layer}.mlp"
        yield Entry(f"{stem}.gate.weight", "BF16", (sizes.n_experts, sizes.hidden), 2 * sizes.n_experts * sizes.hidden,
                    lambda: (router(rng, sizes) >> 16).astype(numpy.uint16))
        for expert in range(sizes.n_experts):
            for name in ("gate", "up", "down"):
                rows, columns = (sizes.hidden, sizes.intermediate) if name == "down" else (sizes.intermediate, sizes.hidden)
                yield from matrix(rng, f"{stem}.experts.{expert}.{name}_proj", rows, columns)


def write_safetensors(folder, rng, sizes, matrix, quantization):
    folder.mkdir(exist_ok=True)
    config = {**COMMON, "hidden_size": sizes.hidden, "num_hidden_layers": sizes.n_layers, "moe_intermediate_size": sizes.intermediate,
              "intermediate_size": 8 * sizes.intermediate, "num_experts": sizes.n_experts, "num_experts_per_tok": sizes.top_k,
              "quantization_config": {"bits": 4, "group_size": GROUP, **quantization}}
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    header, entries, offset = {}, list(safetensors_entries(rng, sizes, matrix)), 0
    for entry in entries:
        header[entry.name] = {"dtype": entry.dtype, "shape": entry.shape, "data_offsets": [offset, offset + entry.n_bytes]}
        offset += entry.n_bytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        write_entries(file, entries, 1)
    return folder


def write_gptq(folder, rng, sizes):
    return write_safetensors(folder / "gptq", rng, sizes, gptq_matrix,
                             {"quant_method": "gptq", "sym": True, "desc_act": False, "checkpoint_format": "gptq"})


def write_awq(folder, rng, sizes):
    return write_safetensors(folder / "awq", rng, sizes, awq_matrix, {"quant_method": "awq", "version": "gemm", "zero_point": True})


FILES = {"q4_k_m": write_gguf, "gptq": write_gptq, "awq": write_awq}


# --- what is measured ------------------------------------------------------------------------------------------------------------------------


def seconds_of(work):
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def read_all(path):
    """Reads what the checkpoint has, 16 MB at a time, and gives it up again."""
    buffer = bytearray(16 << 20)
    for one in [path] if path.is_file() else path.glob("*.safetensors"):
        with one.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


class Loaded:
    """A checkpoint's layers on a device, and calls of them."""

    def __init__(self, path, device, max_tokens):
        self.checkpoint = moe.Checkpoint(path)
        self.plan = moe.Plan(checkpoint=self.checkpoint, checkpoint_layer=self.checkpoint.layers[0], device=device, x_type="bf16",
                             max_tokens=max_tokens)
        self.stream, self.device, self.weights = moe.Stream(device), device, []
        self.workspace = moe.Workspace(self.plan)

    def load(self):
        """Every layer anew."""
        for one in self.weights:
            one.close()
        self.weights = [moe.Weights.load_checkpoint(self.plan, self.checkpoint, layer, stream=self.stream) for layer in self.checkpoint.layers]
        self.stream.synchronize()

    def packed_bytes(self):
        reports = [one.memory for one in self.weights]
        return sum(one.host_bytes + one.pinned_bytes + one.device_bytes + one.borrowed_bytes for one in reports)

    def array(self, given):
        return given if self.device == "cpu" else moe.DeviceArray.of(given, device=self.device)

    def forward(self, x, layer):
        """out of a layer as bfloat16 in host memory."""
        out = moe.forward(self.plan, self.weights[layer], self.workspace, self.array(x), stream=self.stream)
        self.stream.synchronize()
        return out if self.device == "cpu" else out.numpy()

    def time(self, rng, n_tokens):
        """Median seconds of a call. Calls have other tokens and take the layers in turn, so that a call seldom finds its weights in a cache."""
        n_calls = 1 if self.device == "cpu" else 64 if n_tokens <= 32 else 8
        inputs = [self.array(random_x(rng, n_tokens, self.plan.shape.hidden)) for _ in range(n_calls if n_tokens <= 512 else 2)]
        out = self.array(numpy.empty((n_tokens, self.plan.shape.hidden), numpy.uint16))
        arguments = [moe.abi.ForwardArgs(n_tokens=n_tokens, stream=self.stream.address, x=address(inputs[i % len(inputs)]), out=address(out))
                     for i in range(n_calls)]
        with contextlib.ExitStack() as used:
            plan, workspace, *weights = [used.enter_context(one.use()) for one in (self.plan, self.workspace, *self.weights)]
            calls = [(plan, weights[i % len(weights)], workspace, ctypes.addressof(one)) for i, one in enumerate(arguments)]
            forward = moe.library().handle.moe_forward  # without what moe.forward does for each call

            def all_calls():
                for call in calls:
                    if status := forward(*call):
                        raise moe.library().failure(status, "moe_forward")
                self.stream.synchronize()

            all_calls()
            samples, begin = [], time.perf_counter()
            while len(samples) < 3 or (len(samples) < 15 and time.perf_counter() - begin < 1):
                samples.append(seconds_of(all_calls) / n_calls)
        return statistics.median(samples)

    def kernels(self, n_tokens):
        """Of gate and up, and of down."""
        name = self.plan.kernel("experts", n_tokens)
        stage = next(one for one in self.plan.facts["stages"] if one["stage"] == "experts")
        down = next((one.get("down_kernel") for one in stage["candidates"] if one["kernel"] == name), None)
        return f"{name}, {down}" if down else name

    def close(self):
        for one in (*self.weights, self.workspace, self.plan, self.checkpoint, self.stream):
            one.close()


def address(array):
    return array.ctypes.data if isinstance(array, numpy.ndarray) else array.address


def random_x(rng, n_tokens, hidden):
    return to_bf16(rng.standard_normal((n_tokens, hidden), numpy.float32))


def reference(path, layer, x):
    """out of the CPU reference, one token at a time."""
    with moe.Checkpoint(path) as checkpoint:
        number = checkpoint.layers[layer]
        plan = moe.Plan(checkpoint=checkpoint, checkpoint_layer=number, device="cpu", x_type="f32", max_tokens=1,
                        kernel_filter="experts:cpu_any_f32_experts_ref")
        with plan, moe.Weights.load_checkpoint(plan, checkpoint, number, ownership="borrow") as weights, moe.Workspace(plan) as workspace:
            return numpy.concatenate([moe.forward(plan, weights, workspace, to_f32(token)[None]) for token in x])


def compare(out, wanted):
    """(largest relative error of a token, least cosine). Zeros have an error of 1, and so has what is not a number."""
    out, wanted = out.astype(numpy.float64), wanted.astype(numpy.float64)
    sizes = numpy.linalg.norm(wanted, axis=1)
    if not numpy.isfinite(out).all() or not (sizes > 0).all():
        return 1.0, 0.0
    errors = numpy.linalg.norm(out - wanted, axis=1) / sizes
    cosines = (out * wanted).sum(axis=1) / numpy.maximum(sizes * numpy.linalg.norm(out, axis=1), 1e-300)
    return float(errors.max()), float(cosines.min())


def check(loaded, path, rng):
    """Single tokens through every layer."""
    errors, cosines = [], []
    for layer in range(len(loaded.weights)):
        x = random_x(rng, CHECKED, loaded.plan.shape.hidden)
        out = numpy.concatenate([to_f32(numpy.asarray(loaded.forward(token[None], layer)).view(numpy.uint16)) for token in x])
        error, cosine = compare(out, reference(path, layer, x))
        errors.append(error)
        cosines.append(cosine)
    return max(errors), min(cosines)


def told_us(seconds):
    us = seconds * 1e6
    return f"{us:.1f} us" if us < 100 else f"{us:.0f} us"


def measure(name, path, device, tokens):
    """Prints what a file takes; True if the layers compute what the reference does."""
    rng = numpy.random.default_rng(2)
    loaded = Loaded(path, device, max(tokens))
    info, size = loaded.checkpoint.info, loaded.checkpoint.info.file_bytes
    desc = loaded.checkpoint.layer(loaded.checkpoint.layers[0])
    print(f"{name}: {path.name}, {size / 1e6:.1f} MB, layers: {info.n_layers}, experts {desc.n_experts}, hidden {desc.hidden}, "
          f"intermediate {desc.intermediate}, top {desc.top_k}")
    read = min(seconds_of(lambda: read_all(path)) for _ in range(3))
    first, *more = [seconds_of(loaded.load) for _ in range(4)]
    load = statistics.median(more)
    print(f"  load     {load * 1e3:.1f} ms, {size / load / 1e9:.2f} GB/s, the first time {first * 1e3:.1f} ms; reading the file alone, from the page "
          f"cache, {read * 1e3:.1f} ms, {size / read / 1e9:.2f} GB/s")
    packed = loaded.packed_bytes()
    print(f"  packed   {packed / 1e6:.1f} MB on {device}, {packed / size:.3f} of the file")
    for n_tokens in tokens:
        print(f"  T = {n_tokens:<5}{told_us(loaded.time(rng, n_tokens)):>11}  {loaded.kernels(n_tokens)}")
    error, cosine = check(loaded, path, rng)
    is_good = error <= LIMIT
    print(f"  check    {CHECKED} tokens of each layer against the CPU reference: relative error {error:.1e}, cosine {cosine:.6f}, "
          f"{'as it should be' if is_good else f'FAILED: more than {LIMIT}'}")
    loaded.close()
    return is_good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--files", default=",".join(FILES), help="some of them, by commas")
    parser.add_argument("--tokens", default="1,32,512,8192")
    parser.add_argument("--folder", help="keep the files there; default: a temporary folder")
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    unknown = set(options.files.split(",")) - set(FILES)
    if unknown:
        parser.error(f"--files has {', '.join(sorted(unknown))}, there are {', '.join(FILES)}")
    sizes = dataclasses.replace(SMALL if options.small else Sizes(), n_layers=options.layers)
    tokens = [int(one) for one in options.tokens.split(",")]
    print(f"libmoe {moe.version_string()}, {options.device}: {moe.device_info(options.device).name}")
    results = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(options.folder or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name in options.files.split(","):
            path = FILES[name](folder, numpy.random.default_rng(1), sizes)
            results.append(measure(name, path, options.device, tokens))
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    try:
        main()
    except moe.MoeError as error:
        sys.exit(f"quantized_files.py: {error}")
