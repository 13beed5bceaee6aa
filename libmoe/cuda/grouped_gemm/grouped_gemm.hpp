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
// GemmArgs::in is token blocks of bfloat16 with in_capacity rows; with an activation, row r is
// that of the input whose number is in.index[r] / in.divisor, or row r itself where index is null.
// out is token blocks too with an activation, else rows of bfloat16 or float32. Epilogues: linear,
// activation, gated. One launch on `stream`, or two with wide tiles. The grid depends on the host's
// numbers alone.
void run_grouped_gemm(const DeviceFacts& device, const GemmArgs& gemm, const GemmNames& names,
                      bool has_wide_tiles, cudaStream_t stream);

// Is the type among the instances? grouped_supports (kernel_types.hpp) says the same without CUDA.
bool has_grouped_gemm_instances(PackedType type);

// Loads the kernels of a type and sets their attributes; of a type without kernels does nothing.
void prepare_grouped_gemm(PackedType type);

}  // namespace moe::cuda
