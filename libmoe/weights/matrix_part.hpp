// Parts of a view: the half of a fused gate and up matrix, and the rows and columns of a slice.
#pragma once

#include "libmoe/formats/matrix.hpp"

namespace moe {

enum class GateUpHalf { gate, up };
// One half of a fused gate and up matrix.
Matrix gate_up_half(const Matrix& fused, moe_gate_up_order order, GateUpHalf half);

// Rows [row, row + rows), columns [column, column + columns); column is on the format's block grid.
Matrix part_of(const Matrix& matrix, int64_t row, int64_t rows, int64_t column, int64_t columns);

}  // namespace moe
