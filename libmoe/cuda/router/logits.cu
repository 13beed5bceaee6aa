// Router logits: the normalised input if there is a norm, then the product with the router's
// weights, whose parts are added where the logits are taken (select.cu).
//
// Ids chosen from x must agree with those of float32 sums wherever the choice hangs on more than
// 1e-5 of the logits. The tensor cores cut off what a sum of float32 cannot hold, always towards
// zero, which over the hundreds of steps of a row adds up. So our kernels take the sums out of them
// every 32 or 64 values and go on in float32, and parts.cuh keeps the operands exact: errors stay
// below 1e-6. How near the library comes is told in logits_library.cpp.
#include <algorithm>

#include "libmoe/cuda/combine/combine.hpp"
#include "libmoe/cuda/router/logits.hpp"

namespace moe::cuda {
namespace {

int64_t norm_bytes(const LogitsInput& input, int64_t n_tokens) {
    return input.has_norm ? (n_tokens * input.hidden * 4 + 255) / 256 * 256 : 0;
}

// Rounded up, since the library's workspace follows.
int64_t part_bytes(const LogitsInput& input, int64_t n_tokens) {
    const int64_t few = std::min(n_tokens, few_tokens) * input.n_experts_all *
                        few_parts(input.n_experts_all, input.hidden);
    return (std::max(few, tiled_part_floats(n_tokens, input)) * 4 + 255) / 256 * 256;
}

int32_t run_product(const DeviceFacts& device, const LogitsInput& input, const RouterGemm& product,
                    const TokenCount& tokens, std::byte* workspace, cudaStream_t stream) {
    if (tokens.n <= few_tokens && !input.batch_invariant)
        return run_few_logits(product, tokens, stream);
    if (input.may_use_library &&
        run_library_logits(*input.library, product, tokens, workspace, stream))
        return 1;
    return run_tiled_logits(device, product, tokens, stream);
}

}  // namespace

uint64_t logits_scratch_bytes(const LogitsInput& input, int64_t n_tokens) {
    return static_cast<uint64_t>(norm_bytes(input, n_tokens) + part_bytes(input, n_tokens)) +
           library_scratch_bytes(input.may_use_library, n_tokens);
}

LogitParts run_logits(const DeviceFacts& device, const LogitsInput& input, const TokenCount& tokens,
                      std::byte* scratch, cudaStream_t stream) {
    RouterGemm product{};
    product.x = input.rows;
    product.x_type = input.type;
    product.x_stride = input.stride;
    product.weights = input.weights;
    product.weights_type = input.weights_type;
    product.hidden = input.hidden;
    product.n_experts_all = input.n_experts_all;
    product.batch_invariant = input.batch_invariant;
    product.parts = reinterpret_cast<float*>(scratch + norm_bytes(input, tokens.n));
    if (input.has_norm) {
        run_norm({input.rows, input.type, input.stride, input.norm_weight, input.norm_eps,
                  input.input_scale, true, input.hidden},
                 tokens, scratch, MOE_TYPE_F32, input.hidden, stream);
        product.x = scratch;
        product.x_type = MOE_TYPE_F32;
        product.x_stride = input.hidden;
    }
    std::byte* workspace = scratch + norm_bytes(input, tokens.n) + part_bytes(input, tokens.n);
    LogitParts parts{};
    parts.n_parts = run_product(device, input, product, tokens, workspace, stream);
    parts.data = product.parts;
    parts.stride = input.n_experts_all;
    parts.part_stride = int64_t{tokens.n} * input.n_experts_all;
    parts.bias = input.bias;
    parts.scale = input.has_norm ? 1.0f : input.input_scale;
    parts.is_computed = true;
    return parts;
}

void prepare_router(const DeviceFacts& device) {
    prepare_few_logits();
    prepare_tiled_logits(device);
    prepare_select();
    prepare_norm();
}

}  // namespace moe::cuda
