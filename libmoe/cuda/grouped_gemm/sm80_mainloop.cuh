// The mainloops of the portable grouped GEMM: for all k a warp dequantizes its packed tiles and
// multiplies them with its tokens by mma.sync.m16n8k16. Wide tiles load ahead (run_ahead), others
// go stage by stage (run_stages).
//
// Lane 4 g + t reads columns 16 t to 16 t + 15 of token g of a fragment of eight tokens: the B
// registers of four steps, as the packed layout permutes k.
#pragma once

#include "libmoe/cuda/device/mma.cuh"
#include "libmoe/cuda/grouped_gemm/sm80_dequant.cuh"

namespace moe::cuda {

// rows: of tokens in a stage. k_blocks: in a stage.
template <PackedType kind, Operand operand, Sm80Form form, class Shape, int rows, int k_blocks>
class Sm80Mainloop {
  public:
    static constexpr int fragments = rows / 8 / Shape::warps_n;  // of a warp's tokens
    static constexpr int token_bytes = rows * sm80_row_bytes;
    using Accumulators = float[Shape::m_tiles][fragments][4];
    using Dequant = Sm80Dequant<kind, operand, form, k_blocks>;
    using Kept = typename Dequant::Kept[Shape::m_tiles];

    // Tokens and weights lie in a stage at zero as given: `tokens` is the shared address of the
    // first row, `weights` that of the warp's first packed tile.
    __device__ __forceinline__ Sm80Mainloop(const Sm80Call& call, const Sm80Work& work,
                                            const Sm80Stages& stages, const float* codebook,
                                            uint32_t tokens, const std::byte* weights)
        : dequant_{{call, stages.tile_bytes, codebook}}, weights_(weights) {
        const Sm80Lane lane;
        const int first_row = lane.warp % Shape::warps_n * fragments * 8;
        is_absent_ = first_tile() >= work.n_tiles(call);
        row_ = tokens + (first_row + lane.g) * sm80_row_bytes;
    }
    static __device__ __forceinline__ int first_tile() {
        return Sm80Lane().warp / Shape::warps_n * Shape::m_tiles;
    }

    template <class Pipeline>
    __device__ __forceinline__ void run(Accumulators& accum, Pipeline& pipeline) const {
        if constexpr (Shape::ahead > 0)
            run_ahead(accum, pipeline);
        else
            run_stages(accum, pipeline);
    }

    // Multiplies the n blocks of a stage, whose tokens and weights lie so far behind those of the
    // stage at zero. Words are loaded a block ahead. Accum: at least Accumulators.
    template <class Accum>
    __device__ __forceinline__ void multiply_stage(Accum& accum, int first, int n, int tokens,
                                                   int weights, Kept& kept) const {
        if (n == 0) return;
        const auto at = [&](int u) { return block_of(first, u, tokens, weights); };
        const Block start = at(0);
#pragma unroll
        for (int m = 0; m < Shape::m_tiles; ++m)
            scale_if<Dequant>(dequant_.begin_stage(tile_of(start, m), kept[m]), accum[m], kept[m]);
        Words words, ahead;
        load_words(start, kept, words);
        // Two blocks of few rows overlap where no branch is between them.
        if constexpr (k_blocks > 1 && fragments <= 2 && !sm80_is_by_value<kind>) {
            if (n == k_blocks) {
#pragma unroll 1
                for (int u = 0; u < k_blocks; u += 2) {
                    load_words(at(u + 1), kept, ahead);
                    multiply_block(accum, at(u), words, kept);
                    load_words(at(min(u + 2, k_blocks - 1)), kept, words);
                    multiply_block(accum, at(u + 1), ahead, kept);
                }
                return;
            }
        }
#pragma unroll 1
        for (int u = 0; u < n; ++u) {
            load_words(at(min(u + 1, n - 1)), kept, ahead);
            multiply_block(accum, at(u), words, kept);
#pragma unroll
            for (int m = 0; m < Shape::m_tiles; ++m) words[m] = ahead[m];
        }
    }

    // Accumulators without the unit that they were in.
    template <class Accum>
    __device__ __forceinline__ void finish(Accum& accum, const Kept& kept) const {
        if constexpr (Dequant::has_units) {
#pragma unroll
            for (int m = 0; m < Shape::m_tiles; ++m) scale_rows(accum[m], kept[m].last());
        }
    }

