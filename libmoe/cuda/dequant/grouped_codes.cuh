// Building blocks of ggml's types with codes of 2 to 6 bits in the grouped GEMM: four codes of a
// row become bytes, and pairs of these operands. Device only.
#pragma once

#include <type_traits>

#include "libmoe/cuda/dequant/accumulator_units.cuh"
#include "libmoe/cuda/dequant/code_operands.cuh"
#include "libmoe/cuda/dequant/row_scales.cuh"
#include "libmoe/cuda/dequant/shared_codes.cuh"

namespace moe::cuda {

// Four codes of a row, in the order of k 0, 2, 1, 3: codes(words, step, row). `zero` is the code of
// level 0, of types with minima the one in the middle.
template <PackedType packed>
struct PlainCodes {
    static constexpr int bits = code_bits(packed);
    static constexpr uint32_t zero = 1u << (bits - 1);
    static_assert(!has_signed_levels(packed) || level_of(packed, zero) == 0);
    static __device__ __forceinline__ uint32_t codes(const uint32_t (&words)[bits], int step,
                                                     int row) {
        return codes_of_row<bits>(words, step, row, 0);
    }
};

// scales_of_32: a scale serves 32 k, so that it may be left to accumulators.
template <PackedType packed, class Codes, bool scales_of_32>
struct GroupedCodes : GroupedCodeBase<packed> {
    static constexpr int bits = code_bits(packed);
    static constexpr bool is_symmetric = has_signed_levels(packed);
    static constexpr bool scales_after = scales_of_32;
    static constexpr bool has_offset = !is_symmetric;
    static constexpr bool has_superblock_scales = false;
    static constexpr bool groups_apart = false;
    using Values = NoValues;
    using Factors = std::conditional_t<is_symmetric, RowScales, RowAffine>;
    struct Words {
        uint32_t codes[bits];
        Factors factors;
    };
    template <Operand operand = Operand::bf16, bool one_scale = operand == Operand::f16>
    static __device__ __forceinline__ void dequantize(const Words& words, const NoTable&,
                                                      uint32_t (&a)[16]) {
        using Operands = std::conditional_t<is_symmetric, SignedCodeOperands<operand, one_scale>,
                                            CodeOperands<operand, one_scale>>;
        const Operands rows[2] = {row_operands<Operands>(words.factors, 0, 1),
                                  row_operands<Operands>(words.factors, 1, upper_unit)};
#pragma unroll
        for (int j = 0; j < 4; ++j) step(words, rows, j, a + 4 * j);
    }
    static __device__ __forceinline__ void spread(const Words& words, const Values&, int j,
                                                  uint32_t* a) {
        const Levels rows[2] = {Levels(Codes::zero), Levels(Codes::zero, upper_unit)};
        step(words, rows, j, a);
    }
    static __device__ __forceinline__ RowFactors factors(const Words& words) {
        return factors_of(words.factors);
    }

  protected:
    static __device__ __forceinline__ RowFactors factors_of(const Factors& of) {
        if constexpr (is_symmetric) {
            const auto [first, second] = of;
            return {{Levels::factor(first), Levels::factor(second, upper_unit)}, {}};
        } else {
            // An operand plus this is the code.
            constexpr float offset = are_over_128 ? -128.0f : static_cast<float>(Codes::zero);
            const auto [scale, minimum] = of;
            return {{Levels::factor(scale.x), Levels::factor(scale.y, upper_unit)},
                    {fmaf(scale.x, offset, -minimum.x), fmaf(scale.y, offset, -minimum.y)}};
        }
    }

  private:
    static constexpr bool are_nibbles = bits == 4 && !is_row_ordered(packed);
    static constexpr int upper_unit = are_nibbles ? nibble_unit[1] : 1;
    static constexpr bool are_over_128 = has_offset && !are_nibbles;
    using Levels = std::conditional_t<are_over_128, CodesOver128, CodeLevels<Operand::bf16>>;

