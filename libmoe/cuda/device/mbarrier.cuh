// Barriers in shared memory that count arrivals of threads and bytes of bulk copies. A barrier has
// a phase bit that flips whenever both counts are reached; waiting names the phase that must be
// over.
#pragma once

#include <cstdint>

namespace moe::cuda {

__device__ __forceinline__ void mbarrier_init(uint32_t barrier, uint32_t n_arrivals) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(n_arrivals) : "memory");
}

// Makes initialised barriers known to the copy engine; a block barrier must follow.
__device__ __forceinline__ void mbarrier_init_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// One arrival that announces n_bytes of copies.
__device__ __forceinline__ void mbarrier_expect(uint32_t barrier, uint32_t n_bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(n_bytes)
                 : "memory");
}

__device__ __forceinline__ void mbarrier_wait(uint32_t barrier, uint32_t phase) {
    uint32_t done;
    do {
        asm volatile(
            "{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, "
            "p; }"
            : "=r"(done)
            : "r"(barrier), "r"(phase)
            : "memory");
    } while (!done);
}

}  // namespace moe::cuda
