// Rows that the caller has sorted or batched by expert (moe_experts_args). They are listed as they
// lie, or, where that cannot be (experts_stage.cpp), become slots with an expert each, which the
// library's own sort lays out.
#pragma once

#include <cuda_runtime_api.h>

#include "libmoe/cuda/device_facts.hpp"
#include "libmoe/cuda/faults.hpp"
#include "libmoe/cuda/rows.hpp"

namespace moe::cuda {

struct CallerRows {
    const int64_t* offsets;  // [n_local + 1], or null: batched
    const int64_t* counts;   // [n_local], or null
    int64_t batch_capacity;  // rows of a batch; without counts every batch is full
    const int32_t* row_ids;  // [n_rows] slot of each row, -1 padding; or null
    int64_t n_rows;
    int64_t n_slots;  // a row id at or above it is a fault; 0: row ids mark padding only
    int32_t n_local;
};

// The slots of a chunk of tokens. With `by_row` slot s is the caller's row first + s, else it is
// slot first + s of the row ids. run_list_rows counts used rows instead.
struct SlotWindow {
    bool by_row;
    int64_t first;
    int32_t n;
};

// Outputs for every slot of the window; a null pointer leaves that output out.
struct SlotsOut {
    int32_t* ids;           // local expert, -1: no row
    int32_t* source;        // its row (with token_divisor: row_ids[row] / token_divisor), or -1
    int32_t token_divisor;  // 0: none
    float* weights;  // on the input: row_weights[row], else given[slot / k * stride + slot % k],
    const float* row_weights;  // else 1
    const float* given_weights;
    int64_t given_stride;
    int32_t top_k;
    int32_t* slot_to_row;  // of run_list_rows by slot
};

// Offsets and counts are clamped. Where several rows have one slot, the first one counts. keys is
// scratch of 8 bytes per slot. With report_faults every broken rule is counted.
void run_rows_to_slots(const CallerRows& rows, const SlotWindow& window, unsigned long long* keys,
                       const SlotsOut& out, bool report_faults, FaultWords* faults,
                       cudaStream_t stream);

// Lists the rows of a window as Rows: begin, count and tiles of each expert, which begins on a
// multiple of row_alignment, and of each row the input row (what SlotsOut::source would be), the
// caller's row (if out_row is not null) and the slot; all are -1 for padding. By row, a window is
// so many used rows, however far apart they lie, and slots are positions in it. By slot
// (out.slot_to_row is set), the window has all of them, there are no more rows than slots, and
// run_clear_slots precedes: ids and slot_to_row become those of the slots, of several rows of a
// slot the first one's. Broken rules are counted with the first window, broken row ids with their
// own.
void run_list_rows(const DeviceFacts& device, const CallerRows& caller, const SlotWindow& window,
                   const SlotsOut& out, const Rows& rows, const TileRule& rule, int32_t* in_row,
                   int32_t* out_row, FaultWords* faults, cudaStream_t stream);

// ids and slot_to_row become -1; with takes_weights, weights those that are given by slot.
void run_clear_slots(const SlotsOut& out, bool takes_weights, int32_t n_slots, cudaStream_t stream);

// Computes in_row[r] = source[slot[r]], or -1 where there is no such slot.
void run_compose(const int32_t* slot, const int32_t* source, int32_t n_slots, int32_t n_rows,
                 int32_t* in_row, cudaStream_t stream);

void prepare_caller_rows();

}  // namespace moe::cuda
