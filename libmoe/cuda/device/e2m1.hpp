// The code word of e2m1 (libmoe/weights/packed.hpp) to pairs of bfloat16, by shifts and masks
// alone.
#pragma once

#include "libmoe/cuda/device/operand.hpp"

namespace moe::cuda {

// Register `reg` of the word's step: sign and magnitude of two codes stand where bfloat16 has its
// sign and the lowest bits of exponent and mantissa, which is their value times 2^-126.
MOE_HOST_DEVICE inline uint32_t spread_e2m1(uint32_t word, int reg) {
    constexpr uint32_t mask = 0x81C081C0u;
    if (reg == 0) return word & mask;
    if (reg == 1) return word << 6 & mask;
    if (reg == 2) return rotate_right(word, 4) & mask;
    return (word << 2 & 0x80C080C0u) | (rotate_right(word, 6) & 0x01000100u);
}

}  // namespace moe::cuda
