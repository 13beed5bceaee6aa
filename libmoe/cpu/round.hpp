// Activations between memory types and the type of the arithmetic.
#pragma once

#include <cstring>

#include "libmoe/base/half.hpp"
#include "moe/moe.h"

namespace moe::cpu {

// value as it would be after a store to `type` and a load back; F32 and F64 change nothing.
template <class Real>
Real round_to(Real value, moe_type type) {
    if (type != MOE_TYPE_BF16 && type != MOE_TYPE_F16) return value;
    return round_to_type(static_cast<float>(value), type);
}

inline int64_t activation_bytes(moe_type type) {
    return type == MOE_TYPE_F32 ? 4 : 2;
}

inline float load_activation(moe_type type, const std::byte* from) {
    if (type == MOE_TYPE_F32) {
        float value;
        std::memcpy(&value, from, sizeof value);
        return value;
    }
    uint16_t half;
    std::memcpy(&half, from, sizeof half);
    return type == MOE_TYPE_F16 ? f16_to_float(half) : bf16_to_float(half);
}

template <class Real>
void load_activations(moe_type type, const void* from, int64_t count, Real* out) {
    const auto* bytes = static_cast<const std::byte*>(from);
    const int64_t step = activation_bytes(type);
    for (int64_t i = 0; i < count; ++i)
        out[i] = static_cast<Real>(load_activation(type, bytes + i * step));
}

inline void store_activation(moe_type type, float value, std::byte* to) {
    if (type == MOE_TYPE_F32) {
        std::memcpy(to, &value, sizeof value);
        return;
    }
    const uint16_t half = type == MOE_TYPE_F16 ? float_to_f16(value) : float_to_bf16(value);
    std::memcpy(to, &half, sizeof half);
}

// One rounding per element; with accumulate the sum with what is there is what is rounded.
template <class Real>
void store_activations(moe_type type, const Real* from, int64_t count, bool accumulate, void* to) {
    auto* bytes = static_cast<std::byte*>(to);
    const int64_t step = activation_bytes(type);
    for (int64_t i = 0; i < count; ++i) {
        std::byte* place = bytes + i * step;
        const Real before = accumulate ? static_cast<Real>(load_activation(type, place)) : Real{0};
        store_activation(type, static_cast<float>(before + from[i]), place);
    }
}

}  // namespace moe::cpu
