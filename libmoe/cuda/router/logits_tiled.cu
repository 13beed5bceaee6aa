// Router logits of many tokens on the tensor cores, by the instructions that sm_80 has.
//
// tiled_logits: a block of 8 warps computes 128 tokens x 128 experts over one part of k, a warp
// 64 x 32 of them. Where there are fewer tiles than a large device has multiprocessors, k is cut
// into parts, which the selection adds in order. Of a plan that is batch_invariant the parts do not
// depend on the number of tokens.
//
// A slab is 32 k of the 128 rows of x, then of the weights: rows of 64 bytes, 16-byte chunk c of
// row r at c ^ (r / 2 & 3), or of 128 bytes, at c ^ 2 (r & 3): the reads below are free of bank
// conflicts. A stage is two slabs of 16-bit types, one otherwise; as many as there is room for, up
// to 6, lie in shared memory. Per stage:
//   1. wait for its copies, barrier; start the copies of the stage that was multiplied last
//   2. products (parts.cuh), the sums inside the tensor cores beginning at zero
//   3. those sums are added to the warp's own: the tensor cores cut off rather than round, so no
//      chain of additions in them is longer than a stage
// Rows of x that do not begin on 16 bytes are copied value by value. Tokens, experts and k past the
// end are zero.
#include <algorithm>

#include "libmoe/cuda/device/call.cuh"
#include "libmoe/cuda/device/cp_async.cuh"
#include "libmoe/cuda/device/dependent_launch.cuh"
#include "libmoe/cuda/device/shared_memory.cuh"
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
constexpr int32_t least_depth = 128;  // of a part
constexpr int32_t invariant_parts = 4;
constexpr int32_t most_stages = 6;

struct TiledInput {
    const void* x;
    int64_t x_stride;
    bool packets;  // rows of x begin on 16 bytes
    const void* weights;
    int32_t hidden;
    int32_t n_experts;
    int32_t n_parts;
    int32_t part_depth;  // k of a part, a multiple of 64
    int32_t n_stages;
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
};

// ---- into shared memory

template <int32_t row_bytes>
__device__ int32_t place_of_chunk(int32_t row, int32_t chunk) {
    return row * row_bytes + 16 * (chunk ^ (row_bytes == 128 ? (row & 3) * 2 : row / 2 & 3));
}

// What is copied of one operand for a stage: rows first_row to first_row + 127, columns k to
// end_k. Rows and columns past the end are zeros, which nothing is read for.
struct CopiedRows {
    const void* data;
    int64_t stride;
    int32_t first_row;
    int32_t end_row;
    int32_t k;
    int32_t end_k;
};

// To slabs that are slab_bytes apart. Neighbouring threads copy a row's neighbouring chunks.
template <moe_type type, int32_t n_slabs, int32_t slab_bytes>
__device__ void copy_rows(std::byte* to, const CopiedRows& rows) {
    constexpr int32_t row_bytes = is_wide<type> ? 128 : 64;
    constexpr int32_t slab_chunks = row_bytes / 16;
    constexpr int32_t chunks = slab_chunks * n_slabs;
    const int32_t chunk = static_cast<int32_t>(threadIdx.x) % chunks;
    const int32_t k = rows.k + chunk / slab_chunks * slab_depth;
    std::byte* slab = to + chunk / slab_chunks * slab_bytes;
#pragma unroll
    for (int32_t i = 0; i < tile * chunks / n_threads; i++) {
        const int32_t row = static_cast<int32_t>(threadIdx.x) / chunks + n_threads / chunks * i;
        const bool present = k < rows.end_k && rows.first_row + row < rows.end_row;
        const int64_t from = present ? (rows.first_row + row) * rows.stride + k : 0;
        copy_async_16(slab + place_of_chunk<row_bytes>(row, chunk % slab_chunks),
                      element_at(rows.data, type, from) + 16 * (chunk % slab_chunks), present);
    }
}

