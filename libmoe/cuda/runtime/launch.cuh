// Launching and loading of kernels with their errors checked.
#pragma once

#include <cuda_runtime.h>

#include "libmoe/cuda/runtime/check.hpp"

namespace moe::cuda {

// No launch at all for an empty grid.
template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), int64_t n_blocks, int n_threads,
            size_t shared_bytes, cudaStream_t stream, Arguments... arguments) {
    if (n_blocks <= 0) return;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(n_blocks));
    config.blockDim = dim3(static_cast<unsigned>(n_threads));
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...), name);
}

// Brings the kernel's code to the device, so that its first launch may be captured.
template <class... Parameters>
void load(const char* name, void (*kernel)(Parameters...), int shared_bytes = 0) {
    cudaFuncAttributes attributes{};
    check(cudaFuncGetAttributes(&attributes, kernel), name);
    if (shared_bytes > 48 * 1024)
        check(
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
            name);
}

}  // namespace moe::cuda
