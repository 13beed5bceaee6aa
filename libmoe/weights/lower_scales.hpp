// Scales of a source matrix to those of its packed type: which form they take, their offsets in a
// block, and what the codes must change for it (a negative scale flips their signs, a zero scale
// takes their magnitude).
#pragma once

#include "libmoe/formats/matrix.hpp"
#include "libmoe/packed/layout.hpp"

namespace moe {

// What the scales of a block are made from.
struct ScaleSource {
    const Matrix& matrix;
    PackedType type;
    const char* what;
    int32_t largest_exponent = 0;  // mxfp4: of the matrix
    bool keeps_biases = false;     // of codes of one to three bits: they stay as they are
};

// Fails where the groups of the source do not fall on those of the packed type.
void check_scale_grid(const Matrix& source, PackedType type, const char* what);

// The largest E8M0 scale of an mxfp4 matrix; fails for a NaN.
int32_t largest_exponent(const Matrix& source, const char* what);

// One row of a block: the scales of source row `row` and columns [column, column + n_columns), up
// to 64, for tile row `tile_row` into the scales of the block, and the row's codes as they need it.
void lower_scales(const ScaleSource& source, int64_t row, int64_t column, int32_t n_columns,
                  int32_t tile_row, uint8_t* codes, std::byte* scales);

}  // namespace moe
