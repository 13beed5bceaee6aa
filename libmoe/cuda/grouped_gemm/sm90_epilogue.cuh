// Epilogue of the sm90 grouped GEMM: accumulators of a work tile to outputs (step 4 of
// sm90_grouped_gemm.cuh).
//
// Inputs: float32 accumulators in registers. A warp holds the 16 rows of one packed tile. Lane 4 g
// + t holds tokens 8 i + 2 t and 8 i + 2 t + 1 of tile row g (accumulators 4 i, 4 i + 1) and of row
// g + 8 (4 i + 2, 4 i + 3).
// Outputs: rows of bfloat16, float16 or float32 (linear), by an index where there is one, or token
// blocks (activated, gated) of bfloat16 or, of
// kernels with float16 operands, of the output's type.
// Preconditions: all consumer threads of a warpgroup call it; gated needs both warpgroups.
//
// 1. Multiply by the row weights; clear the accumulators of weight rows that do not exist.
// 2. Per round of tokens: scale, add bias, activate, and store to the staging memory. The staging
//    memory makes global stores coalesced.
// 3. Copy the round to global memory, by one of these paths:
//   linear      per warpgroup, 64 features: rows of 64 values, 16-byte stores
//   activation  per warpgroup, 64 features: one block column of the output, a bulk store per round
//   gated       both warpgroups, 64 features: one block column, a bulk store per round
// An activation of up with the values of its gate, from a launch before, is one of `activation`.
#pragma once

#include "libmoe/cuda/device/bulk_copy.cuh"
#include "libmoe/cuda/device/convert.hpp"
#include "libmoe/cuda/device/fast_activation.cuh"
#include "libmoe/cuda/grouped_gemm/grouped_gemm.hpp"
#include "libmoe/cuda/grouped_gemm/sm90_call.hpp"
#include "libmoe/cuda/grouped_gemm/sm90_tile_shape.cuh"

namespace moe::cuda {

template <class Shape>
using Accumulators = float[Shape::most_rows / 2];  // narrower tiles leave the last ones unused

// A work tile as one lane sees it.
struct LaneWork {
    const Sm90Call& gemm;
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

// Global scales and biases of the lane's two weight rows.
struct RowTerms {
    float scale[2] = {1.0f, 1.0f};
    float bias[2] = {0.0f, 0.0f};

    __device__ explicit RowTerms(const LaneWork& work) {
        const GemmArgs& gemm = work.gemm;
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

// Calls pass(begin) for each `rows` of a work tile's rows from row `begin` on, with their
// accumulators as the first of `accum`. Registers have no index at run time, so code for all rows
// of a wide tile at once is large. Passes make it smaller, and calls up to 12 percent slower.
template <class Shape, int rows, class Pass>
__device__ __forceinline__ void each_pass(const LaneWork& work, Accumulators<Shape>& accum,
                                          Pass pass) {
    static_assert(Shape::most_rows % rows == 0);
    if constexpr (rows == Shape::most_rows) {
        pass(0);
    } else {
#pragma unroll 1
        for (int32_t begin = 0;; begin += rows) {
            pass(begin);
            if (begin + rows >= work.work_tile.n_rows) break;
#pragma unroll
            for (int i = 0; i < (Shape::most_rows - rows) / 2; ++i) accum[i] = accum[i + rows / 2];
        }
    }
}

// Applies row weights and clears accumulators of weight rows that do not exist, of n rows from
// `begin` on. It rarely does anything, and a separate pass keeps the branches out of the loops
// below.
template <int n, int n_accum>
__device__ __forceinline__ void scale_rows(const LaneWork& work, float (&accum)[n_accum],
                                           int32_t begin) {
    if (!work.has_rows()) {
#pragma unroll
        for (int i = 0; i < n / 2; ++i) accum[i] = 0.0f;
    }
    const float* row_weight = work.gemm.row_weight;
    if (!row_weight) return;
    const int32_t* row_slot = work.gemm.row_slot;
#pragma unroll
    for (int i = 0; i < n / 8; ++i) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
            const int32_t token = begin + 8 * i + 2 * static_cast<int32_t>(work.t()) + e;
            if (token >= work.work_tile.n_rows) continue;
            const int64_t row = work.work_tile.row + token;
            const int64_t slot = row_slot ? row_slot[row] : row;
            const float weight = slot < 0 ? 0.0f : row_weight[slot];
            accum[4 * i + e] *= weight;
            accum[4 * i + e + 2] *= weight;
        }
    }
}

// Maps accumulators to pre-activations: scale, then bias.
struct Affine {
    float scale[2];
    float bias[2];

