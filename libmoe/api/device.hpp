// A device that a caller names by its kind and index.
#pragma once

#include "libmoe/base/error.hpp"

namespace moe {

inline void check_kind(moe_device_kind kind) {
    require(kind == MOE_DEVICE_CPU || kind == MOE_DEVICE_CUDA,
            "kind is {}, must be MOE_DEVICE_CPU or MOE_DEVICE_CUDA", static_cast<int32_t>(kind));
}

inline void check_cpu_index(int32_t index) {
    require(index == 0, "index is {}, there is one CPU device", index);
}

}  // namespace moe
