// The pipeline of the portable grouped GEMM: Sm80Fetch fills a stage by cp.async of tokens and of
// packed weights, Sm80Pipeline has the stages of a work item in turn.
//
// A stage is k_blocks of tokens, [rows][128 bytes] swizzled, then eight packed tiles of
// Sm80Stages::tile_bytes. A k_block is 64 columns; where the input has no more columns, tokens are
// zeros. Every thread copies the same vectors of tokens in every k_block. Its rows lie together in
// a table in shared memory (Sm80TokenRows): in registers they would make the mainloop spill. Warps
// take packed tiles in turn.
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

// Where a stage has records that are copied apart, from its packed tile on.
__device__ __forceinline__ int sm80_records_apart(const GridRecords& grid, int tile_bytes) {
    return tile_bytes - grid.align_up(grid.front_bytes) - 16;
}

// Copies n blocks of 64 k of a packed tile, which follow each other in memory, into a stage of
// k_blocks, by a warp.
template <PackedType kind, int k_blocks>
struct Sm80TileCopy {
    const GridRecords& records;
    int32_t tile_bytes;  // of a packed tile in the stage

    // `tile` and `to` are the lane's. exists: else nothing is copied.
    __device__ __forceinline__ void run(const std::byte* tile, int first, int n, uint32_t to,
                                        int lane, bool exists) const {
        if constexpr (is_grid(kind)) {
            fetch_grid(tile, first, n, to, lane, exists);
        } else {
            const BlockOffset from = block_offset(kind, int64_t{64} * first);
            if constexpr (has_superblock(kind))
                copy<shared_scale_bytes(kind)>(to + sm80_scale_offset<kind, k_blocks>,
                                               tile + from.scales, lane, exists);
            if (k_blocks == 1 || n == k_blocks)
                copy<k_blocks * sm80_code_stride<kind>>(to, tile + from.codes, lane, exists);
            else
                copy_rest(to, tile + from.codes, n * sm80_code_stride<kind>, lane, exists);
        }
    }

  private:
    // Copies `bytes` bytes; `from` and `to` are the lane's.
    template <int bytes>
    static __device__ __forceinline__ void copy(uint32_t to, const std::byte* from, int lane,
                                                bool exists) {
#pragma unroll
        for (int i = 0; i < bytes; i += 32 * 16)
            copy_async_16_if(exists && (i + 32 * 16 <= bytes || i + 16 * lane < bytes), to + i,
                             from + i);
    }

    // The same for any number of bytes.
    static __device__ __forceinline__ void copy_rest(uint32_t to, const std::byte* from, int bytes,
                                                     int lane, bool exists) {
        if (!exists) return;
#pragma unroll 1
        for (int i = 16 * lane; i < bytes; i += 32 * 16) {
            copy_async_16(to, from);
            to += 32 * 16;
            from += 32 * 16;
        }
    }

    // Copies the bytes of n blocks of a grid, and the records of a unit that began before them.
    __device__ __forceinline__ void fetch_grid(const std::byte* tile, int first, int n, uint32_t to,
                                               int lane, bool exists) const {
        const GridRecords& grid = records;
        const int begin = grid.align_down(grid.begin(first));
        int bytes = grid.align_up(grid.end(first, n)) - begin;
        if constexpr (sm80_copies_records_apart<kind>(2)) {
            if (!grid.begins_unit(first)) {
                const int begin_of_unit = grid.align_down(grid.records(first));
                const int n_bytes =
                    grid.align_up(grid.records(first) + grid.front_bytes) - begin_of_unit;
                copy_async_16_if(exists && 16 * lane < n_bytes,
                                 to + sm80_records_apart(grid, tile_bytes), tile + begin_of_unit);
            }
        }
        tile += begin;
        if (k_blocks == 1 || n == k_blocks) {
            constexpr int whole = k_blocks * sm80_code_stride<kind> / 512 * 512;
            copy<whole>(to, tile, lane, exists);
            tile += whole;
            to += whole;
            bytes -= whole;
            copy_async_16_if(exists && 16 * lane < bytes, to, tile);
            if (bytes <= 512) return;
            tile += 512;
            to += 512;
            bytes -= 512;
        }
        copy_rest(to, tile, bytes, lane, exists);
    }
};

template <PackedType kind, Operand operand, class Shape, int width>
class Sm80Fetch {
  public:
    static constexpr int rows = sm80_rows_of_width<Shape>(width);  // at least those of the tile
    static constexpr int k_blocks = sm80_k_blocks<kind, Shape, width>;
    static constexpr int token_bytes = rows * sm80_row_bytes;
    using TokenRows = Sm80TokenRows<Shape, k_blocks>;

    __device__ __forceinline__ Sm80Fetch(const Sm80Call& call, const Sm80Work& work,
                                         const Sm80Shared<Shape>& shared)
        : call_(call),
          shared_(shared),
          n_tiles_(work.n_tiles(call)),
          columns_(call.in_vectors - 8 * own() - column()),
          tokens_to_(own() * token_bytes + sm80_token_offset(row(), column())) {
        const Sm80Lane lane;
        tile_ = work.weights(call, lane.warp) + 16 * lane.id;
        tokens_ = call.gemm.in_bytes() + 128 * own() + 16 * column();
        hold(tile_);
        hold(tokens_);
        if constexpr (Shape::ahead == 0) {  // wide tiles have no registers for more
            compute_now(columns_);
            compute_now(tokens_to_);
        }
    }

    __device__ __forceinline__ int n_k_blocks() const { return call_.gemm.weights.k / 64; }

