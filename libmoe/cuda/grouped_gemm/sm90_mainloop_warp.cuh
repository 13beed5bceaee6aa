// Mainloop of the sm90 grouped GEMM for up to 16 rows (step 3 of sm90_grouped_gemm.cuh). Every warp
// multiplies by itself with mma.sync: 16 weight rows by 8 tokens per instruction.
//
// Inputs: packed weights and tokens in the pipeline. Output: float32 accumulators in the layout of
// wgmma. Precondition: the work tile has at most 16 rows.
//
// Dequantization limits the speed here, not the tensor cores. Without warpgroup synchronization a
// warp dequantizes the next block while its mma instructions run.
//
// 1. Wait for a stage's full barrier.
// 2. Per block of 64 k: dequantize to A fragments, load B fragments, multiply; the words of the
//    next block are loaded meanwhile. Types with scales_after apply scales to accumulators instead.
// 3. Arrive at the stage's empty barrier.
#pragma once

#include "libmoe/cuda/dequant/accumulator_units.cuh"
#include "libmoe/cuda/device/mma.cuh"
#include "libmoe/cuda/grouped_gemm/sm90_pipeline.cuh"

namespace moe::cuda {

// B fragments of eight tokens for mma steps j and j + 1 of a block, both k halves of each.
struct TokenFragments {
    uint32_t offset;  // of the row that this lane addresses for ldmatrix, step 0

    __device__ explicit TokenFragments(uint32_t lane)
        : offset((lane & 7) * 128 + (((lane >> 3) ^ (lane & 7)) << 4)) {}

    __device__ __forceinline__ void load(uint32_t tokens, int j, uint32_t (&b)[4]) const {
        load_matrices(tokens + (offset ^ (32 * j)), b);
    }
};

// B fragments of four tokens (number `four`) that keep the two groups of 32 k of a block apart.
// Column n is token n % 4 with group n / 4; lanes of the other group hold zeros. A lane's two
// columns of the accumulator so belong to one group.
struct TokenGroups {
    uint32_t offset;
    uint32_t mine;  // 1 if the lane's k belong to its column's group

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
template <class Dequant, class Shape, int width>
struct WholeGroups;

// Two mma steps.
template <Operand operand>
__device__ __forceinline__ void multiply_steps(float (&to)[4], const uint32_t* first,
                                               const uint32_t* second, const uint32_t (&b)[4]) {
    mma_16x8x16<operand>(to, first, b[0], b[1]);
    mma_16x8x16<operand>(to, second, b[2], b[3]);
}

template <class Dequant, class Shape>
struct WarpMainloop {
    static constexpr PackedType type = Dequant::type;

    Pipeline<type, Shape>& pipeline;
    StagedTile<Dequant, Shape> tile;
    TokenFragments tokens;
    Codebooks codebook;

    __device__ WarpMainloop(const LaneWork& work, Pipeline<type, Shape>& pipeline_,
                            const Codebooks& codebook_)
        : pipeline(pipeline_), tile(work, pipeline_), tokens(work.lane), codebook(codebook_) {}

    template <int width>
    __device__ __forceinline__ void multiply(float (&d)[width / 8][4], const uint32_t (&a)[16],
                                             uint32_t rows) const {
#pragma unroll
        for (int j = 0; j < 4; j += 2) {
#pragma unroll
            for (int i = 0; i < width / 8; ++i) {
                uint32_t b[4];
                tokens.load(rows + 1024 * i, j, b);
                multiply_steps<operand_of<Dequant>()>(d[i], a + 4 * j, a + 4 * j + 4, b);
            }
        }
    }

    // Multiplies the n blocks of a stage; `block` is the first. Calls begin(block) before each.
    template <int width, class Tile, class Begin>
    __device__ __forceinline__ void stage(Tile& from, const typename Dequant::Table& table,
                                          float (&d)[width / 8][4], uint32_t block, uint32_t n,
                                          Begin begin) {
        const uint32_t data = pipeline.data(), at = from.begin_of(data, block);
        typename Dequant::Words words = from.load(at, 0, block);
        for (uint32_t i = 0; i < n; ++i) {
            const uint32_t next = i + 1 < n ? i + 1 : i;
            const typename Dequant::Words ahead = from.load(at, next, block + next);
            begin(block + i);
            uint32_t a[16];
            from.dequantize(words, table, at, i, block + i, a);
            multiply<width>(d, a, data + i * width * 128);
            words = ahead;
        }
    }

