// Epilogues of the sm90 grouped GEMM of E4M3 with tokens as the rows of A (Fp8Middle; step 4 of
// sm90_fp8_grouped_gemm.cuh). A warp has all of its 16 tokens' features, so that warps need not
// wait for each other.
//
// Inputs: float32 accumulators of sm90_fp8_tokens_mainloop.cuh. Outputs: rows of bfloat16, float16
// or float32, by an index where there is one (linear), or a token block of E4M3 and its scales
// (gated). Each warp stages rows of 128 bytes in 2 KB of the staging memory, vector v of row r at
// v ^ (r & 7), and copies them to global memory.
//
// Linear: in each round as many packed tiles as fill the staged rows. Gated: the 128 features of a
// work tile are a token block; scale, add bias, activate, round to bfloat16, find the largest
// magnitude of a row among its four lanes, quantize.
#pragma once

#include "libmoe/cuda/device/quantize.cuh"
#include "libmoe/cuda/grouped_gemm/sm90_fp8_tokens_mainloop.cuh"

namespace moe::cuda {

// The two tokens of a lane, and what their packed tiles have in common.
struct Fp8TokenLane {
    const LaneWork& work;
    uint32_t staging;  // of the warp
    int32_t first_tile;
    int32_t warp_row;  // in the work tile
    float scale[2];    // of weight rows 0 to 7 and 8 to 15 of every packed tile
    float weight[2];   // of tokens g and g + 8

    __device__ explicit Fp8TokenLane(const LaneWork& work_)
        : work(work_),
          staging(work.staging + 2048 * work.local_tile()),
          first_tile(work.work_tile.row_block * static_cast<int32_t>(tiles_per_block)),
          warp_row(static_cast<int32_t>(16 * work.local_tile())),
          scale{1.0f, 1.0f},
          weight{1.0f, 1.0f} {
        const GemmArgs& gemm = work.gemm;
        if (const float* global = gemm.weights.global_scale)
            for (int half = 0; half < 2; ++half)
                scale[half] = global[2 * work.work_tile.expert + half];
        if (!gemm.row_weight) return;
        for (int half = 0; half < 2; ++half) {
            const int32_t row = warp_row + static_cast<int32_t>(work.g()) + 8 * half;
            if (row >= work.work_tile.n_rows) continue;
            const int64_t at = work.work_tile.row + row;
            const int64_t slot = gemm.row_slot ? gemm.row_slot[at] : at;
            weight[half] = slot < 0 ? 0.0f : gemm.row_weight[slot];
        }
    }

    __device__ bool has_tile(int i) const { return first_tile + i < work.gemm.weights.n_tiles; }
    // How many of the warp's 16 tokens there are.
    __device__ int32_t n_rows() const { return work.work_tile.n_rows - warp_row; }

    // Are accumulators the values, without a weight, a scale and a bias?
    static __device__ bool are_plain(const GemmArgs& gemm) {
        return !gemm.row_weight && !gemm.weights.global_scale && !gemm.bias;
    }
    // The values of packed tile i in a turn: token g with rows 2 t and 2 t + 1, then token g + 8.
    // bias: of row 2 t of the tile; null: none.
    __device__ __forceinline__ void values(const Fp8TokenAccumulators& accum, uint32_t turn, int i,
                                           const float* bias, float (&v)[4]) const {
        const float of_rows[2] = {bias ? bias[0] : 0.0f, bias ? bias[1] : 0.0f};
#pragma unroll
        for (int e = 0; e < 4; ++e)
            v[e] = fmaf(accum[turn][4 * i + e] * weight[e >> 1], scale[turn], of_rows[e & 1]);
    }
    // Where vector `vector` of token g + 8 half is staged.
    __device__ __forceinline__ uint32_t staged(uint32_t vector, uint32_t half) const {
        return staging + (work.g() + 8 * half) * 128 + ((vector ^ work.g()) << 4);
    }
};

// Where the rows that this lane copies go: numbers of output rows, negative where there is none.
// Loaded once for all rounds, which would wait for them otherwise.
struct Fp8OutRows {
    static constexpr uint32_t rows_at_once = 4;  // eight lanes copy a staged row
    int32_t number[16 / rows_at_once];