// The same for rows that begin anywhere.
template <moe_type type, int32_t n_slabs, int32_t slab_bytes>
__device__ void copy_rows_singly(std::byte* to, const CopiedRows& rows) {
    using Value = std::conditional_t<is_wide<type>, uint32_t, uint16_t>;
    constexpr int32_t row_bytes = is_wide<type> ? 128 : 64;
    constexpr int32_t per_chunk = 16 / sizeof(Value);
    constexpr int32_t depth = n_slabs * slab_depth;
#pragma unroll 4
    for (auto i = static_cast<int32_t>(threadIdx.x); i < tile * depth; i += n_threads) {
        const int32_t row = i / depth;
        const int32_t column = i % slab_depth;
        const int32_t k = rows.k + i % depth;
        const bool present = k < rows.end_k && rows.first_row + row < rows.end_row;
        std::byte* slab = to + i % depth / slab_depth * slab_bytes;
        const int32_t place = place_of_chunk<row_bytes>(row, column / per_chunk);
        reinterpret_cast<Value*>(slab + place)[column % per_chunk] =
            present ? static_cast<const Value*>(rows.data)[(rows.first_row + row) * rows.stride + k]
                    : Value{0};
    }
}

struct TilePlace {
    int32_t first_token;
    int32_t end_token;
    int32_t first_expert;
    int32_t first_k;
    int32_t end_k;
};

// One group of copies, empty past the end of the part.
template <class Types>
__device__ void fetch_stage(const TiledInput& in, const TilePlace& at, int32_t step,
                            std::byte* stage) {
    using S = Stages<Types>;
    const int32_t k = at.first_k + step * S::depth;
    if (k < at.end_k) {
        const CopiedRows x{in.x, in.x_stride, at.first_token, at.end_token, k, at.end_k};
        const CopiedRows w{in.weights, in.hidden, at.first_expert, in.n_experts, k, at.end_k};
        if (in.packets)
            copy_rows<Types::x_type, S::n_slabs, S::slab_bytes>(stage, x);
        else
            copy_rows_singly<Types::x_type, S::n_slabs, S::slab_bytes>(stage, x);
        copy_rows<Types::w_type, S::n_slabs, S::slab_bytes>(stage + S::x_bytes, w);
    }
    commit_copies();
}

// ---- products

// Float32 pairs of a row as an operand has them: columns 16 step + 2 t and 8 further.
__device__ Parts<3> take_wide(const std::byte* rows, int32_t row, int32_t step) {
    const int32_t t = lane_index() % 4;
    uint32_t word[4];
#pragma unroll
    for (int32_t i = 0; i < 2; i++)
        load_words<2>(rows + place_of_chunk<128>(row, 4 * step + 2 * i + t / 2) + t % 2 * 8,
                      word + 2 * i);
    return cut({__uint_as_float(word[0]), __uint_as_float(word[1])},
               FloatPair{__uint_as_float(word[2]), __uint_as_float(word[3])});
}

// Four 8 x 8 matrices of 16-bit values: the lane gives the address of row lane % 8 of matrix
// lane / 8, and gets of each matrix the columns 2 t and 2 t + 1 of row g.
__device__ void load_matrices(const std::byte* from, uint32_t (&word)[4]) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
                 : "r"(shared_address(from))
                 : "memory");
}

template <int n_parts>
struct TokenRows {
    Parts<n_parts> low;   // row g of 16
    Parts<n_parts> high;  // row g + 8
};

template <moe_type type, bool native>
__device__ TokenRows<parts_of<type, native>> take_tokens(const std::byte* rows, int32_t first_row,
                                                         int32_t step) {
    const int32_t lane = lane_index();
    if constexpr (is_wide<type>) {
        return {take_wide(rows, first_row + lane / 4, step),
                take_wide(rows, first_row + lane / 4 + 8, step)};
    } else {
        uint32_t word[4];
        load_matrices(rows + place_of_chunk<64>(first_row + lane % 16, 2 * step + lane / 16), word);
        return {cut<type, native>(word[0], word[2]), cut<type, native>(word[1], word[3])};
    }
}

// Expert g of 8, for both steps.
template <moe_type type, bool native>
__device__ void take_experts(const std::byte* rows, int32_t first_row,
                             Parts<parts_of<type, native>> (&b)[2]) {
    const int32_t lane = lane_index();
    if constexpr (is_wide<type>) {
#pragma unroll
        for (int32_t step = 0; step < 2; step++)
            b[step] = take_wide(rows, first_row + lane / 4, step);
    } else {
        uint32_t word[4];
        load_matrices(rows + place_of_chunk<64>(first_row + lane % 8, lane / 8), word);
        b[0] = cut<type, native>(word[0], word[1]);
        b[1] = cut<type, native>(word[2], word[3]);
    }
}

constexpr int32_t m_tiles = warp_tokens / 16;
constexpr int32_t n_tiles = warp_experts / 8;
using Sums = float[m_tiles][n_tiles][4];

