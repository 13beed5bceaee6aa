// Parameters and the state of a thread block that the parts of the portable grouped GEMM share
// (sm80_grouped_gemm.cuh).
#pragma once

#include "libmoe/cuda/device/tile_work.cuh"
#include "libmoe/cuda/grouped_gemm/sm80_tile_shape.hpp"

namespace moe::cuda {

struct Sm80Call {
    GemmArgs gemm;
    int32_t staged_tile_bytes;
    int64_t tile_stride;  // of packed tiles in memory
    int32_t n_stages;
    int32_t shared_bytes;  // of all stages
    bool copies;           // input rows need no conversion and begin on 16 bytes
    bool stores_fours;     // output rows can be written four elements at a time
};

// Rows of the token tile in shared memory, and the codebook of its expert.
template <class Shape>
struct Sm80Shared {
    TileRows<Shape::max_rows> rows;
    float codebook[64];
};

// A work item of a thread block: up to max_rows tokens of one expert, eight packed tiles.
struct Sm80Work {
    Tile tile;
    int32_t first_tile;        // packed tile
    int32_t n_tiles;           // of the eight that exist
    const std::byte* weights;  // of the first packed tile
};

struct Sm80Lane {
    int warp = static_cast<int>(threadIdx.x) / 32;
    int id = static_cast<int>(threadIdx.x) % 32;
    int g = id / 4;
    int t = id % 4;
};

// The type with the numbers of a grid; a constant for all others. The compiler is told which kind
// it is: without that it compares the type with all kinds wherever an offset is computed.
template <PackedType kind>
__device__ __forceinline__ PackedType type_of(const PackedMatrix& weights) {
    if constexpr (!is_grid(kind)) return kind;
    const PackedType type = weights.type;
    __builtin_assume(kind_of(type) == kind);
    return type;
}

// Rows are 128 bytes. Vectors of 16 bytes are swizzled to avoid bank conflicts.
__device__ __forceinline__ int sm80_token_offset(int row, int vector) {
    return row * sm80_row_bytes + 16 * (vector ^ (row & 7));
}

}  // namespace moe::cuda
