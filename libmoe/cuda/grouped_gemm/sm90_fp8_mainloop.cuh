// Mainloop of the sm90 grouped GEMM of E4M3 (step 3 of sm90_fp8_grouped_gemm.cuh). A warpgroup
// multiplies 64 weight rows by all tokens of the work tile.
//
// Inputs: packed weights, tokens and their scales in the pipeline. Output: float32 sums.
//
// Per block of 128 k:
// 1. Wait for the stage's full barrier, and load the fragments of A.
// 2. In each turn of tokens four wgmma, the first of which clears the products: tensor cores keep
//    fewer bits of them than float32. Then multiply them by the scales of tokens and weights, and
//    add them to the sums in float32.
// 3. Arrive at the stage's empty barrier.
#pragma once

#include "libmoe/cuda/device/wgmma.cuh"
#include "libmoe/cuda/grouped_gemm/sm90_fp8_tile_shape.cuh"
#include "libmoe/cuda/kernel_types.hpp"

namespace moe::cuda {

template <class Dequant, class Shape>
struct Fp8Mainloop {
    static constexpr PackedType type = Dequant::type;
    using Shared = Fp8Shared<type, Shape>;
    using Sums = Accumulators<Shape>;

    const LaneWork& work;
    Fp8Pipeline<type, Shape>& pipeline;
    Fp8StagedTile<Dequant, Shape> tile;

    __device__ Fp8Mainloop(const LaneWork& work_, Fp8Pipeline<type, Shape>& pipeline_)
        : work(work_), pipeline(pipeline_), tile(work_) {}

    template <int width>
    __device__ __forceinline__ void run(Sums& sums) {
        constexpr int n_turns = (width + Shape::most_at_once - 1) / Shape::most_at_once;
        constexpr int n = width / n_turns;
#pragma unroll
        for (float& sum : sums) sum = 0.0f;
        float products[n / 2];
#pragma unroll
        for (float& product : products) product = 0.0f;
        const uint32_t n_blocks = weight_blocks(work.gemm);
#pragma unroll 1
        for (uint32_t first = 0; first + 1 < n_blocks; first += 2)
            step<n, n_turns, 2>(first, products, sums);
        if (n_blocks % 2 != 0) step<n, n_turns, 1>(n_blocks - 1, products, sums);
    }

  private:
    // Adds one or two blocks of 64 k from `first` on, with n tokens in each turn.
    template <int n, int n_turns, int n_blocks>
    __device__ __forceinline__ void step(uint32_t first, float (&products)[n / 2], Sums& sums) {
        pipeline.wait_full();
        const uint32_t data = pipeline.data();
        uint32_t a[8 * n_blocks];
        const float2 of_weights = tile.template operands<n_blocks>(data, first, a);
#pragma unroll
        for (int turn = 0; turn < n_turns; ++turn) {
            const uint32_t rows = wgmma_rows(data + turn * n * fp8_block_columns);
            wgmma_fence();
            wgmma<n, Operand::e4m3, false>(products, a, rows);
#pragma unroll
            for (int i = 1; i < 2 * n_blocks; ++i)
                wgmma<n, Operand::e4m3>(products, a + 4 * i, rows + 2 * i);
            wgmma_commit();
            wgmma_wait<0>();
            keep(a);
            keep(products);
            add<n>(products, of_weights, data + Shared::token_scales + 4 * turn * n,
                   sums + turn * n / 2);
        }
        if (work.lane == 0) mbarrier_arrive(pipeline.empty());
        pipeline.advance();
    }

    // Products come first: what does not wait for them would be moved between the wgmma, and there
    // wait for its loads. Types with middle tiles multiply scales by each other first, as
    // sm90_fp8_tokens_mainloop.cuh does, so that a row has the same bits in every tile.
    template <int n>
    __device__ __forceinline__ void add(const float (&products)[n / 2], float2 of_weights,
                                        uint32_t scales, float* sums) const {
#pragma unroll
        for (int i = 0; i < n / 8; ++i) {
            const uint2 words = load_shared_8(scales + 32 * i + 8 * work.t());
            const float of_tokens[2] = {__uint_as_float(words.x), __uint_as_float(words.y)};
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const float product = products[4 * i + e], of_token = of_tokens[e & 1];
                const float of_weight = e < 2 ? of_weights.x : of_weights.y;
                float& sum = sums[4 * i + e];
                sum = fp8_has_middle(type) ? fmaf(product, of_token * of_weight, sum)
                                           : fmaf(product * of_token, of_weight, sum);
            }
        }
    }
};

}  // namespace moe::cuda
