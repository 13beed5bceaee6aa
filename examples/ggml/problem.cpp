#include "problem.hpp"

#include <cstring>

#include "names.hpp"

namespace moe::ggml {
namespace {

bool same_format(const moe_format& a, const moe_format& b) {
    return std::memcmp(&a, &b, sizeof a) == 0;
}

moe_format format_of_projection(const Projection& projection) {
    moe_format format = format_of(projection.weights());
    if (projection.scales) format.global_scale = MOE_GLOBAL_SCALE_MULTIPLY;
    return format;
}

void set_sizes(Problem& problem, const Projection& up) {
    problem.hidden = static_cast<int32_t>(up.weights()->ne[0]);
    problem.intermediate = static_cast<int32_t>(up.weights()->ne[1]);
    problem.n_experts = static_cast<int32_t>(up.weights()->ne[2]);
    problem.top_k = static_cast<int32_t>(slots_of(up.x(), up.ids()).top_k);
}

}  // namespace

bool Problem::operator==(const Problem& other) const {
    return hidden == other.hidden && intermediate == other.intermediate &&
           n_experts == other.n_experts && top_k == other.top_k && same_format(gate, other.gate) &&
           same_format(up, other.up) && same_format(down, other.down) &&
           activation == other.activation && has_gate_bias == other.has_gate_bias &&
           has_up_bias == other.has_up_bias && has_down_bias == other.has_down_bias &&
           is_matrix == other.is_matrix;
}

Slots slots_of(const Tensor* x, const Tensor* ids) {
    if (x->ne[1] == 1) return {ids->ne[1], ids->ne[0]};
    return {ids->ne[0] * ids->ne[1], 1};
}

Problem problem_of(const Chain& chain) {
    Problem problem;
    set_sizes(problem, chain.up);
    problem.up = format_of_projection(chain.up);
    problem.down = format_of_projection(chain.down);
    problem.activation = chain.activation;
    problem.has_up_bias = chain.up.bias != nullptr;
    problem.has_down_bias = chain.down.bias != nullptr;
    if (chain.order != MOE_GATE_UP_NONE) {
        problem.intermediate /= 2;
        problem.gate = problem.up;
        problem.has_gate_bias = problem.has_up_bias;
    } else if (chain.gate.product) {
        problem.gate = format_of_projection(chain.gate);
        problem.has_gate_bias = chain.gate.bias != nullptr;
    }
    return problem;
}

Problem problem_of_matrix(const Tensor* product) {
    Problem problem;
    const Projection up{product, nullptr, nullptr};
    set_sizes(problem, up);
    problem.up = format_of(product->src[0]);
    problem.down.struct_size = sizeof problem.down;
    problem.down.type = MOE_TYPE_BF16;
    problem.activation.kind = MOE_ACTIVATION_RELU2;  // not reached
    problem.is_matrix = true;
    return problem;
}

}  // namespace moe::ggml
