// wgmma of E4M3 with both operands in shared memory: D[64][128] += A[64][32] B[128][32]^T. Rows of
// A are those of wgmma.cuh: 128 bytes with the 128-byte swizzle. B is matrices of eight rows of 16
// bytes without a swizzle; the two of a wgmma's k follow each other. The accumulators and the
// precondition are those of wgmma.cuh.
#pragma once

#include <cstdint>

#include "libmoe/cuda/device/wgmma.cuh"

namespace moe::cuda {

// The matrices of rows 0 to 7 begin at `address`, those of the next eight rows `step` bytes
// further; both are multiples of 16.
struct MatricesOf8Rows {
    uint32_t low, high;

    __device__ __forceinline__ MatricesOf8Rows(uint32_t address, uint32_t step)
        : low((128 / 16) << 16 | address >> 4), high(step >> 4) {}
    __device__ __forceinline__ uint64_t descriptor(uint32_t bytes) const {
        uint64_t descriptor;
        asm("mov.b64 %0, {%1, %2};" : "=l"(descriptor) : "r"(low + bytes / 16), "r"(high));
        return descriptor;
    }
};

// Without `adds` the accumulators become the product.
template <bool adds>
__device__ __forceinline__ void wgmma_shared_128(float (&d)[64], uint64_t a, uint64_t b) {
#define MOE_ACCUM4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define MOE_ACCUM16(i) MOE_ACCUM4(i), MOE_ACCUM4(i + 4), MOE_ACCUM4(i + 8), MOE_ACCUM4(i + 12)
    asm volatile(
        "{ .reg .pred add; setp.ne.u32 add, %66, 0;\n\t"
        "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
        "}, %64, %65, add, 1, 1; }"
        : MOE_ACCUM16(0), MOE_ACCUM16(16), MOE_ACCUM16(32), MOE_ACCUM16(48)
        : "l"(a), "l"(b), "n"(adds ? 1 : 0));
#undef MOE_ACCUM4
#undef MOE_ACCUM16
}

}  // namespace moe::cuda
