// The hook of test builds: one function that the test sets, exported beside moe.h's own functions.
#include "libmoe/cuda/runtime/launch_hook.hpp"

#if defined(MOE_LAUNCH_HOOK)

#include <atomic>

#include "moe/moe.h"

namespace moe::cuda {
namespace {

using Hook = void (*)(const char* kernel, const void* function, void* user_data);

std::atomic<Hook> hook;
std::atomic<void*> hook_user_data;

}  // namespace

void report_launch(const char* kernel, const void* function) {
    if (const Hook call = hook.load(std::memory_order_acquire))
        call(kernel, function, hook_user_data.load(std::memory_order_relaxed));
}

}  // namespace moe::cuda

extern "C" MOE_API void moe_test_set_launch_hook(void (*call)(const char*, const void*, void*),
                                                 void* user_data) {
    moe::cuda::hook_user_data.store(user_data, std::memory_order_relaxed);
    moe::cuda::hook.store(call, std::memory_order_release);
}

#endif
