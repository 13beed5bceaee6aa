// The product of a token's row with a fixed one, by a block of threads. A share is the work of a
// warp: octets of columns 32 s .. 32 s + 31 of every n_shares * 32. However many warps a block has,
// sums are the same: those of a share over its lanes, then shares in order.
#pragma once

#include "libmoe/cuda/combine/combine.hpp"
#include "libmoe/cuda/device/element.cuh"
#include "libmoe/cuda/device/warp.cuh"

namespace moe::cuda {

constexpr int32_t n_shares = 8;

// Columns past the end, in the last octet of a row, count as zero.
template <bool packets>
__device__ inline void load_octet(const void* row, moe_type type, int64_t index, int32_t left,
                                  float (&v)[8]) {
    if constexpr (packets) {
        load_values(row, type, index, v);
    } else {
#pragma unroll
        for (int c = 0; c < 8; c++) v[c] = c < left ? load_value(row, type, index + c) : 0.0f;
    }
}

__device__ inline float sum_of(const float (&values)[8]) {
    float sum = values[0];
#pragma unroll
    for (int c = 1; c < 8; c++) sum += values[c];
    return sum;
}

// Sum of every share to shared memory; the caller has the barrier.
template <int n_warps, bool packets>
__device__ void dot_shares(const DotInput& in, int64_t t, float* of_share) {
    constexpr int32_t own_shares = n_shares / n_warps;
    float sum[own_shares][8] = {};
    for (int32_t base = 0; base < in.width; base += n_shares * 256) {
#pragma unroll
        for (int32_t s = 0; s < own_shares; s++) {
            const int32_t i = base + ((warp_index() + s * n_warps) * 32 + lane_index()) * 8;
            const int32_t left = in.width - i;
            if (left <= 0) continue;
            float v[8];
            load_octet<packets>(in.x, in.type, t * in.stride + i, left, v);
#pragma unroll
            for (int c = 0; c < 8; c++)
                sum[s][c] = fmaf(v[c], c < left ? in.row[i + c] : 0.0f, sum[s][c]);
        }
    }
#pragma unroll
    for (int32_t s = 0; s < own_shares; s++) {
        const float total = warp_sum(sum_of(sum[s]));
        if (lane_index() == 0) of_share[warp_index() + s * n_warps] = total;
    }
}

__device__ inline float add_shares(const float* of_share) {
    float sum = 0.0f;
#pragma unroll
    for (int32_t s = 0; s < n_shares; s++) sum += of_share[s];
    return sum;
}

}  // namespace moe::cuda
