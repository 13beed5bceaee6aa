// Mainloop of the sm90 grouped GEMM for 17 to 48 rows, and for fewer if bits must not depend on
// the number of rows (step 3 of sm90_grouped_gemm.cuh). A warpgroup multiplies 64 weight rows by
// all tokens of the work tile with wgmma.
//
// Inputs: packed weights and tokens in the pipeline. Output: float32 accumulators. Precondition:
// the width of the work tile is 32 or 48.
//
// A block of 64 k is so short that every overhead shows. Each width therefore has its own loop. One
// set of A fragments is enough, because the other warpgroups of the SM dequantize meanwhile.
//
// 1. Wait for a stage's full barrier.
// 2. Per block of 64 k: dequantize to A fragments, issue wgmma, load the words of the next block,
//    wait for wgmma.
// 3. Arrive at the stage's empty barrier.
#pragma once

#include "libmoe/cuda/device/wgmma.cuh"
#include "libmoe/cuda/grouped_gemm/sm90_pipeline.cuh"

namespace moe::cuda {

template <class Dequant, class Shape>
struct WarpgroupMainloop {
    static constexpr PackedType type = Dequant::type;

    Pipeline<type, Shape>& pipeline;
    StagedTile<Dequant, Shape> tile;
    typename Dequant::Table table;

    __device__ WarpgroupMainloop(const LaneWork& work, Pipeline<type, Shape>& pipeline_,
                                 const Codebooks& codebook)
        : pipeline(pipeline_), tile(work), table(codebook.values) {}

    // Multiplies the n blocks of a stage; `block` is the first.
    template <int width>
    __device__ __forceinline__ void stage(float (&d)[width / 2], uint32_t block, uint32_t n) {
        const uint32_t data = pipeline.data();
        uint32_t rows = wgmma_rows(data);
        typename Dequant::Words words = tile.load(data, 0, block);
        for (uint32_t i = 0; i < n; ++i) {
            uint32_t a[16];
            tile.dequantize(words, table, data, i, block + i, a);
            wgmma_fence();
#pragma unroll
            for (int j = 0; j < 4; ++j)
                wgmma<width, operand_of<Dequant>()>(d, a + 4 * j, rows + 2 * j);
            wgmma_commit();
            rows += width * 128 / 16;
            const uint32_t next = min(i + 1, n - 1);
            words = tile.load(data, next, block + next);
            wgmma_wait<0>();
            keep(a);
            keep(d);
        }
    }

    template <int width>
    __device__ __forceinline__ void run_width(Accumulators<Shape>& accum, uint32_t n_blocks) {
        constexpr uint32_t per_stage = Stages<type, Shape>::blocks(width);
        float d[width / 2];
#pragma unroll
        for (float& value : d) value = 0.0f;
        for (uint32_t block = 0; block < n_blocks; block += per_stage) {
            pipeline.wait_full();
            stage<width>(d, block, min(per_stage, n_blocks - block));
            if (tile.lane == 0) mbarrier_arrive(pipeline.empty());
            pipeline.advance();
        }
#pragma unroll
        for (int i = 0; i < width / 2; ++i) accum[i] = d[i];
    }

    __device__ __forceinline__ void run(Accumulators<Shape>& accum, uint32_t n_blocks, int32_t) {
        if (tile.width == 32) return run_width<32>(accum, n_blocks);
        run_width<48>(accum, n_blocks);
    }
};

}  // namespace moe::cuda
