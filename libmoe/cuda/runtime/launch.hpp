// A launch by function pointer, for kernels that tables of instances name.
#pragma once

#include <cuda_runtime_api.h>

#include "libmoe/cuda/runtime/check.hpp"
#include "libmoe/cuda/runtime/launch_hook.hpp"

namespace moe::cuda {

inline void launch_kernel(const char* name, const void* function, const cudaLaunchConfig_t& config,
                          void** arguments) {
    report_launch(name, function);
    check(cudaLaunchKernelExC(&config, function, arguments), name);
}

}  // namespace moe::cuda
