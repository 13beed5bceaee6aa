// Reads the codes of a source matrix as plain numbers, a few rows and up to 64 columns at a time.
// The packing of each format is undone, and nothing is dequantized.
#pragma once

#include "libmoe/formats/matrix.hpp"
#include "libmoe/packed/pack_codes.hpp"

namespace moe {

struct SourceBlock {
    int64_t row;
    int32_t rows;  // at most 16
    int64_t column;
    int32_t columns;                  // 16, 32 or 64
    const uint32_t* order = nullptr;  // of formats with act_order: column of the source by column
};

// Writes code (block.row + r, block.column + c) to to[r][c].
template <class Code>
using ReadCodes = void (*)(const Matrix& source, const SourceBlock& block,
                           Code (*to)[block_columns]);

// Returns the function for a format with a packed type; null where that type has no codes.
template <class Code>
ReadCodes<Code> read_codes_of(const moe_format& format);

// The block of a GGUF row that holds a column.
inline const std::byte* gguf_block(const Matrix& source, int64_t row, int64_t column,
                                   int32_t columns, int32_t bytes) {
    return source.data + row * source.row_stride + column / columns * bytes;
}

}  // namespace moe
