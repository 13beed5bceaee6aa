"""The rates of a machine for the CPU's cost model from its committed results: fit_cpu_costs.py FILE.

For machines that `moe-bench-cpu --calibrate` did not run on. Reads a bench/results/cpu-N.json and prints rows of
libmoe/plan/cpu_cost_constants.hpp: the read rate, and for each kernel GB/s that a thread dequantizes and GFLOP/s that it
multiplies. Results cannot tell the two apart, so that each takes one assumption:

- gemm kernels (T = 512): those of one arithmetic multiply at the rate of the fastest format, whose dequantizing is taken to
  cost a tenth; what others take longer is dequantizing.
- gemv kernels (T = 1): formats of one arithmetic multiply at MULTIPLY_ROWS of the rate at which the fastest one computes;
  the rest of the time is dequantizing.

Reading and computing take the root of the sum of their squares (libmoe/plan/cpu_cost.hpp).
"""

import json
import math
import statistics
import sys

CALL_US = 12.0  # a line through the best times of one token, by bytes, meets zero bytes here
ROW_NS = 4.5  # of Zen 4
GEMM_SHARE = 0.1  # of the fastest format's time that is dequantizing
MULTIPLY_ROWS = 3.0


def computing_us(case, read_gb_per_s):
    """What the best call took beside its rows and what it would have read alone."""
    rows = case["n_tokens"] * case["shape"]["top_k"] * case["shape"]["hidden"] * ROW_NS * 1e-3 / case["n_threads"]
    us = case["us_best"] - CALL_US - rows
    reading = case["weight_bytes"] / read_gb_per_s * 1e-3
    return math.sqrt(max(us * us - reading * reading, (us / 4) ** 2))


def arithmetic_of(kernel):
    """avx512vnni_q4_k_int8x2_gemv -> ("avx512vnni", "int8x2", "gemv")"""
    words = kernel.split("_")
    return words[0], words[-2], words[-1]


def rates(results):
    reads = statistics.median(r["read_gb_per_s"] for r in results["results"] if r["n_tokens"] == 1)
    cases = [r for r in results["results"] if r["model"] == "qwen3-30b" and r["n_tokens"] in (1, 512)]
    found = []
    for case in cases:
        kernel = case["kernel"].removesuffix("_gate_up")
        us = computing_us(case, reads) * case["n_threads"]
        found.append((kernel, case["weight_bytes"], case["flops"], us))
    fastest = {}
    for kernel, _, flops, us in found:
        arithmetic = arithmetic_of(kernel)
        fastest[arithmetic] = max(fastest.get(arithmetic, 0), flops / us * 1e-3)
    rows = []
    for kernel, size, flops, us in found:
        is_gemm = kernel.endswith("_gemm")
        gflop_per_s = fastest[arithmetic_of(kernel)] * (1 / (1 - GEMM_SHARE) if is_gemm else MULTIPLY_ROWS)
        dequantizing = us - flops / gflop_per_s * 1e-3
        rows.append((kernel, size / dequantizing * 1e-3, gflop_per_s))
    return reads, rows


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        results = json.load(file)
    reads, rows = rates(results)
    n_threads = max(r["n_threads"] for r in results["results"])
    print(f"    {results['machine']['cpu']}: call_us {CALL_US}, row_ns {ROW_NS}, reads {{{{{n_threads}, {reads:.1f}}}}}")
    for kernel, gb_per_s, gflop_per_s in rows:
        print(f'    {{"{kernel}", {gb_per_s:.1f}, {gflop_per_s:.1f}}},')


if __name__ == "__main__":
    main()
