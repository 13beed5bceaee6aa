// Driver functions that libmoe and its GPU tests look up by name. Others are not found.
#include <cuda.h>

#include <array>
#include <cstring>

#include "tests/emulator/runtime.hpp"
#include "tests/emulator/runtime_context.hpp"

struct CUctx_st {
    int device;
};

namespace emulator {
namespace {

constexpr int most_devices = 8;
std::array<CUctx_st, most_devices> primaries{{{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}}};

CUresult error_text(CUresult error, const char** out) {
    *out = error == CUDA_SUCCESS               ? "CUDA_SUCCESS"
           : error == CUDA_ERROR_INVALID_VALUE ? "CUDA_ERROR_INVALID_VALUE"
                                               : "an error of the emulated driver";
    return CUDA_SUCCESS;
}

CUresult init(unsigned) {
    return CUDA_SUCCESS;
}

CUresult device_get(CUdevice* out, int index) {
    if (index < 0 || index >= n_devices()) return CUDA_ERROR_INVALID_DEVICE;
    *out = index;
    return CUDA_SUCCESS;
}

CUresult retain_primary(CUcontext* out, CUdevice device) {
    if (device < 0 || device >= n_devices()) return CUDA_ERROR_INVALID_DEVICE;
    *out = primary_context(device);
    return CUDA_SUCCESS;
}

CUresult get_current(CUcontext* out) {
    *out = contexts().empty() ? nullptr : contexts().back();
    return CUDA_SUCCESS;
}

CUresult get_device(CUdevice* out) {
    if (contexts().empty() || !contexts().back()) return CUDA_ERROR_INVALID_CONTEXT;
    *out = device_of(contexts().back());
    return CUDA_SUCCESS;
}

CUresult push(CUcontext context) {
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;
    contexts().push_back(context);
    return CUDA_SUCCESS;
}

CUresult pop(CUcontext* out) {
    if (contexts().empty()) return CUDA_ERROR_INVALID_CONTEXT;
    *out = contexts().back();
    contexts().pop_back();
    return CUDA_SUCCESS;
}

CUresult pointer_attribute(void* out, CUpointer_attribute attribute, CUdeviceptr pointer) {
    if (attribute != CU_POINTER_ATTRIBUTE_CONTEXT) return CUDA_ERROR_NOT_SUPPORTED;
    if (!is_ours(reinterpret_cast<void*>(pointer), 1)) return CUDA_ERROR_INVALID_VALUE;
    const CUcontext owner = primary_context(0);
    std::memcpy(out, &owner, sizeof owner);
    return CUDA_SUCCESS;
}

template <class Function>
void* address(Function* function) {
    return reinterpret_cast<void*>(function);
}

void* find(const char* name) {
    const std::pair<const char*, void*> known[] = {
        {"cuGetErrorName", address(error_text)},
        {"cuGetErrorString", address(error_text)},
        {"cuInit", address(init)},
        {"cuDeviceGet", address(device_get)},
        {"cuDevicePrimaryCtxRetain", address(retain_primary)},
        {"cuCtxGetCurrent", address(get_current)},
        {"cuCtxGetDevice", address(get_device)},
        {"cuCtxPushCurrent", address(push)},
        {"cuCtxPopCurrent", address(pop)},
        {"cuPointerGetAttribute", address(pointer_attribute)},
    };
    for (const auto& [what, function] : known)
        if (std::strcmp(what, name) == 0) return function;
    return nullptr;
}

}  // namespace

CUcontext primary_context(int device) {
    return &primaries[static_cast<size_t>(device)];
}

int device_of(CUcontext context) {
    return context->device;
}

std::vector<CUcontext>& contexts() {
    thread_local std::vector<CUcontext> stack;
    return stack;
}

int& chosen_device() {
    thread_local int chosen = 0;
    return chosen;
}

}  // namespace emulator

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** out, unsigned int,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* status) {
    *out = emulator::find(symbol);
    if (status) *status = *out ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}
