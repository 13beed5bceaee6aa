// Codes to registers of two 16-bit values by loads from a table in shared memory that every lane
// has in its own bank, entries 128 bytes apart: there are no bank conflicts, and one load gives the
// values of rows g and g + 8. The address is a dot product of bytes, which uses another pipe than
// masks and shifts. Codes lie as packed/layout.hpp has them, so that a byte has a code of row g and
// one of row g + 8 (of types by rows, two codes of a row: iq4_levels.cuh):
//   4 bits   the byte is the entry
//   5 bits   likewise, of magnitudes; the fifth bits, which are signs (packed/layout.hpp), come to
//   the
//            values' own
// Tables are 32 KB, for a codebook that serves many weights. Device only.
#pragma once

#include "libmoe/cuda/device/convert.hpp"
#include "libmoe/cuda/device/shared_memory.cuh"

namespace moe::cuda {

template <int bits>
struct LaneTable {
    static_assert(bits == 4 || bits == 5);
    static constexpr int32_t n_entries = 256;
    static constexpr int32_t bytes = 128 * n_entries;

    uint32_t at;  // shared address of this lane's

    static __device__ __forceinline__ LaneTable of_lane(uint32_t table, uint32_t lane) {
        return {table + 4 * lane};
    }

    // Stores entry i of every lane. pair(code of row g, code of row g + 8): their values, the same
    // for all lanes; all lanes of a warp together.
    template <class Pair>
    static __device__ __forceinline__ void store(uint32_t table, uint32_t i, const Pair& pair) {
        const uint32_t entry = pair(i & 15, i >> 4);
#pragma unroll
        for (uint32_t j = 0; j < 8; ++j)
            store_shared(table + 128 * i + 16 * (j ^ (i & 7)), uint4{entry, entry, entry, entry});
    }

    // The entries of the four bytes of a word.
    __device__ __forceinline__ void entries_of(uint32_t word, uint32_t (&entry)[4]) const {
#pragma unroll
        for (int i = 0; i < 4; ++i) entry[i] = load_shared_4(address(word, i));
    }

    // The four registers of step j of a block.
    __device__ __forceinline__ void step(const uint32_t (&words)[bits], int j, uint32_t* a) const {
        uint32_t entry[4];
        entries_of(words[j], entry);
        take_rows(entry, a);
        if constexpr (bits == 5) take_signs(words[4], j, a);
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
