// Mainloop of the sm90 grouped GEMM of E4M3 with tokens as the rows of A (Fp8Middle; step 3 of
// sm90_fp8_grouped_gemm.cuh). A warpgroup multiplies 64 tokens by 256 weight rows.
//
// Inputs: packed weights of E4M3, of which a scale holds for rows 0 to 7 of eight packed tiles, and
// one for rows 8 to 15; tokens and their scales; all in the pipeline. Output: float32 accumulators.
// Lane 4 g + t of warp w has tokens 16 w + g and 16 w + g + 8 of its warpgroup, whose scales it
// keeps in registers.
//
// wgmma reads the weights as they were copied: a packed tile has, for its rows 0 to 7 and then for
// 8 to 15, matrices of 8 rows and 16 k. So one turn takes rows 0 to 7 of all sixteen packed tiles,
// the next rows 8 to 15, which of a gated GEMM are gate and up of the same features.
//
// Per block of 128 k:
// 1. Wait for the stage's full barrier.
// 2. In each turn four wgmma, the first of which clears the accumulators of the block, as in
//    sm90_fp8_mainloop.cuh; then add these times scales to those of the work tile in float32.
// 3. Arrive at the stage's empty barrier, after the last wgmma.
#pragma once

#include "libmoe/cuda/device/wgmma_shared.cuh"
#include "libmoe/cuda/grouped_gemm/sm90_fp8_tile_shape.cuh"

namespace moe::cuda {

// By turn; of a turn accumulator 4 i + 2 h + e is token g + 8 h and row 2 t + e of the eight of
// packed tile i.
using Fp8TokenAccumulators = float[2][64];

template <PackedType type>
struct Fp8TokensMainloop {
    using Shared = Fp8Shared<type, Fp8Middle>;
    static constexpr uint32_t block_bytes = staged_block_bytes(type);
    static constexpr uint32_t scales = block_code_bytes(type, 4);

    const LaneWork& work;
    Fp8Pipeline<type, Fp8Middle>& pipeline;
    PackedTile<type> packed;  // the first of the work tile
    uint32_t tile_step;

    __device__ Fp8TokensMainloop(const LaneWork& work_, Fp8Pipeline<type, Fp8Middle>& pipeline_)
        : work(work_),
          pipeline(pipeline_),
          packed(work.gemm, work.work_tile.expert,
                 work.work_tile.row_block * static_cast<int32_t>(tiles_per_block)),
          tile_step(even_tile_step(type, packed.stride(work.gemm))) {}

    __device__ __forceinline__ void run(Fp8TokenAccumulators& accum) {
        float block_accum[64];
#pragma unroll
        for (int i = 0; i < 64; ++i) accum[0][i] = accum[1][i] = block_accum[i] = 0.0f;
        const uint32_t n_blocks = weight_blocks(work.gemm);
#pragma unroll 1
        for (uint32_t first = 0; first + 1 < n_blocks; first += 2)
            step<2>(first, block_accum, accum);
        if (n_blocks % 2 != 0) step<1>(n_blocks - 1, block_accum, accum);
    }

    // Passes the stages of a work tile that has no tokens for this warpgroup.
    __device__ __forceinline__ void skip() {
        const uint32_t n_stages = token_blocks(work.gemm);
        for (uint32_t i = 0; i < n_stages; ++i) {
            pipeline.wait_full();
            release();
        }
    }

  private:
    template <int n_blocks>
    __device__ __forceinline__ void step(uint32_t first, float (&block_accum)[64],
                                         Fp8TokenAccumulators& accum) {
        const uint32_t data = pipeline.data();
        const uint32_t weights = data + Shared::tiles + uniform(packed.in_room(first, 2));
        const uint32_t tokens = wgmma_rows(data + 64 * uniform(work.warpgroup) * fp8_block_columns);
        const MatricesOf8Rows matrices(weights, tile_step);
        pipeline.wait_full();
        const uint32_t scale_at =
            data + Shared::token_scales + 4 * (64 * work.warpgroup + 16 * work.warp + work.g());
        const float of_tokens[2] = {__uint_as_float(load_shared_4(scale_at)),
                                    __uint_as_float(load_shared_4(scale_at + 32))};
#pragma unroll
        for (uint32_t turn = 0; turn < 2; ++turn) {
            keep(block_accum);
            wgmma_fence();
#pragma unroll
            for (uint32_t i = 0; i < 2 * n_blocks; ++i) {
                const uint64_t a = wgmma_descriptor(tokens + 2 * i);
                const uint64_t b =
                    matrices.descriptor(512 * turn + i / 2 * block_bytes + i % 2 * 256);
                if (i == 0)
                    wgmma_shared_128<false>(block_accum, a, b);
                else
                    wgmma_shared_128<true>(block_accum, a, b);
            }
            wgmma_commit();
            float factors[2][2];  // of packed tiles 0 to 7 and 8 to 15, by token
#pragma unroll
            for (int part = 0; part < 2; ++part) {
                const float scale = __uint_as_float(
                    load_shared_4(weights + scales + 4 * turn + 8 * part * tile_step));
                factors[part][0] = of_tokens[0] * scale;
                factors[part][1] = of_tokens[1] * scale;
            }
            wgmma_wait<0>();
            keep(block_accum);
            if (turn == 1) release();
#pragma unroll
            for (int i = 0; i < 64; ++i)
                accum[turn][i] = fmaf(block_accum[i], factors[i / 32][i / 2 % 2], accum[turn][i]);
        }
    }

    __device__ __forceinline__ void release() {
        if (work.lane == 0) mbarrier_arrive(pipeline.empty());
        pipeline.advance();
    }

    // The value of lane 0, which all lanes have: known to be one for the warp, it goes where
    // descriptors are.
    static __device__ __forceinline__ uint32_t uniform(uint32_t value) {
        return __shfl_sync(0xFFFFFFFFu, value, 0);
    }
};

}  // namespace moe::cuda
