// q3_k of ggml: 3-bit codes minus 4; 14 bytes of scales per row and 256 k behind the codes of four
// blocks: a 6-bit scale per 16 k, their float16 factor. Used by all kernels; gemv multiplies codes
// as bytes.
#pragma once

#include "libmoe/cuda/dequant/affine.cuh"
#if defined(__CUDACC__)
#include "libmoe/cuda/dequant/code_bytes.cuh"
#include "libmoe/cuda/dequant/grouped_codes.cuh"
#include "libmoe/cuda/dequant/six_bit_scales.cuh"
#endif

namespace moe::cuda {

template <>
struct ValueDequant<PackedType::q3_k> : AffineValueDequant<PackedType::q3_k> {};

#if defined(__CUDACC__)

// Bytes 0 to 7 of a row have the lower bits of its scales, bytes 8 to 11 the upper ones: a byte
// serves two blocks, or all four. Rows of 14 bytes are on multiples of two.
struct Q3kRowScales {
    static constexpr int group = 16;
    static constexpr uint32_t second_row = 8 * ggml_scale_bytes(PackedType::q3_k);
    uint32_t low[2], high;  // of rows g and g + 8 in half-words
    float factor[2];

    Q3kRowScales() = default;
    __device__ __forceinline__ Q3kRowScales(uint32_t row, uint32_t t) {
        low[0] = of_rows(row + t);
        low[1] = of_rows(row + t + 4);
        high = of_rows(row + t + 8);
        factor[0] = f16_value(load_shared_2(row + 12));
        factor[1] = f16_value(load_shared_2(row + 12 + second_row));
    }
    __device__ __forceinline__ RowScales of_block(int block) const {
        const uint32_t lower = (block & 1 ? low[1] : low[0]) >> 4 * (block >> 1);
        const float2 scale = six_bits(join_six_bits(lower, high >> 2 * block), 32);
        return {factor[0] * scale.x, factor[1] * scale.y};
    }

  private:
    static __device__ __forceinline__ uint32_t of_rows(uint32_t at) {
        return load_shared_1(at) | load_shared_1(at + second_row) << 16;
    }
};

template <>
struct GemvDequant<PackedType::q3_k> : GemvSuperblockBytes<PackedType::q3_k, Q3kRowScales> {};

template <>
struct GroupedDequant<PackedType::q3_k>
    : GroupedSuperblockCodes<PackedType::q3_k,
                             SuperblockKeptScales<PackedType::q3_k, Q3kRowScales>> {};

#endif

}  // namespace moe::cuda
