// Global loads that the compiler neither hoists above a wait nor serves from the read-only cache,
// with the shared-memory functions of shared_memory.cuh.
#pragma once

#include "libmoe/cuda/device/shared_memory.cuh"

namespace moe::cuda {

__device__ __forceinline__ uint4 load_global_16(const void* p) {
    uint4 v;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p)
                 : "memory");
    return v;
}

__device__ __forceinline__ int32_t load_global(const int32_t* p) {
    int32_t v;
    asm volatile("ld.global.s32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}

__device__ __forceinline__ float load_global(const float* p) {
    float v;
    asm volatile("ld.global.f32 %0, [%1];" : "=f"(v) : "l"(p) : "memory");
    return v;
}

}  // namespace moe::cuda
