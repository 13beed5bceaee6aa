// The mainloops of the portable grouped GEMM: for all k a warp dequantizes its packed tiles and
// multiplies them with its tokens by mma.sync.m16n8k16. Wide tiles load ahead (run_ahead), narrow
// ones go stage by stage (run_stages).
//
// Lane 4 g + t reads columns 16 t to 16 t + 15 of token g of a fragment of eight tokens: the B
// registers of four steps, as the packed layout permutes k.
#pragma once

#include <type_traits>

#include "libmoe/cuda/dequant/grouped_blocks.cuh"
#include "libmoe/cuda/dequant/value_blocks.hpp"
#include "libmoe/cuda/device/mma.cuh"
#include "libmoe/cuda/grouped_gemm/sm80_stage.cuh"

namespace moe::cuda {

// Types whose dequantizer for Hopper's grouped GEMM needs no instruction of Hopper's and no table
// of its own: it is quicker than values one by one. E2M1 multiplies by such an instruction, but
// with float16 operands.
template <PackedType kind, Operand operand>
constexpr bool sm80_takes_grouped_dequant =
    kind == PackedType::q8_0 || is_grouped_grid(kind) ||
    (has_ggml_scales(kind) && !is_iq_grid(kind)) ||
    (operand == Operand::f16 && (kind == PackedType::nvfp4 || kind == PackedType::mxfp4));

template <PackedType kind, Operand operand>
using Sm80GroupedDequant =
    std::conditional_t<operand == Operand::f16, InF16<GroupedDequant<kind>>, GroupedDequant<kind>>;

// The factor that accumulators still lack.
template <PackedType kind, Operand operand>
constexpr float sm80_residual_scale() {
    if constexpr (sm80_takes_grouped_dequant<kind, operand>)
        return Sm80GroupedDequant<kind, operand>::residual_scale;
    else
        return residual_scale_of<kind, operand>();
}

// A lane holds these of a block.
template <PackedType kind, Operand operand>
constexpr auto sm80_block_words() {
    if constexpr (sm80_takes_grouped_dequant<kind, operand>)
        return std::type_identity<typename Sm80GroupedDequant<kind, operand>::Words>{};
    else
        return std::type_identity<typename ValueDequant<kind>::Words>{};
}

// A lane keeps these of a grid besides: the scales of the blocks before `until`. Loading a record
// takes half as many instructions as dequantizing a block.
template <class Dequant>
struct Sm80KeptScales {
    typename Dequant::KeptScales scales;
    int until = 0;
};
struct Sm80NothingKept {};
template <PackedType kind, Operand operand>
constexpr auto sm80_kept_scales() {
    if constexpr (is_grouped_grid(kind))
        return std::type_identity<Sm80KeptScales<Sm80GroupedDequant<kind, operand>>>{};
    else
        return std::type_identity<Sm80NothingKept>{};
}

// rows: of tokens in a stage. k_blocks: in a stage.
template <PackedType kind, Operand operand, class Shape, int rows, int k_blocks>
class Sm80Mainloop {
  public:
    static constexpr int fragments = rows / 8 / Shape::warps_n;  // of a warp's tokens
    static constexpr int token_bytes = rows * sm80_row_bytes;
    using Accumulators = float[Shape::m_tiles][fragments][4];
    using Values = ValueDequant<kind>;
    using Words = typename Values::Words;

