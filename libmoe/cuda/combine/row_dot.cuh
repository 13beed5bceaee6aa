// Dot product of a token's row with a fixed row, by a thread block. Inputs: x [T, width] of F32,
// F16 or BF16, row [width] of float32. Output: one float32 per token.
//
// The columns are split into n_slices slices: slice s has octets 32 s .. 32 s + 31 of every
// n_slices * 32. A warp computes whole slices.
//   1. dot_slices: each slice is summed over its lanes, to shared memory
//   2. the caller synchronizes
//   3. add_slices: slices are added in order
// The result therefore does not depend on the number of warps.
#pragma once

#include "libmoe/cuda/combine/combine.hpp"
#include "libmoe/cuda/device/element.cuh"
#include "libmoe/cuda/device/warp.cuh"

namespace moe::cuda {

constexpr int32_t n_slices = 8;

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

// Stores the sum of every slice to shared memory; the caller has the barrier.
template <int n_warps, bool packets>
__device__ void dot_slices(const DotInput& in, int64_t t, float* slice_sums) {
    constexpr int32_t own_slices = n_slices / n_warps;
    float sum[own_slices][8] = {};
    for (int32_t base = 0; base < in.width; base += n_slices * 256) {
#pragma unroll
        for (int32_t s = 0; s < own_slices; s++) {
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
    for (int32_t s = 0; s < own_slices; s++) {
        const float total = warp_sum(sum_of(sum[s]));
        if (lane_index() == 0) slice_sums[warp_index() + s * n_warps] = total;
    }
}

__device__ inline float add_slices(const float* slice_sums) {
    float sum = 0.0f;
#pragma unroll
    for (int32_t s = 0; s < n_slices; s++) sum += slice_sums[s];
    return sum;
}

}  // namespace moe::cuda