    __device__ Affine(const RowTerms& terms, float residual_scale)
        : scale{residual_scale * terms.scale[0], residual_scale * terms.scale[1]},
          bias{terms.bias[0], terms.bias[1]} {}

    // v: four accumulators of the same eight tokens.
    __device__ __forceinline__ void operator()(const float* accum, float (&v)[4]) const {
#pragma unroll
        for (int e = 0; e < 4; ++e) v[e] = fmaf(accum[e], scale[e >> 1], bias[e >> 1]);
    }
};

// Copies rows [first, first + n) of a warpgroup's 64 features to row-major global memory; n is at
// most `round`. Staging rows swizzle their 16-byte vectors by `swizzle(row)` to avoid bank
// conflicts.
template <int round, uint32_t value_bytes, class Swizzle>
__device__ __forceinline__ void copy_rows_out(const LaneWork& work, uint32_t staging, int32_t first,
                                              int32_t n, Swizzle swizzle) {
    constexpr uint32_t n_vectors = 4 * value_bytes;
    constexpr int32_t rows_at_once = 128 / n_vectors;
    constexpr int32_t values_per_vector = 16 / value_bytes;
    const uint32_t vector = work.thread() % n_vectors;
    const auto row = static_cast<int32_t>(work.thread() / n_vectors);
    const int32_t feature =
        work.packed_tile() / 4 * 64 + static_cast<int32_t>(vector) * values_per_vector;
    if (feature >= work.gemm.weights.n_tiles * 16) return;
    const uint32_t from = staging + row * (n_vectors * 16) + ((vector ^ swizzle(row)) << 4);
    const int64_t stride = work.gemm.out.stride;
    const int64_t first_row = int64_t(work.work_tile.row) + first + row;
    uint4 values[round / rows_at_once];
#pragma unroll
    for (int i = 0; i < round / rows_at_once; ++i) values[i] = load_shared_16(from + 2048 * i);
    if (const int32_t* index = work.gemm.out.index) {
#pragma unroll
        for (int i = 0; i < round / rows_at_once; ++i) {
            if (row + i * rows_at_once >= n) break;
            const int64_t to = index[first_row + i * rows_at_once];
            if (to < 0) continue;
            *reinterpret_cast<uint4*>(work.gemm.out_bytes() +
                                      (to * stride + feature) * value_bytes) = values[i];
        }
        return;
    }
    std::byte* out = work.gemm.out_bytes() + (first_row * stride + feature) * value_bytes;
    const int64_t step = rows_at_once * stride * value_bytes;
#pragma unroll
    for (int i = 0; i < round / rows_at_once; ++i) {
        if (row + i * rows_at_once < n) *reinterpret_cast<uint4*>(out + i * step) = values[i];
    }
}

// Half of the staging memory takes a round while the round before is copied.
template <class Shape>
__device__ __forceinline__ void store_linear_16bit(const LaneWork& work, const Affine& affine,
                                                   const Accumulators<Shape>& accum) {
    constexpr int round = Shape::staging_bytes / 256 / 16 * 16;
    static_assert(Shape::most_rows % round == 0);
    const uint32_t staging = work.staging + work.warpgroup * Shape::staging_bytes;
    const uint32_t token = work.lane & 7;
    const uint32_t vector = 2 * work.warp + (work.lane >> 3 & 1);
    const uint32_t address = (8 * (work.lane >> 4) + token) * 128 + ((vector ^ token) << 4);
    const bool in_f16 = work.gemm.out.type == MOE_TYPE_F16;
    named_barrier(1 + work.warpgroup, 128);
#pragma unroll
    for (int first = 0; first < Shape::most_rows; first += round) {
        const int32_t left = work.work_tile.n_rows - first;
        if (left <= 0) break;
        const uint32_t half = staging + first / round % 2 * (Shape::staging_bytes / 2);
#pragma unroll
        for (int i = 0; i < round / 8; i += 2) {
            if (i % (Shape::tokens_at_once / 8) == 0 && 8 * i >= left) break;
            uint32_t words[4];
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                float v[4];
                affine(accum + 4 * (first / 8 + i + j), v);
                words[2 * j] = in_f16 ? f16_pair(v[0], v[1]) : bf16_pair(v[0], v[1]);
                words[2 * j + 1] = in_f16 ? f16_pair(v[2], v[3]) : bf16_pair(v[2], v[3]);
            }
            store_matrices_transposed(half + address + 1024 * i, words);
        }
        named_barrier(1 + work.warpgroup, 128);
        copy_rows_out<round, 2>(work, half, first, left,
                                [](int32_t row) { return static_cast<uint32_t>(row & 7); });
    }
}

template <class Shape>
__device__ __forceinline__ void store_linear_f32(const LaneWork& work, const Affine& affine,
                                                 const Accumulators<Shape>& accum) {
    constexpr int round = Shape::staging_bytes / 256;
    static_assert(Shape::most_rows % round == 0);
    const uint32_t staging = work.staging + work.warpgroup * Shape::staging_bytes;
    const uint32_t vector = 4 * work.warp + (work.g() >> 2);
    const uint32_t row = staging + 2 * work.t() * 256 + (work.g() & 3) * 4;
    const uint32_t address[2] = {row + ((vector ^ 2 * work.t()) << 4),
                                 row + (((vector + 2) ^ 2 * work.t()) << 4)};
#pragma unroll
    for (int first = 0; first < Shape::most_rows; first += round) {
        const int32_t left = work.work_tile.n_rows - first;
        if (left <= 0) break;
        named_barrier(1 + work.warpgroup, 128);
#pragma unroll
        for (int i = 0; i < round / 8; ++i) {
            if (i % (Shape::tokens_at_once / 8) == 0 && 8 * i >= left) break;
            float v[4];
            affine(accum + 4 * (first / 8 + i), v);
#pragma unroll
            for (int e = 0; e < 4; ++e)
                store_shared(address[e >> 1] + (8 * i + (e & 1)) * 256, __float_as_uint(v[e]));
        }
        named_barrier(1 + work.warpgroup, 128);
        copy_rows_out<round, 4>(work, staging, first, left,
                                [](int32_t r) { return static_cast<uint32_t>(r & 6); });
    }
}

// Places a lane's values in the 128-byte rows of a block column. Features f = 16 q + 8 half + g and
// f ^ 1 form word q of vector 4 half + g / 2. The lane of the even feature writes the words of
// tokens 2 t, the lane of the odd one those of tokens 2 t + 1.
template <Operand operand>
struct BlockColumn {
    uint32_t address;  // of tokens 0 to 7, half 0
    int32_t token;     // 0 to 7
    bool odd;
    bool in_f16;

