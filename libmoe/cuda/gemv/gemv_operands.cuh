// Operands of the gemv kernels: 16-bit values of x or h in shared memory become the B operand of
// mma, with a block exponent where the type has one, or in two parts (GemvTiling::low_part).
//
// Inputs: vectors of eight bfloat16 or float16. Output: as many operands in shared memory.
#pragma once

#include "libmoe/cuda/dequant/gemv_blocks.cuh"
#include "libmoe/cuda/device/cp_async.cuh"
#include "libmoe/cuda/gemv/gemv_params.hpp"

namespace moe::cuda {

__device__ __forceinline__ float2 two_values(uint32_t bits, moe_type type) {
    if (type == MOE_TYPE_BF16)
        return {__uint_as_float(bits << 16), __uint_as_float(bits & 0xFFFF0000u)};
    return {f16_value(bits), f16_value(bits >> 16)};
}

// Rounds eight values to integers 256 high + low, signed bytes. Each four are stored in the order
// 0, 2, 1, 3, which the dequantized A operand has, too.
struct HighAndLow {
    uint2 high, low;

    __device__ __forceinline__ HighAndLow(const float2 (&v)[4], float factor) {
        uint32_t halves[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
            halves[i] = permute_bytes(rounded(v[i].x * factor), rounded(v[i].y * factor), 0x5140);
        high = {permute_bytes(halves[0], halves[1], 0x7362),
                permute_bytes(halves[2], halves[3], 0x7362)};
        low = {permute_bytes(halves[0], halves[1], 0x5140) ^ 0x80808080u,
               permute_bytes(halves[2], halves[3], 0x5140) ^ 0x80808080u};
    }

  private:
    // Rounds v + 128 to an integer in the low half: the mantissa of the result ends with it.
    static __device__ __forceinline__ uint32_t rounded(float v) {
        constexpr float ones = 12582912.0f;  // 1.5 x 2^23
        return __float_as_uint(v + (ones + 128.0f));
    }
};

// Stores vector number `vector` behind `to` as operands times factor. Byte operands interleave two
// vectors, 16 high bytes before 16 low ones. A lane so overwrites bytes that another lane reads,
// and the warp must synchronize between the loads and the stores.
template <class Operand>
__device__ __forceinline__ void store_vector(uint32_t to, int32_t vector, const uint4& bits,
                                             moe_type type, float factor) {
    const float2 v[4] = {two_values(bits.x, type), two_values(bits.y, type),
                         two_values(bits.z, type), two_values(bits.w, type)};
    const uint32_t at = to + 16 * vector;
    if constexpr (Operand::are_bytes) {
        const HighAndLow bytes(v, factor);
        const uint32_t first = at - (at >> 1 & 8);
        store_shared(first, bytes.high);
        store_shared(first + 16, bytes.low);
    } else {
        store_shared(at, uint4{Operand::pair(v[0].x * factor, v[0].y * factor),
                               Operand::pair(v[1].x * factor, v[1].y * factor),
                               Operand::pair(v[2].x * factor, v[2].y * factor),
                               Operand::pair(v[3].x * factor, v[3].y * factor)});
    }
}

// Are operands sums of two parts? Only bfloat16 is too narrow for float16 values.
template <class Operand>
__device__ __forceinline__ bool has_low_parts(const GemvTiling& tiling) {
    if constexpr (Operand::has_block_exponent) return false;
    return tiling.low_part != 0;
}

// The remainder of rounding a float16 to bfloat16; exact, and none of an infinity.
__device__ __forceinline__ float low_part_of(float value, float high) {
    return fabsf(value) == __int_as_float(0x7F800000) ? 0.0f : value - high;
}

// The low parts of what store_vector<Bf16> stores.
__device__ __forceinline__ void store_low_vector(uint32_t to, int32_t vector, const uint4& bits,
                                                 moe_type type, float factor) {
    const uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
    uint32_t low[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const float2 v = two_values(words[i], type);
        const float2 scaled{v.x * factor, v.y * factor};
        const FloatPair high = pair_of_bf16(bf16_pair(scaled.x, scaled.y));
        low[i] = bf16_pair(low_part_of(scaled.x, high.low), low_part_of(scaled.y, high.high));
    }
    store_shared(to + 16 * vector, uint4{low[0], low[1], low[2], low[3]});
}

// The bfloat16 to bfloat16 case: a power of two loses no bits.
__device__ __forceinline__ void store_scaled_vector(uint32_t to, const uint4& bits,
                                                    uint32_t factors) {
    store_shared(to, uint4{multiply_bf16(bits.x, factors), multiply_bf16(bits.y, factors),
                           multiply_bf16(bits.z, factors), multiply_bf16(bits.w, factors)});
}

// NaN propagates.
__device__ __forceinline__ float larger(float a, float b) {
    float v;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(v) : "f"(a), "f"(b));
    return v;
}

__device__ __forceinline__ float largest_of_vector(const uint4& bits, moe_type type) {
    float largest = 0.0f;
    const uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const float2 v = two_values(words[i], type);
        largest = larger(largest, larger(fabsf(v.x), fabsf(v.y)));
    }
    return largest;
}

__device__ __forceinline__ const std::byte* vector_at(const void* from, int32_t vector) {
    return static_cast<const std::byte*>(from) + 16 * static_cast<int64_t>(vector);
}

// A lane copies every 32nd of n vectors; most slices have at most two per lane.
__device__ __forceinline__ void copy_vectors(uint32_t to, const std::byte* from, int32_t n) {
    if (n > 0) copy_async_16(to, from);
    if (n > 32) copy_async_16(to + 512, from + 512);
#pragma unroll 1
    for (int32_t i = 64; i < n; i += 32) copy_async_16(to + 16 * i, from + 16 * i);
}

// 2^exponent.
__device__ __forceinline__ float power_of_two(int32_t exponent) {
    return __int_as_float((exponent + 127) << 23);
}

__device__ __forceinline__ float warp_largest(float largest) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        largest = larger(largest, __shfl_xor_sync(~0u, largest, distance));
    return largest;
}

// The block exponent brings the largest magnitude into [2^(top - 1), 2^top).
template <class Operand>
__device__ __forceinline__ int32_t block_exponent(float largest) {
    constexpr int32_t top = 126 + Operand::top;
    return max(-126, min(top - static_cast<int32_t>(__float_as_uint(largest) >> 23), 126));
}

// Residual scale of accumulators whose operands have a block exponent. Integer operands cannot
// carry NaN, so that it passes through here.
template <class Operand>
__device__ __forceinline__ float residual_scale_of_block(float largest) {
    const float factor = power_of_two(-block_exponent<Operand>(largest));
    if constexpr (Operand::are_bytes) return factor + 0.0f * largest;
    return factor;
}

}  // namespace moe::cuda
