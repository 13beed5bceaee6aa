#include "libmoe/cuda/runtime/launch_hook.hpp"

#include <cuda_runtime_api.h>

#include "moe/moe.h"

namespace moe::cuda {

LaunchHook launch_hook;

}  // namespace moe::cuda

#if defined(MOE_LAUNCH_HOOK)

// Not in moe.h: tests look it up by name. NULL takes the hook away.
extern "C" MOE_API void moe_test_set_launch_hook(void (*hook)(const char*, const void*, void*),
                                                 void* user_data) {
    moe::cuda::launch_hook.user_data.store(user_data, std::memory_order_relaxed);
    moe::cuda::launch_hook.function.store(hook, std::memory_order_release);
}

// The mangled name of a kernel that the hook was told of, by the runtime that the library is linked
// with: no other one knows its functions. NULL where it knows none.
extern "C" MOE_API const char* moe_test_function_name(const void* function) {
    const char* name = nullptr;
    return cudaFuncGetName(&name, function) == cudaSuccess ? name : nullptr;
}

#endif
