// Router logits of many tokens: a float32 matrix product on the ordinary cores, whatever the types.
//
// A block of 128 threads computes 128 tokens x 64 experts, a thread 8 x 8 of them: tokens 4 y ..
// and 64 + 4 y .., experts 4 x .. and 32 + 4 x .., where x = thread % 8, y = thread / 8. Where
// there are fewer tiles than the device has room for, k is split over n_splits blocks, whose sums
// go to scratch [n_splits][T][E] and are added in order by add_splits.
//
// tiled_logits, per step of 16 k, two buffers in shared memory, [16][128] of x and [16][64] of
// weights:
//   1. registers: 16 columns of token `thread`, 8 columns of expert `thread % 64`, for the next
//   step
//   2. 16 x 64 fmas on the current buffer
//   3. registers, as float32, to the other buffer; barrier
// Tokens and experts past the end are computed as copies of the last one and not stored.
#include <algorithm>

#include "libmoe/cuda/device/call.cuh"
#include "libmoe/cuda/router/logits.hpp"
#include "libmoe/cuda/router/octet.cuh"
#include "libmoe/cuda/runtime/launch.cuh"

namespace moe::cuda {
namespace {

constexpr int n_threads = 128;
constexpr int32_t tile_tokens = 128;
constexpr int32_t tile_experts = 64;
constexpr int32_t depth = 16;
constexpr int32_t wanted_blocks = 384;  // about three on each multiprocessor of a large device
constexpr int32_t most_splits = 32;
constexpr int32_t fewest_steps = 8;  // of a split

// How the product is cut. No split is empty.
struct Cut {
    int32_t token_tiles;
    int32_t expert_tiles;
    int32_t n_splits;
    int32_t steps;  // of a split
};

Cut cut_product(int64_t n_tokens, int32_t n_experts, int32_t hidden) {
    Cut cut{};
    cut.token_tiles = static_cast<int32_t>((n_tokens + tile_tokens - 1) / tile_tokens);
    cut.expert_tiles = (n_experts + tile_experts - 1) / tile_experts;
    const int32_t all_steps = hidden / depth;
    const int64_t tiles = int64_t{cut.token_tiles} * cut.expert_tiles;
    const int64_t wanted = std::clamp<int64_t>((wanted_blocks + tiles - 1) / tiles, 1, most_splits);
    const int64_t splits = std::clamp<int64_t>(all_steps / fewest_steps, 1, wanted);
    cut.steps = static_cast<int32_t>((all_steps + splits - 1) / splits);
    cut.n_splits = (all_steps + cut.steps - 1) / cut.steps;
    return cut;
}

struct TiledInput {
    OctetRows x;
    OctetRows weights;
    const float* bias;
    float scale;
    int32_t hidden;
    int32_t n_experts_all;
    Cut cut;
    float* logits;
    float* partial;  // null: one split
};

struct alignas(16) Tiles {
    float x[2][depth][tile_tokens];
    float w[2][depth][tile_experts];
};

// What a thread brings for one step.
template <bool wide_x, bool wide_w>
struct Fetched {
    Octet<wide_x> x[2];
    Octet<wide_w> w;

    __device__ void load(const TiledInput& in, int32_t token, int32_t expert, int32_t k) {
        x[0].load(in.x, token, k);
        x[1].load(in.x, token, k + 8);
        w.load(in.weights, expert, k + 8 * static_cast<int32_t>(threadIdx.x / tile_experts));
    }

    __device__ void store(const TiledInput& in, Tiles& tiles, int32_t buffer) const {
        float v[8];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            x[h].decode(in.x.type, v);
#pragma unroll
            for (int i = 0; i < 8; i++) tiles.x[buffer][8 * h + i][threadIdx.x] = v[i];
        }
        w.decode(in.weights.type, v);
        const int32_t first = 8 * static_cast<int32_t>(threadIdx.x / tile_experts);
#pragma unroll
        for (int i = 0; i < 8; i++) tiles.w[buffer][first + i][threadIdx.x % tile_experts] = v[i];
    }
};

__device__ void load_four(const float* from, float* to) {
    const float4 v = *reinterpret_cast<const float4*>(from);
    to[0] = v.x;
    to[1] = v.y;
    to[2] = v.z;
    to[3] = v.w;
}

__device__ void multiply_step(const Tiles& tiles, int32_t buffer, float (&sum)[8][8]) {
    const int32_t x = static_cast<int32_t>(threadIdx.x % 8) * 4;
    const int32_t y = static_cast<int32_t>(threadIdx.x / 8) * 4;
#pragma unroll
    for (int32_t k = 0; k < depth; k++) {
        float a[8];
        float b[8];
        load_four(&tiles.x[buffer][k][y], a);
        load_four(&tiles.x[buffer][k][tile_tokens / 2 + y], a + 4);
        load_four(&tiles.w[buffer][k][x], b);
        load_four(&tiles.w[buffer][k][tile_experts / 2 + x], b + 4);
#pragma unroll
        for (int i = 0; i < 8; i++) {
#pragma unroll
            for (int j = 0; j < 8; j++) sum[i][j] = fmaf(a[i], b[j], sum[i][j]);
        }
    }
}

__device__ void store_logit(const TiledInput& in, int64_t t, int32_t e, float sum) {
    in.logits[t * in.n_experts_all + e] = sum * in.scale + (in.bias ? in.bias[e] : 0.0f);
}

__device__ void store_tile(const TiledInput& in, int64_t split_tokens, int32_t first_token,
                           int32_t n_tokens, int32_t first_expert, const float (&sum)[8][8]) {
    const int32_t x = static_cast<int32_t>(threadIdx.x % 8) * 4;
    const int32_t y = static_cast<int32_t>(threadIdx.x / 8) * 4;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int32_t t = first_token + y + i % 4 + i / 4 * (tile_tokens / 2);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const int32_t e = first_expert + x + j % 4 + j / 4 * (tile_experts / 2);
            if (t >= n_tokens || e >= in.n_experts_all) continue;
            if (in.partial)
                in.partial[(split_tokens + t) * in.n_experts_all + e] = sum[i][j];
            else
                store_logit(in, t, e, sum[i][j]);
        }
    }
}

