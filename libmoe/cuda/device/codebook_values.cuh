// What kernels have of codebook types: their scales, and small codebooks in registers, the operands
// of a step by byte permutations, without look-ups in memory. Codes lie as packed.hpp has them:
// register a and half e of a step at nibble a + 4 e.
//   CodebookValues<2>   four 16-bit values are the eight bytes that one permutation chooses from,
//                       so it makes a register of two codes
//   CodebookValues<3>   low and high bytes of eight values apart: one permutation each chooses
//                       those of four codes, which two more bring together
#pragma once

#include <cstdint>

namespace moe::cuda {

// The byte of (low, high) that each of the lowest four nibbles of `selector`, 7 at most, names.
__device__ __forceinline__ uint32_t permute_bytes(uint32_t low, uint32_t high, uint32_t selector) {
    uint32_t bytes;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(low), "r"(high), "r"(selector));
    return bytes;
}

// A scale byte in E4M4, bias 11, as the upper bits of a float32 of the same form with bias 127;
// both have subnormal values.
__device__ __forceinline__ float e4m4(uint32_t byte) {
    constexpr float difference = 0x1p116f;
    return __uint_as_float(byte << 19) * difference;
}

template <int bits>
struct CodebookValues;

template <>
struct CodebookValues<2> {
    static constexpr int n_pairs = 2;
    uint32_t pair[2];

    __device__ __forceinline__ void set(const uint32_t (&pairs)[2]) {
        pair[0] = pairs[0];
        pair[1] = pairs[1];
    }
};

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
};

// The four registers of step j of a block. values: of rows g, then of rows g + 8.
//
// A code c of two bits becomes the numbers 2 c and 2 c + 1 of the bytes of its value, by a product
// with 0x22 and a sum; of the four in a word a permutation takes those of the lower half.
__device__ __forceinline__ void look_up_step(const CodebookValues<2> (&values)[2],
                                             const uint32_t (&w)[2], int j, uint32_t* a) {
    const uint32_t bytes = permute_bytes(w[j / 2], 0, 0x3120);  // both halves of a register
#pragma unroll
    for (int row_half = 0; row_half < 2; ++row_half) {
        const uint32_t codes = bytes >> (2 * (j & 1) + 4 * row_half) & 0x03030303u;
        const uint32_t numbers = codes * 0x22u + 0x10101010u;
        const CodebookValues<2>& of = values[row_half];
        a[row_half] = permute_bytes(of.pair[0], of.pair[1], numbers);
        a[row_half + 2] = permute_bytes(of.pair[0], of.pair[1], numbers >> 16);
    }
}

// Three words of three steps; bit 3 of every nibble is a bit of the fourth step.
__device__ __forceinline__ uint32_t three_bit_codes(const uint32_t (&w)[3], int j) {
    if (j < 3) return w[j < 3 ? j : 0];
    const uint32_t two = (w[0] >> 3 & 0x11111111u) | (w[1] >> 2 & 0x22222222u);
    return (two & 0x33333333u) | (w[2] >> 1 & 0x44444444u);
}

// Bytes `low` and `high` of four codes of a row, in the nibbles of `selector`, as two registers.
template <uint32_t first, uint32_t second>
__device__ __forceinline__ void look_up_row(const CodebookValues<3>& values, uint32_t selector,
                                            uint32_t& a, uint32_t& b) {
    const uint32_t low = permute_bytes(values.low[0], values.low[1], selector);
    const uint32_t high = permute_bytes(values.high[0], values.high[1], selector);
    a = permute_bytes(low, high, first);
    b = permute_bytes(low, high, second);
}

// Sums bring the nibbles of a row together, two and two: of registers 0 and 2, and of 1 and 3 with
// the halves exchanged.
__device__ __forceinline__ void look_up_step(const CodebookValues<3> (&values)[2],
                                             const uint32_t (&w)[3], int j, uint32_t* a) {
    const uint32_t codes = three_bit_codes(w, j);
    const uint32_t even = codes & 0x07070707u;
    const uint32_t odd = codes & 0x70707070u;
    look_up_row<0x5140, 0x7362>(values[0], even + (even >> 12), a[0], a[2]);
    look_up_row<0x4051, 0x6273>(values[1], odd + (odd >> 20), a[1], a[3]);
}

// Values that are bytes: one permutation takes those of four nibbles, rows g and g + 8 in turns,
// and another two bring the four of a row together, k 0, 2, 1, 3.
struct ByteValues {
    uint32_t low, high;

    // Registers 0 and 1, or 2 and 3, of a product: of one step, whose codes are in `nibbles`.
    __device__ __forceinline__ void look_up(uint32_t nibbles, uint32_t& a, uint32_t& b) const {
        const uint32_t first = permute_bytes(low, high, nibbles);
        const uint32_t second = permute_bytes(low, high, nibbles >> 16);
        a = permute_bytes(first, second, 0x6420);
        b = permute_bytes(first, second, 0x7531);
    }
    __device__ __forceinline__ void two_steps(const uint32_t (&w)[2], int i, uint32_t* a) const {
        look_up(w[i] & 0x33333333u, a[0], a[1]);
        look_up(w[i] >> 2 & 0x33333333u, a[2], a[3]);
    }
    __device__ __forceinline__ void two_steps(const uint32_t (&w)[3], int i, uint32_t* a) const {
        look_up(three_bit_codes(w, 2 * i) & 0x77777777u, a[0], a[1]);
        look_up(three_bit_codes(w, 2 * i + 1) & 0x77777777u, a[2], a[3]);
    }
};

}  // namespace moe::cuda
