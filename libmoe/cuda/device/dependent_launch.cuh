// Programmatic dependent launch, seen from the kernels. Every kernel of the library is launched so
// that it may start while the one before it still runs, and every thread of it that touches memory
// of other kernels waits first (but for what gemv_down.cuh and sm90_grouped_gemm.cuh explain). That
// all blocks of all kernels wait, those without work too, makes the order a chain: a kernel that
// has ended means that all before it have. Before sm_90 there is no such launch, and nothing to do.
#pragma once

#include <cstdint>

namespace moe::cuda {

// Waits until the kernels before this one have ended and their writes can be seen. What they wrote
// must be read with loads that the compiler cannot move above this (ordinary ones), nor through the
// read-only cache (ld.global.nc).
//
// In a loop that never repeats, and ptxas does not know it: otherwise it would wait as early as it
// can, and do behind the wait the arithmetic that stands before it.
__device__ __forceinline__ void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
    uint32_t sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    asm volatile(
        "{\n"
        ".reg .pred never;\n"
        "setp.eq.u32 never, %0, 0xffffffff;\n"
        "WAIT:\n"
        "griddepcontrol.wait;\n"
        "@never bra WAIT;\n"
        "}\n" ::"r"(sm)
        : "memory");
#endif
}

// For what should be computed before a wait or a barrier: the compiler, too, moves arithmetic to
// its use.
__device__ __forceinline__ void compute_now(int32_t& value) {
    asm volatile("" : "+r"(value));
}
__device__ __forceinline__ void compute_now(uint32_t& value) {
    asm volatile("" : "+r"(value));
}
template <class T>
__device__ __forceinline__ void compute_now(T*& value) {
    asm volatile("" : "+l"(value));
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
