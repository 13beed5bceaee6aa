// The rows of the experts of one chunk of tokens, in device memory. A row is one (token, expert)
// pair; rows are sorted by local expert. Everything here is written and read on the device: the
// host knows upper bounds only.
#pragma once

#include <cstdint>

namespace moe::cuda {

// Experts begin on a multiple of this, so that eight rows of a tile never belong to two of them.
constexpr int32_t row_alignment = 8;

// Rows [row, row + n_rows) of one expert, worked on together. Kernels read it in one piece.
struct alignas(16) Tile {
    int32_t expert;  // local
    int32_t row;
    int32_t n_rows;
};

struct TileCount {
    int32_t all;
    int32_t large;  // of those, the first ones
};

struct Rows {
    int32_t* begin;  // [n_experts]: first row, a multiple of row_alignment unless the caller's
    int32_t* count;  // [n_experts]
    int32_t* slot;   // [capacity]: token * k + j of the row, -1: none
    int32_t* slot_to_row;  // [n_slots]: row of a slot, -1: none
    Tile* tiles;           // [max_tiles], those of large experts (TileRule) first, else by expert
    TileCount* n_tiles;
    int32_t* tile_counter;  // [4]: of GroupedGemmArgs, two for each product of an MLP
    int32_t n_experts;
    int32_t capacity;  // rows
    int32_t max_tiles;
    int32_t n_tokens;  // that were sorted: rows of an expert at most, if no token has it twice
};

// How a kernel family cuts an expert's rows into tiles: at most max_rows each, as even as the
// granule allows. Experts of more than most_small rows are large.
struct TileRule {
    int32_t max_rows;
    int32_t granule;
    int32_t most_small;
};

// Most tiles that n_slots slots over n_experts experts can give.
inline int32_t most_tiles(TileRule rule, int64_t n_slots, int32_t n_experts) {
    const int64_t full = n_slots / rule.max_rows;
    return static_cast<int32_t>(full + (n_slots < n_experts ? n_slots : n_experts));
}

// Most rows, with every expert padded.
inline int64_t most_rows(int64_t n_slots, int32_t n_experts) {
    const int64_t padded = n_slots < n_experts ? n_slots : n_experts;
    return (n_slots + padded * (row_alignment - 1) + row_alignment - 1) / row_alignment *
           row_alignment;
}

}  // namespace moe::cuda
