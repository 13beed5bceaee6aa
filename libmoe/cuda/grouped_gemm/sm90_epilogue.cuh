// What the grouped kernel does with finished accum. A warp has the 16 rows of one packed tile; lane
// 4 g + t holds, of tokens 8 i + 2 t and the next, tile rows g (accum 4 i, 4 i + 1) and g + 8
// (4 i + 2, 4 i + 3). Outputs pass through shared memory in rounds of tokens, so that they leave in
// whole rows:
//   linear       per warpgroup, 64 features: rows of 64 values, 16-byte stores
//   activation   per warpgroup, 64 features: one block column of the output, one bulk store a round
//   gated        both warpgroups together, 64 features: likewise
#pragma once

#include "libmoe/cuda/device/bulk_copy.cuh"
#include "libmoe/cuda/device/convert.hpp"
#include "libmoe/cuda/device/fast_activation.cuh"
#include "libmoe/cuda/gemm_families.hpp"
#include "libmoe/cuda/grouped_gemm/sm90_tile_shape.cuh"

namespace moe::cuda {

template <class Shape>
using Accumulators = float[Shape::most_rows / 2];  // narrower products leave the last ones unused

// The part of a work_tile that one lane knows.
struct LaneWork {
    const GroupedGemmArgs& gemm;
    WorkTile work_tile;
    uint32_t warpgroup;   // 0 or 1
    uint32_t warp, lane;  // in the warpgroup, in the warp
    uint32_t staging;     // shared address

    __device__ uint32_t g() const { return lane >> 2; }
    __device__ uint32_t t() const { return lane & 3; }
    __device__ uint32_t thread() const { return 32 * warp + lane; }
    __device__ uint32_t local_tile() const { return 4 * warpgroup + warp; }
    __device__ int32_t packed_tile() const {
        return 8 * work_tile.row_block + static_cast<int32_t>(local_tile());
    }
    __device__ bool has_rows() const { return packed_tile() < gemm.weights.n_tiles; }
};

// Global scales and biases of the lane's two weight rows, as memory has them.
struct RowFacts {
    float scale[2] = {1.0f, 1.0f};
    float bias[2] = {0.0f, 0.0f};

    __device__ explicit RowFacts(const LaneWork& work) {
        const GroupedGemmArgs& gemm = work.gemm;
        const int64_t expert = work.work_tile.expert;
        const bool gated = gemm.epilogue == Epilogue::gated;
        const int64_t feature =
            expert * gemm.bias_stride + work.packed_tile() * (gated ? 8 : 16) + work.g();
        const float* bias_of[2] = {gemm.bias, gated ? gemm.up_bias : gemm.bias};
        for (int half = 0; half < 2; ++half) {
            if (const float* global = gemm.weights.global_scale)
                scale[half] = global[2 * expert + half];
            if (bias_of[half] && work.has_rows())
                bias[half] = bias_of[half][feature + (gated ? 0 : 8 * half)];
        }
    }
};

// Weights of the rows on their accum; accum of weight rows that do not exist are zero. Rarely
// anything to do, and then before the loops below, whose blocks of code stay long without.
template <class Shape>
__device__ __forceinline__ void scale_rows(const LaneWork& work, Accumulators<Shape>& accum) {
    if (!work.has_rows()) {
#pragma unroll
        for (float& sum : accum) sum = 0.0f;
    }
    const float* row_weight = work.gemm.row_weight;
    if (!row_weight) return;
    const int32_t* row_slot = work.gemm.row_slot;
#pragma unroll
    for (int i = 0; i < Shape::most_rows / 8; ++i) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
            const int32_t token = 8 * i + 2 * static_cast<int32_t>(work.t()) + e;
            if (token >= work.work_tile.n_rows) continue;
            const int64_t row = work.work_tile.row + token;
            const int64_t slot = row_slot ? row_slot[row] : row;
            const float weight = slot < 0 ? 0.0f : row_weight[slot];
            accum[4 * i + e] *= weight;
            accum[4 * i + e + 2] *= weight;
        }
    }
}

