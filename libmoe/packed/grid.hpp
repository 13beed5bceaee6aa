// Weights of the packed grids (layout.hpp): the scale and the zero point of a row and a column, and
// what a code is worth under them. Host and device.
#pragma once

#include "libmoe/base/element.hpp"
#include "libmoe/packed/layout.hpp"

namespace moe {

struct GridFactor {
    float scale;
    int32_t zero;
};

MOE_HOST_DEVICE inline float grid_scale(PackedType type, const std::byte* record, int32_t i) {
    switch (grid_scale_of(type)) {
        case GridScale::f16:
            return f16_to_float(load<uint16_t>(record + 2 * i));
        case GridScale::bf16:
            return bf16_to_float(load<uint16_t>(record + 2 * i));
        case GridScale::e8m0:
            return e8m0_to_f32(load<uint8_t>(record + i));
        case GridScale::e4m3:
            return e4m3_to_f32(load<uint8_t>(record + i));
        default:
            return load<float>(record + 4 * i);
    }
}

MOE_HOST_DEVICE inline int32_t grid_zero(PackedType type, const std::byte* record, int32_t row) {
    const GridZero rule = grid_zero_of(type);
    if (rule == GridZero::middle) return 1 << (code_bits(type) - 1);
    const std::byte* zeros = record + 16 * grid_scale_bytes(type);
    const int32_t stored = code_bits(type) <= 4
                               ? static_cast<int32_t>(zeros[row % 8]) >> row / 8 * 4 & 15
                               : static_cast<int32_t>(zeros[2 * (row % 8) + row / 8]);
    return stored + (rule == GridZero::packed_minus_one ? 1 : 0);
}

// The factor of one row (0 to 15) of a tile and one column of a block, whose unit's records begin
// at `records`.
MOE_HOST_DEVICE inline GridFactor grid_factor(PackedType type, const std::byte* records,
                                              int32_t row, int32_t column_of_block) {
    const std::byte* record = records + grid_record(type, column_of_block);
    return {grid_scale(type, record, 2 * (row % 8) + row / 8), grid_zero(type, record, row)};
}

// codebook: the values of the row's M half.
MOE_HOST_DEVICE inline float grid_value(PackedType type, const GridFactor& factor, uint32_t code,
                                        const float* codebook) {
    switch (kind_of(type)) {
        case PackedType::grid_e4m3:
            return e4m3_to_f32(static_cast<uint8_t>(code)) * factor.scale;
        case PackedType::grid_codebook:
            return codebook[code] * factor.scale;
        default:
            return static_cast<float>(static_cast<int32_t>(code) - factor.zero) * factor.scale;
    }
}

}  // namespace moe
