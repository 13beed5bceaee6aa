// Programmatic dependent launch, seen from the kernels. Every kernel of the library is launched so
// that it may start while the one before it still runs, and every thread of it that touches memory
// of other kernels waits first (but for what one_token_down.cuh and grouped.cuh explain). That all
// blocks of all kernels wait, those without work too, makes the order a chain: a kernel that has
// ended means that all before it have. Before sm_90 there is no such launch, and nothing to do.
#pragma once

namespace moe::cuda {

// Waits until the kernels before this one have ended and their writes can be seen. What they wrote
// must be read with loads that the compiler cannot move above this (ordinary ones), nor through the
// read-only cache (ld.global.nc).
__device__ __forceinline__ void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The next kernel may start as soon as every block has said so or ended. Before its own wait it may
// rely on what this kernel had waited for at this point, and on nothing else.
__device__ __forceinline__ void let_next_kernel_start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// How most kernels begin: the next one comes to its wait while this one is at work.
__device__ __forceinline__ void begin_after_previous_kernel() {
    let_next_kernel_start();
    wait_for_previous_kernel();
}

}  // namespace moe::cuda
