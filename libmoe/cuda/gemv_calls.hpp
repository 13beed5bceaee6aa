// When the gemv family takes a call, and the arguments of its kernels.
#pragma once

#include "libmoe/cuda/backend.hpp"
#include "libmoe/cuda/device_rows.hpp"
#include "libmoe/cuda/gemv/gemv.hpp"
#include "libmoe/cuda/scratch.hpp"

namespace moe::cuda {

// The kernels take calls whose number of tokens the host knows, with rows of x on 16 bytes.
bool takes_gemv(const GemvLaunches& launches, const DeviceRows& x, int64_t n_tokens,
                const int32_t* n_tokens_device);

// Do its launches of rows take n_rows rows, which have an expert each?
bool takes_gemv_rows(const Setup& setup, int64_t n_rows);

// The launch for the codebooks that the weights turned out to have.
const GemvLaunch& launch_of(const GemvLaunches& launches, const GemvArgs& args);

// Terms beside the weighted sum over the slots.
struct FinishTerms {
    uint32_t parts;  // MOE_FINISH_ bits
    bool identity;
};
// Can down's kernel add them itself: the shared expert as one more slot, the scale of the sum?
bool adds_all(const Setup& setup, const FinishTerms& terms);

// The routed experts of n_tokens tokens; ids, weights and out are still to be set.
GemvArgs expert_gemv_args(const Call& call, const Scratch& scratch, const DeviceRows& x,
                          int64_t n_tokens);
// The experts of rows that have one each: ids by row, [n], and their map as GemvArgs has it.
struct RowExperts {
    const int32_t* ids;
    const int32_t* local_of;
    int32_t n_ids;
    int32_t n_ids_all;

    static RowExperts global(const Setup& setup, const int32_t* ids, const int32_t* expert_map) {
        return {ids, expert_map ? expert_map : setup.local_of, setup.layer->n_experts,
                setup.layer->n_experts_all()};
    }
    static RowExperts local(const Setup& setup, const int32_t* ids) {
        return {ids, nullptr, setup.slice->n_local, setup.slice->n_local};
    }
};

// Row s is that of the token of slot s, of which a token has top_k.
inline DeviceRows rows_of_slots(DeviceRows rows, int32_t top_k) {
    rows.divisor = top_k;
    return rows;
}

// Such rows, as tokens of one slot.
struct GemvRows {
    DeviceRows x;  // an index is not negative where a row has an expert
    int32_t n;
    RowExperts experts;
    const float* weights;  // on the input, [n]; null: none
    DeviceRows out;
    bool keeps_absent;  // else rows without an expert become zero
};
void run_gemv_rows(const Call& call, const Scratch& scratch, const GemvRows& rows);
void add_finish_terms(const Call& call, const FinishTerms& terms, GemvArgs& args);
// Those of the routed experts, alone or with the shared one.
const GemvLaunches& expert_launches(const Setup& setup, const GemvArgs& args);

// The shared expert as the only expert of a layer of its own; writes scratch.shared_y.
GemvArgs shared_gemv_args(const Call& call, const Scratch& scratch, const DeviceRows& x,
                          int64_t n_tokens);

}  // namespace moe::cuda
