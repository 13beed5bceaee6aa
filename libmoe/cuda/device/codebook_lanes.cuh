// Codes to registers of two 16-bit values by look-ups in shared memory, where every lane has a
// table of its own in its own bank, entries 128 bytes apart: no two lanes are in each other's way,
// and one look-up gives the values of rows g and g + 8. The address is a dot product of bytes,
// which does not run where masks and shifts do. Codes lie as packed.hpp has them, so that a byte
// has a code of row g and one of row g + 8:
//   4 bits   the byte is the entry
//   5 bits   likewise, of magnitudes; the fifth bits, which are signs (packed.hpp), come to the
//            values' own
//   3 bits   without bits 3 and 7, which belong to another step
//   2 bits   it has two codes of each row, for two steps, and the entry two pairs; lanes l and
//            l + 16 share a table, because loads of 8 bytes go by halves of a warp
// Tables are 16 or 32 KB: for a codebook that serves many weights.
#pragma once

#include "libmoe/cuda/device/codebook_values.cuh"
#include "libmoe/cuda/device/shared_memory.cuh"

namespace moe::cuda {

template <int bits>
struct LaneTable {
    static_assert(bits >= 2 && bits <= 5);
    static constexpr int32_t n_entries = bits == 3 ? 128 : 256;
    static constexpr int32_t bytes = 128 * n_entries;
    static constexpr bool has_two_pairs = bits == 2;

    uint32_t at;  // shared address of this lane's

    static __device__ __forceinline__ LaneTable of_lane(uint32_t table, uint32_t lane) {
        return {table + (has_two_pairs ? 8 * (lane & 15) : 4 * lane)};
    }

    // Stores entry i of every lane. pair(code of row g, code of row g + 8): their values, the same
    // for all lanes; all lanes of a warp together.
    template <class Pair>
    static __device__ __forceinline__ void store(uint32_t table, uint32_t i, const Pair& pair) {
        constexpr uint32_t code = bits == 5 ? 15 : (1u << bits) - 1;
        const uint32_t first = pair(i & code, i >> 4 & code);
        uint32_t second = first;
        if constexpr (has_two_pairs) second = pair(i >> 2 & code, i >> 6);
#pragma unroll
        for (uint32_t j = 0; j < 8; ++j)
            store_shared(table + 128 * i + 16 * (j ^ (i & 7)), uint4{first, second, first, second});
    }

    // The four registers of step j of a block.
    __device__ __forceinline__ void step(const uint32_t (&words)[bits], int j, uint32_t* a) const {
        static_assert(!has_two_pairs);
        uint32_t word = words[bits >= 4 ? j : 0];
        if constexpr (bits == 3) word = three_bit_codes(words, j) & 0x77777777u;
        uint32_t entry[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) entry[i] = load_shared_4(address(word, i));
        take_rows(entry, a);
        if constexpr (bits == 5) take_signs(words[4], j, a);
    }
    // Of steps 2 i and 2 i + 1.
    __device__ __forceinline__ void two_steps(const uint32_t (&words)[bits], int i, uint32_t* a,
                                              uint32_t* b) const {
        if constexpr (has_two_pairs) {
            uint32_t first[4], second[4];
#pragma unroll
            for (int byte = 0; byte < 4; ++byte) {
                const uint2 entry = load_shared_8(address(words[i], byte));
                first[byte] = entry.x;
                second[byte] = entry.y;
            }
            take_rows(first, a);
            take_rows(second, b);
        } else {
            step(words, 2 * i, a);
            step(words, 2 * i + 1, b);
        }
    }

  private:
    __device__ __forceinline__ uint32_t address(uint32_t word, int byte) const {
        return __dp4a(word, 128u << 8 * byte, at);
    }
    // Bytes 0 and 2 have the two k of registers 0 and 1, bytes 1 and 3 those of 2 and 3.
    static __device__ __forceinline__ void take_rows(const uint32_t (&entry)[4], uint32_t* a) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            a[2 * i] = permute_bytes(entry[i], entry[i + 2], 0x5410);
            a[2 * i + 1] = permute_bytes(entry[i], entry[i + 2], 0x7632);
        }
    }
    // The sign of half e of register i of step j is bit 16 e + 4 i + j.
    static __device__ __forceinline__ void take_signs(uint32_t signs, int j, uint32_t* a) {
#pragma unroll
        for (int i = 0; i < 4; ++i) a[i] ^= signs << (15 - 4 * i - j) & 0x80008000u;
    }
};

}  // namespace moe::cuda
