// Dense copies of parts of matrices.
#pragma once

#include "libmoe/formats/format.hpp"

namespace moe {

// Bytes of a dense copy of a part, codes and scales, each rounded up to copy_alignment. row and
// column are where the part begins in its matrix: a part that begins inside a scale group keeps the
// whole group.
constexpr uint64_t copy_alignment = 64;
uint64_t copy_bytes(const moe_format& format, int64_t row, int64_t rows, int64_t column,
                    int64_t columns);
// Bytes of a copy in a format that is not sliceable (FormatTraits::unsliceable_bytes): every part
// is copied as the whole matrix.
uint64_t whole_copy_bytes(const moe_format& format, int64_t rows, int64_t columns);
// The view of a copy at `at` of a part with the shape, the phases and the values of `like`.
Matrix view_of_copy(const Matrix& like, const std::byte* at);
// Copies a part densely to `to` (copy_bytes) and returns the view of the copy. A transposed part
// becomes row-major.
Matrix copy_part(const Matrix& part, std::byte* to);

}  // namespace moe
