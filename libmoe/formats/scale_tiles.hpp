// Scales of one byte in tiles (MOE_SCALE_LAYOUT_TILED_128X4): the order in which the block-scaled
// products of cuBLAS (scale modes VEC16_UE4M3 and VEC32_UE8M0), CUTLASS and FlashInfer read them.
//   scales [rows, columns] are padded to [128 a, 4 b] and cut into a x b tiles of 128 x 4; tiles
//   lie row by row, each 512 bytes; scale (r, c) of a tile is byte r % 32 * 16 + r / 32 * 4 + c, so
//   that 16 bytes are four scales each of the rows r, r + 32, r + 64 and r + 96
#pragma once

#include <cstddef>
#include <cstdint>

#include "moe/moe.h"

namespace moe {

constexpr int64_t scale_tile_rows = 128;
constexpr int64_t scale_tile_columns = 4;
constexpr int64_t scale_tile_bytes = scale_tile_rows * scale_tile_columns;

// Scale (row, column) is at tiled_row + tiled_column; stride: bytes of a row of tiles.
constexpr int64_t tiled_row(int64_t row, int64_t stride) {
    return row / scale_tile_rows * stride + row % 32 * 16 + row % scale_tile_rows / 32 * 4;
}
constexpr int64_t tiled_column(int64_t column) {
    return column / scale_tile_columns * scale_tile_bytes + column % scale_tile_columns;
}

// Whether such products know scales of the format: a byte each, of 16 or 32 columns of one row.
bool may_be_tiled(const moe_format& format);

struct TiledBytes {
    int64_t stride;  // of a row of tiles
    uint64_t total;
};
// Of rows x columns scales, both positive; fails with MOE_ERROR_INVALID_ARGUMENT where the sizes
// overflow.
TiledBytes tiled_bytes(int64_t rows, int64_t columns);

// The same for either layout.
uint64_t scale_layout_bytes(moe_scale_layout layout, int64_t rows, int64_t columns);

struct LaidOutScales {
    const std::byte* scales;
    moe_scale_layout layout;
    int64_t rows;
    int64_t columns;
};
// Into a buffer of scale_layout_bytes that does not overlap; padding becomes zeros.
void convert_scales(const LaidOutScales& from, moe_scale_layout layout, std::byte* to);

}  // namespace moe
