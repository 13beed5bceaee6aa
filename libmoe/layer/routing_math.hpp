// Routing functions in float32, for the CPU and for CUDA: exp, log1p, tanh and the scores made of
// them. Inputs and outputs are float32 scalars.
// They use only fmaf and correctly rounded single operations, and the compiler may fuse none of
// these with another. Both devices therefore give equal bits, and with them equal expert ids.
// Errors stay within 2 ulp (2.5 for sigmoid). Large arguments saturate, and the result is NaN only
// for NaN. The host side is compiled without contraction of floating-point expressions.
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "libmoe/base/host_device.hpp"

namespace moe {
namespace routing_math {

// Each operation is rounded on its own.
MOE_HOST_DEVICE inline float add(float a, float b) {
#if defined(__CUDA_ARCH__)
    return __fadd_rn(a, b);
#else
    return a + b;
#endif
}

MOE_HOST_DEVICE inline float subtract(float a, float b) {
    return add(a, -b);
}

MOE_HOST_DEVICE inline float multiply(float a, float b) {
#if defined(__CUDA_ARCH__)
    return __fmul_rn(a, b);
#else
    return a * b;
#endif
}

MOE_HOST_DEVICE inline float divide(float a, float b) {
#if defined(__CUDA_ARCH__)
    return __fdiv_rn(a, b);
#else
    return a / b;
#endif
}

MOE_HOST_DEVICE inline float square_root(float a) {
#if defined(__CUDA_ARCH__)
    return __fsqrt_rn(a);
#else
    return sqrtf(a);
#endif
}

MOE_HOST_DEVICE inline float from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

MOE_HOST_DEVICE inline uint32_t to_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

// Returns 2^n for n in [-126, 127].
MOE_HOST_DEVICE inline float power_of_two(int32_t n) {
    return from_bits(static_cast<uint32_t>(n + 127) << 23);
}

// Returns value * 2^n for n in [-252, 254], in two steps: a subnormal result is rounded once, by
// the second step.
MOE_HOST_DEVICE inline float scale_by_power(float value, int32_t n) {
    const int32_t first = n / 2;
    return multiply(multiply(value, power_of_two(first)), power_of_two(n - first));
}

// It has no branches, because the lanes of a warp seldom agree on one.
MOE_HOST_DEVICE inline float exponential(float any) {
    const float x = any < -104.0f || any != any ? -104.0f : any > 89.0f ? 89.0f : any;
    // x = n ln 2 + r. Adding 1.5 * 2^23 leaves the nearest integer in the low bits.
    const float shift = 12582912.0f;
    const float n = subtract(fmaf(x, 0x1.715476p+0f, shift), shift);
    float r = fmaf(n, -0x1.62e43p-1f, x);
    r = fmaf(n, 0x1.05c61p-29f, r);
    // (e^r - 1 - r) / r^2 on |r| <= ln(2) / 2
    float q = 0x1.6d1504p-10f;
    q = fmaf(q, r, 0x1.120c12p-7f);
    q = fmaf(q, r, 0x1.555516p-5f);
    q = fmaf(q, r, 0x1.5554dcp-3f);
    q = fmaf(q, r, 0.5f);
    const float tail = fmaf(multiply(q, r), r, r);
    const float e = scale_by_power(add(1.0f, tail), static_cast<int32_t>(n));
    if (any != any) return any;
    if (any > 89.0f) return from_bits(0x7F800000u);
    return any < -104.0f ? 0.0f : e;
}

// Returns log(1 + f) for f in [-1/4, 1/2].
MOE_HOST_DEVICE inline float log1p_reduced(float f) {
    float q = -0x1.26d136p-5f;
    q = fmaf(q, f, 0x1.59da76p-4f);
    q = fmaf(q, f, -0x1.b07468p-4f);
    q = fmaf(q, f, 0x1.ce9f9ep-4f);
    q = fmaf(q, f, -0x1.ff6c0ep-4f);
    q = fmaf(q, f, 0x1.2461f8p-3f);
    q = fmaf(q, f, -0x1.5554fap-3f);
    q = fmaf(q, f, 0x1.999a58p-3f);
    q = fmaf(q, f, -0x1.000002p-2f);
    q = fmaf(q, f, 0x1.555556p-2f);
    const float curve = fmaf(q, f, -0.5f);
    return fmaf(multiply(f, f), curve, f);
}

// x is at least -1/4.
MOE_HOST_DEVICE inline float log_one_plus(float x) {
    if (x != x || x == from_bits(0x7F800000u)) return x;
    // 1 + x = 2^e (1 + f) with 1 + f in [3/4, 3/2); f is taken from x itself, not from the rounded
    // sum.
    const uint32_t sum = to_bits(add(1.0f, x));
    const int32_t e = static_cast<int32_t>(sum - 0x3F400000u) >> 23;
    const float f = add(scale_by_power(x, -e), subtract(scale_by_power(1.0f, -e), 1.0f));
    const float n = static_cast<float>(e);
    return fmaf(n, 0x1.62e43p-1f, fmaf(n, -0x1.05c61p-29f, log1p_reduced(f)));
}

MOE_HOST_DEVICE inline float hyperbolic_tangent(float x) {
    if (x != x) return x;
    const float size = x < 0.0f ? -x : x;
    if (size < 0.6f) {
        // (tanh(x) - x) / x^3 in x^2
        const float t = multiply(x, x);
        float q = -0x1.d0120ap-11f;
        q = fmaf(q, t, 0x1.b4824ap-9f);
        q = fmaf(q, t, -0x1.205f12p-7f);
        q = fmaf(q, t, 0x1.662e12p-6f);
        q = fmaf(q, t, -0x1.ba1aa0p-5f);
        q = fmaf(q, t, 0x1.11111p-3f);
        q = fmaf(q, t, -0x1.555556p-2f);
        return fmaf(multiply(q, t), x, x);
    }
    const float grown = size > 10.0f ? from_bits(0x7F800000u) : exponential(multiply(2.0f, size));
    const float result = subtract(1.0f, divide(2.0f, add(grown, 1.0f)));
    return x < 0.0f ? -result : result;
}

MOE_HOST_DEVICE inline float sigmoid(float z) {
    const float e = exponential(z < 0.0f ? z : -z);
    return divide(z < 0.0f ? e : 1.0f, add(1.0f, e));
}

// Returns sqrt(log(1 + e^z)); above 20 softplus(z) is z.
MOE_HOST_DEVICE inline float sqrt_softplus(float z) {
    return square_root(z > 20.0f ? z : log_one_plus(exponential(z)));
}

// Returns c tanh(z / c) for c > 0.
MOE_HOST_DEVICE inline float softcap(float z, float c) {
    return multiply(c, hyperbolic_tangent(divide(z, c)));
}

constexpr float largest = 0x1.fffffep+127f;

// Maps a logit to a finite value: NaN sorts last.
MOE_HOST_DEVICE inline float finite_logit(float z) {
    if (z != z || z < -largest) return -largest;
    return z > largest ? largest : z;
}

// Sums of routing have one order on every device: term i goes to lane i % 32, each lane adds its
// terms in ascending order, then lanes that are 16, 8, 4, 2 and 1 apart are added. term(i) returns
// the i-th value.
constexpr int32_t sum_lanes = 32;

template <class Term>
MOE_HOST_DEVICE inline float sum_in_lanes(int32_t n, Term term) {
    float lane[sum_lanes] = {};
    for (int32_t i = 0; i < n; i++) lane[i % sum_lanes] = add(lane[i % sum_lanes], term(i));
    for (int32_t apart = sum_lanes / 2; apart > 0; apart /= 2) {
        for (int32_t i = 0; i < apart; i++) lane[i] = add(lane[i], lane[i + apart]);
    }
    return lane[0];
}

}  // namespace routing_math
}  // namespace moe
