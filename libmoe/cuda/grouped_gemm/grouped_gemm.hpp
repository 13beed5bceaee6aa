// The grouped GEMMs: gate_up or down of the experts, or a dense matrix, for many tokens. There are
// three. Hopper's, on wgmma: wide tiles take experts with many rows; narrow tiles run beside them
// and take the others, or everything in a small call; between these middle tiles take everything.
// The portable one, on mma.sync: any packed type, rows of any type by index, every GPU; its tiles
// are wide, middle or narrow by the rows that an expert has on average. Inputs of a matrix with a
// table of columns come gathered (gather_columns.hpp). Hopper's of E4M3, for plans that quantize
// activations to it.
//
// Hopper's: weights come from registers in packed order, tokens from shared memory. The input and,
// of gate_up, the output are token blocks: block b of 64 columns is [capacity][64] 16-bit values,
// 128 bytes a row; inside a row, k = 16 t + 4 j + 2 h + e lies at 16 j + 8 h + 2 t + e, and the
// 16-byte chunk c of row r is stored at chunk c ^ (r & 7).
#pragma once

#include "libmoe/cuda/device_facts.hpp"
#include "libmoe/cuda/gemm_args.hpp"
#include "libmoe/cuda/kernel_limits.hpp"

namespace moe::cuda {

constexpr TileRule grouped_tiles{288, 8, max_narrow_rows};
constexpr TileRule grouped_narrow_tiles{max_narrow_rows, 8, INT32_MAX};  // where all are narrow
constexpr TileRule grouped_middle_tiles{96, 8, INT32_MAX};               // where all are middle
constexpr TileRule fp8_tiles{256, 64, INT32_MAX};         // 96 rows take wgmma as long as 128
constexpr TileRule fp8_middle_tiles{128, 64, INT32_MAX};  // tokens are A, 64 to a warpgroup
constexpr TileRule fp8_narrow_tiles{48, 8, INT32_MAX};
// The portable one takes full tiles, then one with the rest.
constexpr TileRule sm80_wide_tiles{128, 128, INT32_MAX};
constexpr TileRule sm80_narrow_tiles{64, 64, INT32_MAX};  // and middle ones

// The gate's values before the activation, where the gate had a launch of its own: row r begins at
// values + stride * r. The activation of up is then act(gate, up).
struct GateValues {
    const float* values = nullptr;
    int64_t stride = 0;
};

// GemmArgs::in is token blocks of bfloat16 or float16, the type of the operands, with in_capacity
// rows; row r is that of the input whose number is in.index[r] / in.divisor, or row r itself where
// index is null. out is token blocks too with an activation, of float16 only where the input is;
// else rows of bfloat16, float16 or float32, by out.index where that is set (negative: the row is
// not stored). Epilogues: linear, activation, gated. `gate` goes with activation. One launch on
// `stream`, or two with both widths; where tiles are all narrow, or all middle, they were made by
// the rule for those. The grid depends on the host's numbers alone.
void run_grouped_gemm(const DeviceFacts& device, const GemmArgs& gemm, const GemmNames& names,
                      TileWidths tiles, cudaStream_t stream, const GateValues& gate = {});

// Is the type among the instances? grouped_supports and grouped_in_f16_supports (kernel_types.hpp)
// say the same without CUDA.
bool has_grouped_gemm_instances(PackedType type, moe_type operand);

// Loads the kernels of a type and sets their attributes; of a type without kernels does nothing.
void prepare_grouped_gemm(PackedType type, moe_type operand);

// Hopper's of E4M3, in sm90_fp8_grouped_gemm.cu: linear and gated. Inputs, and gated outputs, are
// token blocks of E4M3 (fp8_blocks.hpp); else as Hopper's, of one width. A scale of the weights
// holds for 8 rows and 128 k; for middle tiles, of types with fp8_has_middle, for those rows of
// eight packed tiles.
void run_fp8_grouped_gemm(const DeviceFacts& device, const GemmArgs& gemm, const GemmNames& names,
                          TileWidths tiles, cudaStream_t stream);
bool has_fp8_grouped_gemm_instances(PackedType type);
void prepare_fp8_grouped_gemm(PackedType type);

// The portable one. in and out are rows of any type; any epilogue. operand: BF16, or F16, which
// weights and inputs must fit. The rest as above.
void run_sm80_grouped_gemm(const DeviceFacts& device, const GemmArgs& gemm, const GemmNames& names,
                           TileWidths tiles, moe_type operand, cudaStream_t stream);
bool has_sm80_grouped_gemm_instances(PackedType type);
void prepare_sm80_grouped_gemm(const DeviceFacts& device, PackedType type, moe_type operand);

}  // namespace moe::cuda