  private:
    struct Block {
        Sm80Block weights;  // of the warp's first packed tile
        uint32_t tokens;    // shared address of row g of the warp's first fragment
    };
    __device__ __forceinline__ Sm80Block tile_of(const Block& block, int m) const {
        Sm80Block of = block.weights;
        of.tile += m * dequant_.context.tile_bytes;
        return of;
    }
    using Words = typename Dequant::Words[Shape::m_tiles];
    using HalfBlock = uint32_t[Shape::m_tiles][2][4];

    __device__ __forceinline__ Block block_of(int first, int u, int tokens, int weights) const {
        int codes = u * sm80_code_stride<kind>;
        if constexpr (is_grid(kind)) {
            const GridRecords& grid = dequant_.context.call.records;
            codes = grid.codes(first + u) - grid.align_down(grid.begin(first));
        }
        const int number = first + u;
        return {{weights_ + weights, codes, number, first, k_blocks == 4 ? u : number & 3},
                row_ + tokens + u * token_bytes};
    }

    __device__ __forceinline__ void load_words(const Block& block, const Kept& kept,
                                               Words& words) const {
#pragma unroll
        for (int m = 0; m < Shape::m_tiles; ++m)
            words[m] = dequant_.load(tile_of(block, m), kept[m]);
    }

    // Stage by stage.
    template <class Pipeline>
    __device__ __forceinline__ void run_stages(Accumulators& accum, Pipeline& pipeline) const {
        Kept kept;
#pragma unroll 1
        for (int first = pipeline.fill(); first < pipeline.n_k_blocks(); first += k_blocks) {
            const int n = is_absent_ ? 0 : min(k_blocks, pipeline.n_k_blocks() - first);
            const int stage = pipeline.stage();
            if (first >= 0) multiply_stage(accum, first, n, stage, stage, kept);
            pipeline.turn(first);
        }
        finish(accum, kept);
    }

    // The loop of many rows, of whose warps a scheduler has two: so what an mma waits for is loaded
    // while others run. A ring has the tokens of `ahead` fragments; A registers are made half a
    // block ahead; the turn to the next stage comes before the last `ahead` fragments of a block,
    // when everything of its stage is in registers.
    template <class Pipeline>
    __device__ __forceinline__ void run_ahead(Accumulators& accum, Pipeline& pipeline) const {
        static_assert(k_blocks == 1);
        constexpr int ahead = Shape::ahead < fragments ? Shape::ahead : fragments;
        // With less than four packed tiles an mma would wait for the sum of the one before.
        constexpr int together = Shape::m_tiles < 4 && ahead > 1 ? 2 : 1;
        static_assert(2 * fragments % ahead == 0 && ahead % together == 0);
        const int n = pipeline.n_k_blocks();
        if (is_absent_) {
#pragma unroll 1
            for (int k_block = pipeline.fill(); k_block < n; ++k_block) pipeline.turn(k_block);
            return;
        }
#pragma unroll 1
        for (int k_block = pipeline.fill(); k_block < 0; ++k_block) pipeline.turn(k_block);
        Halves halves(*this);
        uint4 ring[ahead];
        const auto block_at = [&](int k_block, int stage) {
            return block_of(k_block, 0, stage, stage);
        };
        Block block = block_at(0, pipeline.stage());
        halves.begin(block);
#pragma unroll
        for (int f = 0; f < ahead; ++f) ring[f] = load_tokens(block, f);
#pragma unroll 1
        for (int k_block = 0; k_block < n; ++k_block) {
            Block next = block;
            halves.scale(accum);
#pragma unroll
            for (int f = 0; f < 2 * fragments; f += together) {
                if (f == 0) halves.make_second(block);
                if (f == 2 * fragments - ahead) {
                    next = block_at(min(k_block + 1, n - 1), pipeline.next());
                    pipeline.turn(k_block);
                    halves.begin(next);
                }
                multiply_fragments<together>(accum, f % fragments, halves.a[f / fragments],
                                             ring + f % ahead);
#pragma unroll
                for (int i = f; i < f + together; ++i)
                    ring[i % ahead] = i + ahead < 2 * fragments
                                          ? load_tokens(block, i + ahead)
                                          : load_tokens(next, i + ahead - 2 * fragments);
            }
            block = next;
        }
        finish(accum, halves.kept);
    }

