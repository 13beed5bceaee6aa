// What the block formats share: where the scales of a row lie, and what an encoder first asks of
// its source.
#pragma once

#include <algorithm>
#include <cmath>

#include "libmoe/base/checked.hpp"
#include "libmoe/base/element.hpp"
#include "libmoe/formats/format.hpp"
#include "libmoe/formats/scale_tiles.hpp"

namespace moe {

// The row of scales that serves a row of the matrix; of linear scales.
inline const std::byte* scale_row(const Matrix& matrix, int64_t row, int64_t group_rows) {
    return matrix.scales + (row + matrix.scale_row_phase) / group_rows * matrix.scale_row_stride;
}

// The scales of a row from that of a column on, linear or in tiles.
struct RowScales {
    const std::byte* first;  // in tiles: where the row begins in the tile of the first scale
    int64_t bytes;           // of a scale; 1 in tiles
    int64_t column = 0;      // in tiles: of the first scale in its tile
    bool is_tiled = false;

    const std::byte* at(int64_t i) const {
        return first + (is_tiled ? tiled_column(column + i) : i * bytes);
    }
};

inline RowScales row_scales(const Matrix& matrix, int64_t row, int64_t column) {
    const moe_format& format = matrix.format;
    const int64_t bytes = element_bytes(format.scale_type);
    const int64_t index = (column + matrix.scale_column_phase) / group_extent(format.group_columns);
    const TiledScales& tiled = matrix.tiled;
    if (!tiled.row_step)
        return {scale_row(matrix, row, group_extent(format.group_rows)) + index * bytes, bytes};
    const int64_t scale = tiled.row + row * tiled.row_step;
    return {matrix.scales + tiled_row(scale, matrix.scale_row_stride), 1, tiled.column + index,
            true};
}

inline float largest_magnitude(const float* values, int64_t count) {
    float largest = 0;
    for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(values[i]));
    return largest;
}

// The OCP rule for a block of E2M1 codes: floor(log2 amax) - 2 + 127, at least 0.
inline uint8_t encode_e8m0_scale(const float* values, int64_t count) {
    const uint32_t bits = std::bit_cast<uint32_t>(largest_magnitude(values, count));
    const int exponent = static_cast<int>(bits >> 23);  // floor(log2) + 127, 0 for subnormals
    return static_cast<uint8_t>(std::max(exponent - 2, 0));
}

// NVFP4: what takes the largest weight to 6 * 448, 1 for a matrix of zeros; and the nearest E4M3 of
// (block amax / 6) / global within [2^-9, 448], 1 for a block of zeros.
inline float encode_nvfp4_global(const float* values, int64_t count) {
    const float global = largest_magnitude(values, count) / 2688.0f;
    return global > 0 ? global : 1.0f;
}

inline uint8_t encode_nvfp4_scale(const float* values, int64_t count, float global) {
    const float largest = largest_magnitude(values, count);
    const float scale = largest > 0 ? largest / 6.0f / global : 1.0f;
    return f32_to_e4m3(std::clamp(scale, 0x1p-9f, 448.0f));
}

// count values over their scale to E2M1 codes, even columns in the low nibbles.
template <int count>
void encode_e2m1(const float* values, float scale, std::byte* codes) {
    for (int i = 0; i < count / 2; ++i) {
        const int low = f32_to_e2m1(values[2 * i] / scale);
        const int high = f32_to_e2m1(values[2 * i + 1] / scale);
        store(codes + i, static_cast<uint8_t>(low | high << 4));
    }
}

// Infinities and NaN have no code in a block format: fails before anything is written.
inline void require_finite(const FormatTraits& traits, const float* source, int64_t rows,
                           int64_t columns) {
    for (int64_t row = 0; row < rows; ++row) {
        const float* values = source + row * columns;
        for (int64_t i = 0; i < columns; ++i) {
            require(std::isfinite(values[i]), "source[{}, {}] is {}: {} holds finite values only",
                    row, i, values[i], traits.name);
        }
    }
}

}  // namespace moe
