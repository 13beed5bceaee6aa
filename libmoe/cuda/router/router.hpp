// The route stage: logits, then scores, selection and weights, all in float32.
#pragma once

#include <cuda_runtime_api.h>

#include "libmoe/cuda/device_facts.hpp"
#include "libmoe/cuda/faults.hpp"
#include "libmoe/cuda/router/logits_library.hpp"
#include "libmoe/layer/layer.hpp"

namespace moe::cuda {

// Tokens of a call on the device: rows from *n_device on are left alone (null: n). The true number
// is clamped to [0, n]; the fault is reported where the call begins (dispatch/).
struct TokenCount {
    int32_t n;
    const int32_t* n_device;
    int32_t first;  // the chunk's first token: the true number of the chunk is *n_device - first
};

struct LogitsInput {
    const void* rows;  // [T, hidden] router input
    moe_type type;
    int64_t stride;
    const void* weights;       // [E_all, hidden] dense
    moe_type weights_type;     // F32, BF16, F16
    const float* bias;         // [E_all] or null
    const float* norm_weight;  // [hidden] or null
    bool has_norm;
    float norm_eps;
    float input_scale;
    int32_t hidden;
    int32_t n_experts_all;
    bool batch_invariant;          // a token's logits do not depend on the number of tokens
    bool may_use_library;          // whether or not there is one
    const LogitsLibrary* library;  // of such a plan
};

bool may_use_library(const Setup& setup);

// Logits of a call: [t][e] is scale * (sum over p of data[p * part_stride + t * stride + e]) +
// bias[e], added in order of p.
struct LogitParts {
    const float* data;
    int64_t stride;
    int32_t n_parts;
    int64_t part_stride;
    const float* bias;  // or null
    float scale;
    bool is_computed;  // of run_logits: scale and bias are still to be applied
};

// Sums in float32. scratch: logits_scratch_bytes, for the normalised input and the parts; they grow
// with n_tokens.
uint64_t logits_scratch_bytes(const LogitsInput& input, int64_t n_tokens);
LogitParts run_logits(const DeviceFacts& device, const LogitsInput& input, const TokenCount& tokens,
                      std::byte* scratch, cudaStream_t stream);

// A warp or a team of warps per token does what cpu/ref/route.cpp does for one: same functions
// (layer/routing_math.hpp), same order of sums, same ids to the bit from the same logits.
struct SelectInput {
    Routing routing;
    int32_t n_experts;            // ids from here on are identity experts
    const float* selection_bias;  // [E_all] or null
    const float* expert_scale;    // [n_experts] or null
    LogitParts logits;
    const void* given_ids;  // [T, k] or null; hash selection fills ids from its table instead
    moe_type given_ids_type;
    int64_t given_ids_stride;
    const int32_t* hash_table;  // [hash_vocabulary, k]
    const void* token_ids;      // [T]
    moe_type token_ids_type;
    moe_type round_to;  // type of x, for round_logits and round_weights
};

struct SelectOutput {
    int32_t* ids;      // [T, k] dense
    float* weights;    // [T, k] dense
    int32_t* out_ids;  // copies for the caller, or null
    int64_t out_ids_stride;
    float* out_weights;
    int64_t out_weights_stride;
    float* out_logits;  // as computed or given, before the softcap
    int64_t out_logits_stride;
};

void run_select(const DeviceFacts& device, const SelectInput& input, const TokenCount& tokens,
                const SelectOutput& output, FaultWords* faults, cudaStream_t stream);

// Given ids and weights: converted to dense int32 and float32; ids out of range become -1 and a
// fault, their weight 0.
struct GivenRouting {
    const void* ids;
    moe_type ids_type;
    int64_t ids_stride;
    const void* weights;  // F32, F16, BF16; null: zeros
    moe_type weights_type;
    int64_t weights_stride;
    int32_t top_k;
    int32_t n_experts_all;
};
void run_take_routing(const GivenRouting& given, const TokenCount& tokens,
                      const SelectOutput& output, FaultWords* faults, cudaStream_t stream);

void prepare_router(const DeviceFacts& device);
void prepare_select();  // the part of it in select.cu

}  // namespace moe::cuda
