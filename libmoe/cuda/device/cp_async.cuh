// Asynchronous copies from global to shared memory (sm_80): 16 bytes each, counted in groups that a
// thread commits and waits for in order.
#pragma once

#include <cstddef>
#include <cstdint>

namespace moe::cuda {

// Both addresses aligned to 16 bytes. Where `present` is false zeros are written and nothing is
// read; `from` must still be an address.
__device__ inline void copy_async_16(uint32_t to, const void* from, bool present = true) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(present ? 16 : 0)
                 : "memory");
}
__device__ inline void copy_async_16(std::byte* to, const void* from, bool present = true) {
    copy_async_16(static_cast<uint32_t>(__cvta_generic_to_shared(to)), from, present);
}

// Four bytes, both addresses aligned to four.
__device__ inline void copy_async_4(void* to, const void* from) {
    const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(address), "l"(from) : "memory");
}

// Until all of this thread's copies have arrived, in groups or not.
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

// Until at most `pending` of this thread's groups, 0 to 6, are under way.
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
