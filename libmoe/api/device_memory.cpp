// The default allocator's memory in the spaces PINNED and DEVICE.
#include "libmoe/base/memory.hpp"
#include "libmoe/device/device.hpp"

namespace moe {

void* allocate_for_device(moe_space space, uint64_t bytes) {
    return device::allocate(space, bytes);
}

void release_for_device(moe_space space, void* memory) noexcept {
    device::release(space, memory);
}

}  // namespace moe