    // Tokens and weights lie in a stage at zero as given: `tokens` is the shared address of the
    // first row, `weights` that of the warp's first packed tile.
    __device__ __forceinline__ Sm80Mainloop(const Sm80Call& call, const Sm80Work& work,
                                            const Sm80Stages& stages, const float* codebook,
                                            uint32_t tokens, const std::byte* weights)
        : call_(call), stages_(stages), codebook_(codebook), weights_(weights) {
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

    using BlockWords = typename decltype(sm80_block_words<kind, operand>())::type;
    using KeptScales = typename decltype(sm80_kept_scales<kind, operand>())::type;

    // Multiplies the n blocks of a stage, whose tokens and weights lie so far behind those of the
    // stage at zero. overlaps: a full stage has no branches, so that two blocks overlap. Accum: at
    // least Accumulators.
    template <bool overlaps, class Accum>
    __device__ __forceinline__ void multiply_stage(Accum& accum, int first, int n, int tokens,
                                                   int weights,
                                                   KeptScales (&kept)[Shape::m_tiles]) const {
        const auto multiply = [&](int u) {
            multiply_block(accum, block_of(first, u, tokens, weights), kept);
        };
        if (overlaps && n == k_blocks) {
#pragma unroll 2
            for (int u = 0; u < k_blocks; ++u) multiply(u);
        } else {
#pragma unroll 1
            for (int u = 0; u < n; ++u) multiply(u);
        }
    }

  private:
    struct Block {
        uint32_t tokens;           // shared address of row g of the warp's first fragment
        const std::byte* weights;  // of the warp's first packed tile in the stage
        int codes;                 // where the k_block begins in a packed tile
        int first;                 // k_block of the stage
        int k0;
    };

    static constexpr int scale_offset = k_blocks * sm80_code_stride<kind>;

    __device__ __forceinline__ Block block_of(int first, int u, int tokens, int weights) const {
        int codes = u * sm80_code_stride<kind>;
        if constexpr (is_grid(kind)) {
            const GridRecords& grid = call_.records;
            codes = grid.codes(first + u) - grid.align_down(grid.begin(first));
        }
        return {row_ + tokens + u * token_bytes, weights_ + weights, codes, first,
                64 * (first + u)};
    }

    // Stage by stage. Blocks of many rows have enough to do in one.
    template <class Pipeline>
    __device__ __forceinline__ void run_stages(Accumulators& accum, Pipeline& pipeline) const {
        constexpr bool overlaps = k_blocks > 1 && rows < Shape::max_rows;
        KeptScales kept[Shape::m_tiles];
#pragma unroll 1
        for (int first = 0; first < pipeline.n_k_blocks(); first += k_blocks) {
            const int n = is_absent_ ? 0 : min(k_blocks, pipeline.n_k_blocks() - first);
            const int stage = pipeline.stage();
            multiply_stage<overlaps>(accum, first, n, stage, stage, kept);
            pipeline.turn(first);
        }
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
            for (int k_block = 0; k_block < n; ++k_block) pipeline.turn(k_block);
            return;
        }
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
            Block next;
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
    }

    // Byte `byte` of row g of a fragment, swizzled.
    static __device__ __forceinline__ uint32_t token_at(uint32_t row, int fragment, int byte) {
        const Sm80Lane lane;
        return row + 8 * fragment * sm80_row_bytes + ((byte & ~15) ^ 16 * lane.g) + byte % 16;
    }

    __device__ __forceinline__ Words load_values(const Block& block, int m) const {
        const PackedType type = type_of<kind>(call_.gemm.weights);
        const std::byte* tile = block.weights + m * stages_.tile_bytes;
        const std::byte* codes = tile + block.codes;
        const std::byte* scales = codes + block_code_bytes(type, 4);
        if constexpr (has_superblock(kind)) scales = tile + scale_offset;
        if constexpr (is_grid(kind)) scales = tile + records_of(block);
        return Values::load(type, codes, scales, Sm80Lane().id, block.k0);
    }

    // Where a packed tile of the stage has the records of a block's unit.
    __device__ __forceinline__ int records_of(const Block& block) const {
        const GridRecords& grid = call_.records;
        const int records = grid.records(block.k0 / 64);
        if (!grid.begins_before(block.k0 / 64, block.first))
            return records - grid.align_down(grid.begin(block.first));
        return sm80_records_apart(grid, stages_.tile_bytes) + records - grid.align_down(records);
    }

    __device__ __forceinline__ void dequantize(const Words& words, int step,
                                               uint32_t (&a)[4]) const {
        constexpr float inverse = 1.0f / residual_scale_of<kind, operand>();
#pragma unroll
        for (int reg = 0; reg < 4; ++reg) {
            if constexpr (requires { Values::template operands<operand>(words, step, reg); }) {
                a[reg] = Values::template operands<operand>(words, step, reg);
            } else {
                const FloatPair value = Values::pair(words, codebook_, step, reg);
                a[reg] = operand_pair<operand>({value.low * inverse, value.high * inverse});
            }
        }
    }

    // Words of a block, and the registers of two of its steps.
    static constexpr bool is_grouped = sm80_takes_grouped_dequant<kind, operand>;

    // Loads the scales of a grid where those that are kept do not serve the block. Blocks come in
    // order.
    __device__ __forceinline__ void keep_scales(const Block& block, int m, uint32_t tile,
                                                KeptScales& kept) const {
        const int number = block.k0 / 64;
        if (number < kept.until) return;
        const GridRecords& records = call_.records;
        // A group begins with its unit, whose records are right before the codes.
        kept.until = number + static_cast<int>(records.group_blocks);
        const auto lane = static_cast<uint32_t>(Sm80Lane().id);
        const int from_codes = records.record(static_cast<int>(lane & 3)) - records.front_bytes;
        kept.scales.load(records, tile + block.codes + from_codes, lane);
    }

