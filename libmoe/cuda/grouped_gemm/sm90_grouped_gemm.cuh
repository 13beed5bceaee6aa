// Grouped GEMM of sm_90a, a persistent warp-specialized kernel: out = epilogue(W_expert v) for
// every row v of every tile.
//
// Inputs (GemmArgs): packed weights [experts][n_tiles * 16][k]; tokens of the operand type in token
// blocks [k / 64][in_capacity][64], each row at its own number or through in_index; tiles, rows of
// one expert; optional biases and row weights, float32.
// Outputs: rows of bfloat16, float16 or float32 (linear), or token blocks (activated,
// gated) of bfloat16 or, where operands are float16, of either.
// Preconditions: k is a multiple of 64 (superblock types: of 256); Tile.row and both capacities are
// multiples of 8; Tile.n_rows is at most 288, and rows up to the next multiple of 8 belong to the
// tile; rows of a linear output are aligned to 16 bytes.
//
// A work item is a tile and 128 weight rows (8 packed tiles). A work tile is the part of it that a
// block processes at once: at most Shape::most_rows rows.
//
// 1. Scheduler: a producer warp takes work items for its block, the first by block index, the
//    others from an atomic counter, so that tiles of any size keep all SMs busy. Results do not
//    depend on which block takes an item.
// 2. Producer: it copies weights and tokens, a few blocks of 64 k per stage, into a multistage
//    pipeline with full and empty barriers. The first stage of a work tile also carries the work
//    tile and its codebook. Weights of the very first work tile are issued before the wait for the
//    preceding kernel (PDL), which lets this kernel begin when the tiles are known. Three more
//    warps gather the tokens of an indexed input row by row.
// 3. Mainloop: eight consumer warps, one packed tile each, dequantize weights to A fragments in
//    registers and multiply them with the tokens in shared memory. Two warpgroups use wgmma
//    (sm90_mainloop_wide.cuh, or sm90_mainloop_warpgroup.cuh with two blocks per SM); up to 16 rows
//    of a narrow tile each warp uses mma.sync (sm90_mainloop_warp.cuh). The N of an instruction is
//    the smallest available one that covers the work tile.
// 4. Epilogue (sm90_epilogue.cuh): it has shared memory of its own, so that the producer already
//    prefetches the next work item.
//
// A GEMM may be two launches. The second, for small tiles, does not wait at its beginning and fills
// the SMs that the first leaves idle. The first lets it begin only after its own wait, when
// everything that both read has been written. The second waits at its end, which keeps the chain of
// dependent_launch.cuh.
#pragma once

#include "libmoe/cuda/grouped_gemm/sm90_instances.hpp"
#include "libmoe/cuda/grouped_gemm/sm90_mainloop_warp.cuh"
#include "libmoe/cuda/grouped_gemm/sm90_mainloop_warpgroup.cuh"
#include "libmoe/cuda/grouped_gemm/sm90_mainloop_wide.cuh"
#include "libmoe/cuda/grouped_gemm/sm90_producer.cuh"

