"""Holds what README.md's C program prints for the fixture qwen3_moe_bf16 to the same number, computed here in double precision
from the file alone: the first MoE layer, one token of ones. Nothing but the standard library of Python is used.

usage: readme_output.py CHECKPOINT_FOLDER OUTPUT_OF_THE_PROGRAM
"""
import json
import math
import pathlib
import re
import struct
import sys

TOLERANCE = 1e-3  # relative: the program prints six digits of a sum in float


class Safetensors:
    def __init__(self, path):
        data = pathlib.Path(path).read_bytes()
        (length,) = struct.unpack_from("<Q", data)
        self.tensors = json.loads(data[8 : 8 + length])
        self.data = data[8 + length :]

    def rows(self, name):
        """The rows of a bfloat16 matrix: its values are the upper halves of floats."""
        tensor = self.tensors[name]
        assert tensor["dtype"] == "BF16", (name, tensor["dtype"])
        first, last = tensor["data_offsets"]
        halves = struct.unpack_from(f"<{(last - first) // 2}H", self.data, first)
        values = struct.unpack(f"<{len(halves)}f", struct.pack(f"<{len(halves)}I", *(half << 16 for half in halves)))
        width = tensor["shape"][1]
        return [values[i : i + width] for i in range(0, len(values), width)]


def silu(value):
    return value / (1 + math.exp(-value))


def first_output(folder):
    """out[0]. With a token of ones every projection is the sum of a row."""
    config = json.loads((folder / "config.json").read_text())
    layer = config["decoder_sparse_step"] - 1
    file = Safetensors(folder / "model.safetensors")
    scores = [math.exp(sum(row)) for row in file.rows(f"model.layers.{layer}.mlp.gate.weight")]
    chosen = sorted(range(len(scores)), key=lambda expert: -scores[expert])[: config["num_experts_per_tok"]]
    total = sum(scores[expert] for expert in chosen)  # norm_topk_prob
    out = 0
    for expert in chosen:
        gate, up, down = (file.rows(f"model.layers.{layer}.mlp.experts.{expert}.{part}_proj.weight")
                          for part in ("gate", "up", "down"))
        inner = (silu(sum(g)) * sum(u) for g, u in zip(gate, up))
        out += scores[expert] / total * sum(weight * value for weight, value in zip(down[0], inner))
    return out


def main(folder, output):
    text = pathlib.Path(output).read_text()
    wanted = first_output(pathlib.Path(folder))
    match = re.fullmatch(r"out\[0\] = (\S+)\n", text)
    if not match:
        raise SystemExit(f"the program printed {text!r}, not out[0]")
    if not abs(float(match[1]) - wanted) <= TOLERANCE * abs(wanted):
        raise SystemExit(f"the program says out[0] = {match[1]}; it is {wanted:g}")
    print(f"out[0] = {match[1]}, wanted {wanted:g}")


main(*sys.argv[1:])
