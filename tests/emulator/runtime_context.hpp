// Contexts: of every device one, the primary, and of every thread a stack of them.
#pragma once

#include <cuda.h>

#include <vector>

namespace emulator {

CUcontext primary_context(int device);
int device_of(CUcontext context);
std::vector<CUcontext>& contexts();
// What cudaSetDevice said last; a context says more.
int& chosen_device();

}  // namespace emulator
