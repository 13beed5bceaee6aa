// The product behind the logits, once its input needs no more preparation: for few tokens or many.
#pragma once

#include "libmoe/cuda/router/router.hpp"

namespace moe::cuda {

// parts[p][t][e]: partial sums of x_t . weights_e, over part p of k; hidden is a multiple of 32.
struct RouterGemm {
    const void* x;  // any alignment
    moe_type x_type;
    int64_t x_stride;
    const void* weights;  // dense, on 16 bytes
    moe_type weights_type;
    int32_t hidden;
    int32_t n_experts_all;
    float* parts;
    bool batch_invariant;
};

// logits_small_batch.cu, up to few_tokens tokens. The launchers return the number of parts that
// they make.
constexpr int64_t few_tokens = 32;
int32_t few_parts(int32_t n_experts_all, int32_t hidden);
int32_t run_few_logits(const RouterGemm& product, const TokenCount& tokens, cudaStream_t stream);
void prepare_few_logits();

// logits_tiled.cu, any number of tokens.
// Most floats that the parts of up to n_tokens tokens take.
int64_t tiled_part_floats(int64_t n_tokens, const LogitsInput& input);
int32_t run_tiled_logits(const DeviceFacts& device, const RouterGemm& product,
                         const TokenCount& tokens, cudaStream_t stream);
void prepare_tiled_logits(const DeviceFacts& device);

// logits_library.cpp: from least_library_tokens on.
uint64_t library_scratch_bytes(bool may_use, int64_t n_tokens);
// false: nothing was done. One part.
bool run_library_logits(const LogitsLibrary& chosen, const RouterGemm& product,
                        const TokenCount& tokens, std::byte* workspace, cudaStream_t stream);

}  // namespace moe::cuda
