// What the default allocator gives in the spaces that are not the host's: the CUDA backend's
// memory.
#include "libmoe/base/memory.hpp"
#include "libmoe/cuda/backend.hpp"

namespace moe {

void* allocate_for_device(moe_space space, uint64_t bytes) {
    return cuda::allocate(space, bytes);
}

void release_for_device(moe_space space, void* memory) noexcept {
    cuda::release(space, memory);
}

}  // namespace moe
