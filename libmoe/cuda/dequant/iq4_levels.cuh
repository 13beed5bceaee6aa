// The 16 levels of iq4_nl and iq4_xs: fixed signed bytes, of which a byte permutation looks up four
// by codes that lie by rows (packed/layout.hpp). It chooses among eight, and a selector of 8 and
// more repeats the sign of its byte instead. In the grouped GEMMs a third permutation chooses
// between the results of two, or, on Hopper, a table has the levels of two codes. In gemv, where
// lower levels are negative and upper ones positive, the two give
//
//   code     0 to 7        8 to 15
//   lower    the level     -1
//   upper    0             the level + 1
//
// and their sum is the level. The tensor cores add them: both are operands. Device only.
#pragma once

#include "libmoe/cuda/dequant/code_bytes.cuh"
#include "libmoe/cuda/dequant/codebook_lanes.cuh"
#include "libmoe/cuda/dequant/grouped_codes.cuh"

namespace moe::cuda {

// Levels of codes `first` to `first` + 3 plus `add`, as bytes of a word.
constexpr uint32_t iq4_level_word(uint32_t first, int32_t add) {
    uint32_t word = 0;
    for (uint32_t i = 0; i < 4; ++i)
        word |= static_cast<uint32_t>(iq4_level(first + i) + add & 0xFF) << 8 * i;
    return word;
}

// Base: the scales, of codes as signed bytes.
template <class Base>
struct GemvIq4Levels : Base {
    static constexpr int n_parts = 2;
    static constexpr float residual_scale = 1.0f;
    static_assert(is_row_ordered(Base::type));

    template <int n>
    static __device__ __forceinline__ void two_steps(const typename Base::template Words<n>& words,
                                                     int i, uint32_t, uint32_t (&lower)[4],
                                                     uint32_t (&upper)[4]) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const uint32_t word = words.codes[i / 2][i % 2 * 2 + j / 2] >> 16 * (j & 1);
            lower[j] = permute_bytes(iq4_level_word(0, 0), iq4_level_word(4, 0), word);
            upper[j] = permute_bytes(iq4_level_word(8, 1), iq4_level_word(12, 1), word ^ 0x8888u);
        }
    }
};

// For GroupedCodes (grouped_codes.cuh): levels plus 128 are codes of 8 bits.
struct Iq4Codes {
    static constexpr uint32_t zero = 128;
    static __device__ __forceinline__ uint32_t codes(const uint32_t (&words)[4], int step,
                                                     int row) {
        const uint32_t word = words[step] >> 16 * row;
        const uint32_t lower = permute_bytes(iq4_level_word(0, 128), iq4_level_word(4, 128), word);
        const uint32_t upper =
            permute_bytes(iq4_level_word(8, 128), iq4_level_word(12, 128), word ^ 0x8888u);
        return permute_bytes(lower, upper, (word >> 1 & 0x4444u) | 0x3210u);
    }
};

// The levels of the two codes of a byte as a pair of bfloat16, in a table for every lane.
struct Iq4LevelTable : LaneTable<4> {
    __device__ __forceinline__ explicit Iq4LevelTable(uint32_t table)
        : LaneTable<4>(of_lane(table, threadIdx.x % 32)) {}

    static __device__ __forceinline__ void store_entry(uint32_t table, uint32_t i) {
        store(table, i, [](uint32_t low, uint32_t high) {
            return bf16_pair(static_cast<float>(iq4_level(low)),
                             static_cast<float>(iq4_level(high)));
        });
    }
    // The registers of a step. Bytes 0 and 1 of its word are of row g, and a byte has the first
    // codes of two registers, or the second ones.
    __device__ __forceinline__ void step(uint32_t word, uint32_t* a) const {
        uint32_t entry[4];
        entries_of(word, entry);
#pragma unroll
        for (int row = 0; row < 2; ++row) {
            a[row] = permute_bytes(entry[2 * row], entry[2 * row + 1], 0x5410);
            a[row + 2] = permute_bytes(entry[2 * row], entry[2 * row + 1], 0x7632);
        }
    }
};

// Levels times a scale, as CodeOperands has it.
template <bool one_scale>
class ScaledLevels {
  public:
    __device__ __forceinline__ explicit ScaledLevels(float scale) {
        const float of_operand = scale / CodeOperands<Operand::bf16>::residual;
        scale_ = bf16_pair(of_operand, of_operand);
        const float rest = of_operand - __uint_as_float(scale_ << 16);
        if constexpr (!one_scale) rest_ = bf16_pair(rest, rest);
    }
    __device__ __forceinline__ uint32_t operator()(uint32_t levels) const {
        constexpr uint32_t minus_zeros = 0x80008000u;
        uint32_t rest = minus_zeros;
        if constexpr (!one_scale) rest = multiply_add<Operand::bf16>(levels, rest_, minus_zeros);
        return multiply_add<Operand::bf16>(levels, scale_, rest);
    }

  private:
    uint32_t scale_, rest_;
};

// The GroupedDequant of a type with these levels, with bfloat16 operands made by the table, which
// takes fewer instructions than permutations of bytes.
template <class Base>
struct Iq4ByTable : Base {
    using Words = typename Base::Words;
    using Table = Iq4LevelTable;
    struct Values : Iq4LevelTable {
        __device__ __forceinline__ Values(uint32_t table, uint32_t, uint32_t)
            : Iq4LevelTable(table) {}
    };
    static __device__ __forceinline__ void store_tables(uint32_t to, int32_t first,
                                                        int32_t stride) {
        for (int32_t i = first; i < Table::n_entries; i += stride)
            Table::store_entry(to, static_cast<uint32_t>(i));
    }
    template <Operand operand = Operand::bf16, bool one_scale = false>
    static __device__ __forceinline__ void dequantize(const Words& words, const Table& table,
                                                      uint32_t (&a)[16]) {
        static_assert(operand == Operand::bf16);
        const ScaledLevels<one_scale> rows[2] = {ScaledLevels<one_scale>(words.factors.first),
                                                 ScaledLevels<one_scale>(words.factors.second)};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            table.step(words.codes[j], a + 4 * j);
#pragma unroll
            for (int i = 0; i < 4; ++i) a[4 * j + i] = rows[i & 1](a[4 * j + i]);
        }
    }
    static __device__ __forceinline__ void spread(const Words& words, const Values& values, int j,
                                                  uint32_t* a) {
        values.step(words.codes[j], a);
    }
    static __device__ __forceinline__ RowFactors factors(const Words& words) {
        return {{words.factors.first, words.factors.second}, {}};
    }
    template <class Kept>
    static __device__ __forceinline__ RowFactors factors(const Kept& scales, uint32_t block) {
        const auto [first, second] = scales.of_block(block);
        return {{first, second}, {}};
    }
};

}  // namespace moe::cuda
