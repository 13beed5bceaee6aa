// Fills the pipeline stages of the portable grouped GEMM: cp.async of tokens and of packed weights.
//
// A stage is k_blocks of tokens, [max_rows][128 bytes] swizzled, then eight packed tiles of
// staged_tile_bytes. A k_block is 64 columns; where the input has no more columns, tokens are
// zeros. Every thread copies the same vectors of tokens in every k_block, so it looks up its rows
// once; warps take packed tiles in turn.
#pragma once

#include "libmoe/cuda/device/cp_async.cuh"
#include "libmoe/cuda/device/operand.hpp"
#include "libmoe/cuda/device/shared_memory.cuh"
#include "libmoe/cuda/grouped_gemm/sm80_call.cuh"

namespace moe::cuda {

// Tokens of another type than the operands, or off 16 bytes: n_pairs pairs of columns from k0 on,
// the others of the k_block as zeros.
// Not inlined, because it is rare and would cost the others registers.
template <Operand operand>
__device__ __noinline__ void convert_tokens(DeviceRows in, const int64_t* offsets, int k0,
                                            int n_pairs, int n_rows, uint32_t to) {
    for (auto i = static_cast<int>(threadIdx.x); i < 32 * n_rows;
         i += static_cast<int>(blockDim.x)) {
        const int row = i / 32, pair = i % 32;
        FloatPair value = {0.0f, 0.0f};
        if (offsets[row] >= 0 && pair < n_pairs) {
            const int64_t at = offsets[row] + k0 + 2 * pair;
            value = {load_value(in.data, in.type, at), load_value(in.data, in.type, at + 1)};
        }
        store_shared(to + sm80_token_offset(row, pair / 4) + 4 * (pair % 4),
                     operand_pair<operand>(value));
    }
}

// rows: those that are copied, at least those of the tile.
template <PackedType kind, Operand operand, class Shape, int rows>
class Sm80Fetch {
  public:
    __device__ __forceinline__ Sm80Fetch(const Sm80Call& call, const Sm80Work& work,
                                         const Sm80Shared<Shape>& shared)
        : call_(call), work_(work), shared_(shared) {
        const Sm80Lane lane;
        tile_ = work.weights + lane.warp * call.tile_stride + 16 * lane.id;
    }

    __device__ __forceinline__ int n_k_blocks() const { return call_.gemm.weights.k / 64; }

    // Issues and commits the copies of the stage that begins at k_block `first`, into the stage at
    // shared address `to`; past the last k_block an empty group.
    __device__ __forceinline__ void issue(int first, uint32_t to) const {
        const int n = min(k_blocks, n_k_blocks() - first);
        if (n > 0) {
            if (call_.copies)
                fetch_tokens(first, n, to);
            else
                convert(first, n, to);
            fetch_weights(first, n, to + k_blocks * token_bytes);
        }
        commit_copies();
    }

    static constexpr int k_blocks = sm80_k_blocks<kind, Shape>;
    static constexpr int token_bytes = Shape::max_rows * sm80_row_bytes;

  private:
    static constexpr int threads = sm80_threads<Shape>;
    // A thread copies one vector of every rows_apart-th row, of one of the k_blocks of the stage.
    static constexpr int rows_apart = threads / 8 / k_blocks;
    static constexpr int vectors = (rows + rows_apart - 1) / rows_apart;
    static_assert(vectors * rows_apart <= Shape::max_rows);
    static constexpr int scale_offset = k_blocks * sm80_code_stride<kind>;
    static_assert(rows_apart % 8 == 0, "the swizzle is that of the first row");

    // Vectors of a k_block that the input has.
    __device__ __forceinline__ int vectors_of(int k_block) const {
        return min(8, (call_.gemm.in_columns - 64 * k_block) / 8);
    }

    __device__ __forceinline__ void convert(int first, int n, uint32_t to) const {
#pragma unroll 1
        for (int u = 0; u < n; ++u)
            convert_tokens<operand>(call_.gemm.in, shared_.rows.in, 64 * (first + u),
                                    4 * vectors_of(first + u), rows, to + u * token_bytes);
    }

