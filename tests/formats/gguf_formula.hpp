// One element of a ggml block by the formula of its type, in double precision, apart from the
// library's decoders; and where the f16 fields of a block are.
#pragma once

#include "libmoe/base/element.hpp"
#include "libmoe/base/iq_grids.hpp"
#include "tests/formats/matrices.hpp"

namespace moe::test {

// A block and the parts of it that formulas speak of.
class GgufBlock {
  public:
    explicit GgufBlock(const std::byte* bytes) : bytes_(bytes) {}

    double half(int64_t place) const { return f16_to_float(load<uint16_t>(bytes_ + place)); }
    int byte(int64_t place) const { return load<uint8_t>(bytes_ + place); }
    int signed_byte(int64_t place) const { return load<int8_t>(bytes_ + place); }
    // Bits [shift, shift + n) of a byte.
    int bits(int64_t place, int64_t shift, int n) const {
        return byte(place) >> shift & ((1 << n) - 1);
    }
    uint32_t word(int64_t place) const { return load<uint32_t>(bytes_ + place); }
    int word16(int64_t place) const { return load<uint16_t>(bytes_ + place); }
    const std::byte* bytes() const { return bytes_; }

  private:
    const std::byte* bytes_;
};

inline int small_nibble(const GgufBlock& block, int64_t q, int64_t i) {
    return block.bits(q + i % 16, 4 * (i / 16), 4);
}

inline int fifth_bit(const GgufBlock& block, int64_t qh, int64_t i) {
    return block.bits(qh + i / 8, i % 8, 1);
}

inline double q2_k_value(const GgufBlock& block, int64_t i) {
    const int64_t h = i / 128, j = i % 128 / 32, l = i % 32;
    const int64_t s = 8 * h + 2 * j + l / 16;
    return block.half(80) * block.bits(s, 0, 4) * block.bits(16 + 32 * h + l, 2 * j, 2) -
           block.half(82) * block.bits(s, 4, 4);
}

inline double q3_k_value(const GgufBlock& block, int64_t i) {
    const int64_t h = i / 128, j = i % 128 / 32, l = i % 32;
    const int64_t t = 8 * h + 2 * j + l / 16;
    const int scale = block.bits(96 + t % 8, 4 * (t / 8), 4) +
                      16 * block.bits(96 + 8 + t % 4, 2 * (t / 4), 2) - 32;
    const int code = block.bits(32 + 32 * h + l, 2 * j, 2) - (block.bits(l, 4 * h + j, 1) ? 0 : 4);
    return block.half(108) * scale * code;
}

// Of q4_k and q5_k: the code is given.
inline double level_value(const GgufBlock& block, int64_t j, int code) {
    const auto sc = [&block](int64_t k) { return block.byte(4 + k); };
    const int scale = j < 4 ? sc(j) & 63 : (sc(j + 4) & 15) + 16 * (sc(j - 4) >> 6);
    const int minimum = j < 4 ? sc(j + 4) & 63 : (sc(j + 4) >> 4) + 16 * (sc(j) >> 6);
    return block.half(0) * scale * code - block.half(2) * minimum;
}

inline double q5_k_value(const GgufBlock& block, int64_t i) {
    const int64_t j = i / 32;
    const int code = block.bits(48 + 32 * (i / 64) + i % 32, 4 * (j & 1), 4) +
                     16 * block.bits(16 + i % 32, j, 1);
    return level_value(block, j, code);
}

inline double q6_k_value(const GgufBlock& block, int64_t i) {
    const int64_t h = i / 128, g = i % 128 / 32, l = i % 32;
    const int code = block.bits(64 * h + l + 32 * (g & 1), 4 * (g / 2), 4) +
                     16 * block.bits(128 + 32 * h + l, 2 * g, 2);
    return block.half(208) * block.signed_byte(192 + i / 16) * (code - 32);
}

inline double iq4_value(int code) {
    constexpr double values[] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                 1,    13,   25,  38,  53,  69,  89,  113};
    return values[code];
}

inline double iq4_xs_value(const GgufBlock& block, int64_t i) {
    const int64_t b = i / 32;
    const int scale =
        block.bits(4 + b / 2, 4 * (b % 2), 4) + 16 * (block.word16(2) >> 2 * b & 3) - 32;
    return block.half(0) * scale * iq4_value(small_nibble(block, 8 + 16 * b, i % 32));
}

// Whether column `i` of eight is negative when seven bits say it of the first seven.
inline bool is_negative(uint32_t seven, int64_t i) {
    if (i < 7) return seven >> i & 1;
    int negative = 0;
    for (int b = 0; b < 7; ++b) negative += static_cast<int>(seven >> b & 1);
    return negative % 2 == 1;
}

inline double iq2_magnitude(int entry, int64_t i) {
    constexpr double magnitudes[] = {8, 25, 43};
    return magnitudes[entry >> 2 * i & 3];
}

