// Element codes: the 8- and 4-bit floating-point types of weights and scales, to and from float32
// (16-bit ones are in base/half.hpp).
// Decoding is exact; encoding rounds to the nearest value, ties to the even code. Every function is
// inline and free of branches, needs no subnormal arithmetic to decode, and is usable in constant
// expressions.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "libmoe/base/half.hpp"
#include "libmoe/base/host_device.hpp"

namespace moe {

static_assert(std::endian::native == std::endian::little, "weights are read in place");

// Bytes of a tensor need not be aligned.
template <class T>
MOE_HOST_DEVICE inline T load(const std::byte* place) {
    T value;
    memcpy(&value, place, sizeof value);
    return value;
}

template <class T>
void store(std::byte* place, T value) {
    std::memcpy(place, &value, sizeof value);
}

// sign 1, exponent 4 bias 7, mantissa 3; 0x7F and 0xFF are NaN, no infinity, largest 448.
constexpr float e4m3_to_f32(uint8_t code) {
    const uint32_t magnitude = code & 0x7Fu;
    const uint32_t normal = (magnitude << 20) + (120u << 23);
    const uint32_t subnormal =
        std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-9f);
    const uint32_t finite = magnitude < 8 ? subnormal : normal;
    return std::bit_cast<float>((magnitude == 0x7F ? 0x7FC00000u : finite) | (code & 0x80u) << 24);
}

// Saturates at 448, infinity included; NaN stays NaN.
constexpr uint8_t f32_to_e4m3(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    float absolute = std::bit_cast<float>(bits & 0x7FFFFFFFu);
    absolute = absolute < 448.0f ? absolute : 448.0f;
    const uint32_t magnitude = std::bit_cast<uint32_t>(absolute);
    // 2^14 has its last bit at 2^-9, the subnormal step.
    const uint32_t subnormal = std::bit_cast<uint32_t>(absolute + 0x1p14f) & 0xFFu;
    const uint32_t normal = ((magnitude + 0x7FFFF + (magnitude >> 20 & 1)) >> 20) - (120u << 3);
    uint32_t code = absolute < 0x1p-6f ? subnormal : normal;
    code = value == value ? code : 0x7Fu;
    return static_cast<uint8_t>(code | (bits >> 24 & 0x80u));
}

// A power of two, 2^(code - 127); 0 is 2^-127, 0xFF is NaN.
constexpr float e8m0_to_f32(uint8_t code) {
    const uint32_t normal = uint32_t{code} << 23;
    const uint32_t finite = code ? normal : 0x00400000u;
    return std::bit_cast<float>(code == 0xFF ? 0x7FC00000u : finite);
}

// No sign, exponent 4 bias 11, mantissa 4: 2^(e-11) (1 + m/16), or m 2^-14 for e = 0; largest 31.
constexpr float e4m4_to_f32(uint8_t code) {
    const uint32_t normal = (uint32_t{code} << 19) + (116u << 23);
    const uint32_t subnormal =
        std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(code)) * 0x1p-14f);
    return std::bit_cast<float>(code < 16 ? subnormal : normal);
}

// Saturates at 31 (code 255); up to 2^-15, negative and NaN give 0.
constexpr uint8_t f32_to_e4m4(float value) {
    float absolute = value > 0 ? value : 0;
    absolute = absolute < 31.0f ? absolute : 31.0f;
    const uint32_t magnitude = std::bit_cast<uint32_t>(absolute);
    // 2^9 has its last bit at 2^-14, the subnormal step.
    const uint32_t subnormal = std::bit_cast<uint32_t>(absolute + 0x1p9f) & 0xFFu;
    const uint32_t normal = ((magnitude + 0x3FFFF + (magnitude >> 19 & 1)) >> 19) - (116u << 4);
    return static_cast<uint8_t>(absolute < 0x1p-10f ? subnormal : normal);
}

// sign 1, exponent 2 bias 1, mantissa 1; no infinity, no NaN. Only the low four bits of code count.
constexpr float e2m1_to_f32(uint8_t code) {
    const uint32_t magnitude = code & 7u;
    const uint32_t normal = (magnitude << 22) + (126u << 23);
    const uint32_t small = magnitude ? 126u << 23 : 0;
    return std::bit_cast<float>((magnitude < 2 ? small : normal) | (code & 8u) << 28);
}

// Saturates at 6. The sign is that of value < 0: minus zero becomes code 0. NaN has no code: 0.
constexpr uint8_t f32_to_e2m1(float value) {
    const float absolute = value < 0 ? -value : value;
    const int magnitude = (absolute > 0.25f) + (absolute >= 0.75f) + (absolute > 1.25f) +
                          (absolute >= 1.75f) + (absolute > 2.5f) + (absolute >= 3.5f) +
                          (absolute > 5.0f);
    return static_cast<uint8_t>(magnitude | (value < 0 ? 8 : 0));
}

// The two values of a byte that holds an even element in its low nibble.
struct E2m1Pair {
    float low;
    float high;
};

struct E2m1Pairs {
    E2m1Pair pair[256];

    constexpr E2m1Pairs() : pair() {
        for (int byte = 0; byte < 256; ++byte) {
            pair[byte].low = e2m1_to_f32(static_cast<uint8_t>(byte & 15));
            pair[byte].high = e2m1_to_f32(static_cast<uint8_t>(byte >> 4));
        }
    }
};

inline constexpr E2m1Pairs e2m1_pairs;

}  // namespace moe