    // Calls add(first block, number of blocks) for every stage.
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
        for (float& value : accum) value = 0.0f;
        if constexpr (Dequant::scales_after) {
            if constexpr (is_grid(type)) {
                if (tile.packed.records.are_whole && n_rows <= 8)
                    return WholeGroups<Dequant, Shape, 8>(*this).run(accum, n_blocks);
                if (tile.packed.records.are_whole)
                    return WholeGroups<Dequant, Shape, 16>(*this).run(accum, n_blocks);
            }
            if (n_rows <= 4) return EightTokens<Dequant, Shape, 1>(*this).run(accum, n_blocks);
            // Sums of a second four cost more than scaled operands, unless blocks come by
            // superblocks and codes are nibbles.
            if constexpr (Dequant::has_offset &&
                          (!Dequant::has_superblock_scales || code_bits(type) > 4)) {
                if (n_rows <= 8) return run_width<8>(accum, n_blocks);
            } else if (n_rows <= 8) {
                return EightTokens<Dequant, Shape, 2>(*this).run(accum, n_blocks);
            }
            if constexpr (Dequant::groups_apart)
                return SixteenTokens<Dequant, Shape>(*this).run(accum, n_blocks);
        } else if (n_rows <= 8) {
            return run_width<8>(accum, n_blocks);
        }
        run_width<16>(accum, n_blocks);
    }

    // With bfloat16 operands accumulators of a superblock type are in units of the superblock's
    // factor.
    template <int width>
    __device__ __forceinline__ void run_width(Accumulators<Shape>& accum, uint32_t n_blocks) {
        const typename Dequant::Table table(codebook.values);
        float d[width / 8][4] = {};
        if constexpr (has_superblock_units<Dequant>) {
            StagedTile<InSuperblockUnits<Dequant>, Shape> in_units(tile);
            AccumulatorUnits units;
            each_stage(n_blocks, [&](uint32_t first, uint32_t n) {
                stage<width>(in_units, table, d, first, n, [&](uint32_t block) {
                    if (block % 4 == 0) scale_rows(d, units.change(in_units.kept.units));
                });
            });
            scale_rows(d, units.of_rows);
        } else {
            each_stage(n_blocks, [&](uint32_t block, uint32_t n) {
                stage<width>(tile, table, d, block, n, [](uint32_t) {});
            });
        }
#pragma unroll
        for (int i = 0; i < width / 2; ++i) accum[i] = d[i / 4][i % 4];
    }
};

// Mainloop for a grid whose groups are whole blocks of 64 k. Operands are levels. Accumulators of
// integers are in units of the scale of their group; with those of a codebook that was slower than
// a sum for each block (bench/notes/grouped_gemm.md).
template <class Dequant, class Shape, int width>
struct WholeGroups {
    using Words = typename Dequant::Words;
    static constexpr bool in_units = !has_codebook(Dequant::type);

    WarpMainloop<Dequant, Shape>& mainloop;
    typename Dequant::Values values;
    typename Dequant::LevelScales scales;
    AccumulatorUnits units;
    float d[width / 8][4] = {};

    __device__ explicit WholeGroups(WarpMainloop<Dequant, Shape>& mainloop_)
        : mainloop(mainloop_),
          values(mainloop_.codebook.values, mainloop_.codebook.pairs, mainloop_.tile.lane) {}

    __device__ __forceinline__ void add(const uint32_t (&a)[16], uint32_t rows) {
        if constexpr (in_units) return mainloop.template multiply<width>(d, a, rows);
        float c[width / 8][4] = {};
        mainloop.template multiply<width>(c, a, rows);
        const RowFactors factors = scales.factors();
#pragma unroll
        for (int e = 0; e < width / 2; ++e)
            d[e / 4][e % 4] =
                fmaf(c[e / 4][e % 4], factors.of_product[e >> 1 & 1], d[e / 4][e % 4]);
    }

