// Router GEMM of many tokens on the tensor cores, with instructions that sm_80 has.
//
// Inputs: x [T, hidden] of F32, F16 or BF16, any alignment; weights [E, hidden] of F32, F16 or
// BF16, aligned to 16 bytes; hidden is a multiple of 32.
// Output: parts [n_parts][T][E] of float32, where part p is the sum over split p of k.
//
// tiled_logits: a thread block of 8 warps computes a tile of 128 tokens x 128 experts over one
// split of k, a warp 64 x 32 of it. k is split where there are fewer tiles than a large device has
// SMs, and the selection adds the parts in order. For a batch_invariant plan the splits do not
// depend on the number of tokens.
//
// A k block holds 32 k of the 128 rows of x, then of the 128 weight rows, in shared memory. A row
// of 64 bytes keeps its 16-byte vector c at c ^ (r / 2 & 3), a row of 128 bytes at c ^ 2 (r & 3),
// so the reads below have no bank conflicts. A pipeline stage is two k blocks of 16-bit types, else
// one. The pipeline has as many stages as shared memory holds, up to 6. For each stage:
//   1. wait for the stage's copies and synchronize; issue the copies into the stage that was
//      consumed last
//   2. MMA (parts.cuh) into an accumulator that starts at zero
//   3. add this accumulator to the warp's float32 sums: a tensor core truncates, so no accumulation
//      chain inside it is longer than a stage
// Rows of x that are not aligned to 16 bytes are copied value by value. Tokens, experts and k past
// the end are zero.
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
constexpr int32_t min_blocks = 132;  // one for each SM of a large device
constexpr int32_t max_parts = 8;
constexpr int32_t min_split_k = 128;  // k of one split
constexpr int32_t invariant_parts = 4;
constexpr int32_t max_stages = 6;

struct TiledInput {
    const void* x;
    int64_t x_stride;
    bool packets;  // rows of x are aligned to 16 bytes
    const void* weights;
    int32_t hidden;
    int32_t n_experts;
    int32_t n_parts;
    int32_t part_depth;  // k of one split, a multiple of 64
    int32_t n_stages;
    float* parts;
};

template <class Types>
struct Stages {
    static constexpr int32_t x_row = is_wide<Types::x_type> ? 128 : 64;
    static constexpr int32_t w_row = is_wide<Types::w_type> ? 128 : 64;
    static constexpr int32_t n_k_blocks = x_row + w_row == 128 ? 2 : 1;
    static constexpr int32_t depth = n_k_blocks * k_block_size;
    static constexpr int32_t x_bytes = tile * x_row;
    static constexpr int32_t k_block_bytes = x_bytes + tile * w_row;
    static constexpr int32_t bytes = n_k_blocks * k_block_bytes;
};

// ---- copies into shared memory

template <int32_t row_bytes>
__device__ int32_t swizzled_offset(int32_t row, int32_t vector) {
    return row * row_bytes + 16 * (vector ^ (row_bytes == 128 ? (row & 3) * 2 : row / 2 & 3));
}

// The copy of one operand for a stage covers rows first_row to first_row + 127 and columns k to
// end_k. Rows and columns past the end are zero and read nothing.
struct CopiedRows {
    const void* data;
    int64_t stride;
    int32_t first_row;
    int32_t end_row;
    int32_t k;
    int32_t end_k;
};

