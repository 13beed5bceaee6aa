// In place of cuda_device.cpp in a build without CUDA.
#include "device.hpp"
#include "handles.hpp"

namespace moe_gpu {

std::unique_ptr<Device> make_cuda_device() {
    throw Failure("this build has no CUDA (MOE_CUDA=OFF); try --device cpu");
}

}  // namespace moe_gpu
