// Conversions between float32 and pairs of 16-bit numbers in a 32-bit register, the even k in the
// low half, and the byte permutation. One home for the conversion instructions of every kernel; the
// host functions give the same bits.
#pragma once

#include <bit>
#include <cstdint>

#include "libmoe/base/half.hpp"
#include "libmoe/base/host_device.hpp"

namespace moe::cuda {

struct FloatPair {
    float low;
    float high;
};

MOE_HOST_DEVICE inline FloatPair pair_of_bf16(uint32_t pair) {
    return {std::bit_cast<float>(pair << 16), std::bit_cast<float>(pair & 0xFFFF0000u)};
}

MOE_HOST_DEVICE inline FloatPair pair_of_f16(uint32_t pair) {
#if defined(__CUDA_ARCH__)
    FloatPair out;
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}"
        : "=f"(out.low), "=f"(out.high)
        : "r"(pair));
    return out;
#else
    return {f16_to_float(static_cast<uint16_t>(pair)),
            f16_to_float(static_cast<uint16_t>(pair >> 16))};
#endif
}

// Both pairs round to nearest, ties to even.
MOE_HOST_DEVICE inline uint32_t bf16_pair(float low, float high) {
#if defined(__CUDA_ARCH__)
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#else
    return float_to_bf16(low) | static_cast<uint32_t>(float_to_bf16(high)) << 16;
#endif
}

MOE_HOST_DEVICE inline uint32_t f16_pair(float low, float high) {
#if defined(__CUDA_ARCH__)
    uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#else
    return float_to_f16(low) | static_cast<uint32_t>(float_to_f16(high)) << 16;
#endif
}

// Multiplies two pairs of bfloat16, each rounded once. The instruction is an fma that adds minus
// zero, because sm_80 has no packed multiplication.
MOE_HOST_DEVICE inline uint32_t multiply_bf16(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__)
    uint32_t result;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(0x80008000u));
    return result;
#else
    const FloatPair x = pair_of_bf16(a);
    const FloatPair y = pair_of_bf16(b);
    return bf16_pair(x.low * y.low, x.high * y.high);
#endif
}

#if defined(__CUDACC__)

// The same on sm_90, which has the packed multiplication.
__device__ __forceinline__ uint32_t multiply_bf16_sm90(uint32_t a, uint32_t b) {
    uint32_t result;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
    return result;
}

// Multiplies two pairs of float16, each rounded once.
__device__ __forceinline__ uint32_t multiply_f16(uint32_t a, uint32_t b) {
    uint32_t result;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
    return result;
}

// The value of the float16 in the low half.
__device__ __forceinline__ float f16_value(uint32_t bits) {
    float v;
    asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(static_cast<uint16_t>(bits)));
    return v;
}

// The byte of (low, high) that each of the lowest four nibbles of `selector` names; from 8 on the
// sign of that byte, eight times.
__device__ __forceinline__ uint32_t permute_bytes(uint32_t low, uint32_t high, uint32_t selector) {
    uint32_t bytes;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(low), "r"(high), "r"(selector));
    return bytes;
}

#endif

}  // namespace moe::cuda
