// One weight matrix where it lies: a view that says how to find the code and the scale of element
// (row, column). It is what the loaders make, the format decoders read and the CPU kernels are
// given.
#pragma once

#include <cstddef>
#include <cstdint>

#include "moe/moe.h"

namespace moe {

struct FormatTraits;
struct Interleaving;

// Where a view lies in scales of MOE_SCALE_LAYOUT_TILED_128X4: Matrix::scales is the tile of its
// first scale, `row` and `column` are the place in it, and scale_row_stride is from one row of
// tiles to the next (scale_tiles.hpp).
struct TiledScales {
    int64_t row_step = 0;  // scale rows from row to row of the view; 0: scales are linear
    int64_t row = 0;
    int64_t column = 0;
};

// Logical [rows, columns] = [out, in]. row_stride is from logical row to logical row; column_stride
// is only used by transposed matrices (elements of whole bytes), whose elements of a row lie apart.
// A slice that starts inside a scale group keeps its place by the phases: the scale of (row,
// column) is scales[(row + scale_row_phase) / group_rows][(column + scale_column_phase) /
// group_columns].
struct Matrix {
    moe_format format{};
    const FormatTraits* traits = nullptr;  // of format: how to decode
    const std::byte* data = nullptr;
    const std::byte* scales = nullptr;
    const float* codebook = nullptr;  // 2^bits values for CODEBOOK formats
    int64_t rows = 0;
    int64_t columns = 0;
    int64_t row_stride = 0;        // bytes
    int64_t column_stride = 0;     // bytes; 0: the columns of a row are contiguous
    int64_t scale_row_stride = 0;  // bytes from scale row to scale row
    int32_t scale_row_phase = 0;
    int32_t scale_column_phase = 0;
    TiledScales tiled;
    // How rows are interleaved by 16 (interleaved.hpp), with scales among the codes; null: rows are
    // as the format has them.
    const Interleaving* interleaving = nullptr;
    float global_scale = 1.0f;               // multiplied or divided as format.global_scale says
    const float* pre_quant_scale = nullptr;  // one per column of the view

    // Formats that are not sliceable (FormatTraits::unsliceable_bytes): every pointer stays where
    // the whole matrix begins, row_stride and scale_row_stride are those of its buffers, and the
    // view is [row_begin, + rows) x [column_begin, + columns) of whole_rows x whole_columns.
    int64_t whole_rows = 0;
    int64_t whole_columns = 0;
    int64_t row_begin = 0;
    int64_t column_begin = 0;
    const std::byte* zero_points = nullptr;
    const int32_t* permutation = nullptr;    // group of each column of the whole
    const float* nested_scales = nullptr;    // one per 256 scales
    const float* nested_codebook = nullptr;  // 256 values
    float nested_offset = 0;
};

}  // namespace moe
