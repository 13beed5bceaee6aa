#!/usr/bin/env python3
"""Times the two indexed GEMMs of a layer by Humming (humming-kernels, with torch) and puts them beside the layers that moe-bench has
timed on the same card just before (torch_peer.py):

    moe-bench --cases CASES --json FILE
    python3 bench/peers/humming_gemms.py FILE.. --json bench/results/peers-humming-h100.json

Every case of the files in a format that Humming has is timed: tiles by Humming's own heuristics, lists of blocks made before, no activation, no
sum. Where libmoe's activations are E4M3, so are Humming's, which quantizes its rows of bfloat16 in the call."""

import sys

from torch_peer import QUANTIZED, arguments, even_ids, measure, replayed_us, version_of

FORMATS = {
    "nvfp4": {"dtype": "float4e2m1", "scale_dtype": "float8e4m3", "group_size": 16, "scale_2_type": "tensor"},
    "mxfp4": {"dtype": "float4e2m1", "scale_dtype": "float8e8m0", "group_size": 32},
    "int4_g128": {"dtype": "uint4", "group_size": 128},
    "awq": {"dtype": "uint4", "group_size": 128, "has_zero_point": True},
}


def fill(torch, name, tensor):
    """Random codes and zero points, scales near 1 / 64."""
    if tensor.dtype == torch.int32:
        tensor.random_(-(2**31), 2**31 - 1)
    elif tensor.dtype == torch.float8_e8m0fnu:
        tensor.view(torch.uint8).random_(119, 123)
    elif name.endswith("_2"):
        tensor.fill_(1 / 64)
    else:
        scale = 1 if tensor.dtype == torch.float8_e4m3fn else 1 / 64
        tensor.copy_((torch.rand(tensor.shape, device=tensor.device) + 0.5) * scale)


def make_layer(torch, form, n_experts, rows, columns):
    from humming.layer import HummingLayer

    rows_of = {"dtype": "float8e4m3"} if form.endswith(QUANTIZED) else None
    layer = HummingLayer(shape_n=rows, shape_k=columns, weight_config=dict(FORMATS[form.removesuffix(QUANTIZED)]), input_config=rows_of,
                         num_experts=n_experts, torch_dtype=torch.bfloat16).cuda()
    for name, tensor in layer.named_parameters():
        fill(torch, name, tensor.data)
    layer.transform()
    return layer


def list_blocks(torch, ids, n_experts, block):
    """Slots by expert, each expert's padded to whole blocks; the expert of each block."""
    slots, experts = [], []
    for expert in range(n_experts):
        own = torch.where(ids.view(-1) == expert)[0]
        n_blocks = -(-own.numel() // block)
        slots.append(torch.nn.functional.pad(own, (0, n_blocks * block - own.numel()), value=ids.numel()))
        experts += [expert] * n_blocks
    slots = torch.cat(slots).to(torch.int32)
    return {"sorted_ids": slots, "expert_ids": torch.tensor(experts, dtype=torch.int32, device=ids.device),
            "num_tokens_padded": torch.tensor(slots.numel(), dtype=torch.int32, device=ids.device)}


class Gemm:
    """One of the two GEMMs for slots of `top_k` to a row of its input."""

    def __init__(self, torch, layers, n_slots, top_k):
        from humming.layer import HummingMethod
        from humming.tune import get_heuristics_config

        self.torch, self.layers, self.top_k, self.forward = torch, layers, top_k, HummingMethod.forward_layer
        self.config = get_heuristics_config(layers[0].humming_metas[""], shape_m=n_slots, gemm_type="indexed")
        self.out = torch.empty((n_slots, layers[0].shape_n), dtype=torch.bfloat16, device="cuda")

    def blocks_of(self, ids, n_experts):
        return list_blocks(self.torch, ids, n_experts, self.config["block_shape"][0])

    def run(self, call, x, blocks):
        self.forward(self.layers[call % len(self.layers)], inputs=x, outputs=self.out, top_k=self.top_k, **blocks,
                     compute_config={"gemm_type": "indexed"}, tuning_config=self.config)


def time_case(torch, layers, shape, n_tokens):
    """Microseconds of a call."""
    hidden, intermediate, n_experts, top_k = shape
    n_slots = n_tokens * top_k
    x = torch.randn((n_tokens, hidden), device="cuda", dtype=torch.bfloat16)
    h = torch.randn((n_slots, intermediate), device="cuda", dtype=torch.bfloat16)
    first, second = Gemm(torch, layers[0], n_slots, top_k), Gemm(torch, layers[1], n_slots, 1)
    ids = even_ids(torch, n_tokens, n_experts, top_k)
    blocks = [(first.blocks_of(i, n_experts), second.blocks_of(i, n_experts)) for i in ids]

    def calls():
        for call, (of_first, of_second) in enumerate(blocks):
            first.run(call, x, of_first)
            second.run(call, h, of_second)

    return replayed_us(torch, calls, (first.out, second.out))


def main():
    args = arguments(__doc__)
    version = version_of("torch", "humming-kernels")
    if not version:
        return 0
    import torch

    peer = {"name": "Humming, GEMMs only", "version": version, "note": "two indexed GEMMs by its own heuristics: no activation, sum or align"}
    return measure(args, peer, [*FORMATS, *(form + QUANTIZED for form in FORMATS)],
                   lambda *matrices: make_layer(torch, *matrices),
                   lambda sets, form, shape, n_tokens: time_case(torch, sets, shape, n_tokens))


if __name__ == "__main__":
    sys.exit(main())
