// Approximate activations (activation.hpp) for epilogues with bfloat16 outputs. SiLU and both GELUs
// are g s(z(g)): s is the logistic function and z is g times a polynomial of g^2. The polynomial of
// GELU_ERF approximates log(Phi / (1 - Phi)) to 1.3e-3. Exp, tanh and division are approximate.
// Relative errors stay below half a bfloat16 step. NaN propagates, and infinities saturate.
#pragma once

#include <type_traits>

#include "libmoe/layer/activation.hpp"

namespace moe::cuda {

// Kinds of one class share their arithmetic.
enum class ActivationClass { silu, gelu, other };

template <ActivationClass kind>
using ClassOf = std::integral_constant<ActivationClass, kind>;

template <class Call>
__device__ __forceinline__ void with_activation_class(const Activation& activation, Call call) {
    if (activation.kind == MOE_ACTIVATION_SILU)
        call(ClassOf<ActivationClass::silu>{});
    else if (activation.kind == MOE_ACTIVATION_RELU2 || activation.kind == MOE_ACTIVATION_SITU)
        call(ClassOf<ActivationClass::other>{});
    else
        call(ClassOf<ActivationClass::gelu>{});
}

__device__ __forceinline__ float fast_tanh(float x) {
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ float fast_power_of_2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ float fast_reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// NaN propagates.
__device__ __forceinline__ float least(float a, float b) {
    float y;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
}

__device__ __forceinline__ float greatest(float a, float b) {
    float y;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
}

template <ActivationClass kind>
struct FastActivation {
    float c0, c1 = 0.0f, c2 = 0.0f, c3 = 0.0f;  // of -z / (g log 2) in powers of g^2
    float square_limit = 25.0f;                 // of g^2
    bool squared;
    float beta, inverse_beta, beta_up, inverse_beta_up;
    float gate_limit, post_limit, up_limit, up_offset;

    __device__ explicit FastActivation(const Activation& activation)
        : c0(kind == ActivationClass::other ? 1.0f : activation.alpha),
          squared(activation.kind == MOE_ACTIVATION_RELU2),
          beta(activation.situ_beta),
          inverse_beta(1.0f / beta),
          beta_up(activation.situ_beta_up),
          inverse_beta_up(1.0f / beta_up),
          gate_limit(activation.gate_limit),
          post_limit(activation.post_limit),
          up_limit(activation.up_limit),
          up_offset(activation.up_offset) {
        constexpr float per_octave = -1.4426950408889634f;
        if (kind != ActivationClass::gelu) {
            c0 *= per_octave;
            return;
        }
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
        c0 *= per_octave;
        c1 *= per_octave;
        c2 *= per_octave;
        c3 *= per_octave;
    }

    __device__ __forceinline__ float gate(float value) const {
        constexpr float largest = 3.4028235e38f;
        // A finite g keeps g times a logistic of 0 at 0 instead of NaN.
        const float g = greatest(least(value, gate_limit), -largest);
        if constexpr (kind == ActivationClass::silu) {
            return least(g * logistic_of(g * c0), post_limit);
        } else if constexpr (kind == ActivationClass::gelu) {
            const float u = fminf(g * g, square_limit);
            const float z = g * fmaf(fmaf(fmaf(c3, u, c2), u, c1), u, c0);
            return least(g * logistic_of(z), post_limit);
        } else {
            const float positive = greatest(g, 0.0f);
            const float situ = beta * fast_tanh(g * inverse_beta) * logistic_of(g * c0);
            return least(squared ? positive * positive : situ, post_limit);
        }
    }

    __device__ __forceinline__ float up(float value) const {
        const float u = greatest(least(value, up_limit), -up_limit);
        if (kind == ActivationClass::other && !squared)
            return beta_up * fast_tanh(u * inverse_beta_up);
        return u + up_offset;
    }

    __device__ __forceinline__ float operator()(float g, float u) const { return gate(g) * up(u); }

  private:
    // 1 / (1 + 2^z)
    static __device__ __forceinline__ float logistic_of(float z) {
        return fast_reciprocal(1.0f + fast_power_of_2(z));
    }
};

}  // namespace moe::cuda
