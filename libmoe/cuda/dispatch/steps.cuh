// Device functions that the kernels of dispatch share, each the work of one thread. Inputs and
// outputs are those of SortInput and Rows.
#pragma once

#include "libmoe/cuda/device/call.cuh"
#include "libmoe/cuda/dispatch/dispatch.hpp"
#include "libmoe/cuda/dispatch/tiles.hpp"

namespace moe::cuda {

__device__ inline int32_t true_slots(const SortInput& input, const TokenCount& tokens) {
    return true_tokens(tokens) * input.top_k;
}

// Counts the experts that have rows.
__host__ __device__ inline int32_t experts_of(const SortInput& input) {
    return input.n_local + (input.has_shared ? 1 : 0);
}

// Returns the local expert of a global id, -1 for no row.
__device__ inline int32_t local_expert(const SortInput& input, int32_t id, bool& is_bad) {
    is_bad = false;
    if (id < 0 || id >= input.n_ids) return -1;
    const int32_t local = input.local_of ? input.local_of[id] : id;
    if (local >= 0 && local < input.n_local) return local;
    is_bad = local != -1;
    return -1;
}

// Stores the tiles of an expert's `count` rows from `begin` to tiles[first] and after.
__device__ inline void store_tiles(Tile* tiles, int32_t max_tiles, const TileRule& rule, int32_t e,
                                   int32_t begin, int32_t count, int32_t first) {
    const int32_t end = min(first + tiles_of_expert(rule, count), max_tiles);
#pragma unroll 1
    for (int32_t i = first; i < end; i++) tiles[i] = make_tile(rule, e, begin, count, i - first);
}

__device__ inline void store_tile_count(TileCount* to, const TileCount& n, int32_t max_tiles) {
    *to = {min(n.all, max_tiles), min(n.large, max_tiles)};
}

// Stores row i, its padding and tile i, where the rows are n tokens themselves.
__device__ inline void list_token(int32_t i, int32_t n, const TokenCount& tokens, const Rows& rows,
                                  const TileRule& rule) {
    const TileCount n_tiles = count_tiles(rule, n);
    if (i == 0) {
        rows.begin[0] = 0;
        rows.count[0] = n;
        store_tile_count(rows.n_tiles, n_tiles, rows.max_tiles);
    }
    if (i < min(n_tiles.all, rows.max_tiles)) rows.tiles[i] = make_tile(rule, 0, 0, n, i);
    if (rows.slot && i < rows.capacity && i < round_up_to(n, row_alignment))
        rows.slot[i] = i < n ? i : -1;
    if (rows.slot_to_row && i < tokens.n) rows.slot_to_row[i] = i < n ? i : -1;
}

// A row of the shared expert counts as a row of the token's first slot.
__device__ inline void store_shared_row(const SortInput& input, int32_t* slot, int64_t capacity,
                                        int64_t begin, int32_t t) {
    if (begin + t < capacity) slot[begin + t] = t * input.top_k;
}

// sort_small.cu has SortKernel::fused.
void run_sort_small_batch(const DeviceFacts& device, const SortInput& input,
                          const TokenCount& tokens, const Rows& rows, const TileRule& rule,
                          const SortAlong& along, FaultWords* faults, cudaStream_t stream);
void prepare_sort_small_batch();

}  // namespace moe::cuda
