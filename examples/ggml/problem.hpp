// A chain, or a matrix alone, as a problem for a plan of moe.h.
#pragma once

#include "chain.hpp"
#include "interface.hpp"
#include "moe/moe.h"

namespace moe::ggml {

// A plan is made for a problem. Layers that agree share one.
struct Problem {
    int32_t hidden = 0, intermediate = 0, n_experts = 0, top_k = 0;
    moe_format gate{}, up{}, down{};
    Activation activation;
    bool has_gate_bias = false, has_up_bias = false, has_down_bias = false;
    bool is_matrix = false;  // up alone: the call stops before the activation

    bool operator==(const Problem& other) const;
};

Problem problem_of(const Chain& chain);
// MUL_MAT_ID alone: up of a layer without a gate.
Problem problem_of_matrix(const Tensor* product);

// Tensors of slots have so many tokens, and slots of each. Where every slot has a row of x of its
// own, a slot counts as a token.
struct Slots {
    int64_t n_tokens;
    int64_t top_k;
};

Slots slots_of(const Tensor* x, const Tensor* ids);

}  // namespace moe::ggml
