// wgmma of sm_90a: D[64][N] += A[64][K] B[N][K]^T with float32 accumulators, of 16-bit operands
// (K = 16) or E4M3 (K = 32). A comes from registers: warp w of the warpgroup holds rows 16 w to
// 16 w + 15 as the A fragment of mma.m16n8k16, or of m16n8k32. B lies in shared memory, K-major, in
// rows of 128 bytes with the 128-byte swizzle: 16-byte vector v at v ^ (row & 7). Lane 4 g + t of
// warp w holds of D rows 16 w + g (accumulators 4 i, 4 i + 1) and 16 w + g + 8 (4 i + 2, 4 i + 3),
// columns 8 i + 2 t and 8 i + 2 t + 1.
//
// Precondition: between issue and wgmma_wait no thread touches accumulators or A registers. The
// compiler does not know this, so the wait must precede every reader inside the loop that issues
// wgmma.
#pragma once

#include <cstdint>

#include "libmoe/cuda/device/operand.hpp"

namespace moe::cuda {

// Low half of the descriptor of N rows from `address`, a multiple of 1024. Add 2 per step of K,
// 32 bytes.
__device__ __forceinline__ uint32_t wgmma_rows(uint32_t address) {
    constexpr uint32_t unused_leading_stride = 1u << 16;
    return unused_leading_stride | address >> 4;
}

__device__ __forceinline__ uint64_t wgmma_descriptor(uint32_t rows) {
    constexpr uint32_t swizzle_128_bytes = 1u << 30;
    constexpr uint32_t stride_of_8_rows = 1024 / 16;
    uint64_t descriptor;
    asm("mov.b64 %0, {%1, %2};"
        : "=l"(descriptor)
        : "r"(rows), "n"(swizzle_128_bytes | stride_of_8_rows));
    return descriptor;
}

// Orders this thread's register writes before the wgmma that follow.
__device__ __forceinline__ void wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most n_pending groups are incomplete.
template <int n_pending>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(n_pending) : "memory");
}

// Pretends to read and write the registers, so that the compiler keeps them in place until here.
template <int n>
__device__ __forceinline__ void keep(uint32_t (&registers)[n]) {
#pragma unroll
    for (int i = 0; i < n; ++i) asm volatile("" : "+r"(registers[i])::"memory");
}

template <int n>
__device__ __forceinline__ void keep(float (&registers)[n]) {
#pragma unroll
    for (int i = 0; i < n; ++i) asm volatile("" : "+f"(registers[i])::"memory");
}

// Register lists of the assembler text, 16 at a time, and their operands.
#define MOE_D0                         \
    "%0, %1, %2, %3, %4, %5, %6, %7, " \
    "%8, %9, %10, %11, %12, %13, %14, %15"
#define MOE_D1                                 \
    "%16, %17, %18, %19, %20, %21, %22, %23, " \
    "%24, %25, %26, %27, %28, %29, %30, %31"
#define MOE_D2                                 \
    "%32, %33, %34, %35, %36, %37, %38, %39, " \
    "%40, %41, %42, %43, %44, %45, %46, %47"
#define MOE_D3                                 \
    "%48, %49, %50, %51, %52, %53, %54, %55, " \
    "%56, %57, %58, %59, %60, %61, %62, %63"
#define MOE_D4                                 \
    "%64, %65, %66, %67, %68, %69, %70, %71, " \
    "%72, %73, %74, %75, %76, %77, %78, %79"
#define MOE_D5                                 \
    "%80, %81, %82, %83, %84, %85, %86, %87, " \
    "%88, %89, %90, %91, %92, %93, %94, %95"
#define MOE_D6                                     \
    "%96, %97, %98, %99, %100, %101, %102, %103, " \
    "%104, %105, %106, %107, %108, %109, %110, %111"
#define MOE_D7                                         \
    "%112, %113, %114, %115, %116, %117, %118, %119, " \
    "%120, %121, %122, %123, %124, %125, %126, %127"
#define MOE_ACCUM4(i) \
    "+f"(d[first + i]), "+f"(d[first + i + 1]), "+f"(d[first + i + 2]), "+f"(d[first + i + 3])
