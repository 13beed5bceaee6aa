// Launches and loads kernels and checks their errors. Input: a kernel, its launch configuration and
// its arguments; a failed call throws with the kernel's name.
#pragma once

#include <cuda_runtime.h>

#include "libmoe/cuda/runtime/check.hpp"
#include "libmoe/cuda/runtime/early_start.hpp"
#include "libmoe/cuda/runtime/launch_hook.hpp"

namespace moe::cuda {

// Launches a kernel that waits for the preceding kernel in the stream
// (device/dependent_launch.cuh). An empty grid launches nothing.
template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), dim3 grid, int n_threads,
            size_t shared_bytes, cudaStream_t stream, Arguments... arguments) {
    if (grid.x == 0 || grid.y == 0) return;
    cudaLaunchAttribute early = early_start();
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = dim3(static_cast<unsigned>(n_threads));
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = kernels_may_start_early() ? 1 : 0;
    report_launch(name, reinterpret_cast<const void*>(kernel));
    check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...), name);
}

template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), int64_t n_blocks, int n_threads,
            size_t shared_bytes, cudaStream_t stream, Arguments... arguments) {
    if (n_blocks <= 0) return;
    launch(name, kernel, dim3(static_cast<unsigned>(n_blocks)), n_threads, shared_bytes, stream,
           arguments...);
}

// Loads the kernel's code onto the device, so that its first launch may be captured.
template <class... Parameters>
void load(const char* name, void (*kernel)(Parameters...), int shared_bytes = 0) {
    kernels_may_start_early();  // loads its probe kernel, likewise
    cudaFuncAttributes attributes{};
    check(cudaFuncGetAttributes(&attributes, kernel), name);
    if (shared_bytes > 48 * 1024)
        check(
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
            name);
}

// Sets the largest shared memory carveout. An SM repartitions L1 and shared memory only when it is
// empty, so kernels with the same carveout can be resident together.
template <class... Parameters>
void want_most_shared_memory(const char* name, void (*kernel)(Parameters...)) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                               cudaSharedmemCarveoutMaxShared),
          name);
}

}  // namespace moe::cuda
