// Looks up the driver's functions through the runtime library, and remembers which process first
// used CUDA.
#include "libmoe/cuda/runtime/driver.hpp"

#include <unistd.h>

#include <atomic>

#include "libmoe/base/error.hpp"
#include "libmoe/cuda/runtime/check.hpp"

namespace moe::cuda {
namespace {

std::atomic<pid_t> first_user{0};

// `version` is the CUDA version in which the function took its present form.
template <class Function>
void find(Function& function, const char* name, unsigned version) {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    check(cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &result),
          name);
    if (result != cudaDriverEntryPointSuccess || !found)
        fail(MOE_ERROR_NO_DEVICE, "the CUDA driver of this machine has no {}", name);
    function = reinterpret_cast<Function>(found);
}

Driver load() {
    Driver found{};
    find(found.error_name, "cuGetErrorName", 6000);
    find(found.error_string, "cuGetErrorString", 6000);
    find(found.init, "cuInit", 2000);
    find(found.device_get, "cuDeviceGet", 2000);
    find(found.retain_primary, "cuDevicePrimaryCtxRetain", 7000);
    find(found.get_current, "cuCtxGetCurrent", 4000);
    find(found.get_device, "cuCtxGetDevice", 2000);
    find(found.push, "cuCtxPushCurrent", 4000);
    find(found.pop, "cuCtxPopCurrent", 4000);
    find(found.pointer_attribute, "cuPointerGetAttribute", 4000);
    if (const CUresult error = found.init(0); error != CUDA_SUCCESS) {
        const char* text = "unknown error";
        found.error_string(error, &text);
        fail(MOE_ERROR_NO_DEVICE, "cuInit: {}", text);
    }
    return found;
}

}  // namespace

const Driver& driver() {
    static const Driver functions = load();  // a failed load is tried again
    return functions;
}

void fail_driver(CUresult error, const char* what) {
    const char *name = "CUDA_ERROR_UNKNOWN", *text = "unknown error";
    driver().error_name(error, &name);
    driver().error_string(error, &text);
    fail(error == CUDA_ERROR_OUT_OF_MEMORY ? MOE_ERROR_OUT_OF_MEMORY : MOE_ERROR_DEVICE,
         "{}: {}: {}", what, name, text);
}

bool is_forked() {
    const pid_t user = first_user.load(std::memory_order_relaxed);
    return user != 0 && user != getpid();
}

void check_not_forked() {
    if (is_forked())
        fail(MOE_ERROR_FORKED,
             "CUDA was used before this process was forked and cannot be used here: fork first, or "
             "start a new program");
}

void note_use() {
    pid_t nobody = 0;
    first_user.compare_exchange_strong(nobody, getpid(), std::memory_order_relaxed);
}

}  // namespace moe::cuda