#define MOE_ACCUM16(i) MOE_ACCUM4(i), MOE_ACCUM4(i + 4), MOE_ACCUM4(i + 8), MOE_ACCUM4(i + 12)
// Only products of 16-bit operands say whether B is transposed.
#define MOE_WGMMA_OF(is_added, types, order, n, list, a0, a1, a2, a3, b, ...)               \
    asm volatile("{ .reg .pred add; setp." is_added                                         \
                 ".u32 add, 0, 0;\n\t"                                                      \
                 "wgmma.mma_async.sync.aligned.m64n" #n types " {" list                     \
                 "}, "                                                                      \
                 "{%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b ", add, 1, 1" order "; }" \
                 : __VA_ARGS__                                                              \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(rows))
#define MOE_WGMMA(...)                                                   \
    do {                                                                 \
        if constexpr (operand == Operand::e4m3 && adds)                  \
            MOE_WGMMA_OF("eq", "k32.f32.e4m3.e4m3", "", __VA_ARGS__);    \
        else if constexpr (operand == Operand::e4m3)                     \
            MOE_WGMMA_OF("ne", "k32.f32.e4m3.e4m3", "", __VA_ARGS__);    \
        else if constexpr (operand == Operand::f16)                      \
            MOE_WGMMA_OF("eq", "k16.f32.f16.f16", ", 0", __VA_ARGS__);   \
        else                                                             \
            MOE_WGMMA_OF("eq", "k16.f32.bf16.bf16", ", 0", __VA_ARGS__); \
    } while (false)

