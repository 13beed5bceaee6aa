// Scales and minima of q4_k from the heads of two rows at once: codes of both are brought into the
// two halves of a register and become float16 there, which is exact.
#pragma once

#include <cuda_fp16.h>

#include "libmoe/cuda/device/codebook_values.cuh"

namespace moe::cuda {

// Of rows g and g + 8: what a group of 32 multiplies its nibbles by, and takes off.
struct Q4kFactors {
    float2 scale, minimum;
};

// Of 256 k of both rows: codes of scales and minima in the lower six bits of bytes, those of groups
// 0 to 3 and of groups 4 to 7, whose bits the heads have in two pieces.
struct Q4kScales {
    uint32_t scales[2], minima[2];
    uint32_t d[2];  // of a row: float16 factors of its scales and of its minima

    // selector: the bytes that are wanted, group by group: 0 to 3 of row g, 4 to 7 of row g + 8.
    __device__ __forceinline__ Q4kScales(const uint4 (&head)[2], uint32_t selector)
        : d{head[0].x, head[1].x} {
        scales[0] = permute_bytes(head[0].y, head[1].y, selector);
        minima[0] = permute_bytes(head[0].z, head[1].z, selector);
        const uint32_t low = permute_bytes(head[0].w, head[1].w, selector);
        scales[1] = (low & 0x0F0F0F0Fu) | (scales[0] >> 2 & 0x30303030u);
        minima[1] = (low >> 4 & 0x0F0F0F0Fu) | (minima[0] >> 2 & 0x30303030u);
    }
};

// The lower six bits of the half-words of `codes`, as float32.
__device__ __forceinline__ float2 six_bits(uint32_t codes) {
    const uint32_t over_1024 = (codes & 0x003F003Fu) | 0x64006400u;
    const __half2 base = __float2half2_rn(1024.0f);
    return __half22float2(__hsub2(reinterpret_cast<const __half2&>(over_1024), base));
}

// Codes of row g in the lower half-word, of row g + 8 in the upper one; d as in Q4kScales.
__device__ __forceinline__ Q4kFactors q4_k_factors(uint32_t scales, uint32_t minima,
                                                   const uint32_t (&d)[2]) {
    const float2 scale = six_bits(scales);
    const float2 minimum = six_bits(minima);
    const float2 of[2] = {__half22float2(reinterpret_cast<const __half2&>(d[0])),
                          __half22float2(reinterpret_cast<const __half2&>(d[1]))};
    return {{of[0].x * scale.x, of[1].x * scale.y}, {of[0].y * minimum.x, of[1].y * minimum.y}};
}

// Of one group, 0 to 7.
__device__ __forceinline__ Q4kFactors q4_k_factors(const uint4 (&head)[2], uint32_t group) {
    const Q4kScales heads(head, (group & 3) * 0x0101u + 0x0400u);
    return q4_k_factors(group < 4 ? heads.scales[0] : heads.scales[1],
                        group < 4 ? heads.minima[0] : heads.minima[1], heads.d);
}

}  // namespace moe::cuda
