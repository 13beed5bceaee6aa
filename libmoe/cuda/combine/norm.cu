// One pass over a row that ends in one number: the RMS norm of a token, and its product with a
// fixed row. A block per token; thread i takes packets of n columns i, i + 256, ... (n = 8, or 1
// where 16-byte accesses are not possible), sums in float32, warps added in order.
//
// The norm reads its row twice, the second time from the cache; each thread writes the columns that
// it alone reads, after the sum, so out may be in.
#include "libmoe/cuda/combine/combine.hpp"
#include "libmoe/cuda/device/call.cuh"
#include "libmoe/cuda/device/element.cuh"
#include "libmoe/cuda/device/warp.cuh"
#include "libmoe/cuda/runtime/launch.cuh"

namespace moe::cuda {
namespace {

constexpr int n_threads = 256;

template <int n>
__device__ float sum_of_squares(const NormInput& in, int64_t first) {
    float sum[n] = {};
    for (int32_t i = static_cast<int32_t>(threadIdx.x) * n; i < in.width; i += n_threads * n) {
        float v[n];
        load_values(in.in, in.in_type, first + i, v);
#pragma unroll
        for (int c = 0; c < n; c++) sum[c] = fmaf(v[c], v[c], sum[c]);
    }
    for (int c = 1; c < n; c++) sum[0] += sum[c];
    return sum[0];
}

template <int n>
__global__ void __launch_bounds__(n_threads)
    normalize_rows(NormInput in, TokenCount tokens, CombineOutput out) {
    __shared__ float partial[n_threads / 32];
    const auto t = static_cast<int32_t>(blockIdx.x);
    if (t >= true_tokens(tokens)) return;
    const int64_t first = t * in.in_stride;
    float factor = 1.0f;
    if (in.normalize) {
        const float sum = block_sum(sum_of_squares<n>(in, first), partial);
        factor = 1.0f / sqrtf(sum / static_cast<float>(in.width) + in.eps);
    }
    for (int32_t i = static_cast<int32_t>(threadIdx.x) * n; i < in.width; i += n_threads * n) {
        float v[n];
        load_values(in.in, in.in_type, first + i, v);
#pragma unroll
        for (int c = 0; c < n; c++)
            v[c] = v[c] * factor * (in.weight ? in.weight[i + c] : 1.0f) * in.scale;
        store_values(out.data, out.type, t * out.stride + i, v);
    }
}

struct DotInput {
    const void* x;
    moe_type type;
    int64_t stride;
    const float* row;
    int32_t width;
};

template <int n>
__global__ void __launch_bounds__(n_threads) dot_rows(DotInput in, TokenCount tokens, float* out) {
    __shared__ float partial[n_threads / 32];
    const auto t = static_cast<int32_t>(blockIdx.x);
    if (t >= true_tokens(tokens)) return;
    float sum[n] = {};
    for (int32_t i = static_cast<int32_t>(threadIdx.x) * n; i < in.width; i += n_threads * n) {
        float v[n];
        load_values(in.x, in.type, t * in.stride + i, v);
#pragma unroll
        for (int c = 0; c < n; c++) sum[c] = fmaf(v[c], in.row[i + c], sum[c]);
    }
    for (int c = 1; c < n; c++) sum[0] += sum[c];
    const float total = block_sum(sum[0], partial);
    if (threadIdx.x == 0) out[t] = total;
}

}  // namespace

void run_norm(const NormInput& input, const TokenCount& tokens, void* out, moe_type out_type,
              int64_t out_stride, cudaStream_t stream) {
    const bool packets = takes_packets(input.in, input.in_stride) &&
                         takes_packets(out, out_stride) && input.width % 8 == 0;
    launch("normalize_rows", packets ? normalize_rows<8> : normalize_rows<1>, tokens.n, n_threads,
           0, stream, input, tokens, CombineOutput{out, out_type, out_stride, false});
}

void run_dot_rows(const void* x, moe_type x_type, int64_t x_stride, const float* row, int32_t width,
                  const TokenCount& tokens, float* gate, cudaStream_t stream) {
    const bool packets = takes_packets(x, x_stride) && width % 8 == 0;
    launch("dot_rows", packets ? dot_rows<8> : dot_rows<1>, tokens.n, n_threads, 0, stream,
           DotInput{x, x_type, x_stride, row, width}, tokens, gate);
}

void prepare_norm() {
    load("normalize_rows", normalize_rows<8>);
    load("normalize_rows", normalize_rows<1>);
    load("dot_rows", dot_rows<8>);
    load("dot_rows", dot_rows<1>);
}

}  // namespace moe::cuda