    template <class Pairs>
    static __device__ __forceinline__ void step(const Words& words, const Pairs (&rows)[2], int j,
                                                uint32_t* a) {
        if constexpr (are_nibbles) {
            nibble_step(words.codes[j], rows, a);
        } else {
#pragma unroll
            for (int row = 0; row < 2; ++row) {
                const uint32_t bytes = Codes::codes(words.codes, j, row);
                a[row] = rows[row].even(bytes);
                a[row + 2] = rows[row].odd(bytes);
            }
        }
    }
    template <class Operands>
    static __device__ __forceinline__ Operands row_operands(const Factors& factors, int row,
                                                            int unit) {
        if constexpr (is_symmetric)
            return {row == 0 ? factors.first : factors.second, Codes::zero, unit};
        else
            return {row == 0 ? factors.scale.x : factors.scale.y,
                    row == 0 ? factors.minimum.x : factors.minimum.y, Codes::zero, unit};
    }
};

template <PackedType packed, class Codes = PlainCodes<packed>>
struct GroupedBlockCodes : GroupedCodes<packed, Codes, true> {
    using typename GroupedCodes<packed, Codes, true>::Words;
    static __device__ __forceinline__ Words load(uint32_t codes, uint32_t scales, uint32_t lane) {
        BlockScales<packed> of_32;
        of_32.load(scales + (lane >> 1) * 2 * ggml_scale_bytes(packed));
        Words words;
        load_shared_codes(codes, lane, words.codes);
        words.factors = of_32.of_rows();
        return words;
    }
};

// The scales of a superblock's four blocks, made of what GemvSuperblockBytes takes
// (code_bytes.cuh). A scale for 32 k serves two lanes of a block, and every other block.
template <PackedType packed, class Scales>
struct SuperblockKeptScales {
    static constexpr bool of_16 = Scales::group == 16;
    static constexpr bool holds_address = requires { Scales::holds_address; };
    Scales of[of_16 ? 1 : 2];  // of all blocks; of even blocks, of odd blocks

    __device__ __forceinline__ void load(uint32_t headers, uint32_t lane) {
        const uint32_t row = headers + ggml_scale_bytes(packed) * (lane >> 2);
        const uint32_t t = lane & 3;
        if constexpr (of_16) {
            of[0] = Scales(row, t);
        } else {
#pragma unroll
            for (uint32_t odd = 0; odd < 2; ++odd) of[odd] = Scales(row, 2 * odd + (t >> 1));
        }
    }
    __device__ __forceinline__ float2 take_units() {
        if constexpr (!of_16) moe::cuda::take_units(of[1].factor);
        return moe::cuda::take_units(of[0].factor);
    }
    __device__ __forceinline__ auto of_block(uint32_t block) const {
        const auto number = static_cast<int>(block);
        if constexpr (of_16)
            return of[0].of_block(number);
        else
            return block & 1 ? of[1].of_block(number) : of[0].of_block(number);
    }
};

template <PackedType packed, class Kept, class Codes = PlainCodes<packed>>
struct GroupedSuperblockCodes : GroupedCodes<packed, Codes, !Kept::of_16> {
    using Base = GroupedCodes<packed, Codes, !Kept::of_16>;
    using KeptScales = Kept;
    using typename Base::Words;
    static constexpr bool has_superblock_scales = Base::scales_after;
    static __device__ __forceinline__ Words load(uint32_t codes, const KeptScales& scales,
                                                 uint32_t lane, uint32_t block) {
        Words words;
        load_shared_codes(codes, lane, words.codes);
        words.factors = scales.of_block(block);
        return words;
    }
    static __device__ __forceinline__ Words load_codes(uint32_t codes, uint32_t lane) {
        Words words;
        load_shared_codes(codes, lane, words.codes);
        return words;
    }
    using Base::factors;
    static __device__ __forceinline__ RowFactors factors(const KeptScales& scales, uint32_t block) {
        return Base::factors_of(scales.of_block(block));
    }
};

}  // namespace moe::cuda
