// The pairs of gate and up, and the text of a tensor's name.
#include "libmoe/weights/tensor_roles.hpp"

#include "libmoe/base/fmt.hpp"
#include "libmoe/layer/layer.hpp"

namespace moe {

std::pair<moe_role, moe_role> parts_of(moe_role role) {
    switch (role) {
        case MOE_ROLE_GATE_UP:
            return {MOE_ROLE_GATE, MOE_ROLE_UP};
        case MOE_ROLE_GATE_UP_BIAS:
            return {MOE_ROLE_GATE_BIAS, MOE_ROLE_UP_BIAS};
        case MOE_ROLE_SHARED_GATE_UP:
            return {MOE_ROLE_SHARED_GATE, MOE_ROLE_SHARED_UP};
        default:
            return {role, MOE_ROLE_NONE};
    }
}

bool is_up(moe_role role) {
    return role == MOE_ROLE_UP || role == MOE_ROLE_UP_BIAS || role == MOE_ROLE_SHARED_UP;
}

bool is_expert_stack(const moe_tensor& tensor) {
    return is_expert_role(tensor.role) && tensor.expert == MOE_ALL_EXPERTS;
}

TensorName::TensorName(moe_role role, int64_t expert) {
    const char* name = role_name(role);
    char* end =
        is_expert_role(role) && expert != MOE_ALL_EXPERTS
            ? fmt::format_to_n(text, sizeof text - 1, "tensor {} of expert {}", name, expert).out
            : fmt::format_to_n(text, sizeof text - 1, "tensor {}", name).out;
    *end = '\0';
}

}  // namespace moe
