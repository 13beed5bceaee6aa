// The sorted rows of one chunk of tokens and their tiles, in device memory. A row is one (token,
// expert) pair; rows are sorted by local expert. The dispatch stage writes them and the expert
// kernels read them, both on the device. The host knows upper bounds only.
#pragma once

#include <cstdint>

namespace moe::cuda {

// Experts begin on a multiple of this, so that a group of eight rows never belongs to two experts.
constexpr int32_t row_alignment = 8;

// A tile is rows [row, row + n_rows) of one expert. Kernels read it by one 16-byte load.
struct alignas(16) Tile {
    int32_t expert;  // local
    int32_t row;
    int32_t n_rows;
};

struct TileCount {
    int32_t all;
    int32_t large;  // tiles of large experts, which come first
};

struct Rows {
    int32_t* begin;  // [n_experts]: first row, a multiple of row_alignment unless caller's rows
    int32_t* count;  // [n_experts]
    int32_t* slot;   // [capacity]: token * k + j of the row, -1: none
    int32_t* slot_to_row;  // [n_slots]: row of a slot, -1: none
    Tile* tiles;           // [max_tiles], those of large experts (TileRule) first, else by expert
    TileCount* n_tiles;
    int32_t* tile_counter;  // [n_tile_counters], two for each GEMM of an MLP
    int32_t n_experts;
    int32_t capacity;  // rows
    int32_t max_tiles;
    int32_t n_tokens;  // sorted tokens: an upper bound of an expert's rows if no token has it twice
};

// The tiling of an expert's rows by a kernel family: at most max_rows per tile, as even as the
// granule allows. Experts of more than most_small rows are large.
struct TileRule {
    int32_t max_rows;
    int32_t granule;
    int32_t most_small;
};

// Bounds the tiles that n_slots slots over n_experts experts can give.
inline int32_t most_tiles(TileRule rule, int64_t n_slots, int32_t n_experts) {
    const int64_t full = n_slots / rule.max_rows;
    return static_cast<int32_t>(full + (n_slots < n_experts ? n_slots : n_experts));
}

// Bounds the rows of n_slots slots, with every expert padded.
inline int64_t most_rows(int64_t n_slots, int32_t n_experts) {
    const int64_t padded = n_slots < n_experts ? n_slots : n_experts;
    return (n_slots + padded * (row_alignment - 1) + row_alignment - 1) / row_alignment *
           row_alignment;
}

}  // namespace moe::cuda
