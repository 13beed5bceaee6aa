// Building blocks of GroupedDequant (dequant.cuh). Device only.
#pragma once

#include <cuda_fp16.h>

#include "libmoe/cuda/dequant/dequant.cuh"
#include "libmoe/cuda/device/convert.hpp"
#include "libmoe/cuda/device/shared_memory.cuh"

namespace moe::cuda {

// The table of types without a codebook.
struct NoTable {
    __device__ __forceinline__ explicit NoTable(uint32_t) {}
};

// What multiplies accumulators of codes, and sums of tokens, in rows g and g + 8.
struct RowFactors {
    float of_product[2];
    float of_tokens[2];
};

template <PackedType packed>
struct GroupedDequantBase {
    static constexpr PackedType type = packed;
    static constexpr float residual_scale = 1.0f;
    using Table = NoTable;
    static constexpr bool scales_after = false;
};

// Two float16 as float32.
__device__ __forceinline__ float2 two_f16_values(uint32_t pair) {
    return __half22float2(reinterpret_cast<const __half2&>(pair));
}

}  // namespace moe::cuda
