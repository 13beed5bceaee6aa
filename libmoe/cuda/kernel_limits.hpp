// The sizes up to which kernels with a limit work at all. plan/ chooses by them, and the kernels'
// own files use the same constants. Without the CUDA runtime.
#pragma once

#include <cstdint>

#include "libmoe/cuda/launch_plan.hpp"

namespace moe::cuda {

// The sort in one launch that also takes the caller's routing and lists tokens (sort_small.cu).
constexpr int64_t max_fused_sort_slots = 8192;
constexpr int32_t max_fused_sort_experts = 512;
// The sort in one block (sort.cu).
constexpr int64_t max_block_sort_slots = 4096;

constexpr SortKernel sort_kernel(int64_t n_slots, int32_t n_local) {
    if (n_slots <= max_fused_sort_slots && n_local <= max_fused_sort_experts)
        return SortKernel::fused;
    return n_slots <= max_block_sort_slots ? SortKernel::block : SortKernel::runs;
}
// moe_dispatch has nothing beside its sort.
constexpr SortKernel dispatch_sort_kernel(int64_t n_slots) {
    return n_slots <= max_block_sort_slots ? SortKernel::block : SortKernel::runs;
}

// Router logits for small batches (logits_small_batch.cu): the scratch holds so many tokens' parts.
constexpr int64_t max_small_batch_logits_tokens = 32;

// Selection with a thread block per token (select_block.cu).
constexpr int32_t max_block_select_experts = 512;

}  // namespace moe::cuda
