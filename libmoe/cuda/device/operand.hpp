// The operand types of the tensor cores, and words of operands from memory. Host and device
// give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "libmoe/cuda/device/convert.hpp"

// Only the compiler of device code knows the pragma.
#if defined(__CUDA_ARCH__)
#define MOE_UNROLL _Pragma("unroll")
#else
#define MOE_UNROLL
#endif

namespace moe::cuda {

// e4m3 only in wgmma.
enum class Operand : int32_t { bf16, f16, e4m3 };

// Rounds both to nearest, ties to even.
template <Operand operand>
MOE_HOST_DEVICE inline uint32_t operand_pair(FloatPair value) {
    static_assert(operand != Operand::e4m3);
    return operand == Operand::bf16 ? bf16_pair(value.low, value.high)
                                    : f16_pair(value.low, value.high);
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

#if defined(__CUDACC__)

// a * b + c of pairs, rounded once.
template <Operand operand>
__device__ __forceinline__ uint32_t multiply_add(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t result;
    if constexpr (operand == Operand::bf16)
        asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
    else
        asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
    return result;
}

#endif

MOE_HOST_DEVICE inline uint32_t rotate_right(uint32_t word, int32_t by) {
    return word >> by | word << (32 - by);
}

}  // namespace moe::cuda
