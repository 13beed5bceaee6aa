// The epilogue of the portable grouped GEMM: accumulators of a thread block to rows of gemm.out.
//
// Inputs: float32 accumulators of mma.sync in registers. Output: rows of any type.
//
// 1. The accumulators pass through shared memory, [rows][accum_stride], in the memory of the
//    pipeline stages. Four extra floats avoid bank conflicts between the lanes of an mma result,
//    which are two tokens apart.
// 2. A thread keeps four neighbouring features, with their scales and biases in registers, for all
//    rows. Gated: the four gate columns and the four up columns eight further.
// 3. Per row: scale, row weight, bias, activation, rounding, store. There is a loop for everything,
//    and one for four elements at a time.
#pragma once

#include "libmoe/cuda/device/epilogue.cuh"
#include "libmoe/cuda/device/fast_activation.cuh"
#include "libmoe/cuda/grouped_gemm/sm80_call.cuh"

namespace moe::cuda {

static_assert(sm80_accum_stride == accum_stride);

// Stores a warp's accumulators as rows.
template <class Shape, int fragments>
__device__ __forceinline__ void sm80_store_accum(const float (&accum)[Shape::m_tiles][fragments][4],
                                                 std::byte* rows) {
    const Sm80Lane lane;
    const int tile = lane.warp / Shape::warps_n * Shape::m_tiles;
    const int row = lane.warp % Shape::warps_n * 8 * fragments + 2 * lane.t;
    float* to = reinterpret_cast<float*>(rows) + row * accum_stride + 16 * tile + lane.g;
#pragma unroll
    for (int i = 0; i < fragments; ++i)
#pragma unroll
        for (int m = 0; m < Shape::m_tiles; ++m)
#pragma unroll
            for (int j = 0; j < 4; ++j)
                to[(8 * i + (j & 1)) * accum_stride + 16 * m + 8 * (j >> 1)] = accum[m][i][j];
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
    features.exists = work.first_tile + features.column / 16 < gemm.weights.n_tiles;
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

// Four values of a row, and gated the four ups.
struct Sm80Values {
    float own[4], up[4];

    // accum: of the row, in shared memory.
    __device__ __forceinline__ void load(const float* accum, bool gated) {
        const float4 four = *reinterpret_cast<const float4*>(accum);
        own[0] = four.x, own[1] = four.y, own[2] = four.z, own[3] = four.w;
        if (!gated) return;
        const float4 ups = *reinterpret_cast<const float4*>(accum + 8);
        up[0] = ups.x, up[1] = ups.y, up[2] = ups.z, up[3] = ups.w;
    }
    __device__ __forceinline__ void finish(const Sm80Features& features, float weight, bool gated) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            own[i] = own[i] * features.scale * weight + features.bias[i];
            if (gated) up[i] = up[i] * features.up_scale * weight + features.up_bias[i];
        }
    }
    __device__ __forceinline__ void store(void* data, moe_type type, int64_t index) const {
        std::byte* to = element_at(data, type, index);
        if (type == MOE_TYPE_F32)
            *reinterpret_cast<float4*>(to) = make_float4(own[0], own[1], own[2], own[3]);
        else
            *reinterpret_cast<uint2*>(to) =
                make_uint2(narrow_pair(own[0], own[1], type), narrow_pair(own[2], own[3], type));
    }
};

// The rows of a thread: from `first` on, `step` apart.
struct Sm80OutRows {
    const float* accum;  // of row 0 in shared memory
    const int64_t* out;
    const float* weight;
    int n, first, step;
};

