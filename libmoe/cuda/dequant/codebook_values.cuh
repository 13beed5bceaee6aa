// Small codebooks in registers: byte permutations make the operands of a step, without loads from
// shared memory. Codes of two and three bits lie by rows (packed/layout.hpp): a nibble word has the
// four codes of row g, then those of row g + 8. Device only.
#pragma once

#include "libmoe/cuda/device/convert.hpp"

namespace moe::cuda {

// The word that has the codes of step j of four, and what it has beside them: of two bits another
// step, 2 (j % 2) bits off; of three bits in bit 3 of every nibble a bit of the fourth step.
__device__ __forceinline__ uint32_t word_of_step(const uint32_t (&w)[2], int j) {
    return w[j / 2];
}
__device__ __forceinline__ uint32_t word_of_step(const uint32_t (&w)[3], int j) {
    if (j < 3) return w[j < 3 ? j : 0];
    const uint32_t two = (w[0] >> 3 & 0x11111111u) | (w[1] >> 2 & 0x22222222u);
    return (two & 0x33333333u) | (w[2] >> 1 & 0x44444444u);
}
// Codes alone.
__device__ __forceinline__ uint32_t nibbles_of_step(const uint32_t (&w)[2], int j) {
    return word_of_step(w, j) >> 2 * (j & 1) & 0x33333333u;
}
__device__ __forceinline__ uint32_t nibbles_of_step(const uint32_t (&w)[3], int j) {
    return word_of_step(w, j) & 0x77777777u;
}

template <int bits>
struct CodebookValues;

// Four values of 16 bits are the eight bytes that one permutation chooses from, so it makes a
// register of two codes.
template <>
struct CodebookValues<2> {
    static constexpr int n_pairs = 2;
    uint32_t pair[2];

    __device__ __forceinline__ void set(const uint32_t (&pairs)[2]) {
        pair[0] = pairs[0];
        pair[1] = pairs[1];
    }
    // The register of the codes in bytes 0 and 1 of `numbers`, as look_up_step makes them.
    __device__ __forceinline__ uint32_t look_up(uint32_t numbers) const {
        return permute_bytes(pair[0], pair[1], numbers);
    }
};

// Low and high bytes of eight values apart: one permutation each chooses those of four codes, which
// two more bring together.
template <>
struct CodebookValues<3> {
    static constexpr int n_pairs = 4;
    uint32_t low[2], high[2];

    __device__ __forceinline__ void set(const uint32_t (&pairs)[4]) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            low[i] = permute_bytes(pairs[2 * i], pairs[2 * i + 1], 0x6420);
            high[i] = permute_bytes(pairs[2 * i], pairs[2 * i + 1], 0x7531);
        }
    }
    // Registers a and a + 2 of a step from the lowest four nibbles.
    __device__ __forceinline__ void look_up(uint32_t nibbles, uint32_t& a, uint32_t& b) const {
        const uint32_t lows = permute_bytes(low[0], low[1], nibbles);
        const uint32_t highs = permute_bytes(high[0], high[1], nibbles);
        a = permute_bytes(lows, highs, 0x6240);
        b = permute_bytes(lows, highs, 0x7351);
    }
};

// The four registers of step j of a block. values: of rows g, then of rows g + 8.
//
// A code c of two bits becomes the numbers 2 c and 2 c + 1 of the bytes of its value, by a product
// with 0x22 and a sum.
__device__ __forceinline__ void look_up_step(const CodebookValues<2> (&values)[2],
                                             const uint32_t (&w)[2], int j, uint32_t* a) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const uint32_t codes = w[j / 2] >> (2 * (j & 1) + 4 * i) & 0x03030303u;
        const uint32_t numbers = codes * 0x22u + 0x10101010u;
        a[2 * i] = values[0].look_up(numbers);
        a[2 * i + 1] = values[1].look_up(numbers >> 16);
    }
}
__device__ __forceinline__ void look_up_step(const CodebookValues<3> (&values)[2],
                                             const uint32_t (&w)[3], int j, uint32_t* a) {
    const uint32_t nibbles = nibbles_of_step(w, j);
    values[0].look_up(nibbles, a[0], a[2]);
    values[1].look_up(nibbles >> 16, a[1], a[3]);
}

// Values that are bytes: one permutation makes a register.
struct ByteValues {
    uint32_t low, high;

    // Rows g and g + 8 of step 2 i, then of step 2 i + 1.
    template <int bits>
    __device__ __forceinline__ void two_steps(const uint32_t (&w)[bits], int i, uint32_t* a) const {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const uint32_t nibbles = nibbles_of_step(w, 2 * i + j);
            a[2 * j] = permute_bytes(low, high, nibbles);
            a[2 * j + 1] = permute_bytes(low, high, nibbles >> 16);
        }
    }
};

}  // namespace moe::cuda