template <class Types>
__device__ void multiply_slab(const std::byte* slab, int32_t warp_row, int32_t warp_column,
                              Sums& sums) {
    constexpr bool native = Types::native;
    Parts<parts_of<Types::w_type, native>> b[n_tiles][2];
#pragma unroll
    for (int32_t n = 0; n < n_tiles; n++)
        take_experts<Types::w_type, native>(slab + Stages<Types>::x_bytes, warp_column + 8 * n,
                                            b[n]);
#pragma unroll
    for (int32_t step = 0; step < 2; step++) {
#pragma unroll
        for (int32_t m = 0; m < m_tiles; m++) {
            const auto a = take_tokens<Types::x_type, native>(slab, warp_row + 16 * m, step);
#pragma unroll
            for (int32_t n = 0; n < n_tiles; n++)
                multiply_parts<Types::operand>(sums[m][n], a.low, a.high, b[n][step]);
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
    begin_after_previous_kernel();
    const int32_t expert_tiles = (in.n_experts + tile - 1) / tile;
    const auto rest = static_cast<int32_t>(blockIdx.x) / expert_tiles;
    const int32_t part = rest % in.n_parts;
    const int32_t n_tokens = true_tokens(tokens);
    TilePlace at{};
    at.first_expert = static_cast<int32_t>(blockIdx.x) % expert_tiles * tile;
    at.first_token = rest / in.n_parts * tile;
    at.end_token = n_tokens;
    at.first_k = part * in.part_depth;
    at.end_k = min(at.first_k + in.part_depth, in.hidden);
    if (at.first_token >= n_tokens) return;

    const int32_t warp_row = warp_index() / 4 * warp_tokens;
    const int32_t warp_column = warp_index() % 4 * warp_experts;
    const bool has_work =
        at.first_token + warp_row < n_tokens && at.first_expert + warp_column < in.n_experts;
    const int32_t n_steps = (at.end_k - at.first_k + S::depth - 1) / S::depth;
    Sums sums = {};
    for (int32_t step = 0; step < in.n_stages - 1; step++)
        fetch_stage<Types>(in, at, step, shared + step * S::bytes);
    int32_t own = 0;                 // the stage to multiply
    int32_t free = in.n_stages - 1;  // the one that was multiplied last
#pragma unroll 1
    for (int32_t step = 0; step < n_steps; step++) {
        wait_copies(in.n_stages - 2);
        __syncthreads();
        fetch_stage<Types>(in, at, step + in.n_stages - 1, shared + free * S::bytes);
        if (has_work) multiply_stage<Types>(shared + own * S::bytes, warp_row, warp_column, sums);
        free = own;
        own = own + 1 < in.n_stages ? own + 1 : 0;
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

int32_t bytes_of_stage(moe_type x, moe_type w) {
    return with_router_types(x, w, [](auto types) { return Stages<decltype(types)>::bytes; });
}

int32_t stages_of(const DeviceFacts& device, moe_type x, moe_type w) {
    return std::min(most_stages, device.shared_bytes / bytes_of_stage(x, w));
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
    return std::min(most_parts * n_logits,
                    std::max(n_logits, int64_t{wanted_blocks} * tile * tile));
}

int32_t run_tiled_logits(const DeviceFacts& device, const RouterGemm& p, const TokenCount& tokens,
                         cudaStream_t stream) {
    const int32_t depth = part_depth(tokens.n, p.n_experts_all, p.hidden, p.batch_invariant);
    const int32_t n_stages = stages_of(device, p.x_type, p.weights_type);
    const TiledInput input{p.x,
                           p.x_stride,
                           takes_packets(p.x, p.x_stride),
                           p.weights,
                           p.hidden,
                           p.n_experts_all,
                           static_cast<int32_t>(divided_up(p.hidden, depth)),
                           depth,
                           n_stages,
                           p.parts};
    launch("tiled_logits", tiled_kernel(p.x_type, p.weights_type),
           divided_up(tokens.n, tile) * divided_up(p.n_experts_all, tile) * input.n_parts,
           n_threads, n_stages * bytes_of_stage(p.x_type, p.weights_type), stream, input, tokens);
    return input.n_parts;
}

void prepare_tiled_logits(const DeviceFacts& device) {
    for (const moe_type x : {MOE_TYPE_F32, MOE_TYPE_F16, MOE_TYPE_BF16}) {
        for (const moe_type w : {MOE_TYPE_F32, MOE_TYPE_F16, MOE_TYPE_BF16})
            load("tiled_logits", tiled_kernel(x, w),
                 stages_of(device, x, w) * bytes_of_stage(x, w));
    }
}

}  // namespace moe::cuda
