// Work beside a sort, in the same launch: more thread blocks, which arrange the tokens as token
// blocks (copy_rows.cuh, quantize_rows.cuh). They read x and the number of tokens, and nothing that
// the sort writes.
#pragma once

#include "libmoe/cuda/dispatch/quantize_rows.cuh"

namespace moe::cuda {

struct ArrangeAlong {
    int32_t n_blocks;  // thread blocks behind those of the sort; 0: nothing is arranged
    GatherInput input;
    RowsInOrder source;
    bool packets;
    BlockRows out;
};

inline ArrangeAlong arrange_along(const DeviceFacts& device, const SortAlong& along,
                                  const TokenCount& tokens, int n_threads) {
    ArrangeAlong arrange{};
    if (!along.arranges) return arrange;
    // run_arrange has as many threads at most.
    const int64_t most = int64_t{device.n_sms} * 2048 / n_threads;
    arrange.n_blocks = static_cast<int32_t>(
        copy_blocks(along.input, along.token_blocks.capacity, n_threads, most));
    arrange.input = along.input;
    arrange.source = {tokens};
    arrange.packets = takes_packets(along.input.in.data, along.input.in.stride);
    arrange.out = along.token_blocks;
    return arrange;
}

// By all threads of the thread blocks from first_block on, after the wait for the preceding kernel.
__device__ __forceinline__ void arrange(const ArrangeAlong& along, int32_t first_block) {
    const int32_t block = static_cast<int32_t>(blockIdx.x) - first_block;
    if (block == 0 && threadIdx.x < n_tile_counters) along.out.tile_counter[threadIdx.x] = 0;
    const auto block_warps = static_cast<int32_t>(blockDim.x / 32);
    arrange_rows(along.input, along.source, along.packets, along.out,
                 int64_t{block} * block_warps + warp_index(),
                 int64_t{along.n_blocks} * block_warps);
}

}  // namespace moe::cuda
