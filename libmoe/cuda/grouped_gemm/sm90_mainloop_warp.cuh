// Step 3 of the grouped kernel (sm90_grouped_gemm.cuh) for up to 16 rows: every warp by itself, on
// the products of 16 weight rows and eight tokens of mma.sync. Decoding takes the time, not the
// products; without the waits of a warpgroup a warp decodes on while its products run. Accumulators
// lie as those of wgmma do.
#pragma once

#include "libmoe/cuda/device/mma.cuh"
#include "libmoe/cuda/grouped_gemm/sm90_pipeline.cuh"

namespace moe::cuda {

// Fragments of eight tokens for steps j and j + 1 of a block: of each, both halves of k.
struct TokenFragments {
    uint32_t offset;  // of this lane's row of the matrix it names, step 0

    __device__ explicit TokenFragments(uint32_t lane)
        : offset((lane & 7) * 128 + (((lane >> 3) ^ (lane & 7)) << 4)) {}

    __device__ __forceinline__ void load(uint32_t tokens, int j, uint32_t (&b)[4]) const {
        load_matrices(tokens + (offset ^ (32 * j)), b);
    }
};

// Up to four tokens, number `four`, with the two groups of 32 k of a block in columns of their own:
// column n is token n % 4 with group n / 4, and zero in the lanes that have the other group. A
// lane's two columns of the result belong to its own group.
struct TokenGroups {
    uint32_t offset;
    uint32_t mine;  // 1: the lane's k are in its column's group

    __device__ explicit TokenGroups(uint32_t lane)
        : offset((lane & 3) * 128 + (((lane >> 3) ^ (lane & 3)) << 4)),
          mine((lane >> 4) == (lane >> 1 & 1) ? 1 : 0) {}

    __device__ __forceinline__ void load(uint32_t tokens, int four, int j, uint32_t (&b)[4]) const {
        load_matrices(tokens + 512 * four + (offset ^ (64 * four) ^ (32 * j)), b);
#pragma unroll
        for (uint32_t& pair : b) asm("mul.lo.u32 %0, %0, %1;" : "+r"(pair) : "r"(mine));
    }
};

template <class Dequant, class Shape, int fours>
struct EightTokens;
template <class Dequant, class Shape>
struct SixteenTokens;

// Two steps.
__device__ __forceinline__ void multiply_steps(float (&to)[4], const uint32_t* first,
                                               const uint32_t* second, const uint32_t (&b)[4]) {
    mma_16x8x16<Operand::bf16>(to, first, b[0], b[1]);
    mma_16x8x16<Operand::bf16>(to, second, b[2], b[3]);
}

template <class Dequant, class Shape>
struct WarpMultiplier {
    static constexpr PackedType type = Dequant::type;

    Pipeline<type, Shape>& pipeline;
    StagedTile<Dequant, Shape> tile;
    TokenFragments tokens;
    Codebooks codebook;

    __device__ WarpMultiplier(const LaneWork& work, Pipeline<type, Shape>& pipeline_,
                              const Codebooks& codebook_)
        : pipeline(pipeline_), tile(work), tokens(work.lane), codebook(codebook_) {}

    template <int width>
    __device__ __forceinline__ void multiply(float (&d)[width / 8][4], const uint32_t (&a)[16],
                                             uint32_t rows) const {
#pragma unroll
        for (int j = 0; j < 4; j += 2) {
#pragma unroll
            for (int i = 0; i < width / 8; ++i) {
                uint32_t b[4];
                tokens.load(rows + 1024 * i, j, b);
                multiply_steps(d[i], a + 4 * j, a + 4 * j + 4, b);
            }
        }
    }

    // Blocks [block, block + n), a stage.
    template <int width>
    __device__ __forceinline__ void stage(const typename Dequant::Table& table,
                                          float (&d)[width / 8][4], uint32_t block, uint32_t n) {
        const uint32_t data = pipeline.data();
        typename Dequant::Words words = tile.load(data, 0, block);
        for (uint32_t i = 0; i < n; ++i) {
            const uint32_t next = i + 1 < n ? i + 1 : i;
            const typename Dequant::Words ahead = tile.load(data, next, block + next);
            uint32_t a[16];
            Dequant::dequantize(words, table, a);
            multiply<width>(d, a, data + i * width * 128);
            words = ahead;
        }
    }

