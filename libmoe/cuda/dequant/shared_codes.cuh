// Codes of 2 to 6 bits of a full block: a lane's words from shared memory, as packed/layout.hpp has
// them, and four codes of a row as the bytes of a register. Device only.
#pragma once

#include "libmoe/cuda/device/shared_memory.cuh"

namespace moe::cuda {

// codes: the shared address of those of the block.
template <int bits>
__device__ __forceinline__ void load_shared_codes(uint32_t codes, uint32_t lane,
                                                  uint32_t (&words)[bits]) {
    if constexpr (bits >= 4) {
        const uint4 w = load_shared_16(codes + 16 * lane);
        words[0] = w.x;
        words[1] = w.y;
        words[2] = w.z;
        words[3] = w.w;
    }
    if constexpr ((bits & 2) != 0) {
        constexpr int first = bits & 4;
        const uint2 w = load_shared_8(codes + 128 * first + 8 * lane);
        words[first] = w.x;
        words[first + 1] = w.y;
    }
    if constexpr ((bits & 1) != 0)
        words[bits - 1] = load_shared_4(codes + 128 * (bits - 1) + 4 * lane);
}

// (word & mask) ^ other: one operation in assembly, two where the compiler chooses and both are
// constants.
__device__ __forceinline__ uint32_t and_xor(uint32_t word, uint32_t mask, uint32_t other) {
    uint32_t result;
    asm("lop3.b32 %0, %1, %2, %3, 0x6A;" : "=r"(result) : "r"(word), "r"(mask), "r"(other));
    return result;
}

// The `width` bits at bit `from` of each byte, at bit `to`, into `other`, whose bits there they
// flip; `sets`: that are zeros.
template <bool sets>
__device__ __forceinline__ uint32_t put_byte_fields(uint32_t other, uint32_t word, int from, int to,
                                                    int width) {
    const uint32_t moved = from >= to ? word >> (from - to) : word << (to - from);
    const uint32_t mask = ((1u << width) - 1) * 0x01010101u << to;
    return sets ? other | (moved & mask) : and_xor(moved, mask, other);
}

// The codes of row g (row 0) or g + 8 (row 1) of a step in the order of k 0, 2, 1, 3, each at bit
// `to` of its byte. They flip bits of `flipped`.
template <int bits, uint32_t flipped = 0>
__device__ __forceinline__ uint32_t codes_of_row(const uint32_t (&w)[bits], int step, int row,
                                                 int to) {
    constexpr bool sets = flipped == 0;
    const int nibble = 4 * row;
    uint32_t codes = flipped;
    if constexpr (bits == 3) {
        if (step < 3) return put_byte_fields<sets>(codes, w[step < 3 ? step : 0], nibble, to, 3);
        // Both rows have the nibbles of the last step in common.
        const uint32_t two = and_xor(w[0] >> 3, 0x11111111u, w[1] >> 2 & 0x22222222u);
        return put_byte_fields<sets>(codes, and_xor(w[2] >> 1, 0x44444444u, two), nibble, to, 3);
    }
    constexpr int in_4 = bits & 4, in_2 = bits & 2;
    if constexpr (in_4 != 0) codes = put_byte_fields<sets>(codes, w[step], nibble, to, 4);
    if constexpr (in_2 != 0)
        codes =
            put_byte_fields<sets>(codes, w[in_4 + step / 2], nibble + 2 * (step & 1), to + in_4, 2);
    if constexpr ((bits & 1) != 0)
        codes = put_byte_fields<sets>(codes, w[bits - 1], nibble + step, to + in_4 + in_2, 1);
    return codes;
}

}  // namespace moe::cuda
