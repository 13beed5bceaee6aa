// Accumulators of the grouped GEMM in units of a scale: of a grid's group, whose operands are then
// levels, or of a superblock's factor. A superblock's scale is then its code, a whole number or
// half of one of up to 8 bits, so that operands take one multiply-add less and no second number
// (code_operands.cuh). The mainloop brings accumulators to the unit of the group or superblock that
// begins. Device only.
#pragma once

#include "libmoe/cuda/dequant/grouped_blocks.cuh"
#include "libmoe/cuda/dequant/row_scales.cuh"
#include "libmoe/cuda/device/fast_activation.cuh"

namespace moe::cuda {

// A scale of zero, or below 2^-90, is a unit of 2^-90: its products are lost beside those of other
// scales, and where all are zero the sum is below 2^-80 times that of levels and tokens.
// Accumulators stay finite while the products before it are below 2^38.
__device__ __forceinline__ float accumulator_unit(float scale) {
    constexpr float least = 0x1p-90f;
    return fabsf(scale) < least ? least : scale;
}

// Divides the factors of a superblock's scales by themselves, so that scales are their codes, and
// returns them as units of rows g and g + 8. Minima keep their size.
__device__ __forceinline__ float2 take_units(float (&factor)[2]) {
    const float2 units{accumulator_unit(factor[0]), accumulator_unit(factor[1])};
    factor[0] = factor[1] = 1.0f;
    return units;
}
__device__ __forceinline__ float2 take_units(RowAffine& factor) {
    const float2 units{accumulator_unit(factor.scale.x), accumulator_unit(factor.scale.y)};
    factor = {
        {1.0f, 1.0f},
        {factor.minimum.x * fast_reciprocal(units.x), factor.minimum.y * fast_reciprocal(units.y)}};
    return units;
}

// The epilogue multiplies by the residual scale, which operands without scales do not lack.
template <class Dequant>
constexpr float without_residual = 1.0f / Dequant::residual_scale;

// The units that accumulators of rows g and g + 8 are in.
struct AccumulatorUnits {
    float2 of_rows{1.0f, 1.0f};

    // Returns the factors that bring accumulators to the units `next`, which accumulator_unit made.
    __device__ __forceinline__ float2 change(const float2& next) {
        const float2 factors{of_rows.x * fast_reciprocal(next.x),
                             of_rows.y * fast_reciprocal(next.y)};
        of_rows = next;
        return factors;
    }
    // The last factors of accumulators whose operands are levels.
    template <class Dequant>
    __device__ __forceinline__ float2 after_levels() const {
        return {of_rows.x * without_residual<Dequant>, of_rows.y * without_residual<Dequant>};
    }
};

__device__ __forceinline__ float2 accumulator_units(const RowFactors& scales) {
    return {accumulator_unit(scales.of_product[0]), accumulator_unit(scales.of_product[1])};
}

// Accumulators of a thread alternate between the rows in pairs.
template <int n>
__device__ __forceinline__ void scale_rows(float (&accum)[n], const float2& factors) {
#pragma unroll
    for (int i = 0; i < n; ++i) accum[i] *= i & 2 ? factors.y : factors.x;
}
template <int m>
__device__ __forceinline__ void scale_rows(float (&accum)[m][4], const float2& factors) {
#pragma unroll
    for (int i = 0; i < m; ++i) scale_rows(accum[i], factors);
}

template <class Kept>
struct KeptInUnits : Kept {
    float2 units;  // of rows g and g + 8

    __device__ __forceinline__ void load(uint32_t headers, uint32_t lane) {
        Kept::load(headers, lane);
        units = Kept::take_units();
    }
};

// Dequantizes in such units: a GroupedDequant with bfloat16 operands whose KeptScales have
// take_units().
template <class Dequant>
struct InSuperblockUnits : Dequant {
    using KeptScales = KeptInUnits<typename Dequant::KeptScales>;
    static __device__ __forceinline__ void dequantize(const typename Dequant::Words& words,
                                                      const typename Dequant::Table& table,
                                                      uint32_t (&a)[16]) {
        Dequant::template dequantize<Operand::bf16, true>(words, table, a);
    }
};

// Float16 does not hold the largest products of code and level.
template <class Dequant>
constexpr bool has_superblock_units =
    operand_of<Dequant>() == Operand::bf16 && requires(typename Dequant::KeptScales& kept) {
    kept.take_units();
};

}  // namespace moe::cuda
