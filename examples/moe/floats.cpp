// floats.cpp - conversions by bit arithmetic, in loops that compilers vectorise.
#include "floats.hpp"

#include <bit>
#include <cstring>

#include "moe_cpp.hpp"

namespace moe::cli {
namespace {

uint16_t bf16_from(float value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = (bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16;
    const bool is_nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
    return static_cast<uint16_t>(is_nan ? (bits >> 16 | 0x40U) : rounded);
}

float f32_from_bf16(uint16_t bits) {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// Adding a power of two lets the float adder do the rounding of subnormals; normals round by
// integer carry.
uint16_t f16_from(float value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    const uint32_t sign = bits >> 16 & 0x8000U;
    const uint32_t magnitude = bits & 0x7FFFFFFFU;
    if (magnitude > 0x7F800000U) return static_cast<uint16_t>(sign | 0x7E00U);
    if (magnitude >= 0x477FF000U) return static_cast<uint16_t>(sign | 0x7C00U);
    if (magnitude < 0x38800000U) {
        const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
        return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000U));
    }
    const uint32_t rounded = magnitude - 0x38000000U + 0xFFFU + (magnitude >> 13 & 1U);
    return static_cast<uint16_t>(sign | rounded >> 13);
}

float f32_from_f16(uint16_t bits) {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000U) << 16;
    const uint32_t magnitude = bits & 0x7FFFU;
    if (magnitude >= 0x7C00U)
        return std::bit_cast<float>(sign | 0x7F800000U | (magnitude & 0x3FFU) << 13);
    const float value = std::bit_cast<float>(magnitude << 13) * 0x1p112F;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
}

[[noreturn]] void refuse(moe_type type) {
    throw Failure("type " + std::to_string(type) + " is not a type of activations");
}

}  // namespace

uint64_t element_bytes(moe_type type) {
    if (type == MOE_TYPE_F32) return 4;
    if (type == MOE_TYPE_F16 || type == MOE_TYPE_BF16) return 2;
    refuse(type);
}

void encode_floats(moe_type type, std::span<const float> source, void* out) {
    if (type == MOE_TYPE_F32) {
        std::memcpy(out, source.data(), source.size_bytes());
        return;
    }
    auto* halves = static_cast<uint16_t*>(out);
    if (type == MOE_TYPE_BF16) {
        for (size_t i = 0; i < source.size(); ++i) halves[i] = bf16_from(source[i]);
    } else if (type == MOE_TYPE_F16) {
        for (size_t i = 0; i < source.size(); ++i) halves[i] = f16_from(source[i]);
    } else {
        refuse(type);
    }
}

void decode_floats(moe_type type, const void* source, std::span<float> out) {
    if (type == MOE_TYPE_F32) {
        std::memcpy(out.data(), source, out.size_bytes());
        return;
    }
    const auto* halves = static_cast<const uint16_t*>(source);
    if (type == MOE_TYPE_BF16) {
        for (size_t i = 0; i < out.size(); ++i) out[i] = f32_from_bf16(halves[i]);
    } else if (type == MOE_TYPE_F16) {
        for (size_t i = 0; i < out.size(); ++i) out[i] = f32_from_f16(halves[i]);
    } else {
        refuse(type);
    }
}

}  // namespace moe::cli