// The k blocks of a stage are k_block_bytes apart. Adjacent threads copy adjacent vectors of a row,
// so that the loads coalesce.
template <moe_type type, int32_t n_k_blocks, int32_t k_block_bytes>
__device__ void copy_rows(std::byte* to, const CopiedRows& rows) {
    constexpr int32_t row_bytes = is_wide<type> ? 128 : 64;
    constexpr int32_t vectors_per_row = row_bytes / 16;
    constexpr int32_t vectors = vectors_per_row * n_k_blocks;
    const int32_t vector = static_cast<int32_t>(threadIdx.x) % vectors;
    const int32_t k = rows.k + vector / vectors_per_row * k_block_size;
    std::byte* k_block = to + vector / vectors_per_row * k_block_bytes;
#pragma unroll
    for (int32_t i = 0; i < tile * vectors / n_threads; i++) {
        const int32_t row = static_cast<int32_t>(threadIdx.x) / vectors + n_threads / vectors * i;
        const bool present = k < rows.end_k && rows.first_row + row < rows.end_row;
        const int64_t from = present ? (rows.first_row + row) * rows.stride + k : 0;
        copy_async_16(k_block + swizzled_offset<row_bytes>(row, vector % vectors_per_row),
                      element_at(rows.data, type, from) + 16 * (vector % vectors_per_row), present);
    }
}

// This variant copies rows of any alignment.
template <moe_type type, int32_t n_k_blocks, int32_t k_block_bytes>
__device__ void copy_rows_singly(std::byte* to, const CopiedRows& rows) {
    using Value = std::conditional_t<is_wide<type>, uint32_t, uint16_t>;
    constexpr int32_t row_bytes = is_wide<type> ? 128 : 64;
    constexpr int32_t per_vector = 16 / sizeof(Value);
    constexpr int32_t depth = n_k_blocks * k_block_size;
#pragma unroll 4
    for (auto i = static_cast<int32_t>(threadIdx.x); i < tile * depth; i += n_threads) {
        const int32_t row = i / depth;
        const int32_t column = i % k_block_size;
        const int32_t k = rows.k + i % depth;
        const bool present = k < rows.end_k && rows.first_row + row < rows.end_row;
        std::byte* k_block = to + i % depth / k_block_size * k_block_bytes;
        const int32_t offset = swizzled_offset<row_bytes>(row, column / per_vector);
        reinterpret_cast<Value*>(k_block + offset)[column % per_vector] =
            present ? static_cast<const Value*>(rows.data)[(rows.first_row + row) * rows.stride + k]
                    : Value{0};
    }
}

struct TileCoord {
    int32_t first_token;
    int32_t end_token;
    int32_t first_expert;
    int32_t first_k;
    int32_t end_k;
};

// Commits one cp.async group, which is empty past the end of the split.
template <class Types>
__device__ void issue_stage(const TiledInput& in, const TileCoord& at, int32_t step,
                            std::byte* stage) {
    using S = Stages<Types>;
    const int32_t k = at.first_k + step * S::depth;
    if (k < at.end_k) {
        const CopiedRows x{in.x, in.x_stride, at.first_token, at.end_token, k, at.end_k};
        const CopiedRows w{in.weights, in.hidden, at.first_expert, in.n_experts, k, at.end_k};
        if (in.packets)
            copy_rows<Types::x_type, S::n_k_blocks, S::k_block_bytes>(stage, x);
        else
            copy_rows_singly<Types::x_type, S::n_k_blocks, S::k_block_bytes>(stage, x);
        copy_rows<Types::w_type, S::n_k_blocks, S::k_block_bytes>(stage + S::x_bytes, w);
    }
    commit_copies();
}

// ---- MMA

// Loads the float32 pairs of a row in the operand order of the MMA: columns 16 step + 2 t and 8
// further.
__device__ Parts<3> load_wide(const std::byte* rows, int32_t row, int32_t step) {
    const int32_t t = lane_index() % 4;
    uint32_t word[4];
#pragma unroll
    for (int32_t i = 0; i < 2; i++)
        load_words<2>(rows + swizzled_offset<128>(row, 4 * step + 2 * i + t / 2) + t % 2 * 8,
                      word + 2 * i);
    return split({__uint_as_float(word[0]), __uint_as_float(word[1])},
                 FloatPair{__uint_as_float(word[2]), __uint_as_float(word[3])});
}

