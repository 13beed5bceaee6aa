// Division by a number that is known before: a product. Host and device.
#pragma once

#include <cstdint>

#include "libmoe/base/host_device.hpp"

namespace moe {

// n / d = (2 n * reciprocal) >> 32 for n d < 2^31.
MOE_HOST_DEVICE constexpr uint32_t reciprocal_of(int32_t d) {
    return (0x80000000u + static_cast<uint32_t>(d) - 1) / static_cast<uint32_t>(d);
}

}  // namespace moe
