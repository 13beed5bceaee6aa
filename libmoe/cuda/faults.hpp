// Faults that kernels report while a call runs. The sums are in device memory, because a device has
// no atomics on host memory over PCIe. After every addition they are copied to pinned host memory,
// which the host reads without synchronizing. Sums only grow, and the host remembers what it has
// reported.
#pragma once

#include <cstdint>

namespace moe::cuda {

constexpr int n_fault_kinds = 4;  // MOE_FAULT_*, from the lowest bit

struct FaultSums {
    unsigned long long reports[n_fault_kinds];
    unsigned long long n_skipped;
};

struct FaultWords {
    FaultSums sums;
    FaultSums* shown;  // pinned
    uint32_t is_showing;
};

}  // namespace moe::cuda
