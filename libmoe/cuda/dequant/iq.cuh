// iq2_xxs, iq2_xs, iq3_xxs and iq3_s of ggml: codes name entries of a fixed grid, signs and scales
// lie between them. The layout keeps each row's whole block of 256 k (66, 74, 98, 110 bytes), row
// after row; libmoe/base/iq_columns.hpp reads it. Used by all kernels; gemv
// multiplies levels as bytes, and Hopper's grouped GEMM has its part in iq_grouped.cuh.
#pragma once

#include "libmoe/cuda/dequant/value_blocks.hpp"
#include "libmoe/packed/ggml_scales.hpp"
#if defined(__CUDACC__)
#include "libmoe/cuda/dequant/iq_gemv.cuh"
#endif

namespace moe::cuda {

// A lane has two entries of the grid, or four, in both of its rows.
template <PackedType type, class Grid>
struct IqValueDequant {
    struct Words {
        IqColumns columns[2];
    };

    static MOE_HOST_DEVICE Words load(PackedType, const std::byte*, const std::byte* scales,
                                      int32_t lane, int64_t k0) {
        Words words;
        const int32_t t = static_cast<int32_t>(k0 / 16 & 12) + lane % 4;
        MOE_UNROLL
        for (int half = 0; half < 2; ++half) {
            const int32_t offset = ggml_scale_offset(type, 4, lane / 4 + 8 * half, 0);
            words.columns[half] = Grid::columns(scales + offset, t);
        }
        return words;
    }
    static MOE_HOST_DEVICE FloatPair pair(const Words& words, const float*, int step, int reg) {
        const IqColumns& columns = words.columns[reg & 1];
        const int i = 4 * step + reg / 2 * 2;
        return {iq_value<Grid>(columns, i), iq_value<Grid>(columns, i + 1)};
    }
};

template <>
struct ValueDequant<PackedType::iq2_xxs> : IqValueDequant<PackedType::iq2_xxs, Iq2XxsGrid> {};
template <>
struct ValueDequant<PackedType::iq2_xs> : IqValueDequant<PackedType::iq2_xs, Iq2XsGrid> {};
template <>
struct ValueDequant<PackedType::iq3_xxs> : IqValueDequant<PackedType::iq3_xxs, Iq3XxsGrid> {};
template <>
struct ValueDequant<PackedType::iq3_s> : IqValueDequant<PackedType::iq3_s, Iq3SGrid> {};

#if defined(__CUDACC__)

// has_copies: of the entries of tables, for devices with much shared memory.
template <PackedType type, bool has_copies>
struct GemvIqDequant;
template <bool has_copies>
struct GemvIqDequant<PackedType::iq2_xxs, has_copies>
    : GemvIq<PackedType::iq2_xxs, Iq2XxsGrid, Iq2XxsNames, has_copies> {};
template <bool has_copies>
struct GemvIqDequant<PackedType::iq2_xs, has_copies>
    : GemvIq<PackedType::iq2_xs, Iq2XsGrid, Iq2XsNames, has_copies> {};
template <bool has_copies>
struct GemvIqDequant<PackedType::iq3_xxs, has_copies>
    : GemvIq<PackedType::iq3_xxs, Iq3XxsGrid, Iq3XxsNames, has_copies> {};
template <bool has_copies>
struct GemvIqDequant<PackedType::iq3_s, has_copies>
    : GemvIq<PackedType::iq3_s, Iq3SGrid, Iq3SNames, has_copies> {};

#endif

}  // namespace moe::cuda