// Loads four 8 x 8 matrices of 16-bit values. The lane gives the address of row lane % 8 of matrix
// lane / 8 and receives columns 2 t and 2 t + 1 of row g of each matrix.
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
__device__ TokenRows<parts_of<type, native>> load_tokens(const std::byte* rows, int32_t first_row,
                                                         int32_t step) {
    const int32_t lane = lane_index();
    if constexpr (is_wide<type>) {
        return {load_wide(rows, first_row + lane / 4, step),
                load_wide(rows, first_row + lane / 4 + 8, step)};
    } else {
        uint32_t word[4];
        load_matrices(rows + swizzled_offset<64>(first_row + lane % 16, 2 * step + lane / 16),
                      word);
        return {split<type, native>(word[0], word[2]), split<type, native>(word[1], word[3])};
    }
}

// Loads expert g of 8 for both steps.
template <moe_type type, bool native>
__device__ void load_experts(const std::byte* rows, int32_t first_row,
                             Parts<parts_of<type, native>> (&b)[2]) {
    const int32_t lane = lane_index();
    if constexpr (is_wide<type>) {
#pragma unroll
        for (int32_t step = 0; step < 2; step++)
            b[step] = load_wide(rows, first_row + lane / 4, step);
    } else {
        uint32_t word[4];
        load_matrices(rows + swizzled_offset<64>(first_row + lane % 8, lane / 8), word);
        b[0] = split<type, native>(word[0], word[1]);
        b[1] = split<type, native>(word[2], word[3]);
    }
}

constexpr int32_t m_tiles = warp_tokens / 16;
constexpr int32_t n_tiles = warp_experts / 8;
using Accumulators = float[m_tiles][n_tiles][4];

template <class Types>
__device__ void multiply_k_block(const std::byte* k_block, int32_t warp_row, int32_t warp_column,
                                 Accumulators& accum) {
    constexpr bool native = Types::native;
    Parts<parts_of<Types::w_type, native>> b[n_tiles][2];
#pragma unroll
    for (int32_t n = 0; n < n_tiles; n++)
        load_experts<Types::w_type, native>(k_block + Stages<Types>::x_bytes, warp_column + 8 * n,
                                            b[n]);
#pragma unroll
    for (int32_t step = 0; step < 2; step++) {
#pragma unroll
        for (int32_t m = 0; m < m_tiles; m++) {
            const auto a = load_tokens<Types::x_type, native>(k_block, warp_row + 16 * m, step);
#pragma unroll
            for (int32_t n = 0; n < n_tiles; n++)
                multiply_parts<Types::operand>(accum[m][n], a.low, a.high, b[n][step]);
        }
    }
}

template <class Types>
__device__ void multiply_stage(const std::byte* stage, int32_t warp_row, int32_t warp_column,
                               Accumulators& accum) {
    using S = Stages<Types>;
    Accumulators stage_accum = {};
#pragma unroll
    for (int32_t s = 0; s < S::n_k_blocks; s++)
        multiply_k_block<Types>(stage + s * S::k_block_bytes, warp_row, warp_column, stage_accum);
#pragma unroll
    for (int32_t m = 0; m < m_tiles; m++) {
#pragma unroll
        for (int32_t i = 0; i < n_tiles * 4; i++)
            accum[m][i / 4][i % 4] += stage_accum[m][i / 4][i % 4];
    }
}

__device__ void store_accum(const TiledInput& in, int64_t part_tokens, int32_t first_token,
                            int32_t n_tokens, int32_t first_expert, const Accumulators& accum) {
    const int32_t g = lane_index() / 4;
    const int32_t t = lane_index() % 4;
#pragma unroll
    for (int32_t i = 0; i < m_tiles * n_tiles * 4; i++) {
        const int32_t c = i % 4;
        const int32_t token = first_token + 16 * (i / 4 / n_tiles) + g + c / 2 * 8;
        const int32_t expert = first_expert + 8 * (i / 4 % n_tiles) + 2 * t + c % 2;
        if (token < n_tokens && expert < in.n_experts)
            in.parts[(part_tokens + token) * in.n_experts + expert] =
                accum[i / 4 / n_tiles][i / 4 % n_tiles][c];
    }
}

