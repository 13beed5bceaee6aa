// One grouped product: for every row of every expert, out = epilogue(W_expert v). Gate and up with
// the activation, down, and every dense matrix of the layer (one "expert") are products. The
// generic and the exact kernel take it as it stands.
#pragma once

#include <cuda_runtime_api.h>

#include "libmoe/cuda/device_rows.hpp"
#include "libmoe/cuda/rows.hpp"
#include "libmoe/layer/layer.hpp"
#include "libmoe/weights/packed.hpp"

namespace moe::cuda {

// What a kernel does with the 16 sums of a tile and a row. Sums are first multiplied by the global
// scale and the row's weight, then biased.
enum class Epilogue : int32_t {
    linear,       // 16 outputs: sum
    activation,   // 16 outputs: act(sum); layers without a gate
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
    const float* row_weight;  // [row_slot[r]] multiplies the product of row r before the bias; null
    const int32_t* row_slot;  // index into row_weight by row; null: the row itself
    DeviceRows in;
    DeviceRows out;  // data is written
    const Tile* tiles;
    const TileCount* n_tiles;  // device
    int32_t max_tiles;         // bound of n_tiles->all, known to the host
    moe_type round_to;         // outputs of activation epilogues are rounded to it first; NONE: not

    int32_t n_features() const {
        const bool fused = epilogue == Epilogue::gated || epilogue == Epilogue::gate_and_up;
        return weights.n_tiles * (fused ? 8 : 16);
    }
};

}  // namespace moe::cuda
