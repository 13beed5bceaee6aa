// Scales of rows g and g + 8, and the records of ggml's blocks of 32 that hold them. Device only.
#pragma once

#include "libmoe/cuda/device/convert.hpp"
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
