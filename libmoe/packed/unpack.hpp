// The values of a packed matrix, by the formulas of layout.hpp and of docs/layout.md. For tests and
// updates. Nothing here is shared with what it checks: neither the code that packs nor the
// dequantizers of the kernels; only the rows of traits.hpp and the tables of numbers of iq2 and
// iq3.
#pragma once

#include "libmoe/packed/pack_codes.hpp"

namespace moe {

// The tables that a packed matrix has beside its tiles.
struct PackedTables {
    float global_scale = 1.0f;
    const float* codebook = nullptr;
    const uint32_t* columns = nullptr;  // [k], as `table` says
    ColumnTable table = ColumnTable::none;
};

// The values of what pack wrote: out [rows, k] in float32, with the columns of the source.
void unpack(const std::byte* from, PackedType type, TileRows rows_of_tile, int64_t rows, int64_t k,
            const PackedTables& tables, float* out);

// The values of scale records and codes, for unpack (unpack_values.cpp).
struct PackedScales {
    const PackedTraits& traits;
    GridNumbers grid;
    const std::byte* records;  // of the block, of the superblock, or of the tile of a grid
    const PackedTables& tables;
    int64_t k0;  // column of the block
};

// The value of tile row `row` and column `column` of a block whose code there is `code`, without
// the global scale.
float packed_value_of(const PackedScales& scales, int32_t row, int32_t column, uint32_t code);

}  // namespace moe
