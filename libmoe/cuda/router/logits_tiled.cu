// Router logits of many tokens on the tensor cores, by the instructions that sm_80 has.
//
// tiled_logits: a block of 8 warps computes 128 tokens x 128 experts over one part of k, a warp
// 64 x 32 of them. Where there are fewer tiles than a large device has multiprocessors, k is cut
// into parts, which the selection adds in order. Of a plan that is batch_invariant the parts do not
// depend on the number of tokens.
//
// A slab is 32 k of the 128 rows of x, then of the weights: rows of 64 bytes, or of 128 with 16-byte
// chunk c of row r at c ^ (r & 7), which keep the reads below free of bank conflicts. A stage is two
// slabs of 16-bit types, one otherwise; `n_stages` of them lie in shared memory. Per stage:
//   1. wait for its copies, barrier; start the copies of the stage that was multiplied last
//   2. products (parts.cuh), the sums inside the tensor cores beginning at zero
//   3. those sums are added to the warp's own: the tensor cores cut off rather than round, so no
//      chain of additions in them is longer than a stage
// Rows of x that do not begin on 16 bytes are copied value by value. Tokens and experts past the end
// are copies of the last one and not stored; k past the end is zero.
#include <algorithm>

#include "libmoe/cuda/device/call.cuh"
#include "libmoe/cuda/device/cp_async.cuh"
#include "libmoe/cuda/device/warp.cuh"
#include "libmoe/cuda/router/logits.hpp"
#include "libmoe/cuda/router/parts.cuh"
#include "libmoe/cuda/runtime/launch.cuh"

