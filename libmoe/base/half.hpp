// float16 and bfloat16 as bit patterns: exact widening, and narrowing to the nearest with ties to
// even, subnormals, infinities and NaN (kept, made quiet) included. Independent of compiler support
// for 16-bit types.
#pragma once

#include <bit>
#include <cstdint>

#include "moe/moe.h"

namespace moe {

constexpr float bf16_to_float(uint16_t bits) {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

constexpr uint16_t float_to_bf16(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
    const uint32_t odd = bits >> 16 & 1u;
    return static_cast<uint16_t>((bits + 0x7FFFu + odd) >> 16);
}

constexpr float f16_to_float(uint16_t bits) {
    // Arithmetic on truth values rather than choices: gcc vectorises it at -O2.
    const uint32_t exponent = bits >> 10 & 31u;
    const uint32_t is_normal = exponent != 0;
    const uint32_t is_special = exponent == 31;
    const auto mantissa = static_cast<int32_t>((bits & 0x3FFu) | is_normal << 10);
    const float power = std::bit_cast<float>((exponent + 103 - is_normal) << 23);
    const uint32_t magnitude = std::bit_cast<uint32_t>(static_cast<float>(mantissa) * power);
    const uint32_t sign = (bits & 0x8000u) << 16;
    return std::bit_cast<float>(magnitude | sign | is_special * 0x7F800000u);
}

// Drops the low `shift` bits of value, rounding to nearest, ties to even; 0 < shift < 32.
constexpr uint32_t round_shift(uint32_t value, uint32_t shift) {
    const uint32_t kept = value >> shift;
    const uint32_t rest = value & ((1u << shift) - 1u);
    const uint32_t half = 1u << (shift - 1u);
    return kept + (rest > half || (rest == half && (kept & 1u)) ? 1u : 0u);
}

constexpr uint16_t float_to_f16(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint32_t sign = bits >> 16 & 0x8000u;
    const uint32_t magnitude = bits & 0x7FFFFFFFu;
    const uint32_t exponent = magnitude >> 23;
    if (magnitude > 0x7F800000u) {
        return static_cast<uint16_t>(sign | 0x7E00u | (magnitude >> 13 & 0x3FFu));
    }
    // 65520 is half a step above the largest finite value: the tie goes to infinity.
    if (magnitude >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);
    if (exponent >= 113u) {
        // A carry out of the mantissa moves into the exponent, as it must.
        return static_cast<uint16_t>(sign | round_shift(magnitude - (112u << 23), 13));
    }
    if (exponent < 102u) return static_cast<uint16_t>(sign);  // below half of the smallest
    const uint32_t mantissa = (magnitude & 0x7FFFFFu) | 0x800000u;
    return static_cast<uint16_t>(sign | round_shift(mantissa, 126u - exponent));
}

// The value as it is after a trip through type; types other than F16 and BF16 leave it as it is.
constexpr float round_to_type(float value, moe_type type) {
    if (type == MOE_TYPE_BF16) return bf16_to_float(float_to_bf16(value));
    if (type == MOE_TYPE_F16) return f16_to_float(float_to_f16(value));
    return value;
}

}  // namespace moe
