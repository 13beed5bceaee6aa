// q2_k of ggml: 2-bit codes; 20 bytes of scales per row and 256 k behind the codes of four blocks:
// a 4-bit scale and minimum per 16 k, float16 factors of both. Used by all kernels; gemv multiplies
// codes as bytes.
#pragma once

#include "libmoe/cuda/dequant/affine.cuh"
#if defined(__CUDACC__)
#include "libmoe/cuda/dequant/code_bytes.cuh"
#include "libmoe/cuda/dequant/grouped_codes.cuh"
#endif

namespace moe::cuda {

template <>
struct ValueDequant<PackedType::q2_k> : AffineValueDequant<PackedType::q2_k> {};

#if defined(__CUDACC__)

// Bytes of scale and minimum are loaded one at a time, and only when their block needs them: they
// would hold registers.
struct Q2kRowScales {
    static constexpr int group = 16;
    static constexpr bool holds_address = true;
    static constexpr uint32_t second_row = 8 * ggml_scale_bytes(PackedType::q2_k);
    uint32_t at;       // of the group of block 0, row g
    RowAffine factor;  // that of minima is a sixteenth, because they are upper nibbles

    Q2kRowScales() = default;
    __device__ __forceinline__ Q2kRowScales(uint32_t row, uint32_t t) : at(row + t) {
        const FloatPair first = pair_of_f16(load_shared_4(row + 16));
        const FloatPair second = pair_of_f16(load_shared_4(row + 16 + second_row));
        factor = {{first.low, second.low}, {first.high / 16, second.high / 16}};
    }
    __device__ __forceinline__ RowAffine of_block(int block) const {
        const uint32_t first = load_shared_1(at + 4 * block);
        const uint32_t second = load_shared_1(at + 4 * block + second_row);
        const auto [scale, minimum] = factor;
        return {{product(first, 0x0F, scale.x), product(second, 0x0F, scale.y)},
                {product(first, 0xF0, minimum.x), product(second, 0xF0, minimum.y)}};
    }

  private:
    // The mantissa of 2^23 ends with the number, whose conversion would take longer. The product
    // is exact but for minima in units of the factor.
    static __device__ __forceinline__ float product(uint32_t byte, uint32_t mask, float by) {
        const float above = __uint_as_float(and_xor(byte, mask, __float_as_uint(0x1p23f)));
        return fmaf(above, by, -0x1p23f * by);
    }
};

template <>
struct GemvDequant<PackedType::q2_k> : GemvSuperblockBytes<PackedType::q2_k, Q2kRowScales> {};

template <>
struct GroupedDequant<PackedType::q2_k>
    : GroupedSuperblockCodes<PackedType::q2_k,
                             SuperblockKeptScales<PackedType::q2_k, Q2kRowScales>> {};

#endif

}  // namespace moe::cuda
