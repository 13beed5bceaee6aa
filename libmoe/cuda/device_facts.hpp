// Properties of a device that kernels and their launchers use.
#pragma once

#include <cstdint>

#include "libmoe/cuda/architecture.hpp"

namespace moe::cuda {

struct DeviceFacts {
    int32_t index = 0;
    int32_t major = 0;  // compute capability
    int32_t minor = 0;
    int32_t n_sms = 0;
    int32_t shared_bytes = 0;  // maximum of a thread block, after opt-in
    uint64_t memory_bytes = 0;
    uint64_t l2_bytes = 0;

    Architecture architecture() const { return architecture_of(major, minor); }
};

}  // namespace moe::cuda
