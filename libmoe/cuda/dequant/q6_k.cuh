// q6_k of ggml: 6-bit codes minus 32; 18 bytes of scales per row and 256 k behind the codes of four
// blocks: a signed byte per 16 k, their float16 factor. Used by all kernels; gemv multiplies codes
// as signed bytes.
#pragma once

#include "libmoe/cuda/dequant/affine.cuh"
#if defined(__CUDACC__)
#include "libmoe/cuda/dequant/code_bytes.cuh"
#include "libmoe/cuda/dequant/grouped_codes.cuh"
#endif

namespace moe::cuda {

template <>
struct ValueDequant<PackedType::q6_k> : AffineValueDequant<PackedType::q6_k> {};

#if defined(__CUDACC__)

// Rows of 18 bytes are on multiples of two, so that bytes are loaded one at a time, and only when
// their block needs them: they would hold registers.
struct Q6kRowScales {
    static constexpr int group = 16;
    static constexpr bool holds_address = true;
    static constexpr uint32_t second_row = 8 * ggml_scale_bytes(PackedType::q6_k);
    uint32_t at;      // of the group of block 0, row g
    float factor[2];  // of rows g and g + 8

    Q6kRowScales() = default;
    __device__ __forceinline__ Q6kRowScales(uint32_t row, uint32_t t) : at(row + t) {
        factor[0] = f16_value(load_shared_2(row + 16));
        factor[1] = f16_value(load_shared_2(row + 16 + second_row));
    }
    __device__ __forceinline__ RowScales of_block(int block) const {
        const uint32_t from = at + 4 * block;
        return {factor[0] * static_cast<float>(load_shared_signed_byte(from)),
                factor[1] * static_cast<float>(load_shared_signed_byte(from + second_row))};
    }
};

template <>
struct GemvDequant<PackedType::q6_k> : GemvSuperblockBytes<PackedType::q6_k, Q6kRowScales> {};

template <>
struct GroupedDequant<PackedType::q6_k>
    : GroupedSuperblockCodes<PackedType::q6_k,
                             SuperblockKeptScales<PackedType::q6_k, Q6kRowScales>> {};

#endif

}  // namespace moe::cuda
