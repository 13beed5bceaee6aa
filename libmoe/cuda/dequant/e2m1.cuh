// Building blocks of the types with e2m1 codes, nvfp4 and mxfp4: a word of four registers of codes
// becomes pairs of bfloat16 by shifts and masks alone.
#pragma once

#include "libmoe/cuda/dequant/value_blocks.hpp"
#if defined(__CUDACC__)
#include "libmoe/cuda/dequant/gemv_blocks.cuh"
#include "libmoe/cuda/dequant/grouped_blocks.cuh"
#endif

namespace moe::cuda {

// Register `reg` of the word's step: sign and magnitude of two codes stand where bfloat16 has its
// sign and the lowest bits of exponent and mantissa, which is their value times 2^-126.
MOE_HOST_DEVICE inline uint32_t spread_e2m1(uint32_t word, int reg) {
    constexpr uint32_t mask = 0x81C081C0u;
    if (reg == 0) return word & mask;
    if (reg == 1) return word << 6 & mask;
    if (reg == 2) return rotate_right(word, 4) & mask;
    return (word << 2 & 0x80C080C0u) | (rotate_right(word, 6) & 0x01000100u);
}

MOE_HOST_DEVICE constexpr float e2m1_value(uint32_t code) {
    const uint32_t magnitude = code & 7u;
    const uint32_t normal = (magnitude << 22) + (126u << 23);
    const uint32_t absolute = magnitude == 0 ? 0 : magnitude == 1 ? 126u << 23 : normal;
    return std::bit_cast<float>(absolute | (code & 8u) << 28);
}

// Rules: scale(byte) is the value of a scale byte, bf16_factor(byte) is twice in a word that value
// times 2^126 / residual_scale(bf16), and scale_pair(lane) the number of a lane's pair of
// bytes.
template <class Rules>
struct E2m1ValueDequant {
    // The scales stay bytes: they become bfloat16 factors or floats.
    struct Words {
        uint32_t code[4];
        uint32_t scale;  // two bytes
    };

    static MOE_HOST_DEVICE Words load(PackedType, const std::byte* codes, const std::byte* scales,
                                      int32_t lane, int64_t) {
        Words words;
        load_code_words(codes, lane, words.code);
        words.scale = moe::load<uint16_t>(scales + 2 * Rules::scale_pair(lane));
        return words;
    }
    static MOE_HOST_DEVICE FloatPair pair(const Words& words, const float*, int step, int reg) {
        const float scale = Rules::scale(scale_byte(words, reg));
        const FloatPair tiny = pair_of_bf16(spread_e2m1(words.code[step], reg));
        return {tiny.low * 0x1p126f * scale, tiny.high * 0x1p126f * scale};
    }
    template <Operand operand>
    requires(operand == Operand::bf16) static MOE_HOST_DEVICE uint32_t
        operands(const Words& words, int step, int reg) {
        const uint32_t factor = Rules::bf16_factor(scale_byte(words, reg));
        return multiply_bf16(spread_e2m1(words.code[step], reg), factor);
    }

  private:
    static MOE_HOST_DEVICE uint32_t scale_byte(const Words& words, int reg) {
        return words.scale >> 8 * (reg & 1) & 0xFFu;
    }
};

#if defined(__CUDACC__)

// Operands are codes times 2^-126, which x and residual_scale make up for.
template <PackedType packed>
struct GemvE2m1 : GemvDequantBase<packed> {
    static constexpr bool starts_next_early = true;
    static constexpr int32_t x_exponent = 96;
    template <int n>
    struct Words {
        uint4 codes[n];
        uint32_t scales;
    };
    template <int n>
    static __device__ __forceinline__ void load_codes(Words<n>& words, uint32_t at, int32_t lane) {
#pragma unroll
        for (int i = 0; i < n; ++i)
            words.codes[i] =
                load_shared_16(at + i * GemvDequantBase<packed>::min_split_bytes + 16 * lane);
    }
    template <int n>
    static __device__ __forceinline__ void step(const Words<n>& words, int j, uint32_t,
                                                uint32_t (&a)[4]) {
        const uint32_t word = word_of(words.codes[j / 4], j % 4);
#pragma unroll
        for (int i = 0; i < 4; ++i) a[i] = spread_e2m1(word, i);
    }
};

template <PackedType packed>
struct GroupedE2m1 : GroupedDequantBase<packed> {
    struct Words {
        uint4 codes;
        uint32_t scales;
    };

  protected:
    // Codes times scales, pairs of rows g and g + 8. Until these multiply, codes are 2^-126 of
    // their value as bfloat16, 2^-14 as float16.
    template <Operand operand>
    static __device__ __forceinline__ void multiply_scales(const uint4& codes,
                                                           const uint32_t (&scale)[2],
                                                           uint32_t (&a)[16]) {
        const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            const uint32_t pair = spread_e2m1(words[i / 4], i % 4);
            if constexpr (operand == Operand::bf16)
                a[i] = multiply_bf16_sm90(pair, scale[i & 1]);
            else
                a[i] = multiply_f16(f16_of_spread(pair), scale[i & 1]);
        }
    }
    // Two scale bytes, each twice as a 16-bit number: shifted left, plus a constant exponent.
    template <uint32_t shift, uint32_t constant>
    static __device__ __forceinline__ void scale_pairs(uint32_t bytes, uint32_t (&scale)[2]) {
        constexpr uint32_t both = constant << 16 | constant;
        scale[0] = (__byte_perm(bytes, 0, 0x4040) << shift) + both;
        scale[1] = (__byte_perm(bytes, 0, 0x4141) << shift) + both;
    }

  private:
    // Exponent and mantissa move up by three bits, to where float16 has them; the sign stays.
    static __device__ __forceinline__ uint32_t f16_of_spread(uint32_t pair) {
        return (pair & 0x01C001C0u) * 7u + pair;
    }
};

#endif

}  // namespace moe::cuda
