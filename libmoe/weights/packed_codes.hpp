// Codes of one block of 16 rows between a plain grid and their places in the packed layout
// (packed.hpp). Placing goes word by word; taking goes code by code, straight from the formulas of
// the header, so that one checks the other.
#pragma once

#include "libmoe/weights/pack.hpp"

namespace moe {

constexpr int32_t tile_rows = 16;
constexpr int32_t block_columns = 64;

// Code of tile row r and column k of the block; a block of n steps uses 16 n columns.
template <class Code>
struct CodeGrid {
    alignas(64) Code at[tile_rows][block_columns];
};

// Writes the codes of a block at `to`: the bits of the given rows and no others. Of a half, the
// other rows of the grid are zeros. Code is of the type's width: uint8_t up to 8 bits.
template <class Code>
using StoreCodes = void (*)(const CodeGrid<Code>& codes, TileRows rows, std::byte* to);

// null for a block that the type cannot have, and for types without codes.
template <class Code>
StoreCodes<Code> store_codes_of(PackedType type, int32_t n);

// One code of a block of n steps at `codes`; 0 of a type without.
uint32_t take_code(PackedType type, int32_t n, const std::byte* codes, int32_t row, int32_t column);

}  // namespace moe