// Accumulators to pre-activations: times scales, plus bias.
struct Affine {
    float scale[2];
    float bias[2];

    __device__ Affine(const RowFacts& facts, float residual_scale)
        : scale{residual_scale * facts.scale[0], residual_scale * facts.scale[1]},
          bias{facts.bias[0], facts.bias[1]} {}

    // v: four accum of the same eight tokens.
    __device__ __forceinline__ void operator()(const float* accum, float (&v)[4]) const {
#pragma unroll
        for (int e = 0; e < 4; ++e) v[e] = fmaf(accum[e], scale[e >> 1], bias[e >> 1]);
    }
};

// Rows [first, first + n) of a warpgroup's 64 features, n at most `round`, from its staging rows of
// `row_bytes` with chunks of 16 bytes exchanged by `swizzle(row)`, to row-major memory.
template <int round, uint32_t value_bytes, class Swizzle>
__device__ __forceinline__ void copy_rows_out(const LaneWork& work, uint32_t staging, int32_t first,
                                              int32_t n, Swizzle swizzle) {
    constexpr uint32_t n_chunks = 4 * value_bytes;
    constexpr int32_t rows_at_once = 128 / n_chunks;
    constexpr int32_t values_per_chunk = 16 / value_bytes;
    const uint32_t chunk = work.thread() % n_chunks;
    const auto row = static_cast<int32_t>(work.thread() / n_chunks);
    const int32_t feature =
        work.packed_tile() / 4 * 64 + static_cast<int32_t>(chunk) * values_per_chunk;
    if (feature >= work.gemm.weights.n_tiles * 16) return;
    const uint32_t from = staging + row * (n_chunks * 16) + ((chunk ^ swizzle(row)) << 4);
    const int64_t stride = work.gemm.out_stride;
    std::byte* out = work.gemm.out +
                     ((int64_t(work.work_tile.row) + first + row) * stride + feature) * value_bytes;
    const int64_t step = rows_at_once * stride * value_bytes;
    uint4 values[round / rows_at_once];
#pragma unroll
    for (int i = 0; i < round / rows_at_once; ++i) values[i] = load_shared_16(from + 2048 * i);
#pragma unroll
    for (int i = 0; i < round / rows_at_once; ++i) {
        if (row + i * rows_at_once < n) *reinterpret_cast<uint4*>(out + i * step) = values[i];
    }
}

template <class Shape>
__device__ __forceinline__ void finish_linear_bf16(const LaneWork& work, const Affine& affine,
                                                   const Accumulators<Shape>& accum) {
    constexpr int round = Shape::staging_bytes / 128;
    const uint32_t staging = work.staging + work.warpgroup * Shape::staging_bytes;
    const uint32_t token = work.lane & 7;
    const uint32_t chunk = 2 * work.warp + (work.lane >> 3 & 1);
    const uint32_t address = staging + token * 128 + ((chunk ^ token) << 4);
#pragma unroll
    for (int first = 0; first < Shape::most_rows; first += round) {
        if (first >= work.work_tile.n_rows) break;
        named_barrier(1 + work.warpgroup, 128);
#pragma unroll
        for (int i = 0; i < round / 8; ++i) {
            if (i % (Shape::tokens_at_once / 8) == 0 && first + 8 * i >= work.work_tile.n_rows)
                break;
            float v[4];
            affine(accum + 4 * (first / 8 + i), v);
            store_two_matrices_transposed(address + 1024 * i, bf16_pair(v[0], v[1]),
                                          bf16_pair(v[2], v[3]));
        }
        named_barrier(1 + work.warpgroup, 128);
        copy_rows_out<round, 2>(work, staging, first, work.work_tile.n_rows - first,
                                [](int32_t row) { return static_cast<uint32_t>(row & 7); });
    }
}

