// Router logits: the normalised input if there is a norm, then the product with the router's
// weights, whose parts are added where the logits are taken (select.cu).
//
// Ids chosen from x must agree with those of float32 sums wherever the choice hangs on more than
// 1e-5 of the logits. The tensor cores cut off what a sum of float32 cannot hold, always towards
// zero: over the hundreds of steps of a row of hidden values that adds up to more than 1e-5. So the
// kernels here take the sum out of them every 32 or 64 values and go on in float32, which is why
// they and not a library's products are used at any number of tokens; parts.cuh keeps the operands
// exact.
#include <algorithm>

#include "libmoe/cuda/combine/combine.hpp"
#include "libmoe/cuda/router/logits.hpp"

namespace moe::cuda {
namespace {

int64_t norm_bytes(const LogitsInput& input, int64_t n_tokens) {
    return input.has_norm ? (n_tokens * input.hidden * 4 + 15) / 16 * 16 : 0;
}

}  // namespace

uint64_t logits_scratch_bytes(const LogitsInput& input, int64_t n_tokens) {
    const int64_t few = std::min(n_tokens, few_tokens) * input.n_experts_all *
                        few_parts(input.n_experts_all, input.hidden);
    const int64_t floats = std::max(few, tiled_part_floats(n_tokens, input));
    return static_cast<uint64_t>(norm_bytes(input, n_tokens) + floats * 4);
}

LogitParts run_logits(const DeviceFacts& device, const LogitsInput& input, const TokenCount& tokens,
                      std::byte* scratch, cudaStream_t stream) {
    RouterProduct product{};
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
    const bool few = tokens.n <= few_tokens && !input.batch_invariant;
    LogitParts parts{};
    parts.n_parts = few ? run_few_logits(product, tokens, stream)
                        : run_tiled_logits(device, product, tokens, stream);
    parts.data = product.parts;
    parts.stride = input.n_experts_all;
    parts.part_stride = int64_t{tokens.n} * input.n_experts_all;
    parts.bias = input.bias;
    parts.scale = input.has_norm ? 1.0f : input.input_scale;
    parts.is_product = true;
    return parts;
}

void prepare_router(const DeviceFacts& device) {
    prepare_few_logits();
    prepare_tiled_logits(device);
    prepare_select();
    prepare_norm();
}

}  // namespace moe::cuda
