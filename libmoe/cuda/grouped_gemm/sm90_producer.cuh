// Producer warps of the sm90 grouped GEMM (steps 1 and 2 of sm90_grouped_gemm.cuh): they schedule
// work items and copy weights and tokens into the pipeline.
//
// Inputs: tiles, packed weights and token blocks in global memory. Output: filled pipeline stages;
// a work tile without rows ends the work. Precondition: one warp runs Producer, and token_threads
// threads run TokenProducer if the input is indexed.
//
// 1. Take a work item and divide it into work tiles.
// 2. Per stage: wait for its empty barrier, then issue copies that complete its full barrier.
// 3. Indexed inputs: pass each work tile to TokenProducer, which gathers token rows with cp.async.
#pragma once

#include "libmoe/cuda/device/bulk_copy.cuh"
#include "libmoe/cuda/device/cp_async.cuh"
#include "libmoe/cuda/device/dependent_launch.cuh"
#include "libmoe/cuda/device/memory.cuh"
#include "libmoe/cuda/device/warp.cuh"
#include "libmoe/cuda/grouped_gemm/sm90_instances.hpp"
#include "libmoe/cuda/grouped_gemm/sm90_packed_tile.cuh"
#include "libmoe/cuda/grouped_gemm/sm90_pipeline.cuh"

namespace moe::cuda {

// Order of the work items of a launch. In a group of eight tiles, the tiles of the same weight rows
// follow each other, so that blocks that run at the same time share weights and tokens in L2.
struct WorkItems {
    int32_t first_tile, n_tiles;
    int32_t n_row_blocks;

    // An item has blocks_of_item row blocks of 8 packed tiles.
    __device__ WorkItems(const GemmArgs& gemm, TilePart part, int32_t blocks_of_item)
        : first_tile(part == TilePart::small ? gemm.n_tiles->large : 0),
          n_tiles((part == TilePart::large ? gemm.n_tiles->large : gemm.n_tiles->all) - first_tile),
          n_row_blocks((gemm.weights.n_tiles + 8 * blocks_of_item - 1) / (8 * blocks_of_item)) {}

    __device__ int32_t size() const { return n_tiles * n_row_blocks; }

    struct Coordinates {
        int32_t tile, row_block;
    };
    __device__ Coordinates at(int32_t item) const {
        const int32_t first = item / (8 * n_row_blocks) * 8;
        const int32_t in_group = item - first * n_row_blocks;
        const int32_t n = min(8, n_tiles - first);
        return {first_tile + first + in_group % n, in_group / n};
    }
};

__device__ __forceinline__ Tile load_tile(const Tile* tiles, int32_t index) {
    const uint4 words = load_global_16(tiles + index);
    return {static_cast<int32_t>(words.x), static_cast<int32_t>(words.y),
            static_cast<int32_t>(words.z)};
}

// The tile scheduler, run by a whole warp.
struct TileScheduler {
    const GemmArgs& gemm;
    WorkItems list;
    int32_t* tile_counter;
    int32_t item;

    __device__ TileScheduler(const GemmArgs& gemm_, TilePart part, int32_t blocks_of_item = 1)
        : gemm(gemm_),
          list(gemm_, part, blocks_of_item),
          tile_counter(gemm_.tile_counter + (part == TilePart::small ? 1 : 0)),
          item(static_cast<int32_t>(blockIdx.x)) {}

    __device__ bool done() const { return item >= list.size(); }

    __device__ WorkTile current_tile() const {
        const WorkItems::Coordinates at = list.at(item);
        const Tile tile = load_tile(gemm.tiles, at.tile);
        return {tile.expert, tile.row, tile.n_rows, at.row_block, 0};
    }

    __device__ void next(uint32_t lane) {
        int32_t previous = 0;
        if (lane == 0) previous = atomicAdd(tile_counter, 1);
        item = static_cast<int32_t>(gridDim.x) + __shfl_sync(0xFFFFFFFFu, previous, 0);
    }
};

// Fills one stage with n blocks from `block`, by a whole warp. A lane copies one packed tile, and
// the tokens of one block unless the input is indexed. Weights of 16 bits come by many copies of
// 2 KB, which the elected lane issues.
template <PackedType type>
struct StageCopy {
    static constexpr bool by_one_lane = code_bits(type) == 16;

    uint32_t lane, width, n_weight_tiles, token_bytes;
    PackedTile<type> tile;    // this lane's, or by_one_lane the first
    uint32_t tile_stride;     // to the next
    const std::byte* tokens;  // rows of the work tile in block column 0
    int64_t column_bytes;
    const float* codebook;