template <class Shape>
__device__ __forceinline__ void finish_linear_f32(const LaneWork& work, const Affine& affine,
                                                  const Accumulators<Shape>& accum) {
    constexpr int round = Shape::staging_bytes / 256;
    const uint32_t staging = work.staging + work.warpgroup * Shape::staging_bytes;
    const uint32_t chunk = 4 * work.warp + (work.g() >> 2);
    const uint32_t row = staging + 2 * work.t() * 256 + (work.g() & 3) * 4;
    const uint32_t address[2] = {row + ((chunk ^ 2 * work.t()) << 4),
                                 row + (((chunk + 2) ^ 2 * work.t()) << 4)};
#pragma unroll
    for (int first = 0; first < Shape::most_rows; first += round) {
        if (first >= work.work_tile.n_rows) break;
        named_barrier(1 + work.warpgroup, 128);
#pragma unroll
        for (int i = 0; i < round / 8; ++i) {
            if (i % (Shape::tokens_at_once / 8) == 0 && first + 8 * i >= work.work_tile.n_rows)
                break;
            float v[4];
            affine(accum + 4 * (first / 8 + i), v);
#pragma unroll
            for (int e = 0; e < 4; ++e)
                store_shared(address[e >> 1] + (8 * i + (e & 1)) * 256, __float_as_uint(v[e]));
        }
        named_barrier(1 + work.warpgroup, 128);
        copy_rows_out<round, 4>(work, staging, first, work.work_tile.n_rows - first,
                                [](int32_t r) { return static_cast<uint32_t>(r & 6); });
    }
}

// Where a lane's values go in the 128-byte rows of a block column: features f = 16 q + 8 half + g
// with their neighbours f ^ 1 are the word q of chunk 4 half + g / 2. The lane of the even feature
// writes the words of tokens 2 t, that of the odd one of tokens 2 t + 1.
struct BlockColumn {
    uint32_t address;  // of token 8 * 0, half 0
    int32_t token;     // of eight
    bool odd;

    __device__ BlockColumn(const LaneWork& work, uint32_t staging, uint32_t q, uint32_t half) {
        odd = work.g() & 1;
        token = static_cast<int32_t>(2 * work.t() + odd);
        const uint32_t chunk = 4 * half + (work.g() >> 1);
        address = staging + token * 128 + ((chunk ^ token) << 4) + 4 * q;
    }

    // Values of tokens 8 i + 2 t and the next.
    __device__ __forceinline__ void put(int i, float v0, float v1, uint32_t other_half) const {
        const float received = __shfl_xor_sync(0xFFFFFFFFu, odd ? v0 : v1, 4);
        const uint32_t word = odd ? bf16_pair(received, v1) : bf16_pair(v0, received);
        store_shared((address ^ other_half << 6) + 1024 * i, word);
    }

    // The tokens from n on to the next multiple of eight become zero.
    __device__ __forceinline__ void clear_from(int32_t n, bool both_halves) const {
        if (token < n % 8) return;
        store_shared(address + 1024 * (n / 8), 0u);
        if (both_halves) store_shared((address ^ 64) + 1024 * (n / 8), 0u);
    }
};

// Stores rows [first, first + n) of block column `column` of the output.
__device__ __forceinline__ void store_block_rows(const LaneWork& work, uint32_t staging,
                                                 int32_t column, int32_t first, int32_t n) {
    const GroupedGemmArgs& gemm = work.gemm;
    const int64_t row = int64_t(column) * gemm.capacity + work.work_tile.row + first;
    bulk_store(gemm.out + row * 128, staging, static_cast<uint32_t>(n) * 128);
}

