// Every kernel launch can be reported to a test: moe-gpu-test compares what ran with what the plan
// named. Builds with MOE_LAUNCH_HOOK export the function that sets the hook; in others it stays
// null.
#pragma once

#include <atomic>

namespace moe::cuda {

struct LaunchHook {
    using Function = void (*)(const char* kernel, const void* function, void* user_data);

    std::atomic<Function> function{nullptr};
    std::atomic<void*> user_data{nullptr};
};
extern LaunchHook launch_hook;

// By the launching thread, before the launch. function is null for a GEMM of cuBLASLt.
inline void report_launch(const char* kernel, const void* function) {
    if (const LaunchHook::Function hook = launch_hook.function.load(std::memory_order_acquire))
        hook(kernel, function, launch_hook.user_data.load(std::memory_order_relaxed));
}

}  // namespace moe::cuda