    __device__ StageCopy(const Sm90Call& gemm, const WorkTile& work_tile, uint32_t lane_,
                         uint32_t width_)
        : lane(lane_),
          width(width_),
          n_weight_tiles(
              static_cast<uint32_t>(min(8, gemm.weights.n_tiles - first_tile(work_tile)))),
          token_bytes(gemm.in.index ? 0 : round_up(work_tile.n_rows, 8) * 128),
          tile(gemm, work_tile.expert,
               first_tile(work_tile) + (by_one_lane ? 0 : static_cast<int32_t>(lane_))),
          tile_stride(tile.stride(gemm)),
          tokens(gemm.in_bytes() + int64_t(work_tile.row) * 128),
          column_bytes(int64_t(gemm.in_capacity) * 128),
          codebook(gemm.weights.codebook + int64_t(work_tile.expert) * 64) {}

    // The stage is laid out for per_stage blocks; n may be less at the end of k.
    template <class Pipeline>
    __device__ void load_weights(const Pipeline& pipeline, uint32_t block, uint32_t n,
                                 uint32_t per_stage) const {
        const uint32_t full = pipeline.full();
        const uint32_t tile_bytes = tile.bytes(block, n);
        if constexpr (by_one_lane) {
            if (!elect_lane()) return;
            mbarrier_expect(full, n_weight_tiles * tile_bytes + n * token_bytes);
            static_assert(line_mask(type, 1) == 0);
            copy_tiles(n_weight_tiles, pipeline.data() + per_stage * width * 128,
                       tile.data + tile.begin(block), tile_stride, tile_bytes, full,
                       [&](const std::byte*) { return staged_tile_room(type, per_stage); });
        } else {
            const bool copies_codebook = has_codebook(type) && block == 0;
            if (lane == 0)
                mbarrier_expect(full, n_weight_tiles * tile_bytes + n * token_bytes +
                                          (copies_codebook ? raw_codebook_bytes<type> : 0));
            __syncwarp();
            if (lane < n_weight_tiles) {
                const uint32_t to = pipeline.data() + per_stage * width * 128 +
                                    lane * staged_tile_room(type, per_stage) +
                                    tile.in_room(block, per_stage);
                copy_tile(to, block, n, per_stage, tile_bytes, full);
            } else if (copies_codebook && lane == tiles_per_block) {
                bulk_load(pipeline.header() + work_tile_bytes, codebook, raw_codebook_bytes<type>,
                          full);
            }
        }
    }

    // Superblock scales lie behind the codes of all of the stage, records of a grid where they lie
    // in memory.
    __device__ __forceinline__ void copy_tile(uint32_t to, uint32_t block, uint32_t n,
                                              uint32_t per_stage, uint32_t tile_bytes,
                                              uint32_t full) const {
        const std::byte* from = tile.data + tile.begin(block);
        if constexpr (has_superblock(type)) {
            constexpr uint32_t block_bytes = staged_block_bytes(type);
            if (per_stage < 4) {
                bulk_load_once(to, from, n * block_bytes, full);
                bulk_load_once(to + per_stage * block_bytes, from + tile.superblock_scales(block),
                               superblock_scale_bytes(type), full);
                return;
            }
        }
        bulk_load_once(to, from, tile_bytes, full);
    }

    template <class Pipeline>
    __device__ void load_tokens(const Pipeline& pipeline, uint32_t block, uint32_t n) const {
        if (token_bytes == 0) return;
        const auto copy_block = [&](uint32_t i) {
            bulk_load(pipeline.data() + i * width * 128, tokens + (block + i) * column_bytes,
                      token_bytes, pipeline.full());
        };
        if constexpr (by_one_lane) {
            if (!elect_lane()) return;
            for (uint32_t i = 0; i < n; ++i) copy_block(i);
        } else {
            if (lane < n) copy_block(lane);
        }
    }

  private:
    static __device__ int32_t first_tile(const WorkTile& work_tile) {
        return work_tile.row_block * static_cast<int32_t>(tiles_per_block);
    }
};

// Calls load(pipeline, block, n) for at most max_stages stages of a work tile from `block` on.
// Returns the next block.
template <class Pipeline, class Load>
__device__ __forceinline__ uint32_t each_stage(const GemmArgs& gemm, Pipeline& pipeline,
                                               uint32_t block, uint32_t per_stage,
                                               uint32_t max_stages, Load load) {
    const uint32_t n_blocks = static_cast<uint32_t>(gemm.weights.k) / 64;
    for (uint32_t i = 0; i < max_stages && block < n_blocks; ++i, block += per_stage) {
        load(pipeline, block, min(per_stage, n_blocks - block));
        pipeline.advance();
    }
    return block;
}

// Passes work tiles from the producer to the token producer warps. It is a queue of two entries,
// each with a full and an empty barrier.
struct WorkTileQueue {
    uint32_t entries;
    uint32_t index = 0;
    uint32_t phase = 0;

