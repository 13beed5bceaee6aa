// One value of a packed block, bit by bit as libmoe/packed/layout.hpp has it: what ValueDequant is
// compared with.
#pragma once

#include "libmoe/cuda/dequant/e4m3.cuh"
#include "libmoe/cuda/dequant/kbit.cuh"
#include "libmoe/cuda/dequant/mxfp4.cuh"
#include "libmoe/cuda/dequant/nvfp4.cuh"
#include "libmoe/packed/ggml_scales.hpp"
#include "libmoe/packed/grid.hpp"

namespace moe::cuda {

// One of a lane's values in a block: half `parity` of register `reg` of a step.
struct CodeIndex {
    int32_t step;
    int32_t reg;
    int32_t parity;
};

// Bit of a 32-bit word that holds bit b (3: sign) of the e2m1 code.
MOE_HOST_DEVICE constexpr int32_t e2m1_bit(int32_t reg, int32_t parity, int32_t b) {
    const int32_t offsets = reg == 0   ? 0x0F080706
                            : reg == 1 ? 0x09020100
                            : reg == 2 ? 0x130C0B0A
                                       : 0x0D0E0504;  // a byte for each bit
    return ((offsets >> 8 * b & 31) + 16 * parity) & 31;
}

// Where bit b of a code lies among the bits of its lane.
MOE_HOST_DEVICE constexpr int32_t lane_bit(PackedType type, CodeIndex at, int32_t b) {
    const int32_t bits = code_bits(type);
    const int32_t nibble = 4 * nibble_of_code(type, at.reg, at.parity);
    if (bits >= 8 && is_row_ordered(type))
        return (16 * (at.reg & 1) + 4 * at.step + 2 * (at.reg >> 1) + at.parity) * bits + b;
    if (bits >= 8) return ((4 * at.step + at.reg) * 2 + at.parity) * bits + b;
    if (is_e2m1(type)) return 32 * at.step + e2m1_bit(at.reg, at.parity, b);
    if (bits == 3) {
        if (at.step < 3) return 32 * at.step + nibble + b;  // the last step fills the gaps
        return 32 * b + nibble + 3;
    }
    // Four bits of a code, then two, then one, as far as there are.
    const int32_t in_4 = bits & 4, in_2 = bits & 2;
    if (b < in_4) return 32 * at.step + nibble + b;
    if (b < in_4 + in_2)
        return 32 * in_4 + 32 * (at.step / 2) + nibble + 2 * (at.step & 1) + b - in_4;
    return 32 * (bits - 1) + nibble + at.step;
}

// Where byte i of a lane lies among the codes of its block: parts of 16 bytes, then of 8, 4, 2;
// parts of 4 for bytes by rows.
MOE_HOST_DEVICE constexpr int32_t lane_byte(PackedType type, int32_t lane, int32_t i) {
    const int32_t lane_bytes = 4 * code_bits(type);
    if (code_bits(type) == 8 && is_row_ordered(type)) return 128 * (i / 4) + 4 * lane + i % 4;
    int32_t begin = 0;
    int32_t part = 16;
    while (lane_bytes - begin < part) part /= 2;
    while (i >= begin + part) {
        begin += part;
        while (lane_bytes - begin < part) part /= 2;
    }
    return 32 * begin + part * lane + i - begin;
}

MOE_HOST_DEVICE inline uint32_t read_code(PackedType type, const std::byte* codes, int32_t lane,
                                          CodeIndex at) {
    uint32_t code = 0;
    for (int32_t b = 0; b < code_bits(type); ++b) {
        const int32_t bit = lane_bit(type, at, b);
        const int32_t byte = lane_byte(type, lane, bit / 8);
        code |= (static_cast<uint32_t>(codes[byte]) >> bit % 8 & 1u) << b;
    }
    return code;
}

// Columns that share a scale.
MOE_HOST_DEVICE constexpr int32_t scale_group(PackedType type) {
    return type == PackedType::nvfp4 ? 16 : 32;
}

// Number of a scale in its block: row g + 8 half, group of k.
MOE_HOST_DEVICE constexpr int32_t scale_index(PackedType type, int32_t g, int32_t half,
                                              int32_t group) {
    if (type == PackedType::e4m3) return 2 * group + half;
    return (g * (64 / scale_group(type)) + group) * 2 + half;
}

// The scale of number i, of the types that have one factor for a group.
MOE_HOST_DEVICE inline float read_scale(PackedType type, const std::byte* scales, int32_t i) {
    switch (type) {
        case PackedType::nvfp4:
            return nvfp4_scale(static_cast<uint32_t>(scales[i]));
        case PackedType::mxfp4:
            return mxfp4_scale(static_cast<uint32_t>(scales[i]));
        case PackedType::kbit2:
        case PackedType::kbit3:
        case PackedType::kbit4:
        case PackedType::kbit5:
            return e4m4_scale(static_cast<uint32_t>(scales[i]));
        case PackedType::q8_0:
            return f16_to_float(load<uint16_t>(scales + 2 * i));
        case PackedType::e4m3:
        case PackedType::kbit2_f32:
        case PackedType::kbit3_f32:
        case PackedType::kbit4_f32:
        case PackedType::kbit5_f32:
            return load<float>(scales + 4 * i);
        default:
            return 1.0f;
    }
}

// The value of a code before its scale. codebook: 32 values of rows 0 to 7, then 32 of rows 8
// to 15.
MOE_HOST_DEVICE inline float code_value(PackedType type, uint32_t code, int32_t half,
                                        const float* codebook) {
    switch (type) {
        case PackedType::f32:
            return std::bit_cast<float>(code);
        case PackedType::f16:
            return f16_to_float(static_cast<uint16_t>(code));
        case PackedType::bf16:
            return bf16_to_float(static_cast<uint16_t>(code));
        case PackedType::e4m3:
            return e4m3_value(code);
        case PackedType::nvfp4:
        case PackedType::mxfp4:
            return e2m1_value(code);
        case PackedType::q8_0:
            return static_cast<float>(static_cast<int8_t>(code));
        default:
            return codebook[32 * half + static_cast<int32_t>(code)];
    }
}

// A weight without its global scale: the block at k0 of a tile.
MOE_HOST_DEVICE inline float packed_value(PackedType type, const std::byte* codes,
                                          const std::byte* scales, const float* codebook,
                                          int64_t k0, int32_t lane, CodeIndex at) {
    const int32_t g = lane / 4;
    const int32_t half = at.reg & 1;
    const int32_t k = 16 * (lane % 4) + 4 * at.step;
    const int32_t column = k + at.reg / 2 * 2 + at.parity;
    const uint32_t code = read_code(type, codes, lane, at);
    if (is_grid(type)) {
        const GridFactor factor = grid_factor(type, scales, g + 8 * half, column);
        return grid_value(type, factor, code, codebook + 32 * half);
    }
    if (has_ggml_scales(type)) {
        return ggml_value(type, scales + ggml_scale_offset(type, 4, g + 8 * half, k), k0, column,
                          code);
    }
    const float value = code_value(type, code, half, codebook);
    if (code_bits(type) >= 16) return value;
    return value * read_scale(type, scales, scale_index(type, g, half, k / scale_group(type)));
}

}  // namespace moe::cuda
