// Operands of the router GEMM for the tensor cores, exact for every type: a value is a sum of up to
// three bfloat16 parts.
//
// Inputs: pairs or octets of F32, F16 or BF16 in registers. Outputs: Parts, the 16-bit operands of
// mma.m16n8k16, and float32 accumulators [16][8] of a warp.
//   1. a float32 value is split into three parts of eight bits each, a float16 value into two, both
//      exactly; a bfloat16 value is its own single part
//   2. multiply_parts issues the MMA of parts i and j with i + j <= 2. The product of two parts is
//      exact in float32; the omitted ones are below 2^-24 of the product
// Float16 times float16 needs no split because the tensor cores multiply it exactly. A value that
// is not finite makes the sums NaN.
//
// An Octet holds a fragment that comes straight from HBM. Of 32 adjacent k the lane (g, t) = (lane
// / 4, lane % 4) loads the eight k = 8 t .., which are 16 or 32 contiguous bytes of a row. It gives
// k = 8 t + 4 s .. to step s of two MMAs of depth 16. Both operands use this order, so the k
// numbering of the instruction does not matter.
#pragma once

#include "libmoe/cuda/device/element.cuh"
#include "libmoe/cuda/device/mma.cuh"

namespace moe::cuda {

constexpr int32_t k_block_size = 32;

template <moe_type type>
constexpr bool is_wide = type == MOE_TYPE_F32;

template <moe_type type, bool native>
constexpr int parts_of = is_wide<type>                     ? 3
                         : type == MOE_TYPE_F16 && !native ? 2
                                                           : 1;

// Eight values of a row, in memory order.
template <moe_type type>
struct Octet {
    uint32_t word[is_wide<type> ? 8 : 4];

    __device__ void load(const void* row, int64_t index) {
        const std::byte* from = element_at(row, type, index);
#pragma unroll
        for (int i = 0; i < (is_wide<type> ? 8 : 4); i += 4) load_words<4>(from + 4 * i, word + i);
    }

    // This variant loads rows of any alignment.
    __device__ void load_singly(const void* row, int64_t index) {
        if constexpr (is_wide<type>) {
            for (int i = 0; i < 8; i++) word[i] = static_cast<const uint32_t*>(row)[index + i];
        } else {
            const uint16_t* from = static_cast<const uint16_t*>(row) + index;
            for (int i = 0; i < 4; i++)
                word[i] = from[2 * i] | static_cast<uint32_t>(from[2 * i + 1]) << 16;
        }
    }
};

// Two pairs of values after the split: part[i][0] is of the first pair, part[i][1] of the second.
template <int n_parts>
struct Parts {
    uint32_t part[n_parts][2];
};

__device__ __forceinline__ uint32_t upper_halves(float low, float high) {
    return __byte_perm(__float_as_uint(low), __float_as_uint(high), 0x7632);
}

__device__ __forceinline__ float without_upper_half(float value) {
    return value - __uint_as_float(__float_as_uint(value) & 0xFFFF0000u);
}

template <int n_parts>
__device__ __forceinline__ void split_pair(FloatPair pair, int which, Parts<n_parts>& parts) {
#pragma unroll
    for (int i = 0; i < n_parts; i++) {
        parts.part[i][which] = upper_halves(pair.low, pair.high);
        pair = {without_upper_half(pair.low), without_upper_half(pair.high)};
    }
}

// Splits two words of 16-bit pairs.
template <moe_type type, bool native>
__device__ __forceinline__ Parts<parts_of<type, native>> split(uint32_t first, uint32_t second) {
    Parts<parts_of<type, native>> parts;
    if constexpr (type == MOE_TYPE_F16 && !native) {
        split_pair(pair_of_f16(first), 0, parts);
        split_pair(pair_of_f16(second), 1, parts);
    } else {
        parts.part[0][0] = first;
        parts.part[0][1] = second;
    }
    return parts;
}

__device__ __forceinline__ Parts<3> split(FloatPair first, FloatPair second) {
    Parts<3> parts;
    split_pair(first, 0, parts);
    split_pair(second, 1, parts);
    return parts;
}

// Splits the values that MMA step s of two consumes.
template <moe_type type, bool native>
__device__ __forceinline__ Parts<parts_of<type, native>> split(const Octet<type>& octet, int step) {
    if constexpr (is_wide<type>) {
        const uint32_t* word = octet.word + 4 * step;
        return split({__uint_as_float(word[0]), __uint_as_float(word[1])},
                     FloatPair{__uint_as_float(word[2]), __uint_as_float(word[3])});
    } else {
        return split<type, native>(octet.word[2 * step], octet.word[2 * step + 1]);
    }
}

// Computes d[16, 8] += a[16, 16] b[16, 8]: `low` and `high` are rows g and g + 8 of a, b is column
// g.
template <Operand operand, int n_a, int n_b>
__device__ __forceinline__ void multiply_parts(float (&d)[4], const Parts<n_a>& low,
                                               const Parts<n_a>& high, const Parts<n_b>& b) {
#pragma unroll
    for (int i = 0; i < n_a; i++) {
        const uint32_t a[4] = {low.part[i][0], high.part[i][0], low.part[i][1], high.part[i][1]};
#pragma unroll
        for (int j = 0; j < n_b; j++) {
            if (i + j <= 2) mma_16x8x16<operand>(d, a, b.part[j][0], b.part[j][1]);
        }
    }
}

// Compile-time choices of a kernel for these operand types.
template <moe_type x, moe_type w>
struct RouterTypes {
    static constexpr moe_type x_type = x;
    static constexpr moe_type w_type = w;
    static constexpr bool native = x == MOE_TYPE_F16 && w == MOE_TYPE_F16;
    static constexpr Operand operand = native ? Operand::f16 : Operand::bf16;
};

// Calls use(RouterTypes<x, w>{}) for the types of a call.
template <moe_type x, class Use>
auto with_router_weights(moe_type w, Use use) {
    if (w == MOE_TYPE_F32) return use(RouterTypes<x, MOE_TYPE_F32>{});
    if (w == MOE_TYPE_F16) return use(RouterTypes<x, MOE_TYPE_F16>{});
    return use(RouterTypes<x, MOE_TYPE_BF16>{});
}

template <class Use>
auto with_router_types(moe_type x, moe_type w, Use use) {
    if (x == MOE_TYPE_F32) return with_router_weights<MOE_TYPE_F32>(w, use);
    if (x == MOE_TYPE_F16) return with_router_weights<MOE_TYPE_F16>(w, use);
    return with_router_weights<MOE_TYPE_BF16>(w, use);
}

}  // namespace moe::cuda
