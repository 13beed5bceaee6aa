// q8_0 of ggml: a code is a signed byte; a float16 scale per row and 32 k, behind the codes of a
// block. Used by all kernels; gemv multiplies the bytes as they are.
#pragma once

#include "libmoe/cuda/dequant/byte_codes.cuh"

namespace moe::cuda {

template <>
struct ValueDequant<PackedType::q8_0> {
    using Words = ScaledWords<8>;
    static MOE_HOST_DEVICE Words load(PackedType, const std::byte* codes, const std::byte* scales,
                                      int32_t lane, int64_t) {
        Words words;
        load_code_words(codes, lane, words.code);
        uint32_t bits;
        load_words<1>(scales + 4 * scale_pair_of_32(lane), &bits);
        const FloatPair pair = pair_of_f16(bits);
        words.scale[0] = pair.low;
        words.scale[1] = pair.high;
        return words;
    }
    static MOE_HOST_DEVICE float value(uint32_t code) { return byte_level(code ^ 0x80u, 128.0f); }
    static MOE_HOST_DEVICE FloatPair pair(const Words& words, const float*, int step, int reg) {
        return scaled_byte_pair(words, step, reg, value);
    }
};

#if defined(__CUDACC__)

template <>
struct GemvDequant<PackedType::q8_0> : GemvDequantBase<PackedType::q8_0> {
    using Operand = Bytes<true>;
    template <int n>
    struct Words : GemvByteCodes<n> {
        uint32_t scales;  // float16 of rows g and g + 8
    };
    template <int n>
    static __device__ __forceinline__ void load(Words<n>& words, uint32_t k_block, int32_t block,
                                                int32_t lane) {
        const uint32_t at = k_block + block * min_split_bytes;
        words.scales = load_shared_4(
            scales_of_32(at + scales + column_block(lane, n) * min_split_bytes, lane, 2));
        words.GemvByteCodes<n>::load(at, min_split_bytes, lane);
    }
    template <int n>
    static __device__ __forceinline__ void two_steps(const Words<n>& words, int i, uint32_t,
                                                     uint32_t (&a)[4]) {
        words.two_steps(i, a);
    }
    template <int n>
    static __device__ __forceinline__ RowScales factors(const Words<n>& words) {
        return {f16_value(words.scales), f16_value(words.scales >> 16)};
    }
};

// 128 more makes unsigned codes of signed ones.
template <Operand operand_>
struct GroupedQ8_0 : GroupedCodeBase<PackedType::q8_0> {
    static constexpr Operand operand = operand_;
    static constexpr float residual_scale = CodeOperands<operand>::residual;
    static constexpr bool scales_after = true;
    static constexpr bool has_offset = false;
    static constexpr bool has_superblock_scales = false;
    static constexpr bool groups_apart = false;
    using Values = NoValues;
    using Words = GroupedByteWords;
    static __device__ __forceinline__ Words load(uint32_t codes, uint32_t scales, uint32_t lane) {
        Words words;
        load_byte_codes(codes, lane, words.codes);
        words.scale = two_f16_values(load_shared_4(scales + (lane >> 1) * 4));
        return words;
    }
    static __device__ __forceinline__ void dequantize(const Words& words, const Table&,
                                                      uint32_t (&a)[16]) {
        const CodeOperands<operand> rows[2] = {{words.scale.x, 128}, {words.scale.y, 128}};
#pragma unroll
        for (int j = 0; j < 4; ++j) step(words, rows, j, a + 4 * j);
    }
    static __device__ __forceinline__ void spread(const Words& words, const Values&, int j,
                                                  uint32_t* a) {
        const Levels rows[2] = {Levels(128), Levels(128)};
        step(words, rows, j, a);
    }
    static __device__ __forceinline__ RowFactors factors(const Words& words) {
        return {{Levels::factor(words.scale.x), Levels::factor(words.scale.y)}, {}};
    }

  private:
    using Levels = CodeLevels<operand>;

    template <class Pairs>
    static __device__ __forceinline__ void step(const Words& words, const Pairs (&rows)[2], int j,
                                                uint32_t* a) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const uint32_t codes = word_of(words.codes[j / 2], 2 * (j & 1) + i / 2);
            a[i] = rows[i & 1].adjacent(codes ^ 0x80808080u, i & 1);
        }
    }
};

template <>
struct GroupedDequant<PackedType::q8_0> : GroupedQ8_0<Operand::bf16> {};
template <>
struct InF16<GroupedDequant<PackedType::q8_0>> : GroupedQ8_0<Operand::f16> {};

#endif

}  // namespace moe::cuda