namespace moe::cuda {
namespace {

constexpr int n_threads = 256;
constexpr int32_t tile = 128;  // tokens and experts
constexpr int32_t warp_tokens = 64;
constexpr int32_t warp_experts = 32;
constexpr int32_t wanted_blocks = 132;  // one on each multiprocessor of a large device
constexpr int32_t most_parts = 8;
constexpr int32_t least_depth = 256;  // of a part
constexpr int32_t invariant_parts = 4;
constexpr int32_t shared_bytes = 96 * 1024;  // of the stages

struct TiledInput {
    const void* x;
    int64_t x_stride;
    bool packets;  // rows of x begin on 16 bytes
    const void* weights;
    int32_t hidden;
    int32_t n_experts;
    int32_t n_parts;
    int32_t part_depth;  // k of a part, a multiple of 64
    float* parts;
};

template <class Types>
struct Stages {
    static constexpr int32_t x_row = is_wide<Types::x_type> ? 128 : 64;
    static constexpr int32_t w_row = is_wide<Types::w_type> ? 128 : 64;
    static constexpr int32_t n_slabs = x_row + w_row == 128 ? 2 : 1;
    static constexpr int32_t depth = n_slabs * slab_depth;
    static constexpr int32_t x_bytes = tile * x_row;
    static constexpr int32_t slab_bytes = x_bytes + tile * w_row;
    static constexpr int32_t bytes = n_slabs * slab_bytes;
    static constexpr int32_t n_stages = shared_bytes / bytes;
};

// ---- into shared memory

template <int32_t row_bytes>
__device__ int32_t place_of_chunk(int32_t row, int32_t chunk) {
    return row * row_bytes + 16 * (row_bytes == 128 ? chunk ^ (row & 7) : chunk);
}

// Rows first_row to first_row + 127, columns k to k + 31, or zeros.
template <moe_type type>
__device__ void copy_slab(std::byte* to, const void* data, int64_t stride, int32_t first_row,
                          int32_t last_row, int32_t k, bool present) {
    constexpr int32_t row_bytes = is_wide<type> ? 128 : 64;
    constexpr int32_t chunks = row_bytes / 16;
#pragma unroll
    for (int32_t i = 0; i < tile * chunks / n_threads; i++) {
        const int32_t row = static_cast<int32_t>(threadIdx.x) / chunks + n_threads / chunks * i;
        const int32_t chunk = static_cast<int32_t>(threadIdx.x) % chunks;
        const int64_t from = min(first_row + row, last_row) * stride + (present ? k : 0);
        copy_async_16(to + place_of_chunk<row_bytes>(row, chunk),
                      element_at(data, type, from) + 16 * chunk, present);
    }
}

template <moe_type type>
__device__ void copy_slab_singly(std::byte* to, const void* data, int64_t stride,
                                 int32_t first_row, int32_t last_row, int32_t k, bool present) {
    using Value = std::conditional_t<is_wide<type>, uint32_t, uint16_t>;
    constexpr int32_t row_bytes = is_wide<type> ? 128 : 64;
    constexpr int32_t per_chunk = 16 / sizeof(Value);
#pragma unroll 4
    for (auto i = static_cast<int32_t>(threadIdx.x); i < tile * slab_depth; i += n_threads) {
        const int32_t row = i / slab_depth;
        const int32_t column = i % slab_depth;
        const int64_t from = min(first_row + row, last_row) * stride + k + column;
        const int32_t place = place_of_chunk<row_bytes>(row, column / per_chunk);
        reinterpret_cast<Value*>(to + place)[column % per_chunk] =
            present ? static_cast<const Value*>(data)[from] : Value{0};
    }
}

struct TilePlace {
    int32_t first_token;
    int32_t last_token;
    int32_t first_expert;
    int32_t first_k;
    int32_t end_k;
};

// One group of copies, empty past the end of the part.
template <class Types>
__device__ void fetch_stage(const TiledInput& in, const TilePlace& at, int32_t step,
                            std::byte* shared) {
    using S = Stages<Types>;
    std::byte* stage = shared + step % S::n_stages * S::bytes;
    const int32_t begin = at.first_k + step * S::depth;
#pragma unroll
    for (int32_t s = 0; s < S::n_slabs; s++) {
        if (begin >= at.end_k) break;
        const int32_t k = begin + s * slab_depth;
        const bool present = k < at.end_k;
        std::byte* slab = stage + s * S::slab_bytes;
        if (in.packets)
            copy_slab<Types::x_type>(slab, in.x, in.x_stride, at.first_token, at.last_token, k,
                                     present);
        else
            copy_slab_singly<Types::x_type>(slab, in.x, in.x_stride, at.first_token,
                                            at.last_token, k, present);
        copy_slab<Types::w_type>(slab + S::x_bytes, in.weights, in.hidden, at.first_expert,
                                 in.n_experts - 1, k, present);
    }
    commit_copies();
}

// ---- products

// The lane's eight values of a row.
template <moe_type type>
__device__ Octet<type> take_octet(const std::byte* rows, int32_t row) {
    const int32_t t = lane_index() % 4;
    Octet<type> octet;
    if constexpr (is_wide<type>) {
        load_words<4>(rows + place_of_chunk<128>(row, 2 * t), octet.word);
        load_words<4>(rows + place_of_chunk<128>(row, 2 * t + 1), octet.word + 4);
    } else {
        load_words<4>(rows + place_of_chunk<64>(row, t), octet.word);
    }
    return octet;
}

constexpr int32_t m_tiles = warp_tokens / 16;
constexpr int32_t n_tiles = warp_experts / 8;
using Sums = float[m_tiles][n_tiles][4];

template <class Types>
__device__ void multiply_slab(const std::byte* slab, int32_t warp_row, int32_t warp_column,
                              Sums& sums) {
    constexpr bool native = Types::native;
    using WeightParts = Parts<parts_of<Types::w_type, native>>;
    const int32_t g = lane_index() / 4;
    Octet<Types::w_type> weights[n_tiles];
#pragma unroll
    for (int32_t n = 0; n < n_tiles; n++)
        weights[n] = take_octet<Types::w_type>(slab + Stages<Types>::x_bytes,
                                               warp_column + 8 * n + g);
#pragma unroll
    for (int32_t step = 0; step < 2; step++) {
        WeightParts b[n_tiles];
#pragma unroll
        for (int32_t n = 0; n < n_tiles; n++) b[n] = cut<Types::w_type, native>(weights[n], step);
#pragma unroll
        for (int32_t m = 0; m < m_tiles; m++) {
            const int32_t row = warp_row + 16 * m + g;
            const auto low = cut<Types::x_type, native>(take_octet<Types::x_type>(slab, row), step);
            const auto high =
                cut<Types::x_type, native>(take_octet<Types::x_type>(slab, row + 8), step);
#pragma unroll
            for (int32_t n = 0; n < n_tiles; n++)
                multiply_parts<Types::operand>(sums[m][n], low, high, b[n]);
        }
    }
}

template <class Types>
__device__ void multiply_stage(const std::byte* stage, int32_t warp_row, int32_t warp_column,
                               Sums& sums) {
    using S = Stages<Types>;
    Sums inner = {};
#pragma unroll
    for (int32_t s = 0; s < S::n_slabs; s++)
        multiply_slab<Types>(stage + s * S::slab_bytes, warp_row, warp_column, inner);
#pragma unroll
    for (int32_t m = 0; m < m_tiles; m++) {
#pragma unroll
        for (int32_t i = 0; i < n_tiles * 4; i++) sums[m][i / 4][i % 4] += inner[m][i / 4][i % 4];
    }
}

__device__ void store_sums(const TiledInput& in, int64_t part_tokens, int32_t first_token,
                           int32_t n_tokens, int32_t first_expert, const Sums& sums) {
    const int32_t g = lane_index() / 4;
    const int32_t t = lane_index() % 4;
#pragma unroll
    for (int32_t i = 0; i < m_tiles * n_tiles * 4; i++) {
        const int32_t c = i % 4;
        const int32_t token = first_token + 16 * (i / 4 / n_tiles) + g + c / 2 * 8;
        const int32_t expert = first_expert + 8 * (i / 4 % n_tiles) + 2 * t + c % 2;
        if (token < n_tokens && expert < in.n_experts)
            in.parts[(part_tokens + token) * in.n_experts + expert] =
                sums[i / 4 / n_tiles][i / 4 % n_tiles][c];
    }
}

template <class Types>
__global__ void __launch_bounds__(n_threads, 1) tiled_logits(TiledInput in, TokenCount tokens) {
    using S = Stages<Types>;
    extern __shared__ __align__(128) std::byte shared[];
    const int32_t expert_tiles = (in.n_experts + tile - 1) / tile;
    const auto rest = static_cast<int32_t>(blockIdx.x) / expert_tiles;
    const int32_t part = rest % in.n_parts;
    const int32_t n_tokens = true_tokens(tokens);
    TilePlace at{};
    at.first_expert = static_cast<int32_t>(blockIdx.x) % expert_tiles * tile;
    at.first_token = rest / in.n_parts * tile;
    at.last_token = n_tokens - 1;
    at.first_k = part * in.part_depth;
    at.end_k = min(at.first_k + in.part_depth, in.hidden);
    if (at.first_token >= n_tokens) return;

    const int32_t warp_row = warp_index() / 4 * warp_tokens;
    const int32_t warp_column = warp_index() % 4 * warp_experts;
    const bool has_work =
        at.first_token + warp_row < n_tokens && at.first_expert + warp_column < in.n_experts;
    const int32_t n_steps = (at.end_k - at.first_k + S::depth - 1) / S::depth;
    Sums sums = {};
    for (int32_t step = 0; step < S::n_stages - 1; step++)
        fetch_stage<Types>(in, at, step, shared);
#pragma unroll 1
    for (int32_t step = 0; step < n_steps; step++) {
        wait_copies<S::n_stages - 2>();
        __syncthreads();
        fetch_stage<Types>(in, at, step + S::n_stages - 1, shared);
        if (has_work)
            multiply_stage<Types>(shared + step % S::n_stages * S::bytes, warp_row, warp_column,
                                  sums);
    }
    store_sums(in, int64_t{part} * tokens.n, at.first_token + warp_row, n_tokens,
               at.first_expert + warp_column, sums);
}

// ---- host

using TiledKernel = void (*)(TiledInput, TokenCount);

TiledKernel tiled_kernel(moe_type x, moe_type w) {
    return with_router_types(
        x, w, [](auto types) -> TiledKernel { return tiled_logits<decltype(types)>; });
}

int64_t divided_up(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

// k of a part when there are wanted parts.
int32_t depth_of_part(int32_t hidden, int64_t wanted) {
    const int64_t parts = std::clamp<int64_t>(hidden / least_depth, 1, wanted);
    return static_cast<int32_t>(divided_up(divided_up(hidden, parts), 64) * 64);
}

int32_t part_depth(int64_t n_tokens, int32_t n_experts, int32_t hidden, bool batch_invariant) {
    if (batch_invariant) return depth_of_part(hidden, invariant_parts);
    const int64_t n_tiles = divided_up(n_tokens, tile) * divided_up(n_experts, tile);
    return depth_of_part(hidden, std::clamp<int64_t>(wanted_blocks / n_tiles, 1, most_parts));
}

}  // namespace

int64_t tiled_part_floats(int64_t n_tokens, const LogitsInput& input) {
    const int64_t n_logits = n_tokens * input.n_experts_all;
    if (input.batch_invariant) return invariant_parts * n_logits;
    // More parts than one are of wanted_blocks tiles at most.
    return std::min(most_parts * n_logits, std::max(n_logits, int64_t{wanted_blocks} * tile * tile));
}

int32_t run_tiled_logits(const RouterProduct& p, const TokenCount& tokens, cudaStream_t stream) {
    const int32_t depth = part_depth(tokens.n, p.n_experts_all, p.hidden, p.batch_invariant);
    const TiledInput input{p.x,
                           p.x_stride,
                           takes_packets(p.x, p.x_stride),
                           p.weights,
                           p.hidden,
                           p.n_experts_all,
                           static_cast<int32_t>(divided_up(p.hidden, depth)),
                           depth,
                           p.parts};
    launch("tiled_logits", tiled_kernel(p.x_type, p.weights_type),
           divided_up(tokens.n, tile) * divided_up(p.n_experts_all, tile) * input.n_parts,
           n_threads, shared_bytes, stream, input, tokens);
    return input.n_parts;
}

void prepare_tiled_logits() {
    for (const moe_type x : {MOE_TYPE_F32, MOE_TYPE_F16, MOE_TYPE_BF16}) {
        for (const moe_type w : {MOE_TYPE_F32, MOE_TYPE_F16, MOE_TYPE_BF16})
            load("tiled_logits", tiled_kernel(x, w), shared_bytes);
    }
}

}  // namespace moe::cuda
