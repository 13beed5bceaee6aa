// Router GEMM of a small batch on the tensor cores, built for the shortest latency from HBM to the
// sums. Each warp loads its operands straight into registers and issues all loads before the first
// MMA.
//
// Inputs: x [T, hidden] of F32, F16 or BF16, T up to 32, any alignment; weights [E, hidden] of F32,
// F16 or BF16, aligned to 16 bytes; hidden is a multiple of 32.
// Output: parts [n_parts][T][E] of float32, where part p is the sum over split p of k.
//
// small_batch_logits: a thread block of 8 warps computes 16 experts x 8 tokens over one split of k.
// A warp owns k_blocks_per_warp adjacent k blocks of 32 and holds at most 4 of them at a time.
//   1. issue the loads of two weight rows for each k block, 16 or 32 bytes a lane, before the wait
//      for the preceding kernel in the stream (PDL): weights do not depend on it
//   2. wait for the preceding kernel, then issue the loads of one row of x
//   3. MMA with experts as M and tokens as N; each k block has its own accumulator, which is then
//      added to the warp's float32 sums
//   4. store the sums of the warps to shared memory, synchronize, add them in order, store the
//      parts
// Lanes past the last expert or token repeat the last one and store nothing. A tensor core
// truncates its accumulator, so no accumulation chain inside it is longer than one k block.
#include <algorithm>

#include "libmoe/cuda/device/call.cuh"
#include "libmoe/cuda/device/dependent_launch.cuh"
#include "libmoe/cuda/device/warp.cuh"
#include "libmoe/cuda/router/logits.hpp"
#include "libmoe/cuda/router/parts.cuh"
#include "libmoe/cuda/runtime/launch.cuh"

namespace moe::cuda {
namespace {

constexpr int32_t n_warps = 8;
constexpr int n_threads = 32 * n_warps;
constexpr int32_t tile_experts = 16;
constexpr int32_t tile_tokens = 8;
constexpr int32_t k_blocks_at_once = 4;
constexpr int32_t min_blocks = 96;
constexpr int32_t max_parts = 8;

struct SmallBatchInput {
    const void* x;
    int64_t x_stride;
    bool packets;  // rows of x are aligned to 16 bytes
    const void* weights;
    int32_t hidden;
    int32_t n_experts;
    int32_t n_parts;
    int32_t k_blocks_per_warp;
    float* parts;
};

// One lane's operands of one k block, whose first column is k.
template <class Types>
struct SmallBatchRows {
    Octet<Types::w_type> low;   // expert g
    Octet<Types::w_type> high;  // expert g + 8
    Octet<Types::x_type> x;     // token g

    __device__ void load_weights(const SmallBatchInput& in, int64_t first_expert, int32_t k) {
        const int32_t g = lane_index() / 4;
        const int64_t column = k + 8 * (lane_index() % 4);
        const int64_t last = in.n_experts - 1;
        low.load(in.weights, min(first_expert + g, last) * in.hidden + column);
        high.load(in.weights, min(first_expert + g + 8, last) * in.hidden + column);
    }
    // row points to the lane's row of x.
    __device__ void load_x(const SmallBatchInput& in, const std::byte* row, int32_t k) {
        if (in.packets)
            x.load(row, k);
        else
            x.load_singly(row, k);
    }

    __device__ void multiply(float (&accum)[4]) const {
#pragma unroll
        for (int step = 0; step < 2; step++)
            multiply_parts<Types::operand>(accum, split<Types::w_type, Types::native>(low, step),
                                           split<Types::w_type, Types::native>(high, step),
                                           split<Types::x_type, Types::native>(x, step));
    }
};

// The k blocks that a warp holds in registers at the same time.
template <class Types>
struct SmallBatchBlocks {
    SmallBatchRows<Types> rows[k_blocks_at_once];
    int32_t first;  // k of the first k block
    int32_t n;