    // Vectors that the input lacks become zeros.
    __device__ __forceinline__ void fetch_tokens(int first, int n, uint32_t to) const {
        const auto thread = static_cast<int>(threadIdx.x);
        const int column = thread % 8, row = thread / 8 % rows_apart;
        const int own = thread / 8 / rows_apart;  // k_block of the stage
        if (k_blocks > 1 && own >= n) return;
        const int k_block = first + own;
        const bool exists = column < vectors_of(k_block);
        const std::byte* in = call_.gemm.in_bytes() + 128 * k_block + 16 * column;
        const uint32_t first_to = to + own * token_bytes + sm80_token_offset(row, column);
        int64_t offset[vectors];
#pragma unroll
        for (int i = 0; i < vectors; ++i) offset[i] = shared_.rows.in[row + i * rows_apart];
#pragma unroll
        for (int i = 0; i < vectors; ++i) {
            const bool present = exists && offset[i] >= 0;
            const std::byte* from = present ? in + 2 * offset[i] : call_.gemm.in_bytes();
            copy_async_16(first_to + i * rows_apart * sm80_row_bytes, from, present);
        }
    }

    __device__ __forceinline__ void fetch_weights(int first, int n, uint32_t to) const {
        constexpr int warps = threads / 32;
        const Sm80Lane lane;
        const uint32_t to_lane = to + lane.warp * call_.staged_tile_bytes + 16 * lane.id;
#pragma unroll
        for (int i = 0; i < sm80_tiles_of_block / warps; ++i)
            if (lane.warp + i * warps < work_.n_tiles)
                fetch_tile(tile_ + i * warps * call_.tile_stride, first, n,
                           to_lane + i * warps * call_.staged_tile_bytes, lane.id);
    }

    // Copies `bytes` bytes; `from` and `to` are the lane's.
    template <int bytes>
    static __device__ __forceinline__ void copy(uint32_t to, const std::byte* from, int lane) {
#pragma unroll
        for (int i = 0; i < bytes; i += 32 * 16)
            if (i + 32 * 16 <= bytes || i + 16 * lane < bytes) copy_async_16(to + i, from + i);
    }

    // The same of a stage that is not full, once in k.
    static __device__ __forceinline__ void copy_rest(uint32_t to, const std::byte* from, int bytes,
                                                     int lane) {
#pragma unroll 1
        for (int i = 16 * lane; i < bytes; i += 32 * 16) {
            copy_async_16(to, from);
            to += 32 * 16;
            from += 32 * 16;
        }
    }

    // The blocks of n k_blocks follow each other in memory.
    __device__ __forceinline__ void fetch_tile(const std::byte* tile, int first, int n, uint32_t to,
                                               int lane) const {
        const PackedType type = type_of<kind>(call_.gemm.weights);
        const int k = call_.gemm.weights.k;
        const BlockOffset from = block_offset(type, k, int64_t{64} * first);
        if (n == k_blocks)
            copy<k_blocks * sm80_code_stride<kind>>(to, tile + from.codes, lane);
        else
            copy_rest(to, tile + from.codes, n * sm80_code_stride<kind>, lane);
        if constexpr (has_superblock(kind)) {
            copy<shared_scale_bytes(kind)>(to + scale_offset, tile + from.scales, lane);
        } else if constexpr (is_grid(kind)) {
            const auto begin = static_cast<int>(grid_record(type, 64 * first));
            const int end =
                static_cast<int>(grid_record(type, 64 * (first + n) - 1)) + grid_record_bytes(type);
            // `tile` and `to` are the lane's: 16 bytes apart, where records are copied by 8.
            const std::byte* records = tile - 16 * lane + begin;
            const uint32_t records_to = to - 16 * lane + scale_offset;
#pragma unroll 1  // most stages have few records
            for (int i = 8 * lane; i < end - begin; i += 8 * 32)
                copy_async_8(records_to + i, records + i);
        }
    }

    const Sm80Call& call_;
    const Sm80Work& work_;
    const Sm80Shared<Shape>& shared_;
    const std::byte* tile_;  // the lane's first bytes of the warp's first tile
};

}  // namespace moe::cuda
