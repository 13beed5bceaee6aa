// Types of activations and the error that each combination is allowed; values in those types.
#pragma once

#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "libmoe/base/element.hpp"
#include "libmoe/base/half.hpp"
#include "moe/moe.h"

namespace moe_gpu {

using Floats = std::vector<float>;
using Ids = std::vector<int64_t>;
using Bytes = std::vector<std::byte>;

struct Numbers {
    const char* name;
    moe_type x, intermediate, out;
    double limit;
};

inline constexpr double rounded_limit = 6e-3, exact_limit = 1e-5;
inline constexpr Numbers bf16{"bf16", MOE_TYPE_BF16, MOE_TYPE_BF16, MOE_TYPE_BF16, rounded_limit};
inline constexpr Numbers f16{"f16", MOE_TYPE_F16, MOE_TYPE_F16, MOE_TYPE_F16, rounded_limit};
inline constexpr Numbers f32{"f32", MOE_TYPE_F32, MOE_TYPE_F32, MOE_TYPE_F32, exact_limit};
inline constexpr Numbers f16_through_bf16{"f16_bf16", MOE_TYPE_F16, MOE_TYPE_BF16, MOE_TYPE_F16,
                                          rounded_limit};
inline constexpr Numbers bf16_through_f16{"bf16_f16", MOE_TYPE_BF16, MOE_TYPE_F16, MOE_TYPE_BF16,
                                          rounded_limit};
inline constexpr Numbers bf16_to_f32{"bf16_f32", MOE_TYPE_BF16, MOE_TYPE_BF16, MOE_TYPE_F32,
                                     rounded_limit};
inline constexpr Numbers common_numbers[] = {bf16, f16, f32};

inline int64_t size_of(moe_type type) {
    switch (type) {
        case MOE_TYPE_I8:
        case MOE_TYPE_F8_E4M3:
            return 1;
        case MOE_TYPE_BF16:
        case MOE_TYPE_F16:
            return 2;
        case MOE_TYPE_I64:
        case MOE_TYPE_F64:
            return 8;
        default:
            return 4;
    }
}

// One value of an activation, weight or id type.
inline void store(moe_type type, double value, std::byte* to) {
    const auto narrow = static_cast<float>(value);
    const uint16_t half =
        type == MOE_TYPE_F16 ? moe::float_to_f16(narrow) : moe::float_to_bf16(narrow);
    const auto i8 = static_cast<int8_t>(type == MOE_TYPE_I8 ? value : 0);
    const auto i32 = static_cast<int32_t>(type == MOE_TYPE_I32 ? value : 0);
    const auto i64 = static_cast<int64_t>(type == MOE_TYPE_I64 ? value : 0);
    const uint8_t e4m3 = type == MOE_TYPE_F8_E4M3 ? moe::f32_to_e4m3(narrow) : uint8_t{0};
    const void* from = type == MOE_TYPE_I8        ? static_cast<const void*>(&i8)
                       : type == MOE_TYPE_F8_E4M3 ? &e4m3
                       : type == MOE_TYPE_I32     ? &i32
                       : type == MOE_TYPE_I64     ? &i64
                       : size_of(type) == 2       ? &half
                                                  : static_cast<const void*>(&narrow);
    std::memcpy(to, from, static_cast<size_t>(size_of(type)));
}

inline float load(moe_type type, const std::byte* from) {
    uint16_t half = 0;
    float value = 0;
    std::memcpy(&half, from, 2);
    if (type == MOE_TYPE_F16) return moe::f16_to_float(half);
    if (type == MOE_TYPE_BF16) return moe::bf16_to_float(half);
    std::memcpy(&value, from, 4);
    return value;
}

inline Floats rounded(Floats values, moe_type type) {
    if (type == MOE_TYPE_F32) return values;
    for (float& v : values)
        v = type == MOE_TYPE_F16 ? moe::f16_to_float(moe::float_to_f16(v))
                                 : moe::bf16_to_float(moe::float_to_bf16(v));
    return values;
}

// Normal values by Box and Muller, the same on every machine up to the last bits of libm.
Floats normal(int64_t n, uint64_t seed, float spread = 1.0f);
// task(i) for i in [0, n) on all cores of this machine.
void in_parallel(int64_t n, const std::function<void(int64_t)>& task);

// Equal logits, NaN, infinities, numbers that only differ in the last place.
Floats hard_logits(int64_t n_tokens, int64_t n_experts);
// Of every token some twenty logits that differ little, and not in the softmax, above all others
// but one; the largest not always first. Of every second token they are far below that one, so that
// scores are subnormal.
Floats near_ties(int64_t n_tokens, int64_t n_experts);

}  // namespace moe_gpu
