// The 16 levels of iq4_nl and iq4_xs: fixed signed bytes, of which a byte permutation looks up four
// by codes that lie by rows (packed/layout.hpp). It chooses among eight, and a selector of 8 and
// more repeats the sign of its byte instead. In the grouped GEMM a third permutation chooses
// between the results of two. In gemv, where lower levels are negative and upper ones positive, the
// two give
//
//   code     0 to 7        8 to 15
//   lower    the level     -1
//   upper    0             the level + 1
//
// and their sum is the level. The tensor cores add them: both are operands. Device only.
#pragma once

#include "libmoe/cuda/dequant/code_bytes.cuh"
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

}  // namespace moe::cuda