    __device__ __forceinline__ void stage(uint32_t block, uint32_t n) {
        const uint32_t data = mainloop.pipeline.data();
        const uint32_t at = mainloop.tile.begin_of(data, block);
        Words words = mainloop.tile.load(at, 0, block);
        for (uint32_t i = 0; i < n; ++i) {
            const uint32_t next = min(i + 1, n - 1);
            const Words ahead = mainloop.tile.load(at, next, block + next);
            const bool begins = mainloop.tile.keep_scales_of_group(scales, at, block + i);
            if (in_units && begins)
                scale_rows(d, units.change(accumulator_units(scales.factors())));
            uint32_t a[16];
#pragma unroll
            for (int j = 0; j < 4; ++j) Dequant::spread(words, values, scales, j, a + 4 * j);
            add(a, data + i * width * 128);
            words = ahead;
        }
    }

    __device__ __forceinline__ void run(Accumulators<Shape>& accum, uint32_t n_blocks) {
        mainloop.each_stage(n_blocks, [&](uint32_t block, uint32_t n) { stage(block, n); });
        scale_rows(d, units.after_levels<Dequant>());
#pragma unroll
        for (int i = 0; i < width / 2; ++i) accum[i] = d[i / 4][i % 4];
    }
};

// The LevelScales of a GroupedDequant, where it has them.
template <class Dequant>
struct LevelScalesOf {
    struct Type {};
};
template <class Dequant>
requires requires {
    typename Dequant::LevelScales;
}
struct LevelScalesOf<Dequant> {
    using Type = typename Dequant::LevelScales;
};

// Mainloop for up to eight tokens in fours; scales are applied to the accumulators.
template <class Dequant, class Shape, int fours>
struct EightTokens {
    using Words = typename Dequant::Words;

    WarpMainloop<Dequant, Shape>& mainloop;
    TokenGroups tokens;
    typename Dequant::Values values;
    typename LevelScalesOf<Dequant>::Type level_scales;  // of a grid
    float d[fours][4] = {};

    __device__ explicit EightTokens(WarpMainloop<Dequant, Shape>& mainloop_)
        : mainloop(mainloop_),
          tokens(mainloop_.tile.lane),
          values(mainloop_.codebook.values, mainloop_.codebook.pairs, mainloop_.tile.lane) {}

