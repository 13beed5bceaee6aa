// The activations of an expert that have a short form on the device, for epilogues of kernels with
// bfloat16 outputs: approximate exp and division (relative error below 1e-6). The others are
// computed by activation.hpp.
#pragma once

#include "libmoe/layer/activation.hpp"

namespace moe::cuda {

// act(g) = g s(g (linear + cubic g^2)), s the logistic function, or the square of the positive
// part.
struct FastActivation {
    float linear;
    float cubic;
    bool squared;
    float gate_limit, post_limit, up_limit, up_offset;

    static __device__ bool serves(moe_activation kind) {
        return kind == MOE_ACTIVATION_SILU || kind == MOE_ACTIVATION_GELU_TANH ||
               kind == MOE_ACTIVATION_RELU2;
    }

    __device__ explicit FastActivation(const Activation& activation)
        : linear(activation.alpha),
          cubic(0.0f),
          squared(activation.kind == MOE_ACTIVATION_RELU2),
          gate_limit(activation.gate_limit),
          post_limit(activation.post_limit),
          up_limit(activation.up_limit),
          up_offset(activation.up_offset) {
        if (activation.kind == MOE_ACTIVATION_GELU_TANH) {
            linear = 1.5957691216057308f;  // 2 sqrt(2 / pi)
            cubic = linear * 0.044715f;
        }
    }

    __device__ __forceinline__ float gate(float value) const {
        const float g = at_most(value, gate_limit);
        const float z = g * fmaf(cubic * g, g, linear);
        const float logistic = __fdividef(1.0f, 1.0f + __expf(-z));
        const float positive = g < 0.0f ? 0.0f : g;
        return at_most(squared ? positive * positive : damped(g, logistic), post_limit);
    }

    __device__ __forceinline__ float operator()(float g, float u) const {
        return gate(g) * (clamp_to(u, up_limit) + up_offset);
    }
};

}  // namespace moe::cuda