    __device__ uint32_t entry() const { return entries + index * (work_tile_bytes + 16); }
    __device__ uint32_t full() const { return entry() + work_tile_bytes; }
    __device__ uint32_t empty() const { return full() + 8; }

    // One thread of the block calls it.
    __device__ void init() const {
        for (WorkTileQueue each = *this; each.phase == 0; each.advance()) {
            mbarrier_init(each.full(), 1);
            mbarrier_init(each.empty(), token_threads / 32);
        }
    }
    __device__ void push(const WorkTile& work_tile, uint32_t lane) {
        mbarrier_wait(empty(), phase ^ 1);
        if (lane == 0) {
            store_work_tile(entry(), work_tile);
            mbarrier_arrive(full());
        }
        __syncwarp();
        advance();
    }
    __device__ WorkTile pop(uint32_t lane) {
        mbarrier_wait(full(), phase);
        const WorkTile work_tile = load_work_tile(entry());
        __syncwarp();
        if (lane == 0) mbarrier_arrive(empty());
        advance();
        return work_tile;
    }

  private:
    __device__ void advance() {
        index ^= 1;
        if (index == 0) phase ^= 1;
    }
};

template <PackedType type, class Shape>
struct Producer {
    using Pipeline = moe::cuda::Pipeline<type, Shape>;

    const Sm90Call& gemm;
    Pipeline pipeline;
    WorkTileQueue queue;
    uint32_t lane;
    bool waits;  // for the preceding kernel (PDL), after the first weight copies are issued

    __device__ void wait() {
        waits = false;
        wait_for_previous_kernel();
        let_next_kernel_start();
    }

    __device__ void copy_work_tile(const WorkTile& work_tile) {
        const StageCopy<type> copy(gemm, work_tile, lane, static_cast<uint32_t>(work_tile.width));
        const uint32_t per_stage = pipeline.blocks_of(work_tile.width);
        const auto load_weights = [&](const Pipeline& at, uint32_t block, uint32_t n) {
            mbarrier_wait(at.empty(), at.phase);
            if (block == 0 && (StageCopy<type>::by_one_lane ? elect_lane() : lane == 0))
                store_work_tile(at.header(), work_tile);
            copy.load_weights(at, block, n, per_stage);
        };
        if (gemm.gate_values) prefetch_gates(work_tile);
        uint32_t block = 0;
        if (waits) {
            Pipeline ahead = pipeline;
            const uint32_t n_early = pipeline.count();
            each_stage(gemm, ahead, 0, per_stage, n_early, load_weights);
            wait();
            block = each_stage(gemm, pipeline, 0, per_stage, n_early,
                               [&](const Pipeline& at, uint32_t from, uint32_t n) {
                                   copy.load_tokens(at, from, n);
                               });
        }
        each_stage(gemm, pipeline, block, per_stage, UINT32_MAX,
                   [&](const Pipeline& at, uint32_t from, uint32_t n) {
                       load_weights(at, from, n);
                       copy.load_tokens(at, from, n);
                   });
    }

    // The epilogue waits for the gate's values with nothing else to do; so they come to L2 before.
    __device__ void prefetch_gates(const WorkTile& work_tile) const {
        const int32_t first = 128 * work_tile.row_block;
        const int32_t n = min(16 * gemm.weights.n_tiles - first, 128);
        const float* from = gemm.gate_values + work_tile.row * gemm.gate_stride + first;
        for (auto row = static_cast<int32_t>(lane); row < work_tile.n_rows; row += 32)
            bulk_prefetch(from + row * gemm.gate_stride, static_cast<uint32_t>(4 * n));
    }

    // Divides a tile into work tiles of most_rows.
    __device__ void copy_tile(WorkTile tile) {
        while (tile.n_rows > 0) {
            WorkTile work_tile = tile;
            work_tile.n_rows = min(tile.n_rows, Shape::most_rows);
            work_tile.width = Shape::width_of(work_tile.n_rows, gemm.batch_invariant);
            if (gemm.in.index) queue.push(work_tile, lane);
            copy_work_tile(work_tile);
            tile.row += Shape::most_rows;
            tile.n_rows -= Shape::most_rows;
        }
    }

