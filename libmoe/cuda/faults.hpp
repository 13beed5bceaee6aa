// What a call found wrong while it ran, in pinned host memory that the device writes: readable at
// any time without synchronising. Bits are MOE_FAULT_*.
#pragma once

#include <cstdint>

namespace moe::cuda {

struct FaultWords {
    uint32_t bits;
    uint32_t reserved;
    unsigned long long n_skipped;
};

}  // namespace moe::cuda
