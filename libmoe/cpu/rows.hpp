// What a dot-product kernel is given: one weight row and some activation rows. Kept apart from
// everything else because the files of each instruction set include it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "libmoe/cpu/gemv/gemv.hpp"

namespace moe::cpu {

// columns contiguous elements of a dense type.
struct WeightRow {
    const std::byte* data;
    moe_type type;
};

// Activation rows: input + index[i] * stride, or consecutive rows when index is null. The same rows
// as integers lie at quantized in the same order (gemv/gemv.hpp), where a kernel wants them.
template <class Real>
struct InputRows {
    const Real* input;
    int64_t stride;
    const int32_t* index;
    const std::byte* quantized = nullptr;
    int64_t quantized_stride = 0;  // bytes
    Quantization quantization{};
    bool in_panels = false;  // by gemm kernels, where a format has them
    // The rows once more in tiles (gemm/gemm.hpp), row 0 first in one; null: they are not there.
    const std::byte* tiles = nullptr;

    const Real* row(int64_t i) const { return input + (index ? index[i] : i) * stride; }
    const std::byte* quantized_row(int64_t i) const {
        return quantized + (index ? index[i] : i) * quantized_stride;
    }
    InputRows from(int64_t first) const {
        InputRows rest = *this;
        if (index) {
            rest.index += first;
        } else {
            rest.input += first * stride;
            rest.quantized += first * quantized_stride;
        }
        return rest;
    }
};

// out[i] = weight . row(i), i < n. columns is a multiple of 16.
template <class Real>
using DotRows = void (*)(WeightRow weight, int64_t columns, const InputRows<Real>& rows, int64_t n,
                         Real* out);

}  // namespace moe::cpu
