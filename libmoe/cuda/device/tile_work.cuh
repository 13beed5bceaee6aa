// How a gemm (gemm_args.hpp) is tiling into work for blocks of threads: pairs of a token tile and a
// group of weight tiles, one weight tile a warp; and the rows of a tile.
#pragma once

#include "libmoe/cuda/device/element.cuh"
#include "libmoe/cuda/gemm_args.hpp"

namespace moe::cuda {

// Weight tiles (of 16 rows) that a block of threads works on at a time, a warp each.
constexpr int tiles_of_group = 8;

constexpr MOE_HOST_DEVICE int groups_of_tiles(const PackedMatrix& weights) {
    return (weights.n_tiles + tiles_of_group - 1) / tiles_of_group;
}

struct Work {
    Tile tile;
    int32_t first_tile;      // of the group
    const std::byte* codes;  // of the warp's weight tile; null: none
};

// Pair `item` of n_tiles->all * groups_of_tiles.
__device__ inline Work take_work(const GemmArgs& gemm, int64_t item) {
    const PackedMatrix& weights = gemm.weights;
    const int n_groups = groups_of_tiles(weights);
    Work work;
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

// First element of row r of a gemm, or -1 where there is none.
__device__ inline int64_t row_offset(const DeviceRows& rows, int32_t r) {
    if (!rows.index) return r * rows.stride;
    const int32_t i = rows.index[r];
    return i < 0 ? -1 : i / rows.divisor * rows.stride;
}

// What a block of threads keeps of the rows of its tile.
template <int max_rows>
struct RowPlaces {
    int64_t in[max_rows];   // first element, -1: a row of zeros
    int64_t out[max_rows];  // likewise, -1: not stored
    float weight[max_rows];
};

// Rows from n_rows on count as absent.
template <int max_rows>
__device__ inline void find_rows(const GemmArgs& gemm, const Tile& tile,
                                 RowPlaces<max_rows>& rows) {
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

// Of rows 0 to 7 and of rows 8 to 15.
__device__ inline void load_codebook(const PackedMatrix& weights, int32_t expert,
                                     float (&codebook)[64]) {
    const int i = static_cast<int>(threadIdx.x);
    if (i < 64 && weights.codebook) codebook[i] = weights.codebook[int64_t{64} * expert + i];
}

}  // namespace moe::cuda
