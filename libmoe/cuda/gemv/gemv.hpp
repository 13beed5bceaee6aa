// The gemv family: the experts of up to 32 tokens and their weighted sum at the read rate of
// memory.
//
// out[t] = scale * sum over slots j of w[t][j] (down_j h_j + bias_j), h_j = act(gate_j x_t, up_j
// x_t) rounded to bfloat16 or float16. Two launches, gemv_gate_up.cuh and gemv_down.cuh, or three
// where gate and up have different packed types; chained by programmatic dependent launch from
// sm_90 on. A matrix with a table of columns has one more before it (gather_slots.hpp), behind
// which gate and up take every slot for a token; so have rows of x that are not those of the tokens
// in order. Each token has thread blocks of its own; an expert that two tokens share comes from the
// L2 the second time. x has a multiple of 16 columns, aligned to 16 bytes. Accumulation is float32
// in a fixed order.
#pragma once

#include <cuda_runtime_api.h>

#include "libmoe/cuda/device_rows.hpp"
#include "libmoe/cuda/faults.hpp"
#include "libmoe/cuda/gemv/gemv_launch.hpp"
#include "libmoe/layer/layer.hpp"

namespace moe::cuda {

// The shared expert as one more slot of every token: local expert n_local, whose weight is
// scale * sigmoid(x . gate), or scale where gate is null.
struct SharedSlot {
    const float* gate;  // [hidden]
    float scale;
};

// Scratch of a call that gathers.
struct SlotRows {
    void* rows;        // [T][n_slots][k], of 16-bit values; k of what is gathered for
    int32_t* experts;  // [T][n_slots]
    float* weights;    // [T][n_slots]
};

struct GemvArgs {
    PackedMatrix gate_up;  // gate and up fused, the gate of a pair, or up of a layer without a gate
    PackedMatrix up;       // of a pair that is not fused; type none: there is no pair
    PackedMatrix down;
    Activation activation;
    const float* gate_bias;  // [n_local][intermediate] or null; unused without a gate
    const float* up_bias;
    const float* down_bias;  // [n_local][width] or null
    bool weight_on_input;  // weights multiply the accumulators of gate and up instead of the output
    int32_t n_slots;       // top_k, and one for the shared expert
    int32_t top_k;
    SharedSlot shared;        // of the last slot, where n_slots is top_k + 1
    float scale;              // of the whole sum
    const int32_t* ids;       // [T][top_k] global ids; slots out of range or absent take no part
    const int32_t* local_of;  // [n_ids] local expert or -1; null: ids are local
    int32_t n_ids;
    int32_t n_ids_all;     // ids in [n_ids, n_ids_all) are identity experts: no part, no fault
    int32_t n_local;       // experts that the weights hold
    FaultWords* faults;    // ids outside [-1, n_ids_all) are reported
    const float* weights;  // [T][top_k]
    // Rows of x by token, [hidden], BF16 or F16. They are gathered, which wants tokens of one slot
    // or a launch that gathers, where they have an index or a divisor or do not begin on 16 bytes.
    DeviceRows x;
    int32_t hidden;
    int32_t intermediate;
    // Scratch: [T][n_slots][k of down], float16, or bfloat16 times 2^h_exponent of down's kernel.
    void* h;
    moe_type h_type;
    float* gate_values;  // scratch of a pair, [T][n_slots][intermediate]
    SlotRows slot_rows;
    void* out;  // [T][width]
    moe_type out_type;
    bool accumulate;
    bool keeps_absent;  // rows of out without a slot here stay as they are, instead of zero
    int32_t n_tokens;   // T
    int64_t ids_stride;
    int64_t weights_stride;
    int64_t out_stride;
};

// Two or three launches on `stream`; no allocation, no synchronization.
void run_gemv(const GemvLaunch& launch, const GemvArgs& args, cudaStream_t stream);

// Is the type among the instances? gemv_supports (kernel_types.hpp) says the same without CUDA.
bool has_gemv_instances(PackedType type);

// Finds the kernels of a launch and loads them, so that the first launch may be captured.
void prepare_gemv(const DeviceFacts& device, GemvLaunch& launch);

}  // namespace moe::cuda
