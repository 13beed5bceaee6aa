// Router logits of few tokens on the tensor cores, for the shortest way from memory to the sums:
// every operand goes straight from device memory to the registers of the product, all loads of a
// warp on their way at once.
//
// few_logits: a block of 8 warps takes 16 experts, 8 tokens and one part of k; a warp the
// slabs_of_warp neighbouring slabs of 32 k that are its share, at most 4 at a time.
//   1. two rows of weights for each slab, 16 or 32 bytes a lane: the first ones while the kernel
//      before still runs, since weights do not come from it; then one of x
//   2. products: experts on the M side, tokens on the N side, sums of one slab each, then added
//   3. sums of the warps through shared memory, added in order, stored
// Experts and tokens past the end are computed as copies of the last one and not stored. No chain
// of additions inside the tensor cores, which cut off rather than round, is longer than a slab.
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
constexpr int32_t slabs_at_once = 4;
constexpr int32_t wanted_blocks = 96;
constexpr int32_t most_parts = 8;

struct FewInput {
    const void* x;
    int64_t x_stride;
    bool packets;  // rows of x begin on 16 bytes
    const void* weights;
    int32_t hidden;
    int32_t n_experts;
    int32_t n_parts;
    int32_t slabs_of_warp;
    float* parts;
};

// A lane's rows of the operands at column k of its slab.
template <class Types>
struct FewRows {
    Octet<Types::w_type> low;   // expert g
    Octet<Types::w_type> high;  // expert g + 8
    Octet<Types::x_type> x;     // token g

    __device__ void load_weights(const FewInput& in, int64_t first_expert, int32_t k) {
        const int32_t g = lane_index() / 4;
        const int64_t column = k + 8 * (lane_index() % 4);
        const int64_t last = in.n_experts - 1;
        low.load(in.weights, min(first_expert + g, last) * in.hidden + column);
        high.load(in.weights, min(first_expert + g + 8, last) * in.hidden + column);
    }
    // row: the lane's of x.
    __device__ void load_x(const FewInput& in, const std::byte* row, int32_t k) {
        if (in.packets)
            x.load(row, k);
        else
            x.load_singly(row, k);
    }

    __device__ void multiply(float (&sum)[4]) const {
#pragma unroll
        for (int step = 0; step < 2; step++)
            multiply_parts<Types::operand>(sum, cut<Types::w_type, Types::native>(low, step),
                                           cut<Types::w_type, Types::native>(high, step),
                                           cut<Types::x_type, Types::native>(x, step));
    }
};

// The slabs of a warp that it has in its registers together.
template <class Types>
struct FewSlabs {
    FewRows<Types> rows[slabs_at_once];
    int32_t first;  // k of the first slab
    int32_t n;

    // Slabs begin .. of those from k `share` on.
    __device__ FewSlabs(const FewInput& in, int64_t first_expert, int32_t share, int32_t begin)
        : first(share + begin * slab_depth) {
        const int32_t left = (in.hidden - first + slab_depth - 1) / slab_depth;
        n = max(0, min(left, min(slabs_at_once, in.slabs_of_warp - begin)));
#pragma unroll
        for (int32_t i = 0; i < slabs_at_once; i++)
            if (i < n) rows[i].load_weights(in, first_expert, first + i * slab_depth);
    }
    __device__ void load_x(const FewInput& in, const std::byte* row) {
#pragma unroll
        for (int32_t i = 0; i < slabs_at_once; i++)
            if (i < n) rows[i].load_x(in, row, first + i * slab_depth);
    }
    __device__ void add_to(float (&total)[4]) const {
#pragma unroll
        for (int32_t i = 0; i < slabs_at_once; i++) {
            if (i >= n) continue;
            float sum[4] = {};
            rows[i].multiply(sum);
#pragma unroll
            for (int j = 0; j < 4; j++) total[j] += sum[j];
        }
    }
};

