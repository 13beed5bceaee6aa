// mxfp4: e2m1 codes, and a scale byte per row and 32 k, behind the codes of a block: 2^(byte-127)
// relative to the largest scale of the matrix, so that no byte is above 127. Byte 0 goes with codes
// of zero. Used by all kernels.
#pragma once

#include "libmoe/cuda/dequant/e2m1.cuh"

namespace moe::cuda {

MOE_HOST_DEVICE constexpr float mxfp4_scale(uint32_t byte) {
    return std::bit_cast<float>(byte << 23);
}

struct Mxfp4Rules {
    static MOE_HOST_DEVICE float scale(uint32_t byte) { return mxfp4_scale(byte); }
    // 2^(byte-1), the scale times 2^126.
    static MOE_HOST_DEVICE uint32_t bf16_factor(uint32_t byte) {
        return (byte + 126u) * 0x00800080u;
    }
    static MOE_HOST_DEVICE int32_t scale_pair(int32_t lane) { return scale_pair_of_32(lane); }
};

template <>
struct ValueDequant<PackedType::mxfp4> : E2m1ValueDequant<Mxfp4Rules> {
    static constexpr float f16_residual_scale = 0x1p-12f;
};

#if defined(__CUDACC__)

template <>
struct GemvDequant<PackedType::mxfp4> : GemvE2m1<PackedType::mxfp4> {
    static constexpr float residual_scale = 0x1p30f;  // 2^(126 - 96)
    template <int n>
    static __device__ __forceinline__ void load(Words<n>& words, uint32_t k_block, int32_t block,
                                                int32_t lane) {
        const uint32_t at = k_block + block * min_split_bytes;
        words.scales = load_shared_2(
            scales_of_32(at + scales + column_block(lane, n) * min_split_bytes, lane, 1));
        load_codes(words, at, lane);
    }
    template <int n>
    static __device__ __forceinline__ RowScales factors(const Words<n>& words) {
        const uint32_t q = words.scales;
        return {__uint_as_float((q & 0xFFu) << 23), __uint_as_float(q >> 8 << 23)};
    }
};

template <>
struct GroupedDequant<PackedType::mxfp4> : GroupedE2m1<PackedType::mxfp4> {
    // A scale byte becomes 2^byte, so that operands are twice too large.
    static constexpr float residual_scale = 0.5f;
    // Codes are 2^-14 of their value, and a scale byte becomes 2^15 times the scale. So weights are
    // exact down to scales of 2^-24 of the largest one, below which they lose bits.
    static constexpr float f16_residual_scale = 0.5f;
    static __device__ __forceinline__ Words load(uint32_t codes, uint32_t scales, uint32_t lane) {
        return {load_shared_16(codes + 16 * lane), load_shared_2(scales + (lane & ~1u))};
    }
    template <Operand operand = Operand::bf16>
    static __device__ __forceinline__ void dequantize(const Words& words, const Table&,
                                                      uint32_t (&a)[16]) {
        uint32_t scale[2];
        if constexpr (operand == Operand::bf16) {
            scale_pairs<7, 127 << 7>(words.scales, scale);
        } else {
#pragma unroll
            for (int row = 0; row < 2; ++row) {
                const uint32_t byte = words.scales >> 8 * row & 0xFFu;
                const float value = __uint_as_float((byte + 15u) << 23);
                scale[row] = f16_pair(value, value);
            }
        }
        multiply_scales<operand>(words.codes, scale, a);
    }
};

#endif

}  // namespace moe::cuda