    __device__ BlockColumn(const LaneWork& work, uint32_t staging, uint32_t q, uint32_t half) {
        odd = work.g() & 1;
        in_f16 = operand == Operand::f16 && work.gemm.out.type == MOE_TYPE_F16;
        token = static_cast<int32_t>(2 * work.t() + odd);
        const uint32_t vector = 4 * half + (work.g() >> 1);
        address = staging + token * 128 + ((vector ^ token) << 4) + 4 * q;
    }

    // v0 and v1 belong to tokens 8 i + 2 t and 8 i + 2 t + 1 of the rows that are staged at `at`.
    __device__ __forceinline__ void put(uint32_t at, int i, float v0, float v1,
                                        uint32_t other_half) const {
        const float received = __shfl_xor_sync(0xFFFFFFFFu, odd ? v0 : v1, 4);
        const float low = odd ? received : v0, high = odd ? v1 : received;
        const uint32_t word = in_f16 ? f16_pair(low, high) : bf16_pair(low, high);
        store_shared((address ^ other_half << 6) + at + 1024 * i, word);
    }

    // Zeros the padding from token n to the next multiple of eight.
    __device__ __forceinline__ void clear_from(uint32_t at, int32_t n, bool both_halves) const {
        if (token < n % 8) return;
        store_shared(address + at + 1024 * (n / 8), 0u);
        if (both_halves) store_shared((address ^ 64) + at + 1024 * (n / 8), 0u);
    }
};

// Stores rows [first, first + n) of block column `column` of the output.
__device__ __forceinline__ void store_block_rows(const LaneWork& work, uint32_t staging,
                                                 int32_t column, int32_t first, int32_t n) {
    const GemmArgs& gemm = work.gemm;
    const int64_t row = int64_t(column) * gemm.out_capacity + work.work_tile.row + first;
    bulk_store(gemm.out_bytes() + row * 128, staging, static_cast<uint32_t>(n) * 128);
}

// The gate's values beside a lane's accumulators of `rows` rows. They are loaded together, because
// nothing else hides their latency.
template <int rows>
struct GateRows {
    const float* from = nullptr;  // of token 2 t and the lane's first feature; null: no gate
    int64_t stride;
    float values[rows / 8][4];

