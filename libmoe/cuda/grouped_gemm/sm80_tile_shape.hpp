// Tile shapes of the portable grouped GEMM (sm80_grouped_gemm.cuh), and what a pipeline stage of it
// holds. A thread block multiplies 128 weight rows, eight packed tiles, with up to `max_rows` rows
// of tokens:
//
//   Sm80Wide      128 rows; a warp has 32 weight rows and all tokens, so that it dequantizes a
//                 weight once
//   Sm80Wide16    128 rows; a warp has 64 weight rows and half of the tokens: 16-bit weights need
//   no
//                 arithmetic, and a square tile reads shared memory least
//   Sm80Narrow    32 rows; a warp has 16 weight rows, and eight warps wait for memory together
//
// Inputs: packed type, sizes of the matrix, and the shared memory of a device. Host and device.
#pragma once

#include "libmoe/cuda/device_facts.hpp"
#include "libmoe/packed/layout.hpp"

namespace moe::cuda {

struct Sm80Wide {
    static constexpr int warps_m = 4, warps_n = 1;
    static constexpr int m_tiles = 2;  // packed tiles of a warp
    static constexpr int max_rows = 128;
    static constexpr int max_units = 1;  // blocks of 64 k in a stage
    static constexpr int blocks_per_sm = 2;
};

struct Sm80Wide16 {
    static constexpr int warps_m = 2, warps_n = 2;
    static constexpr int m_tiles = 4;
    static constexpr int max_rows = 128;
    static constexpr int max_units = 1;
    static constexpr int blocks_per_sm = 2;
};

struct Sm80Narrow {
    static constexpr int warps_m = 8, warps_n = 1;
    static constexpr int m_tiles = 1;
    static constexpr int max_rows = 32;
    static constexpr int max_units = 4;
    static constexpr int blocks_per_sm = 2;
};

template <class Shape>
constexpr int sm80_threads = 32 * Shape::warps_m* Shape::warps_n;

constexpr int sm80_tiles_of_block = 8;
constexpr int sm80_row_bytes = 128;  // of a row of tokens in a unit, 64 operands
constexpr int sm80_max_stages = 4;

// The bytes of one packed tile in a stage of `units` blocks of 64 k. Codes follow each other at
// code_stride, each with its scales where they lie behind it. Superblock scales and records of a
// grid come once, at scale_offset.
struct Sm80StageLayout {
    int32_t units;
    int32_t code_stride;
    int32_t scale_offset;
    int32_t tile_bytes;
};

// Records of a grid that `units` blocks of 64 k can touch.
MOE_HOST_DEVICE constexpr int32_t grid_records_of_units(PackedType type, int32_t units) {
    const int32_t group = grid_group(type);
    return group == 0 ? 1 : (64 * units + group - 1) / group + (64 % group == 0 ? 0 : 1);
}

MOE_HOST_DEVICE constexpr Sm80StageLayout sm80_stage_layout(PackedType type, int32_t units) {
    const int32_t codes = block_code_bytes(type, 4);
    const bool apart = has_superblock(type) || is_grid(type);
    const int32_t stride = apart ? codes : block_bytes(type, 4);
    const int32_t scales = has_superblock(type) ? shared_scale_bytes(type)
                           : is_grid(type)
                               ? grid_records_of_units(type, units) * grid_record_bytes(type)
                               : 0;
    const int32_t offset = units * stride;
    return {units, stride, offset, (offset + scales + 15) / 16 * 16};
}

// The launch configuration of a shape: as many blocks of 64 k to a stage as leave three stages, and
// two thread blocks on an SM where both have two stages.
struct Sm80Config {
    Sm80StageLayout stage;
    int32_t n_stages;
    int32_t blocks_per_sm;
    int32_t shared_bytes;
};

template <class Shape>
constexpr int sm80_stage_bytes(const Sm80StageLayout& stage) {
    return stage.units * Shape::max_rows * sm80_row_bytes + sm80_tiles_of_block * stage.tile_bytes;
}

// static_bytes: of the kernel's own shared memory, and what the system takes of a block's.
template <class Shape>
constexpr Sm80Config sm80_config(const DeviceFacts& device, PackedType type, int32_t static_bytes) {
    for (int32_t blocks = Shape::blocks_per_sm; blocks >= 1; --blocks) {
        const int32_t bytes = device.shared_bytes / blocks - static_bytes;
        for (int32_t wanted = blocks > 1 ? 3 : 2; wanted >= 2; --wanted) {
            for (int32_t units = Shape::max_units; units >= 1; units /= 2) {
                const Sm80StageLayout stage = sm80_stage_layout(type, units);
                const int32_t fit = bytes / sm80_stage_bytes<Shape>(stage);
                const int32_t n_stages = fit < sm80_max_stages ? fit : sm80_max_stages;
                if (n_stages >= wanted)
                    return {stage, n_stages, blocks, n_stages * sm80_stage_bytes<Shape>(stage)};
            }
        }
    }
    return {};
}

}  // namespace moe::cuda
