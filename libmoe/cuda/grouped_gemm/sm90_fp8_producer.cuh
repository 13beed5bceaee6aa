// Producer warps of the sm90 grouped GEMM of E4M3 (steps 1 and 2 of sm90_fp8_grouped_gemm.cuh).
//
// Inputs: tiles, packed weights and token blocks in global memory. Output: filled pipeline stages;
// a work tile without rows ends the work. Precondition: one warp runs Fp8Producer, and
// token_threads threads run Fp8TokenProducer if the input is indexed.
#pragma once

#include "libmoe/cuda/grouped_gemm/sm90_fp8_tile_shape.cuh"
#include "libmoe/cuda/grouped_gemm/sm90_producer.cuh"

namespace moe::cuda {

// Fills one stage by the elected lane of a whole warp: the packed tiles, and the tokens and their
// scales unless the input is indexed.
template <PackedType type, class Shape>
struct Fp8StageCopy {
    using Pipeline = Fp8Pipeline<type, Shape>;
    using Shared = Fp8Shared<type, Shape>;

    const Sm90Call& gemm;
    uint32_t n_weight_tiles, n_rows;   // n_rows 0: the tokens come otherwise
    PackedTile<type> tile;             // the first
    const std::byte *tokens, *scales;  // in block 0

    __device__ Fp8StageCopy(const Sm90Call& gemm_, const WorkTile& work_tile)
        : gemm(gemm_),
          n_weight_tiles(static_cast<uint32_t>(min(static_cast<int32_t>(Shape::packed_tiles),
                                                   gemm_.weights.n_tiles - first_tile(work_tile)))),
          n_rows(gemm_.in.index ? 0 : round_up(static_cast<uint32_t>(work_tile.n_rows), 8)),
          tile(gemm_, work_tile.expert, first_tile(work_tile)),
          tokens(gemm_.in_bytes() + int64_t{work_tile.row} * fp8_block_columns),
          scales(fp8_scales(gemm_.in_bytes(), gemm_.weights.k, gemm_.in_capacity) +
                 int64_t{4} * work_tile.row) {}

    // The first block of a work tile brings this along.
    __device__ __forceinline__ void load_weights(const Pipeline& at, uint32_t block,
                                                 const WorkTile& work_tile) const {
        const uint32_t n_blocks = min(2u, weight_blocks(gemm) - 2 * block);
        const uint32_t bytes = tile.bytes(2 * block, n_blocks), stride = tile.stride(gemm);
        if (!elect_lane()) return;
        if (block == 0) store_work_tile(at.header(), work_tile);
        mbarrier_expect(at.full(), n_weight_tiles * bytes + n_rows * (fp8_block_columns + 4));
        const std::byte* first = tile.data + tile.begin(2 * block);
        const auto in_line = [](const std::byte* from) {
            return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(from)) & line_mask(type, 2);
        };
        copy_tiles(n_weight_tiles, at.data() + Shared::tiles + in_line(first), first, stride, bytes,
                   at.full(), [&](const std::byte* from) {
                       if constexpr (tokens_as_a<Shape>) return even_tile_step(type, stride);
                       return Shared::tile_bytes + in_line(from + stride) - in_line(from);
                   });
    }
    __device__ __forceinline__ void load_tokens(const Pipeline& at, uint32_t block) const {
        if (n_rows == 0 || !elect_lane()) return;
        const int64_t first = int64_t{gemm.in_capacity} * block;
        bulk_load(at.data(), tokens + first * fp8_block_columns, n_rows * fp8_block_columns,
                  at.full());
        bulk_load(at.data() + Shared::token_scales, scales + first * 4, 4 * n_rows, at.full());
    }

  private:
    static __device__ int32_t first_tile(const WorkTile& work_tile) {
        return work_tile.row_block * static_cast<int32_t>(tiles_per_block);
    }
};

template <PackedType type, class Shape>
struct Fp8Producer {
    const Sm90Call& gemm;
    Fp8Pipeline<type, Shape> pipeline;
    WorkTileQueue queue;
    uint32_t lane;
    bool waits = true;  // for the preceding kernel (PDL), after the first weight copies are issued

    __device__ void wait() {
        waits = false;
        wait_for_previous_kernel();
        let_next_kernel_start();
    }

    __device__ __forceinline__ void load_weights(const Fp8StageCopy<type, Shape>& copy,
                                                 const Fp8Pipeline<type, Shape>& at, uint32_t block,
                                                 const WorkTile& work_tile) const {
        at.wait_empty();
        copy.load_weights(at, block, work_tile);
    }

    __device__ void copy_work_tile(const WorkTile& work_tile) {
        if (gemm.in.index) queue.push(work_tile, lane);
        const Fp8StageCopy<type, Shape> copy(gemm, work_tile);
        const uint32_t n_blocks = token_blocks(gemm);
        uint32_t block = 0;
        if (waits) {
            const uint32_t n_early = min(n_blocks, Fp8Shared<type, Shape>::n_stages);
            Fp8Pipeline<type, Shape> ahead = pipeline;
            for (uint32_t i = 0; i < n_early; ++i, ahead.advance())
                load_weights(copy, ahead, i, work_tile);
            wait();
            for (; block < n_early; ++block, pipeline.advance()) copy.load_tokens(pipeline, block);
        }
        for (; block < n_blocks; ++block, pipeline.advance()) {
            load_weights(copy, pipeline, block, work_tile);
            copy.load_tokens(pipeline, block);
        }
    }

