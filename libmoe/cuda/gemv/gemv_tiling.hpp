// The launch configuration of the gemv kernels: plain data that plan/gemv_tiling.cpp computes and
// the kernels read. Host and device, without the CUDA runtime.
#pragma once

#include "libmoe/cuda/device/codebook_mode.hpp"

namespace moe::cuda {

// Bulk copies are slow unless both addresses are equal modulo a line of 128 bytes. So k_blocks of
// types whose bytes begin anywhere in a line begin there in their stage, too. With those that begin
// at a few places of it the instructions take as long as is gained (bench/notes/gemv.md).
constexpr bool gemv_copies_in_lines(PackedType type) {
    return is_grid(type) || type == PackedType::e4m3;
}

constexpr int32_t max_gemv_slots = 64;     // of a token: top_k and the shared expert
constexpr int32_t gemv_token_limit = 32;   // of a call: each token has some four SMs
constexpr int32_t max_split_k_groups = 8;  // each has a named barrier of its own

// Offsets in the dynamic shared memory of a block, in bytes.
struct GemvSmemLayout {
    int32_t zeros = 0;         // 128 bytes: B of the lanes that take no part
    int32_t x = 0;             // operands
    int32_t accum = 0;         // partial accumulators, float32
    int32_t slots = 0;         // per warp, [64] int32: local expert * 64 + slot
    int32_t factors = 0;       // down: [64][2] float32
    int32_t biases = 0;        // down: weighted biases of the outputs, float32
    int32_t partial = 0;       // down: accumulators of the other block of the cluster, float32
    int32_t codebooks = 0;     // tables_bytes
    int32_t slice_scales = 0;  // down: [slices of a pass] float32
    int32_t gate = 0;          // down: [warps] float32, parts of the shared expert's gate
    int32_t terms = 0;         // gate and up: [threads][3] float32
    int32_t largest = 0;   // gate_up with several split-k groups: [warps] float32, of parts of x
    int32_t barriers = 0;  // per warp and stage
    int32_t pipeline = 0;
    int32_t total = 0;
};

// Work items are tiles of 16 rows for gate_up and (tile, split-k slice) pairs for down. A stage of
// a warp's pipeline holds one k_block: up to k_block_splits splits of a tile.
struct GemvTiling {
    int32_t n_blocks = 1;  // of a token
    int32_t cluster = 1;   // down: blocks that share their tiles
    int32_t n_warps = 1;
    int32_t group_warps = 1;  // gate_up: that share a tile
    int32_t n_groups = 1;
    int32_t accum_bytes_of_group = 0;  // bytes
    int32_t k_block_splits = 1;
    int32_t n_k_blocks = 1;  // of a warp's part of a tile; down: of a slot's
    int32_t n_stages = 1;
    int32_t stage_bytes = 0;   // of a warp; of a grid the last ones are for records copied apart
    bool is_resident = false;  // gate and up: the pipeline holds all that a warp reads
    // A k_block begins so far behind the beginning of its stage: these bits of its address.
    uint8_t line_mask = 0;
    int32_t pass_slices = 1;  // down: (slot, k_block) pairs whose h is in shared memory at a time
    // From the operands of x or h to their low parts, where a float16 is the sum of two bfloat16
    // operands; 0: operands have one part.
    int32_t low_part = 0;
    CodebookMode codebook_mode = CodebookMode::none;
    uint32_t tile_reciprocal = 0;     // of the matrix's n_tiles
    uint32_t k_block_reciprocal = 0;  // of n_k_blocks
    uint32_t warp_reciprocal = 0;     // of n_warps
    uint32_t group_reciprocal = 0;    // of group_warps
    uint32_t block_reciprocal = 0;    // of all split-k groups; down: of clusters
    GemvSmemLayout shared;
};

}  // namespace moe::cuda
