// The epilogue of the portable grouped GEMM: accumulators of a thread block to rows of gemm.out.
//
// Inputs: float32 accumulators of mma.sync in registers. Output: rows of any type.
//
// 1. The accumulators of as many rows as fit pass through shared memory, [rows][accum_stride], in
//    the memory of the pipeline stages. Four extra floats avoid bank conflicts between the lanes of
//    an mma result, which are two tokens apart.
// 2. A thread keeps four neighbouring features, with their scales and biases in registers, for all
//    rows. Gated: the four gate columns and the four up columns eight further.
// 3. Per row: scale, row weight, bias, activation, rounding; one store of four elements where rows
//    begin on a multiple of four, else four stores.
#pragma once

#include "libmoe/cuda/device/epilogue.cuh"
#include "libmoe/cuda/grouped_gemm/sm80_call.cuh"

namespace moe::cuda {

// Stores the fragments [first, first + n) of a warp's tokens. Row 0 of `to` is that of fragment
// `first` of the first warp.
template <class Shape, int fragments>
__device__ __forceinline__ void sm80_store_accum(const float (&accum)[Shape::m_tiles][fragments][4],
                                                 int first, int n, float* to) {
    const Sm80Lane lane;
    const int tile = lane.warp / Shape::warps_n * Shape::m_tiles;
    const int row = lane.warp % Shape::warps_n * 8 * n + 2 * lane.t;
#pragma unroll
    for (int i = 0; i < fragments; ++i) {
        if (i < first || i >= first + n) continue;
#pragma unroll
        for (int m = 0; m < Shape::m_tiles; ++m)
#pragma unroll
            for (int j = 0; j < 4; ++j)
                to[(row + 8 * (i - first) + (j & 1)) * accum_stride + 16 * (tile + m) + lane.g +
                   8 * (j >> 1)] = accum[m][i][j];
    }
}

// Four features of a thread.
struct Sm80Features {
    int column;  // of the first accumulator
    bool exists;
    float scale, up_scale;  // of columns and, gated, of the columns eight further
    float bias[4], up_bias[4];
    int64_t out;  // first output column
};

__device__ inline Sm80Features sm80_features(const GemmArgs& gemm, const Sm80Work& work, int number,
                                             float residual) {
    Sm80Features features{};
    features.column = feature_column(gemm.epilogue, 4 * number);
    features.exists = features.column / 16 < work.n_tiles;
    if (!features.exists) return features;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const Feature one =
            find_feature(gemm, work.tile.expert, work.first_tile, features.column + i, residual);
        features.scale = one.scale;
        features.up_scale = one.up_scale;
        features.bias[i] = one.bias;
        features.up_bias[i] = one.up_bias;
        if (i == 0) features.out = one.out;
    }
    return features;
}

__device__ __forceinline__ void sm80_values(const GemmArgs& gemm, const Sm80Features& features,
                                            const float* accum, float weight, float (&out)[4]) {
    const float4 own = *reinterpret_cast<const float4*>(accum + features.column);
    const float values[4] = {own.x, own.y, own.z, own.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) out[i] = values[i] * features.scale * weight + features.bias[i];
    if (gemm.epilogue != Epilogue::gated && gemm.epilogue != Epilogue::activation) return;
    // One call for both epilogues: activations are long, and every kernel has a copy of this code.
    float gate[4] = {}, up[4] = {out[0], out[1], out[2], out[3]};
    if (gemm.epilogue == Epilogue::gated) {
        const float4 four = *reinterpret_cast<const float4*>(accum + features.column + 8);
        const float ups[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            gate[i] = out[i];
            up[i] = ups[i] * features.up_scale * weight + features.up_bias[i];
        }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
        out[i] = round_to_type(activate(gemm.activation, gate[i], up[i]), gemm.round_to);
}

__device__ __forceinline__ void sm80_store_four(void* data, moe_type type, int64_t index,
                                                const float (&v)[4]) {
    std::byte* to = element_at(data, type, index);
    if (type == MOE_TYPE_F32)
        *reinterpret_cast<float4*>(to) = make_float4(v[0], v[1], v[2], v[3]);
    else
        *reinterpret_cast<uint2*>(to) =
            make_uint2(narrow_pair(v[0], v[1], type), narrow_pair(v[2], v[3], type));
}

// Rows [0, n) of `accum` are rows of the token tile from `row` on; those of the second and later
// warps along the tokens begin `warp_rows` apart in the tile and n_of_warp apart in `accum`. Not
// inlined: it is long, and all kernels of a file share it.
template <class Shape>
__device__ __noinline__ void sm80_store_rows(const Sm80Call& call, const Sm80Work& work,
                                             const TileRows<Shape::max_rows>& rows,
                                             const float* accum, int row, int n_of_warp,
                                             int warp_rows, float residual) {
    const GemmArgs& gemm = call.gemm;
    const int in_row =
        gemm.epilogue == Epilogue::gated ? 2 * sm80_tiles_of_block : 4 * sm80_tiles_of_block;
    const auto thread = static_cast<int>(threadIdx.x);
    const Sm80Features features = sm80_features(gemm, work, thread % in_row, residual);
    if (!features.exists) return;
    void* out = const_cast<void*>(gemm.out.data);
    const int step = sm80_threads<Shape> / in_row;
#pragma unroll 1
    for (int i = thread / in_row; i < n_of_warp * Shape::warps_n; i += step) {
        const int of_tile = row + i / n_of_warp * warp_rows + i % n_of_warp;
        if (of_tile >= work.tile.n_rows || rows.out[of_tile] < 0) continue;
        float values[4];
        sm80_values(gemm, features, accum + i * accum_stride, rows.weight[of_tile], values);
        const int64_t at = rows.out[of_tile] + features.out;
        if (call.stores_fours) {
            sm80_store_four(out, gemm.out.type, at, values);
        } else {
#pragma unroll
            for (int j = 0; j < 4; ++j) store_value(out, gemm.out.type, at + j, values[j]);
        }
    }
}

// All threads of the block call it; the stages must be free. It ends with a barrier.
template <class Shape, int fragments>
__device__ __forceinline__ void sm80_epilogue(const Sm80Call& call, const Sm80Work& work,
                                              const TileRows<Shape::max_rows>& rows,
                                              const float (&accum)[Shape::m_tiles][fragments][4],
                                              std::byte* stages, float residual) {
    auto* in_memory = reinterpret_cast<float*>(stages);
    const auto store = [&](int first, int n) {
        sm80_store_accum<Shape, fragments>(accum, first, n, in_memory);
        __syncthreads();
        sm80_store_rows<Shape>(call, work, rows, in_memory, 8 * first, 8 * n, 8 * fragments,
                               residual);
        __syncthreads();
    };
    const int fit = call.shared_bytes / (Shape::warps_n * 8 * accum_stride * 4);
    if (fit >= fragments) return store(0, fragments);
#pragma unroll 1
    for (int first = 0; first < fragments && 8 * first < work.tile.n_rows; first += fit)
        store(first, min(fit, fragments - first));
}

}  // namespace moe::cuda
