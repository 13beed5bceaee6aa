// The superblock scales of q4_k and q5_k, 16 bytes: f16 d, f16 dmin, 12 bytes sc. Eight sub-blocks
// j of 32 columns have a 6-bit scale S and a 6-bit minimum M:
//   j < 4:   S = sc[j] & 63                             M = sc[j + 4] & 63
//   j >= 4:  S = (sc[j + 4] & 15) + 16 (sc[j - 4] >> 6)   M = (sc[j + 4] >> 4) + 16 (sc[j] >> 6)
// Encoding: a sub-block spans [min(0, least), largest] in `most` steps; d and dmin are the largest
// step and minimum over 63, each S and M rounded to nearest against what decodes.
#pragma once

#include "libmoe/formats/gguf_codes.hpp"

namespace moe {

struct KLevels {
    static constexpr int sub_blocks = 8;
    static constexpr int sub_block = 32;
    static constexpr int bytes = 16;

    float d;
    float dmin;
    uint8_t scale[sub_blocks];
    uint8_t minimum[sub_blocks];
};

inline KLevels read_levels(const std::byte* bytes) {
    const auto at = [bytes](int i) { return load<uint8_t>(bytes + 4 + i); };
    KLevels levels;
    levels.d = load_f16(bytes);
    levels.dmin = load_f16(bytes + 2);
    for (int j = 0; j < 4; ++j) {
        levels.scale[j] = at(j) & 63;
        levels.minimum[j] = at(j + 4) & 63;
        levels.scale[j + 4] = static_cast<uint8_t>((at(j + 8) & 15) | at(j) >> 6 << 4);
        levels.minimum[j + 4] = static_cast<uint8_t>(at(j + 8) >> 4 | at(j + 4) >> 6 << 4);
    }
    return levels;
}

inline void write_levels(const KLevels& levels, std::byte* sc) {
    const uint8_t* scale = levels.scale;
    const uint8_t* minimum = levels.minimum;
    for (int j = 0; j < 4; ++j) {
        store(sc + j, static_cast<uint8_t>(scale[j] | scale[j + 4] >> 4 << 6));
        store(sc + j + 4, static_cast<uint8_t>(minimum[j] | minimum[j + 4] >> 4 << 6));
        store(sc + j + 8, static_cast<uint8_t>((scale[j + 4] & 15) | (minimum[j + 4] & 15) << 4));
    }
}

// Writes the superblock scales of 256 values whose codes go up to `most`, and returns their values.
inline KLevels encode_levels(const float* values, int most, std::byte* bytes) {
    float step[KLevels::sub_blocks], minimum[KLevels::sub_blocks];
    const float parts = static_cast<float>(most);
    for (int j = 0; j < KLevels::sub_blocks; ++j) {
        const float* first = values + j * KLevels::sub_block;
        const auto [least, largest] = std::minmax_element(first, first + KLevels::sub_block);
        minimum[j] = std::max(-*least, 0.0f);
        step[j] = std::max(*largest / parts + minimum[j] / parts, 0.0f);
    }
    KLevels levels;
    levels.d = store_f16(largest_magnitude(step, KLevels::sub_blocks) / 63.0f, bytes);
    levels.dmin = store_f16(largest_magnitude(minimum, KLevels::sub_blocks) / 63.0f, bytes + 2);
    for (int j = 0; j < KLevels::sub_blocks; ++j) {
        levels.scale[j] = static_cast<uint8_t>(steps(step[j], levels.d, 0, 63));
        levels.minimum[j] = static_cast<uint8_t>(steps(minimum[j], levels.dmin, 0, 63));
    }
    write_levels(levels, bytes + 4);
    return levels;
}

// The code of a value of sub-block j, [0, most].
inline uint8_t level_code(const KLevels& levels, int j, float value, int most) {
    const float above = value + levels.dmin * static_cast<float>(levels.minimum[j]);
    return static_cast<uint8_t>(
        steps(above, levels.d * static_cast<float>(levels.scale[j]), 0, most));
}

}  // namespace moe
