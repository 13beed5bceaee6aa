// What the ggml blocks of 32 columns share: byte j of 16 holds the low four bits of column j in its
// low nibble, of column j + 16 in its high one; bit i of a 32-bit word is the fifth bit of column
// i. Encoders with a minimum span the values: step = (largest - least) / most, offset = least.
#pragma once

#include "libmoe/formats/gguf_codes.hpp"

namespace moe {

constexpr int small_columns = 32;
using SmallCodes = uint8_t[small_columns];
constexpr BlockColumns all_small{0, small_columns};

inline void read_nibbles(const std::byte* __restrict q, uint8_t* codes) {
    for (int j = 0; j < small_columns / 2; ++j) {
        const uint8_t byte = load<uint8_t>(q + j);
        codes[j] = byte & 15;
        codes[j + small_columns / 2] = byte >> 4;
    }
}

inline void write_nibbles(const SmallCodes& codes, std::byte* q) {
    for (int j = 0; j < small_columns / 2; ++j) {
        const int high = codes[j + small_columns / 2] & 15;
        store(q + j, static_cast<uint8_t>((codes[j] & 15) | high << 4));
    }
}

inline void read_fifth_bits(const std::byte* qh, uint8_t* codes) {
    const uint32_t bits = load<uint32_t>(qh);
    for (int i = 0; i < small_columns; ++i) codes[i] |= static_cast<uint8_t>((bits >> i & 1) << 4);
}

inline void write_fifth_bits(const SmallCodes& codes, std::byte* qh) {
    uint32_t bits = 0;
    for (int i = 0; i < small_columns; ++i) bits |= static_cast<uint32_t>(codes[i] >> 4) << i;
    store(qh, bits);
}

// Codes of [-most, most - 1] as whole numbers from 0; the step is stored at d.
inline void encode_symmetric(const float* values, int most, std::byte* d, SmallCodes& codes) {
    const float step = store_f16(extreme_step(values, small_columns, most), d);
    for (int i = 0; i < small_columns; ++i)
        codes[i] = static_cast<uint8_t>(most + steps(values[i], step, -most, most - 1));
}

// Codes of [0, most]; the step is stored at d, the offset in the two bytes after it.
inline void encode_span(const float* values, int most, std::byte* d, SmallCodes& codes) {
    const auto [least, largest] = std::minmax_element(values, values + small_columns);
    const float parts = static_cast<float>(most);
    const float step = store_f16(*largest / parts - *least / parts, d);
    const float offset = store_f16(*least, d + 2);
    for (int i = 0; i < small_columns; ++i)
        codes[i] = static_cast<uint8_t>(steps(values[i] - offset, step, 0, most));
}

}  // namespace moe
