// The activation of an expert, act(gate, up), for one pair of pre-activations. Inputs: Activation,
// gate and up of float or double. Output: one value of the same type.
//   1. gate is limited from above, up is clamped
//   2. the factor of the gate is computed and limited, then multiplied by the factor of up
// Large arguments saturate, so no overflow becomes NaN unless the input is NaN.
#pragma once

#include <cmath>

#include "libmoe/base/host_device.hpp"
#include "libmoe/layer/layer.hpp"

namespace moe {

template <class Real>
MOE_HOST_DEVICE Real logistic(Real x) {
    if (x >= Real(0)) return Real(1) / (Real(1) + std::exp(-x));
    const Real e = std::exp(x);
    return e / (Real(1) + e);
}

// at_most and clamp_to keep NaN.
template <class Real>
MOE_HOST_DEVICE Real at_most(Real value, Real limit) {
    return value > limit ? limit : value;
}

template <class Real>
MOE_HOST_DEVICE Real clamp_to(Real value, Real limit) {
    return value > limit ? limit : value < -limit ? -limit : value;
}

// Returns value * factor, where a factor of zero gives zero for any value but NaN.
template <class Real>
MOE_HOST_DEVICE Real damped(Real value, Real factor) {
    return factor == Real(0) && !std::isnan(value) ? Real(0) : value * factor;
}

// g/2 (1 + tanh y) is g s(2y), which does not cancel for negative y.
template <class Real>
MOE_HOST_DEVICE Real gelu_tanh(Real g) {
    const Real root = Real(0.79788456080286535587989211986876L);  // sqrt(2/pi)
    const Real y = root * g * (Real(1) + Real(0.044715L) * g * g);
    return damped(g, logistic(Real(2) * y));
}

// 1 + erf(x) is erfc(-x), which does not cancel either.
template <class Real>
MOE_HOST_DEVICE Real gelu_erf(Real g) {
    const Real root = Real(0.70710678118654752440084436210485L);  // 1/sqrt(2)
    return damped(g, Real(0.5) * std::erfc(-g * root));
}

// Returns act(g), the factor that depends on the gate alone.
template <class Real>
MOE_HOST_DEVICE Real activate_gate(const Activation& activation, Real g) {
    switch (activation.kind) {
        case MOE_ACTIVATION_SILU:
            return damped(g, logistic(Real(activation.alpha) * g));
        case MOE_ACTIVATION_GELU_TANH:
            return gelu_tanh(g);
        case MOE_ACTIVATION_GELU_ERF:
            return gelu_erf(g);
        case MOE_ACTIVATION_RELU2: {
            const Real positive = g < Real(0) ? Real(0) : g;
            return positive * positive;
        }
        case MOE_ACTIVATION_SITU: {
            const Real beta = Real(activation.situ_beta);
            return beta * std::tanh(g / beta) * logistic(g);
        }
        default:
            return g;  // make_layer lets no other kind through
    }
}

// Returns the factor that depends on up alone.
template <class Real>
MOE_HOST_DEVICE Real activate_up(const Activation& activation, Real u) {
    const Real clamped = clamp_to(u, Real(activation.up_limit));
    if (activation.kind == MOE_ACTIVATION_SITU) {
        const Real beta = Real(activation.situ_beta_up);
        return beta * std::tanh(clamped / beta);
    }
    return clamped + Real(activation.up_offset);
}

// Without a gate matrix `gate` is ignored and up is the input of the activation.
template <class Real>
MOE_HOST_DEVICE Real activate(const Activation& activation, Real gate, Real up) {
    const Real g = at_most(activation.gated ? gate : up, Real(activation.gate_limit));
    const Real acted = at_most(activate_gate(activation, g), Real(activation.post_limit));
    return activation.gated ? acted * activate_up(activation, up) : acted;
}

}  // namespace moe
