// Roles of tensors: fused ones and their halves, and how a tensor is called in errors.
#pragma once

#include <utility>

#include "moe/moe.h"

namespace moe {

// The two roles of a fused one; the role itself, and NONE, otherwise.
std::pair<moe_role, moe_role> parts_of(moe_role role);
// Returns true for the roles of up, which fused tensors hold beside those of gate.
bool is_up(moe_role role);
// Returns true for a tensor that holds every expert of its role.
bool is_expert_stack(const moe_tensor& tensor);

// "tensor down of expert 3"; without an expert where the role has none, and of a stack.
struct TensorName {
    TensorName(moe_role role, int64_t expert);
    char text[96];
};

}  // namespace moe
