// Epilogue of the portable and exact GEMMs (gemm_args.hpp): accumulators of a work item to
// outputs.
//
// Input: float32 accumulators [n_rows][accum_stride] in shared memory. Output: rows of gemm.out,
// any type. Precondition: the accumulators are visible to the block, which has a multiple of 128
// threads. They pass through shared memory because activations need registers, and to make stores
// coalesced.
//
// 1. A thread takes one feature of the group and loads its scale and bias.
// 2. Per token: scale, row weight, bias, activation, rounding, store.
#pragma once

#include "libmoe/base/half.hpp"
#include "libmoe/cuda/device/tile_work.cuh"
#include "libmoe/layer/activation.hpp"

namespace moe::cuda {

// Floats between the accumulators of two tokens. Four extra floats avoid bank conflicts between the
// lanes of an mma result, which are two tokens apart.
constexpr int accum_stride = 16 * tiles_of_group + 4;

// Global scale of an expert for an M half: rows 0-7 or 8-15 of its tiles.
__device__ inline float global_scale(const PackedMatrix& weights, int32_t expert, int half) {
    return weights.global_scale ? weights.global_scale[2 * int64_t{expert} + half] : 1.0f;
}

// One feature of the group: the column of its accumulators, its scale and its bias.
struct Feature {
    int column;  // of the accumulator; gated: of the gate half, the up half is 8 columns further
    float scale;
    float bias;
    float up_scale;  // gated only
    float up_bias;
    int64_t out;  // output column
};

// Column of the accumulators of output f of a group. Fused gate_up tiles hold eight gate rows, then
// eight up rows; the outputs of gate_and_up are all gates, then all ups.
__device__ inline int feature_column(Epilogue epilogue, int f) {
    if (epilogue == Epilogue::linear || epilogue == Epilogue::activation) return f;
    const int half = f / (8 * tiles_of_group);
    const int j = f % (8 * tiles_of_group);
    return j / 8 * 16 + j % 8 + 8 * half;
}

// The feature of a column of the group at first_tile, which must exist in the matrix.
__device__ inline Feature find_feature(const GemmArgs& gemm, int32_t expert, int32_t first_tile,
                                       int column, float scale) {
    const int64_t biases = expert * gemm.bias_stride;
    const auto bias = [&](const float* of, int64_t i) { return of ? of[biases + i] : 0.0f; };
    const float low = global_scale(gemm.weights, expert, 0) * scale;
    const float high = global_scale(gemm.weights, expert, 1) * scale;
    const int half = column >> 3 & 1;
    const float own = half ? high : low;
    if (gemm.epilogue == Epilogue::linear || gemm.epilogue == Epilogue::activation) {
        const int64_t i = int64_t{first_tile} * 16 + column;
        return {column, own, bias(gemm.bias, i), 0.0f, 0.0f, i};
    }
    const int64_t i = int64_t{first_tile + column / 16} * 8 + column % 8;
    if (gemm.epilogue == Epilogue::gated) {
        return {column, low, bias(gemm.bias, i), high, bias(gemm.up_bias, i), i};
    }
    const int64_t n_features = int64_t{gemm.weights.n_tiles} * 8;
    return {column, own,  bias(half ? gemm.up_bias : gemm.bias, i),
            0.0f,   0.0f, half * n_features + i};
}

__device__ inline float feature_epilogue(const GemmArgs& gemm, const Feature& feature,
                                         const float* accum, float weight) {
    const float value = accum[feature.column] * feature.scale * weight + feature.bias;
    if (gemm.epilogue == Epilogue::gated) {
        const float up = accum[feature.column + 8] * feature.up_scale * weight + feature.up_bias;
        return round_to_type(activate(gemm.activation, value, up), gemm.round_to);
    }
    if (gemm.epilogue != Epilogue::activation) return value;
    return round_to_type(activate(gemm.activation, 0.0f, value), gemm.round_to);
}

// Column 16 i + r of accum is row r of tile first_tile + i. `scale` multiplies every accumulator
// besides the global scale. All threads of the block call it.
template <int max_rows>
__device__ inline void tile_epilogue(const GemmArgs& gemm, const Tile& tile,
                                     const TileRows<max_rows>& rows, int32_t first_tile,
                                     const float* accum, float scale) {
    const int width = gemm.epilogue == Epilogue::gated ? 8 * tiles_of_group : 16 * tiles_of_group;
    const int thread = static_cast<int>(threadIdx.x);
    const int column = feature_column(gemm.epilogue, thread % width);
    if (first_tile + column / 16 >= gemm.weights.n_tiles) return;
    const Feature feature = find_feature(gemm, tile.expert, first_tile, column, scale);
    void* out = const_cast<void*>(gemm.out.data);
    const int step = static_cast<int>(blockDim.x) / width;
#pragma unroll 1
    for (int i = thread / width; i < tile.n_rows; i += step) {
        if (rows.out[i] < 0) continue;
        const float value =
            feature_epilogue(gemm, feature, accum + i * accum_stride, rows.weight[i]);
        store_value(out, gemm.out.type, rows.out[i] + feature.out, value);
    }
}

}  // namespace moe::cuda
