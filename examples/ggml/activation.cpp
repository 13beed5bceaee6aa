#include "activation.hpp"

#include <cmath>

#include "names.hpp"
#include "values.hpp"

namespace moe::ggml {
namespace {

// x s(1.702 x): the quick form of gelu is silu with a factor.
constexpr float quick_gelu_alpha = 1.702f;

std::optional<Activation> activation_of_glu(const Tensor* glu) {
    Activation a;
    a.is_gated = true;
    a.kind = MOE_ACTIVATION_SILU;
    switch (glu_of(glu)) {
        case Glu::swiglu:
            return a;
        case Glu::swiglu_oai:
            a.alpha = float_param(glu, 2);
            a.up_offset = 1;
            a.gate_limit = a.up_limit = float_param(glu, 3);
            return a;
        case Glu::swiglu_clamp:
            a.gate_limit = a.up_limit = float_param(glu, 3);
            return a;
        case Glu::geglu_quick:
            a.alpha = quick_gelu_alpha;
            return a;
        case Glu::geglu:
            a.kind = MOE_ACTIVATION_GELU_TANH;
            return a;
        case Glu::geglu_erf:
            a.kind = MOE_ACTIVATION_GELU_ERF;
            return a;
        case Glu::reglu:
        case Glu::other:
            return {};
    }
    return {};
}

std::optional<Formula> glu_formula(const Tensor* glu) {
    const std::optional<Activation> activation = activation_of_glu(glu);
    if (!activation) return {};
    const bool is_swapped = glu->op_params[1] != 0;
    if (glu->src[1]) {
        if (is_swapped) return {};
        return Formula{*activation, glu->src[0], glu->src[1]};
    }
    Formula formula{*activation, nullptr, glu->src[0], true};
    formula.order = is_swapped ? MOE_GATE_UP_UP_FIRST : MOE_GATE_UP_GATE_FIRST;
    return formula;
}

std::optional<Activation> activation_of_unary(const Tensor* unary) {
    Activation a;
    switch (unary_of(unary)) {
        case Unary::silu:
            a.kind = MOE_ACTIVATION_SILU;
            return a;
        case Unary::gelu:
            a.kind = MOE_ACTIVATION_GELU_TANH;
            return a;
        case Unary::gelu_erf:
            a.kind = MOE_ACTIVATION_GELU_ERF;
            return a;
        case Unary::gelu_quick:
            a.kind = MOE_ACTIVATION_SILU;
            a.alpha = quick_gelu_alpha;
            return a;
        default:
            return {};
    }
}

// The value under clamp(value, -limit, limit), and the limit; without a clamp the value itself and
// 0.
const Tensor* under_clamp(const Tensor* value, float& limit) {
    limit = 0;
    if (op_of(value) != Op::clamp || float_param(value, 0) != -float_param(value, 1)) return value;
    limit = float_param(value, 1);
    return value->src[0];
}

// The value under min(value, limit).
const Tensor* under_minimum(const Tensor* value, float& limit) {
    limit = 0;
    if (op_of(value) != Op::clamp || !std::isinf(float_param(value, 0))) return value;
    limit = float_param(value, 1);
    return value->src[0];
}

// act(gate) x up as separate nodes, with the limits of Step's models.
std::optional<Formula> product_formula(const Tensor* product) {
    float post_limit = 0, up_limit = 0;
    const Tensor* activated = under_minimum(product->src[0], post_limit);
    if (op_of(activated) != Op::unary) return {};
    std::optional<Activation> activation = activation_of_unary(activated);
    if (!activation) return {};
    activation->is_gated = true;
    activation->post_limit = post_limit;
    const Tensor* up = under_clamp(product->src[1], up_limit);
    activation->up_limit = up_limit;
    return Formula{*activation, activated->src[0], up};
}

// beta tanh(value / beta): the value, and beta.
const Tensor* under_soft_limit(const Tensor* value, float& beta) {
    if (op_of(value) != Op::scale) return nullptr;
    beta = float_param(value, 0);
    const Tensor* tanh = value->src[0];
    if (op_of(tanh) != Op::unary || unary_of(tanh) != Unary::tanh) return nullptr;
    const Tensor* divided = tanh->src[0];
    const bool is_divided = op_of(divided) == Op::scale && float_param(divided, 1) == 0 &&
                            std::fabs(float_param(divided, 0) * beta - 1) < 1e-6f;
    return is_divided && float_param(value, 1) == 0 && beta > 0 ? divided->src[0] : nullptr;
}

// (beta tanh(gate / beta) x s(gate)) x (beta_up tanh(up / beta_up)).
std::optional<Formula> situ_formula(const Tensor* product) {
    const Tensor* left = product->src[0];
    if (op_of(left) != Op::mul) return {};
    Activation a;
    a.kind = MOE_ACTIVATION_SITU;
    a.is_gated = true;
    const Tensor* gate = under_soft_limit(left->src[0], a.situ_beta);
    const Tensor* up = under_soft_limit(product->src[1], a.situ_beta_up);
    const Tensor* sigmoid = left->src[1];
    if (!gate || !up || op_of(sigmoid) != Op::unary || unary_of(sigmoid) != Unary::sigmoid ||
        sigmoid->src[0] != gate)
        return {};
    return Formula{a, gate, up};
}

std::optional<Formula> plain_formula(const Tensor* value) {
    const std::optional<Activation> activation = activation_of_unary(value);
    if (!activation) return {};
    return Formula{*activation, nullptr, value->src[0]};
}

std::optional<Formula> relu2_formula(const Tensor* square) {
    const Tensor* relu = square->src[0];
    if (op_of(relu) != Op::unary || unary_of(relu) != Unary::relu) return {};
    Activation a;
    a.kind = MOE_ACTIVATION_RELU2;
    return Formula{a, nullptr, relu->src[0]};
}

}  // namespace

std::optional<Formula> formula_of(const Tensor* value) {
    switch (op_of(value)) {
        case Op::glu:
            return glu_formula(value);
        case Op::unary:
            return plain_formula(value);
        case Op::sqr:
            return relu2_formula(value);
        case Op::mul: {
            const std::optional<Formula> situ = situ_formula(value);
            return situ ? situ : product_formula(value);
        }
        default:
            return {};
    }
}

}  // namespace moe::ggml
