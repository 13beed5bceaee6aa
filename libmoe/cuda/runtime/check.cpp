// Maps CUDA errors to statuses of libmoe. Input: a cudaError_t and the name of the call. Output: an
// Error with both.
#include "libmoe/cuda/runtime/check.hpp"

#include "libmoe/base/error.hpp"
#include "libmoe/cuda/backend.hpp"

namespace moe::cuda {
namespace {

moe_status status_of(cudaError_t error) {
    switch (error) {
        case cudaErrorMemoryAllocation:
            return MOE_ERROR_OUT_OF_MEMORY;
        case cudaErrorNoDevice:
        case cudaErrorInsufficientDriver:
        case cudaErrorStubLibrary:
        case cudaErrorSystemDriverMismatch:
        case cudaErrorSystemNotReady:
        case cudaErrorCompatNotSupportedOnDevice:
        case cudaErrorNoKernelImageForDevice:
            return MOE_ERROR_NO_DEVICE;
        default:
            return MOE_ERROR_DEVICE;
    }
}

}  // namespace

void fail_cuda(cudaError_t error, const char* what) {
    if (error == cudaErrorNoKernelImageForDevice)
        fail(status_of(error), "{}: this build of libmoe has code for {} and none for this GPU",
             what, architectures());
    fail(status_of(error), "{}: {}: {}", what, cudaGetErrorName(error), cudaGetErrorString(error));
}

}  // namespace moe::cuda
