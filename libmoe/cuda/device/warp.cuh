// Sums and maxima over a warp and a block in a fixed order, floats as integers of the same order,
// and the elected lane of a warp.
#pragma once

#include <cstdint>

#include "libmoe/layer/routing_math.hpp"

namespace moe::cuda {

constexpr unsigned every_lane = 0xFFFFFFFFu;

__device__ inline int32_t lane_index() {
    return static_cast<int32_t>(threadIdx.x % 32);
}

__device__ inline int32_t warp_index() {
    return static_cast<int32_t>(threadIdx.x / 32);
}

// The lane part of routing_math::sum_in_lanes: lanes 16, 8, 4, 2 and 1 apart are added. Every lane
// receives the sum.
__device__ inline float warp_sum(float value) {
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2)
        value = routing_math::add(value, __shfl_xor_sync(every_lane, value, apart));
    return value;
}

// The same if lanes from n on, at most 32, hold +0: adding these would change nothing.
__device__ inline float warp_sum_of_first(float value, int32_t n) {
    if (n > 16) value = routing_math::add(value, __shfl_xor_sync(every_lane, value, 16));
    if (n > 8) value = routing_math::add(value, __shfl_xor_sync(every_lane, value, 8));
#pragma unroll
    for (int apart = 4; apart > 0; apart /= 2)
        value = routing_math::add(value, __shfl_xor_sync(every_lane, value, apart));
    return value;
}

// Maps a key that is not NaN to an integer of the same order: equal for both zeros, never 0.
MOE_HOST_DEVICE inline uint32_t rank_of(float key) {
    const uint32_t bits = routing_math::to_bits(key == 0.0f ? 0.0f : key);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

// The inverse of rank_of; +0 for either zero.
MOE_HOST_DEVICE inline float key_of(uint32_t rank) {
    return routing_math::from_bits(rank >> 31 ? rank & 0x7FFFFFFFu : ~rank);
}

// The values must not be NaN; either zero becomes +0.
__device__ inline float warp_max(float value) {
    return key_of(__reduce_max_sync(every_lane, rank_of(value)));
}

// Adds the warps in order; every thread receives the sum. partial: [warps], shared memory.
__device__ inline float block_sum(float value, float* partial) {
    const float own = warp_sum(value);
    if (lane_index() == 0) partial[warp_index()] = own;
    __syncthreads();
    float sum = 0.0f;
    for (int w = 0; w < static_cast<int>(blockDim.x / 32); w++) sum += partial[w];
    return sum;
}

// True in one lane of the warp, the same in every call. All lanes call it together. The compiler
// knows that one lane is left and keeps addresses of bulk copies in uniform registers; where a
// lane's number is compared, each copy is a loop over lanes. sm_90.
__device__ __forceinline__ bool elect_lane() {
    uint32_t is_elected;
    asm volatile(
        "{\n\t"
        ".reg .pred elected;\n\t"
        "elect.sync _|elected, 0xFFFFFFFF;\n\t"
        "selp.u32 %0, 1, 0, elected;\n\t"
        "}"
        : "=r"(is_elected));
    return is_elected != 0;
}

}  // namespace moe::cuda
