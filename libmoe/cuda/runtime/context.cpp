// Implements UseDevice of device/device.hpp, which makes a context of a device current for the
// length of a call. Input: a device index. It keeps the caller's context if there is one and pushes
// the device's primary context otherwise.
//   1. the device of the index is found, and a forked process is refused
//   2. a current context must be of this device
//   3. without one, the primary context is retained once per process and pushed
// It makes only calls that are legal while a stream is captured. It never calls cudaSetDevice,
// whose effect would outlast the call.
#include <array>
#include <atomic>
#include <mutex>

#include "libmoe/cuda/runtime/driver.hpp"
#include "libmoe/device/device.hpp"

namespace moe::device {
namespace {

using cuda::check;
using cuda::driver;

constexpr int32_t max_devices = 256;

// The context is retained at the first use and kept: to retain it in every call would make and
// destroy it each time.
CUresult retain_primary(CUdevice device, int32_t index, CUcontext& context) {
    static std::array<std::atomic<CUcontext>, max_devices> kept{};
    static std::mutex mutex;
    context = kept[index].load(std::memory_order_acquire);
    if (context) return CUDA_SUCCESS;
    std::lock_guard lock(mutex);
    context = kept[index].load(std::memory_order_relaxed);
    if (context) return CUDA_SUCCESS;
    const CUresult error = driver().retain_primary(&context, device);
    if (error == CUDA_SUCCESS) kept[index].store(context, std::memory_order_release);
    return error;
}

CUcontext primary_context(CUdevice device, int32_t index) {
    CUcontext context = nullptr;
    check(retain_primary(device, index, context), "cuDevicePrimaryCtxRetain");
    return context;
}

CUdevice device_at(int32_t index) {
    CUdevice device = 0;
    const CUresult error = index >= 0 && index < max_devices ? driver().device_get(&device, index)
                                                             : CUDA_ERROR_INVALID_DEVICE;
    if (error == CUDA_ERROR_INVALID_DEVICE)
        fail(MOE_ERROR_INVALID_ARGUMENT, "there is no CUDA device {}", index);
    check(error, "cuDeviceGet");
    return device;
}

void check_is_of(CUdevice device, int32_t index) {
    CUdevice current = 0;
    check(driver().get_device(&current), "cuCtxGetDevice");
    if (current != device)
        fail(MOE_ERROR_INVALID_ARGUMENT,
             "the CUDA context current on this thread is of device {}, the call is for device {}",
             current, index);
}

}  // namespace

UseDevice::UseDevice(int32_t index) {
    cuda::check_not_forked();
    const CUdevice device = device_at(index);
    cuda::note_use();
    CUcontext current = nullptr;
    check(driver().get_current(&current), "cuCtxGetCurrent");
    if (current) {
        check_is_of(device, index);
        return;
    }
    check(driver().push(primary_context(device, index)), "cuCtxPushCurrent");
    pushed_ = true;
}

UseDevice::UseDevice(int32_t index, std::nothrow_t) noexcept {
    CUcontext current = nullptr, primary = nullptr;
    CUdevice device = 0;
    if (driver().get_current(&current) != CUDA_SUCCESS || current) return;
    if (driver().device_get(&device, index) != CUDA_SUCCESS ||
        retain_primary(device, index, primary) != CUDA_SUCCESS)
        return;
    pushed_ = driver().push(primary) == CUDA_SUCCESS;
}

UseDevice::~UseDevice() {
    CUcontext popped = nullptr;
    if (pushed_) driver().pop(&popped);
}

void* current_context() {
    CUcontext current = nullptr;
    check(driver().get_current(&current), "cuCtxGetCurrent");
    return current;
}

UseContext::UseContext(void* context) {
    check(driver().push(static_cast<CUcontext>(context)), "cuCtxPushCurrent");
}

UseContext::~UseContext() {
    CUcontext popped = nullptr;
    driver().pop(&popped);
}

bool is_forked() noexcept {
    return cuda::is_forked();
}

}  // namespace moe::device