    __device__ explicit GateRows(const LaneWork& work) : stride(work.gemm.gate_stride) {
        if (!work.gemm.gate_values || !work.has_rows()) return;
        from = work.gemm.gate_values + (work.work_tile.row + 2 * work.t()) * stride +
               16 * work.packed_tile() + work.g();
    }
    // Loads those of the rows from `first` on; the tile has n_rows.
    __device__ __forceinline__ void load(int first, int32_t n_rows) {
        if (!from) return;
#pragma unroll
        for (int i = 0; i < rows / 8; ++i) {
            if (first + 8 * i >= n_rows) break;
#pragma unroll
            for (int e = 0; e < 4; ++e)
                values[i][e] = from[(first + 8 * i + (e & 1)) * stride + 8 * (e >> 1)];
        }
    }
};

// Gated outputs are v[0] and v[1], others v[0..3]. `gates`: of up with a gate of its own; null:
// none.
template <ActivationClass kind, bool gated>
__device__ __forceinline__ void activate_accum(const Affine& affine,
                                               const FastActivation<kind>& act, const float* accum,
                                               const float* gates, float (&v)[4]) {
    affine(accum, v);
    if constexpr (gated) {
        v[0] = act(v[0], v[2]);
        v[1] = act(v[1], v[3]);
    } else if (gates) {
#pragma unroll
        for (int e = 0; e < 4; ++e) v[e] = act(gates[e], v[e]);
    } else {
#pragma unroll
        for (int e = 0; e < 4; ++e) v[e] = act.gate(v[e]);
    }
}

// Synchronization and global stores around the rounds of store_activated. Half of the staging
// memory takes a round while the round before is stored, unless all of it takes a work tile.
template <class Shape, int rows_of_pass, bool gated>
struct ColumnRounds {
    static constexpr int rows = (gated ? 2 : 1) * Shape::staging_bytes / 128;
    static constexpr bool in_halves = rows < Shape::most_rows;
    // A round has the most rows of half the memory by which a pass can be divided.
    static constexpr int round = [] {
        if (!in_halves) return rows_of_pass;
        int n = rows / 2;
        while (rows_of_pass < Shape::most_rows && rows_of_pass % n != 0) n -= 8;
        return n;
    }();
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

