// The grouped gemm of sm_90a: out = epilogue(W_expert v) for tiles of up to 256 rows.
//
// Shapes: weights packed (packed.hpp), k a multiple of 64 (q4_k: of 256), any number of tiles of 16
// rows; tokens in blocks (experts.hpp). Preconditions: Tile.row and capacity are multiples of 8,
// Tile.n_rows at most 256; rows up to the next multiple of 8 belong to the tile. A linear output
// has 16-byte aligned rows.
//
// 1. A producer warp takes pairs of a tile and 128 weight rows (8 packed tiles) for its block of
//    threads: the first by its number, then whichever is next, from a counter in memory, so that
//    tiles of any sizes keep all blocks busy. Which block has a pair does not matter for the
//    result.
// 2. It copies stages of a few blocks of 64 k, weights and tokens, into a pipeline. The first stage
// of
//    a work_tile, as many rows of the tile as fit at once, says which work_tile it is and brings
//    the codebook. Weights of the very first work_tile are asked for before the kernel before this
//    one has ended: that one lets this one begin when tiles are known. Tokens of an indexed input
//    come row by row from three warps more.
// 3. Eight consumer warps, a packed tile each, dequantize weights into A fragments and multiply
// them
//    with the tokens of the stage: as two warpgroups with wgmma (sm90_mainloop_wide.cuh, and
//    sm90_mainloop_warpgroup.cuh for few rows) or each by itself with mma.sync
//    (sm90_mainloop_warp.cuh, for very few). The width of a gemm is the least of a few that holds
//    the work_tile.
// 4. The epilogue (sm90_epilogue.cuh) leaves through shared memory of its own, so that the
//    producer is already at the next pair.
//
// Of the two launches of a gemm the second, for small tiles, does not wait at its beginning, so
// that it fills the multiprocessors that the first leaves: the first lets it begin only after its
// own wait, when all that both read has been written. It waits at its end, which keeps the chain of
// dependent_launch.cuh.
#pragma once

#include "libmoe/cuda/grouped_gemm/sm90_instances.hpp"
#include "libmoe/cuda/grouped_gemm/sm90_mainloop_warp.cuh"
#include "libmoe/cuda/grouped_gemm/sm90_mainloop_warpgroup.cuh"
#include "libmoe/cuda/grouped_gemm/sm90_mainloop_wide.cuh"
#include "libmoe/cuda/grouped_gemm/sm90_producer.cuh"

