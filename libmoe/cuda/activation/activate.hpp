// The activation as a kernel of its own: of rows that were stored before it.
#pragma once

#include "libmoe/cuda/device_facts.hpp"
#include "libmoe/cuda/gemm_args.hpp"

namespace moe::cuda {

// out[r] = act(gate row, up row) for float32 rows [n_rows][2 n_features], gate first; rows
// [n_rows][n_features] without a gate. Rows are those of the tiles. One launch on `stream`.
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

// Loads the kernel, so that a first launch may be captured.
void prepare_activate();

}  // namespace moe::cuda
