// Random numbers that are nearly normal.
#pragma once

#include <cstdint>

namespace clients {

// Of 64 random bits, the sum of four numbers of 16 bits, with mean 0 and variance 1, at most 3.5.
// Logarithms and sines of normal numbers were most of the time that tests of all formats took.
inline double nearly_normal(uint64_t bits) {
    const uint64_t sum =
        (bits & 0xFFFF) + (bits >> 16 & 0xFFFF) + (bits >> 32 & 0xFFFF) + (bits >> 48);
    return (static_cast<double>(sum) - 2 * 0xFFFF) * (1.7320508075688772 / 0x10000);
}

}  // namespace clients
