// Loads and stores by 32-bit shared address, which bulk copies, mbarriers and matrix descriptors
// take as well.
#pragma once

#include <cstdint>

namespace moe::cuda {

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ int32_t load_shared_signed_byte(uint32_t from) {
    int32_t value;
    asm volatile("ld.shared.s8 %0, [%1];" : "=r"(value) : "r"(from));
    return value;
}

__device__ __forceinline__ uint32_t load_shared_1(uint32_t from) {
    uint32_t value;
    asm volatile("ld.shared.u8 %0, [%1];" : "=r"(value) : "r"(from));
    return value;
}

__device__ __forceinline__ uint32_t load_shared_2(uint32_t from) {
    uint16_t value;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(value) : "r"(from));
    return value;
}

__device__ __forceinline__ uint32_t load_shared_4(uint32_t from) {
    uint32_t value;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(from));
    return value;
}

__device__ __forceinline__ uint2 load_shared_8(uint32_t from) {
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(from));
    return v;
}

__device__ __forceinline__ uint4 load_shared_16(uint32_t from) {
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(from));
    return v;
}

// Word j, a constant, of a vector.
__device__ __forceinline__ uint32_t word_of(const uint4& v, int j) {
    return j == 0 ? v.x : j == 1 ? v.y : j == 2 ? v.z : v.w;
}

__device__ __forceinline__ void store_shared(uint32_t to, uint32_t value) {
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(value) : "memory");
}

__device__ __forceinline__ void store_shared(uint32_t to, uint2 v) {
    asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(to), "r"(v.x), "r"(v.y) : "memory");
}

__device__ __forceinline__ void store_shared(uint32_t to, uint4 v) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v.x), "r"(v.y), "r"(v.z),
                 "r"(v.w)
                 : "memory");
}

// ldmatrix of four 8 x 8 matrices of 16-bit values. A lane passes the address of row lane & 7 of
// matrix lane >> 3 and receives row lane >> 2, columns 2 (lane & 3) and the next, of each matrix.
__device__ __forceinline__ void load_matrices(uint32_t from, uint32_t (&v)[4]) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"(from));
}

// stmatrix of two transposed 8 x 8 matrices of 16-bit values. A lane passes the address of row lane
// & 7 of matrix lane >> 3 and holds column lane >> 2, rows 2 (lane & 3) and the next, of each.
__device__ __forceinline__ void store_two_matrices_transposed(uint32_t to, uint32_t v0,
                                                              uint32_t v1) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(to),
                 "r"(v0), "r"(v1)
                 : "memory");
}

// The same of four matrices.
__device__ __forceinline__ void store_matrices_transposed(uint32_t to, const uint32_t (&v)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
                 "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
                 : "memory");
}

// Synchronizes `n_threads` threads of the block, whole warps, at barrier `id` (1 to 15).
__device__ __forceinline__ void named_barrier(uint32_t id, uint32_t n_threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n_threads) : "memory");
}

}  // namespace moe::cuda
