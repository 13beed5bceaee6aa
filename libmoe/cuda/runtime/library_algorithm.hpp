// Algorithm of an optional library for one GEMM, opaque to us. It is found when a plan is made.
#pragma once

#include <cstdint>

namespace moe::cuda {

struct LibraryAlgorithm {
    uint64_t data[8] = {};
    bool is_known = false;
};

}  // namespace moe::cuda
