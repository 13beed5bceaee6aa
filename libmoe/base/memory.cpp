// The default allocator, and the bridge from std::pmr to the caller's table.
#include "libmoe/base/memory.hpp"

#include <cstdlib>

namespace moe {
namespace {

// What every allocation of the CUDA runtime is aligned to.
constexpr uint64_t device_alignment = 256;

void* MOE_CALL allocate_anywhere(uint64_t bytes, uint64_t alignment, moe_space space, void*,
                                 void*) {
    if (space != MOE_SPACE_HOST) {
        if (alignment > device_alignment)
            fail(MOE_ERROR_INTERNAL, "an alignment of {} was asked of device memory, it has {}",
                 alignment, device_alignment);
        return allocate_for_device(space, bytes);
    }
    if (alignment < sizeof(void*)) alignment = sizeof(void*);
    void* memory = nullptr;
    return posix_memalign(&memory, alignment, bytes) == 0 ? memory : nullptr;
}

void MOE_CALL release_anywhere(void* memory, uint64_t, uint64_t, moe_space space, void*, void*) {
    if (space == MOE_SPACE_HOST)
        std::free(memory);
    else
        release_for_device(space, memory);
}

}  // namespace

Memory::Memory() : table_{sizeof(moe_allocator), 0, allocate_anywhere, release_anywhere, nullptr} {}

void* Memory::allocate_in(moe_space space, uint64_t bytes, uint64_t alignment, void* stream) {
    void* memory = table_.allocate(bytes, alignment, space, stream, table_.user_data);
    if (!memory) fail(MOE_ERROR_OUT_OF_MEMORY, "the allocator returned NULL for {} bytes", bytes);
    return memory;
}

void Memory::release_in(moe_space space, void* memory, uint64_t bytes, uint64_t alignment,
                        void* stream) noexcept {
    table_.release(memory, bytes, alignment, space, stream, table_.user_data);
}

void* Memory::do_allocate(size_t bytes, size_t alignment) {
    // std::pmr may request no bytes; the caller's allocator never sees such a request.
    return allocate_in(MOE_SPACE_HOST, bytes ? bytes : 1, alignment, nullptr);
}

void Memory::do_deallocate(void* memory, size_t bytes, size_t alignment) {
    release_in(MOE_SPACE_HOST, memory, bytes ? bytes : 1, alignment, nullptr);
}

}  // namespace moe
