// The router GEMM: parts = x weights^T, by one of three kernel families. Input x [T, hidden] needs
// no more preparation; weights are [E, hidden]; outputs are float32 split-k parts.
#pragma once

#include "libmoe/cuda/router/router.hpp"

namespace moe::cuda {

// parts[p][t][e] is the partial sum of x_t . weights_e over split p of k. hidden is a multiple of
// 32.
struct RouterGemm {
    const void* x;  // [T, hidden], any alignment
    moe_type x_type;
    int64_t x_stride;
    const void* weights;  // [E, hidden] dense, aligned to 16 bytes
    moe_type weights_type;
    int32_t hidden;
    int32_t n_experts_all;
    float* parts;
    bool batch_invariant;
};

// logits_small_batch.cu serves up to max_small_batch_logits_tokens tokens. The launchers return the
// number of parts that they write.
int32_t small_batch_parts(int32_t n_experts_all, int32_t hidden);
int32_t run_small_batch_logits(const RouterGemm& gemm, const TokenCount& tokens,
                               cudaStream_t stream);
void prepare_small_batch_logits(moe_type x, moe_type weights);

// logits_tiled.cu serves any number of tokens.
// tiled_part_floats bounds the floats that the parts of up to n_tokens tokens take.
int64_t tiled_part_floats(int64_t n_tokens, const LogitsInput& input);
int32_t run_tiled_logits(const DeviceFacts& device, const RouterGemm& gemm,
                         const TokenCount& tokens, cudaStream_t stream);
void prepare_tiled_logits(const DeviceFacts& device, moe_type x, moe_type weights);

// logits_library.cpp serves min_library_tokens tokens and more.
uint64_t library_scratch_bytes(bool may_use, int64_t n_tokens);
// It writes one part, or returns false and does nothing.
bool run_library_logits(const LogitsLibrary& chosen, const RouterGemm& gemm,
                        const TokenCount& tokens, std::byte* workspace, cudaStream_t stream);

}  // namespace moe::cuda
