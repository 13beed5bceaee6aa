// The product behind the logits, once its input needs no more preparation: for few tokens or many.
#pragma once

#include "libmoe/cuda/router/router.hpp"

namespace moe::cuda {

// logits[t][e] = scale * (x_t . weights_e) + bias_e; hidden is a multiple of 32.
struct RouterProduct {
    const void* x;
    moe_type x_type;
    int64_t x_stride;
    const void* weights;
    moe_type weights_type;
    const float* bias;  // or null
    float scale;
    int32_t hidden;
    int32_t n_experts_all;
    float* logits;
};

// logits_tiled.cu, for many tokens. scratch: tiled_scratch_bytes, which grow with n_tokens.
uint64_t tiled_scratch_bytes(int64_t n_tokens, int32_t n_experts_all, int32_t hidden);
void run_tiled_logits(const RouterProduct& product, const TokenCount& tokens, std::byte* scratch,
                      cudaStream_t stream);
void prepare_tiled_logits();

}  // namespace moe::cuda
