// The mma of one pipeline stage of the portable grouped GEMM: a warp dequantizes its packed
// tiles and multiplies them with its tokens by mma.sync.m16n8k16.
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

// Grids with a dequantizer that takes records at a shared address and no table.
constexpr bool is_grouped_grid(PackedType kind) {
    return kind == PackedType::grid_2 || kind == PackedType::grid_3 || kind == PackedType::grid_4 ||
           kind == PackedType::grid_8 || kind == PackedType::grid_e4m3;
}

// Types whose dequantizer for Hopper's grouped GEMM needs no instruction of Hopper's and no table
// of its own: it is quicker than values one by one.
template <PackedType kind>
constexpr bool sm80_takes_grouped_dequant = kind == PackedType::q8_0 || is_grouped_grid(kind) ||
                                            (has_ggml_scales(kind) && !is_iq_grid(kind));

template <PackedType kind, Operand operand>
using Sm80GroupedDequant =
    std::conditional_t<operand == Operand::f16, InF16<GroupedDequant<kind>>, GroupedDequant<kind>>;

// The factor that accumulators still lack.
template <PackedType kind, Operand operand>
constexpr float sm80_residual_scale() {
    if constexpr (sm80_takes_grouped_dequant<kind>)
        return Sm80GroupedDequant<kind, operand>::residual_scale;
    else
        return residual_scale_of<kind, operand>();
}

// What a lane holds of a block: words, and of a grid the scales of their record.
template <class Dequant>
struct Sm80GridWords {
    typename Dequant::Words words;
    typename Dequant::KeptScales scales;
};
template <PackedType kind, Operand operand>
constexpr auto sm80_block_words() {
    if constexpr (!sm80_takes_grouped_dequant<kind>)
        return std::type_identity<typename ValueDequant<kind>::Words>{};
    else if constexpr (is_grid(kind))
        return std::type_identity<Sm80GridWords<Sm80GroupedDequant<kind, operand>>>{};
    else
        return std::type_identity<typename GroupedDequant<kind>::Words>{};
}

// fragments: of a warp's tokens, enough for those of the tile.
template <PackedType kind, Operand operand, class Shape, int fragments>
class Sm80Mainloop {
  public:
    using Accumulators = float[Shape::m_tiles][fragments][4];
    static constexpr int rows = 8 * fragments * Shape::warps_n;
    using Fetch = Sm80Fetch<kind, operand, Shape, rows>;
    using Values = ValueDequant<kind>;
    using Words = typename Values::Words;

    __device__ __forceinline__ Sm80Mainloop(const Sm80Call& call, const Sm80Work& work,
                                            const float* codebook, std::byte* stages)
        : call_(call), codebook_(codebook), stages_(stages) {
        const Sm80Lane lane;
        const int first_tile = lane.warp / Shape::warps_n * Shape::m_tiles;
        const int first_row = lane.warp % Shape::warps_n * fragments * 8;
        is_absent_ = first_tile >= work.n_tiles;
        tiles_ = k_blocks * Fetch::token_bytes + first_tile * call.staged_tile_bytes;
        row_ = shared_address(stages) + (first_row + lane.g) * sm80_row_bytes;
    }

    // Multiplies the stage that begins at k_block `first` and lies at byte `stage`.
    __device__ __forceinline__ void multiply(Accumulators& accum, int first, int n_k_blocks,
                                             int stage) {
        if (is_absent_) return;
        // A full stage has no branches, so that its blocks overlap: at least two of them.
        if (n_k_blocks == k_blocks) {
#pragma unroll 2
            for (int u = 0; u < k_blocks; ++u) multiply_block(accum, block_of(first, u, stage));
            return;
        }
#pragma unroll 1
        for (int u = 0; u < n_k_blocks; ++u) multiply_block(accum, block_of(first, u, stage));
    }

  private:
    struct Block {
        uint32_t tokens;           // shared address of row g of the warp's first fragment
        const std::byte* weights;  // of the warp's first packed tile in the stage
        int codes;                 // where the k_block begins in a packed tile
        int first;                 // k_block of the stage
        int k0;
    };

    static constexpr int k_blocks = Fetch::k_blocks;
    static constexpr int scale_offset = k_blocks * sm80_code_stride<kind>;

    __device__ __forceinline__ Block block_of(int first, int u, int stage) const {
        return {row_ + stage + u * Fetch::token_bytes, stages_ + stage + tiles_,
                u * sm80_code_stride<kind>, first, 64 * (first + u)};
    }