template <bool wide_x, bool wide_w>
__global__ void __launch_bounds__(n_threads, 3) tiled_logits(TiledInput in, TokenCount tokens) {
    __shared__ Tiles tiles;
    const Cut cut = in.cut;
    const auto first_expert = static_cast<int32_t>(blockIdx.x % cut.expert_tiles) * tile_experts;
    const auto rest = static_cast<int32_t>(blockIdx.x / cut.expert_tiles);
    const int32_t split = rest % cut.n_splits;
    const int32_t first_token = rest / cut.n_splits * tile_tokens;
    const int32_t n_tokens = true_tokens(tokens);
    if (first_token >= n_tokens) return;

    const int32_t thread = static_cast<int32_t>(threadIdx.x);
    const int32_t token = min(first_token + thread, n_tokens - 1);
    const int32_t expert = min(first_expert + thread % tile_experts, in.n_experts_all - 1);
    const int32_t first_step = split * cut.steps;
    const int32_t end_step = min(first_step + cut.steps, in.hidden / depth);
    float sum[8][8] = {};
    Fetched<wide_x, wide_w> fetched;
    fetched.load(in, token, expert, first_step * depth);
    fetched.store(in, tiles, 0);
    __syncthreads();
    for (int32_t step = first_step; step < end_step; step++) {
        const int32_t buffer = (step - first_step) & 1;
        const bool more = step + 1 < end_step;
        if (more) fetched.load(in, token, expert, (step + 1) * depth);
        multiply_step(tiles, buffer, sum);
        if (more) fetched.store(in, tiles, buffer ^ 1);
        __syncthreads();
    }
    store_tile(in, int64_t{split} * tokens.n, first_token, n_tokens, first_expert, sum);
}

__global__ void add_splits(TiledInput in, TokenCount tokens) {
    const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
    const int32_t n = in.n_experts_all;
    if (i >= int64_t{true_tokens(tokens)} * n) return;
    float sum = 0.0f;
    for (int32_t s = 0; s < in.cut.n_splits; s++) sum += in.partial[int64_t{s} * tokens.n * n + i];
    store_logit(in, i / n, static_cast<int32_t>(i % n), sum);
}

using TiledKernel = void (*)(TiledInput, TokenCount);

TiledKernel tiled_kernel(bool wide_x, bool wide_w) {
    if (wide_x) return wide_w ? tiled_logits<true, true> : tiled_logits<true, false>;
    return wide_w ? tiled_logits<false, true> : tiled_logits<false, false>;
}

}  // namespace

// With fewer than wanted_blocks tiles there are less than twice as many blocks; with more, one
// split. The bound does not fall as n_tokens grows, the exact need would.
uint64_t tiled_scratch_bytes(int64_t n_tokens, int32_t n_experts_all, int32_t hidden) {
    const int64_t splits = std::min(most_splits, std::max(hidden / depth / fewest_steps, 1));
    const int64_t expert_tiles = (n_experts_all + tile_experts - 1) / tile_experts;
    const int64_t token_tiles = 2 * wanted_blocks / expert_tiles + 1;
    const int64_t tokens = std::min(n_tokens * splits, token_tiles * tile_tokens);
    return static_cast<uint64_t>(tokens * n_experts_all) * 4;
}

void run_tiled_logits(const RouterProduct& p, const TokenCount& tokens, std::byte* scratch,
                      cudaStream_t stream) {
    const Cut cut = cut_product(tokens.n, p.n_experts_all, p.hidden);
    const TiledInput input{
        {p.x, p.x_type, p.x_stride, takes_packets(p.x, p.x_stride)},
        {p.weights, p.weights_type, p.hidden, takes_packets(p.weights, p.hidden)},
        p.bias,
        p.scale,
        p.hidden,
        p.n_experts_all,
        cut,
        p.logits,
        cut.n_splits > 1 ? reinterpret_cast<float*>(scratch) : nullptr};
    launch("tiled_logits", tiled_kernel(p.x_type == MOE_TYPE_F32, p.weights_type == MOE_TYPE_F32),
           int64_t{cut.token_tiles} * cut.expert_tiles * cut.n_splits, n_threads, 0, stream, input,
           tokens);
    if (cut.n_splits == 1) return;
    const int64_t n_logits = int64_t{tokens.n} * p.n_experts_all;
    launch("add_splits", add_splits, (n_logits + 255) / 256, 256, 0, stream, input, tokens);
}

void prepare_tiled_logits() {
    for (const bool wide_x : {false, true}) {
        for (const bool wide_w : {false, true}) load("tiled_logits", tiled_kernel(wide_x, wide_w));
    }
    load("add_splits", add_splits);
}

}  // namespace moe::cuda
