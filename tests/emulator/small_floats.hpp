// Conversions of floating-point values of 16 bits and less, in their bit patterns.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace emulator {

enum class Rounding : uint8_t { nearest, zero, down, up, away };

inline float float_of_bf16(uint16_t bits) {
    return std::bit_cast<float>(uint32_t{bits} << 16);
}

inline float float_of_f16(uint16_t half) {
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
    const uint32_t magnitude = static_cast<uint32_t>(half & 0x7FFF) << 13;
    // The bits are read as a float; the multiplication corrects the exponent, for subnormals too.
    const float value = std::bit_cast<float>(magnitude) * 0x1p112f;
    const uint32_t special = magnitude | 0x7F800000;
    const uint32_t bits = magnitude >= 0x0F800000 ? special : std::bit_cast<uint32_t>(value);
    return std::bit_cast<float>(bits | sign);
}

// A format with an implicit first bit. Values are bits without the sign; `largest` bounds the
// finite ones.
struct SmallFormat {
    int mantissa_bits, bias;
    uint32_t largest;   // finite
    uint32_t infinity;  // 0: none
    uint32_t nan;
};

constexpr SmallFormat f16_format{10, 15, 0x7BFF, 0x7C00, 0x7FFF};
constexpr SmallFormat bf16_format{7, 127, 0x7F7F, 0x7F80, 0x7FFF};
constexpr SmallFormat e4m3_format{3, 7, 0x7E, 0, 0x7F};
constexpr SmallFormat e5m2_format{2, 15, 0x7B, 0x7C, 0x7F};
constexpr SmallFormat e2m1_format{1, 1, 0x7, 0, 0x7};

// Encodes with the sign at bit sign_bit.
inline uint32_t encode_small(double value, const SmallFormat& f, Rounding rounding, bool saturate,
                             int sign_bit) {
    const uint32_t sign = std::signbit(value) ? 1u << sign_bit : 0;
    if (std::isnan(value)) return f.nan;
    const double size = std::fabs(value);
    const uint32_t beyond = saturate || !f.infinity ? f.largest : f.infinity;
    if (std::isinf(size)) return sign | beyond;
    if (size == 0) return sign;
    int exponent = std::ilogb(size);
    const int lowest = 1 - f.bias;
    if (exponent < lowest) exponent = lowest;
    const double steps = std::ldexp(size, f.mantissa_bits - exponent);
    double whole = std::floor(steps);
    const double fraction = steps - whole;
    const bool is_up = (rounding == Rounding::up && !sign) || (rounding == Rounding::down && sign);
    if (rounding == Rounding::nearest)
        whole += fraction > 0.5 || (fraction == 0.5 && std::fmod(whole, 2) == 1);
    else if (rounding == Rounding::away)
        whole += fraction >= 0.5;
    else
        whole += is_up && fraction > 0;
    const auto bits = static_cast<uint32_t>(whole) +
                      (static_cast<uint32_t>(exponent - lowest) << f.mantissa_bits);
    if (bits > f.largest) return sign | (rounding == Rounding::zero ? f.largest : beyond);
    return sign | bits;
}

inline double decode_small(uint32_t bits, const SmallFormat& f) {
    const int exponent = static_cast<int>(bits >> f.mantissa_bits);
    const auto mantissa = static_cast<double>(bits & ((1u << f.mantissa_bits) - 1));
    if (bits > f.largest) return bits == f.infinity ? INFINITY : NAN;
    if (exponent == 0) return std::ldexp(mantissa, 1 - f.bias - f.mantissa_bits);
    return std::ldexp(mantissa + (1 << f.mantissa_bits), exponent - f.bias - f.mantissa_bits);
}

inline uint16_t bf16_of(float value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
    return static_cast<uint16_t>(value != value ? 0x7FFF : rounded);
}

inline uint16_t f16_of(float value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    const uint32_t sign = bits >> 16 & 0x8000, size = bits & 0x7FFFFFFF;
    if (size > 0x7F800000) return 0x7FFF;
    if (size >= 0x477FF000) return static_cast<uint16_t>(sign | 0x7C00);
    if (size < 0x38800000) {
        // Subnormal: the addition rounds at the last bit of the half.
        const float sum = std::bit_cast<float>(size) + 0.5f;
        return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(sum) - 0x3F000000));
    }
    const uint32_t rounded = size - 0x38000000 + 0xFFF + (size >> 13 & 1);
    return static_cast<uint16_t>(sign | rounded >> 13);
}

// encode_small to nearest, with a fast path for normal values of the format.
inline uint16_t encode_half(double value, const SmallFormat& f) {
    const auto bits = std::bit_cast<uint64_t>(value);
    const int exponent = static_cast<int>(bits >> 52 & 0x7FF) - 1023;
    if (exponent <= -f.bias || exponent > f.bias)
        return static_cast<uint16_t>(encode_small(value, f, Rounding::nearest, false, 15));
    const int dropped = 52 - f.mantissa_bits;
    const uint64_t rounded = bits + (uint64_t{1} << (dropped - 1)) - 1 + (bits >> dropped & 1);
    const uint64_t bias = static_cast<uint64_t>(1023 - f.bias) << f.mantissa_bits;
    const uint64_t size = ((rounded & ~(uint64_t{1} << 63)) >> dropped) - bias;
    return static_cast<uint16_t>(size | (bits >> 63 << 15));
}

// Returns the sum rounded to odd, so that a second rounding to fewer bits equals that of the exact
// sum.
inline double sum_to_odd(double a, double b) {
    const double sum = a + b;
    const double part = sum - a, error = (a - (sum - part)) + (b - part);
    if (error == 0 || !std::isfinite(sum)) return sum;
    auto bits = std::bit_cast<uint64_t>(sum);
    if (bits & 1) return sum;
    // Truncates towards zero, then sets the last bit; the magnitude drops by one if the error
    // points down.
    if ((error < 0) != (sum < 0)) --bits;
    return std::bit_cast<double>(bits | 1);
}

}  // namespace emulator
