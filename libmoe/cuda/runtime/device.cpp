// Lists the CUDA devices and their properties. Input: a device index. Output: moe_device_info,
// DeviceFacts or NominalRates. None of it makes a context.
#include <algorithm>
#include <cstring>

#include "libmoe/cuda/backend.hpp"
#include "libmoe/cuda/runtime/check.hpp"
#include "libmoe/cuda/runtime/driver.hpp"

namespace moe::cuda {
namespace {

cudaDeviceProp properties(int32_t index) {
    const int32_t count = device_count();
    require(index >= 0 && index < count, "index is {}, CUDA devices are 0 to {}", index, count - 1);
    cudaDeviceProp found{};
    check(cudaGetDeviceProperties(&found, index), "cudaGetDeviceProperties");
    return found;
}

// Returns 0 where the driver does not tell, because only a prediction depends on it.
double attribute(cudaDeviceAttr what, int32_t index) {
    int value = 0;
    if (cudaDeviceGetAttribute(&value, what, index) == cudaSuccess) return value;
    cudaGetLastError();
    return 0;
}

}  // namespace

bool is_built() {
    return true;
}

const char* architectures() {
    return MOE_CUDA_ARCHITECTURES;
}

int32_t device_count() {
    check_not_forked();
    int count = 0, version = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess && cudaDriverGetVersion(&version) == cudaSuccess && version == 0)
        fail(MOE_ERROR_NO_DEVICE, "no CUDA driver (libcuda.so.1) on this machine: {}: {}",
             cudaGetErrorName(error), cudaGetErrorString(error));
    check(error, "cudaGetDeviceCount");
    if (count == 0) fail_cuda(cudaErrorNoDevice, "cudaGetDeviceCount");
    note_use();
    return count;
}

moe_device_info device_info(int32_t index) {
    const cudaDeviceProp found = properties(index);
    moe_device_info info{};
    info.struct_size = sizeof info;
    info.kind = MOE_DEVICE_CUDA;
    info.index = index;
    info.n_cores = found.multiProcessorCount;
    info.memory_bytes = found.totalGlobalMem;
    info.arch_major = found.major;
    info.arch_minor = found.minor;
    std::memcpy(info.name, found.name,
                std::min(strnlen(found.name, sizeof found.name), sizeof info.name - 1));
    return info;
}

namespace {

DeviceFacts facts_of(const cudaDeviceProp& found, int32_t index) {
    DeviceFacts facts;
    facts.index = index;
    facts.major = found.major;
    facts.minor = found.minor;
    facts.n_sms = found.multiProcessorCount;
    facts.shared_bytes = static_cast<int32_t>(found.sharedMemPerBlockOptin);
    facts.memory_bytes = found.totalGlobalMem;
    facts.l2_bytes = static_cast<uint64_t>(found.l2CacheSize);
    return facts;
}

}  // namespace

DeviceFacts device_facts(int32_t index) {
    return facts_of(properties(index), index);
}

bool find_device(int32_t index, DeviceFacts& facts) {
    int count = 0;
    cudaDeviceProp found{};
    if (is_forked() || cudaGetDeviceCount(&count) != cudaSuccess || index < 0 || index >= count ||
        cudaGetDeviceProperties(&found, index) != cudaSuccess)
        return false;
    note_use();
    facts = facts_of(found, index);
    return true;
}

// Clocks are in kHz; memory transfers twice per clock. The dense GEMM rate is Hopper's, because
// only Hopper kernels have predicted times.
NominalRates nominal_rates(const DeviceFacts& device) {
    const double bus_bytes = attribute(cudaDevAttrGlobalMemoryBusWidth, device.index) / 8;
    const double memory_clock = attribute(cudaDevAttrMemoryClockRate, device.index) * 1e-3;
    const double clock = attribute(cudaDevAttrClockRate, device.index) * 1e-3;
    return {2 * bus_bytes * memory_clock, device.n_sms * 4096.0 * clock};
}

}  // namespace moe::cuda