    // Where the round that begins with row `first` is staged, from `staging`.
    static __device__ __forceinline__ uint32_t offset(int32_t first) {
        return in_halves ? first / round % 2 * (rows / 2 * 128) : 0;
    }
    // The first round waits for all stores of the work tile before, the second for none, the others
    // for that of two rounds before.
    __device__ __forceinline__ void begin(int32_t first) const {
        if (in_halves && first == round) return;
        if (storer) {
            if (in_halves && first > 0)
                bulk_store_wait_but_one();
            else
                bulk_store_wait();
        }
        sync();
    }
    __device__ __forceinline__ void end(int32_t first) const {
        async_proxy_fence();
        sync();
        const int32_t left = (work.work_tile.n_rows - first + 7) / 8 * 8;
        if (storer && exists)
            store_block_rows(work, staging + offset(first), column, first,
                             left < round ? left : round);
    }
};

template <class Shape, Operand operand, ActivationClass kind, bool gated>
__device__ __forceinline__ void store_activated(const LaneWork& work, const Affine& affine,
                                                Accumulators<Shape>& accum) {
    constexpr bool is_usual = gated && kind == ActivationClass::silu;
    constexpr int rows = is_usual ? Shape::most_rows : Shape::rows_of_pass;
    using Rounds = ColumnRounds<Shape, rows, gated>;
    const Rounds rounds(work);
    const BlockColumn<operand> block(work, rounds.staging,
                                     gated ? work.local_tile() >> 1 : work.warp,
                                     gated ? work.local_tile() & 1 : 0);
    const FastActivation<kind> act(work.gemm.activation);
    constexpr int gate_rows = Rounds::round < 32 ? Rounds::round : 32;
    GateRows<gate_rows> gates(work);
    each_pass<Shape, rows>(work, accum, [&](int32_t begin) {
        scale_rows<rows>(work, accum, begin);
#pragma unroll
        for (int first = 0; first < rows; first += Rounds::round) {
            const int32_t left = work.work_tile.n_rows - begin - first;
            if (left <= 0) break;
            const uint32_t at = Rounds::offset(begin + first);
            rounds.begin(begin + first);
#pragma unroll
            for (int i = 0; i < Rounds::round / 8 && first + 8 * i < rows; ++i) {
                if (i % (Shape::tokens_at_once / 8) == 0 && 8 * i >= left) break;
                constexpr int n = gate_rows / 8;
                if (!gated && i % n == 0) gates.load(begin + first + 8 * i, work.work_tile.n_rows);
                float v[4];
                activate_accum<kind, gated>(affine, act, accum + 4 * (first / 8 + i),
                                            gates.from ? gates.values[i % n] : nullptr, v);
                block.put(at, i, v[0], v[1], 0);
                if constexpr (!gated) block.put(at, i, v[2], v[3], 1);
            }
            if (left % 8 != 0 && left < Rounds::round) block.clear_from(at, left, !gated);
            rounds.end(begin + first);
        }
    });
}

// Linear and activated GEMMs are separate kernels, because activations need registers.
template <class Shape, Operand operand, bool activated>
__device__ __forceinline__ void run_epilogue(const LaneWork& work, const Affine& affine,
                                             Accumulators<Shape>& accum) {
    if constexpr (activated) {
        with_activation_class(work.gemm.activation, [&]<ActivationClass kind>(ClassOf<kind>) {
            if (work.gemm.epilogue == Epilogue::gated)
                store_activated<Shape, operand, kind, true>(work, affine, accum);
            else
                store_activated<Shape, operand, kind, false>(work, affine, accum);
        });
    } else {
        scale_rows<Shape::most_rows>(work, accum, 0);
        if (work.gemm.out.type == MOE_TYPE_F32)
            store_linear_f32<Shape>(work, affine, accum);
        else
            store_linear_16bit<Shape>(work, affine, accum);
    }
}

}  // namespace moe::cuda
