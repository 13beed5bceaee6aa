// Scales of rows g and g + 8, and the records of ggml's blocks of 32 that hold them. Device only.
#pragma once

#include "libmoe/cuda/device/convert.hpp"
#include "libmoe/cuda/device/fast_activation.cuh"
#include "libmoe/cuda/device/shared_memory.cuh"
#include "libmoe/packed/ggml_scales.hpp"

namespace moe::cuda {

// Do levels count from the middle of the codes? The others are the codes, under scale and minimum.
constexpr bool has_signed_levels(PackedType type) {
    return level_of(type, 0) < 0;
}

// The scales of rows g and g + 8, where a lane's two columns share them.
struct RowScales {
    float first, second;
};

// Scale and minimum of rows g and g + 8: a weight is scale * level - minimum.
struct RowAffine {
    float2 scale, minimum;
};

// Accumulators may be in units of a scale. A scale of zero, or below 2^-90, is a unit of 2^-90: its
// products are lost beside those of other scales, and where all are zero the sum is below 2^-80
// times that of levels and tokens. Accumulators stay finite while the products before it are below
// 2^38.
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

// The scale records of ggml's blocks of 32 in rows g and g + 8: float16 scales, or each with a
// minimum behind it, which is added.
template <PackedType packed>
struct BlockScales {
    uint2 bits;

    // pair: the shared address of both.
    __device__ __forceinline__ void load(uint32_t pair) {
        if constexpr (has_signed_levels(packed))
            bits.x = load_shared_4(pair);
        else
            bits = load_shared_8(pair);
    }
    __device__ __forceinline__ auto of_rows() const {
        if constexpr (has_signed_levels(packed))
            return RowScales{f16_value(bits.x), f16_value(bits.x >> 16)};
        else
            return RowAffine{{f16_value(bits.x), f16_value(bits.y)},
                             {-f16_value(bits.x >> 16), -f16_value(bits.y >> 16)}};
    }
};

}  // namespace moe::cuda
