// Building blocks of ValueDequant (dequant.cuh): words of codes from memory, and codes of 1 to 7
// bits in them. Host and device.
#pragma once

#include "libmoe/base/element.hpp"
#include "libmoe/cuda/dequant/dequant.cuh"
#include "libmoe/cuda/device/operand.hpp"

namespace moe::cuda {

// Accumulators of operands of the type still have to be multiplied by this.
template <PackedType type, Operand operand>
MOE_HOST_DEVICE constexpr float residual_scale_of() {
    using Values = ValueDequant<type>;
    if constexpr (operand == Operand::bf16 && requires { Values::bf16_residual_scale; })
        return Values::bf16_residual_scale;
    else if constexpr (operand == Operand::f16 && requires { Values::f16_residual_scale; })
        return Values::f16_residual_scale;
    else
        return 1.0f;
}

// The parts of 16, 8 and 4 bytes that make up a lane's words of a block.
template <int bits>
MOE_HOST_DEVICE inline void load_code_words(const std::byte* codes, int32_t lane,
                                            uint32_t (&words)[bits]) {
    constexpr int in_16 = bits / 4 * 4;
    MOE_UNROLL
    for (int i = 0; i < in_16; i += 4) load_words<4>(codes + 128 * i + 16 * lane, words + i);
    constexpr int in_8 = in_16 + (bits & 2);
    if constexpr (in_8 > in_16) load_words<2>(codes + 128 * in_16 + 8 * lane, words + in_16);
    if constexpr (bits > in_8) load_words<1>(codes + 128 * in_8 + 4 * lane, words + in_8);
}

// The number of a lane's pair of scales (rows g and g + 8) in a block, for groups of 16 columns and
// of 32.
MOE_HOST_DEVICE inline int32_t scale_pair_of_16(int32_t lane) {
    return lane;
}
MOE_HOST_DEVICE inline int32_t scale_pair_of_32(int32_t lane) {
    return lane >> 1;
}

// Codes and the two scales (rows g and g + 8) of a lane.
template <int n_words>
struct ScaledWords {
    uint32_t code[n_words];
    float scale[2];
};

MOE_HOST_DEVICE inline void load_f32_scales(const std::byte* pair, float (&scale)[2]) {
    uint32_t bits[2];
    load_words<2>(pair, bits);
    scale[0] = std::bit_cast<float>(bits[0]);
    scale[1] = std::bit_cast<float>(bits[1]);
}

// The level of a code as float32, exactly. Conversions of integers are slow on a GPU: a byte is put
// under the exponent of 2^23 instead, and 2^23 with the type's zero is subtracted.
MOE_HOST_DEVICE inline float byte_level(uint32_t byte, float zero) {
    return std::bit_cast<float>(0x4B000000u | byte) - (8388608.0f + zero);
}

// The codes of 1 to 7 bits of a register of a step, in bits 0.. and 16.. of a word.
template <int bits>
MOE_HOST_DEVICE inline uint32_t code_pair(const uint32_t* w, int step, int reg) {
    const int nibble = 4 * reg;
    if constexpr (bits == 3) {
        if (step < 3) return w[step] >> nibble & 0x00070007u;
        return (w[0] >> (nibble + 3) & 0x00010001u) | (w[1] >> (nibble + 2) & 0x00020002u) |
               (w[2] >> (nibble + 1) & 0x00040004u);
    }
    constexpr int in_4 = bits & 4, in_2 = bits & 2;
    uint32_t codes = 0;
    if constexpr (in_4 != 0) codes = w[step] >> nibble & 0x000F000Fu;
    if constexpr (in_2 != 0)
        codes |= (w[in_4 + step / 2] >> (nibble + 2 * (step & 1)) & 0x00030003u) << in_4;
    if constexpr ((bits & 1) != 0)
        codes |= (w[bits - 1] >> (nibble + step) & 0x00010001u) << (in_4 + in_2);
    return codes;
}

// The same of codes of 2 to 4 bits that lie by rows (is_row_ordered).
template <int bits>
MOE_HOST_DEVICE inline uint32_t code_pair_of_row(const uint32_t* w, int step, int reg) {
    uint32_t nibbles = 0;
    if constexpr (bits == 4) {
        nibbles = w[step];
    } else if constexpr (bits == 2) {
        nibbles = w[step / 2] >> 2 * (step & 1);
    } else if (step < 3) {
        nibbles = w[step];
    } else {
        nibbles = (w[0] >> 3 & 0x11111111u) | (w[1] >> 2 & 0x22222222u) | (w[2] >> 1 & 0x44444444u);
    }
    const uint32_t two = nibbles >> (16 * (reg & 1) + 4 * (reg >> 1));
    constexpr uint32_t code = (1u << bits) - 1;
    return (two & code) | (two >> 8 & code) << 16;
}

}  // namespace moe::cuda
