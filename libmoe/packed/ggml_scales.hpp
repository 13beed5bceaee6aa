// Scale records of ggml's types as the packed layout keeps them: what a block of ggml has beside
// its codes, and how a weight comes from it. Bytes of a record, from the file of each format in
// libmoe/formats:
//   superblock scales, of a row and 256 columns
//     q4_k, q5_k     f16 d, f16 dmin, 12 bytes of 6-bit scales and minima of 32 columns
//     q2_k           16 bytes of scale and minimum of 16 columns, f16 d, f16 dmin
//     q3_k           12 bytes of 6-bit scales of 16 columns, f16 d
//     q6_k           16 signed bytes, scales of 16 columns, f16 d
//     iq4_xs         f16 d, 6 bytes of 6-bit scales of 32 columns
//     iq2, iq3       the block
//   block scales, of a row and 32 columns
//     q4_0 iq4_nl q5_0   f16 d
//     q4_1 q5_1          f16 d, f16 m
//   weight = scale * level - minimum, the level a function of the code
// Host and device.
#pragma once

#include "libmoe/base/iq_columns.hpp"
#include "libmoe/packed/layout.hpp"

namespace moe {

// The scale and the minimum of 16 columns. Both are exact.
struct Affine {
    float scale;
    float minimum;
};

MOE_HOST_DEVICE inline float scale_f16(const std::byte* at) {
    return f16_to_float(load<uint16_t>(at));
}

MOE_HOST_DEVICE inline int32_t scale_byte(const std::byte* at) {
    return static_cast<int32_t>(*at);
}

// j: group of 32 columns, 0 to 7.
MOE_HOST_DEVICE inline Affine q4_k_affine(const std::byte* record, int32_t j) {
    const std::byte* sc = record + 4 + j % 4;
    const int32_t late = scale_byte(sc + 8);
    const int32_t scale = j < 4 ? scale_byte(sc) & 63 : (late & 15) | scale_byte(sc) >> 6 << 4;
    const int32_t minimum =
        j < 4 ? scale_byte(sc + 4) & 63 : late >> 4 | scale_byte(sc + 4) >> 6 << 4;
    return {scale_f16(record) * static_cast<float>(scale),
            scale_f16(record + 2) * static_cast<float>(minimum)};
}

// t: group of 16 columns, 0 to 15.
MOE_HOST_DEVICE inline Affine q2_k_affine(const std::byte* record, int32_t t) {
    const int32_t sc = scale_byte(record + t);
    return {scale_f16(record + 16) * static_cast<float>(sc & 15),
            scale_f16(record + 18) * static_cast<float>(sc >> 4)};
}

MOE_HOST_DEVICE inline Affine q3_k_affine(const std::byte* record, int32_t t) {
    const int32_t low = scale_byte(record + t % 8) >> t / 8 * 4 & 15;
    const int32_t high = scale_byte(record + 8 + t % 4) >> t / 4 * 2 & 3;
    return {scale_f16(record + 12) * static_cast<float>(low + 16 * high - 32), 0.0f};
}

MOE_HOST_DEVICE inline Affine q6_k_affine(const std::byte* record, int32_t t) {
    const auto scale = static_cast<int8_t>(scale_byte(record + t));
    return {scale_f16(record + 16) * static_cast<float>(scale), 0.0f};
}

// b: group of 32 columns.
MOE_HOST_DEVICE inline Affine iq4_xs_affine(const std::byte* record, int32_t b) {
    const int32_t low = scale_byte(record + 4 + b / 2) >> b % 2 * 4 & 15;
    const int32_t high = scale_byte(record + 2 + b / 4) >> b % 4 * 2 & 3;
    return {scale_f16(record) * static_cast<float>(low + 16 * high - 32), 0.0f};
}

// Group t of 16 columns of the 256 or 32 that a record serves. Not for iq2 and iq3.
MOE_HOST_DEVICE inline Affine affine_of(PackedType type, const std::byte* record, int32_t t) {
    switch (type) {
        case PackedType::q4_k:
        case PackedType::q5_k:
            return q4_k_affine(record, t / 2);
        case PackedType::q2_k:
            return q2_k_affine(record, t);
        case PackedType::q3_k:
            return q3_k_affine(record, t);
        case PackedType::q6_k:
            return q6_k_affine(record, t);
        case PackedType::iq4_xs:
            return iq4_xs_affine(record, t / 2);
        case PackedType::q4_1:
        case PackedType::q5_1:
            return {scale_f16(record), -scale_f16(record + 2)};
        default:
            return {scale_f16(record), 0.0f};
    }
}

// Values of iq4_nl and iq4_xs plus 128, four to a word.
MOE_HOST_DEVICE constexpr int32_t iq4_level(uint32_t code) {
    const uint32_t word = code < 4    ? 0x3F2D1801u
                          : code < 8  ? 0x766A5D4Fu
                          : code < 12 ? 0xA6998D81u
                                      : 0xF1D9C5B5u;
    return static_cast<int32_t>(word >> 8 * (code % 4) & 255u) - 128;
}

MOE_HOST_DEVICE constexpr int32_t level_of(PackedType type, uint32_t code) {
    switch (type) {
        case PackedType::iq4_xs:
        case PackedType::iq4_nl:
            return iq4_level(code);
        case PackedType::q3_k:
            return static_cast<int32_t>(code) - 4;
        case PackedType::q4_0:
            return static_cast<int32_t>(code) - 8;
        case PackedType::q5_0:
            return static_cast<int32_t>(code) - 16;
        case PackedType::q6_k:
            return static_cast<int32_t>(code) - 32;
        default:
            return static_cast<int32_t>(code);
    }
}

MOE_HOST_DEVICE inline float affine_value(PackedType type, const Affine& affine, uint32_t code) {
    return affine.scale * static_cast<float>(level_of(type, code)) - affine.minimum;
}

// Calls use(grid) with the grid of an iq2 or iq3 type.
template <class Use>
MOE_HOST_DEVICE inline auto with_iq_grid(PackedType type, const Use& use) {
    switch (type) {
        case PackedType::iq2_xxs:
            return use(Iq2XxsGrid{});
        case PackedType::iq2_xs:
            return use(Iq2XsGrid{});
        case PackedType::iq3_xxs:
            return use(Iq3XxsGrid{});
        default:
            return use(Iq3SGrid{});
    }
}

// Column k0 + column of a row, from its record: k0 as in block_offset, column in its block.
MOE_HOST_DEVICE inline float ggml_value(PackedType type, const std::byte* record, int64_t k0,
                                        int32_t column, uint32_t code) {
    const auto k = static_cast<int32_t>(k0 % 256) + column;
    if (!is_iq_grid(type)) return affine_value(type, affine_of(type, record, k / 16), code);
    return with_iq_grid(type, [&](auto grid) {
        using Grid = decltype(grid);
        return iq_value<Grid>(Grid::columns(record, k / 16), k % 16);
    });
}

// Where the record of a tile row and a column is in the scales of a block of n steps.
MOE_HOST_DEVICE constexpr int32_t ggml_scale_offset(PackedType type, int32_t n, int32_t tile_row,
                                                    int32_t column) {
    if (has_superblock(type)) return ggml_scale_bytes(type) * tile_row;
    const int32_t groups = n / 2;
    return ggml_scale_bytes(type) * ((tile_row % 8 * groups + column / 32) * 2 + tile_row / 8);
}

}  // namespace moe
