// The combine stage, the norms and the dot products of whole rows. Inputs and outputs are rows in
// device memory.
#pragma once

#include <cuda_runtime_api.h>

#include "libmoe/cuda/device_facts.hpp"
#include "libmoe/cuda/faults.hpp"
#include "libmoe/cuda/router/router.hpp"
#include "libmoe/cuda/rows.hpp"

namespace moe::cuda {

// run_combine computes, in slot order and float32:
// out[t] = round(scale * (sum_j w_j y[slot_to_row[t k + j]] + sum_j w_j x[t] over identity experts
//                         + sum_j w_j down_bias[id_j] + routed[t]
//                         + shared_scale sigmoid(gate[t]) shared[t]))
//          (+ out[t])
// Every term is optional. Tokens beyond the true number are not written.
//
// gate[t] is shared_gate[t] or, for small batches, a dot product that every
// thread block computes anew.
struct DotInput {
    const void* x;
    moe_type type;
    int64_t stride;
    const float* row;  // [width]
    int32_t width;
};

struct CombineInput {
    const void* y;  // rows, or null
    moe_type y_type;
    int64_t y_stride;
    const int32_t* slot_to_row;  // [T k] row of y or -1; null: y is per slot, that of (t, j) at
    int64_t y_token_stride;      // t * y_token_stride + j * y_stride
    bool weighted;         // true: y is multiplied by its weight (not with weights on the input)
    const int32_t* ids;    // [T, k] dense, -1: skipped
    const float* weights;  // [T, k] dense
    int32_t top_k;
    int32_t n_experts;  // ids from here on are identity experts
    int32_t n_experts_all;
    const void* x;  // identity experts; null: they add nothing
    moe_type x_type;
    int64_t x_stride;
    const float* down_bias;  // [n_experts][width] by global id, or null
    const void* routed;      // a routed sum computed before, or null
    moe_type routed_type;
    int64_t routed_stride;
    const void* shared;  // or null
    moe_type shared_type;
    int64_t shared_stride;
    const int32_t* shared_first;  // row of token 0, on the device; null: 0
    const float* shared_gate;     // [T] the gate's dot product before the sigmoid, or null
    DotInput gate;                // fused dot product; row null: not fused
    float shared_scale;
    float scale;  // of the combine rule
    int32_t width;
};

struct CombineOutput {
    void* data;
    moe_type type;
    int64_t stride;
    bool accumulate;
};

void run_combine(const DeviceFacts& device, const CombineInput& input, const TokenCount& tokens,
                 const CombineOutput& output, cudaStream_t stream);

// Writes out[t, j] = y[slot_to_row[t k + j]] for every slot, zero for a slot without a row: the
// per-slot layout. Slot (t, j) of out begins at t * out_stride + j * width.
void run_store_slots(const DeviceFacts& device, const void* y, moe_type y_type, int64_t y_stride,
                     const int32_t* slot_to_row, int32_t top_k, int32_t width,
                     const TokenCount& tokens, void* out, moe_type out_type, int64_t out_stride,
                     cudaStream_t stream);

// Writes out[r] = y[slot_to_row[r]] for r < n_rows and leaves rows of out alone whose map is -1.
void run_store_rows(const DeviceFacts& device, const void* y, moe_type y_type, int64_t y_stride,
                    const int32_t* slot_to_row, int32_t n_rows, int32_t width, void* out,
                    moe_type out_type, int64_t out_stride, cudaStream_t stream);

// Writes out[t] = in[t] / rms(in[t]) * weight * scale, computed in float32; a null weight is one.
// out may be `in`.
struct NormInput {
    const void* in;
    moe_type in_type;
    int64_t in_stride;
    const float* weight;
    float eps;
    float scale;     // multiplies the result
    bool normalize;  // false: only scale and weight
    int32_t width;
};
void run_norm(const NormInput& input, const TokenCount& tokens, void* out, moe_type out_type,
              int64_t out_stride, cudaStream_t stream);

// Writes out[t] = x[t] . row.
void run_dot_rows(const DotInput& input, const TokenCount& tokens, float* out, cudaStream_t stream);

void prepare_combine();
void prepare_norm();  // called by prepare_combine and prepare_router

}  // namespace moe::cuda