    // add(block, n): of every stage.
    template <class Add>
    __device__ __forceinline__ void each_stage(uint32_t n_blocks, Add add) {
        for (uint32_t block = 0; block < n_blocks; block += tile.per_stage) {
            pipeline.wait_full();
            add(block, min(tile.per_stage, n_blocks - block));
            __syncwarp();
            if (tile.lane == 0) mbarrier_arrive(pipeline.empty());
            pipeline.advance();
        }
    }

    __device__ __forceinline__ void run(Accumulators<Shape>& accum, uint32_t n_blocks,
                                        int32_t n_rows) {
#pragma unroll
        for (float& sum : accum) sum = 0.0f;
        if constexpr (Dequant::scales_after) {
            if (n_rows <= 4) return EightTokens<Dequant, Shape, 1>(*this).run(accum, n_blocks);
            if (n_rows <= 8) return EightTokens<Dequant, Shape, 2>(*this).run(accum, n_blocks);
            if constexpr (Dequant::groups_apart)
                return SixteenTokens<Dequant, Shape>(*this).run(accum, n_blocks);
        } else if (n_rows <= 8) {
            return run_width<8>(accum, n_blocks);
        }
        run_width<16>(accum, n_blocks);
    }

    template <int width>
    __device__ __forceinline__ void run_width(Accumulators<Shape>& accum, uint32_t n_blocks) {
        const typename Dequant::Table table(codebook.values);
        float d[width / 8][4] = {};
        each_stage(n_blocks, [&](uint32_t block, uint32_t n) { stage<width>(table, d, block, n); });
#pragma unroll
        for (int i = 0; i < width / 2; ++i) accum[i] = d[i / 4][i % 4];
    }
};

// Eight tokens at most, in fours, with scales after the products.
template <class Dequant, class Shape, int fours>
struct EightTokens {
    using Words = typename Dequant::Words;

    WarpMultiplier<Dequant, Shape>& all;
    TokenGroups tokens;
    typename Dequant::Values values;
    float d[fours][4] = {};

    __device__ explicit EightTokens(WarpMultiplier<Dequant, Shape>& multiplier)
        : all(multiplier),
          tokens(multiplier.tile.lane),
          values(multiplier.codebook.values, multiplier.codebook.pairs, multiplier.tile.lane) {}

    __device__ __forceinline__ void add(const Words& words, const RowFactors& factors,
                                        uint32_t rows) {
        float c[fours][4] = {};
        float x[fours][4] = {};
#pragma unroll
        for (int j = 0; j < 4; j += 2) {
            uint32_t a[8];
            Dequant::spread(words, values, j, a);
            Dequant::spread(words, values, j + 1, a + 4);
#pragma unroll
            for (int i = 0; i < fours; ++i) {
                uint32_t b[4];
                tokens.load(rows, i, j, b);
                multiply_steps(c[i], a, a + 4, b);
                constexpr uint32_t one = 0x3F803F80u;
                constexpr uint32_t ones[4] = {one, one, one, one};
                if constexpr (Dequant::has_offset) multiply_steps(x[i], ones, ones, b);
            }
        }
#pragma unroll
        for (int i = 0; i < fours; ++i) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                d[i][e] = fmaf(c[i][e], factors.of_product[e >> 1], d[i][e]);
                if constexpr (Dequant::has_offset)
                    d[i][e] = fmaf(x[i][e], factors.of_tokens[e >> 1], d[i][e]);
            }
        }
    }

    // While one block is multiplied, the words of the next are on their way.
    __device__ __forceinline__ void stage(uint32_t block, uint32_t n) {
        const uint32_t data = all.pipeline.data();
        const auto add_block = [&](const Words& words, uint32_t i) {
            add(words, Dequant::factors(words), data + i * 1024);
        };
        const auto load = [&](uint32_t i) { return all.tile.load(data, i, block + i); };
        Words words[2] = {load(0), {}};
        for (uint32_t i = 0; i < n; i += 2) {
            const bool pair = i + 1 < n;
            words[1] = load(pair ? i + 1 : i);
            add_block(words[0], i);
            if (!pair) break;
            words[0] = load(min(i + 2, n - 1));
            add_block(words[1], i + 1);
        }
    }

    // The same of the four blocks that have one head.
    __device__ __forceinline__ void superblock_stage() {
        static_assert(Stages<Dequant::type, Shape>::blocks(8) == 4);
        const uint32_t data = all.pipeline.data();
        const uint32_t lane = all.tile.lane;
        const auto load = [&](uint32_t i) {
            return Dequant::load_codes(all.tile.codes(data, i), lane);
        };
        const auto headers = Dequant::load_superblock_scales(all.tile.scales(data, 0), lane);
        Words words = load(0);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const Words ahead = load(min(i + 1, 3));
            add(words, Dequant::factors(headers, i), data + i * 1024);
            words = ahead;
        }
    }

    __device__ __forceinline__ void run(Accumulators<Shape>& accum, uint32_t n_blocks) {
        all.each_stage(n_blocks, [&](uint32_t block, uint32_t n) {
            if constexpr (Dequant::has_superblock_scales)
                superblock_stage();
            else
                stage(block, n);
        });
        const bool second = all.tile.lane & 2;  // of the fours, once both groups are together
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            float sum[2] = {};
#pragma unroll
            for (int i = 0; i < fours; ++i)
                sum[i] = d[i][e] + __shfl_xor_sync(0xFFFFFFFFu, d[i][e], 2);
            accum[e] = second ? sum[1] : sum[0];
        }
    }
};

