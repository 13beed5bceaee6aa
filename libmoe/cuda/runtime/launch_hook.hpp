// Test builds (MOE_LAUNCH_HOOK) tell a test of every kernel that is launched; other builds contain
// nothing of it. moe-gpu-test compares what ran with what the plan named.
#pragma once

namespace moe::cuda {

#if defined(MOE_LAUNCH_HOOK)
// Called by the launching thread before the launch. function is null for kernels of cuBLASLt.
void report_launch(const char* kernel, const void* function);
#else
inline void report_launch(const char*, const void*) {}
#endif

}  // namespace moe::cuda
