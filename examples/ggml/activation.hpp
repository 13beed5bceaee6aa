// The forms in which graphs write an activation, as fields of moe_layer_desc.
#pragma once

#include <optional>

#include "chain.hpp"
#include "interface.hpp"

namespace moe::ggml {

// activation(gate, up), where gate and up are values of the slots.
struct Formula {
    Activation activation;
    const Tensor* gate = nullptr;
    const Tensor* up = nullptr;  // the only one without a gate
    bool is_merged = false;      // up is one value with the rows of both, in this order:
    moe_gate_up_order order = MOE_GATE_UP_NONE;
};

// Nothing for a form that moe.h cannot say, such as relu with a gate.
std::optional<Formula> formula_of(const Tensor* value);

}  // namespace moe::ggml
