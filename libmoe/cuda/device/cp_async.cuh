// Asynchronous copies from global to shared memory (cp.async, sm_80). A thread commits them in
// groups and waits for the groups in order.
#pragma once

#include <cstddef>
#include <cstdint>

namespace moe::cuda {

// Both addresses are aligned to 16 bytes. If `present` is false, zeros are written and `from` is
// not read: it may be no address.
__device__ inline void copy_async_16(uint32_t to, const void* from, bool present = true) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(present ? 16 : 0)
                 : "memory");
}
__device__ inline void copy_async_16(std::byte* to, const void* from, bool present = true) {
    copy_async_16(static_cast<uint32_t>(__cvta_generic_to_shared(to)), from, present);
}

// Copies only if `present`: a predicate and no branch, so that copies that follow each other stay
// in one basic block (ptxas puts three loads of nothing before those of each).
__device__ inline void copy_async_16_if(bool present, uint32_t to, const void* from) {
    asm volatile(
        "{\n.reg .pred present;\nsetp.ne.s32 present, %2, 0;\n"
        "@present cp.async.cg.shared.global [%0], [%1], 16;\n}" ::"r"(to),
        "l"(from), "r"(static_cast<int>(present))
        : "memory");
}

// Both addresses are aligned to 4 bytes.
__device__ inline void copy_async_4(uint32_t to, const void* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}
__device__ inline void copy_async_4(void* to, const void* from) {
    copy_async_4(static_cast<uint32_t>(__cvta_generic_to_shared(to)), from);
}

// Waits for all copies of this thread, committed or not.
__device__ inline void wait_all_copies() {
    asm volatile("cp.async.wait_all;" ::: "memory");
}

__device__ inline void commit_copies() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int pending>
__device__ inline void wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

// Waits until at most `pending` (0 to 6) of this thread's groups are incomplete.
__device__ inline void wait_copies(int pending) {
    switch (pending) {
        case 6:
            return wait_copies<6>();
        case 5:
            return wait_copies<5>();
        case 4:
            return wait_copies<4>();
        case 3:
            return wait_copies<3>();
        case 2:
            return wait_copies<2>();
        case 1:
            return wait_copies<1>();
        default:
            return wait_copies<0>();
    }
}

}  // namespace moe::cuda
