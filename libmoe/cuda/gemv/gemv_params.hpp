// How the launcher of the one-token kernels cuts a call, and what the kernels take: see
// gemv.cu.
#pragma once

#include "libmoe/cuda/device/codebook_mode.hpp"
#include "libmoe/cuda/gemm_families.hpp"

namespace moe::cuda {

constexpr int32_t max_gemv_slots = 64;
constexpr int32_t max_split_k_groups = 8;  // of gate and up, which have a barrier each
// Bytes of shared memory on sm_90: of a multiprocessor, what a block takes more of it than it asks
// for, and the most that a block can have.
constexpr int32_t shared_of_sm = 233472;
constexpr int32_t shared_of_block = 1024;
constexpr int32_t max_smem_of_block = shared_of_sm - shared_of_block;
// Registers of a thread: in each quarter of an SM, 16,384 registers for 2 warps of gate and up and
// 3 of down.
constexpr int32_t gate_up_registers = 72;
constexpr int32_t down_registers = 120;
// Of gate and up in teams, which have an SM for themselves: at most 16 warps.
constexpr int32_t split_k_registers = 128;

// Offsets in the dynamic shared memory of a block, in bytes.
struct GemvSmemLayout {
    int32_t zeros = 0;         // 128 bytes: B of the lanes that take no part
    int32_t x = 0;             // operands
    int32_t accum = 0;         // partial accum, float32
    int32_t slots = 0;         // per warp, [64] int32: local expert * 64 + slot
    int32_t factors = 0;       // down: [64][2] float32
    int32_t biases = 0;        // down: weighted biases of the outputs, float32
    int32_t partial = 0;       // down: accum of the other block of the cluster, float32
    int32_t codebooks = 0;     // tables_bytes
    int32_t slice_scales = 0;  // down: [slices of a pass] float32
    int32_t gate = 0;          // down: [warps] float32, parts of the shared expert's gate
    int32_t terms = 0;         // gate and up: [threads][3] float32
    int32_t largest = 0;       // gate and up of several teams: [warps] float32, of parts of x
    int32_t barriers = 0;      // per warp and stage
    int32_t pipeline = 0;
    int32_t total = 0;
};

// n / d = (2 n * reciprocal) >> 32 for n d < 2^31.
MOE_HOST_DEVICE constexpr uint32_t reciprocal_of(int32_t d) {
    return (0x80000000u + static_cast<uint32_t>(d) - 1) / static_cast<uint32_t>(d);
}

// A stage of a warp's pipeline holds one k_block: up to k_block_splits splits of a tile.
struct GemvTiling {
    int32_t n_blocks = 1;  // of a token
    int32_t cluster = 1;   // down: blocks that limits their tiles
    int32_t n_warps = 1;
    int32_t group_warps = 1;  // gate and up: that limits a tile
    int32_t n_groups = 1;
    int32_t accum_bytes_of_group = 0;  // bytes
    int32_t k_block_splits = 1;
    int32_t n_k_blocks = 1;  // of a warp's part of a tile; down: of a slot's
    int32_t n_stages = 1;
    bool is_resident = false;  // gate and up: the pipeline holds all that a warp reads
    int32_t pass_slices = 1;   // down: (slot, k_block) pairs whose h is in shared memory at a time
    CodebookMode codebook_mode = CodebookMode::none;
    uint32_t tile_reciprocal = 0;     // of the matrix's n_tiles
    uint32_t k_block_reciprocal = 0;  // of n_k_blocks
    uint32_t warp_reciprocal = 0;     // of n_warps
    uint32_t group_reciprocal = 0;    // of group_warps
    uint32_t block_reciprocal = 0;    // of all teams; down: of clusters
    GemvSmemLayout shared;
};

struct GemvSlots {
    const int32_t* ids;
    const int32_t* local_of;  // null: ids are local
    const float* weights;
    int64_t ids_stride;  // from token to token
    int64_t weights_stride;
    int32_t n_slots;
    int32_t top_k;
    int32_t n_ids;
    int32_t n_ids_all;
    int32_t n_local;
    int32_t n_direct;  // ids below are local experts as they are; 0 with a map
    FaultWords* faults;
};

// Bytes that are known before ids are, asked for while the router is at work.
struct L2Prefetch {
    const std::byte* from;
    int32_t bytes_of_block;
};

struct GemvGateUpParams {
    PackedMatrix matrix;
    GemvSlots slots;
    GemvTiling tiling;
    Activation activation;
    const float* gate_bias;
    const float* up_bias;
    const void* x;
    void* h;
    moe_type x_type;
    int64_t x_stride;
    int32_t intermediate;
    bool weight_on_input;
    bool has_row_terms;   // biases, or a weight on the input
    float h_factor;       // 2^h_exponent of down's kernels, with which h is stored
    L2Prefetch ahead[2];  // of the shared expert: gate and up, down
};

struct GemvDownParams {
    PackedMatrix matrix;
    GemvSlots slots;
    GemvTiling tiling;
    const float* bias;
    const void* h;
    void* out;
    moe_type out_type;
    int64_t out_stride;
    const void* x;  // of the shared expert's gate
    moe_type x_type;
    int64_t x_stride;
    int32_t hidden;
    SharedSlot shared;
    float scale;
    int32_t width;
    bool weight_on_input;
    bool accumulate;
};

// Shared memory of a block: the pipeline grows up to `most`, and never less than `least` is asked
// for, so that no SM takes two blocks of the same kernel while another has none: that costs up to
// half of the speed.
struct SmemLimits {
    int32_t most_warps;
    int32_t k_block_bytes;  // at most, where a min_split fits
    int32_t least;
    int32_t most;
};

// What the numbers of a tiling are chosen by; measured on an H200. Of a call with few weights a
// block of each kernel shares an SM, and down's weights arrive while gate and up multiply. Of a
// call with many a block has an SM for itself, the larger pipeline is worth more, and gate and up
// go in teams. On other devices (tuning_of) every block has an SM for itself, and there are no
// clusters.
struct GemvTuning {
    int32_t h_bytes = 32768;  // of h in shared memory, at most
    bool clusters = true;
    int64_t large_bytes = 64 << 20;                  // of weights in a call
    int64_t large_bytes_shared_codebook = 26 << 20;  // of several tokens, one table for all experts
    int32_t narrow_warps = 16;  // of gate and up of many such bytes, codes of up to five bits
    int64_t prefetch_bytes = 16 << 20;  // of one token's shared expert, at most
    SmemLimits gate_up_small{8, 4608, 115840, 132224};
    SmemLimits down_small{12, 4608, 58368, 99200};  // more where gate and up leave it
    SmemLimits gate_up_large{8, 9216, 116736, max_smem_of_block};
    SmemLimits down_large{16, 4608, 116736, max_smem_of_block};
};

GemvTuning tuning_of(const DeviceFacts& device);

// gemv_tiling.cpp. A tiling whose shared memory is beyond that of a block cannot be launched.
GemvTiling tile_gate_up(const DeviceFacts& device, const GemvArgs& call, const GemvTuning& tuning);
GemvTiling tile_down(const DeviceFacts& device, const GemvArgs& call, const GemvTuning& tuning);

// The kernels, by packed type and codebook_mode; null where there is none.
struct GemvKernels {
    const void* gate_up = nullptr;
    const void* gate_up_split_k = nullptr;
    const void* down = nullptr;
    int32_t h_exponent = 0;  // down takes h times this power of two
};

// A slice of translation for each group of types. Those of sm_90, then those of every architecture.
GemvKernels sm90_gemv_dense(PackedType type, CodebookMode codebook_mode);
GemvKernels sm90_gemv_fp4(PackedType type, CodebookMode codebook_mode);
GemvKernels sm90_gemv_kbit(PackedType type, CodebookMode codebook_mode);
GemvKernels sm90_gemv_kbit_f32(PackedType type, CodebookMode codebook_mode);
GemvKernels sm90_gemv_gguf(PackedType type, CodebookMode codebook_mode);
GemvKernels sm80_gemv_dense(PackedType type, CodebookMode codebook_mode);
GemvKernels sm80_gemv_fp4(PackedType type, CodebookMode codebook_mode);
GemvKernels sm80_gemv_kbit(PackedType type, CodebookMode codebook_mode);
GemvKernels sm80_gemv_kbit_f32(PackedType type, CodebookMode codebook_mode);
GemvKernels sm80_gemv_gguf(PackedType type, CodebookMode codebook_mode);

}  // namespace moe::cuda
