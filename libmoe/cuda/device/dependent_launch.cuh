// Programmatic dependent launch (PDL), the kernels' side. Every kernel of the library may start
// while the preceding kernel in the stream still runs. Every thread that touches memory of other
// kernels waits first, except where gemv_down.cuh and sm90_grouped_gemm.cuh explain it. All blocks
// of all kernels wait, those without work, too. Completion is therefore a chain: when a kernel has
// ended, all before it have ended. Before sm_90 there is no PDL, and these functions do nothing.
#pragma once

#include <cstdint>

namespace moe::cuda {

// Waits until all preceding kernels have ended and their writes are visible. Read what they wrote
// with ordinary loads, which the compiler cannot move above the wait, and never with ld.global.nc.
//
// The wait stands in a loop that never repeats. Without the loop ptxas hoists the wait above the
// arithmetic that should run before it.
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

// Forces a value to be computed before a wait or barrier; the compiler would move it to its use.
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

// The next kernel may start once every block has called this or exited. Before its own wait it may
// rely only on memory that this kernel, or the one that let this one start, had waited for by then.
__device__ __forceinline__ void let_next_kernel_start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Most kernels begin so: the next kernel reaches its wait while this one runs.
__device__ __forceinline__ void begin_after_previous_kernel() {
    let_next_kernel_start();
    wait_for_previous_kernel();
}

}  // namespace moe::cuda