    __device__ explicit Fp8OutRows(const Fp8TokenLane& lane) {
        const int32_t* index = lane.work.gemm.out.index;
#pragma unroll
        for (uint32_t i = 0; i < 16 / rows_at_once; ++i) {
            const auto row = static_cast<int32_t>(rows_at_once * i + lane.work.lane / 8);
            const int32_t in_tile = lane.work.work_tile.row + lane.warp_row + row;
            number[i] = row >= lane.n_rows() ? -1 : index ? index[in_tile] : in_tile;
        }
    }
};

// Copies the staged rows to `out` from `first_feature` on; a vector has 16 bytes of features.
template <uint32_t value_bytes>
__device__ __forceinline__ void copy_staged_rows(const Fp8TokenLane& lane, const Fp8OutRows& rows,
                                                 int32_t first_feature) {
    constexpr int32_t values_per_vector = 16 / value_bytes;
    const GemmArgs& gemm = lane.work.gemm;
    const uint32_t vector = lane.work.lane & 7;
    const int32_t feature = first_feature + static_cast<int32_t>(vector) * values_per_vector;
    const bool is_there = feature < 16 * gemm.weights.n_tiles;
#pragma unroll
    for (uint32_t i = 0; i < 16 / Fp8OutRows::rows_at_once; ++i) {
        const uint32_t row = Fp8OutRows::rows_at_once * i + lane.work.lane / 8;
        const uint4 v = load_shared_16(lane.staging + row * 128 + ((vector ^ (row & 7)) << 4));
        if (!is_there || rows.number[i] < 0) continue;
        *reinterpret_cast<uint4*>(gemm.out_bytes() +
                                  (rows.number[i] * gemm.out.stride + feature) * value_bytes) = v;
    }
}

template <uint32_t value_bytes, bool plain>
__device__ __forceinline__ void store_token_rows(const Fp8TokenLane& lane,
                                                 const Fp8TokenAccumulators& accum) {
    constexpr int tiles_of_round = 8 / value_bytes;
    const GemmArgs& gemm = lane.work.gemm;
    const bool in_f16 = gemm.out.type == MOE_TYPE_F16;
    const float* biases = nullptr;
    if (gemm.bias)
        biases = gemm.bias + lane.work.work_tile.expert * gemm.bias_stride + 16 * lane.first_tile +
                 2 * lane.work.t();
    const Fp8OutRows rows(lane);
    const uint32_t t = lane.work.t();
#pragma unroll
    for (int first = 0; first < 16; first += tiles_of_round) {
        if (!lane.has_tile(first)) break;
        __syncwarp();
#pragma unroll
        for (int q = 0; q < tiles_of_round; ++q) {
#pragma unroll
            for (uint32_t turn = 0; turn < 2; ++turn) {
                const int i = first + q;
                float v[4];
                if constexpr (plain) {
#pragma unroll
                    for (int e = 0; e < 4; ++e) v[e] = accum[turn][4 * i + e];
                } else {
                    const bool is_biased = biases && lane.has_tile(i);
                    lane.values(accum, turn, i, is_biased ? biases + 16 * i + 8 * turn : nullptr,
                                v);
                }
#pragma unroll
                for (uint32_t half = 0; half < 2; ++half) {
                    const float low = v[2 * half], high = v[2 * half + 1];
                    if constexpr (value_bytes == 2)
                        store_shared(lane.staged(2 * q + turn, half) + 4 * t,
                                     in_f16 ? f16_pair(low, high) : bf16_pair(low, high));
                    else
                        store_shared(lane.staged(4 * q + 2 * turn + t / 2, half) + 8 * (t & 1),
                                     make_uint2(__float_as_uint(low), __float_as_uint(high)));
                }
            }
        }
        __syncwarp();
        copy_staged_rows<value_bytes>(lane, rows, 16 * (lane.first_tile + first));
    }
}

// Features 2 t and 2 t + 1 of packed tile i, of tokens g and g + 8, as pairs of bfloat16. SiLU
// alone, since each other class of activations takes 9 KB of the library.
__device__ __forceinline__ void activate_tokens(const Fp8TokenLane& lane,
                                                const Fp8TokenAccumulators& accum,
                                                uint32_t (&pairs)[16][2]) {
    const GemmArgs& gemm = lane.work.gemm;
    const FastActivation<ActivationClass::silu> act(gemm.activation);
    const int64_t bias_at =
        lane.work.work_tile.expert * gemm.bias_stride + 8 * lane.first_tile + 2 * lane.work.t();
#pragma unroll
    for (int i = 0; i < 16; ++i) {
        const bool is_there = lane.has_tile(i);
        const auto bias = [&](const float* of) {
            return of && is_there ? of + bias_at + 8 * i : nullptr;
        };
        float gate[4], up[4];
        lane.values(accum, 0, i, bias(gemm.bias), gate);
        lane.values(accum, 1, i, bias(gemm.up_bias), up);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float low = act(gate[2 * half], up[2 * half]);
            const float high = act(gate[2 * half + 1], up[2 * half + 1]);
            pairs[i][half] = is_there ? bf16_pair(low, high) : 0;
        }
    }
}

