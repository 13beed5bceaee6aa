// Step 3 of the grouped kernel (sm90_grouped_gemm.cuh) for many rows: a warpgroup's products of 64
// weight rows and all tokens of the work_tile, on wgmma. A block of 64 k is decoded while the
// products of the one before it run.
#pragma once

#include "libmoe/cuda/device/wgmma.cuh"
#include "libmoe/cuda/grouped_gemm/sm90_pipeline.cuh"

namespace moe::cuda {

// The products of a block of 64 k, as one group. Only they differ from width to width: decoding,
// the accum and the fragments are common, so that they have one set of registers.
template <class Shape>
__device__ __forceinline__ void multiply_block(int32_t width, Accumulators<Shape>& accum,
                                               const uint32_t (&a)[16], uint32_t rows) {
    Shape::with_width(width, [&]<int n>(Width<n>) {
        wgmma_fence();
#pragma unroll
        for (int j = 0; j < 4; ++j) wgmma<n>(accum, a + 4 * j, rows + 2 * j);
        wgmma_commit();
    });
}

// A consumer warp's walk over the blocks of a work_tile.
template <class Dequant, class Shape>
struct WideMultiplier {
    static constexpr PackedType type = Dequant::type;
    static constexpr uint32_t no_stage = 0;

    Pipeline<type, Shape>& pipeline;
    StagedTile<Dequant, Shape> tile;
    typename Dequant::Table table;
    uint32_t block = 0;
    uint32_t in_stage = 0;
    uint32_t passed = no_stage;  // empty barrier of the stage before, its products under way

    __device__ WideMultiplier(const LaneWork& work, Pipeline<type, Shape>& pipeline_,
                              const Codebooks& codebook)
        : pipeline(pipeline_), tile(work), table(codebook.values) {}

    __device__ __forceinline__ void release() {
        if (passed != no_stage && tile.lane == 0) mbarrier_arrive(passed);
        passed = no_stage;
    }

    // One block of 64 k into `a`; the products before it, which read `other`, are over at the end,
    // and with `last` these too.
    __device__ __forceinline__ void step(Accumulators<Shape>& accum, uint32_t (&a)[16],
                                         uint32_t (&other)[16], bool last) {
        if (in_stage == 0) pipeline.wait_full();
        Dequant::dequantize(tile.load(pipeline.data(), in_stage, block), table, a);
        const uint32_t rows = wgmma_rows(pipeline.data() + in_stage * tile.width * 128);
        multiply_block<Shape>(tile.width, accum, a, rows);
        if (last) {
            wgmma_wait<0>();
        } else {
            wgmma_wait<1>();
        }
        keep(other);
        release();
        ++block;
        if (++in_stage == tile.per_stage || last) {
            in_stage = 0;
            passed = pipeline.empty();
            pipeline.advance();
        }
    }

    __device__ __forceinline__ void run(Accumulators<Shape>& accum, uint32_t n_blocks, int32_t) {
        uint32_t a[2][16];
#pragma unroll
        for (int i = 0; i < 16; ++i) a[0][i] = a[1][i] = 0;
#pragma unroll
        for (float& sum : accum) sum = 0.0f;
        while (block < n_blocks) {
            step(accum, a[0], a[1], block + 1 == n_blocks);
            if (block == n_blocks) break;
            step(accum, a[1], a[0], block + 1 == n_blocks);
        }
        wgmma_wait<0>();  // nothing to wait for: tells the compiler that accum are complete
        keep(accum);
        release();
    }
};

}  // namespace moe::cuda
