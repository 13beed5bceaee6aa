// Asynchronous copies by the copy engine of contiguous bytes; addresses and sizes are multiples of
// 16 bytes.
#pragma once

#include <cstdint>

namespace moe::cuda {

// Global to shared; completion counts its bytes at the mbarrier.
__device__ __forceinline__ void bulk_load(uint32_t to, const void* from, uint32_t n_bytes,
                                          uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(to),
        "l"(from), "r"(n_bytes), "r"(barrier)
        : "memory");
}

// The same of bytes that leave the L2 before others do: weights, of which a call reads more than it
// holds. The policy is what createpolicy.fractional.L2::evict_first gives, at fewer instructions.
__device__ __forceinline__ void bulk_load_once(uint32_t to, const void* from, uint32_t n_bytes,
                                               uint32_t barrier) {
    constexpr uint64_t evict_first = 0x12F0000000000000;
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
        "[%1], %2, [%3], %4;" ::"r"(to),
        "l"(from), "r"(n_bytes), "r"(barrier), "l"(evict_first)
        : "memory");
}

// To the L2.
__device__ __forceinline__ void bulk_prefetch(const void* from, uint32_t n_bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(n_bytes) : "memory");
}

// Shared to global, as a group of its own; see bulk_store_wait.
__device__ __forceinline__ void bulk_store(void* to, uint32_t from, uint32_t n_bytes) {
    asm volatile(
        "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n\t"
        "cp.async.bulk.commit_group;" ::"l"(to),
        "r"(from), "r"(n_bytes)
        : "memory");
}

// Until shared memory has been read by all stores that this thread began.
__device__ __forceinline__ void bulk_store_wait() {
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

// Before a barrier, by every thread that wrote shared memory which the copy engine or the tensor
// cores read next.
__device__ __forceinline__ void async_proxy_fence() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace moe::cuda