// Sixteen tokens at most, with scales after the products: A has one of the two groups of 32 k of a
// block at a time, and zero in the lanes that have the other. That is half as many products as the
// fours would take.
template <class Dequant, class Shape>
struct SixteenTokens {
    using Words = typename Dequant::Words;

    WarpMultiplier<Dequant, Shape>& all;
    typename Dequant::Values values;
    uint32_t mine[2];  // of each group: all bits in the lanes that have it
    float d[2][4] = {};

    __device__ explicit SixteenTokens(WarpMultiplier<Dequant, Shape>& multiplier)
        : all(multiplier),
          values(multiplier.codebook.values, multiplier.codebook.pairs, multiplier.tile.lane) {
        mine[1] = 0u - (multiplier.tile.lane >> 1 & 1);
        mine[0] = ~mine[1];
    }

    __device__ __forceinline__ void add(const Words& words, const RowFactors (&factors)[2],
                                        uint32_t rows) {
        float c[2][2][4] = {};  // of each group, of each eight tokens
#pragma unroll
        for (int j = 0; j < 4; j += 2) {
            uint32_t a[2][8];
            Dequant::spread(words, values, j, a[1]);
            Dequant::spread(words, values, j + 1, a[1] + 4);
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                a[0][i] = a[1][i] & mine[0];
                a[1][i] &= mine[1];
            }
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                uint32_t b[4];
                all.tokens.load(rows + 1024 * i, j, b);
#pragma unroll
                for (int s = 0; s < 2; ++s) multiply_steps(c[s][i], a[s], a[s] + 4, b);
            }
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
#pragma unroll
                for (int s = 0; s < 2; ++s)
                    d[i][e] = fmaf(c[s][i][e], factors[s].of_product[e >> 1], d[i][e]);
            }
        }
    }

    __device__ __forceinline__ void stage(uint32_t n) {
        const uint32_t data = all.pipeline.data();
        const auto load = [&](uint32_t i) {
            return Dequant::load_codes(all.tile.codes(data, i), all.tile.lane);
        };
        Words words = load(0);
        for (uint32_t i = 0; i < n; ++i) {
            const Words ahead = load(min(i + 1, n - 1));
            RowFactors factors[2];
            Dequant::factors_of_groups(all.tile.scales(data, i), all.tile.lane, factors);
            add(words, factors, data + i * 2048);
            words = ahead;
        }
    }

    __device__ __forceinline__ void run(Accumulators<Shape>& accum, uint32_t n_blocks) {
        all.each_stage(n_blocks, [&](uint32_t, uint32_t n) { stage(n); });
#pragma unroll
        for (int i = 0; i < 8; ++i) accum[i] = d[i / 4][i % 4];
    }
};

}  // namespace moe::cuda
