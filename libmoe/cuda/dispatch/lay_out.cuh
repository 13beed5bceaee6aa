// Lays out experts: from the rows that each has, its first row, and the tiles of its rows.
//
// Inputs: counts [experts] in shared memory, up to max_local experts and the shared one. Outputs:
// SortTarget; the first rows in shared memory. A sum over the experts before is a scan over the
// threads of a block, each of which owns adjacent experts. Several blocks may do it alike; each
// then stores the experts whose turn it is.
#pragma once

#include "libmoe/cuda/device/warp.cuh"
#include "libmoe/cuda/dispatch/steps.cuh"

namespace moe::cuda {

constexpr int32_t max_threads = 1024;  // of a block that lays out experts
constexpr int32_t max_local = 4096;

// Outputs are either Rows for the kernels of the experts (begin, count, slot, slot_to_row, tiles)
// or those of moe_dispatch (offsets, counts, slot).
struct SortTarget {
    int32_t* begin;
    int32_t* count;
    int32_t* slot_to_row;
    Tile* tiles;
    TileCount* n_tiles;
    int64_t* offsets;
    int64_t* counts;
    int32_t* slot;
    int64_t capacity;
    int64_t align;
    int32_t max_tiles;
    TileRule rule;
};

// The experts and tiles of Rows, without slot_to_row.
inline SortTarget target_of(const Rows& rows, const TileRule& rule) {
    SortTarget target{};
    target.begin = rows.begin;
    target.count = rows.count;
    target.tiles = rows.tiles;
    target.n_tiles = rows.n_tiles;
    target.slot = rows.slot;
    target.capacity = rows.capacity;
    target.align = row_alignment;
    target.max_tiles = rows.max_tiles;
    target.rule = rule;
    return target;
}

struct Sums {
    int64_t rows;
    TileCount tiles;
};

__device__ inline Sums operator+(const Sums& a, const Sums& b) {
    return {a.rows + b.rows, {a.tiles.all + b.tiles.all, a.tiles.large + b.tiles.large}};
}

// Returns the sums over the lower lanes.
__device__ inline Sums before_in_warp(const Sums& own) {
    Sums up_to = own;
#pragma unroll
    for (int apart = 1; apart < 32; apart *= 2) {
        const Sums lower{__shfl_up_sync(every_lane, up_to.rows, apart),
                         {__shfl_up_sync(every_lane, up_to.tiles.all, apart),
                          __shfl_up_sync(every_lane, up_to.tiles.large, apart)}};
        if (lane_index() >= apart) up_to = up_to + lower;
    }
    return {up_to.rows - own.rows,
            {up_to.tiles.all - own.tiles.all, up_to.tiles.large - own.tiles.large}};
}

// Returns the sums over the lower threads; total becomes the sum over all threads.
__device__ inline Sums before_in_block(const Sums& own, Sums& total) {
    __shared__ Sums of_warp[max_threads / 32];
    const Sums in_warp = before_in_warp(own);
    if (lane_index() == 31) of_warp[warp_index()] = in_warp + own;
    __syncthreads();
    Sums lower{};
    total = {};
    for (int32_t w = 0; w < static_cast<int32_t>(blockDim.x / 32); w++) {
        if (w == warp_index()) lower = total;
        total = total + of_warp[w];
    }
    return lower + in_warp;
}

__device__ inline Sums sums_of_expert(const SortTarget& target, int32_t count) {
    return {round_up_to(count, target.align),
            target.tiles ? count_tiles(target.rule, count) : TileCount{}};
}

__device__ inline void store_expert(const SortTarget& target, int32_t e, int64_t begin,
                                    int32_t count) {
    if (target.begin) target.begin[e] = static_cast<int32_t>(begin);
    if (target.count) target.count[e] = count;
    if (target.offsets) target.offsets[e] = begin;
    if (target.counts) target.counts[e] = count;
}

// A thread block among those that share the stores.
struct Turn {
    int32_t block, n_blocks;
};

// Turns counts into begins, and stores begin, count and tiles of the experts whose turn it is among
// the blocks. A thread owns adjacent experts. After the call all threads of the block may read the
// begins.
__device__ inline void lay_out_experts(const SortTarget& target, int32_t n_local,
                                       const int32_t* counts, int64_t* begins, const Turn& turn) {
    const int32_t each =
        (n_local + static_cast<int32_t>(blockDim.x) - 1) / static_cast<int32_t>(blockDim.x);
    const int32_t first = static_cast<int32_t>(threadIdx.x) * each;
    const int32_t end = first + each < n_local ? first + each : n_local;
    Sums own{};
    for (int32_t e = first; e < end; e++) own = own + sums_of_expert(target, counts[e]);
    Sums total;
    Sums at = before_in_block(own, total);
    for (int32_t e = first; e < end; e++) {
        begins[e] = at.rows;
        if (e % turn.n_blocks == turn.block) {
            store_expert(target, e, at.rows, counts[e]);
            if (target.tiles)
                store_tiles(target.tiles, target.max_tiles, target.rule, e,
                            static_cast<int32_t>(at.rows), counts[e],
                            first_tile(target.rule, counts[e], at.tiles, total.tiles.large));
        }
        at = at + sums_of_expert(target, counts[e]);
    }
    if (threadIdx.x == 0 && turn.block == 0) {
        if (target.offsets) target.offsets[n_local] = total.rows;
        if (target.tiles) store_tile_count(target.n_tiles, total.tiles, target.max_tiles);
    }
    __syncthreads();
}

}  // namespace moe::cuda
