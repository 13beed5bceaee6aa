// The path of few tokens: from ids and weights to the routed sum in two kernels, every token with
// multiprocessors of its own.
#pragma once

#include "libmoe/cuda/pipeline.hpp"

namespace moe::cuda {

// Do n_tokens tokens go this way through experts of up to `few`? Their true number must be known to
// the host.
bool takes_few_tokens(int32_t few, const Activations& x, int64_t n_tokens,
                      const int32_t* n_tokens_device);

// Routed sum of the pipeline's ids and weights, then what `sum` adds to it, to out.
void run_few_tokens(Pipeline& pipeline, const Call& call, const Activations& x,
                    const int32_t* expert_map, Pipeline::Sum sum, const CombineOutput& out);

// The whole forward straight from the caller's ids and weights, where nothing stands between them
// and the kernels; false: not this call.
bool forward_few_tokens(const Call& call, const moe_forward_args& args);

}  // namespace moe::cuda