inline double iq2_xxs_value(const GgufBlock& block, int64_t i) {
    const int64_t at = 2 + 8 * (i / 32), j = i % 32 / 8;
    const uint32_t a = block.word(at + 4);
    const double magnitude = iq2_magnitude(int(iq2_xxs_entry(uint32_t(block.byte(at + j)))), i % 8);
    const double sign = is_negative(a >> 7 * j & 127, i % 8) ? -1 : 1;
    return block.half(0) * (0.5 + (a >> 28)) * 0.25 * (sign * magnitude);
}

inline double iq2_xs_value(const GgufBlock& block, int64_t i) {
    const int q = block.word16(2 + 2 * (i / 8));
    const int s = block.bits(66 + i / 32, 4 * (i / 16 % 2), 4);
    const double sign = is_negative(static_cast<uint32_t>(q >> 9), i % 8) ? -1 : 1;
    return block.half(0) * (0.5 + s) * 0.25 *
           (sign * iq2_magnitude(int(iq2_xs_entry(uint32_t(q & 511))), i % 8));
}

inline double iq3_xxs_value(const GgufBlock& block, int64_t i) {
    constexpr double magnitudes[] = {4, 12, 20, 28, 36, 44, 52, 62};
    const int entry = int(iq3_xxs_entry(uint32_t(block.byte(2 + i / 4))));
    const uint32_t a = block.word(66 + 4 * (i / 32));
    const double sign = is_negative(a >> 7 * (i % 32 / 8) & 127, i % 8) ? -1 : 1;
    return block.half(0) * (0.5 + (a >> 28)) * 0.5 * (sign * magnitudes[entry >> 4 * (i % 4) & 15]);
}

inline double iq3_s_value(const GgufBlock& block, int64_t i) {
    const int index = block.byte(2 + i / 4) + 256 * block.bits(66 + i / 32, i / 4 % 8, 1);
    const int magnitude = 2 * (int(iq3_s_entry(uint32_t(index))) >> 4 * (i % 4) & 15) + 1;
    const double sign = block.bits(74 + i / 8, i % 8, 1) ? -1 : 1;
    return block.half(0) * (1 + 2 * block.bits(106 + i / 64, 4 * (i / 32 % 2), 4)) *
           (sign * magnitude);
}

inline double mxfp4_gguf_value(const GgufBlock& block, int64_t i) {
    if (block.byte(0) == 255) return NAN;
    const auto code = static_cast<uint8_t>(small_nibble(block, 1, i));
    return std::ldexp(static_cast<double>(e2m1_to_f32(code)), block.byte(0) - 127);
}

// Without the global scale.
inline double nvfp4_gguf_value(const GgufBlock& block, int64_t i) {
    const int64_t b = i / 16;
    const int code = block.bits(4 + 8 * b + i % 8, 4 * (i % 16 / 8), 4);
    const int exponent = block.bits(b, 3, 4), mantissa = block.bits(b, 0, 3);
    double scale = exponent ? std::ldexp(8 + mantissa, exponent - 10) : std::ldexp(mantissa, -9);
    if (block.byte(b) == 0x7F) scale = 0;
    return scale * static_cast<double>(e2m1_to_f32(static_cast<uint8_t>(code)));
}

inline double small_value(int32_t id, const GgufBlock& block, int64_t i) {
    switch (id) {
        case 2:
            return block.half(0) * (small_nibble(block, 2, i) - 8);
        case 3:
            return block.half(0) * small_nibble(block, 4, i) + block.half(2);
        case 6:
            return block.half(0) * (small_nibble(block, 6, i) + 16 * fifth_bit(block, 2, i) - 16);
        case 7:
            return block.half(0) * (small_nibble(block, 8, i) + 16 * fifth_bit(block, 4, i)) +
                   block.half(2);
        case 8:
            return block.half(0) * block.signed_byte(2 + i);
        default:
            return block.half(0) * iq4_value(small_nibble(block, 2, i));
    }
}

// Column i of a block of the ggml type `id`.
inline double gguf_value(int32_t id, const std::byte* bytes, int64_t i) {
    const GgufBlock block(bytes);
    switch (id) {
        case 10:
            return q2_k_value(block, i);
        case 11:
            return q3_k_value(block, i);
        case 12:
            return level_value(block, i / 32,
                               block.bits(16 + 32 * (i / 64) + i % 32, 4 * (i / 32 & 1), 4));
        case 13:
            return q5_k_value(block, i);
        case 14:
            return q6_k_value(block, i);
        case 16:
            return iq2_xxs_value(block, i);
        case 17:
            return iq2_xs_value(block, i);
        case 18:
            return iq3_xxs_value(block, i);
        case 21:
            return iq3_s_value(block, i);
        case 23:
            return iq4_xs_value(block, i);
        case 39:
            return mxfp4_gguf_value(block, i);
        case 40:
            return nvfp4_gguf_value(block, i);
        default:
            return small_value(id, block, i);
    }
}

}  // namespace moe::test
