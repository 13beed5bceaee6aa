// e4m3: a code is an E4M3 byte; two float32 scales per 32 k, of rows 0 to 7 and of rows 8 to 15,
// behind the codes of a block. Used by all kernels; gemv multiplies codes as float16, in which they
// are exact.
#pragma once

#include "libmoe/cuda/dequant/byte_codes.cuh"

namespace moe::cuda {

MOE_HOST_DEVICE constexpr float e4m3_value(uint32_t code) {
    const uint32_t magnitude = code & 0x7Fu;
    const float value = std::bit_cast<float>(magnitude << 20 | (code & 0x80u) << 24) * 0x1p120f;
    return magnitude == 0x7F ? std::bit_cast<float>(0x7FC00000u) : value;
}

// Two bytes of a word. A GPU from sm_89 on has an instruction for them.
MOE_HOST_DEVICE inline FloatPair e4m3_pair(uint32_t two) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    uint32_t halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<uint16_t>(two)));
    return pair_of_f16(halves);
#else
    return {e4m3_value(two & 0xFFu), e4m3_value(two >> 8 & 0xFFu)};
#endif
}

template <>
struct ValueDequant<PackedType::e4m3> {
    using Words = ScaledWords<8>;
    static MOE_HOST_DEVICE Words load(PackedType, const std::byte* codes, const std::byte* scales,
                                      int32_t lane, int64_t) {
        Words words;
        MOE_UNROLL
        for (int i = 0; i < 8; ++i) load_words<1>(codes + 128 * i + 4 * lane, words.code + i);
        load_f32_scales(scales + 8 * (lane >> 1 & 1), words.scale);
        return words;
    }
    static MOE_HOST_DEVICE FloatPair pair(const Words& words, const float*, int step, int reg) {
        const FloatPair pair = e4m3_pair(words.code[4 * (reg & 1) + step] >> 16 * (reg >> 1));
        const float scale = words.scale[reg & 1];
        return {pair.low * scale, pair.high * scale};
    }
};

#if defined(__CUDACC__)

// Two bytes of a word as float16. Without the instruction sign and magnitude move, which makes 2^-8
// of the value, and NaN codes become 480.
__device__ __forceinline__ uint32_t f16_of_e4m3(uint32_t word, int pair) {
    uint32_t values;
#if __CUDA_ARCH__ >= 890
    const auto bytes = static_cast<uint16_t>(pair ? word >> 16 : word);
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(values) : "h"(bytes));
#else
    const uint32_t high = __byte_perm(word, 0, pair ? 0x3424 : 0x1404);
    const uint32_t moved = (high & 0x80008000u) | (high >> 1 & 0x3F803F80u);
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(values) : "r"(moved), "r"(0x5C005C00u));  // 2^8
#endif
    return values;
}

template <>
struct GemvDequant<PackedType::e4m3> : GemvDequantBase<PackedType::e4m3> {
    using Operand = F16;
    template <int n>
    struct Words {
        RowBytes codes[n];
        uint2 scales;  // float32 of rows g and g + 8
    };
    template <int n>
    static __device__ __forceinline__ void load(Words<n>& words, uint32_t k_block, int32_t block,
                                                int32_t lane) {
        const uint32_t at = k_block + block * min_split_bytes;
        words.scales =
            load_shared_8(at + scales + column_block(lane, n) * min_split_bytes + (lane & 1) * 8);
#pragma unroll
        for (int i = 0; i < n; ++i)
            words.codes[i].load(at + i * min_split_bytes, static_cast<uint32_t>(lane));
    }
    template <int n>
    static __device__ __forceinline__ void step(const Words<n>& words, int j, uint32_t,
                                                uint32_t (&a)[4]) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
            a[i] = f16_of_e4m3(words.codes[j / 4].words[i % 2][j % 4], i / 2);
    }
    template <int n>
    static __device__ __forceinline__ RowScales factors(const Words<n>& words) {
        return {__uint_as_float(words.scales.x), __uint_as_float(words.scales.y)};
    }
};

template <>
struct GroupedDequant<PackedType::e4m3> : GroupedDequantBase<PackedType::e4m3> {
    struct Words {
        RowBytes codes;
        float2 scale;  // of rows g and g + 8
    };
    static __device__ __forceinline__ Words load(uint32_t codes, uint32_t scales, uint32_t lane) {
        Words words;
        words.codes.load(codes, lane);
        const uint2 scale = load_shared_8(scales + (lane & 2) * 4);
        words.scale = {__uint_as_float(scale.x), __uint_as_float(scale.y)};
        return words;
    }
    template <Operand operand = Operand::bf16>
    static __device__ __forceinline__ void dequantize(const Words& words, const Table&,
                                                      uint32_t (&a)[16]) {
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            const float2 pair = f32_of_e4m3(words.codes.words[i & 1][i / 4] >> 16 * (i >> 1 & 1));
            const float scale = i & 1 ? words.scale.y : words.scale.x;
            a[i] = operand_pair<operand>({pair.x * scale, pair.y * scale});
        }
    }

  private:
    // The two codes in bytes 0 and 1.
    static __device__ __forceinline__ float2 f32_of_e4m3(uint32_t bits) {
        uint32_t halves;
        asm("{ .reg .b16 b; cvt.u16.u32 b, %1; cvt.rn.f16x2.e4m3x2 %0, b; }"
            : "=r"(halves)
            : "r"(bits));
        return two_f16_values(halves);
    }
};

template <>
struct Fp8Dequant<PackedType::e4m3> {
    static constexpr PackedType type = PackedType::e4m3;
    static __device__ __forceinline__ void operands(uint32_t codes, uint32_t lane, uint32_t* a) {
        RowBytes bytes;
        bytes.load(codes, lane);
#pragma unroll
        for (int i = 0; i < 8; ++i) a[i] = bytes.words[i % 2][i / 2];
    }
    static __device__ __forceinline__ float2 scales(uint32_t scales) {
        const uint2 words = load_shared_8(scales);
        return {__uint_as_float(words.x), __uint_as_float(words.y)};
    }
};

#endif

}  // namespace moe::cuda
