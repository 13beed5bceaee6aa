"""Fits the cost model of libmoe/plan/cost.hpp to measured times: fit_costs.py [ROOT].

Reads bench/results/study-small_batch.json and gemv-h200.json for both families of small batches, h200.json for more tokens and
formats-h200.json for the other formats, and writes libmoe/plan/cost_constants.hpp. Needs numpy and scipy. Of each family the
cases from ids of three models are fitted, of the other formats those of the two that have them, and those of the other models
say how far off it is: tests/plan/cost_test.cpp asks the same of the constants as the library has them.
"""

import json
import pathlib
import sys

import numpy as np
from scipy.optimize import least_squares

import kernel_names

FITTED = ("qwen3next", "mixtral", "dsv3")
FITTED_ALONE = ("qwen3-30b", "mixtral")  # of the other formats
OTHERS = {"awq": "grid_4", "int8_row": "grid_8", "fp8_row": "grid_e4m3", "nf4": "grid_codebook"}  # packed types of other names
OTHERS.update((name, name) for name in ("q2_k", "q3_k", "q5_k", "q6_k", "iq4_xs", "iq2_xxs", "iq2_xs", "iq3_xxs", "iq3_s", "q4_0", "iq4_nl",
                                        "q5_0", "q4_1", "q5_1"))
MAX_SMALL_BATCH = 16  # tokens that study-small_batch.json has
MOST_TOKENS = 32  # of the small-batch kernels
FAMILIES = {"gemv": (0, 1, 2), "grouped_gemm": (0, 1, 3, 4, 5)}  # which of the constants count
ROWS, ROWS_OF_MOST = 5, 0.95  # that constant, and what it is of most formats
ENUMERATORS = {"gemv": "sm90_gemv", "grouped_gemm": "grouped"}  # of cuda::Family


class Rates:
    """Reading takes latency + bytes / rate; GEMMs flops / rate."""

    def __init__(self, results):
        points = [(p["bytes"], p["us"]) for p in results["read_floor"]]
        small = min(points, key=lambda p: abs(p[0] - 4e6))
        self.bytes_per_us = (points[-1][0] - small[0]) / (points[-1][1] - small[1])
        self.latency_us = small[1] - small[0] / self.bytes_per_us
        self.flops_per_us = results["dense_tflops"] * 1e6


def terms(case, family):
    """What each constant of the family multiplies."""
    rates = case["rates"]
    hidden, intermediate, experts, top_k = (case["shape"][name] for name in ("hidden", "intermediate", "n_experts", "top_k"))
    weights = 3.0 * hidden * intermediate
    slots = case["n_tokens"] * top_k
    met = experts * (1 - (1 - top_k / experts) ** case["n_tokens"])
    read_us = rates.latency_us + met * case["expert_bytes"] / rates.bytes_per_us
    again_us = (slots - met) * case["expert_bytes"] / rates.bytes_per_us
    crowd = min(1.0, (slots / met - 1) / 16)
    gemm_us = slots * weights * 2 / rates.flops_per_us
    of_all = [1.0, read_us, again_us, met * weights * 1e-6 * crowd, gemm_us, slots * hidden * 2e-6]
    return [of_all[i] for i in FAMILIES[family]]


def expert_bytes(results):
    """Of a format and model: a token alone reads top_k of them."""
    alone = [r for r in results["results"] if r["mode"] == "ids" and r["n_tokens"] == 1]
    return {(r["model"], r["format"]): r["weight_bytes"] / r["shape"]["top_k"] for r in alone}


def fit(cases, family):
    x = np.array([terms(c, family) for c in cases])
    us = np.array([c["us"] for c in cases])
    start = np.full(x.shape[1], 0.1)
    bounds = np.array([[1e-9], [np.inf]]).repeat(x.shape[1], axis=1)
    if FAMILIES[family][-1] == ROWS and len({c["model"] for c in cases}) == 1:
        start[-1] = ROWS_OF_MOST  # rows grow with what is multiplied: one model alone cannot tell them apart
        bounds[:, -1] = ROWS_OF_MOST * 0.99, ROWS_OF_MOST * 1.01
    # Small batches count more: there the plan decides, and there are few cases of them.
    weights = np.array([3.0 if c["format"] in OTHERS and c["n_tokens"] <= MOST_TOKENS else 1.0 for c in cases])
    found = least_squares(lambda c: weights * np.log(x @ c / us), start, bounds=bounds)
    return found.x


def cases_of(results, bytes_of):
    """Those from ids with even routing, with the rates of their run."""
    rates = Rates(results)
    cases = [kernel_names.renewed(r) for r in results["results"] if r["mode"] == "ids" and r["zipf"] == 0 and (r["model"], r["format"]) in bytes_of]
    return [{**case, "expert_bytes": bytes_of[case["model"], case["format"]], "rates": rates} for case in cases]


def bytes_of_all(*files):
    """By model and format; of a model without a token alone, by its weights and those of one that has it."""
    found, weights = {}, {}
    for results in files:
        found.update(expert_bytes(results))
        for r in results["results"]:
            weights[r["model"]] = r["shape"]["hidden"] * r["shape"]["intermediate"]
    for format in OTHERS:
        found.setdefault(("qwen3next", format), found["qwen3-30b", format] * weights["qwen3next"] / weights["qwen3-30b"])
    return found


def main(root):
    names = ("h200", "study-small_batch", "gemv-h200", "formats-h200")
    results, small, gemv, formats = (json.loads((root / f"bench/results/{name}.json").read_text()) for name in names)
    bytes_of = bytes_of_all(results, formats)
    cases = [c for c in cases_of(results, bytes_of) if c["n_tokens"] > MAX_SMALL_BATCH] + cases_of(small, bytes_of)
    cases += [c for c in cases_of(gemv, bytes_of) if c["format"] in OTHERS or kernel_names.family(c["kernel"]) == "gemv"]
    cases += [c for c in cases_of(formats, bytes_of) if c["format"] in OTHERS]
    rows = []
    for family, indexes in FAMILIES.items():
        for format in sorted({c["format"] for c in cases}):
            mine = [c for c in cases if c["format"] == format and kernel_names.family(c["kernel"]) == family]
            models = FITTED_ALONE if format in OTHERS else FITTED
            constants = fit([c for c in mine if c["model"] in models], family)
            others = [c for c in mine if c["model"] not in models]
            off = max((abs(np.dot(terms(c, family), constants) / c["us"] - 1) for c in others), default=0)
            print(f"{family:12} {format:12} off by {off:.2f} at most of {len(others)} cases not fitted")
            of_all = [0] * 6
            for index, value in zip(indexes, constants):
                of_all[index] = value
            values = ", ".join(f"{v:.4g}" for v in of_all)
            rows.append(f"    {{Family::{ENUMERATORS[family]}, PackedType::{OTHERS.get(format) or kernel_names.WEIGHTS.get(format, format)}, {{{values}}}}},\n")
    fitted = ", ".join(f'"{m}"' for m in FITTED)
    (root / "libmoe/plan/cost_constants.hpp").write_text(
        f"// Written by bench/fit_costs.py from bench/results/h200.json of commit {results['commit']},\n"
        f"// study-small_batch.json of {small['commit']}, gemv-h200.json of {gemv['commit']} and formats-h200.json of\n"
        f"// {formats['commit']}. cost.hpp says what the numbers are.\n"
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
