// Blocks of a cluster: their barrier, and stores into each other's shared memory. Before sm_90
// there are no clusters, and nobody may come here.
#pragma once

#include <cstdint>

namespace moe::cuda {

__device__ __forceinline__ void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
#endif
}

__device__ __forceinline__ void cluster_wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
}

// Stores where block `rank` of the cluster has what lies at this shared address here. Its block
// must have arrived at a barrier before, and must not have ended.
__device__ __forceinline__ void store_in_block(uint32_t at, uint32_t rank, float value) {
#if __CUDA_ARCH__ >= 900
    uint32_t there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(rank));
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(there), "f"(value) : "memory");
#endif
}

}  // namespace moe::cuda