// The n / 2 accumulators from `first` on; d may have more. low: from wgmma_rows. Without `adds` the
// accumulators become the product.
template <int n, Operand operand, bool adds = true, int first = 0, int n_accum>
__device__ __forceinline__ void wgmma(float (&d)[n_accum], const uint32_t* a, uint32_t low) {
    static_assert(n_accum >= first + n / 2 && (adds || operand == Operand::e4m3));
    const uint64_t rows = wgmma_descriptor(low);
    if constexpr (n == 8) {
        MOE_WGMMA(8, "%0, %1, %2, %3", 4, 5, 6, 7, 8, MOE_ACCUM4(0));
    } else if constexpr (n == 16) {
        MOE_WGMMA(16, "%0, %1, %2, %3, %4, %5, %6, %7", 8, 9, 10, 11, 12, MOE_ACCUM4(0),
                  MOE_ACCUM4(4));
    } else if constexpr (n == 24) {
        MOE_WGMMA(24, "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11", 12, 13, 14, 15, 16,
                  MOE_ACCUM4(0), MOE_ACCUM4(4), MOE_ACCUM4(8));
    } else if constexpr (n == 32) {
        MOE_WGMMA(32, MOE_D0, 16, 17, 18, 19, 20, MOE_ACCUM16(0));
    } else if constexpr (n == 48) {
        MOE_WGMMA(48,
                  MOE_D0
                  ", "
                  "%16, %17, %18, %19, %20, %21, %22, %23",
                  24, 25, 26, 27, 28, MOE_ACCUM16(0), MOE_ACCUM4(16), MOE_ACCUM4(20));
    } else if constexpr (n == 64) {
        MOE_WGMMA(64, MOE_D0 ", " MOE_D1, 32, 33, 34, 35, 36, MOE_ACCUM16(0), MOE_ACCUM16(16));
    } else if constexpr (n == 96) {
        MOE_WGMMA(96, MOE_D0 ", " MOE_D1 ", " MOE_D2, 48, 49, 50, 51, 52, MOE_ACCUM16(0),
                  MOE_ACCUM16(16), MOE_ACCUM16(32));
    } else if constexpr (n == 128) {
        MOE_WGMMA(128, MOE_D0 ", " MOE_D1 ", " MOE_D2 ", " MOE_D3, 64, 65, 66, 67, 68,
                  MOE_ACCUM16(0), MOE_ACCUM16(16), MOE_ACCUM16(32), MOE_ACCUM16(48));
    } else if constexpr (n == 160) {
        MOE_WGMMA(160, MOE_D0 ", " MOE_D1 ", " MOE_D2 ", " MOE_D3 ", " MOE_D4, 80, 81, 82, 83, 84,
                  MOE_ACCUM16(0), MOE_ACCUM16(16), MOE_ACCUM16(32), MOE_ACCUM16(48),
                  MOE_ACCUM16(64));
    } else if constexpr (n == 176) {
        MOE_WGMMA(176,
                  MOE_D0 ", " MOE_D1 ", " MOE_D2 ", " MOE_D3 ", " MOE_D4
                         ", "
                         "%80, %81, %82, %83, %84, %85, %86, %87",
                  88, 89, 90, 91, 92, MOE_ACCUM16(0), MOE_ACCUM16(16), MOE_ACCUM16(32),
                  MOE_ACCUM16(48), MOE_ACCUM16(64), MOE_ACCUM4(80), MOE_ACCUM4(84));
    } else if constexpr (n == 192) {
        MOE_WGMMA(192, MOE_D0 ", " MOE_D1 ", " MOE_D2 ", " MOE_D3 ", " MOE_D4 ", " MOE_D5, 96, 97,
                  98, 99, 100, MOE_ACCUM16(0), MOE_ACCUM16(16), MOE_ACCUM16(32), MOE_ACCUM16(48),
                  MOE_ACCUM16(64), MOE_ACCUM16(80));
    } else if constexpr (n == 208) {
        MOE_WGMMA(208,
                  MOE_D0 ", " MOE_D1 ", " MOE_D2 ", " MOE_D3 ", " MOE_D4 ", " MOE_D5
                         ", "
                         "%96, %97, %98, %99, %100, %101, %102, %103",
                  104, 105, 106, 107, 108, MOE_ACCUM16(0), MOE_ACCUM16(16), MOE_ACCUM16(32),
                  MOE_ACCUM16(48), MOE_ACCUM16(64), MOE_ACCUM16(80), MOE_ACCUM4(96),
                  MOE_ACCUM4(100));
    } else if constexpr (n == 224) {
        MOE_WGMMA(224,
                  MOE_D0 ", " MOE_D1 ", " MOE_D2 ", " MOE_D3 ", " MOE_D4 ", " MOE_D5 ", " MOE_D6,
                  112, 113, 114, 115, 116, MOE_ACCUM16(0), MOE_ACCUM16(16), MOE_ACCUM16(32),
                  MOE_ACCUM16(48), MOE_ACCUM16(64), MOE_ACCUM16(80), MOE_ACCUM16(96));
    } else if constexpr (n == 240) {
        MOE_WGMMA(240,
                  MOE_D0 ", " MOE_D1 ", " MOE_D2 ", " MOE_D3 ", " MOE_D4 ", " MOE_D5 ", " MOE_D6
                         ", "
                         "%112, %113, %114, %115, %116, %117, %118, %119",
                  120, 121, 122, 123, 124, MOE_ACCUM16(0), MOE_ACCUM16(16), MOE_ACCUM16(32),
                  MOE_ACCUM16(48), MOE_ACCUM16(64), MOE_ACCUM16(80), MOE_ACCUM16(96),
                  MOE_ACCUM4(112), MOE_ACCUM4(116));
    } else if constexpr (n == 256) {
        MOE_WGMMA(256,
                  MOE_D0 ", " MOE_D1 ", " MOE_D2 ", " MOE_D3 ", " MOE_D4 ", " MOE_D5 ", " MOE_D6
                         ", " MOE_D7,
                  128, 129, 130, 131, 132, MOE_ACCUM16(0), MOE_ACCUM16(16), MOE_ACCUM16(32),
                  MOE_ACCUM16(48), MOE_ACCUM16(64), MOE_ACCUM16(80), MOE_ACCUM16(96),
                  MOE_ACCUM16(112));
    } else {
        static_assert(n == 0, "no wgmma of this width");
    }
}

#undef MOE_D0
#undef MOE_D1
#undef MOE_D2
#undef MOE_D3
#undef MOE_D4
#undef MOE_D5
#undef MOE_D6
#undef MOE_D7
#undef MOE_ACCUM4
#undef MOE_ACCUM16
#undef MOE_WGMMA
#undef MOE_WGMMA_OF

}  // namespace moe::cuda