    // Byte `byte` of row g of a fragment, swizzled.
    static __device__ __forceinline__ uint32_t token_at(uint32_t row, int fragment, int byte) {
        const Sm80Lane lane;
        return row + 8 * fragment * sm80_row_bytes + ((byte & ~15) ^ 16 * lane.g) + byte % 16;
    }

    // B registers of two steps, in the order of use: fragments of the first half of a block, then
    // those of the second.
    __device__ __forceinline__ uint4 load_tokens(const Block& block, int number) const {
        const int half = number / fragments;
        return load_shared_16(
            token_at(block.tokens, number % fragments, 32 * Sm80Lane().t + 16 * half));
    }

    template <int n, class Accum>
    static __device__ __forceinline__ void multiply_fragments(Accum& accum, int first,
                                                              const HalfBlock& a, const uint4* b) {
#pragma unroll
        for (int step = 0; step < 2; ++step)
#pragma unroll
            for (int i = 0; i < n; ++i)
#pragma unroll
                for (int m = 0; m < Shape::m_tiles; ++m)
                    mma_16x8x16<operand>(accum[m][first + i], a[m][step], step ? b[i].z : b[i].x,
                                         step ? b[i].w : b[i].y);
    }

    // A registers of the two halves of a block. 16-bit weights are loaded by half, since words and
    // operands are the same; words of the others stay for the second half.
    struct Halves {
        static constexpr bool keeps_words = code_bits(kind) < 16;
        const Sm80Mainloop& loop;
        HalfBlock a[2];
        typename Dequant::Words words[keeps_words ? Shape::m_tiles : 1];
        Kept kept;
        bool begins[Shape::m_tiles];
        float2 change[Shape::m_tiles];

        __device__ __forceinline__ explicit Halves(const Sm80Mainloop& mainloop) : loop(mainloop) {}
        // Makes the first half, when the second of the block before is still in use. Past the last
        // block it is made once more, and not used.
        __device__ __forceinline__ void begin(const Block& block) {
#pragma unroll
            for (int m = 0; m < Shape::m_tiles; ++m) {
                const Sm80Block of_tile = loop.tile_of(block, m);
                begins[m] = loop.dequant_.begin_stage(of_tile, kept[m]);
                begins[m] |= loop.dequant_.begin_block(of_tile, kept[m]);
                if constexpr (Dequant::has_units) {
                    if (begins[m]) change[m] = kept[m].change();
                }
                if constexpr (keeps_words) words[m] = loop.dequant_.load(of_tile, kept[m]);
            }
            make(block, 0);
        }
        __device__ __forceinline__ void make_second(const Block& block) {
            make(block, 1);
        }
        // Before the first mma of a block.
        __device__ __forceinline__ void scale(Accumulators& accum) const {
            if constexpr (Dequant::has_units) {
#pragma unroll
                for (int m = 0; m < Shape::m_tiles; ++m)
                    if (begins[m]) scale_rows(accum[m], change[m]);
            }
        }

      private:
        __device__ __forceinline__ void make(const Block& block, int half) {
#pragma unroll
            for (int m = 0; m < Shape::m_tiles; ++m)
                loop.dequant_.dequantize_half(
                    keeps_words ? words[m] : loop.dequant_.load(loop.tile_of(block, m), kept[m]),
                    kept[m], half, a[half][m]);
        }
    };

    template <class Accum>
    __device__ __forceinline__ void multiply_block(Accum& accum, const Block& block,
                                                   const Words& words, Kept& kept) const {
#pragma unroll
        for (int m = 0; m < Shape::m_tiles; ++m)
            scale_if<Dequant>(dequant_.begin_block(tile_of(block, m), kept[m]), accum[m], kept[m]);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            HalfBlock a;
#pragma unroll
            for (int m = 0; m < Shape::m_tiles; ++m)
                dequant_.dequantize_half(words[m], kept[m], half, a[m]);
#pragma unroll
            for (int i = 0; i < fragments; ++i) {
                const uint4 b = load_tokens(block, half * fragments + i);
                multiply_fragments<1>(accum, i, a, &b);
            }
        }
    }

    Dequant dequant_;
    const std::byte* weights_;  // of the warp's first packed tile in a stage at zero
    bool is_absent_;            // the warp has no packed tile
    uint32_t row_;              // shared address of row g of its first fragment there
};

}  // namespace moe::cuda
