"""Kernel names of results that were made before names had the weight type in them, in today's words.

usage: kernel_names.py RESULTS.json    prints the results with today's names, to compare them with newer ones
OLD_NAMES is the table by which kernel_filter refuses old names (libmoe/plan/kernel_filter.cpp): old name, glob of today. The generic kernels are
gone; kernel_filter names what took their place, and results keep the name of what ran.
"""
import json
import pathlib
import sys

OLD_NAMES = {
    "cuda_any_f32_route": "route:sm80_*_f32_router",
    "cuda_any_f32_dispatch": "sm80_any_f32_dispatch",
    "sm90_any_bf16_experts_one_token": "experts:sm90_*_bf16_gemv_*",
    "cuda_any_bf16_experts_one_token": "experts:sm80_*_bf16_gemv_*",
    "sm90_any_bf16_experts_grouped": "experts:sm90_*_bf16_grouped_gemm_*",
    "cuda_any_f16_experts_generic": "experts:sm80_*_f16_generic_*",
    "cuda_any_bf16_experts_generic": "experts:sm80_*_bf16_generic_*",
    "cuda_any_f32_experts_exact": "experts:sm80_*_f32_exact_*",
    "cuda_any_f32_combine": "sm80_any_f32_combine",
    "sm90_any_bf16_finish_one_token": "finish:sm90_*_bf16_gemv_*",
    "cuda_any_bf16_finish_one_token": "finish:sm80_*_bf16_gemv_*",
    "sm90_any_bf16_finish_grouped": "finish:sm90_*_bf16_grouped_gemm_*",
    "cuda_any_f16_finish_generic": "finish:sm80_*_f16_generic_*",
    "cuda_any_bf16_finish_generic": "finish:sm80_*_bf16_generic_*",
    "cuda_any_f32_finish_exact": "finish:sm80_*_f32_exact_*",
}
WEIGHTS = {"fp8_128x128": "e4m3"}  # a format's packed type, where it has another name
FAMILIES = ("gemv", "grouped_gemm", "generic", "exact")


def renewed_kernel(name, format):
    """The kernel of gate_up whose old name this is, for weights of the format; a name of today as it is."""
    glob = OLD_NAMES.get(name, name)
    words = glob.split(":")[-1]
    if "*" not in words:
        return words
    return words.replace("*", WEIGHTS.get(format, format), 1).replace("*", "gate_up")


def renewed_filter(text):
    """A kernel_filter with globs instead of old names."""
    items = [item.strip() for item in text.split(",")]
    signs = [item[:1] if item[:1] in ("+", "-") else "" for item in items]
    return ",".join(sign + OLD_NAMES.get(item[len(sign):], item[len(sign):]) for sign, item in zip(signs, items))


def renewed(result):
    """A result with today's names, in the case's own name too."""
    kernels = result.get("kernels", "")
    now = renewed_filter(kernels)
    case = result["case"].removesuffix(kernels) + now if kernels else result["case"]
    new = {**result, "case": case, "kernel": renewed_kernel(result["kernel"], result["format"])}
    return {**new, "kernels": now} if "kernels" in result else new


def family(name):
    """The family of a kernel of the experts, by its name of today: <arch>_<weight>_<activation>_<family>_<stage>."""
    found = [one for one in FAMILIES if f"_{one}_" in name]
    if len(found) != 1:
        sys.exit(f"{name} is of no family: {', '.join(FAMILIES)}")
    return found[0]


def main(path):
    document = json.loads(pathlib.Path(path).read_text())
    document["results"] = [renewed(result) for result in document["results"]]
    print(json.dumps(document, indent=1))


if __name__ == "__main__":
    main(sys.argv[1])
