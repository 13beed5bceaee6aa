// Scales of q4_k and q5_k, 16 bytes per row and 256 k: a 6-bit scale and minimum per 32 k, float16
// factors of both (packed/ggml_scales.hpp). Used by gemv and the grouped GEMM. Device only.
#pragma once

#include "libmoe/cuda/dequant/accumulator_units.cuh"
#include "libmoe/cuda/dequant/six_bit_scales.cuh"

namespace moe::cuda {

// The superblock scales of both rows. Codes of scales and minima are in the lower six bits of
// bytes: [0] those of groups 0 to 3, [1] those of groups 4 to 7, whose upper two bits ggml keeps
// apart. The codes of both rows lie in the two halves of a register and become float16 there,
// exactly.
struct Q4kScales {
    uint32_t scales[2], minima[2];
    uint32_t d[2];  // of a row: float16 factors of its scales and of its minima

    // rows: the 16 bytes of each row. selector: the bytes of the groups that the lane needs: 0 to 3
    // of row g, 4 to 7 of row g + 8.
    __device__ __forceinline__ Q4kScales(const uint4 (&rows)[2], uint32_t selector)
        : d{rows[0].x, rows[1].x} {
        scales[0] = permute_bytes(rows[0].y, rows[1].y, selector);
        minima[0] = permute_bytes(rows[0].z, rows[1].z, selector);
        const uint32_t low = permute_bytes(rows[0].w, rows[1].w, selector);
        scales[1] = (low & 0x0F0F0F0Fu) | (scales[0] >> 2 & 0x30303030u);
        minima[1] = (low >> 4 & 0x0F0F0F0Fu) | (minima[0] >> 2 & 0x30303030u);
    }
};

// Codes of row g in the lower half-word, of row g + 8 in the upper one; d as in Q4kScales.
__device__ __forceinline__ RowAffine q4_k_factors(uint32_t scales, uint32_t minima,
                                                  const uint32_t (&d)[2]) {
    const float2 scale = six_bits(scales);
    const float2 minimum = six_bits(minima);
    const float2 of[2] = {__half22float2(reinterpret_cast<const __half2&>(d[0])),
                          __half22float2(reinterpret_cast<const __half2&>(d[1]))};
    return {{of[0].x * scale.x, of[1].x * scale.y}, {of[0].y * minimum.x, of[1].y * minimum.y}};
}

// The form that GemvSuperblockBytes takes (code_bytes.cuh).
struct Q4kRowScales : Q4kScales {
    static constexpr int group = 32;
    __device__ __forceinline__ Q4kRowScales(uint32_t row, uint32_t t)
        : Q4kScales({load_shared_16(row), load_shared_16(row + 128)}, t * 0x0101u + 0x0400u) {}
    __device__ __forceinline__ RowAffine of_block(int block) const {
        const bool late = block & 2;
        return q4_k_factors(late ? scales[1] : scales[0], late ? minima[1] : minima[0], d);
    }
};

// The form that the grouped GEMM keeps for a superblock (GroupedDequant::KeptScales). Of every
// block a lane has the first group of 32 k, or with t = 2, 3 the second.
struct Q4kKeptScales {
    static constexpr bool of_16 = false;
    static constexpr bool holds_address = false;
    uint32_t scales[2], minima[2];  // as in Q4kScales: bytes of blocks 0 and 1, of blocks 2 and 3
    RowAffine factor;

    __device__ __forceinline__ void load(uint32_t headers, uint32_t lane) {
        const uint32_t row = headers + 16 * (lane >> 2);
        const Q4kScales codes({load_shared_16(row), load_shared_16(row + 128)},
                              0x6420u + 0x1111u * (lane >> 1 & 1));
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            scales[i] = codes.scales[i];
            minima[i] = codes.minima[i];
        }
        factor = {{f16_value(codes.d[0]), f16_value(codes.d[1])},
                  {f16_value(codes.d[0] >> 16), f16_value(codes.d[1] >> 16)}};
    }
    __device__ __forceinline__ float2 take_units() {
        return moe::cuda::take_units(factor);
    }
    __device__ __forceinline__ RowAffine of_block(uint32_t block) const {
        const bool late = block & 2;
        const uint32_t shift = 8 * (block & 1);
        const float2 scale = six_bits((late ? scales[1] : scales[0]) >> shift);
        const float2 minimum = six_bits((late ? minima[1] : minima[0]) >> shift);
        return {{factor.scale.x * scale.x, factor.scale.y * scale.y},
                {factor.minimum.x * minimum.x, factor.minimum.y * minimum.y}};
    }
};

}  // namespace moe::cuda
