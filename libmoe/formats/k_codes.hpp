// What ggml's K blocks of 256 columns share in how codes lie, column i being 128 h + 32 j + l:
//   two bits of it are bits 2j, 2j + 1 of byte 32 h + l of 64    (q2_k, q3_k, high ones of q6_k)
//   one bit of it is bit 4h + j of byte l of 32                   (q3_k, q5_k)
#pragma once

#include "libmoe/formats/gguf_codes.hpp"

namespace moe {

constexpr int k_columns = 256;
using KCodes = uint8_t[k_columns];
constexpr BlockColumns all_k{0, k_columns};

// Puts the two bits at `shift` of the codes of some columns, zero before.
inline void read_two_bits(const std::byte* __restrict q, int shift, BlockColumns columns,
                          uint8_t* codes) {
    for (int c = 0; c < columns.count; ++c) {
        const int i = columns.first + c;
        const int byte = load<uint8_t>(q + i / 128 * 32 + i % 32);
        codes[c] |= static_cast<uint8_t>((byte >> i % 128 / 32 * 2 & 3) << shift);
    }
}

inline void write_two_bits(const KCodes& codes, int shift, std::byte* q) {
    for (int b = 0; b < k_columns / 4; ++b) {
        const uint8_t* first = codes + b / 32 * 128 + b % 32;
        int byte = 0;
        for (int j = 0; j < 4; ++j) byte |= (first[32 * j] >> shift & 3) << 2 * j;
        store(q + b, static_cast<uint8_t>(byte));
    }
}

inline void read_one_bit(const std::byte* __restrict q, int shift, BlockColumns columns,
                         uint8_t* codes) {
    for (int c = 0; c < columns.count; ++c) {
        const int i = columns.first + c;
        const int byte = load<uint8_t>(q + i % 32);
        codes[c] |= static_cast<uint8_t>((byte >> i / 32 & 1) << shift);
    }
}

inline void write_one_bit(const KCodes& codes, int shift, std::byte* q) {
    for (int l = 0; l < 32; ++l) {
        int byte = 0;
        for (int j = 0; j < 8; ++j) byte |= (codes[32 * j + l] >> shift & 1) << j;
        store(q + l, static_cast<uint8_t>(byte));
    }
}

}  // namespace moe
