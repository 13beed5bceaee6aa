// A failed CUDA call becomes MOE_ERROR_DEVICE with the driver's own text. Only the code returned is
// looked at: the caller's sticky errors are not touched.
#pragma once

#include <cuda_runtime_api.h>

namespace moe::cuda {

[[noreturn]] void fail_cuda(cudaError_t error, const char* what);

inline void check(cudaError_t error, const char* what) {
    if (error != cudaSuccess) fail_cuda(error, what);
}

}  // namespace moe::cuda
