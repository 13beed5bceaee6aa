// Scales and minima of q4_k from the heads of two rows at once: bytes of both are brought into the
// two halves of a register and become float16 there, which is exact.
#pragma once

#include <cuda_fp16.h>

#include "libmoe/cuda/device/codebook_values.cuh"

namespace moe::cuda {

// Of rows g and g + 8: what a group of 32 multiplies its nibbles by, and takes off.
struct Q4kFactors {
    float2 scale, minimum;
};

// The half-words of `bytes` below 64, as float32.
__device__ __forceinline__ float2 six_bits(uint32_t bytes) {
    const uint32_t over_1024 = (bytes & 0x003F003Fu) | 0x64006400u;
    const __half2 base = __float2half2_rn(1024.0f);
    return __half22float2(__hsub2(reinterpret_cast<const __half2&>(over_1024), base));
}

// group: 0 to 7. Byte group % 4 of three words of a head has the bits of scale and minimum; those
// of groups 4 to 7 come in two pieces each.
__device__ __forceinline__ Q4kFactors q4_k_factors(const uint4 (&head)[2], uint32_t group) {
    const uint32_t selector = (group & 3) * 0x0101u + 0x0400u;
    const uint32_t low = permute_bytes(head[0].y, head[1].y, selector);
    const uint32_t middle = permute_bytes(head[0].z, head[1].z, selector);
    const uint32_t high = permute_bytes(head[0].w, head[1].w, selector);
    const uint32_t late_scale = (high & 0x000F000Fu) | (low >> 2 & 0xFFF0FFF0u);
    const uint32_t late_minimum = (high >> 4 & 0x000F000Fu) | (middle >> 2 & 0xFFF0FFF0u);
    const float2 scale = six_bits(group < 4 ? low : late_scale);
    const float2 minimum = six_bits(group < 4 ? middle : late_minimum);
    const float2 d[2] = {__half22float2(reinterpret_cast<const __half2&>(head[0].x)),
                         __half22float2(reinterpret_cast<const __half2&>(head[1].x))};
    return {{d[0].x * scale.x, d[1].x * scale.y}, {d[0].y * minimum.x, d[1].y * minimum.y}};
}

}  // namespace moe::cuda