// Every epilogue and every output, row by row.
__device__ inline void sm80_store_any(const GemmArgs& gemm, const Sm80OutRows& rows,
                                      const Sm80Features& features) {
    void* data = const_cast<void*>(gemm.out.data);
    const bool gated = gemm.epilogue == Epilogue::gated;
    const bool is_activated = gated || gemm.epilogue == Epilogue::activation;
#pragma unroll 1
    for (int row = rows.first; row < rows.n; row += rows.step) {
        if (rows.out[row] < 0) continue;
        Sm80Values values;
        values.load(rows.accum + row * accum_stride + features.column, gated);
        values.finish(features, rows.weight[row], gated);
#pragma unroll 1
        for (int i = 0; i < 4; ++i) {
            float value = values.own[i];
            if (is_activated)
                value = round_to_type(
                    activate(gemm.activation, gated ? value : 0.0f, gated ? values.up[i] : value),
                    gemm.round_to);
            store_value(data, gemm.out.type, rows.out[row] + features.out + i, value);
        }
    }
}

struct NoActivation {};

// Outputs aligned to four elements, rounded once. at_once: rows, of which nothing else hides the
// latency.
template <int at_once, class Act>
__device__ __forceinline__ void sm80_store_fours(const GemmArgs& gemm, const Sm80OutRows& rows,
                                                 const Sm80Features& features, const Act& act) {
    constexpr bool is_activated = !std::is_same_v<Act, NoActivation>;
    void* data = const_cast<void*>(gemm.out.data);
    const bool gated = is_activated && gemm.epilogue == Epilogue::gated;
#pragma unroll 1
    for (int i = rows.first; i < rows.n; i += at_once * rows.step) {
        Sm80Values values[at_once];
        float weight[at_once];
        int64_t to[at_once];
#pragma unroll
        for (int u = 0; u < at_once; ++u) {
            const int row = min(i + u * rows.step, rows.n - 1);
            values[u].load(rows.accum + row * accum_stride + features.column, gated);
            weight[u] = rows.weight[row];
            to[u] = row == i + u * rows.step ? rows.out[row] : -1;
        }
#pragma unroll
        for (int u = 0; u < at_once; ++u) {
            values[u].finish(features, weight[u], gated);
            if constexpr (is_activated) {
#pragma unroll
                for (int j = 0; j < 4; ++j)
                    values[u].own[j] =
                        gated ? act(values[u].own[j], values[u].up[j]) : act.gate(values[u].own[j]);
            }
        }
#pragma unroll
        for (int u = 0; u < at_once; ++u)
            if (to[u] >= 0) values[u].store(data, gemm.out.type, to[u] + features.out);
    }
}

// All threads of the block call it, when the accumulators are in shared memory.
template <class Shape>
__device__ __forceinline__ void sm80_store_rows(const Sm80Call& call, const Sm80Work& work,
                                                const TileRows<Shape::max_rows>& rows,
                                                const std::byte* accum, float residual) {
    const GemmArgs& gemm = call.gemm;
    const bool gated = gemm.epilogue == Epilogue::gated;
    const int shift = gated ? 4 : 5;  // log2 of the threads of a row
    static_assert(sm80_tiles_of_block == 8);
    auto thread = static_cast<int>(threadIdx.x);
    // The compiler would compute features before all items, in registers that mainloops want.
    compute_now(thread);
    const Sm80Features features = sm80_features(gemm, work, thread & ((1 << shift) - 1), residual);
    if (!features.exists) return;
    const Sm80OutRows of_thread{reinterpret_cast<const float*>(accum),
                                rows.out,
                                rows.weight,
                                work.tile.n_rows,
                                thread >> shift,
                                sm80_threads<Shape> >> shift};
    if (!call.stores_fours) return sm80_store_any(gemm, of_thread, features);
    if (!gated && gemm.epilogue != Epilogue::activation)
        return sm80_store_fours<4>(gemm, of_thread, features, NoActivation{});
    with_activation_class(gemm.activation, [&]<ActivationClass kind>(ClassOf<kind>) {
        sm80_store_fours<kind == ActivationClass::silu ? 2 : 1>(
            gemm, of_thread, features, FastActivation<kind>(gemm.activation));
    });
}

}  // namespace moe::cuda
