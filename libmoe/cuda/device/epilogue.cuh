// The end of a gemm (gemm_args.hpp): sums of some tokens and a group of weight tiles, in shared
// memory, become outputs. Shared memory because the activations need registers of their own, and so
// that stores of one token lie side by side.
#pragma once

#include "libmoe/base/half.hpp"
#include "libmoe/cuda/device/tile_work.cuh"
#include "libmoe/layer/activation.hpp"

namespace moe::cuda {

// Floats from token to token of the sums; the four more let the lanes of an mma's result, two
// tokens apart, write to different banks.
constexpr int sum_stride = 16 * tiles_of_group + 4;

// The global scales of an expert, rows 0 to 7 and 8 to 15 of its tiles.
__device__ inline float global_scale(const PackedMatrix& weights, int32_t expert, int half) {
    return weights.global_scale ? weights.global_scale[2 * int64_t{expert} + half] : 1.0f;
}

// One feature of the group as a thread sees it: where its sums lie, what they are multiplied by and
// what is added.
struct Feature {
    int column;  // of the sums; of gated: of gate, up lies eight further
    float scale;
    float bias;
    float up_scale;  // gated
    float up_bias;
    int64_t out;  // column of the output
};

// Column of the sums of output number f of a group. Joint tiles: eight gate rows, eight up rows;
// the outputs of gate_and_up are those of gate, then those of up.
__device__ inline int feature_column(Epilogue epilogue, int f) {
    if (epilogue == Epilogue::linear || epilogue == Epilogue::activation) return f;
    const int half = f / (8 * tiles_of_group);
    const int j = f % (8 * tiles_of_group);
    return j / 8 * 16 + j % 8 + 8 * half;
}

// The feature of a column of the group whose first tile is first_tile, which the matrix must have.
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

__device__ inline float finish_feature(const GemmArgs& gemm, const Feature& feature,
                                       const float* sums, float weight) {
    const float value = sums[feature.column] * feature.scale * weight + feature.bias;
    if (gemm.epilogue == Epilogue::gated) {
        const float up = sums[feature.column + 8] * feature.up_scale * weight + feature.up_bias;
        return round_to_type(activate(gemm.activation, value, up), gemm.round_to);
    }
    if (gemm.epilogue != Epilogue::activation) return value;
    return round_to_type(activate(gemm.activation, 0.0f, value), gemm.round_to);
}

// sums: [n_rows][sum_stride], column 16 i + r is row r of tile first_tile + i. scale multiplies
// every sum beside the global scale. All threads of the block, a multiple of 128; the sums must be
// visible.
template <int max_rows>
__device__ inline void finish_tile(const GemmArgs& gemm, const Tile& tile,
                                   const RowPlaces<max_rows>& rows, int32_t first_tile,
                                   const float* sums, float scale) {
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
        const float value = finish_feature(gemm, feature, sums + i * sum_stride, rows.weight[i]);
        store_value(out, gemm.out.type, rows.out[i] + feature.out, value);
    }
}

}  // namespace moe::cuda
