// The generic GEMM: any packed type but f32, any shape, any architecture, on mma.sync.m16n8k16 with
// 16-bit operands and float32 accumulators; and the activation as a kernel of its own.
#pragma once

#include "libmoe/cuda/device_facts.hpp"
#include "libmoe/cuda/gemm_args.hpp"
#include "libmoe/cuda/launch_plan.hpp"

namespace moe::cuda {

constexpr TileRule generic_tiles{64, 8, INT32_MAX};

// generic.cu. operand: BF16, or F16, which weights and inputs must fit. One launch on `stream`.
void run_generic(const DeviceFacts& device, const GemmArgs& gemm, const KernelName& name,
                 moe_type operand, cudaStream_t stream);

// activate.cu: out[r] = act(gate row, up row) for float32 rows [n_rows][2 n_features], gate first;
// rows [n_rows][n_features] without a gate. Rows are those of the tiles.
struct ActivateRows {
    const float* in;
    int64_t in_stride;
    int32_t n_features;
    Activation activation;
    DeviceRows out;
    moe_type round_to;
    const Tile* tiles;
    const TileCount* n_tiles;
    int32_t max_tiles;
};
void run_activate(const DeviceFacts& device, const ActivateRows& rows, cudaStream_t stream);

// Load the kernels, so that a first launch may be captured.
void prepare_generic(PackedType type, moe_type operand);
void prepare_activate();

}  // namespace moe::cuda
