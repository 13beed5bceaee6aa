// One slot of a token, the work of one thread: reads the caller's id and weight, checks the id, and
// publishes both. Inputs: ids [T, k] of int32 or int64, weights [T, k] of F32, F16 or BF16.
// Outputs: SelectOutput.
#pragma once

#include "libmoe/cuda/device/call.cuh"
#include "libmoe/cuda/device/element.cuh"
#include "moe/moe.h"

namespace moe::cuda {

__device__ inline int64_t id_at(const void* ids, moe_type type, int64_t index) {
    return type == MOE_TYPE_I64 ? static_cast<const int64_t*>(ids)[index]
                                : static_cast<const int32_t*>(ids)[index];
}

// Returns an id in range as it is, else -1. n_bad counts the ids out of range other than -1.
__device__ inline int32_t checked_id(int64_t id, int32_t n_all, int32_t& n_bad) {
    if (id >= 0 && id < n_all) return static_cast<int32_t>(id);
    if (id != -1) n_bad++;
    return -1;
}

// The id of slot j of token t, -1 where it is out of range.
__device__ inline int32_t given_id(const GivenRouting& given, int32_t t, int32_t j,
                                   int32_t& n_bad) {
    return checked_id(id_at(given.ids, given.ids_type, t * given.ids_stride + j),
                      given.n_experts_all, n_bad);
}

__device__ inline void publish(const SelectOutput& output, int32_t k, int32_t t, int32_t j,
                               int32_t id, float weight) {
    const int64_t slot = static_cast<int64_t>(t) * k + j;
    output.ids[slot] = id;
    output.weights[slot] = weight;
    if (output.out_ids) output.out_ids[t * output.out_ids_stride + j] = id;
    if (output.out_weights) output.out_weights[t * output.out_weights_stride + j] = weight;
}

// Publishes slot j of token t with its given weight. Returns its id, or -1 where the given id is
// out of range.
__device__ inline int32_t take_slot(const GivenRouting& given, const SelectOutput& output,
                                    int32_t t, int32_t j, FaultWords* faults) {
    const float weight =
        given.weights ? load_value(given.weights, given.weights_type, t * given.weights_stride + j)
                      : 0.0f;
    int32_t n_bad = 0;
    const int32_t id = given_id(given, t, j, n_bad);
    if (n_bad) report_fault(faults, MOE_FAULT_ID_OUT_OF_RANGE, n_bad);
    publish(output, given.top_k, t, j, id, n_bad ? 0.0f : weight);
    return id;
}

}  // namespace moe::cuda
