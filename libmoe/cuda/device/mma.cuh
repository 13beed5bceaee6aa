// mma.sync from sm_80 on: d[16, 8] += a[16, k] b[k, 8]. Lane 4 g + t holds rows g and g + 8 of a,
// column g of b, and of d rows g and g + 8 (d[0..1], d[2..3]), columns 2 t and 2 t + 1.
#pragma once

#include "libmoe/cuda/device/operand.hpp"

namespace moe::cuda {

// k = 16: 16-bit operands, float32 accumulators.
template <Operand operand>
__device__ __forceinline__ void mma_16x8x16(float (&d)[4], const uint32_t* a, uint32_t b0,
                                            uint32_t b1) {
    if constexpr (operand == Operand::bf16) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
            "{%8,%9}, {%0,%1,%2,%3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    } else {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
            "{%8,%9}, {%0,%1,%2,%3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
}

// k = 32: byte operands (b is signed), int32 accumulators.
template <bool a_signed>
__device__ __forceinline__ void mma_16x8x32(int32_t (&d)[4], const uint32_t* a, uint32_t b0,
                                            uint32_t b1) {
    if constexpr (a_signed) {
        asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
            "{%8,%9}, {%0,%1,%2,%3};"
            : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    } else {
        asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
            "{%8,%9}, {%0,%1,%2,%3};"
            : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
}

}  // namespace moe::cuda
