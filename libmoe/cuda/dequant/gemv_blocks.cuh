// Building blocks of GemvDequant (dequant.cuh): operand types, the defaults of a type, and how a
// lane finds its scales and its words. Device only.
//
// 16-bit codes may be subnormal numbers: the tensor cores take them exactly.
#pragma once

#include "libmoe/cuda/dequant/dequant.cuh"
#include "libmoe/cuda/dequant/row_scales.cuh"
#include "libmoe/cuda/device/memory.cuh"
#include "libmoe/cuda/device/mma.cuh"

namespace moe::cuda {

struct Bf16 {
    using Accumulator = float;
    static constexpr bool are_bytes = false;
    static constexpr bool are_of_16 = false;
    static constexpr bool has_block_exponent = false;
    static __device__ __forceinline__ uint32_t pair(float low, float high) {
        return bf16_pair(low, high);
    }
    static __device__ __forceinline__ void multiply(float (&c)[4], const uint32_t (&a)[4],
                                                    uint32_t b0, uint32_t b1) {
        mma_16x8x16<Operand::bf16>(c, a, b0, b1);
    }
};

// x is multiplied by the power of two that brings its largest element below 2^15 (the block
// exponent), so that the 11 bits of float16 hold all of a bfloat16 x over 29 binades.
struct F16 {
    using Accumulator = float;
    static constexpr bool are_bytes = false;
    static constexpr bool are_of_16 = false;
    static constexpr bool has_block_exponent = true;
    static constexpr int32_t top = 15;  // elements are below 2^top
    static __device__ __forceinline__ uint32_t pair(float low, float high) {
        return f16_pair(low, high);
    }
    static __device__ __forceinline__ void multiply(float (&c)[4], const uint32_t (&a)[4],
                                                    uint32_t b0, uint32_t b1) {
        mma_16x8x16<Operand::f16>(c, a, b0, b1);
    }
};

// Codes are bytes, two steps to an mma. x is multiplied by a block exponent and rounded to 256 high
// + low, both signed bytes: within 2^-14 of its largest element, where bfloat16 is within 2^-9 of
// each.
template <bool codes_signed>
struct Bytes {
    using Accumulator = int32_t;
    static constexpr bool are_bytes = true;
    static constexpr bool are_of_16 = false;
    static constexpr bool has_block_exponent = true;
    static constexpr int32_t top = 14;
    static __device__ __forceinline__ void multiply(int32_t (&c)[4], const uint32_t (&a)[4],
                                                    uint32_t b0, uint32_t b1) {
        mma_16x8x32<codes_signed>(c, a, b0, b1);
    }
};

// Bytes under a scale per 16 k: the eight columns of B are the high and the low bytes of the four
// groups of one block.
template <bool codes_signed>
struct BytesOf16 : Bytes<codes_signed> {
    static constexpr bool are_of_16 = true;
};

// Adds up the two columns that have x's high and its low bytes.
__device__ __forceinline__ float high_and_low(int32_t high, int32_t low) {
    return static_cast<float>(256 * high + low);
}

template <PackedType packed>
struct GemvDequantBase {
    static constexpr PackedType type = packed;
    using Operand = Bf16;
    static constexpr int32_t span = 2;
    static constexpr int32_t min_split = has_superblock(packed) ? 4 : 1;
    static constexpr int32_t min_split_bytes = min_split * block_bytes(packed, 4);
    static constexpr bool brings_records = is_grid(packed);
    static constexpr int32_t x_exponent = 0;
    static constexpr float residual_scale = 1.0f;
    static constexpr uint32_t ones = 0;
    static constexpr int n_parts = 1;
    static constexpr CodebookMode codebook_mode = CodebookMode::none;
    static constexpr bool starts_next_early = false;
    using Table = uint32_t;
    static __device__ __forceinline__ uint32_t table_of(uint32_t tables, int32_t) { return tables; }
    static constexpr int32_t scales = block_code_bytes(packed, 4);  // offset in a block
    using KBlock = uint32_t;  // where a k_block is: its shared address
    struct GroupScales {
        __device__ __forceinline__ GroupScales(uint32_t, int32_t, int32_t) {}
    };
    using Factors = RowScales;
    static __device__ __forceinline__ void add(const RowScales& factors, const float (&c)[4],
                                               float (&acc)[2]) {
        acc[0] = fmaf(c[0] + c[1], factors.first, acc[0]);
        acc[1] = fmaf(c[2] + c[3], factors.second, acc[1]);
    }
    static __device__ __forceinline__ void add(const RowScales& factors, const int32_t (&c)[4],
                                               float (&acc)[2]) {
        acc[0] = fmaf(high_and_low(c[0], c[1]), factors.first, acc[0]);
        acc[1] = fmaf(high_and_low(c[2], c[3]), factors.second, acc[1]);
    }
    static __device__ __forceinline__ void add(const RowAffine& factors, const int32_t (&c)[4],
                                               const int32_t (&x)[4], float (&acc)[2]) {
        const auto [scale, minimum] = factors;
        const float x_sum = high_and_low(x[0], x[1]);
        acc[0] = fmaf(scale.x, high_and_low(c[0], c[1]), acc[0]);
        acc[1] = fmaf(scale.y, high_and_low(c[2], c[3]), acc[1]);
        acc[0] = fmaf(-minimum.x, x_sum, acc[0]);
        acc[1] = fmaf(-minimum.y, x_sum, acc[1]);
    }
};

// The block of a lane's two columns 2 t and 2 t + 1 among n.
__device__ __forceinline__ int32_t column_block(int32_t lane, int32_t n) {
    return n == 1 ? 0 : lane >> 1 & 1;
}

// Where a lane's two columns have their scales among `bytes` per row and group of 32 k: those of
// row g, then those of row g + 8.
__device__ __forceinline__ uint32_t scales_of_32(uint32_t block_scales, int32_t lane,
                                                 int32_t bytes) {
    return block_scales + ((lane >> 2) * 2 + (lane & 1)) * 2 * bytes;
}

}  // namespace moe::cuda
