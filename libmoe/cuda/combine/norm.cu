// Reductions over a whole row: the RMS norm of a token, and its dot product with a fixed row.
//
// Inputs: rows [T, width] of F32, F16 or BF16; weight or row [width] of float32. Outputs:
// normalised rows [T, width], or dot products [T] of float32.
// Precondition of the norm: squares must fit float32. Values beyond 1e19 square to infinity and
// make the norm zero; rows below 1e-23 throughout give zeros.
//
// A thread block owns a token. Thread i owns octets of columns i, i + 256, ..., by 16-byte accesses
// where alignment allows and by single values else. The order of the sums is the same.
//   1. each thread sums its octets in float32
//   2. lanes, then warps are added in order
//   3. the norm reads its row again, from the cache, and each thread writes its own columns; it
//      does so after the sum, so out may be `in`
#include "libmoe/cuda/combine/row_dot.cuh"
#include "libmoe/cuda/device/call.cuh"
#include "libmoe/cuda/device/dependent_launch.cuh"
#include "libmoe/cuda/runtime/launch.cuh"

namespace moe::cuda {
namespace {

constexpr int n_threads = 256;

template <bool packets>
__device__ void store_octet(const CombineOutput& out, int64_t index, int32_t left,
                            const float (&v)[8]) {
    if constexpr (packets) {
        store_values(out.data, out.type, index, v);
    } else {
#pragma unroll
        for (int c = 0; c < 8; c++) {
            const float one[1] = {v[c]};
            if (c < left) store_values(out.data, out.type, index + c, one);
        }
    }
}

template <bool packets>
__device__ float sum_of_squares(const NormInput& in, int64_t first) {
    float sum[8] = {};
    for (int32_t i = static_cast<int32_t>(threadIdx.x) * 8; i < in.width; i += n_threads * 8) {
        float v[8];
        load_octet<packets>(in.in, in.in_type, first + i, in.width - i, v);
#pragma unroll
        for (int c = 0; c < 8; c++) sum[c] = fmaf(v[c], v[c], sum[c]);
    }
    return sum_of(sum);
}

template <bool packets>
__global__ void __launch_bounds__(n_threads)
    normalize_rows(NormInput in, TokenCount tokens, CombineOutput out) {
    __shared__ float partial[n_threads / 32];
    begin_after_previous_kernel();
    const auto t = static_cast<int32_t>(blockIdx.x);
    if (t >= true_tokens(tokens)) return;
    const int64_t first = t * in.in_stride;
    float factor = 1.0f;
    if (in.normalize) {
        const float sum = block_sum(sum_of_squares<packets>(in, first), partial);
        const float mean = sum / static_cast<float>(in.width) + in.eps;
        factor = mean == 0.0f ? 0.0f : 1.0f / sqrtf(mean);  // without eps zeros stay zeros
    }
    for (int32_t i = static_cast<int32_t>(threadIdx.x) * 8; i < in.width; i += n_threads * 8) {
        const int32_t left = in.width - i;
        float v[8];
        load_octet<packets>(in.in, in.in_type, first + i, left, v);
#pragma unroll
        for (int c = 0; c < 8; c++)
            v[c] = v[c] * factor * (in.weight && c < left ? in.weight[i + c] : 1.0f) * in.scale;
        store_octet<packets>(out, t * out.stride + i, left, v);
    }
}

template <bool packets>
__global__ void __launch_bounds__(n_threads) dot_rows(DotInput in, TokenCount tokens, float* out) {
    __shared__ float partial[n_threads / 32];
    begin_after_previous_kernel();
    const auto t = static_cast<int32_t>(blockIdx.x);
    if (t >= true_tokens(tokens)) return;
    dot_slices<n_threads / 32, packets>(in, t, partial);
    __syncthreads();
    if (threadIdx.x == 0) out[t] = add_slices(partial);
}

}  // namespace

void run_norm(const NormInput& input, const TokenCount& tokens, void* out, moe_type out_type,
              int64_t out_stride, cudaStream_t stream) {
    const bool packets = takes_packets(input.in, input.in_stride) &&
                         takes_packets(out, out_stride) && input.width % 8 == 0;
    launch("normalize_rows", packets ? normalize_rows<true> : normalize_rows<false>, tokens.n,
           n_threads, 0, stream, input, tokens, CombineOutput{out, out_type, out_stride, false});
}

void run_dot_rows(const DotInput& input, const TokenCount& tokens, float* out,
                  cudaStream_t stream) {
    const bool packets = takes_packets(input.x, input.stride) && input.width % 8 == 0;
    launch("dot_rows", packets ? dot_rows<true> : dot_rows<false>, tokens.n, n_threads, 0, stream,
           input, tokens, out);
}

void prepare_norm() {
    load("normalize_rows", normalize_rows<true>);
    load("normalize_rows", normalize_rows<false>);
    load("dot_rows", dot_rows<true>);
    load("dot_rows", dot_rows<false>);
}

}  // namespace moe::cuda