namespace moe::cuda {

template <class Dequant, class Shape>
__device__ __forceinline__ void run_mainloop(const LaneWork& work,
                                             Pipeline<Dequant::type, Shape>& pipeline,
                                             const Codebooks& codebooks,
                                             Accumulators<Shape>& accum) {
    const auto run = [&]<class Mainloop>(Mainloop mainloop) {
        mainloop.run(accum, static_cast<uint32_t>(work.gemm.weights.k) / 64, work.work_tile.n_rows);
    };
    if constexpr (std::is_same_v<Shape, Wide>) {
        run(WideMainloop<Dequant, Shape>(work, pipeline, codebooks));
    } else {
        if constexpr (Shape::most_rows_by_warp > 0) {
            if (work.work_tile.width <= Shape::most_rows_by_warp)
                return run(WarpMainloop<Dequant, Shape>(work, pipeline, codebooks));
        }
        if constexpr (has_superblock_units<Dequant>) {
            if (!work.gemm.batch_invariant)
                return run(WarpgroupMainloop<InSuperblockUnits<Dequant>, Shape>(work, pipeline,
                                                                                codebooks));
        }
        run(WarpgroupMainloop<Dequant, Shape>(work, pipeline, codebooks));
    }
}

// Returns the codebook of the work tile that begins. Mainloops that take it into registers read the
// stage header; the others need a copy that outlives the stage.
template <class Dequant, class Shape>
__device__ __forceinline__ Codebooks take_codebook(uint32_t stage_header, const WorkTile& work_tile,
                                                   uint32_t warpgroup, uint32_t base,
                                                   bool are_whole) {
    using Shared = GroupedShared<Dequant::type, Shape>;
    Codebooks codebooks{stage_header + work_tile_bytes, base + Shared::pairs};
    if constexpr (grouped_table_bytes(Dequant::type) > 0)
        codebooks.values = base + Shared::fixed_tables;
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
        // Both warpgroups share one table.
        constexpr uint32_t pair_bytes = pair_table_bytes<Dequant::type, Shape>;
        if constexpr (pair_bytes > 0 && Dequant::scales_after) {
            static_assert(pair_bytes == Dequant::Values::table_bytes);
            const int32_t most = are_whole               ? Shape::most_rows
                                 : Dequant::groups_apart ? Shape::most_rows_by_warp
                                                         : 8;
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
__device__ __forceinline__ void consume_all(const Sm90Call& gemm,
                                            Pipeline<Dequant::type, Shape> pipeline,
                                            uint32_t base) {
    const uint32_t warpgroup = threadIdx.x / 128;
    const uint32_t staging = base + GroupedShared<Dequant::type, Shape>::staging;
    pipeline.wait_full();
    WorkTile work_tile = load_work_tile(pipeline.header());
    while (work_tile.n_rows > 0) {
        const LaneWork work{gemm,   work_tile, warpgroup, threadIdx.x / 32 % 4, threadIdx.x % 32,
                            staging};
        const Codebooks codebooks = take_codebook<Dequant, Shape>(
            pipeline.header(), work_tile, warpgroup, base, gemm.records.are_whole);
        const RowTerms terms(work);  // loaded early to hide the latency
        Accumulators<Shape> accum;
        run_mainloop<Dequant, Shape>(work, pipeline, codebooks, accum);
        run_epilogue<Shape, operand_of<Dequant>(), activated>(
            work, Affine(terms, Dequant::residual_scale), accum);
        pipeline.wait_full();
        work_tile = load_work_tile(pipeline.header());
    }
    bulk_store_wait();
}

template <class Dequant, class Shape, bool activated>
__global__ void __launch_bounds__(Shape::threads, Shape::blocks_per_sm)
    grouped_kernel(const __grid_constant__ Sm90Call gemm, TilePart part) {
    using Shared = GroupedShared<Dequant::type, Shape>;
    extern __shared__ __align__(Shared::alignment) std::byte memory[];
    const uint32_t base = shared_address(memory);
    const bool is_indexed = gemm.in.index;
    Pipeline<Dequant::type, Shape> pipeline{part, base, base + Shared::headers,
                                            base + Shared::barriers, is_indexed};
    const WorkTileQueue queue{base + Shared::work_tiles};
    if constexpr (grouped_table_bytes(Dequant::type) > 0)
        Dequant::store_tables(base + Shared::fixed_tables, static_cast<int32_t>(threadIdx.x),
                              static_cast<int32_t>(blockDim.x));
    if (threadIdx.x == 0) {
        queue.init();
        for (uint32_t i = 0; i < Stages<Dequant::type, Shape>::most; ++i) {
            mbarrier_init(pipeline.full() + 8 * i, 1 + (is_indexed ? token_threads : 0));
            mbarrier_init(pipeline.empty() + 8 * i, 8);  // one arrival per consumer warp
        }
        mbarrier_fence_init();
    }
    __syncthreads();
    const bool waits = part != TilePart::small;
    if (threadIdx.x >= 256) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Shape::producer_registers));
        if (threadIdx.x < 288)
            Producer<Dequant::type, Shape>{gemm, pipeline, queue, threadIdx.x % 32, waits}.run(
                part);
        else if (is_indexed)
            TokenProducer<Dequant::type, Shape>(gemm, pipeline, queue, threadIdx.x - 288)
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
            Shape::blocks_per_sm, GroupedShared<Dequant::type, Shape>::bytes};
}

static_assert(grouped_tiles.max_rows == Wide::most_rows);
static_assert(grouped_tiles.most_small == Narrow::most_rows);
static_assert(grouped_middle_tiles.max_rows == Middle::most_rows);

template <class Dequant>
GroupedKernels grouped_kernels_of() {
    return {grouped_kernel_of<Dequant, Wide>(), grouped_kernel_of<Dequant, Middle>(),
            grouped_kernel_of<Dequant, Narrow>()};
}

}  // namespace moe::cuda
