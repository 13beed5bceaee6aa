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
void add_finish_terms(const Call& call, const FinishTerms& terms, GemvArgs& args);
// Those of the routed experts, alone or with the shared one.
const GemvLaunches& expert_launches(const Setup& setup, const GemvArgs& args);

// The shared expert as the only expert of a layer of its own; writes scratch.shared_y.
GemvArgs shared_gemv_args(const Call& call, const Scratch& scratch, const DeviceRows& x,
                          int64_t n_tokens);

}  // namespace moe::cuda
