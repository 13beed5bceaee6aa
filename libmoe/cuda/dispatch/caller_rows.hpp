// Rows that the caller has sorted or batched by expert (moe_experts_args): turned into slots with
// an expert each, so that the library's own sort can lay them out as its kernels want them.
#pragma once

#include <cuda_runtime_api.h>

#include "libmoe/cuda/faults.hpp"

namespace moe::cuda {

struct CallerRows {
    const int64_t* offsets;  // [n_local + 1], or null: batched
    const int64_t* counts;   // [n_local], or null
    int64_t batch_capacity;  // without counts: every batch is full
    const int32_t* row_ids;  // [n_rows] slot of each row, -1 padding; or null
    int64_t n_rows;
    int64_t n_slots;  // row ids beyond are a fault; 0: they mark padding only
    int32_t n_local;
};

// The slots that a chunk works on: with `by_row` slot s is the caller's row first + s, else it is
// the slot first + s of the row ids.
struct SlotWindow {
    bool by_row;
    int64_t first;
    int32_t n;
};

// What is wanted of every slot of the window; null pointers: not wanted.
struct SlotsOut {
    int32_t* ids;           // local expert, -1: no row
    int32_t* source;        // its row (with token_divisor: row_ids[row] / token_divisor), or -1
    int32_t token_divisor;  // 0: none
    float* weights;  // on the input: row_weights[row], else given[slot / k * stride + slot % k],
    const float* row_weights;  // else 1
    const float* given_weights;
    int64_t given_stride;
    int32_t top_k;
};

// Offsets and counts are clamped; of several rows of a slot the first counts. keys: scratch, 8
// bytes a slot. With report_faults all that breaks the rules is counted.
void run_rows_to_slots(const CallerRows& rows, const SlotWindow& window, unsigned long long* keys,
                       const SlotsOut& out, bool report_faults, FaultWords* faults,
                       cudaStream_t stream);

// in_row[r] = source[slot[r]], -1 where there is no such slot.
void run_compose(const int32_t* slot, const int32_t* source, int32_t n_slots, int32_t n_rows,
                 int32_t* in_row, cudaStream_t stream);

void prepare_caller_rows();

}  // namespace moe::cuda