    __device__ __forceinline__ BlockWords load_block(const Block& block, int m,
                                                     KeptScales& kept) const {
        if constexpr (!is_grouped) {
            return load_values(block, m);
        } else {
            const uint32_t tile = shared_address(block.weights) + m * stages_.tile_bytes;
            const uint32_t codes = tile + block.codes;
            const auto lane = static_cast<uint32_t>(Sm80Lane().id);
            using Grouped = Sm80GroupedDequant<kind, operand>;
            if constexpr (is_grid(kind)) {
                keep_scales(block, m, tile, kept);
                return Grouped::load(codes, lane);
            } else if constexpr (has_superblock(kind)) {
                typename Grouped::KeptScales scales;
                scales.load(tile + scale_offset, lane);
                return Grouped::load(codes, scales, lane, block.k0 / 64 & 3);
            } else {
                return Grouped::load(codes, codes + block_code_bytes(kind, 4), lane);
            }
        }
    }

    __device__ __forceinline__ void dequantize_half(const BlockWords& words, const KeptScales& kept,
                                                    int half, uint32_t (&a)[2][4]) const {
        if constexpr (!is_grouped) {
#pragma unroll
            for (int j = 0; j < 2; ++j) dequantize(words, 2 * half + j, a[j]);
        } else {
            using Grouped = Sm80GroupedDequant<kind, operand>;
            static_assert(std::is_same_v<typename Grouped::Table, NoTable>);
            uint32_t all[16];  // what is not copied is not computed
            if constexpr (is_grid(kind))
                Grouped::dequantize(words, kept.scales, NoTable(0), all);
            else
                Grouped::dequantize(words, NoTable(0), all);
#pragma unroll
            for (int i = 0; i < 8; ++i) a[i / 4][i % 4] = all[8 * half + i];
        }
    }

    // B registers of two steps, in the order of use: fragments of the first half of a block, then
    // those of the second.
    __device__ __forceinline__ uint4 load_tokens(const Block& block, int number) const {
        const int half = number / fragments;
        return load_shared_16(
            token_at(block.tokens, number % fragments, 32 * Sm80Lane().t + 16 * half));
    }

    using HalfBlock = uint32_t[Shape::m_tiles][2][4];

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
        BlockWords words[keeps_words ? Shape::m_tiles : 1];
        KeptScales kept[Shape::m_tiles];

        __device__ __forceinline__ explicit Halves(const Sm80Mainloop& mainloop) : loop(mainloop) {}
        // Makes the first half, when the second of the block before is still in use.
        __device__ __forceinline__ void begin(const Block& block) {
            if constexpr (keeps_words) {
#pragma unroll
                for (int m = 0; m < Shape::m_tiles; ++m)
                    words[m] = loop.load_block(block, m, kept[m]);
            }
            make(block, 0);
        }
        __device__ __forceinline__ void make_second(const Block& block) {
            make(block, 1);
        }

      private:
        __device__ __forceinline__ void make(const Block& block, int half) {
#pragma unroll
            for (int m = 0; m < Shape::m_tiles; ++m)
                loop.dequantize_half(keeps_words ? words[m] : loop.load_block(block, m, kept[m]),
                                     kept[m], half, a[half][m]);
        }
    };

    template <class Accum>
    __device__ __forceinline__ void multiply_block(Accum& accum, const Block& block,
                                                   KeptScales (&kept)[Shape::m_tiles]) const {
        BlockWords words[Shape::m_tiles];
#pragma unroll
        for (int m = 0; m < Shape::m_tiles; ++m) words[m] = load_block(block, m, kept[m]);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            HalfBlock a;
#pragma unroll
            for (int m = 0; m < Shape::m_tiles; ++m) dequantize_half(words[m], kept[m], half, a[m]);
#pragma unroll
            for (int i = 0; i < fragments; ++i) {
                const uint4 b = load_tokens(block, half * fragments + i);
                multiply_fragments<1>(accum, i, a, &b);
            }
        }
    }

    const Sm80Call& call_;
    const Sm80Stages& stages_;
    const float* codebook_;
    const std::byte* weights_;  // of the warp's first packed tile in a stage at zero
    bool is_absent_;            // the warp has no packed tile
    uint32_t row_;              // shared address of row g of its first fragment there
};

}  // namespace moe::cuda
