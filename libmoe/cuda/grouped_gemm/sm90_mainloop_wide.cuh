// Mainloop of the sm90 grouped GEMM for up to 288 rows (step 3 of sm90_grouped_gemm.cuh). A
// warpgroup multiplies 64 weight rows by all tokens of the work tile with wgmma.
//
// Inputs: packed weights and tokens in the pipeline. Output: float32 accumulators. Precondition:
// the width of the work tile comes from Shape::width_of.
//
// 1. Wait for a stage's full barrier.
// 2. Per block of 64 k: dequantize to one of two sets of A fragments, issue wgmma, then wait for
//    the wgmma of the block before. Dequantization so overlaps with the tensor cores.
// 3. Arrive at a stage's empty barrier once its last wgmma is complete.
#pragma once

#include "libmoe/cuda/device/wgmma.cuh"
#include "libmoe/cuda/grouped_gemm/sm90_pipeline.cuh"

namespace moe::cuda {

// Issues the wgmma of a block of 64 k as one group. Only this code differs between widths;
// dequantization, accumulators and fragments are common, so that they share one set of registers.
template <class Shape, Operand operand>
__device__ __forceinline__ void multiply_block(int32_t width, Accumulators<Shape>& accum,
                                               const uint32_t (&a)[16], uint32_t rows) {
    Shape::with_width(width, [&]<int n>(Width<n>) {
        wgmma_fence();
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            // An instruction has at most 256 rows, so that the widest take two. Two of 144 rows
            // instead make ptxas serialize every wgmma of the kernel.
            constexpr int whole = n < 256 ? n : 256;
            wgmma<whole, operand>(accum, a + 4 * j, rows + 2 * j);
            if constexpr (n > whole)
                wgmma<n - whole, operand, true, whole / 2>(accum, a + 4 * j,
                                                           rows + 2 * j + whole * 128 / 16);
        }
        wgmma_commit();
    });
}

// The mainloop of one consumer warp over the blocks of a work tile.
template <class Dequant, class Shape>
struct WideMainloop {
    static constexpr PackedType type = Dequant::type;
    static constexpr uint32_t no_stage = 0;

    Pipeline<type, Shape>& pipeline;
    StagedTile<Dequant, Shape> tile;
    typename Dequant::Table table;
    uint32_t block = 0;
    uint32_t in_stage = 0;
    uint32_t pending_empty = no_stage;  // empty barrier of the stage whose wgmma still run

    __device__ WideMainloop(const LaneWork& work, Pipeline<type, Shape>& pipeline_,
                            const Codebooks& codebook)
        : pipeline(pipeline_), tile(work, pipeline_), table(codebook.values) {}

    __device__ __forceinline__ void release() {
        if (pending_empty != no_stage && tile.lane == 0) mbarrier_arrive(pending_empty);
        pending_empty = no_stage;
    }

    // Multiplies one block of 64 k with fragments `a`. At the end the wgmma of the block before,
    // which read `other`, are complete; with `last` those of this block are, too.
    __device__ __forceinline__ void step(Accumulators<Shape>& accum, uint32_t (&a)[16],
                                         uint32_t (&other)[16], bool last) {
        if (in_stage == 0) pipeline.wait_full();
        const uint32_t data = pipeline.data(), at = tile.begin_of(data, block - in_stage);
        const typename Dequant::Words words = tile.load(at, in_stage, block);
        tile.dequantize(words, table, at, in_stage, block, a);
        const uint32_t rows = wgmma_rows(data + in_stage * tile.width * 128);
        multiply_block<Shape, operand_of<Dequant>()>(tile.width, accum, a, rows);
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
            pending_empty = pipeline.empty();
            pipeline.advance();
        }
    }

    __device__ __forceinline__ void run(Accumulators<Shape>& accum, uint32_t n_blocks, int32_t) {
        uint32_t a[2][16];
#pragma unroll
        for (int i = 0; i < 16; ++i) a[0][i] = a[1][i] = 0;
#pragma unroll
        for (float& value : accum) value = 0.0f;
        while (block < n_blocks) {
            step(accum, a[0], a[1], block + 1 == n_blocks);
            if (block == n_blocks) break;
            step(accum, a[1], a[0], block + 1 == n_blocks);
        }
        // All are complete; the wait tells the compiler that the accumulators are final.
        wgmma_wait<0>();
        keep(accum);
        release();
    }
};

}  // namespace moe::cuda
