// Views of weight matrices: from a caller's tensor to the part that a plan needs, and compact
// copies of such parts.
#pragma once

#include "libmoe/formats/format.hpp"

namespace moe {

// Expert `index` of the stack (0 of a single matrix), whole; checks pointers, strides and byte
// counts. `what` names it in errors.
Matrix view_of(const moe_tensor& tensor, int64_t index, const char* what);

// Gate and up in one tensor?
bool is_fused(moe_role role);

// Fails on what is given though the format or the role has no use for it: the values that are meant
// would not be those that are read.
void check_nothing_unused(const moe_tensor& tensor, const char* what);

enum class GateUpHalf { gate, up };
// One half of a fused gate and up matrix.
Matrix gate_up_half(const Matrix& fused, moe_gate_up_order order, GateUpHalf half);

// Rows [row, row + rows), columns [column, column + columns); column is on the format's block grid.
Matrix part_of(const Matrix& matrix, int64_t row, int64_t rows, int64_t column, int64_t columns);

// Bytes of a dense copy of a part, codes and scales, each rounded up to copy_alignment. row and
// column are where the part begins in its matrix: a part that begins inside a scale group keeps the
// whole group.
constexpr uint64_t copy_alignment = 64;
uint64_t copy_bytes(const moe_format& format, int64_t row, int64_t rows, int64_t column,
                    int64_t columns);
// Of formats that are not sliceable (FormatTraits::unsliceable_bytes): every part is copied as the whole matrix.
uint64_t whole_copy_bytes(const moe_format& format, int64_t rows, int64_t columns);
// Copies a part densely to `to` (copy_bytes) and returns the view of the copy; a transposed part is
// turned.
Matrix copy_part(const Matrix& part, std::byte* to);

// Bytes from the first to the last of a view's codes, scales and zero points (0: none); of a format
// that is not sliceable all of them.
struct Extent {
    uint64_t data;
    uint64_t scales;
    uint64_t zero_points = 0;
};
Extent extent_of(const Matrix& matrix);

}  // namespace moe
