// Checked 64-bit arithmetic for sizes that come from a file or a caller.
#pragma once

#include <cstdint>
#include <optional>

#include "libmoe/base/error.hpp"

namespace moe {

inline std::optional<uint64_t> try_add(uint64_t a, uint64_t b) {
    uint64_t sum;
    if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
    return sum;
}

inline std::optional<uint64_t> try_multiply(uint64_t a, uint64_t b) {
    uint64_t product;
    if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
    return product;
}

// The same, failing with a sentence that says which size overflowed.
inline uint64_t checked_add(uint64_t a, uint64_t b, const char* what) {
    const auto sum = try_add(a, b);
    if (!sum) fail(MOE_ERROR_INVALID_ARGUMENT, "{}: {} + {} overflows 64 bits", what, a, b);
    return *sum;
}

inline uint64_t checked_multiply(uint64_t a, uint64_t b, const char* what) {
    const auto product = try_multiply(a, b);
    if (!product) fail(MOE_ERROR_INVALID_ARGUMENT, "{}: {} * {} overflows 64 bits", what, a, b);
    return *product;
}

constexpr int64_t divide_up(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

constexpr uint64_t align_up(uint64_t value, uint64_t alignment) {
    return (value + alignment - 1) / alignment * alignment;
}

}  // namespace moe
