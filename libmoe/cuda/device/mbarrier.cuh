// mbarriers in shared memory, given by 32-bit shared address. Threads and asynchronous copies
// arrive at them, and threads wait for a phase to complete.
#pragma once

#include "libmoe/cuda/device/shared_memory.cuh"

namespace moe::cuda {

__device__ __forceinline__ void mbarrier_init(uint32_t barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes initialized barriers visible to bulk copies; call it before the first of these.
__device__ __forceinline__ void mbarrier_fence_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives once and adds `bytes` of copies that this phase must still receive.
__device__ __forceinline__ void mbarrier_expect(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

// Arrives when the asynchronous copies (cp_async.cuh) that this thread has issued are complete.
__device__ __forceinline__ void arrive_after_copies(uint32_t barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
}

// Waits until the phase of this parity has completed; sm_90 suspends the thread meanwhile.
#if __CUDA_ARCH__ >= 900
#define MOE_MBARRIER_WAIT "mbarrier.try_wait"
#else
#define MOE_MBARRIER_WAIT "mbarrier.test_wait"
#endif
__device__ __forceinline__ void mbarrier_wait(uint32_t barrier, uint32_t parity) {
    uint32_t done;
    do {
        asm volatile(
            "{\n .reg .pred p;\n"
            " " MOE_MBARRIER_WAIT
            ".parity.shared.b64 p, [%1], %2;\n"
            " selp.u32 %0, 1, 0, p;\n}"
            : "=r"(done)
            : "r"(barrier), "r"(parity)
            : "memory");
    } while (!done);
}
#undef MOE_MBARRIER_WAIT

}  // namespace moe::cuda