    // Byte `byte` of row g of a fragment, swizzled.
    static __device__ __forceinline__ uint32_t token_at(uint32_t row, int fragment, int byte) {
        const Sm80Lane lane;
        return row + 8 * fragment * sm80_row_bytes + ((byte & ~15) ^ 16 * lane.g) + byte % 16;
    }

    __device__ __forceinline__ Words load_values(const Block& block, int m) const {
        const PackedType type = type_of<kind>(call_.gemm.weights);
        const std::byte* tile = block.weights + m * call_.staged_tile_bytes;
        const std::byte* codes = tile + block.codes;
        const std::byte* scales = codes + block_code_bytes(type, 4);
        if constexpr (has_superblock(kind)) scales = tile + scale_offset;
        if constexpr (is_grid(kind))
            scales = tile + scale_offset - grid_record(type, 64 * int64_t{block.first});
        return Values::load(type, codes, scales, Sm80Lane().id, block.k0);
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
    static constexpr bool is_grouped = sm80_takes_grouped_dequant<kind>;
    using BlockWords = typename decltype(sm80_block_words<kind, operand>())::type;

    __device__ __forceinline__ BlockWords load_block(const Block& block, int m) const {
        if constexpr (!is_grouped) {
            return load_values(block, m);
        } else {
            const uint32_t tile = shared_address(block.weights) + m * call_.staged_tile_bytes;
            const uint32_t codes = tile + block.codes;
            const auto lane = static_cast<uint32_t>(Sm80Lane().id);
            using Grouped = Sm80GroupedDequant<kind, operand>;
            if constexpr (is_grid(kind)) {
                const auto column = static_cast<int32_t>(block.k0 + 16 * (lane & 3));
                const int32_t record =
                    call_.records.record(column) - call_.records.record(64 * block.first);
                BlockWords words;
                words.scales.load(call_.records, tile + scale_offset + record, lane);
                words.words = Grouped::load(codes, lane);
                return words;
            } else if constexpr (has_superblock(kind)) {
                typename Grouped::KeptScales scales;
                scales.load(tile + scale_offset, lane);
                return Grouped::load(codes, scales, lane, block.k0 / 64 & 3);
            } else {
                return Grouped::load(codes, codes + block_code_bytes(kind, 4), lane);
            }
        }
    }

    __device__ __forceinline__ void dequantize_half(const BlockWords& words, int half,
                                                    uint32_t (&a)[2][4]) const {
        if constexpr (!is_grouped) {
#pragma unroll
            for (int j = 0; j < 2; ++j) dequantize(words, 2 * half + j, a[j]);
        } else {
            using Grouped = Sm80GroupedDequant<kind, operand>;
            static_assert(std::is_same_v<typename Grouped::Table, NoTable>);
            uint32_t all[16];  // what is not copied is not computed
            if constexpr (is_grid(kind))
                Grouped::dequantize(words.words, words.scales, NoTable(0), all);
            else
                Grouped::dequantize(words, NoTable(0), all);
#pragma unroll
            for (int i = 0; i < 8; ++i) a[i / 4][i % 4] = all[8 * half + i];
        }
    }

    // Two steps at a time, whose B registers are one vector of 16 bytes.
    __device__ __forceinline__ void multiply_block(Accumulators& accum, const Block& block) {
        const Sm80Lane lane;
        BlockWords words[Shape::m_tiles];
#pragma unroll
        for (int m = 0; m < Shape::m_tiles; ++m) words[m] = load_block(block, m);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const uint32_t tokens = token_at(block.tokens, 0, 32 * lane.t + 16 * half);
            uint32_t a[Shape::m_tiles][2][4];
#pragma unroll
            for (int m = 0; m < Shape::m_tiles; ++m) dequantize_half(words[m], half, a[m]);
#pragma unroll
            for (int i = 0; i < fragments; ++i) {
                const uint4 b = load_shared_16(tokens + 8 * i * sm80_row_bytes);
#pragma unroll
                for (int m = 0; m < Shape::m_tiles; ++m)
                    mma_16x8x16<operand>(accum[m][i], a[m][0], b.x, b.y);
#pragma unroll
                for (int m = 0; m < Shape::m_tiles; ++m)
                    mma_16x8x16<operand>(accum[m][i], a[m][1], b.z, b.w);
            }
        }
    }

    const Sm80Call& call_;
    const float* codebook_;
    std::byte* stages_;
    bool is_absent_;  // the warp has no packed tile
    int tiles_;       // where the warp's first packed tile is in a stage
    uint32_t row_;    // shared address of row g of its first fragment in a stage at zero
};

}  // namespace moe::cuda
