// Rows of their own for the slots of a small batch: of the token, or of what an index names, with
// the columns in the order, or by the factors, of the table of the slot's expert
// (PackedMatrix::columns, as in dispatch/gather_columns.hpp):
//   none     out[t][v][k] = in[k]
//   order    out[t][v][k] = in[k'], k' = columns[expert][k]; zero where there is no such column
//   factors  out[t][v][k] = in[k] * columns[expert][k]
// v counts the slots of token t whose expert is on this GPU, the shared expert's too.
#pragma once

#include "libmoe/cuda/gemv/gemv_params.hpp"

namespace moe::cuda {

struct SlotGather {
    GemvSlots slots;
    const uint32_t* columns;  // of the experts: two tables of k words each, of which this is one
    ColumnTable table;
    int32_t k;            // of the matrix
    int32_t n_columns;    // of a row of the input; the output has zeros from there to k
    DeviceRows in;        // by token, BF16 or F16 as out; no row has a negative index
    int64_t slot_stride;  // from slot to slot of a token, elements; 0: they have one row
    void* out;            // [tokens][n_slots][k]
    // Each [tokens][n_slots]: local expert, -1 behind the last slot that has one, and the slot's
    // weight. Null, between gate and up and down: they are not stored, and ids are not checked.
    int32_t* experts;
    float* weights;
};

void run_gather_slots(const SlotGather& gather, int32_t n_tokens, cudaStream_t stream);

void prepare_gather_slots();

}  // namespace moe::cuda
