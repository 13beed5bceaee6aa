// Elements of one byte under a grid of scales: the part that FP8 and int8 share, and their scales.
// Scale (r, c) covers group_rows rows and group_columns columns, -1 being all of them; the groups
// at the edges are smaller.
#pragma once

#include "libmoe/formats/block.hpp"
#include "libmoe/formats/entries.hpp"
#include "libmoe/formats/int_codes.hpp"

namespace moe {

template <moe_type scale_type>
constexpr int32_t grid_scale_bytes =
    scale_type == MOE_TYPE_F32                                  ? 4
    : scale_type == MOE_TYPE_F16 || scale_type == MOE_TYPE_BF16 ? 2
                                                                : 1;

template <moe_type scale_type>
float grid_scale(const std::byte* scales, int64_t index) {
    if constexpr (scale_type == MOE_TYPE_F8_E8M0)
        return e8m0_to_f32(load<uint8_t>(scales + index));
    else if constexpr (scale_type == MOE_TYPE_F8_E4M3)
        return e4m3_to_f32(load<uint8_t>(scales + index));
    else
        return scale_value(scale_type, scales, index);
}

// The bytes from column to column.
inline int64_t bytes_of_column(const Matrix& matrix) {
    return matrix.column_stride ? matrix.column_stride : 1;
}

// Runs between the edges of groups; a slice may start inside a group.
template <class Value, moe_type scale_type>
void decode_grid(const Matrix& matrix, int64_t row, int64_t column, int64_t count, float* out) {
    const int64_t group = group_extent(matrix.format.group_columns);
    const int64_t step = bytes_of_column(matrix);
    const std::byte* codes = matrix.data + row * matrix.row_stride + column * step;
    const RowScales scales = row_scales(matrix, row, column);
    const int64_t phase = (column + matrix.scale_column_phase) % group;
    for (int64_t i = 0; i < count;) {
        const int64_t index = (phase + i) / group;
        const int64_t end = std::min((index + 1) * group - phase, count);
        const float scale = grid_scale<scale_type>(scales.at(index), 0);
        for (; i < end; ++i) out[i] = Value::of(codes + i * step) * scale;
    }
}

template <uint8_t flip>
void read_grid_codes(const Matrix& matrix, int64_t row, int64_t column, int64_t count,
                     uint8_t* out) {
    const int64_t step = bytes_of_column(matrix);
    const std::byte* from = matrix.data + row * matrix.row_stride + column * step;
    for (int64_t i = 0; i < count; ++i) out[i] = load<uint8_t>(from + i * step) ^ flip;
}

inline void read_grid_scale(const Matrix& matrix, int64_t row, int64_t column, std::byte* out) {
    const int32_t bytes = element_bytes(matrix.format.scale_type);
    std::memcpy(out, row_scales(matrix, row, column).at(0), static_cast<size_t>(bytes));
}

// flip: 0x80 takes two's complement to codes that count from the middle.
template <uint8_t flip>
constexpr GridParts grid_parts{read_grid_codes<flip>, read_grid_scale, nullptr};

}  // namespace moe
