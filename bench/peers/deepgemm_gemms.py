#!/usr/bin/env python3
"""Times the two grouped GEMMs of a layer by DeepGEMM (with torch) and puts them beside the layers that moe-bench has timed on the same card
just before (torch_peer.py):

    moe-bench --list fp8 --json FILE
    python3 bench/peers/deepgemm_gemms.py FILE --json bench/results/peers-deepgemm-h200.json

Every case in bfloat16, and in FP8 with activations in E4M3, is timed: up to 512 tokens in the masked layout, more in the contiguous one, in which
each expert's rows are padded to DeepGEMM's alignment. Rows are sorted, and scales are in the form that the kernels read, before the time
begins; no activation, no sum."""

import sys

from torch_peer import QUANTIZED, arguments, even_ids, measure, replayed_us, version_of

FP8 = "fp8_128x128" + QUANTIZED
MOST_MASKED = 512  # tokens
GRANULE = 128  # columns under a scale, and rows of a weight


def round_up(value, step):
    return -(-value // step) * step


class Layouts:
    """Where the rows of the experts lie, for the ids of each call."""

    def __init__(self, torch, deep_gemm, ids, n_experts, is_masked):
        counts = [torch.bincount(one.view(-1), minlength=n_experts).tolist() for one in ids]
        n_slots = ids[0].numel()
        self.is_masked, self.n_experts, self.expected = is_masked, n_experts, -(-n_slots // n_experts)
        if is_masked:
            self.most = round_up(max(max(one) for one in counts), 64)
            self.of_calls = [torch.tensor(one, dtype=torch.int32, device="cuda") for one in counts]
            return
        step = deep_gemm.utils.layout.get_mk_alignment_for_contiguous_layout()
        experts = [[expert for expert, n in enumerate(one) for _ in range(round_up(n, step))] for one in counts]
        self.n_rows = max(len(one) for one in experts)
        self.of_calls = [torch.tensor(one + [-1] * (self.n_rows - len(one)), dtype=torch.int32, device="cuda") for one in experts]

    def shape_of(self, columns):
        return (self.n_experts, self.most, columns) if self.is_masked else (self.n_rows, columns)


def make_rows(torch, deep_gemm, form, layouts, columns):
    shape = layouts.shape_of(columns)
    if form != FP8:
        return torch.randn(shape, device="cuda", dtype=torch.bfloat16)
    scales = torch.rand((*shape[:-1], round_up(columns, GRANULE) // GRANULE), device="cuda") + 0.5
    return torch.randn(shape, device="cuda").to(torch.float8_e4m3fn), deep_gemm.utils.layout.get_mn_major_tma_aligned_tensor(scales)


def make_weights(torch, form, n_experts, rows, columns):
    values = torch.empty((n_experts, rows, columns), device="cuda", dtype=torch.float8_e4m3fn if form == FP8 else torch.bfloat16)
    for expert in range(n_experts):
        values[expert] = torch.randn((rows, columns), device="cuda").to(values.dtype)
    if form != FP8:
        return values
    return values, torch.rand((n_experts, round_up(rows, GRANULE) // GRANULE, round_up(columns, GRANULE) // GRANULE), device="cuda") + 0.5


class Gemm:
    def __init__(self, torch, deep_gemm, form, layouts, sets, n_out, columns):
        kind = "fp8" if form == FP8 else "bf16"
        self.kernel = getattr(deep_gemm, f"m_grouped_{kind}_gemm_nt_{'masked' if layouts.is_masked else 'contiguous'}")
        self.more = (layouts.expected,) if layouts.is_masked else ()
        self.sets, self.layouts = sets, layouts
        self.rows = make_rows(torch, deep_gemm, form, layouts, columns)
        self.out = torch.zeros(layouts.shape_of(n_out), device="cuda", dtype=torch.bfloat16)

    def run(self, call):
        self.kernel(self.rows, self.sets[call % len(self.sets)], self.out, self.layouts.of_calls[call], *self.more)


def time_case(torch, deep_gemm, sets, form, shape, n_tokens):
    hidden, intermediate, n_experts, top_k = shape
    ids = even_ids(torch, n_tokens, n_experts, top_k)
    layouts = Layouts(torch, deep_gemm, ids, n_experts, n_tokens <= MOST_MASKED)
    gemms = [Gemm(torch, deep_gemm, form, layouts, sets[0], 2 * intermediate, hidden), Gemm(torch, deep_gemm, form, layouts, sets[1], hidden, intermediate)]

    def calls():
        for call in range(len(ids)):
            for gemm in gemms:
                gemm.run(call)

    return replayed_us(torch, calls, [gemm.out for gemm in gemms])


def main():
    args = arguments(__doc__)
    version = version_of("torch", "deep_gemm")
    if not version:
        return 0
    import deep_gemm.utils.layout
    import torch

    peer = {"name": "DeepGEMM, GEMMs only", "version": version, "note": "two grouped GEMMs of sorted rows, masked up to 512 tokens: no quantization, activation or sum"}
    return measure(args, peer, ("bf16", FP8), lambda *matrices: make_weights(torch, *matrices),
                   lambda *case: time_case(torch, deep_gemm, *case))


if __name__ == "__main__":
    sys.exit(main())
