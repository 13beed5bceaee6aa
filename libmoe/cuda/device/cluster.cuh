// Thread block clusters: their barrier, and stores to the shared memory of another block. Clusters
// need sm_90; on older architectures these functions do nothing and must not be reached.
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

// Stores `value` at the same shared address in block `rank` of the cluster. That block must have
// arrived at a cluster barrier before and must not have exited.
__device__ __forceinline__ void store_remote_shared(uint32_t at, uint32_t rank, float value) {
#if __CUDA_ARCH__ >= 900
    uint32_t remote;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(at), "r"(rank));
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(remote), "f"(value) : "memory");
#endif
}

}  // namespace moe::cuda
