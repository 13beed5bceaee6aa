// The mainloop of the portable grouped GEMM for tiles of up to 16 rows, where the time is that of
// reading weights. Every warp has a pipeline of its own for its packed tile, so that warps need not
// wait for each other, and all share the tokens of a chunk of k; a thread block meets once in a
// chunk.
//
// Shared memory (Sm80FewRowsStages): tokens of two chunks, each [k_blocks][rows][128 bytes]
// swizzled, then for each warp the stages of its packed tile. Output: the warp's accumulators.
//
// 1. Copy the first stages, which need no rows, and then the first chunk.
// 2. Per stage: wait for it, and copy the one that the free memory is for.
// 3. Where a chunk begins: meet, and copy the tokens of the next one.
// 4. Multiply the blocks of the stage (sm80_mainloop.cuh).
#pragma once

#include "libmoe/cuda/grouped_gemm/sm80_mainloop.cuh"

namespace moe::cuda {

template <PackedType kind, Operand operand, Sm80Form form, class Shape>
class Sm80FewRows {
  public:
    using Accumulators = float[1][2][4];  // of up to eight rows the first half

    // Copies the first stages of the warp's packed tile. The thread block is done with the memory.
    __device__ __forceinline__ Sm80FewRows(const Sm80Call& call, const Sm80Work& work,
                                           const Sm80Shared<Shape>& shared, std::byte* memory)
        : call_(call),
          work_(work),
          shared_(shared),
          chunks_(shared_address(memory)),
          ring_(memory + 2 * call.few_rows.token_bytes +
                lane_.warp * call.few_rows.of_warp.all_bytes),
          n_k_blocks_(call.gemm.weights.k / 64),
          shift_(work.tile.n_rows <= 8 ? 3 : 4),
          tile_(lane_.warp < work.n_tiles(call) ? work.weights(call, lane_.warp) + 16 * lane_.id
                                                : nullptr) {
        fetch_weights(0, 0);
        if (has_three()) fetch_weights(k_blocks, call.few_rows.of_warp.bytes);
    }

    // All threads of the block call it, when the rows are in shared memory.
    __device__ __forceinline__ void run(Accumulators& accum) const {
        const int token_bytes = call_.few_rows.token_bytes;
        const int ahead = call_.few_rows.of_warp.n - 1;  // stages that are on their way
        const int chunk = token_bytes >> (7 + shift_);   // k_blocks
        const int64_t row = shared_.rows.in[threadIdx.x / 8 & ((1 << shift_) - 1)];
        const std::byte* in =
            row < 0 ? nullptr : call_.gemm.in_bytes() + 2 * row + 16 * (threadIdx.x % 8);
        fetch_tokens(in, 0, chunk, 0);
        commit_copies();
        Kept kept;
        int stage = 0, empty = ahead * call_.few_rows.of_warp.bytes, tokens = token_bytes;
#pragma unroll 1
        for (int first = 0; first < n_k_blocks_; first += k_blocks) {
            const int in_chunk = first & (chunk - 1);
            if (has_three())
                wait_copies<1>();
            else
                wait_copies<0>();
            if (in_chunk == 0) {
                // Its tokens came with a stage that was copied while the chunk before began.
                if (first == 0 || chunk == k_blocks) wait_copies<0>();
                __syncthreads();
                tokens = token_bytes - tokens;
                fetch_tokens(in, first + chunk, chunk, token_bytes - tokens);
            } else {
                __syncwarp();
            }
            fetch_weights(first + ahead * k_blocks, empty);
            if (shift_ == 3)
                multiply<8>(accum, first, tokens, in_chunk, stage, kept);
            else
                multiply<16>(accum, first, tokens, in_chunk, stage, kept);
            empty = stage;
            stage = behind(stage);
        }
        mainloop<16>().finish(accum, kept);
    }

  private:
    static constexpr int k_blocks = sm80_few_k_blocks<kind>;
    static_assert(Shape::m_tiles == 1 && Shape::warps_n == 1 && Shape::few_rows == 16);
    template <int rows>
    using Mainloop = Sm80Mainloop<kind, operand, form, Shape, rows, k_blocks>;
    using Kept = typename Mainloop<8>::Kept;

    template <int rows>
    __device__ __forceinline__ Mainloop<rows> mainloop() const {
        return {call_, work_, call_.few_rows.of_warp, shared_.codebook, chunks_, ring_};
    }
    template <int rows>
    __device__ __forceinline__ void multiply(Accumulators& accum, int first, int tokens,
                                             int in_chunk, int stage, Kept& kept) const {
        const int n = tile_ ? min(k_blocks, n_k_blocks_ - first) : 0;
        mainloop<rows>().multiply_stage(
            accum, first, n, tokens + in_chunk * Mainloop<rows>::token_bytes, stage, kept);
    }

    // One of the warp's stages is multiplied, the other two are on their way, or the other one.
    __device__ __forceinline__ bool has_three() const {
        return call_.few_rows.of_warp.n == 3;
    }
    __device__ __forceinline__ int behind(int stage) const {
        const Sm80Stages& stages = call_.few_rows.of_warp;
        return stage + stages.bytes == stages.all_bytes ? 0 : stage + stages.bytes;
    }

    // Copies the stage of the warp that begins at k_block `first`, and commits; an empty group
    // where there is none.
    __device__ __forceinline__ void fetch_weights(int first, int stage) const {
        const Sm80TileCopy<kind, k_blocks> copy{call_.records, call_.few_rows.of_warp.tile_bytes};
        if (tile_ && first < n_k_blocks_)
            copy.run(tile_, first, min(k_blocks, n_k_blocks_ - first),
                     shared_address(ring_) + stage + 16 * lane_.id, lane_.id, true);
        commit_copies();
    }

    // Copies the tokens of a chunk from k_block `first` on, if there is one. in: the thread's
    // vector of a row in the first k_block; null: no such row, zeros are copied.
    __device__ __forceinline__ void fetch_tokens(const std::byte* in, int first, int chunk,
                                                 int to) const {
        const auto thread = static_cast<int>(threadIdx.x);
        const int n = min(chunk, n_k_blocks_ - first);
        if (!call_.copies) return convert(first, n, to);
        const int row = thread / 8 & ((1 << shift_) - 1);
        const uint32_t own = chunks_ + to + sm80_token_offset(row, thread % 8);
        const int vectors = in ? call_.in_vectors - 8 * first - thread % 8 : 0;
        in += 128 * first;
#pragma unroll 1
        for (int u = thread >> (3 + shift_); u < n; u += 32 >> shift_)
            copy_async_16(own + (u << (7 + shift_)), in + 128 * u, 8 * u < vectors);
    }
    __device__ __forceinline__ void convert(int first, int n, int to) const {
#pragma unroll 1
        for (int u = 0; u < n; ++u)
            convert_tokens<operand>(call_.gemm.in, shared_.rows.in, 64 * (first + u),
                                    4 * min(8, call_.in_vectors - 8 * (first + u)), 1 << shift_,
                                    chunks_ + to + (u << (7 + shift_)));
    }

    const Sm80Call& call_;
    const Sm80Work& work_;
    const Sm80Shared<Shape>& shared_;
    Sm80Lane lane_;
    uint32_t chunks_;  // shared address
    const std::byte* ring_;
    int n_k_blocks_;
    int shift_;              // log2 of the rows of tokens in shared memory
    const std::byte* tile_;  // the lane's first bytes of the warp's tile; null: it has none
};

}  // namespace moe::cuda
