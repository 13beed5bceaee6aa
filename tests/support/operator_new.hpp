// Global operator new that counts. Included in exactly one source file of a test program.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace moe_test {

inline std::atomic<int64_t> n_operator_new{0};

inline void* counted_new(std::size_t bytes, std::size_t alignment) {
    n_operator_new.fetch_add(1, std::memory_order_relaxed);
    void* memory = nullptr;
    if (posix_memalign(&memory, alignment < sizeof(void*) ? sizeof(void*) : alignment,
                       bytes ? bytes : 1))
        throw std::bad_alloc();
    return memory;
}

}  // namespace moe_test

void* operator new(std::size_t bytes) {
    return moe_test::counted_new(bytes, alignof(std::max_align_t));
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
    return moe_test::counted_new(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept {
    std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
    std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
    std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
    std::free(memory);
}
