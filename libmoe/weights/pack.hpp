// Packing on the host: a source matrix to the packed layout (packed.hpp), and back for tests and
// updates. Lossless: the packed matrix decodes to the same float32 values, but for one rounding
// where a global scale divides.
#pragma once

#include "libmoe/formats/matrix.hpp"
#include "libmoe/weights/packed.hpp"

namespace moe {

// Which rows of every tile the matrix fills: 16 at a time, or eight (gate first, up second) of a
// fused matrix, leaving the bits of the others as they are.
enum class TileRows : uint8_t { all, first_half, second_half };

// Packs all rows and columns of source into tiles at `to` (rows / 16 or rows / 8 tiles) and returns
// the global scale that multiplies them. Rows must be a multiple of 16 (8 for a half), columns
// of 16. Fails with MOE_ERROR_UNSUPPORTED naming `what` for a NaN scale, and where scale groups of
// the source do not fall on those of the packed type (an fp8 slice that begins off its grid).
float pack(const Matrix& source, PackedType type, TileRows rows, std::byte* to, const char* what);

// What codes of a type with a codebook mean: 2^code_bits values.
void packed_codebook(const Matrix& source, PackedType type, float* values);

// The table of a grid that has one (GridColumns): a word for each column of the source.
void packed_columns(const Matrix& source, PackedType type, uint32_t* columns);

// What a packed matrix has beside its tiles.
struct PackedTables {
    float global_scale = 1.0f;
    const float* codebook = nullptr;
    const uint32_t* columns = nullptr;
};

// The values of what pack wrote: out [rows, k] in float32.
void unpack(const std::byte* from, PackedType type, TileRows tile_rows, int64_t rows, int64_t k,
            const PackedTables& tables, float* out);

}  // namespace moe
