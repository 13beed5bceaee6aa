// Bulk copies from device to shared memory: one thread asks, the copy engine moves the bytes and
// counts them down on an mbarrier. Addresses and sizes are multiples of 16 bytes.
#pragma once

#include <cstdint>

namespace moe::cuda {

__device__ __forceinline__ void bulk_copy(uint32_t to, const void* from, uint32_t bytes,
                                          uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(to),
        "l"(from), "r"(bytes), "r"(barrier)
        : "memory");
}

}  // namespace moe::cuda
