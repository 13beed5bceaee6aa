// The bytes that a view covers.
#pragma once

#include "libmoe/formats/format.hpp"

namespace moe {

// Bytes from the first to the last of a view's codes, scales and zero points (0: none). A format
// that is not sliceable has the bytes of the whole matrix.
struct Extent {
    uint64_t data;
    uint64_t scales;
    uint64_t zero_points = 0;
};
Extent extent_of(const Matrix& matrix);

// Scale rows of a part, and the bytes of each. The phases are those of the part's first row and
// column in their scale group.
struct ScaleShape {
    int64_t rows;
    uint64_t row_bytes;
};
ScaleShape scale_shape(const FormatTraits& traits, const moe_format& format, int64_t row_phase,
                       int64_t rows, int64_t column_phase, int64_t columns);

}  // namespace moe
