// The view of a caller's tensor: one expert of it as a Matrix, whole.
#pragma once

#include "libmoe/formats/format.hpp"
#include "libmoe/weights/matrix_part.hpp"

namespace moe {

// Views expert `index` of the stack (0 of a single matrix); checks pointers, strides and byte
// counts. `what` names it in errors.
Matrix view_of(const moe_tensor& tensor, int64_t index, const char* what);

// Returns true for roles with gate and up in one tensor.
bool is_fused(moe_role role);

// Fails on a buffer that the format or the role does not use: the values that the caller means
// would not be those that are read.
void check_nothing_unused(const moe_tensor& tensor, const char* what);

}  // namespace moe
