// Parameters and the state of a thread block that the parts of the portable grouped GEMM share
// (sm80_grouped_gemm.cuh).
#pragma once

#include "libmoe/cuda/dequant/grid_records.hpp"
#include "libmoe/cuda/device/operand.hpp"
#include "libmoe/cuda/device/tile_work.cuh"
#include "libmoe/cuda/grouped_gemm/sm80_tile_shape.hpp"

namespace moe::cuda {

struct Sm80Call {
    GemmArgs gemm;
    int32_t in_vectors;                  // of eight columns, of an input row
    int64_t tile_stride;                 // of packed tiles in memory
    Sm80Stages stages[sm80_max_widths];  // of the shape's widths
    Sm80FewRowsStages few_rows;
    bool copies;          // input rows need no conversion and begin on 16 bytes
    bool stores_fours;    // four elements of an output row at a time, rounded once
    GridRecords records;  // of weights, if they are a grid
};

// Where the rows of the token tile begin, as cp.async wants them: in units of 16 bytes, so that 32
// bits reach 64 GB of input. The threads of a stage copy one vector of 16 bytes of every apart-th
// row of one of its k_blocks; the rows of a thread lie together.
template <class Shape, int k_blocks>
struct Sm80TokenRows {
    static constexpr uint32_t absent = 0xFFFFFFFFu;
    static constexpr int apart = sm80_threads<Shape> / 8 / k_blocks;
    static constexpr int of_thread = Shape::max_rows / apart;

    // `in`: offset of row `row` in elements of 16 bits, or -1.
    static __device__ __forceinline__ void store(uint32_t* rows, int row, int64_t in) {
        rows[row % apart * of_thread + row / apart] =
            in < 0 ? absent : static_cast<uint32_t>(in / 8);
    }
    // The first n rows of the threads whose first row is `row`.
    template <int n>
    static __device__ __forceinline__ void load(const uint32_t* rows, int row, uint32_t (&to)[n]) {
        constexpr int at_once = n % 4 == 0 ? 4 : n % 2 == 0 ? 2 : 1;
        rows += row * of_thread;
#pragma unroll
        for (int i = 0; i < n; i += at_once)
            load_words<at_once>(reinterpret_cast<const std::byte*>(rows + i), to + i);
    }
};

// Rows of the token tile in shared memory, and the codebook of its expert.
template <class Shape>
struct Sm80Shared {
    TileRows<Shape::max_rows> rows;
    alignas(16) uint32_t token_rows[Shape::max_rows];
    float codebook[64];
};

// A work item of a thread block: up to max_rows tokens of one expert, eight packed tiles.
struct Sm80Work {
    Tile tile;
    int32_t first_tile;  // packed tile

    // The last item of a matrix may have less than eight.
    __device__ __forceinline__ int32_t n_tiles(const Sm80Call& call) const {
        return min(sm80_tiles_of_block, call.gemm.weights.n_tiles - first_tile);
    }
    // The i-th packed tile begins there.
    __device__ __forceinline__ const std::byte* weights(const Sm80Call& call, int i) const {
        const PackedMatrix& of = call.gemm.weights;
        return of.data + tile.expert * of.expert_stride + (first_tile + i) * call.tile_stride;
    }
};

// The work items of a launch. Those of `raster` token tiles follow each other for the same weights,
// so that these are read from memory once for them.
struct Sm80Items {
    static constexpr uint32_t raster = 8;  // token tiles

    const Sm80Call& call;
    uint32_t n_tiles, n_groups;  // of token tiles; of eight packed tiles

    __device__ __forceinline__ explicit Sm80Items(const Sm80Call& call_)
        : call(call_),
          n_tiles(static_cast<uint32_t>(call_.gemm.n_tiles->all)),
          n_groups(static_cast<uint32_t>(groups_of_tiles(call_.gemm.weights))) {}

    __device__ __forceinline__ uint32_t size() const { return n_tiles * n_groups; }

    __device__ __forceinline__ Sm80Work load(uint32_t item) const {
        Sm80Work work;
        const uint32_t first = item / (raster * n_groups);
        const uint32_t rest = item - first * raster * n_groups;
        const uint32_t n = min(raster, n_tiles - first * raster);
        const uint32_t group = rest / n;
        work.tile = call.gemm.tiles[first * raster + rest - group * n];
        work.first_tile = static_cast<int32_t>(group) * sm80_tiles_of_block;
        return work;
    }
};

struct Sm80Lane {
    int warp = static_cast<int>(threadIdx.x / 32);
    int id = static_cast<int>(threadIdx.x % 32);
    int g = static_cast<int>(threadIdx.x % 32 / 4);
    int t = static_cast<int>(threadIdx.x % 4);
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
