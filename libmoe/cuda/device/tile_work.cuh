// Work items of the portable and exact GEMMs (gemm_args.hpp). A work item is a token tile
// and a group of weight tiles, one weight tile per warp. This file also resolves the rows of a
// token tile.
#pragma once

#include "libmoe/cuda/device/element.cuh"
#include "libmoe/cuda/gemm_args.hpp"

namespace moe::cuda {

// Weight tiles of 16 rows that a block multiplies at once, one per warp.
constexpr int tiles_of_group = 8;

constexpr MOE_HOST_DEVICE int groups_of_tiles(const PackedMatrix& weights) {
    return (weights.n_tiles + tiles_of_group - 1) / tiles_of_group;
}

struct WorkItem {
    Tile tile;
    int32_t first_tile;      // of the group
    const std::byte* codes;  // of the warp's weight tile; null: none
};

// `item` counts to n_tiles->all * groups_of_tiles.
__device__ inline WorkItem load_work_item(const GemmArgs& gemm, int64_t item) {
    const PackedMatrix& weights = gemm.weights;
    const int n_groups = groups_of_tiles(weights);
    WorkItem work;
    work.tile = gemm.tiles[item / n_groups];
    work.first_tile = static_cast<int32_t>(item % n_groups) * tiles_of_group;
    const int32_t tile = work.first_tile + static_cast<int32_t>(threadIdx.x) / 32;
    work.codes = nullptr;
    if (tile < weights.n_tiles) {
        work.codes =
            weights.data + work.tile.expert * weights.expert_stride + tile * weights.tile_stride();
    }
    return work;
}

// Returns the offset of row r in elements, or -1 where there is no row.
__device__ inline int64_t row_offset(const DeviceRows& rows, int32_t r) {
    if (!rows.index) return r * rows.stride;
    const int32_t i = rows.index[r];
    return i < 0 ? -1 : i / rows.divisor * rows.stride;
}

// Rows of a token tile, in shared memory.
template <int max_rows>
struct TileRows {
    int64_t in[max_rows];   // offset in elements; -1: a row of zeros
    int64_t out[max_rows];  // offset in elements; -1: not stored
    float weight[max_rows];
};

// Rows from n_rows on are absent.
template <int max_rows>
__device__ inline void find_rows(const GemmArgs& gemm, const Tile& tile, TileRows<max_rows>& rows) {
    const int i = static_cast<int>(threadIdx.x);
    if (i >= max_rows) return;
    const int32_t r = tile.row + i;
    const bool present = i < tile.n_rows;
    rows.in[i] = present ? row_offset(gemm.in, r) : -1;
    rows.out[i] = present ? row_offset(gemm.out, r) : -1;
    float weight = 1.0f;
    if (present && gemm.row_weight) {
        const int32_t slot = gemm.row_slot ? gemm.row_slot[r] : r;
        weight = slot < 0 ? 0.0f : gemm.row_weight[slot];
    }
    rows.weight[i] = weight;
}

// Loads 32 values for M half 0, then 32 for M half 1.
__device__ inline void load_codebook(const PackedMatrix& weights, int32_t expert,
                                     float (&codebook)[64]) {
    const int i = static_cast<int>(threadIdx.x);
    if (i < 64 && weights.codebook) codebook[i] = weights.codebook[int64_t{64} * expert + i];
}

}  // namespace moe::cuda
