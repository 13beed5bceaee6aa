// q4_k (ggml type 12): blocks of 144 bytes for 256 columns of a row: f16 d, f16 dmin, 12 bytes sc,
// 128 bytes q. Eight sub-blocks j of 32 columns have a 6-bit scale S and a 6-bit minimum M:
//   j < 4:   S = sc[j] & 63                             M = sc[j + 4] & 63
//   j >= 4:  S = (sc[j + 4] & 15) + 16 (sc[j - 4] >> 6)   M = (sc[j + 4] >> 4) + 16 (sc[j] >> 6)
// Byte l of the 32 bytes q of a pair (2p, 2p + 1) of sub-blocks holds column l of 2p in its low
// nibble, of 2p + 1 in its high one.
//   W[n, k] = d * S * nibble - dmin * M                 exact products, one rounding
// Encoding: a sub-block spans [min(0, least), largest] in 15 steps; d and dmin are the largest step
// and minimum over 63, each S, M and nibble rounded to nearest against what decodes.
#include "libmoe/formats/gguf_block.hpp"

namespace moe {
namespace {

constexpr int64_t block = 256;
constexpr int64_t block_bytes = 144;
constexpr int sub_blocks = 8;
constexpr int sub_block = 32;
constexpr int sc_offset = 4;
constexpr int q_offset = 16;

struct Levels {
    uint8_t scale[sub_blocks];
    uint8_t minimum[sub_blocks];
};

Levels unpack(const std::byte* sc) {
    const auto at = [sc](int i) { return load<uint8_t>(sc + i); };
    Levels levels;
    for (int j = 0; j < 4; ++j) {
        levels.scale[j] = at(j) & 63;
        levels.minimum[j] = at(j + 4) & 63;
        levels.scale[j + 4] = static_cast<uint8_t>((at(j + 8) & 15) | at(j) >> 6 << 4);
        levels.minimum[j + 4] = static_cast<uint8_t>(at(j + 8) >> 4 | at(j + 4) >> 6 << 4);
    }
    return levels;
}

void pack(const Levels& levels, std::byte* sc) {
    const uint8_t* scale = levels.scale;
    const uint8_t* minimum = levels.minimum;
    for (int j = 0; j < 4; ++j) {
        store(sc + j, static_cast<uint8_t>(scale[j] | scale[j + 4] >> 4 << 6));
        store(sc + j + 4, static_cast<uint8_t>(minimum[j] | minimum[j + 4] >> 4 << 6));
        store(sc + j + 8, static_cast<uint8_t>((scale[j + 4] & 15) | (minimum[j + 4] & 15) << 4));
    }
}

void decode_pair(const std::byte* __restrict q, const float (&scale)[2], const float (&minimum)[2],
                 float* __restrict out) {
    for (int l = 0; l < sub_block; ++l) {
        const int byte = load<uint8_t>(q + l);
        out[l] = scale[0] * static_cast<float>(byte & 15) - minimum[0];
        out[l + sub_block] = scale[1] * static_cast<float>(byte >> 4) - minimum[1];
    }
}

void decode_block(const std::byte* bytes, float* out) {
    const float d = f16_to_float(load<uint16_t>(bytes));
    const float dmin = f16_to_float(load<uint16_t>(bytes + 2));
    const Levels levels = unpack(bytes + sc_offset);
    for (int j = 0; j < sub_blocks; j += 2) {
        const float scale[2] = {d * levels.scale[j], d * levels.scale[j + 1]};
        const float minimum[2] = {dmin * levels.minimum[j], dmin * levels.minimum[j + 1]};
        decode_pair(bytes + q_offset + j / 2 * sub_block, scale, minimum, out + j * sub_block);
    }
}

// value / unit as a whole number of at most `limit`; 0 when there is no unit.
uint8_t steps(float value, float unit, float limit) {
    if (!(unit > 0)) return 0;
    return static_cast<uint8_t>(std::clamp(std::round(value / unit), 0.0f, limit));
}

// Stores largest / 63 as f16 and returns what it decodes to.
float encode_unit(float largest, std::byte* place) {
    const uint16_t code = float_to_f16(std::min(largest / 63.0f, 65504.0f));
    store(place, code);
    return f16_to_float(code);
}

struct Spans {
    float step[sub_blocks];
    float minimum[sub_blocks];  // what is subtracted, not negative
};

Spans measure(const float* values) {
    Spans spans;
    for (int j = 0; j < sub_blocks; ++j) {
        const float* first = values + j * sub_block;
        const auto [least, largest] = std::minmax_element(first, first + sub_block);
        spans.minimum[j] = std::max(-*least, 0.0f);
        spans.step[j] = std::max(*largest / 15.0f + spans.minimum[j] / 15.0f, 0.0f);
    }
    return spans;
}

void encode_nibbles(const float* values, const Levels& levels, float d, float dmin, std::byte* q) {
    const auto nibble = [&](int j, int l) {
        const float value = values[j * sub_block + l] + dmin * levels.minimum[j];
        return steps(value, d * levels.scale[j], 15.0f);
    };
    for (int j = 0; j < sub_blocks; j += 2) {
        for (int l = 0; l < sub_block; ++l) {
            store(q + j / 2 * sub_block + l,
                  static_cast<uint8_t>(nibble(j, l) | nibble(j + 1, l) << 4));
        }
    }
}

void encode_block(const float* values, std::byte* bytes) {
    const Spans spans = measure(values);
    const float d = encode_unit(largest_magnitude(spans.step, sub_blocks), bytes);
    const float dmin = encode_unit(largest_magnitude(spans.minimum, sub_blocks), bytes + 2);
    Levels levels;
    for (int j = 0; j < sub_blocks; ++j) {
        levels.scale[j] = steps(spans.step[j], d, 63.0f);
        levels.minimum[j] = steps(spans.minimum[j], dmin, 63.0f);
    }
    pack(levels, bytes + sc_offset);
    encode_nibbles(values, levels, d, dmin, bytes + q_offset);
}

struct Q4_K {
    static constexpr int32_t id = 12;
    static constexpr int32_t columns = block;
    static constexpr int32_t bytes = block_bytes;
    static constexpr auto decode = decode_block;
    static constexpr auto encode = encode_block;
};

}  // namespace

constinit const FormatTraits q4_k_format = GgufFormat<Q4_K>::traits("q4_k");

}  // namespace moe
