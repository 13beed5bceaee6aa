// Epilogue of gemv_gate_up.cuh (step 5): the accumulators of a work item become 16 values before
// the activation, and those h or gate_values.
//
// Inputs: float32 accumulators of the warps of a group in shared memory; scales, biases and slot
// weights; gate_values of the launch before, where this one is that of up (GateUpRole).
// Output: h, bfloat16 or float16, or gate_values, float32.
#pragma once

#include "libmoe/cuda/device/cp_async.cuh"
#include "libmoe/cuda/device/dependent_launch.cuh"
#include "libmoe/cuda/device/fast_activation.cuh"
#include "libmoe/cuda/gemv/gemv_mainloop.cuh"
#include "libmoe/layer/activation.hpp"

namespace moe::cuda {

// Is a tile 8 rows of gate and 8 of up?
__device__ __forceinline__ bool is_fused(const GemvGateUpParams& call) {
    return call.activation.gated && call.role == GateUpRole::whole;
}

// Epilogue terms of one row of a work item. Asynchronous copies bring scale, weight and bias to
// shared memory early; loads to registers would stall the thread in the mainloop.
struct RowEpilogue {
    float* terms;  // scale, weight and bias of this thread, shared memory
    int32_t row;
    int32_t slot;  // index in the slot list
    int32_t feature;
    const float* scales;  // of the row's M half; null: none

    __device__ __forceinline__ RowEpilogue(const GemvGateUpParams& call, float* own_terms,
                                           int32_t row_of_item, int32_t work_item)
        : terms(own_terms), row(row_of_item), scales(call.matrix.global_scale) {
        terms[0] = 1.0f;
        terms[1] = 1.0f;
        terms[2] = 0.0f;
        if (scales) scales += row >> 3;
        compute_now(scales);
        go_to(call, work_item);
    }
    __device__ __forceinline__ void go_to(const GemvGateUpParams& call, int32_t work_item) {
        slot = divide(work_item, call.tiling.tile_reciprocal);
        const int32_t tile = work_item - slot * call.matrix.n_tiles;
        feature = is_fused(call) ? 8 * tile + (row & 7) : 16 * tile + row;
        compute_now(slot);
        compute_now(feature);
    }
    // `entry` is the slot's list entry. The code is short, because only some warps run it and the
    // others wait for them.
    __device__ __forceinline__ void issue_loads(const GemvGateUpParams& call, int32_t entry) const {
        if (scales) copy_async_4(terms, scales + 2 * slot_expert(entry));
        if (call.has_row_terms) issue_row_loads(call, entry);
    }
    __device__ __forceinline__ int32_t slot_of_call(const GemvGateUpParams& call) const {
        return static_cast<int32_t>(blockIdx.y) * call.slots.n_slots + slot;
    }
    // h has 16-bit values, bfloat16 or float16.
    __device__ __forceinline__ uint16_t* address(const GemvGateUpParams& call) const {
        return static_cast<uint16_t*>(call.h) + slot_of_call(call) * call.h_columns + feature;
    }
    __device__ __forceinline__ float* gate_address(const GemvGateUpParams& call) const {
        return call.gate_values + slot_of_call(call) * call.features + feature;
    }

  private:
    __device__ __forceinline__ void issue_row_loads(const GemvGateUpParams& call,
                                                    int32_t entry) const {
        const bool is_of_gate = call.role == GateUpRole::gate || (is_fused(call) && row < 8);
        const float* bias = is_of_gate ? call.gate_bias : call.up_bias;
        const int64_t of_expert = int64_t{slot_expert(entry)} * call.features;
        if (bias) copy_async_4(terms + 2, bias + of_expert + feature);
        if (call.weight_on_input)
            copy_async_4(terms + 1, weights_of_token(call.slots) + slot_index(entry));
    }
};

// The threads of the last tile of a slot store the zeros behind its features.
__device__ __forceinline__ void clear_padding(const GemvGateUpParams& call, int32_t feature,
                                              uint16_t* to) {
    const int32_t of_tile = is_fused(call) ? 8 : 16;
    if (feature + of_tile < call.features) return;
#pragma unroll 1
    for (int32_t i = of_tile; feature + i < call.h_columns; i += of_tile) to[i] = 0;
}

__device__ __forceinline__ uint16_t h_value(const GemvGateUpParams& call, float value) {
    return static_cast<uint16_t>(call.h_type == MOE_TYPE_F16 ? f16_pair(value, 0.0f)
                                                             : bf16_pair(value, 0.0f));
}

// Adds the warps' accumulators of one row in a fixed order, applies the epilogue and stores h.
// Sixteen lanes hold the rows of a work item. Work that needs no accumulator stands before the
// barrier. SiLU uses the approximate form of the grouped GEMM, within half a bfloat16 step of
// the exact one.
template <class Group>
__device__ __forceinline__ void store_row(const GemvGateUpParams& call, const float* accum,
                                          const Group& warp_group, const RowEpilogue& epilogue,
                                          float residual_scale, bool has_work_item) {
    wait_all_copies();
    const bool gated = call.activation.gated;
    const bool is_silu = call.activation.kind == MOE_ACTIVATION_SILU && gated;
    const bool stores = has_work_item && !(is_fused(call) && epilogue.row >= 8);
    FastActivation<ActivationClass::silu> silu(call.activation);
    float factor = residual_scale * epilogue.terms[0] * epilogue.terms[1];
    float h_factor = call.h_factor;
    const float bias = epilogue.terms[2];
    uint16_t* to = epilogue.address(call);
    float gate = 0.0f;
    if (call.role == GateUpRole::up_after_gate) {
        wait_for_previous_kernel();
        if (stores) gate = load_global(epilogue.gate_address(call));
    }
    if (stores && call.features < call.h_columns && call.role != GateUpRole::gate)
        clear_padding(call, epilogue.feature, to);
    warp_group.sync();
    const float value =
        fmaf(add_warps(accum + epilogue.row, warp_group.n_threads / 32), factor, bias);
    float up = __shfl_xor_sync(~0u, value, 8);
    if (call.role == GateUpRole::gate) {
        if (stores) *epilogue.gate_address(call) = value;
        return;
    }
    if (call.role == GateUpRole::up_after_gate)
        up = value;
    else
        gate = value;
    const float acted =
        is_silu ? silu(gate, up) : activate(call.activation, gate, gated ? up : gate);
    if (stores) *to = h_value(call, acted * h_factor);
}

}  // namespace moe::cuda
