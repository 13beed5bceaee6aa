// What a dot-product kernel is given: one weight row and some activation rows. Kept apart from
// everything else because the files of each instruction set include it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "moe/moe.h"

namespace moe::cpu {

// columns contiguous elements of a dense type.
struct WeightRow {
    const std::byte* data;
    moe_type type;
};

// Activation rows: input + index[i] * stride, or consecutive rows when index is null.
template <class Real>
struct InputRows {
    const Real* input;
    int64_t stride;
    const int32_t* index;

    const Real* row(int64_t i) const { return input + (index ? index[i] : i) * stride; }
    InputRows from(int64_t first) const {
        return {index ? input : input + first * stride, stride, index ? index + first : nullptr};
    }
};

// out[i] = weight . row(i), i < n. columns is a multiple of 16.
template <class Real>
using DotRows = void (*)(WeightRow weight, int64_t columns, const InputRows<Real>& rows, int64_t n,
                         Real* out);

}  // namespace moe::cpu
