// Router logits: the normalised input if there is a norm, then the product with the router's
// weights, here for up to few_tokens tokens.
//
// few_logits: a block of 8 warps takes two experts and up to n tokens (n = 1, 4, 8), so that the
// weights come from all multiprocessors and each is read once per n tokens.
//   1. warps take turns along k in steps of 256, eight columns a lane: two rows of weights, n of x
//   2. a lane's 2 n sums, of about hidden / 256 terms each, are added over the warp, then over the
//      warps in order
//   3. scale and bias
// Experts and tokens past the end are computed as copies of the last one and not stored.
#include "libmoe/cuda/router/logits.hpp"

#include "libmoe/cuda/combine/combine.hpp"
#include "libmoe/cuda/device/call.cuh"
#include "libmoe/cuda/device/warp.cuh"
#include "libmoe/cuda/router/octet.cuh"
#include "libmoe/cuda/runtime/launch.cuh"

namespace moe::cuda {
namespace {

constexpr int n_threads = 256;
constexpr int n_warps = n_threads / 32;
constexpr int32_t experts_at_once = 2;
constexpr int32_t few_tokens = 16;

struct FewInput {
    OctetRows x;
    OctetRows weights;
    const float* bias;
    float scale;
    int32_t hidden;
    int32_t n_experts_all;
    float* logits;
};

template <bool wide_x, bool wide_w, int n>
__device__ void add_products(const FewInput& in, int32_t first_token, int32_t last_token,
                             int32_t first_expert, float (&sum)[experts_at_once][n]) {
#pragma unroll(n == 1 ? 4 : 1)
    for (auto k = static_cast<int32_t>(threadIdx.x) * 8; k < in.hidden; k += n_threads * 8) {
        Octet<wide_w> packed[experts_at_once];
        Octet<wide_x> x[n];
#pragma unroll
        for (int32_t e = 0; e < experts_at_once; e++)
            packed[e].load(in.weights, min(first_expert + e, in.n_experts_all - 1), k);
#pragma unroll
        for (int32_t t = 0; t < n; t++) x[t].load(in.x, min(first_token + t, last_token), k);
        float w[experts_at_once][8];
#pragma unroll
        for (int32_t e = 0; e < experts_at_once; e++) packed[e].decode(in.weights.type, w[e]);
#pragma unroll
        for (int32_t t = 0; t < n; t++) {
            float v[8];
            x[t].decode(in.x.type, v);
#pragma unroll
            for (int32_t i = 0; i < 8 * experts_at_once; i++)
                sum[i / 8][t] = fmaf(w[i / 8][i % 8], v[i % 8], sum[i / 8][t]);
        }
    }
}

template <bool wide_x, bool wide_w, int n>
__global__ void __launch_bounds__(n_threads) few_logits(FewInput in, TokenCount tokens) {
    __shared__ float partial[n_warps][experts_at_once * n];
    const int32_t n_pairs = (in.n_experts_all + experts_at_once - 1) / experts_at_once;
    const auto first_expert = static_cast<int32_t>(blockIdx.x % n_pairs) * experts_at_once;
    const auto first_token = static_cast<int32_t>(blockIdx.x / n_pairs) * n;
    const int32_t n_tokens = true_tokens(tokens);
    if (first_token >= n_tokens) return;

    float sum[experts_at_once][n] = {};
    add_products<wide_x, wide_w>(in, first_token, n_tokens - 1, first_expert, sum);
#pragma unroll
    for (int32_t i = 0; i < experts_at_once * n; i++) {
        const float total = warp_sum(sum[i / n][i % n]);
        if (lane_index() == 0) partial[warp_index()][i] = total;
    }
    __syncthreads();

    const auto i = static_cast<int32_t>(threadIdx.x);
    const int32_t e = first_expert + i / n;
    const int32_t t = first_token + i % n;
    if (i >= experts_at_once * n || e >= in.n_experts_all || t >= n_tokens) return;
    float total = 0.0f;
    for (int32_t w = 0; w < n_warps; w++) total += partial[w][i];
    in.logits[int64_t{t} * in.n_experts_all + e] = total * in.scale + (in.bias ? in.bias[e] : 0.0f);
}

using FewKernel = void (*)(FewInput, TokenCount);

template <int n>
FewKernel few_kernel(bool wide_x, bool wide_w) {
    if (wide_x) return wide_w ? few_logits<true, true, n> : few_logits<true, false, n>;
    return wide_w ? few_logits<false, true, n> : few_logits<false, false, n>;
}

FewKernel few_kernel(bool wide_x, bool wide_w, int32_t n) {
    return n == 1   ? few_kernel<1>(wide_x, wide_w)
           : n == 4 ? few_kernel<4>(wide_x, wide_w)
                    : few_kernel<8>(wide_x, wide_w);
}

void run_few_logits(const RouterProduct& p, const TokenCount& tokens, cudaStream_t stream) {
    const int32_t n = tokens.n <= 1 ? 1 : tokens.n <= 4 ? 4 : 8;
    const FewInput input{{p.x, p.x_type, p.x_stride, takes_packets(p.x, p.x_stride)},
                         {p.weights, p.weights_type, p.hidden, takes_packets(p.weights, p.hidden)},
                         p.bias,
                         p.scale,
                         p.hidden,
                         p.n_experts_all,
                         p.logits};
    const int64_t n_pairs = (p.n_experts_all + experts_at_once - 1) / experts_at_once;
    launch("few_logits", few_kernel(p.x_type == MOE_TYPE_F32, p.weights_type == MOE_TYPE_F32, n),
           n_pairs * ((tokens.n + n - 1) / n), n_threads, 0, stream, input, tokens);
}

uint64_t norm_bytes(const LogitsInput& input, int64_t n_tokens) {
    return input.has_norm ? static_cast<uint64_t>(n_tokens * input.hidden) * 4 : 0;
}

}  // namespace

uint64_t logits_scratch_bytes(const LogitsInput& input, int64_t n_tokens) {
    return norm_bytes(input, n_tokens) +
           (n_tokens > few_tokens ? tiled_scratch_bytes(n_tokens, input.n_experts_all, input.hidden)
                                  : 0);
}

void run_logits(const DeviceFacts&, const LogitsInput& input, const TokenCount& tokens,
                std::byte* scratch, float* logits, cudaStream_t stream) {
    RouterProduct product{input.rows,          input.type, input.stride,      input.weights,
                          input.weights_type,  input.bias, input.input_scale, input.hidden,
                          input.n_experts_all, logits};
    if (input.has_norm) {
        run_norm({input.rows, input.type, input.stride, input.norm_weight, input.norm_eps,
                  input.input_scale, true, input.hidden},
                 tokens, scratch, MOE_TYPE_F32, input.hidden, stream);
        product.x = scratch;
        product.x_type = MOE_TYPE_F32;
        product.x_stride = input.hidden;
        product.scale = 1.0f;
    }
    if (tokens.n <= few_tokens) return run_few_logits(product, tokens, stream);
    run_tiled_logits(product, tokens, scratch + norm_bytes(input, tokens.n), stream);
}

void prepare_router() {
    for (const bool wide_x : {false, true}) {
        for (const bool wide_w : {false, true}) {
            for (const int32_t n : {1, 4, 8}) load("few_logits", few_kernel(wide_x, wide_w, n));
        }
    }
    prepare_tiled_logits();
    prepare_select();
    prepare_norm();
}

}  // namespace moe::cuda