// Outputs of tokens 8 i; gated: v[0], v[1], else v[0..3].
template <ActivationClass kind, bool gated>
__device__ __forceinline__ void activate_accum(const Affine& affine,
                                               const FastActivation<kind>& act, const float* accum,
                                               float (&v)[4]) {
    affine(accum, v);
    if constexpr (gated) {
        v[0] = act(v[0], v[2]);
        v[1] = act(v[1], v[3]);
    } else {
#pragma unroll
        for (int e = 0; e < 4; ++e) v[e] = act.gate(v[e]);
    }
}

// The rounds of finish_activated: where a round goes and who stores it.
template <class Shape, bool gated>
struct ColumnRounds {
    static constexpr int rows = (gated ? 2 : 1) * Shape::staging_bytes / 128;
    static constexpr int round = rows < Shape::most_rows ? rows : Shape::most_rows;
    const LaneWork& work;
    uint32_t staging, barrier;
    int32_t column;
    bool storer, exists;

    __device__ explicit ColumnRounds(const LaneWork& work_)
        : work(work_),
          staging(work.staging + (gated ? 0 : work.warpgroup * Shape::staging_bytes)),
          barrier(gated ? 3 : 1 + work.warpgroup),
          column(gated ? work.work_tile.row_block : work.packed_tile() / 4),
          storer(work.thread() == 0 && (!gated || work.warpgroup == 0)),
          exists(column * (gated ? 8 : 4) < work.gemm.weights.n_tiles) {}

    __device__ void sync() const { named_barrier(barrier, gated ? 256 : 128); }

    __device__ void begin() const {
        if (storer) bulk_store_wait();
        sync();
    }
    __device__ void end(int32_t first) const {
        async_proxy_fence();
        sync();
        const int32_t left = (work.work_tile.n_rows - first + 7) / 8 * 8;
        if (storer && exists)
            store_block_rows(work, staging, column, first, left < round ? left : round);
    }
};

template <class Shape, ActivationClass kind, bool gated>
__device__ __forceinline__ void finish_activated(const LaneWork& work, const Affine& affine,
                                                 const Accumulators<Shape>& accum) {
    using Rounds = ColumnRounds<Shape, gated>;
    const Rounds rounds(work);
    const BlockColumn block(work, rounds.staging, gated ? work.local_tile() >> 1 : work.warp,
                            gated ? work.local_tile() & 1 : 0);
    const FastActivation<kind> act(work.gemm.activation);
#pragma unroll
    for (int first = 0; first < Shape::most_rows; first += Rounds::round) {
        if (first >= work.work_tile.n_rows) break;
        rounds.begin();
#pragma unroll
        for (int i = 0; i < Rounds::round / 8; ++i) {
            if (i % (Shape::tokens_at_once / 8) == 0 && first + 8 * i >= work.work_tile.n_rows)
                break;
            float v[4];
            activate_accum<kind, gated>(affine, act, accum + 4 * (first / 8 + i), v);
            block.put(i, v[0], v[1], 0);
            if constexpr (!gated) block.put(i, v[2], v[3], 1);
        }
        const int32_t left = work.work_tile.n_rows - first;
        if (left % 8 != 0 && left < Rounds::round) block.clear_from(left, !gated);
        rounds.end(first);
    }
}

// One kernel for products that end before the activation and one for those that end behind it.
template <class Shape, bool activated>
__device__ __forceinline__ void finish(const LaneWork& work, const Affine& affine,
                                       Accumulators<Shape>& accum) {
    scale_rows<Shape>(work, accum);
    if constexpr (activated) {
        with_activation_class(work.gemm.activation, [&]<ActivationClass kind>(ClassOf<kind>) {
            if (work.gemm.epilogue == Epilogue::gated)
                finish_activated<Shape, kind, true>(work, affine, accum);
            else
                finish_activated<Shape, kind, false>(work, affine, accum);
        });
    } else if (work.gemm.out_type == MOE_TYPE_F32) {
        finish_linear_f32<Shape>(work, affine, accum);
    } else {
        finish_linear_bf16<Shape>(work, affine, accum);
    }
}

}  // namespace moe::cuda
