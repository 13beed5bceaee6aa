// Extents by the strides and phases of a view.
#include "libmoe/weights/matrix_extent.hpp"

#include "libmoe/formats/block.hpp"

namespace moe {

ScaleShape scale_shape(const FormatTraits& traits, const moe_format& format, int64_t row_phase,
                       int64_t rows, int64_t column_phase, int64_t columns) {
    if (format.scale_type == MOE_TYPE_NONE) return {0, 0};
    const int64_t groups = divide_up(column_phase + columns, group_extent(format.group_columns));
    return {divide_up(row_phase + rows, group_extent(format.group_rows)),
            static_cast<uint64_t>(groups) * traits.scale_bytes};
}

Extent extent_of(const Matrix& matrix) {
    if (matrix.traits->unsliceable_bytes) {
        const MatrixBytes bytes = matrix.traits->unsliceable_bytes(matrix.format, matrix.whole_rows,
                                                                   matrix.whole_columns);
        return {bytes.data, bytes.scales, bytes.zero_points};
    }
    const int64_t size = element_bytes(matrix.format.type);
    const int64_t row = matrix.column_stride ? (matrix.columns - 1) * matrix.column_stride + size
                                             : matrix.columns / matrix.traits->block_columns *
                                                   int64_t{matrix.traits->block_bytes};
    Extent extent{static_cast<uint64_t>((matrix.rows - 1) * matrix.row_stride + row), 0};
    if (!matrix.scales) return extent;
    const ScaleShape shape = scale_shape(*matrix.traits, matrix.format, matrix.scale_row_phase,
                                         matrix.rows, matrix.scale_column_phase, matrix.columns);
    const TiledScales& tiled = matrix.tiled;
    if (tiled.row_step) {
        const int64_t last_row = tiled.row + (matrix.rows - 1) * tiled.row_step;
        const int64_t last_column = tiled.column + static_cast<int64_t>(shape.row_bytes) - 1;
        extent.scales =
            static_cast<uint64_t>(last_row / scale_tile_rows * matrix.scale_row_stride +
                                  (last_column / scale_tile_columns + 1) * scale_tile_bytes);
        return extent;
    }
    extent.scales =
        static_cast<uint64_t>((shape.rows - 1) * matrix.scale_row_stride) + shape.row_bytes;
    return extent;
}

}  // namespace moe
