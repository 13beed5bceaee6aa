// Codes to registers of two 16-bit values by loads from a table in shared memory. Addresses are dot
// products of bytes, which use another pipe than masks and shifts, of which a dequantizer has most.
//   2 and 3 bits   entry c + 2^bits d of a table has the values of codes c and d
//   4 and 5 bits   entry c has the value in its upper half, with zero below: two loads for two
// A table for rows g, and behind it one for rows g + 8. Bank conflicts are two-way at most, and of
// 2, 4 and 5 bits there are none. Device only.
#pragma once

#include "libmoe/cuda/dequant/codebook_values.cuh"
#include "libmoe/cuda/device/shared_memory.cuh"

namespace moe::cuda {

template <int bits>
struct CodebookLookup {
    static constexpr bool has_pairs = bits <= 3;
    static constexpr int32_t entries = has_pairs ? 1 << 2 * bits : 1 << bits;
    static constexpr int32_t bytes = 4 * entries;

    uint32_t table;  // shared address of both

    // The codes whose values make entry i; without pairs, the one of its upper half.
    static __device__ __forceinline__ int32_t low_code(int32_t i) { return i & ((1 << bits) - 1); }
    static __device__ __forceinline__ int32_t high_code(int32_t i) {
        return has_pairs ? i >> bits : i;
    }

    // The four registers of step j of a block.
    __device__ __forceinline__ void step(const uint32_t (&words)[bits], int j, uint32_t* a) const {
        if constexpr (has_pairs) {
            const int shift = bits == 2 ? 2 * (j & 1) : 0;
            const uint32_t of_code = ((1u << bits) - 1) * 0x01010101u << shift;
            const uint32_t w = word_of_step(words, j);
            look_up_pairs(w & of_code, shift, a[0], a[1]);
            look_up_pairs(w >> 4 & of_code, shift, a[2], a[3]);
        } else {
            uint32_t even = words[j] & 0x0F0F0F0Fu;
            uint32_t odd = words[j] >> 4 & 0x0F0F0F0Fu;
            if constexpr (bits == 5) {  // bit j of a nibble: of step j
                const uint32_t fifth = words[4] >> j;
                even |= fifth << 4 & 0x10101010u;
                odd |= fifth & 0x10101010u;
            }
            look_up(even, 0, a[0], a[2]);
            look_up(odd, 1, a[1], a[3]);
        }
    }

  private:
    // codes: of rows g in bytes 0 and 1, of rows g + 8 in 2 and 3, all 2^shift times as large.
    __device__ __forceinline__ void look_up_pairs(uint32_t codes, int shift, uint32_t& a,
                                                  uint32_t& b) const {
        const uint32_t stride = 4u >> shift;
        const uint32_t strides = stride | stride << (8 + bits);
        a = load_shared_4(__dp4a(codes, strides, table));
        b = load_shared_4(__dp4a(codes, strides << 16, table) + bytes);
    }
    // codes: of one register in bytes 0 and 2, of another in 1 and 3.
    __device__ __forceinline__ void look_up(uint32_t codes, int m_half, uint32_t& a,
                                            uint32_t& b) const {
        a = value(codes, 0, m_half) | value_above(codes, 2, m_half);
        b = value(codes, 1, m_half) | value_above(codes, 3, m_half);
    }
    __device__ __forceinline__ uint32_t entry(uint32_t codes, int byte, int m_half) const {
        return __dp4a(codes, 4u << 8 * byte, table) + m_half * bytes;
    }
    __device__ __forceinline__ uint32_t value(uint32_t codes, int byte, int m_half) const {
        return load_shared_2(entry(codes, byte, m_half) + 2);
    }
    __device__ __forceinline__ uint32_t value_above(uint32_t codes, int byte, int m_half) const {
        return load_shared_4(entry(codes, byte, m_half));
    }
};

}  // namespace moe::cuda
