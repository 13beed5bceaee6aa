// Step 3 of the grouped kernel (grouped.cuh) for few rows: every warp by itself, on the products of
// 16 weight rows and eight tokens of mma.sync. Decoding takes the time, not the products; without
// the waits of a warpgroup a warp decodes on while its products run. Sums lie as those of wgmma do.
#pragma once

#include "libmoe/cuda/device/mma.cuh"
#include "libmoe/cuda/experts/grouped_ring.cuh"

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

template <class Fragment, class Shape>
struct NarrowMultiplier {
    static constexpr PackedType type = Fragment::type;

    Ring<type, Shape>& ring;
    StagedTile<Fragment, Shape> tile;
    TokenFragments tokens;
    uint32_t codebook;

    __device__ NarrowMultiplier(const LaneWork& work, Ring<type, Shape>& ring_, uint32_t codebook_)
        : ring(ring_), tile(work), tokens(work.lane), codebook(codebook_) {}

    template <int width>
    __device__ __forceinline__ void multiply(float (&d)[width / 8][4], const uint32_t (&a)[16],
                                             uint32_t rows) const {
#pragma unroll
        for (int j = 0; j < 4; j += 2) {
#pragma unroll
            for (int i = 0; i < width / 8; ++i) {
                uint32_t b[4];
                tokens.load(rows + 1024 * i, j, b);
                mma_16x8x16<Operand::bf16>(d[i], a + 4 * j, b[0], b[1]);
                mma_16x8x16<Operand::bf16>(d[i], a + 4 * j + 4, b[2], b[3]);
            }
        }
    }

    // Blocks [block, block + n), a stage.
    template <int width>
    __device__ __forceinline__ void stage(float (&d)[width / 8][4], uint32_t block, uint32_t n) {
        const uint32_t data = ring.data();
        typename Fragment::Words words = tile.load(data, 0, block);
        for (uint32_t i = 0; i < n; ++i) {
            const uint32_t next = i + 1 < n ? i + 1 : i;
            const typename Fragment::Words ahead = tile.load(data, next, block + next);
            uint32_t a[16];
            Fragment::decode(words, codebook, a);
            multiply<width>(d, a, data + i * width * 128);
            words = ahead;
        }
    }

    __device__ __forceinline__ void run(Sums<Shape>& sums, uint32_t n_blocks) {
#pragma unroll
        for (float& sum : sums) sum = 0.0f;
        Shape::with_width(tile.width, [&]<int width>(Width<width>) {
            float d[width / 8][4] = {};
            for (uint32_t block = 0; block < n_blocks; block += tile.per_stage) {
                mbarrier_wait(ring.full(), ring.phase);
                stage<width>(d, block, min(tile.per_stage, n_blocks - block));
                __syncwarp();
                if (tile.lane == 0) mbarrier_arrive(ring.empty());
                ring.advance();
            }
#pragma unroll
            for (int i = 0; i < width / 2; ++i) sums[i] = d[i / 4][i % 4];
        });
    }
};

}  // namespace moe::cuda
