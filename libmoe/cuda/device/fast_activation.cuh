// The activations of activation.hpp in one short form for epilogues with bfloat16 outputs: every
// kind but the squared one is f(g) s(z(g)), s the logistic function and z = g times a polynomial of
// g^2. Approximate exp, tanh and division; the polynomial of GELU_ERF is log(Phi / (1 - Phi)) to
// 1.3e-3. Relative errors stay below half a step of bfloat16.
#pragma once

#include "libmoe/layer/activation.hpp"

namespace moe::cuda {

__device__ __forceinline__ float fast_tanh(float x) {
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

struct FastActivation {
    float c0, c1 = 0.0f, c2 = 0.0f, c3 = 0.0f;  // of z / g in powers of g^2
    float square_limit = 25.0f;                 // of g^2
    bool squared, situ;
    float beta, beta_up;
    float gate_limit, post_limit, up_limit, up_offset;

    __device__ explicit FastActivation(const Activation& activation)
        : c0(activation.alpha),
          squared(activation.kind == MOE_ACTIVATION_RELU2),
          situ(activation.kind == MOE_ACTIVATION_SITU),
          beta(activation.situ_beta),
          beta_up(activation.situ_beta_up),
          gate_limit(activation.gate_limit),
          post_limit(activation.post_limit),
          up_limit(activation.up_limit),
          up_offset(activation.up_offset) {
        if (situ) c0 = 1.0f;
        if (activation.kind == MOE_ACTIVATION_GELU_TANH) {
            c0 = 1.5957691216057308f;  // 2 sqrt(2 / pi)
            c1 = c0 * 0.044715f;
            square_limit = 1e6f;
        } else if (activation.kind == MOE_ACTIVATION_GELU_ERF) {
            c0 = 1.5926067447f;
            c1 = 0.07582834602f;
            c2 = -0.00098676524f;
            c3 = 9.03393935e-6f;
        }
    }

    __device__ __forceinline__ float gate(float value) const {
        const float g = at_most(value, gate_limit);
        const float u = fminf(g * g, square_limit);
        const float z = g * fmaf(fmaf(fmaf(c3, u, c2), u, c1), u, c0);
        const float logistic = __fdividef(1.0f, 1.0f + __expf(-z));
        const float positive = g < 0.0f ? 0.0f : g;
        const float factor = situ ? beta * fast_tanh(__fdividef(g, beta)) : g;
        return at_most(squared ? positive * positive : damped(factor, logistic), post_limit);
    }

    __device__ __forceinline__ float up(float value) const {
        const float u = clamp_to(value, up_limit);
        return situ ? beta_up * fast_tanh(__fdividef(u, beta_up)) : u + up_offset;
    }

    __device__ __forceinline__ float operator()(float g, float u) const { return gate(g) * up(u); }
};

}  // namespace moe::cuda
