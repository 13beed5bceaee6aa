// Programmatic dependent launch, seen from the kernels: a kernel launched with the attribute may
// start while the one before it still runs.
#pragma once

namespace moe::cuda {

// Waits until the kernels before this one have ended and their writes can be seen. What they wrote
// must be read with loads that the compiler cannot move above this: load_global of memory.cuh.
__device__ __forceinline__ void wait_for_previous_kernel() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

// The next kernel may start as soon as every block has said so or ended. It may rely on whatever
// this kernel has waited for.
__device__ __forceinline__ void let_next_kernel_start() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

}  // namespace moe::cuda
