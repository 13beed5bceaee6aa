// A failed CUDA call becomes MOE_ERROR_DEVICE with the driver's own text. The check reads only the
// code that the call returned, so the caller's sticky errors stay untouched.
#pragma once

#include <cuda_runtime_api.h>

namespace moe::cuda {

[[noreturn]] void fail_cuda(cudaError_t error, const char* what);

inline void check(cudaError_t error, const char* what) {
    if (error != cudaSuccess) fail_cuda(error, what);
}

}  // namespace moe::cuda
