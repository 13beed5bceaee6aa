// Global operator new that counts, and fails where it is told to (operator_new_count.hpp). Included
// in exactly one source file of a test program.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>

#include "tests/support/operator_new_count.hpp"

namespace moe_test {

// NULL when there is none.
inline void* try_counted_new(std::size_t bytes, std::size_t alignment) noexcept {
    n_operator_new.fetch_add(1, std::memory_order_relaxed);
    void* memory = nullptr;
    if (refuses_operator_new() ||
        posix_memalign(&memory, alignment < sizeof(void*) ? sizeof(void*) : alignment,
                       bytes ? bytes : 1))
        return nullptr;
    n_operator_new_live.fetch_add(1, std::memory_order_relaxed);
    return memory;
}

inline void* counted_new(std::size_t bytes, std::size_t alignment) {
    void* memory = try_counted_new(bytes, alignment);
    if (!memory) throw std::bad_alloc();
    return memory;
}

// Not inlined: gcc would take free() after operator new for a mismatch.
[[gnu::noinline]] inline void counted_delete(void* memory) noexcept {
    if (memory) n_operator_new_live.fetch_sub(1, std::memory_order_relaxed);
    std::free(memory);
}

}  // namespace moe_test

void* operator new(std::size_t bytes) {
    return moe_test::counted_new(bytes, alignof(std::max_align_t));
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
    return moe_test::counted_new(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
    void* memory = moe_test::try_counted_new(bytes, alignof(std::max_align_t));
    if (!memory) moe_test::refuse_operator_new = -2;
    return memory;
}
void operator delete(void* memory, const std::nothrow_t&) noexcept {
    moe_test::counted_delete(memory);
}
void operator delete(void* memory) noexcept {
    moe_test::counted_delete(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
    moe_test::counted_delete(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
    moe_test::counted_delete(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
    moe_test::counted_delete(memory);
}
