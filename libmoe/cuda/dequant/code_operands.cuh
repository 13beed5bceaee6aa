// Integer codes of up to 8 bits as operands of the grouped GEMMs: (code - zero) * scale - minimum.
//
// A code takes the lowest bits of a 16-bit number, where multiply-adds of pairs apply zero point
// and scale. Nothing becomes float32: integer instructions and conversions run at half the rate of
// multiply-adds, and are what limits the mainloops.
//
//   bfloat16   a code is code * 2^-133, exact up to 256. The scale makes up for 2^85 of it, the
//              residual scale for 2^48: scales up to 2^42 then stay in the range of bfloat16. A
//              scale is two numbers, because rounded to eight bits it would cost a third more
//              error; one number where it has no more bits
//   float16    a code is 1024 + code; values are multiplied by 64, because small scales would
//              lose bits
//
// Code minus zero point is exact. What is rounded before the operand itself is the sum of the
// minimum and the lower part of the scale, both small.
//
// Device only.
#pragma once

#include <type_traits>

#include "libmoe/cuda/dequant/grouped_blocks.cuh"
#include "libmoe/cuda/dequant/shared_codes.cuh"

namespace moe::cuda {

// Pairs of codes, as a class with operator()(pair of codes below `base`) makes operands of them.
template <Operand operand, class Codes>
class CodePairs {
  public:
    // The bits above a pair of codes.
    static constexpr uint32_t base = operand == Operand::bf16 ? 0u : 0x64006400u;

    // Codes of bytes 0 and 2, and of bytes 1 and 3.
    __device__ __forceinline__ uint32_t even(uint32_t bytes) const {
        return of((bytes & 0x00FF00FFu) | base);
    }
    __device__ __forceinline__ uint32_t odd(uint32_t bytes) const {
        return of(permute_bytes(bytes, base, 0x7351));
    }
    // Codes of bytes 0 and 1, or 2 and 3.
    __device__ __forceinline__ uint32_t adjacent(uint32_t bytes, int half) const {
        return of(permute_bytes(bytes, base, half == 0 ? 0x7150 : 0x7352));
    }

  private:
    __device__ __forceinline__ uint32_t of(uint32_t pair) const {
        return static_cast<const Codes&>(*this)(pair);
    }
};

// one_scale: the scale is one number, as it has no more bits or float16 holds enough of them.
template <Operand operand, bool one_scale = operand == Operand::f16>
class CodeOperands : public CodePairs<operand, CodeOperands<operand, one_scale>> {
  public:
    using CodePairs<operand, CodeOperands>::base;
    static constexpr float residual = operand == Operand::bf16 ? 0x1p48f : 0x1p-6f;

    CodeOperands() = default;
    // unit: what a code is multiplied by because of the bit at which it lies, 1 or 16. zero: at
    // most 256 / unit.
    __device__ __forceinline__ CodeOperands(float scale, uint32_t zero, int unit = 1)
        : minus_zero_((zero * static_cast<uint32_t>(unit)) * 0x00010001u | base | minus_nothing) {
        constexpr float multiplier = operand == Operand::bf16 ? 0x1p85f : 1.0f / residual;
        const float of_unit = scale * (multiplier / static_cast<float>(unit));
        scale_ = pair_of(of_unit);
        if constexpr (!one_scale) scale_low_ = pair_of(of_unit - __uint_as_float(scale_ << 16));
    }

    // The middle of the codes becomes their zero point, with the minimum changed to suit, so that
    // it is small.
    __device__ __forceinline__ CodeOperands(float scale, float minimum, uint32_t middle,
                                            int unit = 1)
        : CodeOperands(scale, middle, unit) {
        minus_minimum_ = pair_of(fmaf(scale, static_cast<float>(middle), -minimum) / residual);
    }

    __device__ __forceinline__ uint32_t operator()(uint32_t pair) const {
        constexpr uint32_t ones = operand == Operand::bf16 ? 0x3F803F80u : 0x3C003C00u;
        const uint32_t level = multiply_add<operand>(pair, ones, minus_zero_);
        if constexpr (one_scale) return multiply_add<operand>(level, scale_, minus_minimum_);
        const uint32_t rest = multiply_add<operand>(level, scale_low_, minus_minimum_);
        return multiply_add<operand>(level, scale_, rest);
    }

  private:
    static constexpr uint32_t minus_nothing = 0x80008000u;

    static __device__ __forceinline__ uint32_t pair_of(float value) {
        return operand_pair<operand>({value, value});
    }

