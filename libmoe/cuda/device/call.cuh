// Facts of a call that every kernel of a stage reads: its number of tokens and its fault counters.
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

// Copies the fault counters to host memory. A thread that finds another one copying may leave,
// because that one looks again after it has released the flag.
__device__ inline void show_faults(FaultWords* faults) {
    constexpr int n_sums = sizeof(FaultSums) / sizeof(unsigned long long);
    const auto* sums = reinterpret_cast<volatile unsigned long long*>(&faults->sums);
    auto* shown = reinterpret_cast<volatile unsigned long long*>(faults->shown);
    for (bool is_old = true; is_old && atomicCAS(&faults->is_showing, 0u, 1u) == 0;) {
        unsigned long long copied[n_sums];
        __threadfence();
        for (int i = 0; i < n_sums; ++i) shown[i] = copied[i] = sums[i];
        __threadfence_system();
        atomicExch(&faults->is_showing, 0u);
        __threadfence();
        is_old = false;
        for (int i = 0; i < n_sums; ++i) is_old |= sums[i] != copied[i];
    }
}

__device__ inline void report_fault(FaultWords* faults, uint32_t bit, uint64_t n_skipped) {
    atomicAdd(&faults->sums.reports[__ffs(static_cast<int>(bit)) - 1], 1ull);
    if (n_skipped) atomicAdd(&faults->sums.n_skipped, static_cast<unsigned long long>(n_skipped));
    __threadfence();
    show_faults(faults);
}

}  // namespace moe::cuda
