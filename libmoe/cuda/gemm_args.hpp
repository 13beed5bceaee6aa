// The description of one GEMM over the rows of the experts: out = epilogue(W_expert v) for every
// row v of every expert. gate_up with the activation, down, and every dense matrix of the layer
// (one "expert") are GEMMs. Every family takes it as it stands, as its kernel's parameter.
//
// M are output features, 16 to a packed tile; N are rows of tokens, cut into tiles by dispatch; K
// is weights.k. The input has in_columns of these columns, and the others are zeros.
#pragma once

#include <cuda_runtime_api.h>

#include "libmoe/cuda/device_rows.hpp"
#include "libmoe/cuda/rows.hpp"
#include "libmoe/layer/layer.hpp"
#include "libmoe/packed/layout.hpp"

namespace moe::cuda {

// The epilogue of the 16 accumulators of a packed tile and a row. Accumulators are first multiplied
// by the global scale and the row's weight, then biased.
enum class Epilogue : int32_t {
    linear,       // 16 outputs: the value
    activation,   // 16 outputs: act(value); layers without a gate
    gated,        // 8 outputs: act(gate, up), gate in tile rows 0-7, up in 8-15
    gate_and_up,  // 16 outputs, before the activation: gate i at column i, up i at n_features + i
};

struct GemmArgs {
    PackedMatrix weights;
    Epilogue epilogue;
    Activation activation;
    // [experts][n_features]; of gate (or of the only matrix) and of up. null: none.
    const float* bias;
    const float* up_bias;
    int64_t bias_stride;      // floats from expert to expert
    const float* row_weight;  // [row_slot[r]] multiplies row r before the bias; null: none
    const int32_t* row_slot;  // index into row_weight by row; null: the row itself
    DeviceRows in;
    int32_t in_columns;  // a multiple of 16
    DeviceRows out;      // data is written
    const Tile* tiles;
    const TileCount* n_tiles;  // device
    int32_t max_tiles;         // bound of n_tiles->all, known to the host
    moe_type round_to;         // outputs of activation epilogues are rounded to it first; NONE: not
    // Only Hopper's grouped GEMM reads these: its input and gate_up output are token blocks
    // (grouped_gemm.hpp).
    int32_t in_capacity;    // rows of a token block of the input, a multiple of row_alignment
    int32_t out_capacity;   // likewise of the output
    int32_t* tile_counter;  // [2], zero: work tiles handed out, of wide and of narrow tiles
    bool batch_invariant;   // a row's bits do not depend on how many rows there are
    bool tiles_are_new;     // of the preceding kernel, so that nothing is read before the wait

    MOE_HOST_DEVICE int32_t n_features() const {
        const bool fused = epilogue == Epilogue::gated || epilogue == Epilogue::gate_and_up;
        return weights.n_tiles * (fused ? 8 : 16);
    }
    MOE_HOST_DEVICE const std::byte* in_bytes() const {
        return static_cast<const std::byte*>(in.data);
    }
    MOE_HOST_DEVICE std::byte* out_bytes() const {
        return static_cast<std::byte*>(const_cast<void*>(out.data));
    }
};

}  // namespace moe::cuda