    __device__ void run(TilePart part) {
        pipeline.phase = 1;  // the pipeline begins empty
        if (gemm.tiles_are_new && waits) wait();
        for (TileScheduler scheduler(gemm, part); !scheduler.done(); scheduler.next(lane))
            copy_tile(scheduler.current_tile());
        if (waits) wait();
        if (gemm.in.index) queue.push({}, lane);
        mbarrier_wait(pipeline.empty(), pipeline.phase);
        if (lane != 0) return;
        store_work_tile(pipeline.header(), {});
        mbarrier_arrive(pipeline.full());
    }
};

// Gathers the tokens of an indexed input: three warps, eight lanes per row, 128 bytes per row and
// block. A row of the stage swizzles by its own number, a row of the input by the token's.
template <PackedType type, class Shape>
struct TokenProducer {
    using Pipeline = moe::cuda::Pipeline<type, Shape>;
    static constexpr int32_t rows_at_once = token_threads / 8;
    static constexpr int rounds = (Shape::most_rows + rows_at_once - 1) / rows_at_once;
    static constexpr int rounds_of_turn = 4;  // a tile of few rows ends after the first turns

    const GemmArgs& gemm;
    Pipeline pipeline;
    WorkTileQueue queue;
    uint32_t lane;
    int32_t row;      // row of the work tile in round 0
    uint32_t vector;  // swizzled 16-byte vector of the row that this lane stores

    __device__ TokenProducer(const GemmArgs& gemm_, const Pipeline& pipeline_,
                             const WorkTileQueue& queue_, uint32_t thread)
        : gemm(gemm_),
          pipeline(pipeline_),
          queue(queue_),
          lane(thread % 32),
          row(static_cast<int32_t>(thread / 8)),
          vector(thread % 8) {}

    // Byte offsets of this lane's source vectors in a block column. Padding rows copy the last
    // token; its results are never stored.
    __device__ __forceinline__ void find_rows(const WorkTile& work_tile,
                                              uint32_t (&from)[rounds]) const {
        const int32_t last = work_tile.n_rows - 1;
#pragma unroll
        for (int i = 0; i < rounds; ++i) {
            const int32_t r = row + i * rows_at_once;
            from[i] = static_cast<uint32_t>(gemm.in.index[work_tile.row + min(r, last)]);
        }
#pragma unroll
        for (int i = 0; i < rounds; ++i) {
            const auto r = static_cast<uint32_t>(row + i * rows_at_once);
            const uint32_t token = from[i] / static_cast<uint32_t>(gemm.in.divisor);
            from[i] = token * 128 + (((vector ^ r ^ token) & 7) << 4);
        }
    }

    // Copies one block of 64 k from its input column to the rows of a stage. Everything invariant
    // is in registers beforehand: between two copies stand four instructions and no load.
    __device__ __forceinline__ void copy_block(const std::byte* column, uint32_t to, int32_t n_rows,
                                               const uint32_t (&from)[rounds]) const {
        compute_now(column);
        to += row * 128 + (vector << 4);
        compute_now(to);
        int32_t left = n_rows - row;
        compute_now(left);
#pragma unroll
        for (int first = 0; first < rounds; first += rounds_of_turn) {
            if (n_rows <= first * rows_at_once) break;
#pragma unroll
            for (int i = first; i < first + rounds_of_turn && i < rounds; ++i) {
                const int r = i * rows_at_once;
                if (left > r) copy_async_16(to + r * 128, column + from[i]);
            }
        }
    }

    __device__ void copy_work_tile(const WorkTile& work_tile) {
        uint32_t from[rounds];
        find_rows(work_tile, from);
        const auto n_rows = static_cast<int32_t>(round_up(work_tile.n_rows, 8));
        const uint32_t per_stage = pipeline.blocks_of(work_tile.width);
        const int64_t column_bytes = int64_t(gemm.in_capacity) * 128;
        each_stage(gemm, pipeline, 0, per_stage, UINT32_MAX,
                   [&](const Pipeline& at, uint32_t block, uint32_t n) {
                       mbarrier_wait(at.empty(), at.phase);
                       for (uint32_t b = 0; b < n; ++b)
                           copy_block(gemm.in_bytes() + (block + b) * column_bytes,
                                      at.data() + b * work_tile.width * 128, n_rows, from);
                       arrive_after_copies(at.full());
                   });
    }

    __device__ void run(bool waits) {
        pipeline.phase = 1;
        if (waits) wait_for_previous_kernel();
        for (WorkTile work_tile = queue.pop(lane); work_tile.n_rows > 0;
             work_tile = queue.pop(lane))
            copy_work_tile(work_tile);
        mbarrier_wait(pipeline.empty(), pipeline.phase);
        mbarrier_arrive(pipeline.full());
    }
};

}  // namespace moe::cuda
