// Mainloop of the sm90 grouped GEMM for narrow tiles of 17 to 48 rows, for fewer if bits must not
// depend on the number of rows, and for middle tiles (step 3 of sm90_grouped_gemm.cuh). A warpgroup
// multiplies 64 weight rows by all tokens of the work tile with wgmma.
//
// Inputs: packed weights and tokens in the pipeline. Output: float32 accumulators. Precondition:
// the width of the work tile is a multiple of 16 from 32 on.
//
// A block of 64 k is so short that every overhead shows. Each width therefore has its own loop. One
// set of A fragments is enough, because the other warpgroups of the SM dequantize meanwhile.
//
// 1. Wait for a stage's full barrier.
// 2. Per block of 64 k: dequantize to A fragments, issue wgmma, load the words of the next block,
//    wait for wgmma. A grid whose groups are whole blocks has A fragments without scales, and a
//    superblock type has them without the superblock's factor: the accumulators follow those. Not
//    where bits must be those of the wide mainloop, too.
// 3. Arrive at the stage's empty barrier.
#pragma once

#include "libmoe/cuda/dequant/accumulator_units.cuh"
#include "libmoe/cuda/device/wgmma.cuh"
#include "libmoe/cuda/grouped_gemm/sm90_pipeline.cuh"

namespace moe::cuda {

// The A fragments of the blocks in order, with scales.
template <class Dequant, class Shape, int width>
struct ScaledFragments {
    StagedTile<Dequant, Shape>& tile;
    typename Dequant::Table table;

    __device__ ScaledFragments(StagedTile<Dequant, Shape>& tile_, const Codebooks& codebook)
        : tile(tile_), table(codebook.values) {}
    __device__ __forceinline__ void dequantize(const typename Dequant::Words& words, uint32_t at,
                                               uint32_t i, uint32_t block, uint32_t (&a)[16],
                                               float (&)[width / 2]) {
        tile.dequantize(words, table, at, i, block, a);
    }
    __device__ __forceinline__ void finish(float (&)[width / 2]) {}
};

// Those of a superblock type in units of the superblock's factor, and so the accumulators.
template <class Dequant, class Shape, int width>
struct UnitFragments {
    StagedTile<Dequant, Shape>& tile;
    typename Dequant::Table table;
    AccumulatorUnits units;

    __device__ UnitFragments(StagedTile<Dequant, Shape>& tile_, const Codebooks& codebook)
        : tile(tile_), table(codebook.values) {}
    __device__ __forceinline__ void dequantize(const typename Dequant::Words& words, uint32_t at,
                                               uint32_t i, uint32_t block, uint32_t (&a)[16],
                                               float (&c)[width / 2]) {
        if (block % 4 == 0) scale_rows(c, units.change(tile.kept.units));
        tile.dequantize(words, table, at, i, block, a);
    }
    __device__ __forceinline__ void finish(float (&c)[width / 2]) { scale_rows(c, units.of_rows); }
};

// Those of a grid whose groups are whole blocks, without scales. Accumulators are in units of the
// scale of their group.
template <class Dequant, class Shape, int width>
struct LevelFragments {
    StagedTile<Dequant, Shape>& tile;
    typename Dequant::Values values;
    typename Dequant::LevelScales scales;
    AccumulatorUnits units;

    __device__ LevelFragments(StagedTile<Dequant, Shape>& tile_, const Codebooks& codebook)
        : tile(tile_), values(codebook.values, codebook.pairs, tile_.lane) {}
    __device__ __forceinline__ void dequantize(const typename Dequant::Words& words, uint32_t at,
                                               uint32_t, uint32_t block, uint32_t (&a)[16],
                                               float (&c)[width / 2]) {
        if (tile.keep_scales_of_group(scales, at, block))
            scale_rows(c, units.change(accumulator_units(scales.factors())));
#pragma unroll
        for (int j = 0; j < 4; ++j) Dequant::spread(words, values, scales, j, a + 4 * j);
    }
    __device__ __forceinline__ void finish(float (&c)[width / 2]) {
        scale_rows(c, units.after_levels<Dequant>());
    }
};

template <class Dequant>
constexpr bool has_level_scales = requires {
    typename Dequant::LevelScales;
};

template <class Dequant, class Shape>
struct WarpgroupMainloop {
    static constexpr PackedType type = Dequant::type;

    Pipeline<type, Shape>& pipeline;
    StagedTile<Dequant, Shape> tile;
    Codebooks codebook;
    bool is_batch_invariant;

    __device__ WarpgroupMainloop(const LaneWork& work, Pipeline<type, Shape>& pipeline_,
                                 const Codebooks& codebook_)
        : pipeline(pipeline_),
          tile(work, pipeline_),
          codebook(codebook_),
          is_batch_invariant(work.gemm.batch_invariant) {}

    // Multiplies the n blocks of a stage; `block` is the first.
    template <int width, class Fragments>
    __device__ __forceinline__ void stage(Fragments& fragments, float (&d)[width / 2],
                                          uint32_t block, uint32_t n) {
        const uint32_t data = pipeline.data(), at = tile.begin_of(data, block);
        uint32_t rows = wgmma_rows(data);
        typename Dequant::Words words = tile.load(at, 0, block);
        for (uint32_t i = 0; i < n; ++i) {
            uint32_t a[16];
            fragments.dequantize(words, at, i, block + i, a, d);
            wgmma_fence();
#pragma unroll
            for (int j = 0; j < 4; ++j)
                wgmma<width, operand_of<Dequant>()>(d, a + 4 * j, rows + 2 * j);
            wgmma_commit();
            rows += width * 128 / 16;
            const uint32_t next = min(i + 1, n - 1);
            words = tile.load(at, next, block + next);
            wgmma_wait<0>();
            keep(a);
            keep(d);
        }
    }

    template <int width, template <class, class, int> class Fragments>
    __device__ __forceinline__ void run_width(Accumulators<Shape>& accum, uint32_t n_blocks) {
        Fragments<Dequant, Shape, width> fragments(tile, codebook);
        constexpr uint32_t per_stage = Stages<type, Shape>::blocks(width, TilePart::small);
        float d[width / 2];
#pragma unroll
        for (float& value : d) value = 0.0f;
        for (uint32_t block = 0; block < n_blocks; block += per_stage) {
            pipeline.wait_full();
            stage<width>(fragments, d, block, min(per_stage, n_blocks - block));
            if (tile.lane == 0) mbarrier_arrive(pipeline.empty());
            pipeline.advance();
        }
        fragments.finish(d);
#pragma unroll
        for (int i = 0; i < width / 2; ++i) accum[i] = d[i];
    }

    template <template <class, class, int> class Fragments>
    __device__ __forceinline__ void run_with(Accumulators<Shape>& accum, uint32_t n_blocks) {
        Shape::with_width(tile.width, [&]<int n>(Width<n>) {
            if constexpr (n > Shape::most_rows_by_warp) run_width<n, Fragments>(accum, n_blocks);
        });
    }

    __device__ __forceinline__ void run(Accumulators<Shape>& accum, uint32_t n_blocks, int32_t) {
        if constexpr (has_level_scales<Dequant>) {
            if (tile.packed.records.are_whole && !is_batch_invariant)
                return run_with<LevelFragments>(accum, n_blocks);
        }
        if constexpr (requires { tile.kept.units; })
            return run_with<UnitFragments>(accum, n_blocks);
        else
            return run_with<ScaledFragments>(accum, n_blocks);
    }
};

}  // namespace moe::cuda
