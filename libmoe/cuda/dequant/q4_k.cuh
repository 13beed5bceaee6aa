// q4_k of ggml: 4-bit codes; 16 bytes of scales per row and 256 k behind the codes of four blocks:
// a 6-bit scale and minimum per 32 k, float16 factors of both. Used by all kernels; gemv multiplies
// nibbles as bytes.
#pragma once

#include "libmoe/cuda/dequant/affine.cuh"
#if defined(__CUDACC__)
#include "libmoe/cuda/dequant/code_bytes.cuh"
#include "libmoe/cuda/dequant/code_operands.cuh"
#include "libmoe/cuda/dequant/q4_k_scales.cuh"
#endif

namespace moe::cuda {

template <>
struct ValueDequant<PackedType::q4_k> : AffineValueDequant<PackedType::q4_k> {};

#if defined(__CUDACC__)

// Nibbles serve as bytes where they lie.
template <>
struct GemvDequant<PackedType::q4_k> : GemvSuperblockBytes<PackedType::q4_k, Q4kRowScales> {};

template <>
struct GroupedDequant<PackedType::q4_k> : GroupedCodeBase<PackedType::q4_k> {
    static constexpr bool scales_after = true;
    static constexpr bool has_offset = true;
    static constexpr bool has_superblock_scales = true;
    static constexpr bool groups_apart = false;
    using KeptScales = Q4kKeptScales;
    struct Words {
        uint4 codes;
        RowAffine factors;
    };
    static __device__ __forceinline__ Words load(uint32_t codes, const KeptScales& scales,
                                                 uint32_t lane, uint32_t block) {
        return {load_shared_16(codes + 16 * lane), scales.of_block(block)};
    }
    static __device__ __forceinline__ Words load_codes(uint32_t codes, uint32_t lane) {
        Words words;
        words.codes = load_shared_16(codes + 16 * lane);
        return words;
    }
    struct Values {
        __device__ __forceinline__ Values(uint32_t, uint32_t, uint32_t) {}
    };
    // 128 + nibble.
    static __device__ __forceinline__ void spread(const Words& words, const Values&, int j,
                                                  uint32_t* a) {
        const uint32_t w[4] = {words.codes.x, words.codes.y, words.codes.z, words.codes.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) a[i] = nibbles(w[j], i);
    }
    static __device__ __forceinline__ RowFactors factors(const Words& words) {
        return of_codes(words.factors);
    }
    static __device__ __forceinline__ RowFactors factors(const KeptScales& scales, uint32_t block) {
        return of_codes(scales.of_block(block));
    }
    template <Operand operand = Operand::bf16, bool one_scale = operand == Operand::f16>
    static __device__ __forceinline__ void dequantize(const Words& words, const Table&,
                                                      uint32_t (&a)[16]) {
        const RowAffine& of = words.factors;
        const CodeOperands<operand, one_scale> rows[2] = {
            {of.scale.x, of.minimum.x, 8, nibble_unit[0]},
            {of.scale.y, of.minimum.y, 8, nibble_unit[1]}};
        const uint32_t codes[4] = {words.codes.x, words.codes.y, words.codes.z, words.codes.w};
        dequantize_nibbles(codes, rows, a);
    }

  private:
    // Operands are 128 + nibble, so that sums of tokens take off the minimum and 128 scales.
    static __device__ __forceinline__ RowFactors of_codes(const RowAffine& factors) {
        const auto [scale, minimum] = factors;
        return {{scale.x, scale.y},
                {fmaf(scale.x, -128.0f, -minimum.x), fmaf(scale.y, -128.0f, -minimum.y)}};
    }
    // 128 + nibble in bfloat16, twice: one operation in assembly, two where the compiler chooses.
    static __device__ __forceinline__ uint32_t nibbles(uint32_t word, int reg) {
        uint32_t pair;
        asm("lop3.b32 %0, %1, %2, %3, 0xEA;"
            : "=r"(pair)
            : "r"(word >> 4 * reg), "r"(0x000F000Fu), "r"(0x43004300u));
        return pair;
    }
};

#endif

}  // namespace moe::cuda