namespace moe::cuda {

template <class Dequant, class Shape>
__device__ __forceinline__ void multiply(const LaneWork& work,
                                         Pipeline<Dequant::type, Shape>& pipeline,
                                         const Codebooks& codebooks, Accumulators<Shape>& accum) {
    const auto run = [&]<class Multiplier>(Multiplier multiplier) {
        multiplier.run(accum, static_cast<uint32_t>(work.gemm.weights.k) / 64,
                       work.work_tile.n_rows);
    };
    if constexpr (std::is_same_v<Shape, Wide>) {
        run(WideMultiplier<Dequant, Shape>(work, pipeline, codebooks));
    } else if (work.work_tile.width <= Shape::most_rows_by_warp) {
        run(WarpMultiplier<Dequant, Shape>(work, pipeline, codebooks));
    } else {
        run(WarpgroupMultiplier<Dequant, Shape>(work, pipeline, codebooks));
    }
}

// Where the multipliers find the codebook of the work_tile that begins. In the head of the stage
// for those that take it into registers; else a copy that lasts.
template <class Dequant, class Shape>
__device__ __forceinline__ Codebooks take_codebook(uint32_t head, const WorkTile& work_tile,
                                                   uint32_t warpgroup, uint32_t base) {
    using Shared = GroupedShared<Dequant::type, Shape>;
    Codebooks codebooks{head + work_tile_bytes, base + Shared::pairs};
    if constexpr (has_codebook(Dequant::type)) {
        if constexpr (Dequant::table_in_memory) {
            const uint32_t thread = threadIdx.x % 128;
            const uint32_t copy =
                base + Shared::codebooks + warpgroup * raw_codebook_bytes<Dequant::type>;
            named_barrier(1 + warpgroup, 128);
            if (thread < 64)
                store_shared(copy + 4 * thread, load_shared_4(codebooks.values + 4 * thread));
            named_barrier(1 + warpgroup, 128);
            codebooks.values = copy;
        }
        // One table for both warpgroups.
        constexpr uint32_t pair_bytes = pair_table_bytes<Dequant::type, Shape>;
        if constexpr (pair_bytes > 0) {
            static_assert(pair_bytes == Dequant::Values::table_bytes);
            constexpr int32_t most = Dequant::groups_apart ? Shape::most_rows_by_warp : 8;
            if (work_tile.width <= most) {
                named_barrier(3, 256);
                Dequant::Values::store(codebooks.values, codebooks.pairs, threadIdx.x);
                named_barrier(3, 256);
            }
        }
    }
    return codebooks;
}

template <class Dequant, class Shape, bool activated>
__device__ __forceinline__ void consume_all(const GroupedGemmArgs& gemm,
                                            Pipeline<Dequant::type, Shape> pipeline,
                                            uint32_t base) {
    const uint32_t warpgroup = threadIdx.x / 128;
    const uint32_t staging = base + GroupedShared<Dequant::type, Shape>::staging;
    pipeline.wait_full();
    WorkTile work_tile = load_work_tile(pipeline.header());
    while (work_tile.n_rows > 0) {
        const LaneWork work{gemm,   work_tile, warpgroup, threadIdx.x / 32 % 4, threadIdx.x % 32,
                            staging};
        const Codebooks codebooks =
            take_codebook<Dequant, Shape>(pipeline.header(), work_tile, warpgroup, base);
        const RowFacts facts(work);  // asked for long before they are needed
        Accumulators<Shape> accum;
        multiply<Dequant, Shape>(work, pipeline, codebooks, accum);
        finish<Shape, activated>(work, Affine(facts, Dequant::residual_scale), accum);
        pipeline.wait_full();
        work_tile = load_work_tile(pipeline.header());
    }
    bulk_store_wait();
}

template <class Dequant, class Shape, bool activated>
__global__ void __launch_bounds__(Shape::threads, Shape::blocks_per_sm)
    grouped_kernel(const __grid_constant__ GroupedGemmArgs gemm, TilePart part) {
    using Shared = GroupedShared<Dequant::type, Shape>;
    extern __shared__ std::byte memory[];
    const uint32_t base = round_up(shared_address(memory), Shared::alignment);
    const bool is_indexed = activated && gemm.in_index;
    Pipeline<Dequant::type, Shape> pipeline{base, base + Shared::headers, base + Shared::barriers,
                                            is_indexed};
    const WorkTileExchange exchange{base + Shared::work_tiles};
    if (threadIdx.x == 0) {
        exchange.begin();
        for (uint32_t i = 0; i < Stages<Dequant::type, Shape>::count; ++i) {
            mbarrier_init(pipeline.full() + 8 * i, 1 + (is_indexed ? token_threads : 0));
            mbarrier_init(pipeline.empty() + 8 * i, 8);  // consumer warps
        }
        mbarrier_fence_init();
    }
    __syncthreads();
    const bool waits = part != TilePart::small;
    if (threadIdx.x >= 256) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Shape::producer_registers));
        if (threadIdx.x < 288)
            Producer<Dequant::type, Shape>{gemm, pipeline, exchange, threadIdx.x % 32, waits}.run(
                part);
        else if (is_indexed)
            TokenProducer<Dequant::type, Shape>(gemm, pipeline, exchange, threadIdx.x - 288)
                .run(waits);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Shape::consumer_registers));
        if (waits) wait_for_previous_kernel();
        let_next_kernel_start();
        consume_all<Dequant, Shape, activated>(gemm, pipeline, base);
    }
    if (!waits) wait_for_previous_kernel();
}

template <class Dequant, class Shape>
GroupedKernel grouped_kernel_of() {
    return {reinterpret_cast<const void*>(&grouped_kernel<Dequant, Shape, false>),
            reinterpret_cast<const void*>(&grouped_kernel<Dequant, Shape, true>), Shape::threads,
            Shape::blocks_per_sm, GroupedShared<Dequant::type, Shape>::allocated};
}

static_assert(grouped_tiles.max_rows == Wide::most_rows);
static_assert(grouped_tiles.most_small == Narrow::most_rows);

template <class Dequant>
GroupedKernels grouped_kernels_of() {
    return {grouped_kernel_of<Dequant, Wide>(), grouped_kernel_of<Dequant, Narrow>()};
}

}  // namespace moe::cuda