    // Issues and commits the copies of the stage that begins at k_block `first`, into the stage at
    // shared address `to`; past the last k_block an empty group.
    __device__ __forceinline__ void issue(int first, uint32_t to) const {
        const int n = min(k_blocks, n_k_blocks() - first);
        if (n > 0) {
            if (call_.copies)
                fetch_tokens(first, to);
            else
                convert(first, n, to);
            fetch_weights(first, n, to + k_blocks * token_bytes);
        }
        commit_copies();
    }

  private:
    static constexpr int threads = sm80_threads<Shape>;
    static constexpr int rows_apart = TokenRows::apart;
    static constexpr int vectors = (rows + rows_apart - 1) / rows_apart;
    static_assert(vectors <= TokenRows::of_thread);
    static_assert(rows_apart % 8 == 0, "the swizzle is that of the first row");

    // The thread's vector of every row that it copies, its first row, and its k_block of the stage.
    static __device__ __forceinline__ int column() { return static_cast<int>(threadIdx.x % 8); }
    static __device__ __forceinline__ int row() {
        return static_cast<int>(threadIdx.x / 8 % rows_apart);
    }
    static __device__ __forceinline__ int own() {
        return k_blocks == 1 ? 0 : static_cast<int>(threadIdx.x / 8 / rows_apart);
    }

    // Keeps the compiler from computing an address anew from its parts for every copy.
    static __device__ __forceinline__ void hold(const std::byte*& address) {
        asm volatile("" : "+l"(address));
    }

    __device__ __forceinline__ void convert(int first, int n, uint32_t to) const {
#pragma unroll 1
        for (int u = 0; u < n; ++u)
            convert_tokens<operand>(call_.gemm.in, shared_.rows.in, 64 * (first + u),
                                    4 * min(8, call_.in_vectors - 8 * (first + u)), rows,
                                    to + u * token_bytes);
    }

    // Vectors that the input lacks become zeros, also those of blocks that the stage lacks.
    __device__ __forceinline__ void fetch_tokens(int first, uint32_t to) const {
        const bool exists = 8 * first < columns_;
        to += tokens_to_;
        const std::byte* in = tokens_ + 128 * first;
        hold(in);
        uint32_t from[vectors];
        TokenRows::load(shared_.token_rows, row(), from);
#pragma unroll
        for (int i = 0; i < vectors; ++i) {
            if (rows % rows_apart != 0 && row() + i * rows_apart >= rows) return;
            copy_async_16(to + i * rows_apart * sm80_row_bytes, in + uint64_t{16} * from[i],
                          exists && from[i] != TokenRows::absent);
        }
    }

    __device__ __forceinline__ void fetch_weights(int first, int n, uint32_t to) const {
        constexpr int warps = threads / 32;
        const Sm80Lane lane;
        const int32_t tile_bytes = call_.stages[width].tile_bytes;
        const Sm80TileCopy<kind, k_blocks> copy{call_.records, tile_bytes};
        const uint32_t to_lane = to + lane.warp * tile_bytes + 16 * lane.id;
#pragma unroll
        for (int i = 0; i < sm80_tiles_of_block / warps; ++i)
            copy.run(tile_ + i * warps * call_.tile_stride, first, n,
                     to_lane + i * warps * tile_bytes, lane.id, lane.warp + i * warps < n_tiles_);
    }

    const Sm80Call& call_;
    const Sm80Shared<Shape>& shared_;
    int n_tiles_;
    int columns_;              // vectors of a row, from the thread's first one on
    int tokens_to_;            // where that of its first row goes in a stage
    const std::byte* tile_;    // the lane's first bytes of the warp's first tile
    const std::byte* tokens_;  // the thread's first vector of a row
};

// The stages of a work item in turn. A thread block has n_stages - 1 of them on their way while it
// multiplies one.
template <class Fetch>
class Sm80Pipeline {
  public:
    // The stages at shared address `base`. `stages` is a parameter of the kernel: what is read from
    // there takes no registers.
    __device__ __forceinline__ Sm80Pipeline(const Fetch& fetch, uint32_t base,
                                            const Sm80Stages& stages)
        : fetch_(fetch), base_(base), stages_(stages) {}

    __device__ __forceinline__ int n_k_blocks() const { return fetch_.n_k_blocks(); }
    // Turns begin with this k_block. Those before 0 fill the stages; then the first is full.
    __device__ __forceinline__ int fill() const { return -stages_.n * Fetch::k_blocks; }

    // Where the stage lies, from the first one on, and the one behind it.
    __device__ __forceinline__ int stage() const { return stage_; }
    __device__ __forceinline__ int next() const {
        return stage_ + stages_.bytes == stages_.all_bytes ? 0 : stage_ + stages_.bytes;
    }

    // All of the block call it when they have read their stage, which begins at k_block `first`: it
    // is filled again. Returns when the next one is full.
    __device__ __forceinline__ void turn(int first) {
        wait(stages_.n - 2);
        fetch_.issue(first + stages_.n * Fetch::k_blocks, base_ + stage_);
        stage_ = next();
    }

  private:
    // For at most this many stages to be on their way. Where there are few, so are the cases: each
    // is instructions in the mainloop.
    __device__ __forceinline__ void wait(int pending) const {
        static_assert(sm80_max_stages == 4);
        if (pending == 1)
            wait_copies<1>();
        else if (pending == 0)
            wait_copies<0>();
        else
            wait_copies<2>();
        __syncthreads();
    }

    const Fetch& fetch_;
    uint32_t base_;
    const Sm80Stages& stages_;
    int stage_ = 0;
};

}  // namespace moe::cuda
