// The router stage: logits, then scores, selection and weights, all in float32.
//
// Inputs: router input [T, hidden] and weights [E_all, hidden], or logits, or ids with weights.
// Outputs: ids [T, k] of int32 and weights [T, k] of float32, dense.
//   1. run_logits writes the logits as split-k parts
//   2. run_select adds the parts and chooses experts and weights; run_take_routing converts a given
//      routing instead
#pragma once

#include <cuda_runtime_api.h>

#include "libmoe/cuda/device_facts.hpp"
#include "libmoe/cuda/faults.hpp"
#include "libmoe/cuda/kernel_limits.hpp"
#include "libmoe/cuda/router/logits_library.hpp"
#include "libmoe/layer/layer.hpp"

namespace moe::cuda {

// Tokens of a call, counted on the device: kernels leave rows from *n_device on alone (null: n).
// The true number is clamped to [0, n]; the start of the call reports the fault (dispatch/).
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
    bool batch_invariant;  // a token's logits do not depend on the number of tokens
    LogitsKernel kernel;
    bool may_use_library;          // even if the machine has none
    const LogitsLibrary* library;  // of a plan that may use it
};

bool may_use_library(const Setup& setup);

// Logits of a call: [t][e] is scale * (sum over p of data[p * part_stride + t * stride + e]) +
// bias[e], where the parts are added in order of p.
struct LogitParts {
    const float* data;
    int64_t stride;
    int32_t n_parts;
    int64_t part_stride;
    const float* bias;  // or null
    float scale;
    bool is_computed;  // true after run_logits: the selection applies scale and bias
};

// Sums are float32. scratch has logits_scratch_bytes, for the normalised input and the parts; the
// size grows with n_tokens.
uint64_t logits_scratch_bytes(const LogitsInput& input, int64_t n_tokens);
LogitParts run_logits(const DeviceFacts& device, const LogitsInput& input, const TokenCount& tokens,
                      std::byte* scratch, cudaStream_t stream);

// A warp or a thread block routes one token and gives the same bits as cpu/ref/route.cpp from the
// same logits: it uses the same functions (layer/routing_math.hpp) and the same order of sums.
struct SelectInput {
    Routing routing;
    int32_t n_experts;                   // ids from here on are identity experts
    const float* selection_bias;         // [E_all] or null
    const float* second_selection_bias;  // [E_all] or null
    const int8_t* uses_second_bias;      // [T], or null: no token uses it
    const float* expert_scale;           // [n_experts] or null
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

void run_select(const DeviceFacts& device, SelectKernel kernel, const SelectInput& input,
                const TokenCount& tokens, const SelectOutput& output, FaultWords* faults,
                cudaStream_t stream);

// Given ids and weights become dense int32 and float32. An id out of range becomes -1 and a fault,
// and its weight becomes 0.
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

void prepare_router(const Setup& setup);
void prepare_select();  // called by prepare_router

}  // namespace moe::cuda
