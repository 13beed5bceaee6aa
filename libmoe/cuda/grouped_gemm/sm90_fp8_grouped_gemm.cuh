// Grouped GEMM of sm_90a with operands of E4M3, a persistent warp-specialized kernel: out =
// epilogue(W_expert v) for every row v of every tile.
//
// Inputs (GemmArgs): packed weights of which a scale holds for 8 rows and 128 k; tokens in token
// blocks of E4M3 with their scales (fp8_blocks.hpp), each row at its own number or through
// in_index; tiles, rows of one expert; optional biases and row weights, float32. Outputs: rows of
// bfloat16, float16 or float32 (linear), or token blocks of E4M3 (gated). Preconditions: k is a
// multiple of 64; a scale holds for those rows of eight packed tiles, of Fp8Middle; Tile.row and
// both capacities are multiples of 8; Tile.n_rows is at most Shape::most_rows; rows of a linear
// output are aligned to 16 bytes.
//
// A work item is a tile and 128 weight rows, of a gated GEMM 256: those of the 128 features that
// share a scale. A work tile has 128 of the rows. Fp8Middle, for e4m3 alone, has items and work
// tiles of 256.
//
// 1. Scheduler: as that of sm90_grouped_gemm.cuh.
// 2. Producer (sm90_fp8_producer.cuh): copies weights, tokens and scales, 128 k per stage. Weights
//    of the first work tile are issued before the wait for the preceding kernel (PDL).
// 3. Mainloop (sm90_fp8_mainloop.cuh): two warpgroups with 64 weight rows each; of Fp8Middle with
//    64 tokens each (sm90_fp8_tokens_mainloop.cuh).
// 4. Epilogue: that of sm90_epilogue.cuh, or of a gated GEMM sm90_fp8_epilogue.cuh; of Fp8Middle
//    sm90_fp8_tokens_epilogue.cuh. The producer already prefetches the next work tile.
#pragma once

#include "libmoe/cuda/grouped_gemm/sm90_fp8_epilogue.cuh"
#include "libmoe/cuda/grouped_gemm/sm90_fp8_mainloop.cuh"
#include "libmoe/cuda/grouped_gemm/sm90_fp8_producer.cuh"
#include "libmoe/cuda/grouped_gemm/sm90_fp8_tokens_epilogue.cuh"

namespace moe::cuda {

template <class Dequant, class Shape, bool gated>
__device__ __forceinline__ void consume_work_tile(const LaneWork& work,
                                                  Fp8Pipeline<Dequant::type, Shape>& pipeline) {
    const RowTerms terms(work);  // loaded early to hide the latency
    Accumulators<Shape> sums;
    Fp8Mainloop<Dequant, Shape> mainloop(work, pipeline);
    Shape::with_width(work.work_tile.width,
                      [&]<int n>(Width<n>) { mainloop.template run<n>(sums); });
    const Affine affine(terms, 1.0f);
    if constexpr (gated)
        run_fp8_gated_epilogue<Shape>(work, affine, sums);
    else
        run_epilogue<Shape, Operand::bf16, false>(work, affine, sums);
}

template <class Dequant, bool gated>
__device__ __forceinline__ void consume_tokens(const LaneWork& work,
                                               Fp8Pipeline<Dequant::type, Fp8Middle>& pipeline) {
    Fp8TokensMainloop<Dequant::type> mainloop(work, pipeline);
    if (64 * static_cast<int32_t>(work.warpgroup) >= work.work_tile.n_rows) return mainloop.skip();
    Fp8TokenAccumulators accum;
    mainloop.run(accum);
    run_fp8_tokens_epilogue<gated>(work, accum);
}

template <class Dequant, class Shape, bool gated>
__device__ __forceinline__ void consume_fp8(const Sm90Call& gemm,
                                            Fp8Pipeline<Dequant::type, Shape> pipeline) {
    const uint32_t staging = pipeline.base + Fp8Shared<Dequant::type, Shape>::staging;
    pipeline.wait_full();
    WorkTile work_tile = load_work_tile(pipeline.header());
    while (work_tile.n_rows > 0) {
        const LaneWork work{
            gemm, work_tile, threadIdx.x / 128, threadIdx.x / 32 % 4, threadIdx.x % 32, staging};
        if constexpr (tokens_as_a<Shape>)
            consume_tokens<Dequant, gated>(work, pipeline);
        else
            consume_work_tile<Dequant, Shape, gated>(work, pipeline);
        pipeline.wait_full();
        work_tile = load_work_tile(pipeline.header());
    }
    if constexpr (gated && tokens_as_a<Shape>) bulk_store_wait();
}

template <class Dequant, class Shape, bool gated>
__global__ void __launch_bounds__(Shape::threads, Shape::blocks_per_sm)
    fp8_grouped_kernel(const __grid_constant__ Sm90Call gemm) {
    using Shared = Fp8Shared<Dequant::type, Shape>;
    extern __shared__ __align__(Shared::alignment) std::byte memory[];
    const uint32_t base = shared_address(memory);
    const bool is_indexed = gemm.in.index;
    Fp8Pipeline<Dequant::type, Shape> pipeline{base, is_indexed};
    const WorkTileQueue queue{base + Shared::work_tiles};
    if (threadIdx.x == 0) {
        queue.init();
        for (Fp8Pipeline<Dequant::type, Shape> at = pipeline; at.phase == 0; at.advance()) {
            mbarrier_init(at.full(), 1 + (is_indexed ? token_threads : 0));
            mbarrier_init(at.empty(), 8);  // one arrival per consumer warp
        }
        mbarrier_fence_init();
    }
    __syncthreads();
    if (threadIdx.x >= 256) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Shape::producer_registers));
        if (threadIdx.x < 288)
            Fp8Producer<Dequant::type, Shape>{gemm, pipeline, queue, threadIdx.x % 32}.run();
        else if (is_indexed)
            Fp8TokenProducer<Dequant::type, Shape>{gemm, pipeline, queue, threadIdx.x - 288}.run();
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Shape::consumer_registers));
        wait_for_previous_kernel();
        let_next_kernel_start();
        consume_fp8<Dequant, Shape, gated>(gemm, pipeline);
    }
}

}  // namespace moe::cuda
