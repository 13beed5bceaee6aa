// Pointers of parts. A part that begins inside a scale group keeps the phase; scales in tiles keep
// their position in the tile.
#include "libmoe/weights/matrix_part.hpp"

#include "libmoe/formats/block.hpp"
#include "libmoe/formats/format.hpp"

namespace moe {
namespace {

// Moves the scales of a view to row `row` of the view and group `column`: the pointer moves by
// whole tiles, and the remainder is the position in the tile.
Matrix with_tiled_scales_at(Matrix matrix, int64_t row, int64_t column) {
    TiledScales& tiled = matrix.tiled;
    tiled.row += row * tiled.row_step;
    tiled.column += column;
    matrix.scales += tiled.row / scale_tile_rows * matrix.scale_row_stride +
                     tiled.column / scale_tile_columns * scale_tile_bytes;
    tiled.row %= scale_tile_rows;
    tiled.column %= scale_tile_columns;
    return matrix;
}

}  // namespace

Matrix gate_up_half(const Matrix& fused, moe_gate_up_order order, GateUpHalf half) {
    if (fused.traits->unsliceable_bytes)
        fail(MOE_ERROR_UNSUPPORTED, "gate_up: gate and up in one matrix of the format {}",
             format_name(fused.format).text);
    const int64_t rows = fused.rows / 2;
    const bool up = half == GateUpHalf::up;
    if (order != MOE_GATE_UP_INTERLEAVED) {
        const bool second = up == (order == MOE_GATE_UP_GATE_FIRST);
        return part_of(fused, second ? rows : 0, rows, 0, fused.columns);
    }
    // Every other row; a scale that covers several rows would cover both halves.
    if (fused.format.scale_type != MOE_TYPE_NONE && fused.format.group_rows > 1)
        fail(MOE_ERROR_UNSUPPORTED, "gate_up: interleaved rows cannot share scales by {}",
             fused.format.group_rows);
    Matrix matrix = fused;
    matrix.rows = rows;
    matrix.row_stride *= 2;
    if (up) matrix.data += fused.row_stride;
    const bool one_row_of_scales = fused.format.group_rows < 0;  // it serves both halves
    if (!matrix.scales || one_row_of_scales) return matrix;
    if (matrix.tiled.row_step) {
        if (up) matrix = with_tiled_scales_at(matrix, 1, 0);
        matrix.tiled.row_step *= 2;
        return matrix;
    }
    matrix.scale_row_stride *= 2;
    if (up) matrix.scales += fused.scale_row_stride;
    return matrix;
}

Matrix part_of(const Matrix& matrix, int64_t row, int64_t rows, int64_t column, int64_t columns) {
    Matrix part = matrix;
    part.rows = rows;
    part.columns = columns;
    if (part.pre_quant_scale) part.pre_quant_scale += column;
    if (matrix.traits->unsliceable_bytes) {
        part.row_begin += row;
        part.column_begin += column;
        return part;
    }
    part.data += row * matrix.row_stride;
    part.data += matrix.column_stride
                     ? column * matrix.column_stride
                     : column / matrix.traits->block_columns * matrix.traits->block_bytes;
    if (!matrix.scales) return part;
    const int64_t scale_row = row + matrix.scale_row_phase;
    const int64_t scale_column = column + matrix.scale_column_phase;
    const moe_format& format = matrix.format;
    const int64_t group_rows = group_extent(format.group_rows);
    const int64_t group_columns = group_extent(format.group_columns);
    if (matrix.tiled.row_step) {
        part = with_tiled_scales_at(part, row, scale_column / group_columns);
    } else {
        part.scales += scale_row / group_rows * matrix.scale_row_stride;
        part.scales += scale_column / group_columns * matrix.traits->scale_bytes;
    }
    part.scale_row_phase = static_cast<int32_t>(scale_row % group_rows);
    part.scale_column_phase = static_cast<int32_t>(scale_column % group_columns);
    return part;
}

}  // namespace moe