template <class Types>
__global__ void __launch_bounds__(n_threads)
    few_logits(const __grid_constant__ FewInput in, TokenCount tokens) {
    __shared__ float sums[n_warps][tile_tokens][tile_experts];
    let_next_kernel_start();
    const int32_t n_tiles = (in.n_experts + tile_experts - 1) / tile_experts;
    const auto first_expert = static_cast<int32_t>(blockIdx.x) % n_tiles * tile_experts;
    const auto rest = static_cast<int32_t>(blockIdx.x) / n_tiles;
    const int32_t part = rest % in.n_parts;
    const int32_t first_token = rest / in.n_parts * tile_tokens;
    const int32_t share = (part * n_warps + warp_index()) * in.slabs_of_warp * slab_depth;
    const int32_t g = lane_index() / 4;
    const int32_t t = lane_index() % 4;
    const int64_t own_token = min(first_token + g, tokens.n - 1);
    const std::byte* row = element_at(in.x, Types::x_type, own_token * in.x_stride + 8 * t);
    compute_now(row);
    FewSlabs<Types> slabs(in, first_expert, share, 0);
    wait_for_previous_kernel();
    slabs.load_x(in, row);  // before the true number of tokens is asked for
    const int32_t n_tokens = true_tokens(tokens);
    if (first_token >= n_tokens) return;

    float total[4] = {};
    slabs.add_to(total);
    for (int32_t begin = slabs_at_once; begin < in.slabs_of_warp; begin += slabs_at_once) {
        FewSlabs<Types> more(in, first_expert, share, begin);
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

using FewKernel = void (*)(FewInput, TokenCount);

FewKernel few_kernel(moe_type x, moe_type w) {
    return with_router_types(x, w,
                             [](auto types) -> FewKernel { return few_logits<decltype(types)>; });
}

int32_t divided_up(int32_t a, int32_t b) {
    return (a + b - 1) / b;
}

// The largest share of a warp that still leaves enough blocks, so that there are few parts.
int32_t slabs_of_warp(int32_t n_experts, int32_t hidden) {
    const int32_t n_tiles = divided_up(n_experts, tile_experts);
    const int32_t slabs = divided_up(hidden, slab_depth * n_warps);  // with one part
    int32_t share = slabs_at_once;
    while (share > 1 && n_tiles * divided_up(slabs, share) < wanted_blocks) share /= 2;
    return std::max(share, divided_up(slabs, most_parts));
}

}  // namespace

int32_t few_parts(int32_t n_experts_all, int32_t hidden) {
    return divided_up(divided_up(hidden, slab_depth * n_warps),
                      slabs_of_warp(n_experts_all, hidden));
}

int32_t run_few_logits(const RouterGemm& p, const TokenCount& tokens, cudaStream_t stream) {
    const int32_t n_parts = few_parts(p.n_experts_all, p.hidden);
    const FewInput input{p.x,
                         p.x_stride,
                         takes_packets(p.x, p.x_stride),
                         p.weights,
                         p.hidden,
                         p.n_experts_all,
                         n_parts,
                         slabs_of_warp(p.n_experts_all, p.hidden),
                         p.parts};
    const int64_t n_tiles = divided_up(p.n_experts_all, tile_experts);
    launch("few_logits", few_kernel(p.x_type, p.weights_type),
           n_tiles * n_parts * divided_up(tokens.n, tile_tokens), n_threads, 0, stream, input,
           tokens);
    return n_parts;
}

void prepare_few_logits() {
    for (const moe_type x : {MOE_TYPE_F32, MOE_TYPE_F16, MOE_TYPE_BF16}) {
        for (const moe_type w : {MOE_TYPE_F32, MOE_TYPE_F16, MOE_TYPE_BF16}) {
            load("few_logits", few_kernel(x, w));
            want_most_shared_memory("few_logits", few_kernel(x, w));  // as the one-token kernels
        }
    }
}

}  // namespace moe::cuda