    // Issues the weight loads of k blocks begin, begin + 1, ... of the warp's range, which starts
    // at warp_k.
    __device__ SmallBatchBlocks(const SmallBatchInput& in, int64_t first_expert, int32_t warp_k,
                                int32_t begin)
        : first(warp_k + begin * k_block_size) {
        const int32_t left = (in.hidden - first + k_block_size - 1) / k_block_size;
        n = max(0, min(left, min(k_blocks_at_once, in.k_blocks_per_warp - begin)));
#pragma unroll
        for (int32_t i = 0; i < k_blocks_at_once; i++)
            if (i < n) rows[i].load_weights(in, first_expert, first + i * k_block_size);
    }
    __device__ void load_x(const SmallBatchInput& in, const std::byte* row) {
#pragma unroll
        for (int32_t i = 0; i < k_blocks_at_once; i++)
            if (i < n) rows[i].load_x(in, row, first + i * k_block_size);
    }
    __device__ void add_to(float (&total)[4]) const {
#pragma unroll
        for (int32_t i = 0; i < k_blocks_at_once; i++) {
            if (i >= n) continue;
            float accum[4] = {};
            rows[i].multiply(accum);
#pragma unroll
            for (int j = 0; j < 4; j++) total[j] += accum[j];
        }
    }
};

template <class Types>
__global__ void __launch_bounds__(n_threads)
    small_batch_logits(const __grid_constant__ SmallBatchInput in, TokenCount tokens) {
    __shared__ float sums[n_warps][tile_tokens][tile_experts];
    let_next_kernel_start();
    const int32_t n_tiles = (in.n_experts + tile_experts - 1) / tile_experts;
    const auto first_expert = static_cast<int32_t>(blockIdx.x) % n_tiles * tile_experts;
    const auto tile_index = static_cast<int32_t>(blockIdx.x) / n_tiles;
    const int32_t part = tile_index % in.n_parts;
    const int32_t first_token = tile_index / in.n_parts * tile_tokens;
    const int32_t warp_k = (part * n_warps + warp_index()) * in.k_blocks_per_warp * k_block_size;
    const int32_t g = lane_index() / 4;
    const int32_t t = lane_index() % 4;
    const int64_t own_token = min(first_token + g, tokens.n - 1);
    const std::byte* row = element_at(in.x, Types::x_type, own_token * in.x_stride + 8 * t);
    compute_now(row);
    SmallBatchBlocks<Types> k_blocks(in, first_expert, warp_k, 0);
    wait_for_previous_kernel();
    k_blocks.load_x(in, row);  // ahead of the load of the true number of tokens
    const int32_t n_tokens = true_tokens(tokens);
    if (first_token >= n_tokens) return;

    float total[4] = {};
    k_blocks.add_to(total);
    for (int32_t begin = k_blocks_at_once; begin < in.k_blocks_per_warp;
         begin += k_blocks_at_once) {
        SmallBatchBlocks<Types> more(in, first_expert, warp_k, begin);
        more.load_x(in, row);
        more.add_to(total);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) sums[warp_index()][2 * t + i % 2][g + i / 2 * 8] = total[i];
    __syncthreads();

    const auto i = static_cast<int32_t>(threadIdx.x);
    const int32_t token = first_token + i / tile_experts;
    const int32_t expert = first_expert + i % tile_experts;
    if (i >= tile_tokens * tile_experts || token >= n_tokens || expert >= in.n_experts) return;
    float sum = 0.0f;
#pragma unroll
    for (int32_t w = 0; w < n_warps; w++) sum += sums[w][i / tile_experts][i % tile_experts];
    in.parts[(int64_t{part} * tokens.n + token) * in.n_experts + expert] = sum;
}

using SmallBatchKernel = void (*)(SmallBatchInput, TokenCount);

SmallBatchKernel small_batch_kernel(moe_type x, moe_type w) {
    return with_router_types(
        x, w, [](auto types) -> SmallBatchKernel { return small_batch_logits<decltype(types)>; });
}

int32_t divided_up(int32_t a, int32_t b) {
    return (a + b - 1) / b;
}

// Takes the longest k range of a warp that still gives min_blocks thread blocks, because fewer
// parts cost less to add.
int32_t k_blocks_per_warp(int32_t n_experts, int32_t hidden) {
    const int32_t n_tiles = divided_up(n_experts, tile_experts);
    const int32_t k_blocks =
        divided_up(hidden, k_block_size * n_warps);  // per warp, without split-k
    int32_t per_warp = k_blocks_at_once;
    while (per_warp > 1 && n_tiles * divided_up(k_blocks, per_warp) < min_blocks) per_warp /= 2;
    return std::max(per_warp, divided_up(k_blocks, max_parts));
}

}  // namespace

int32_t small_batch_parts(int32_t n_experts_all, int32_t hidden) {
    return divided_up(divided_up(hidden, k_block_size * n_warps),
                      k_blocks_per_warp(n_experts_all, hidden));
}

int32_t run_small_batch_logits(const RouterGemm& p, const TokenCount& tokens, cudaStream_t stream) {
    const int32_t n_parts = small_batch_parts(p.n_experts_all, p.hidden);
    const SmallBatchInput input{p.x,
                                p.x_stride,
                                takes_packets(p.x, p.x_stride),
                                p.weights,
                                p.hidden,
                                p.n_experts_all,
                                n_parts,
                                k_blocks_per_warp(p.n_experts_all, p.hidden),
                                p.parts};
    const int64_t n_tiles = divided_up(p.n_experts_all, tile_experts);
    launch("small_batch_logits", small_batch_kernel(p.x_type, p.weights_type),
           n_tiles * n_parts * divided_up(tokens.n, tile_tokens), n_threads, 0, stream, input,
           tokens);
    return n_parts;
}

void prepare_small_batch_logits(moe_type x, moe_type weights) {
    auto* kernel = small_batch_kernel(x, weights);
    load("small_batch_logits", kernel);
    want_most_shared_memory("small_batch_logits", kernel);  // same carveout as the gemv kernels
}

}  // namespace moe::cuda
