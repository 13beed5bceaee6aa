// Contexts: each device has one, the primary context, and each thread has a stack of them.
#pragma once

#include <cuda.h>

#include <vector>

namespace emulator {

CUcontext primary_context(int device);
int device_of(CUcontext context);
std::vector<CUcontext>& contexts();
// The last argument of cudaSetDevice; a context takes precedence.
int& chosen_device();

}  // namespace emulator
