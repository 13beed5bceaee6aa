"""Fits the cost model of libmoe/plan/cost.hpp to measured times: fit_costs.py [ROOT].

Reads bench/results/h200.json and writes libmoe/plan/cost_constants.hpp. Needs numpy and scipy. Of each kernel the cases
from ids of three models are fitted, and those of the other two say how far off it is: tests/plan/cost_test.cpp asks the
same of the constants as the library has them.
"""

import json
import pathlib
import sys

import numpy as np
from scipy.optimize import least_squares

FITTED = ("qwen3next", "dsv3", "gpt-oss-120b")
PACKED = {"fp8_128x128": "e4m3"}  # a format's packed type, where it has another name
FAMILIES = {"one_token": 2, "grouped": 5}  # how many of the constants count


class Rates:
    """Reading takes latency + bytes / rate; products flops / rate."""

    def __init__(self, results):
        points = [(p["bytes"], p["us"]) for p in results["read_floor"]]
        few = min(points, key=lambda p: abs(p[0] - 4e6))
        self.bytes_per_us = (points[-1][0] - few[0]) / (points[-1][1] - few[1])
        self.latency_us = few[1] - few[0] / self.bytes_per_us
        self.flops_per_us = results["dense_tflops"] * 1e6


def terms(case, rates):
    """What each constant multiplies."""
    hidden, intermediate, experts, top_k = (case["shape"][name] for name in ("hidden", "intermediate", "n_experts", "top_k"))
    weights = 3.0 * hidden * intermediate
    slots = case["n_tokens"] * top_k
    family = case["kernel"].rsplit("experts_", 1)[1]
    met = experts * (1 - (1 - top_k / experts) ** case["n_tokens"])
    reads = slots if family == "one_token" else met
    read_us = rates.latency_us + reads * case["expert_bytes"] / rates.bytes_per_us
    crowd = min(1.0, (slots / met - 1) / 16)
    return [1.0, read_us, met * weights * 1e-6 * crowd, slots * weights * 2 / rates.flops_per_us, slots * hidden * 2e-6]


def expert_bytes(results):
    """Of a format and model: a token alone reads top_k of them."""
    alone = [r for r in results["results"] if r["mode"] == "ids" and r["n_tokens"] == 1]
    return {(r["model"], r["format"]): r["weight_bytes"] / r["shape"]["top_k"] for r in alone}


def fit(cases, rates, n):
    x = np.array([terms(c, rates)[:n] for c in cases])
    us = np.array([c["us"] for c in cases])
    start = np.full(n, 0.1)
    found = least_squares(lambda c: np.log(x @ c / us), start, bounds=(1e-9, np.inf), loss="soft_l1", f_scale=0.1)
    return found.x


def main(root):
    results = json.loads((root / "bench/results/h200.json").read_text())
    rates = Rates(results)
    bytes_of = expert_bytes(results)
    cases = [r for r in results["results"] if r["mode"] == "ids" and r["zipf"] == 0 and (r["model"], r["format"]) in bytes_of]
    for case in cases:
        case["expert_bytes"] = bytes_of[case["model"], case["format"]]
    rows = []
    for family, n in FAMILIES.items():
        for format in sorted({c["format"] for c in cases}):
            mine = [c for c in cases if c["format"] == format and c["kernel"].endswith(family)]
            constants = fit([c for c in mine if c["model"] in FITTED], rates, n)
            others = [c for c in mine if c["model"] not in FITTED]
            off = max(abs(np.dot(terms(c, rates)[:n], constants) / c["us"] - 1) for c in others)
            print(f"{family:10} {format:12} off by {off:.2f} at most of {len(others)} cases not fitted")
            values = ", ".join(f"{v:.4g}" for v in list(constants) + [0] * (5 - n))
            rows.append(f"    {{Family::{family}, PackedType::{PACKED.get(format, format)}, {{{values}}}}},\n")
    fitted = ", ".join(f'"{m}"' for m in FITTED)
    (root / "libmoe/plan/cost_constants.hpp").write_text(
        f"// Written by bench/fit_costs.py from bench/results/h200.json of commit {results['commit']}. cost.hpp says what\n"
        "// the numbers are.\n"
        "#pragma once\n\n"
        '#include "libmoe/plan/cost.hpp"\n\n'
        "namespace moe {\n\n"
        "struct KernelCost {\n    cuda::Family family;\n    PackedType type;\n    CostConstants constants;\n};\n\n"
        "using cuda::Family;\n"
        "inline constexpr KernelCost kernel_costs[] = {\n" + "".join(rows) + "};\n\n"
        f"// The models whose cases were fitted.\ninline constexpr const char* fitted_models[] = {{{fitted}}};\n\n"
        "}  // namespace moe\n"
    )


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent))
