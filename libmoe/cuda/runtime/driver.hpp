// CUDA driver functions that have no equal in the runtime library. They are looked up at the first
// use, so that libmoe.so loads without libcuda. The file also tracks which process first used CUDA,
// because a child made by fork() cannot use it.
#pragma once

#include <cuda.h>

namespace moe::cuda {

struct Driver {
    decltype(&::cuInit) init;
    decltype(&::cuDeviceGet) device_get;
    decltype(&::cuDevicePrimaryCtxRetain) retain_primary;
    decltype(&::cuCtxGetCurrent) get_current;
    decltype(&::cuCtxGetDevice) get_device;
    decltype(&::cuCtxPushCurrent) push;
    decltype(&::cuCtxPopCurrent) pop;
    decltype(&::cuPointerGetAttribute) pointer_attribute;
    decltype(&::cuGetErrorName) error_name;
    decltype(&::cuGetErrorString) error_string;
};

// The first call loads and initialises the driver; it fails with MOE_ERROR_NO_DEVICE.
const Driver& driver();

[[noreturn]] void fail_driver(CUresult error, const char* what);

inline void check(CUresult error, const char* what) {
    if (error != CUDA_SUCCESS) fail_driver(error, what);
}

// Returns true in a child of the process that called note_use first.
bool is_forked();
// Fails with MOE_ERROR_FORKED in such a child.
void check_not_forked();
void note_use();

}  // namespace moe::cuda