    uint32_t scale_, scale_low_, minus_zero_;
    uint32_t minus_minimum_ = minus_nothing;
};

// Codes minus a zero point, times a scale that is its code (accumulator_units.cuh), of up to eight
// bits. The zero point is a power of two, so that its product with the scale is exact in bfloat16:
// one multiply-add does, with one rounding.
class WholeScaleOperands : public CodePairs<Operand::bf16, WholeScaleOperands> {
  public:
    using CodePairs<Operand::bf16, WholeScaleOperands>::base;

    WholeScaleOperands() = default;
    // unit, zero: as above.
    __device__ __forceinline__ WholeScaleOperands(float scale, uint32_t zero, int unit = 1)
        : scale_(pair_of(scale * (0x1p85f / static_cast<float>(unit)))),
          minus_zero_(pair_of(
              scale * (-static_cast<float>(zero) / CodeOperands<Operand::bf16>::residual))) {}

    __device__ __forceinline__ uint32_t operator()(uint32_t pair) const {
        return multiply_add<Operand::bf16>(pair, scale_, minus_zero_);
    }

  private:
    static __device__ __forceinline__ uint32_t pair_of(float value) {
        return bf16_pair(value, value);
    }

    uint32_t scale_, minus_zero_;
};

// The operands of types without minima.
template <Operand operand, bool one_scale>
using SignedCodeOperands = std::conditional_t<one_scale && operand == Operand::bf16,
                                              WholeScaleOperands, CodeOperands<operand, one_scale>>;

// Codes minus zero points without a scale, for loops that apply scales to accumulators. Exact; as
// bfloat16 2^-6 of them, because a subnormal cannot be brought to one in one step.
template <Operand operand>
class CodeLevels : public CodePairs<operand, CodeLevels<operand>> {
  public:
    using CodePairs<operand, CodeLevels>::base;

    CodeLevels() = default;
    // unit, zero: as above.
    __device__ __forceinline__ explicit CodeLevels(uint32_t zero, int unit = 1)
        : minus_zero_(multiply_add<operand>(
              (zero * static_cast<uint32_t>(unit)) * 0x00010001u | base | 0x80008000u, normal,
              0x80008000u)) {}

    __device__ __forceinline__ uint32_t operator()(uint32_t pair) const {
        return multiply_add<operand>(pair, normal, minus_zero_);
    }

    // The factor of accumulators for a scale.
    static __device__ __forceinline__ float factor(float scale, int unit = 1) {
        return scale * ((operand == Operand::bf16 ? 0x1p6f : 1.0f) / static_cast<float>(unit));
    }

  private:
    static constexpr uint32_t normal = operand == Operand::bf16 ? 0x7F007F00u : 0x3C003C00u;

    uint32_t minus_zero_;
};

// 128 + code, of up to 7 bits, in place of levels: they are the lowest bits of a bfloat16. For
// types with minima, since sums of tokens can take off 128 scales with the minimum.
struct CodesOver128 {
    CodesOver128() = default;
    __device__ __forceinline__ explicit CodesOver128(uint32_t, int = 1) {}
    __device__ __forceinline__ uint32_t even(uint32_t bytes) const {
        return and_xor(bytes, 0x00FF00FFu, 0x43004300u);
    }
    __device__ __forceinline__ uint32_t odd(uint32_t bytes) const {
        return permute_bytes(bytes, 0x43004300u, 0x7351);
    }
    static __device__ __forceinline__ float factor(float scale, int = 1) { return scale; }
};

// Codes of 4 bits lie where operands need them: a word has the registers of a step in nibbles 0 to
// 3 of its halves. Those of row g + 8 stay where they are, so that their unit is 16.
inline constexpr int nibble_unit[2] = {1, 16};

// The four registers of a step. rows: CodeOperands or CodeLevels of rows g and g + 8.
template <class Codes>
__device__ __forceinline__ void nibble_step(uint32_t word, const Codes (&rows)[2], uint32_t* a) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const uint32_t two = word >> (i & 2 ? 8 : 0);
        a[i] = rows[i & 1]((two & (i & 1 ? 0x00F000F0u : 0x000F000Fu)) | Codes::base);
    }
}
template <class Codes>
__device__ __forceinline__ void dequantize_nibbles(const uint32_t (&words)[4],
                                                   const Codes (&rows)[2], uint32_t (&a)[16]) {
#pragma unroll
    for (int j = 0; j < 4; ++j) nibble_step(words[j], rows, a + 4 * j);
}

// Base of a GroupedDequant whose operands are made so: the residual scales.
template <PackedType packed>
struct GroupedCodeBase : GroupedDequantBase<packed> {
    static constexpr float residual_scale = CodeOperands<Operand::bf16>::residual;
    static constexpr float f16_residual_scale = CodeOperands<Operand::f16>::residual;
};

}  // namespace moe::cuda
