// Stores the codes of one block of 16 rows in the packed layout (layout.hpp), from a plain grid of
// codes. unpack.cpp reads them back by the formulas of the layout and shares nothing with this.
#pragma once

#include "libmoe/packed/layout.hpp"

namespace moe {

// Which rows of every tile a matrix fills: 16 at a time, or the eight of its half of a fused gate
// and up matrix. The bits of the other half stay as they are.
enum class TileRows : uint8_t { all, gate_half, up_half };

constexpr int32_t tile_rows = 16;
constexpr int32_t block_columns = 64;

// Code of tile row r and column k of the block.
template <class Code>
struct CodeGrid {
    alignas(64) Code at[tile_rows][block_columns];
};

// Writes the codes of a block at `to`: the bits of the given rows and no others. Of a half, the
// other rows of the grid are zeros. Code is of the type's width: uint8_t up to 8 bits.
template <class Code>
using StoreCodes = void (*)(const CodeGrid<Code>& codes, TileRows rows, std::byte* to);

// null for types without codes.
template <class Code>
StoreCodes<Code> store_codes_of(PackedType type);

}  // namespace moe
