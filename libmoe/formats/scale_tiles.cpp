// Which formats may have tiled scales, how many bytes those are, and the conversion.
#include "libmoe/formats/scale_tiles.hpp"

#include <cstring>

#include "libmoe/base/checked.hpp"

namespace moe {

bool may_be_tiled(const moe_format& format) {
    if (format.group_rows != 1) return false;
    const bool is_nvfp4 = format.scale_type == MOE_TYPE_F8_E4M3 && format.group_columns == 16;
    const bool is_mx = format.scale_type == MOE_TYPE_F8_E8M0 && format.group_columns == 32;
    if (format.type == MOE_TYPE_E2M1) return is_nvfp4 || is_mx;
    return format.type == MOE_TYPE_F8_E4M3 && is_mx;
}

TiledBytes tiled_bytes(int64_t rows, int64_t columns) {
    const auto tile_rows = static_cast<uint64_t>((rows - 1) / scale_tile_rows + 1);
    const auto tile_columns = static_cast<uint64_t>((columns - 1) / scale_tile_columns + 1);
    const uint64_t stride = checked_multiply(tile_columns, scale_tile_bytes, "a row of tiles");
    const uint64_t total = checked_multiply(tile_rows, stride, "tiles of scales");
    // Offsets are signed.
    require(total <= INT64_MAX, "{} x {} scales in tiles are too large", rows, columns);
    return {static_cast<int64_t>(stride), total};
}

uint64_t scale_layout_bytes(moe_scale_layout layout, int64_t rows, int64_t columns) {
    if (layout == MOE_SCALE_LAYOUT_TILED_128X4) return tiled_bytes(rows, columns).total;
    const uint64_t bytes =
        checked_multiply(static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), "scales");
    require(bytes <= INT64_MAX, "{} x {} scales are too large", rows, columns);
    return bytes;
}

namespace {

// Scale (row, column) is at row(row) + column(column).
struct ScaleOffsets {
    bool is_tiled;
    int64_t stride;

    ScaleOffsets(moe_scale_layout layout, int64_t rows, int64_t columns)
        : is_tiled(layout == MOE_SCALE_LAYOUT_TILED_128X4),
          stride(is_tiled ? tiled_bytes(rows, columns).stride : columns) {}

    int64_t row(int64_t r) const { return is_tiled ? tiled_row(r, stride) : r * stride; }
    int64_t column(int64_t c) const { return is_tiled ? tiled_column(c) : c; }
};

}  // namespace

void convert_scales(const LaidOutScales& from, moe_scale_layout layout, std::byte* to) {
    const ScaleOffsets source(from.layout, from.rows, from.columns);
    const ScaleOffsets target(layout, from.rows, from.columns);
    if (target.is_tiled) std::memset(to, 0, scale_layout_bytes(layout, from.rows, from.columns));
    for (int64_t r = 0; r < from.rows; ++r) {
        const std::byte* source_row = from.scales + source.row(r);
        std::byte* target_row = to + target.row(r);
        for (int64_t c = 0; c < from.columns; ++c)
            target_row[target.column(c)] = source_row[source.column(c)];
    }
}

}  // namespace moe
