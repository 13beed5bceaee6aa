// mbarriers in shared memory, by their 32-bit shared address: the meeting point of copies, or of
// warps, and the threads that wait for them.
#pragma once

#include "libmoe/cuda/device/shared_memory.cuh"

namespace moe::cuda {

__device__ __forceinline__ void mbarrier_init(uint32_t barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible to the copy engine; before their first use by a copy.
__device__ __forceinline__ void mbarrier_fence_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// One arrival, and bytes that copies will still bring in this phase.
__device__ __forceinline__ void mbarrier_expect(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

// An arrival of this thread, once its asynchronous copies (cp_async.cuh) until here are done.
__device__ __forceinline__ void arrive_after_copies(uint32_t barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
}

// Waits until the phase of this parity has completed; asleep, where the architecture can.
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
