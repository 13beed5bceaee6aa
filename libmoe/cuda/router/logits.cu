// Router logits: picks the kernels of the router GEMM and runs them, after an optional RMS norm.
//
// Inputs: router input [T, hidden] of F32, F16 or BF16; router weights [E, hidden] of F32, F16 or
// BF16; an optional norm weight [hidden] of F32.
// Outputs: LogitParts, float32 partial sums [part][T][E] in scratch, one part for each k split.
// Preconditions: scratch has logits_scratch_bytes; hidden is a multiple of 32.
//   1. the input is normalised into scratch as float32, if the router has a norm
//   2. one kernel family computes the GEMM: small batch, cuBLASLt or tiled
//   3. the selection (select.cu) adds the parts in order and applies scale and bias
//
// Expert ids must agree with those of float32 sums where the choice hangs on more than 1e-5 of a
// logit. A tensor core truncates its float32 accumulator towards zero, and over the hundreds of
// steps of a row this error adds up. Our kernels therefore flush the accumulator into float32
// registers every 32 or 64 values of k, and parts.cuh keeps the operands exact. Their errors stay
// below 1e-6. logits_library.cpp states the error of cuBLASLt.
#include <algorithm>

#include "libmoe/cuda/combine/combine.hpp"
#include "libmoe/cuda/router/logits.hpp"
#include "libmoe/cuda/setup.hpp"

namespace moe::cuda {
namespace {

int64_t norm_bytes(const LogitsInput& input, int64_t n_tokens) {
    return input.has_norm ? (n_tokens * input.hidden * 4 + 255) / 256 * 256 : 0;
}

// The size is rounded up because the workspace of the library follows.
int64_t part_bytes(const LogitsInput& input, int64_t n_tokens) {
    const int64_t small_batch = std::min(n_tokens, max_small_batch_logits_tokens) *
                                input.n_experts_all *
                                small_batch_parts(input.n_experts_all, input.hidden);
    return (std::max(small_batch, tiled_part_floats(n_tokens, input)) * 4 + 255) / 256 * 256;
}

int32_t run_gemm(const DeviceFacts& device, const LogitsInput& input, const RouterGemm& gemm,
                 const TokenCount& tokens, std::byte* workspace, cudaStream_t stream) {
    if (input.kernel == LogitsKernel::small_batch)
        return run_small_batch_logits(gemm, tokens, stream);
    if (input.kernel == LogitsKernel::library &&
        run_library_logits(*input.library, gemm, tokens, workspace, stream))
        return 1;
    return run_tiled_logits(device, gemm, tokens, stream);
}

}  // namespace

uint64_t logits_scratch_bytes(const LogitsInput& input, int64_t n_tokens) {
    return static_cast<uint64_t>(norm_bytes(input, n_tokens) + part_bytes(input, n_tokens)) +
           library_scratch_bytes(input.may_use_library, n_tokens);
}

LogitParts run_logits(const DeviceFacts& device, const LogitsInput& input, const TokenCount& tokens,
                      std::byte* scratch, cudaStream_t stream) {
    RouterGemm gemm{};
    gemm.x = input.rows;
    gemm.x_type = input.type;
    gemm.x_stride = input.stride;
    gemm.weights = input.weights;
    gemm.weights_type = input.weights_type;
    gemm.hidden = input.hidden;
    gemm.n_experts_all = input.n_experts_all;
    gemm.batch_invariant = input.batch_invariant;
    gemm.parts = reinterpret_cast<float*>(scratch + norm_bytes(input, tokens.n));
    if (input.has_norm) {
        run_norm({input.rows, input.type, input.stride, input.norm_weight, input.norm_eps,
                  input.input_scale, true, input.hidden},
                 tokens, scratch, MOE_TYPE_F32, input.hidden, stream);
        gemm.x = scratch;
        gemm.x_type = MOE_TYPE_F32;
        gemm.x_stride = input.hidden;
    }
    std::byte* workspace = scratch + norm_bytes(input, tokens.n) + part_bytes(input, tokens.n);
    LogitParts parts{};
    parts.n_parts = run_gemm(device, input, gemm, tokens, workspace, stream);
    parts.data = gemm.parts;
    parts.stride = input.n_experts_all;
    parts.part_stride = int64_t{tokens.n} * input.n_experts_all;
    parts.bias = input.bias;
    parts.scale = input.has_norm ? 1.0f : input.input_scale;
    parts.is_computed = true;
    return parts;
}

void prepare_router(const Setup& setup) {
    prepare_select();
    if (setup.layer->routing.has_router_norm) prepare_norm();
    if (setup.router_type == MOE_TYPE_NONE) return;
    for (const moe_type x : {setup.x_type, setup.router_input_type, MOE_TYPE_F32}) {
        if (x == MOE_TYPE_F32 && !setup.layer->routing.has_router_norm &&
            setup.x_type != MOE_TYPE_F32 && setup.router_input_type != MOE_TYPE_F32)
            continue;  // normalized input alone
        prepare_small_batch_logits(x, setup.router_type);
        prepare_tiled_logits(setup.device, x, setup.router_type);
    }
}

}  // namespace moe::cuda
