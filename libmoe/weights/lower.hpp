// Lowering on the host: a source matrix to the packed layout (packed/layout.hpp). It is lossless:
// the packed matrix dequantizes to the same float32 values, but for one rounding where a global
// scale divides.
#pragma once

#include "libmoe/formats/matrix.hpp"
#include "libmoe/packed/pack_codes.hpp"

namespace moe {

// The packed type that a source format is lowered to; none when it has no lowering.
PackedType packed_type_of(const moe_format& format);

// Packs all rows and columns of source into tiles at `to` (rows / 16 or rows / 8 tiles) and returns
// the global scale that multiplies them. Rows must be a multiple of 16 (8 for a half), columns
// of 16. Fails with MOE_ERROR_UNSUPPORTED naming `what` for a NaN scale, and where scale groups of
// the source do not fall on those of the packed type (an fp8 slice that begins off its grid).
float pack(const Matrix& source, PackedType type, TileRows rows, std::byte* to, const char* what);

// What codes of a type with a codebook mean: 2^code_bits values.
void packed_codebook(const Matrix& source, PackedType type, float* values);

// The table of a grid that has one (GridColumns): a word for each column of the source.
void packed_columns(const Matrix& source, PackedType type, uint32_t* columns);

}  // namespace moe
