// Lowering on the host: a source matrix to the packed layout (packed/layout.hpp). It is lossless:
// the packed matrix dequantizes to the same float32 values, but for one rounding where a global
// scale divides. With a table of columns these are the values before it: columns of act-order are
// sorted by group, and the factors of pre_quant_scale are left to the activations.
#pragma once

#include "libmoe/formats/matrix.hpp"
#include "libmoe/packed/pack_codes.hpp"

namespace moe {

// The packed type that a source format is lowered to; none when it has no lowering.
PackedType packed_type_of(const moe_format& format);

// The table that a matrix of a format has beside its tiles.
ColumnTable column_table_of(const moe_format& format);

// Fills that table: a word for each column. Of act-order it is the source's columns sorted by
// group, those of a group in their order. Fails with MOE_ERROR_UNSUPPORTED naming `what` where a
// group has more or fewer columns than the packed layout gives it.
void packed_columns(const Matrix& source, uint32_t* columns, const char* what);

// Packs all rows and columns of source into tiles at `to` (rows / 16 or rows / 8 tiles) and returns
// the global scale that multiplies them. Rows must be a multiple of 16 (8 for a half), columns
// of 16. Fails with MOE_ERROR_UNSUPPORTED naming `what` for a NaN scale, and where scale groups of
// the source do not fall on those of the packed type (an fp8 slice that begins off its grid).
// order: what packed_columns makes of a matrix with act-order; null: of others. keeps_biases: those
// beside codes of one to three bits are not rounded (WeightsLayout). row_order: the source's row of
// each packed one, of types whose scales serve one row; null: as they are.
float pack(const Matrix& source, PackedType type, TileRows rows, std::byte* to, const char* what,
           const uint32_t* order = nullptr, bool keeps_biases = false,
           const uint32_t* row_order = nullptr);

// What codes of a type with a codebook mean: 2^code_bits values.
void packed_codebook(const Matrix& source, PackedType type, float* values);

}  // namespace moe
