// Launching and loading of kernels with their errors checked.
#pragma once

#include <cuda_runtime.h>

#include "libmoe/cuda/runtime/check.hpp"
#include "libmoe/cuda/runtime/early_start.hpp"

namespace moe::cuda {

// Of a kernel that waits for the one before it (device/dependent_launch.cuh). No launch at all for
// an empty grid.
template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), int64_t n_blocks, int n_threads,
            size_t shared_bytes, cudaStream_t stream, Arguments... arguments) {
    if (n_blocks <= 0) return;
    cudaLaunchAttribute early = early_start();
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(n_blocks));
    config.blockDim = dim3(static_cast<unsigned>(n_threads));
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = kernels_may_start_early() ? 1 : 0;
    check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...), name);
}

// Brings the kernel's code to the device, so that its first launch may be captured.
template <class... Parameters>
void load(const char* name, void (*kernel)(Parameters...), int shared_bytes = 0) {
    kernels_may_start_early();  // likewise
    cudaFuncAttributes attributes{};
    check(cudaFuncGetAttributes(&attributes, kernel), name);
    if (shared_bytes > 48 * 1024)
        check(
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
            name);
}

// Multiprocessors divide their memory into L1 and shared memory as the kernel on them wants it, and
// change it when they are empty: kernels that want the same may stand beside each other.
template <class... Parameters>
void want_most_shared_memory(const char* name, void (*kernel)(Parameters...)) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                               cudaSharedmemCarveoutMaxShared),
          name);
}

}  // namespace moe::cuda
