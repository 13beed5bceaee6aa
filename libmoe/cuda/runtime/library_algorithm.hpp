// How an optional library does one product, as it says itself: opaque, found when a plan is made.
#pragma once

#include <cstdint>

namespace moe::cuda {

struct LibraryAlgorithm {
    uint64_t data[8] = {};
    bool is_known = false;
};

}  // namespace moe::cuda
