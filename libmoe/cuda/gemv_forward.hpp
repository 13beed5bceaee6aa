// The path of gemv_tokens tokens: from ids and weights to the routed sum in two kernels, every
// token with multiprocessors of its own.
#pragma once

#include "libmoe/cuda/layer_pass.hpp"

namespace moe::cuda {

// Do n_tokens tokens go this way through experts of up to `gemv_tokens`? Their true number must be
// known to the host.
bool takes_gemv(int32_t gemv_tokens, const Activations& x, int64_t n_tokens,
                const int32_t* n_tokens_device);

// Routed sum of the pipeline's ids and weights, then what `sum` adds to it, to out.
void run_gemv_experts(LayerPass& pipeline, const Call& call, const Activations& x,
                      const int32_t* expert_map, LayerPass::Sum sum, const CombineOutput& out);

// The whole forward straight from the caller's ids and weights, where nothing stands between them
// and the kernels; false: not this call.
bool forward_gemv(const Call& call, const moe_forward_args& args);

}  // namespace moe::cuda
