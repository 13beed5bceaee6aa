// Copies rows of x into token blocks of bfloat16 or float16, the B operand of grouped_gemm. It is a
// kernel of its own (gather.cu), or work beside the sort (arrange_along.cuh).
//
// Inputs: `in`, rows [.., n_columns] of F32, F16 or BF16; an index per row, or the tokens in order;
// n_columns a multiple of 16.
// Output: token blocks [capacity][64] of input.to, the last one with zeros where the input has no
// columns; capacity is a multiple of row_alignment. A row of a block has 128 bytes, eight 16-byte
// vectors. Vector c = 2 j + h of row r is stored at vector c ^ (r & 7), free of bank conflicts when
// read, and holds the pairs k = 16 t + 2 c, + 1 for t = 0..3.
//
// A warp converts four rows of up to four blocks. All rows of these blocks precede the next four
// blocks: columns of x that several rows read then stay in L2, and adjacent warps write adjacent
// rows. Eight lanes share a row. For each block:
//   1. lane q = 2 t + u loads columns 8 q .. 8 q + 7, which are the pairs of t for vectors 4 u .. 4
//      u + 3
//   2. the four lanes with one u transpose their 4 x 4 pairs, so that lane (t, u) has vector 4 u +
//      t
//   3. the eight lanes store 128 contiguous bytes
// Rows past the last one in use are not written.
#pragma once

#include "libmoe/cuda/device/call.cuh"
#include "libmoe/cuda/device/element.cuh"
#include "libmoe/cuda/device/memory.cuh"
#include "libmoe/cuda/device/warp.cuh"
#include "libmoe/cuda/dispatch/dispatch.hpp"
#include "libmoe/cuda/dispatch/tiles.hpp"

namespace moe::cuda {

constexpr int32_t copied_rows = 4;    // of a warp at once
constexpr int32_t copied_blocks = 4;  // likewise

// Four pairs of 16-bit values.
struct Pairs {
    uint32_t at[4];
};

__device__ inline Pairs load_pairs(const GatherInput& input, int64_t index, bool packets) {
    Pairs pairs;
    if (packets && input.in.type == input.to) {
        Packet<MOE_TYPE_BF16, 8> raw;  // of either type
        raw.load(element_at(input.in.data, MOE_TYPE_BF16, index));
        for (int i = 0; i < 4; i++) pairs.at[i] = raw.word[i];
        return pairs;
    }
    float v[8];
    if (packets)
        load_values(input.in.data, input.in.type, index, v);
    else
        for (int i = 0; i < 8; i++) v[i] = load_value(input.in.data, input.in.type, index + i);
    for (int i = 0; i < 4; i++) pairs.at[i] = narrow_pair(v[2 * i], v[2 * i + 1], input.to);
    return pairs;
}

// Exchanges values between lanes `apart` lanes from each other: the upper lane's `low` for the
// lower lane's `high`.
__device__ inline void exchange(uint32_t& low, uint32_t& high, int apart) {
    const bool is_upper = lane_index() & apart;
    const uint32_t got = __shfl_xor_sync(every_lane, is_upper ? low : high, apart);
    if (is_upper)
        low = got;
    else
        high = got;
}

// at[i] of lane t becomes at[t] of lane i, for lanes that are 2 apart.
__device__ inline void transpose(Pairs& p) {
    exchange(p.at[0], p.at[1], 2);
    exchange(p.at[2], p.at[3], 2);
    exchange(p.at[0], p.at[2], 4);
    exchange(p.at[1], p.at[3], 4);
}

// Source rows sorted by expert; padding rows are zero.
struct SortedRows {
    Rows rows;
    const int32_t* index;
    int32_t divisor;

    __device__ int32_t used() const {
        const int32_t last = rows.n_experts - 1;
        const int64_t used =
            round_up_to(int64_t{load_global(rows.begin + last)} + load_global(rows.count + last),
                        row_alignment);
        return static_cast<int32_t>(used < rows.capacity ? used : rows.capacity);
    }
    __device__ int32_t source(int32_t r) const {
        const int32_t i = load_global(index + r);
        return i < 0 ? -1 : i / divisor;
    }
};

struct RowsInOrder {
    TokenCount tokens;

    __device__ int32_t used() const { return true_tokens(tokens); }
    __device__ int32_t source(int32_t r) const { return r; }
};

// Copies with `n_warps` warps, of which this is number `warp`. The rows are used() ones of
// `source`.
template <class Source>
__device__ __forceinline__ void copy_rows(const GatherInput& input, const Source& source,
                                          bool packets, const BlockRows& out, int64_t warp,
                                          int64_t n_warps) {
    const int32_t n_used = source.used();
    const int32_t n_blocks = input.n_blocks();
    const int32_t n_groups = divide_up(n_blocks, copied_blocks);
    const int32_t n_parts = divide_up(n_used, copied_rows);
    const int64_t n_items = int64_t{n_parts} * n_groups;
    const int32_t q = lane_index() % 8;
    const int32_t vector = 4 * (q % 2) + q / 2;
    for (int64_t item = warp; item < n_items; item += n_warps) {
        const auto first_row = static_cast<int32_t>(item % n_parts) * copied_rows;
        const int32_t r = first_row + lane_index() / 8;
        const auto first = static_cast<int32_t>(item / n_parts) * copied_blocks;
        const int32_t from = r < n_used ? source.source(r) : -1;
        Pairs pairs[copied_blocks];
#pragma unroll
        for (int32_t i = 0; i < copied_blocks; i++) {
            pairs[i] = {};
            const int32_t column = (first + i) * 64 + 8 * q;
            if (from >= 0 && column < input.n_columns)
                pairs[i] = load_pairs(input, from * input.in.stride + column, packets);
        }
#pragma unroll
        for (int32_t i = 0; i < copied_blocks; i++) {
            transpose(pairs[i]);
            if (first + i >= n_blocks) continue;
            const int64_t row = int64_t{first + i} * out.capacity + r;
            *reinterpret_cast<uint4*>(out.blocks + row * 128 + (vector ^ (r & 7)) * 16) =
                make_uint4(pairs[i].at[0], pairs[i].at[1], pairs[i].at[2], pairs[i].at[3]);
        }
    }
}

// Thread blocks of n_threads threads for one warp per item, at most `most`.
inline int64_t copy_blocks(const GatherInput& input, int32_t capacity, int n_threads,
                           int64_t most) {
    const int64_t groups = divide_up(input.n_blocks(), copied_blocks);
    const int64_t items = int64_t{capacity} / copied_rows * groups;
    const int64_t n = (items + n_threads / 32 - 1) / (n_threads / 32);
    return n < most ? n : most;
}

}  // namespace moe::cuda