template <class Types>
__global__ void __launch_bounds__(n_threads, 1) tiled_logits(TiledInput in, TokenCount tokens) {
    using S = Stages<Types>;
    extern __shared__ __align__(128) std::byte shared[];
    begin_after_previous_kernel();
    const int32_t expert_tiles = (in.n_experts + tile - 1) / tile;
    const auto tile_index = static_cast<int32_t>(blockIdx.x) / expert_tiles;
    const int32_t part = tile_index % in.n_parts;
    const int32_t n_tokens = true_tokens(tokens);
    TileCoord at{};
    at.first_expert = static_cast<int32_t>(blockIdx.x) % expert_tiles * tile;
    at.first_token = tile_index / in.n_parts * tile;
    at.end_token = n_tokens;
    at.first_k = part * in.part_depth;
    at.end_k = min(at.first_k + in.part_depth, in.hidden);
    if (at.first_token >= n_tokens) return;

    const int32_t warp_row = warp_index() / 4 * warp_tokens;
    const int32_t warp_column = warp_index() % 4 * warp_experts;
    const bool has_work =
        at.first_token + warp_row < n_tokens && at.first_expert + warp_column < in.n_experts;
    const int32_t n_steps = (at.end_k - at.first_k + S::depth - 1) / S::depth;
    Accumulators accum = {};
    for (int32_t step = 0; step < in.n_stages - 1; step++)
        issue_stage<Types>(in, at, step, shared + step * S::bytes);
    int32_t own = 0;                 // the stage to consume
    int32_t free = in.n_stages - 1;  // the stage that was consumed last
#pragma unroll 1
    for (int32_t step = 0; step < n_steps; step++) {
        wait_copies(in.n_stages - 2);
        __syncthreads();
        issue_stage<Types>(in, at, step + in.n_stages - 1, shared + free * S::bytes);
        if (has_work) multiply_stage<Types>(shared + own * S::bytes, warp_row, warp_column, accum);
        free = own;
        own = own + 1 < in.n_stages ? own + 1 : 0;
    }
    store_accum(in, int64_t{part} * tokens.n, at.first_token + warp_row, n_tokens,
                at.first_expert + warp_column, accum);
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

int32_t stage_bytes(moe_type x, moe_type w) {
    return with_router_types(x, w, [](auto types) { return Stages<decltype(types)>::bytes; });
}

int32_t stages_of(const DeviceFacts& device, moe_type x, moe_type w) {
    return std::min(max_stages, device.shared_bytes / stage_bytes(x, w));
}

// Returns the k of one split when `wanted` splits are wanted.
int32_t depth_of_part(int32_t hidden, int64_t wanted) {
    const int64_t parts = std::clamp<int64_t>(hidden / min_split_k, 1, wanted);
    return static_cast<int32_t>(divided_up(divided_up(hidden, parts), 64) * 64);
}

int32_t part_depth(int64_t n_tokens, int32_t n_experts, int32_t hidden, bool batch_invariant) {
    if (batch_invariant) return depth_of_part(hidden, invariant_parts);
    const int64_t n_tiles = divided_up(n_tokens, tile) * divided_up(n_experts, tile);
    return depth_of_part(hidden, std::clamp<int64_t>(min_blocks / n_tiles, 1, max_parts));
}

}  // namespace

int64_t tiled_part_floats(int64_t n_tokens, const LogitsInput& input) {
    const int64_t n_logits = n_tokens * input.n_experts_all;
    if (input.batch_invariant) return invariant_parts * n_logits;
    // k is split only where the tiles number min_blocks at most.
    return std::min(max_parts * n_logits, std::max(n_logits, int64_t{min_blocks} * tile * tile));
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
           n_threads, n_stages * stage_bytes(p.x_type, p.weights_type), stream, input, tokens);
    return input.n_parts;
}

void prepare_tiled_logits(const DeviceFacts& device, moe_type x, moe_type weights) {
    load("tiled_logits", tiled_kernel(x, weights),
         stages_of(device, x, weights) * stage_bytes(x, weights));
}

}  // namespace moe::cuda