// The byte of a row of a token block at which feature f of the 128 lies.
__device__ __forceinline__ uint32_t fp8_feature_byte(uint32_t f) {
    const uint32_t word = f / 4 % 16;  // of 64 columns
    return f / 64 * 64 + 16 * (word % 4) + 4 * (word / 4) + f % 4;
}

__device__ __forceinline__ void store_token_block(const Fp8TokenLane& lane,
                                                  const uint32_t (&pairs)[16][2]) {
    const GemmArgs& gemm = lane.work.gemm;
    const int32_t block = lane.work.work_tile.row_block / 2;
    const int64_t first_row =
        int64_t{block} * gemm.out_capacity + lane.work.work_tile.row + lane.warp_row;
    auto* scales = reinterpret_cast<float*>(
        fp8_scales(gemm.out_bytes(), gemm.n_features(), gemm.out_capacity));
    if (lane.work.lane == 0) bulk_store_wait();
    __syncwarp();
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
        float largest = 0.0f;
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            const FloatPair v = pair_of_bf16(pairs[i][half]);
            largest = fmaxf(largest, fmaxf(fabsf(v.low), fabsf(v.high)));
        }
        largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, 1));
        largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, 2));
        const Fp8Scale scale(largest);
#pragma unroll
        for (int i = 0; i < 16; i += 2) {
            // An even lane takes the word of the first of two packed tiles, an odd lane that of the
            // second.
            const FloatPair first = pair_of_bf16(pairs[i][half]);
            const FloatPair second = pair_of_bf16(pairs[i + 1][half]);
            const uint32_t both = scale.word(first.low, first.high, second.low, second.high);
            const uint32_t other = __shfl_xor_sync(0xFFFFFFFFu, both, 1);
            const bool is_odd = lane.work.t() & 1;
            const uint32_t word =
                is_odd ? __byte_perm(other, both, 0x7632) : __byte_perm(both, other, 0x5410);
            const uint32_t feature = 8 * (i + is_odd) + 4 * (lane.work.t() / 2);
            const uint32_t byte = fp8_feature_byte(feature);
            store_shared(lane.staged(byte / 16, half) + byte % 16, word);
        }
        const int32_t row = static_cast<int32_t>(lane.work.g() + 8 * half);
        if (lane.work.t() == 0 && row < lane.n_rows()) scales[first_row + row] = scale.scale;
    }
    async_proxy_fence();
    __syncwarp();
    const auto n = static_cast<uint32_t>(min(lane.n_rows(), 16));
    if (lane.work.lane == 0)
        bulk_store(gemm.out_bytes() + first_row * fp8_block_columns, lane.staging,
                   n * fp8_block_columns);
}

template <bool gated>
__device__ __forceinline__ void run_fp8_tokens_epilogue(const LaneWork& work,
                                                        const Fp8TokenAccumulators& accum) {
    const Fp8TokenLane lane(work);
    if (lane.n_rows() <= 0) return;
    if constexpr (gated) {
        uint32_t pairs[16][2];
        activate_tokens(lane, accum, pairs);
        store_token_block(lane, pairs);
    } else if (work.gemm.out.type == MOE_TYPE_F32) {
        store_token_rows<4, false>(lane, accum);
    } else if (Fp8TokenLane::are_plain(work.gemm)) {
        store_token_rows<2, true>(lane, accum);
    } else {
        store_token_rows<2, false>(lane, accum);
    }
}

}  // namespace moe::cuda