    __device__ int32_t of_item() const { return row_blocks_of_item<Shape>(gemm.epilogue); }

    // row_block: number of the item among those of the tile.
    __device__ void copy_item(WorkTile work_tile) {
        const int32_t n_row_blocks = (gemm.weights.n_tiles + 7) / 8;
        const int32_t first = work_tile.row_block * of_item();
        work_tile.width = Shape::width_of(work_tile.n_rows);
        for (int32_t i = first; i < min(first + of_item(), n_row_blocks);
             i += row_blocks_of_work_tile<Shape>) {
            work_tile.row_block = i;
            copy_work_tile(work_tile);
        }
    }

    __device__ void run() {
        pipeline.phase = 1;  // the pipeline begins empty
        if (gemm.tiles_are_new) wait();
        for (TileScheduler scheduler(gemm, TilePart::all, of_item()); !scheduler.done();
             scheduler.next(lane))
            copy_item(scheduler.current_tile());
        if (waits) wait();
        if (gemm.in.index) queue.push({}, lane);
        pipeline.wait_empty();
        if (lane != 0) return;
        store_work_tile(pipeline.header(), {});
        mbarrier_arrive(pipeline.full());
    }
};

// Gathers the tokens of an indexed input: three warps, eight lanes per row, 128 bytes per row and
// block; and a scale per thread and row. A row of the stage swizzles by its own number, a row of
// the input by the token's.
template <PackedType type, class Shape>
struct Fp8TokenProducer {
    using Pipeline = Fp8Pipeline<type, Shape>;
    static constexpr int32_t rows_at_once = token_threads / 8;
    static constexpr int rounds = (Shape::most_rows + rows_at_once - 1) / rows_at_once;
    static constexpr int scale_rounds =
        (Shape::most_rows + token_threads - 1) / static_cast<int>(token_threads);

    const GemmArgs& gemm;
    Pipeline pipeline;
    WorkTileQueue queue;
    uint32_t thread;

    __device__ __forceinline__ uint32_t token_of(const WorkTile& work_tile, int32_t row) const {
        // Padding rows copy the last token; their results are never stored.
        const int32_t r = min(row, work_tile.n_rows - 1);
        return static_cast<uint32_t>(gemm.in.index[work_tile.row + r]) /
               static_cast<uint32_t>(gemm.in.divisor);
    }

    __device__ void copy_work_tile(const WorkTile& work_tile) {
        const auto row = static_cast<int32_t>(thread / 8);
        const uint32_t vector = thread % 8;
        uint32_t from[rounds], scale_from[scale_rounds];
#pragma unroll
        for (int i = 0; i < rounds; ++i) {
            const auto r = static_cast<uint32_t>(row + i * rows_at_once);
            const uint32_t token = token_of(work_tile, static_cast<int32_t>(r));
            from[i] = token * fp8_block_columns + (((vector ^ r ^ token) & 7) << 4);
        }
#pragma unroll
        for (int i = 0; i < scale_rounds; ++i)
            scale_from[i] = token_of(work_tile, static_cast<int32_t>(thread + i * token_threads));
        const auto n_rows = static_cast<int32_t>(round_up(work_tile.n_rows, 8));
        const std::byte* scales = fp8_scales(gemm.in_bytes(), gemm.weights.k, gemm.in_capacity);
        const uint32_t n_blocks = token_blocks(gemm);
        for (uint32_t block = 0; block < n_blocks; ++block, pipeline.advance()) {
            pipeline.wait_empty();
            const int64_t first = int64_t{gemm.in_capacity} * block;
            const uint32_t to = pipeline.data() + row * fp8_block_columns + (vector << 4);
#pragma unroll
            for (int i = 0; i < rounds; ++i) {
                const int r = i * rows_at_once;
                copy_async_16_if(row + r < n_rows, to + r * fp8_block_columns,
                                 gemm.in_bytes() + first * fp8_block_columns + from[i]);
            }
            const uint32_t scale_to = pipeline.data() + Fp8Shared<type, Shape>::token_scales;
#pragma unroll
            for (int i = 0; i < scale_rounds; ++i) {
                const uint32_t r = thread + i * token_threads;
                if (static_cast<int32_t>(r) < n_rows)
                    copy_async_4(scale_to + 4 * r, scales + 4 * (first + scale_from[i]));
            }
            arrive_after_copies(pipeline.full());
        }
    }

    __device__ void run() {
        pipeline.phase = 1;
        wait_for_previous_kernel();
        for (WorkTile work_tile = queue.pop(thread % 32); work_tile.n_rows > 0;
             work_tile = queue.pop(thread % 32))
            copy_work_tile(work_tile);
        pipeline.wait_empty();
        mbarrier_arrive(pipeline.full());
    }
};

}  // namespace moe::cuda
