// Epilogue of gate and up in the sm90 grouped GEMM of E4M3 (step 4 of sm90_fp8_grouped_gemm.cuh):
// the 128 features of an item become a token block of E4M3.
//
// Inputs: float32 sums of a work tile, which has 64 features, one after the other. Outputs: rows of
// the block and their scales. Precondition: all consumer threads call it; the staging memory holds
// 256 bytes for each row.
//
// 1. Scale, add bias, activate, round to bfloat16, and store the 64 features of the rows to the
//    staging memory.
// 2. After the item's last work tile two threads take a row, each the features of one work tile:
//    they find the largest magnitude, quantize, and store 64 bytes.
#pragma once

#include "libmoe/cuda/device/quantize.cuh"
#include "libmoe/cuda/grouped_gemm/sm90_fp8_tile_shape.cuh"

namespace moe::cuda {

// The staging memory: row r has 16 vectors of 16 bytes, eight features each, vector v at
// v ^ (r & 7).
struct Fp8Staging {
    static constexpr uint32_t row_bytes = fp8_staged_row_bytes;
    uint32_t base;

    __device__ uint32_t vector(uint32_t row, uint32_t v) const {
        return base + row * row_bytes + ((v ^ (row & 7)) << 4);
    }
};

// half: of the item's work tiles, 0 or 1.
template <class Shape, ActivationClass kind>
__device__ __forceinline__ void stage_activated(const LaneWork& work, const Affine& affine,
                                                const Accumulators<Shape>& sums, uint32_t half) {
    const FastActivation<kind> act(work.gemm.activation);
    const uint32_t to =
        Fp8Staging{work.staging}.vector(work.lane % 16, 8 * half + work.local_tile());
#pragma unroll
    for (int i = 0; i < Shape::most_rows / 8; i += 2) {
        if (i % (Shape::tokens_at_once / 8) == 0 && 8 * i >= work.work_tile.n_rows) break;
        uint32_t pairs[2];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
            float v[4];
            activate_accum<kind, true>(affine, act, sums + 4 * (i + e), nullptr, v);
            pairs[e] = bf16_pair(v[0], v[1]);
        }
        store_two_matrices_transposed(to + 8 * i * Fp8Staging::row_bytes, pairs[0], pairs[1]);
    }
}

// Half of a row; n_halves: how many work tiles the item has. Both threads of a row call it.
__device__ __forceinline__ void store_quantized(const LaneWork& work, uint32_t row, uint32_t half,
                                                int32_t n_halves) {
    const GemmArgs& gemm = work.gemm;
    const bool is_there = static_cast<int32_t>(half) < n_halves;
    const Fp8Staging staging{work.staging};
    uint32_t pairs[32];  // features in order
    float largest = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        // The other half begins with its fifth vector, so that banks differ.
        const uint4 words = load_shared_16(staging.vector(row, 8 * half + (i ^ 4 * half)));
        const int at = 4 * i;
        pairs[at] = words.x, pairs[at + 1] = words.y, pairs[at + 2] = words.z,
        pairs[at + 3] = words.w;
    }
#pragma unroll
    for (const uint32_t pair : pairs) {
        const FloatPair v = pair_of_bf16(pair);
        largest = fmaxf(largest, fmaxf(fabsf(v.low), fabsf(v.high)));
    }
    if (!is_there) largest = 0.0f;
    largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, 1));
    if (!is_there || static_cast<int32_t>(row) >= work.work_tile.n_rows) return;

    const Fp8Scale scale(largest);
    const auto word = [&](int i) {
        const FloatPair first = pair_of_bf16(pairs[2 * i]), second = pair_of_bf16(pairs[2 * i + 1]);
        return scale.word(first.low, first.high, second.low, second.high);
    };
    const int32_t block = work.work_tile.row_block / 2;
    const int64_t out_row = int64_t{block} * gemm.out_capacity + work.work_tile.row + row;
    std::byte* to = gemm.out_bytes() + out_row * fp8_block_columns;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        // Words 4 t + j; those that were loaded as number i are 8 of the vector i ^ 4 half.
        const uint4 words = make_uint4(word(j), word(4 + j), word(8 + j), word(12 + j));
        const uint4 turned = half ? make_uint4(words.z, words.w, words.x, words.y) : words;
        *reinterpret_cast<uint4*>(to + (((4 * half + j) ^ (row & 7)) << 4)) = turned;
    }
    if (half == 0)
        reinterpret_cast<float*>(fp8_scales(gemm.out_bytes(), gemm.n_features(),
                                            gemm.out_capacity))[out_row] = scale.scale;
}

template <class Shape>
__device__ __forceinline__ void run_fp8_gated_epilogue(const LaneWork& work, const Affine& affine,
                                                       Accumulators<Shape>& sums) {
    const int32_t row_block = work.work_tile.row_block;
    const uint32_t half = row_block % 2;
    const bool is_last = half == 1 || 8 * (row_block + 1) >= work.gemm.weights.n_tiles;
    scale_rows<Shape::most_rows>(work, sums, 0);
    if (half == 0) named_barrier(3, 256);  // the rows of the item before have been read
    with_activation_class(work.gemm.activation, [&]<ActivationClass kind>(ClassOf<kind>) {
        stage_activated<Shape, kind>(work, affine, sums, half);
    });
    if (!is_last) return;
    named_barrier(3, 256);
    static_assert(Shape::most_rows % 16 == 0, "a warp has rows, or none");
    const uint32_t thread = 128 * work.warpgroup + work.thread();
#pragma unroll 1
    for (uint32_t row = thread / 2; row < round_up(work.work_tile.n_rows, 16); row += 128)
        store_quantized(work, row, thread % 2, static_cast<int32_t>(half) + 1);
}

}  // namespace moe::cuda
