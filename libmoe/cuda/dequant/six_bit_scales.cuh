// Six-bit scales of ggml's superblocks: those of rows g and g + 8 in the two half-words of a
// register, where they become float16, exactly. Device only.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

namespace moe::cuda {

// The four lower bits of the half-words of `low` with the two lower bits of those of `high` above.
__device__ __forceinline__ uint32_t join_six_bits(uint32_t low, uint32_t high) {
    return (low & 0x000F000Fu) | (high & 0x00030003u) << 4;
}

// The lower six bits of the half-words of `codes` less `middle`, as float32.
__device__ __forceinline__ float2 six_bits(uint32_t codes, int middle = 0) {
    const uint32_t over_1024 = (codes & 0x003F003Fu) | 0x64006400u;
    const __half2 base = __float2half2_rn(1024.0f + static_cast<float>(middle));
    return __half22float2(__hsub2(reinterpret_cast<const __half2&>(over_1024), base));
}

}  // namespace moe::cuda
