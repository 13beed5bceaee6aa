// What every kernel of a stage asks about its call: how many tokens there are, and where to report
// what is wrong with them.
#pragma once

#include "libmoe/cuda/faults.hpp"
#include "libmoe/cuda/router/router.hpp"

namespace moe::cuda {

__host__ __device__ inline int64_t clamp_to_range(int64_t value, int64_t low, int64_t high) {
    return value < low ? low : value > high ? high : value;
}

// Tokens of this chunk that the call really has.
__device__ inline int32_t true_tokens(const TokenCount& tokens) {
    if (!tokens.n_device) return tokens.n;
    const int64_t wanted = *tokens.n_device;
    return static_cast<int32_t>(clamp_to_range(wanted - tokens.first, 0, tokens.n));
}

// The words are in host memory that other kernels, and the host, look at meanwhile.
__device__ inline void report_fault(FaultWords* faults, uint32_t bit, uint64_t n_skipped) {
    atomicOr_system(&faults->bits, bit);
    if (n_skipped) atomicAdd_system(&faults->n_skipped, static_cast<unsigned long long>(n_skipped));
}

}  // namespace moe::cuda
