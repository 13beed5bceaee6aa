// Tile shapes of the portable grouped GEMM (sm80_grouped_gemm.cuh), and the bytes of its pipeline
// stages. A thread block multiplies 128 weight rows, eight packed tiles, with up to `max_rows` rows
// of tokens:
//
//   Sm80Wide      128 rows; a warp has 32 weight rows and all tokens, so that it dequantizes a
//                 weight once
//   Sm80Wide16    128 rows; a warp has 64 weight rows and half of the tokens: 16-bit weights need
//                 no arithmetic, and a square tile reads shared memory least
//   Sm80Narrow    64 rows; a warp has 16 weight rows, and 16 warps of an SM wait for memory
//                 together. Tiles of few rows have pipelines by warp (sm80_few_rows.cuh).
//   Sm80Middle    64 rows; a warp has 32 weight rows, so that it reads tokens from shared memory
//                 half as often, and an SM three thread blocks. For many work items of some 30
//                 rows, of the types of most files (kernel_types.hpp)
//
// Inputs: packed type, sizes of the matrix, and the shared memory of a device. Host and device.
#pragma once

#include <algorithm>

#include "libmoe/cuda/dequant/grid_records.hpp"
#include "libmoe/cuda/device_facts.hpp"

namespace moe::cuda {

struct Sm80Wide {
    static constexpr int warps_m = 4, warps_n = 1;
    static constexpr int m_tiles = 2;  // packed tiles of a warp
    static constexpr int max_rows = 128;
    static constexpr int widths = 2;
    static constexpr int max_k_blocks = 1;  // of 64 k, in a stage
    static constexpr int ahead = 4;         // fragments of tokens
    static constexpr int blocks_per_sm = 2;
    static constexpr int few_rows = 0;
    static constexpr int min_stages = 3;
};

struct Sm80Wide16 {
    static constexpr int warps_m = 2, warps_n = 2;
    static constexpr int m_tiles = 4;
    static constexpr int max_rows = 128;
    static constexpr int widths = 2;
    static constexpr int max_k_blocks = 1;
    static constexpr int ahead = 2;
    static constexpr int blocks_per_sm = 2;
    static constexpr int few_rows = 0;
    static constexpr int min_stages = 3;
};

struct Sm80Narrow {
    static constexpr int warps_m = 8, warps_n = 1;
    static constexpr int m_tiles = 1;
    static constexpr int max_rows = 64;
    static constexpr int widths = 3;
    static constexpr int max_k_blocks = 4;
    static constexpr int ahead = 0;
    static constexpr int blocks_per_sm = 2;
    static constexpr int few_rows = 16;
    static constexpr int min_stages = 2;
};

struct Sm80Middle {
    static constexpr int warps_m = 4, warps_n = 1;
    static constexpr int m_tiles = 2;
    static constexpr int max_rows = 64;
    static constexpr int widths = 3;
    static constexpr int max_k_blocks = 2;
    static constexpr int ahead = 0;
    static constexpr int blocks_per_sm = 3;
    static constexpr int few_rows = 0;
    static constexpr int min_stages = 2;
};

// Types that are dequantized value by value with any operands. That takes so much time, and code,
// that loops for more widths or for two blocks at once are not worth their bytes.
template <PackedType kind>
constexpr bool sm80_is_by_value = has_codebook(kind) || is_iq_grid(kind) ||
                                  (is_grid(kind) && !is_grouped_grid(kind));

struct Sm80NarrowByValue : Sm80Narrow {
    static constexpr int widths = 2;
};

template <class Shape>
constexpr int sm80_threads = 32 * Shape::warps_m* Shape::warps_n;

constexpr int sm80_tiles_of_block = 8;
constexpr int sm80_row_bytes = 128;  // of a row of tokens in a k_block, 64 operands
constexpr int sm80_max_stages = 4;

// Tiles of fewer rows have a narrower loop and smaller stages: half of all rows, of three widths
// three quarters, all.
constexpr int sm80_max_widths = 3;
template <class Shape>
constexpr int sm80_rows_of_width(int width) {
    return Shape::max_rows / 2 + width * (Shape::max_rows / 2) / (Shape::widths - 1);
}

// Blocks of 64 k in a stage: few rows wait for memory, so more of them share a barrier, as many as
// let two stages fit a thread block of 99 KB. A warp's own stages have as many.
template <PackedType kind>
constexpr int sm80_few_k_blocks = code_bits(kind) == 16                        ? 1
                                  : code_bits(kind) >= (is_grid(kind) ? 6 : 8) ? 2
                                                                               : 4;
template <PackedType kind, class Shape, int width>
constexpr int sm80_k_blocks = [] {
    const int most = width > 0 ? std::min(Shape::max_k_blocks, 2) : Shape::max_k_blocks;
    return std::min(sm80_few_k_blocks<kind>, most);
}();

// Bytes from one block's codes to the next in a stage: scales lie between them, but superblock
// scales, which come once, behind the codes of all blocks. Those of a grid lie as in memory.
template <PackedType kind>
constexpr int sm80_code_stride = has_superblock(kind) ? block_code_bytes(kind, 4)
                                                      : block_bytes(kind, 4);

// Where superblock scales lie in a packed tile of a stage.
template <PackedType kind, int k_blocks>
constexpr int sm80_scale_offset = k_blocks* sm80_code_stride<kind>;

// A stage may begin within a unit of a grid, whose records values one by one want again: they are
// copied apart, to its end.
template <PackedType kind>
MOE_HOST_DEVICE constexpr bool sm80_copies_records_apart(int32_t unit_blocks) {
    return is_grid(kind) && !is_grouped_grid(kind) && unit_blocks > 1;
}

// The bytes of one packed tile in a stage.
template <PackedType kind, int k_blocks>
MOE_HOST_DEVICE constexpr int32_t sm80_staged_tile_bytes(PackedType type) {
    constexpr int32_t n = k_blocks;
    if constexpr (is_grid(kind)) {
        const bool apart = sm80_copies_records_apart<kind>(grid_unit_blocks(type));
        return (staged_grid_bytes(type, n) + 15) / 16 * 16 +
               (apart ? staged_record_bytes(type) : 0);
    }
    const int32_t scales = has_superblock(kind) ? shared_scale_bytes(kind) : 0;
    return (n * sm80_code_stride<kind> + scales + 15) / 16 * 16;
}

// The accumulators of a work item, which pass through the memory of the stages at its end
// (sm80_epilogue.cuh).
constexpr int sm80_accum_stride = 16 * sm80_tiles_of_block + 4;  // floats
template <class Shape>
constexpr int32_t sm80_epilogue_bytes = Shape::max_rows* sm80_accum_stride * 4;

// The stages of tiles of a width.
struct Sm80Stages {
    int32_t n;
    int32_t tile_bytes;  // of a packed tile in a stage
    int32_t bytes;       // of a stage
    int32_t all_bytes;   // n * bytes
};

// Takes all that fit. A width that the shape lacks has none.
template <PackedType kind, class Shape, int width>
constexpr Sm80Stages sm80_stages(PackedType type, int32_t fit_bytes) {
    if constexpr (width >= Shape::widths) return {};
    constexpr int32_t k_blocks = sm80_k_blocks<kind, Shape, width>;
    const int32_t tile_bytes = sm80_staged_tile_bytes<kind, k_blocks>(type);
    const int32_t bytes = k_blocks * sm80_rows_of_width<Shape>(width) * sm80_row_bytes +
                          sm80_tiles_of_block * tile_bytes;
    const int32_t n = std::min(fit_bytes / bytes, sm80_max_stages);
    return {n, tile_bytes, bytes, n * bytes};
}

// Tiles of few rows: each warp has stages of its own for one packed tile, and all have the tokens
// of a chunk of k, of token_bytes, besides those of the next.
struct Sm80FewRowsStages {
    Sm80Stages of_warp;
    int32_t token_bytes;
    int32_t all_bytes;
};
constexpr int32_t sm80_few_stages[] = {3, 2};
constexpr int32_t sm80_few_token_bytes[] = {16 * 1024, 8 * 1024};

template <PackedType kind, class Shape>
constexpr Sm80FewRowsStages sm80_few_rows_stages(PackedType type, int32_t fit_bytes) {
    if constexpr (Shape::few_rows == 0) return {};
    constexpr int32_t k_blocks = sm80_few_k_blocks<kind>;
    static_assert(k_blocks * Shape::few_rows * sm80_row_bytes <= sm80_few_token_bytes[1]);
    const int32_t bytes = sm80_staged_tile_bytes<kind, k_blocks>(type);
    for (const int32_t n : sm80_few_stages) {
        for (const int32_t token_bytes : sm80_few_token_bytes) {
            const int32_t all = sm80_tiles_of_block * n * bytes + 2 * token_bytes;
            if (all <= fit_bytes) return {{n, bytes, bytes, n * bytes}, token_bytes, all};
        }
    }
    return {};
}

struct Sm80Config {
    Sm80Stages stages[sm80_max_widths];
    Sm80FewRowsStages few_rows;
    int32_t blocks_per_sm;
    int32_t shared_bytes;  // for the stages, and for the epilogue
};

// The system takes so much of an SM's shared memory for every thread block.
constexpr int32_t sm80_system_bytes = 1024;

// An SM has the most thread blocks that leave each the shape's least stages of every width, else
// one with two; no blocks where two do not fit. static_bytes: of the kernel's own shared memory.
template <PackedType kind, class Shape>
constexpr Sm80Config sm80_config(const DeviceFacts& device, PackedType type, int32_t static_bytes) {
    const int32_t of_sm = device.shared_bytes + sm80_system_bytes;
    for (int32_t blocks = Shape::blocks_per_sm; blocks >= 1; --blocks) {
        const int32_t bytes = of_sm / blocks - sm80_system_bytes - static_bytes;
        Sm80Config config{
            {sm80_stages<kind, Shape, 0>(type, bytes), sm80_stages<kind, Shape, 1>(type, bytes),
             sm80_stages<kind, Shape, 2>(type, bytes)},
            sm80_few_rows_stages<kind, Shape>(type, bytes),
            blocks,
            sm80_epilogue_bytes<Shape>};
        const int32_t least = blocks > 1 ? Shape::min_stages : 2;
        bool fit = Shape::few_rows == 0 || config.few_rows.all_bytes > 0;
        config.shared_bytes = std::max(config.shared_bytes, config.few_rows.all_bytes);
        for (int32_t width = 0; width < Shape::widths; ++width) {
            const Sm80Stages& stages = config.stages[width];
            config.shared_bytes = std::max(config.shared_bytes, stages.all_bytes);
            fit = fit && stages.n >= least;
        }
        if (fit && config.shared_bytes <= bytes) return config;
    }
    return {};
}

}  // namespace moe::cuda
