// Bulk copies of contiguous bytes (cp.async.bulk, sm_90). Addresses and sizes are multiples of 16
// bytes.
#pragma once

#include <cstdint>

namespace moe::cuda {

// Copies global to shared memory; the completed bytes count at the mbarrier.
__device__ __forceinline__ void bulk_load(uint32_t to, const void* from, uint32_t n_bytes,
                                          uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(to),
        "l"(from), "r"(n_bytes), "r"(barrier)
        : "memory");
}

// The same with evict-first priority in L2, for weights: a call reads more of them than L2 holds.
// The constant equals the result of createpolicy.fractional.L2::evict_first and saves instructions.
__device__ __forceinline__ void bulk_load_once(uint32_t to, const void* from, uint32_t n_bytes,
                                               uint32_t barrier) {
    constexpr uint64_t evict_first = 0x12F0000000000000;
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
        "[%1], %2, [%3], %4;" ::"r"(to),
        "l"(from), "r"(n_bytes), "r"(barrier), "l"(evict_first)
        : "memory");
}

// Prefetches to L2.
__device__ __forceinline__ void bulk_prefetch(const void* from, uint32_t n_bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(n_bytes) : "memory");
}

// Copies shared to global memory as a bulk group of its own; bulk_store_wait waits for it.
__device__ __forceinline__ void bulk_store(void* to, uint32_t from, uint32_t n_bytes) {
    asm volatile(
        "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n\t"
        "cp.async.bulk.commit_group;" ::"l"(to),
        "r"(from), "r"(n_bytes)
        : "memory");
}

// Waits until all bulk stores of this thread have read their shared memory.
__device__ __forceinline__ void bulk_store_wait() {
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

// The same of all but the last one.
__device__ __forceinline__ void bulk_store_wait_but_one() {
    asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
}

// Every thread that wrote shared memory calls this before a barrier, if bulk copies or wgmma read
// it next.
__device__ __forceinline__ void async_proxy_fence() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace moe::cuda
