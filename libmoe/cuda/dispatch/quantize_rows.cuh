// Copies rows of x into token blocks of E4M3 (fp8_blocks.hpp), as copy_rows.cuh does into those of
// 16-bit types. Rows of E4M3 keep their codes and scales.
//
// Inputs: `in`, rows [.., n_columns] of F32, F16 or BF16, or of E4M3 with scales; an index per row,
// or the tokens in order; n_columns a multiple of 16. Outputs: token blocks and scales; the last
// block has zeros where the input has no columns.
//
// Eight lanes share a row of a block, and a warp has four rows. Lane q = 4 c + t loads columns 16 q
// to 16 q + 15, the words 4 t, ..., 4 t + 3 of half c. The largest magnitude goes through all eight
// lanes; the four of a half transpose their words, so that lane 4 c + j stores vector j of half c.
#pragma once

#include "libmoe/cuda/device/quantize.cuh"
#include "libmoe/cuda/dispatch/copy_rows.cuh"
#include "libmoe/cuda/fp8_blocks.hpp"

namespace moe::cuda {

struct SixteenColumns {
    float at[16] = {};

    __device__ __forceinline__ void load(const GatherInput& input, int64_t index, bool packets) {
        if (!packets) {
#pragma unroll 1
            for (int i = 0; i < 16; i++)
                at[i] = load_value(input.in.data, input.in.type, index + i);
            return;
        }
#pragma unroll
        for (int half = 0; half < 16; half += 8) {
            float v[8];
            load_values(input.in.data, input.in.type, index + half, v);
#pragma unroll
            for (int i = 0; i < 8; i++) at[half + i] = v[i];
        }
    }
    // Its lanes are the eight that share the row.
    __device__ __forceinline__ float largest() const {
        float value = 0.0f;
#pragma unroll
        for (const float v : at) value = fmaxf(value, fabsf(v));
#pragma unroll
        for (int apart = 1; apart < 8; apart *= 2)
            value = fmaxf(value, __shfl_xor_sync(every_lane, value, apart));
        return value;
    }
};

// Sixteen columns of a row of x as codes, and the scale of their block.
struct SixteenCodes {
    uint32_t word[4] = {};
    float scale = 1.0f;

    // All lanes of the row call it. from: the row, -1 if it is padding.
    __device__ __forceinline__ SixteenCodes(const GatherInput& input, int32_t from, int32_t block,
                                            int32_t column, bool packets) {
        const bool exists = from >= 0 && column < input.n_columns;
        if (input.scales) {
            take(input, from, block, exists ? column : -1);
            return;
        }
        SixteenColumns v;
        if (exists) v.load(input, from * input.in.stride + column, packets);
        const Fp8Scale of_row(v.largest());
        scale = of_row.scale;
#pragma unroll
        for (int j = 0; j < 4; j++)
            word[j] = of_row.word(v.at[4 * j], v.at[4 * j + 1], v.at[4 * j + 2], v.at[4 * j + 3]);
    }

  private:
    // Takes the caller's. column: -1 if the input has none there.
    __device__ __forceinline__ void take(const GatherInput& input, int32_t from, int32_t block,
                                         int32_t column) {
        if (from >= 0) scale = input.scales[from * input.scale_stride + block];
        if (column < 0) return;
        const auto* data = static_cast<const uint8_t*>(input.in.data);
        const uint4 words = load_16_codes(data + from * input.in.stride + column);
        word[0] = words.x, word[1] = words.y, word[2] = words.z, word[3] = words.w;
    }
};

// Copies with `n_warps` warps, of which this is number `warp`. The rows are used() ones of
// `source`.
template <class Source>
__device__ __forceinline__ void quantize_rows(const GatherInput& input, const Source& source,
                                              bool packets, const BlockRows& out, int64_t warp,
                                              int64_t n_warps) {
    const int32_t n_used = source.used();
    const int32_t n_parts = divide_up(n_used, copied_rows);
    const int64_t n_items = int64_t{n_parts} * fp8_blocks(input.n_columns);
    const int32_t q = lane_index() % 8;
    auto* scales = reinterpret_cast<float*>(fp8_scales(out.blocks, input.n_columns, out.capacity));
    for (int64_t item = warp; item < n_items; item += n_warps) {
        const int32_t r = static_cast<int32_t>(item % n_parts) * copied_rows + lane_index() / 8;
        const auto block = static_cast<int32_t>(item / n_parts);
        const int32_t from = r < n_used ? source.source(r) : -1;
        const int32_t column = block * fp8_block_columns + 16 * q;
        SixteenCodes codes(input, from, block, column, packets);
        uint32_t(&word)[4] = codes.word;
        exchange(word[0], word[1], 1);
        exchange(word[2], word[3], 1);
        exchange(word[0], word[2], 2);
        exchange(word[1], word[3], 2);
        const int64_t row = int64_t{block} * out.capacity + r;
        *reinterpret_cast<uint4*>(out.blocks + row * fp8_block_columns + (q ^ (r & 7)) * 16) =
            make_uint4(word[0], word[1], word[2], word[3]);
        if (q == 0) scales[row] = codes.scale;
    }
}

// Either kind of token blocks.
template <class Source>
__device__ __forceinline__ void arrange_rows(const GatherInput& input, const Source& source,
                                             bool packets, const BlockRows& out, int64_t warp,
                                             int64_t n_warps) {
    if (input.to == MOE_TYPE_F8_E4M3)
        quantize_rows(input, source, packets, out, warp, n_warps);
    else
        copy_rows(input, source, packets, out, warp, n_warps);
}

}  // namespace moe::cuda