    // spread(j, a): the registers of step j.
    template <class Spread>
    __device__ __forceinline__ void add(const Spread& spread, const RowFactors& factors,
                                        uint32_t rows) {
        float c[fours][4] = {};
        float x[fours][4] = {};
#pragma unroll
        for (int j = 0; j < 4; j += 2) {
            uint32_t a[8];
            spread(j, a);
            spread(j + 1, a + 4);
#pragma unroll
            for (int i = 0; i < fours; ++i) {
                uint32_t b[4];
                tokens.load(rows, i, j, b);
                multiply_steps<operand_of<Dequant>()>(c[i], a, a + 4, b);
                constexpr uint32_t one = 0x3F803F80u;
                constexpr uint32_t ones[4] = {one, one, one, one};
                if constexpr (Dequant::has_offset)
                    multiply_steps<Operand::bf16>(x[i], ones, ones, b);
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

    __device__ __forceinline__ auto unscaled(const Words& words) const {
        return [&](int j, uint32_t* a) { Dequant::spread(words, values, j, a); };
    }

    // The words of the next block are loaded while one block is multiplied.
    __device__ __forceinline__ void stage(uint32_t block, uint32_t n) {
        const uint32_t data = mainloop.pipeline.data();
        const uint32_t at = mainloop.tile.begin_of(data, block);
        const auto add_block = [&](const Words& words, uint32_t i) {
            if constexpr (is_grid(Dequant::type)) {
                mainloop.tile.keep_scales(level_scales, at, i, block + i);
                add([&](int j, uint32_t* a) { Dequant::spread(words, values, level_scales, j, a); },
                    level_scales.factors(), data + i * 1024);
            } else {
                add(unscaled(words), Dequant::factors(words), data + i * 1024);
            }
        };
        const auto load = [&](uint32_t i) { return mainloop.tile.load(at, i, block + i); };
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

    // The four blocks of a superblock share their scales.
    __device__ __forceinline__ void superblock_stage(uint32_t block) {
        static_assert(Stages<Dequant::type, Shape>::blocks(8, TilePart::small) == 4);
        const uint32_t data = mainloop.pipeline.data();
        const uint32_t at = mainloop.tile.begin_of(data, block);
        const uint32_t lane = mainloop.tile.lane;
        const auto load = [&](uint32_t i) {
            return Dequant::load_codes(mainloop.tile.codes(at, i), lane);
        };
        mainloop.tile.keep_scales(mainloop.tile.kept, at, 0, 0);
        Words words = load(0);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const Words ahead = load(min(i + 1, 3));
            add(unscaled(words), Dequant::factors(mainloop.tile.kept, i), data + i * 1024);
            words = ahead;
        }
    }

    __device__ __forceinline__ void run(Accumulators<Shape>& accum, uint32_t n_blocks) {
        mainloop.each_stage(n_blocks, [&](uint32_t block, uint32_t n) {
            if constexpr (Dequant::has_superblock_scales)
                superblock_stage(block);
            else
                stage(block, n);
        });
        const bool second =
            mainloop.tile.lane & 2;  // selects the second four, once both groups are added
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            float total[2] = {};
#pragma unroll
            for (int i = 0; i < fours; ++i)
                total[i] = d[i][e] + __shfl_xor_sync(0xFFFFFFFFu, d[i][e], 2);
            accum[e] = (second ? total[1] : total[0]) * without_residual<Dequant>;
        }
    }
};

// Mainloop for up to sixteen tokens; scales are applied to the accumulators. A holds one of the two
// groups of 32 k at a time, with zeros in the lanes of the other. It issues half as many mma
// instructions as EightTokens would.
template <class Dequant, class Shape>
struct SixteenTokens {
    using Words = typename Dequant::Words;

    WarpMainloop<Dequant, Shape>& mainloop;
    typename Dequant::Values values;
    uint32_t mine[2];  // per group: all bits set in the lanes that hold it
    float d[2][4] = {};

    __device__ explicit SixteenTokens(WarpMainloop<Dequant, Shape>& mainloop_)
        : mainloop(mainloop_),
          values(mainloop_.codebook.values, mainloop_.codebook.pairs, mainloop_.tile.lane) {
        mine[1] = 0u - (mainloop_.tile.lane >> 1 & 1);
        mine[0] = ~mine[1];
    }

    __device__ __forceinline__ void add(const Words& words, const RowFactors (&factors)[2],
                                        uint32_t rows) {
        float c[2][2][4] = {};  // [group][eight tokens]
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
                mainloop.tokens.load(rows + 1024 * i, j, b);
#pragma unroll
                for (int s = 0; s < 2; ++s)
                    multiply_steps<operand_of<Dequant>()>(c[s][i], a[s], a[s] + 4, b);
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

    __device__ __forceinline__ void stage(uint32_t block, uint32_t n) {
        const uint32_t data = mainloop.pipeline.data();
        const uint32_t at = mainloop.tile.begin_of(data, block);
        const auto load = [&](uint32_t i) {
            return Dequant::load_codes(mainloop.tile.codes(at, i), mainloop.tile.lane);
        };
        Words words = load(0);
        for (uint32_t i = 0; i < n; ++i) {
            const Words ahead = load(min(i + 1, n - 1));
            RowFactors factors[2];
            Dequant::factors_of_groups(mainloop.tile.scales(at, i), mainloop.tile.lane, factors);
            add(words, factors, data + i * 2048);
            words = ahead;
        }
    }

    __device__ __forceinline__ void run(Accumulators<Shape>& accum, uint32_t n_blocks) {
        mainloop.each_stage(n_blocks, [&](uint32_t block, uint32_t n) { stage(block, n); });
#pragma unroll
        for (int i = 0; i < 8; ++i) accum[i] = d[i / 4][i % 4] * without_residual<Dequant>;
    }
};

}  // namespace moe::cuda
