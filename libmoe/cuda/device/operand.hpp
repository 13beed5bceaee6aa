// Pairs of 16-bit operands of the tensor cores in a 32-bit register, the even k in the low half.
// Host and device give the same bits.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "libmoe/base/half.hpp"
#include "libmoe/base/host_device.hpp"

// Only the compiler of device code knows the pragma.
#if defined(__CUDA_ARCH__)
#define MOE_UNROLL _Pragma("unroll")
#else
#define MOE_UNROLL
#endif

namespace moe::cuda {

enum class Operand : int32_t { bf16, f16 };

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

// Rounds both to nearest, ties to even.
template <Operand operand>
MOE_HOST_DEVICE inline uint32_t operand_pair(FloatPair value) {
#if defined(__CUDA_ARCH__)
    uint32_t pair;
    if constexpr (operand == Operand::bf16) {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(value.high), "f"(value.low));
    } else {
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(value.high), "f"(value.low));
    }
    return pair;
#else
    const auto narrow = operand == Operand::bf16 ? float_to_bf16 : float_to_f16;
    return static_cast<uint32_t>(narrow(value.low)) | static_cast<uint32_t>(narrow(value.high))
                                                          << 16;
#endif
}

// Products of two pairs of bfloat16, each rounded once. An fma that adds minus zero: sm_80 has no
// packed multiply.
MOE_HOST_DEVICE inline uint32_t multiply_bf16(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__)
    uint32_t product;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(a), "r"(b), "r"(0x80008000u));
    return product;
#else
    const FloatPair x = pair_of_bf16(a);
    const FloatPair y = pair_of_bf16(b);
    return operand_pair<Operand::bf16>({x.low * y.low, x.high * y.high});
#endif
}

// Four, two or one words from memory aligned to their size, global or shared.
template <int n>
MOE_HOST_DEVICE inline void load_words(const std::byte* from, uint32_t* to) {
#if defined(__CUDA_ARCH__)
    if constexpr (n == 4) {
        const uint4 v = *reinterpret_cast<const uint4*>(from);
        to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
    } else if constexpr (n == 2) {
        const uint2 v = *reinterpret_cast<const uint2*>(from);
        to[0] = v.x, to[1] = v.y;
    } else {
        to[0] = *reinterpret_cast<const uint32_t*>(from);
    }
#else
    std::memcpy(to, from, 4 * n);
#endif
}

MOE_HOST_DEVICE inline uint32_t rotate_right(uint32_t word, int32_t by) {
    return word >> by | word << (32 - by);
}

}  // namespace moe::cuda
