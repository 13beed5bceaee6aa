// The grouped GEMM of Hopper: gate_up or down of the experts, or a dense matrix, for many tokens.
// Wide tiles take experts with many rows; narrow tiles run beside them and take the others, or
// everything in a small call.
//
// Weights come from registers in packed order, tokens from shared memory. The input and, of
// gate_up, the output are token blocks: block b of 64 columns is [capacity][64] 16-bit values, 128
// bytes a row; inside a row, k = 16 t + 4 j + 2 h + e lies at 16 j + 8 h + 2 t + e, and the 16-byte
// chunk c of row r is stored at chunk c ^ (r & 7).
#pragma once

#include "libmoe/cuda/device_facts.hpp"
#include "libmoe/cuda/gemm_args.hpp"
#include "libmoe/cuda/kernel_limits.hpp"

namespace moe::cuda {

constexpr TileRule grouped_tiles{256, 8, max_narrow_rows};
struct GroupedGemmArgs {
    PackedMatrix weights;
    Epilogue epilogue;  // linear, activation, gated
    Activation activation;
    const float* bias;  // as in GemmArgs
    const float* up_bias;
    int64_t bias_stride;
    const float* row_weight;
    const int32_t* row_slot;
    const std::byte* in;      // token blocks of bfloat16
    int32_t in_capacity;      // rows of them, a multiple of row_alignment
    const int32_t* in_index;  // of a product with an activation: row r is that of the input whose
    int32_t in_divisor;       // number is in_index[r] / in_divisor; null: row r itself
    std::byte* out;           // linear: rows [capacity][out_stride]; else token blocks of bfloat16
    moe_type out_type;        // linear: BF16 or F32
    int64_t out_stride;
    int32_t capacity;  // rows, a multiple of row_alignment
    const Tile* tiles;
    const TileCount* n_tiles;
    int32_t max_tiles;
    int32_t* tile_counter;  // [2], zero: pairs taken from a counter, of large tiles and of others
    bool batch_invariant;   // only kernels whose sums have the same bits
};
// One launch on `stream`, or two with wide tiles. The grid depends on the host's numbers alone.
void run_grouped_gemm(const DeviceFacts& device, const GroupedGemmArgs& gemm,
                      const GemmNames& names, bool has_wide_tiles, cudaStream_t stream);

// Is the type among the instances? grouped_supports (kernel_types.hpp) says the same without CUDA.
bool has_grouped_gemm_instances(PackedType type);

// Loads the kernels of a type and sets their attributes; of a type without kernels does nothing.
void prepare_grouped_gemm(PackedType type);

}  // namespace moe::cuda
