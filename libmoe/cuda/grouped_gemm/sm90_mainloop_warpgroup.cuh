// Step 3 of the grouped kernel (sm90_grouped_gemm.cuh) for 17 to 48 rows: a warpgroup's products of
// 64 weight rows and all tokens of the work_tile, on wgmma, as in sm90_mainloop_wide.cuh. But here
// a block of 64 k is so short that all else shows: there is a loop for each width, and one set of
// fragments, as the other warpgroups of the SM dequantize while the products of this one run.
#pragma once

#include "libmoe/cuda/device/wgmma.cuh"
#include "libmoe/cuda/grouped_gemm/sm90_pipeline.cuh"

namespace moe::cuda {

template <class Dequant, class Shape>
struct WarpgroupMultiplier {
    static constexpr PackedType type = Dequant::type;

    Pipeline<type, Shape>& pipeline;
    StagedTile<Dequant, Shape> tile;
    typename Dequant::Table table;

    __device__ WarpgroupMultiplier(const LaneWork& work, Pipeline<type, Shape>& pipeline_,
                                   const Codebooks& codebook)
        : pipeline(pipeline_), tile(work), table(codebook.values) {}

    // Blocks [block, block + n), a stage.
    template <int width>
    __device__ __forceinline__ void stage(float (&d)[width / 2], uint32_t block, uint32_t n) {
        const uint32_t data = pipeline.data();
        uint32_t rows = wgmma_rows(data);
        typename Dequant::Words words = tile.load(data, 0, block);
        for (uint32_t i = 0; i < n; ++i) {
            uint32_t a[16];
            Dequant::dequantize(words, table, a);
            wgmma_fence();
#pragma unroll
            for (int j = 0; j < 4; ++j) wgmma<width>(d, a + 4 * j, rows + 2 * j);
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
        for (float& sum : d) sum = 0.0f;
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
