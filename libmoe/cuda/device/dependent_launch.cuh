// Programmatic dependent launch, seen from the kernels: a kernel launched with the attribute may
// start while the one before it still runs. Before sm_90 there is no such launch, and nothing to
// do.
#pragma once

namespace moe::cuda {

// Waits until the kernels before this one have ended and their writes can be seen. What they wrote
// must be read with loads that the compiler cannot move above this: load_global of memory.cuh.
__device__ __forceinline__ void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The next kernel may start as soon as every block has said so or ended. It may rely on whatever
// this kernel has waited for.
__device__ __forceinline__ void let_next_kernel_start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace moe::cuda
