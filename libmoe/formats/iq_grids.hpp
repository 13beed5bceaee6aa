// The grids of the iq2 and iq3 formats: tables of the magnitudes that eight (iq2) or four (iq3)
// columns may have together. An entry holds the index of each magnitude, of the first column in the
// lowest bits: two bits each in iq2, four in iq3. Signs are apart, a bit for each column.
#pragma once

#include <array>
#include <bit>

#include "libmoe/formats/gguf_codes.hpp"

namespace moe {

extern const std::array<uint16_t, 256> iq2_xxs_grid;
extern const std::array<uint16_t, 512> iq2_xs_grid;
extern const std::array<uint16_t, 256> iq3_xxs_grid;
extern const std::array<uint16_t, 512> iq3_s_grid;

inline constexpr uint8_t iq2_magnitudes[4] = {8, 25, 43, 0};  // no entry has index 3
inline constexpr uint8_t iq3_xxs_magnitudes[8] = {4, 12, 20, 28, 36, 44, 52, 62};
inline constexpr uint8_t iq3_s_magnitudes[8] = {1, 3, 5, 7, 9, 11, 13, 15};

// Seven bits of signs become eight: the number of negative columns is even.
inline int iq_signs(uint32_t seven) {
    return static_cast<int>(seven | (static_cast<uint32_t>(std::popcount(seven)) & 1) << 7);
}

// Eight columns of iq2: bit i of signs is set where column i is negative.
inline void decode_iq2(uint16_t entry, int signs, float scale, float* __restrict out) {
    for (int i = 0; i < 8; ++i) {
        const int magnitude = iq2_magnitudes[entry >> 2 * i & 3];
        out[i] = scale * static_cast<float>(signs >> i & 1 ? -magnitude : magnitude);
    }
}

// Four columns of iq3.
inline void decode_iq3(uint16_t entry, const uint8_t (&magnitudes)[8], int signs, float scale,
                       float* __restrict out) {
    for (int i = 0; i < 4; ++i) {
        const int magnitude = magnitudes[entry >> 4 * i & 7];
        out[i] = scale * static_cast<float>(signs >> i & 1 ? -magnitude : magnitude);
    }
}

}  // namespace moe
