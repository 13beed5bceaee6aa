// The launches of a CUDA plan, as plan/ has decided them. A forward picks the range of its number
// of tokens and launches; nothing below decides again. Plain data, without the CUDA runtime.
#pragma once

#include <algorithm>
#include <memory_resource>
#include <vector>

#include "libmoe/cuda/gemv/gemv_launch.hpp"
#include "moe/moe.h"

namespace moe::cuda {

// The kernel families of GEMMs, of the routed experts and of finish.
enum class Family : uint8_t {
    exact,
    sm80_grouped_bf16,
    sm80_grouped_f16,
    grouped,  // Hopper's
    grouped_f16,
    grouped_fp8,
    sm90_gemv,
    sm80_gemv,
};

constexpr bool is_grouped(Family family) {
    return family == Family::grouped || family == Family::grouped_f16 ||
           family == Family::grouped_fp8;
}
constexpr bool is_sm80_grouped(Family family) {
    return family == Family::sm80_grouped_bf16 || family == Family::sm80_grouped_f16;
}

// Router logits: for small batches; by cuBLASLt, with the tiled kernel in its place for x that it
// cannot read; tiled, for any number of tokens.
enum class LogitsKernel : uint8_t { small_batch, library, tiled };
// Selection of the experts: a thread block per token, or a warp.
enum class SelectKernel : uint8_t { block, warp };
// The sort of the slots by expert: one launch that also lists tokens; one block; several runs, in
// two launches.
enum class SortKernel : uint8_t { fused, block, runs };

// The tiles of a grouped GEMM: narrow, middle or wide, of Hopper's also narrow and wide in two
// launches.
enum class TileWidths : uint8_t { narrow, middle, wide, both };

// Rows of Hopper's narrow tiles.
constexpr int32_t max_narrow_rows = 48;

// The tiles of the two GEMMs of the experts, which share a list of them.
struct MlpTiles {
    TileWidths gate_up = TileWidths::narrow;
    TileWidths down = TileWidths::narrow;

    bool are_narrow() const { return gate_up == TileWidths::narrow && down == TileWidths::narrow; }
    bool are_some_middle() const {
        return gate_up == TileWidths::middle || down == TileWidths::middle;
    }
    bool are_some_wide() const { return std::max(gate_up, down) >= TileWidths::wide; }
    bool has_wide_alone() const { return gate_up == TileWidths::wide || down == TileWidths::wide; }
    bool operator==(const MlpTiles&) const = default;
};

// By these the tiles of a GEMM are chosen, besides the rows of its experts.
struct GemmTraits {
    bool is_16_bit = false;   // weights
    bool has_middle = false;  // the portable kernel for middle tiles is there, and has enough work
    bool has_fp8_middle = false;  // the kernel of E4M3 for middle tiles reads the weights
};
struct MlpTraits {
    GemmTraits gate_up, down;
};

// Chooses the tiles of a grouped GEMM by the rows that an expert has on average. Of Hopper's, also
// by the rows that one can have at most. Weights that are dequantized cost wide tiles more, and
// more warps do it for the others: below and above the averages of middle tiles each expert has
// narrow or wide ones by its rows. Weights of 16 bits have one width.
struct TileChoice {
    double max_portable_narrow;           // beyond, the portable tiles are middle, where there are
    double max_portable_middle;           // beyond, they are wide
    int32_t least_middle_items_of_sm;     // work items; with fewer, middle tiles leave SMs idle
    double max_all_narrow, min_all_wide;  // of Hopper's
    // Hopper's middle tiles; weights of 16 bits have them from max_all_narrow on. With others
    // `both` is before and after, so that the two are more than a factor of two apart.
    double min_middle, max_middle;
    double max_fp8_narrow;  // beyond, those of E4M3 are middle or wide

    MlpTiles of(Family family, const MlpTraits& traits, int64_t most_rows,
                double average_rows) const {
        const auto all = [](TileWidths widths) { return MlpTiles{widths, widths}; };
        if (family == Family::grouped_fp8)
            return average_rows <= max_fp8_narrow
                       ? all(TileWidths::narrow)
                       : MlpTiles{of_fp8(traits.gate_up), of_fp8(traits.down)};
        if (is_sm80_grouped(family)) {
            if (average_rows > max_portable_middle) return all(TileWidths::wide);
            const auto one = [&](const GemmTraits& gemm) {
                return average_rows > max_portable_narrow && gemm.has_middle ? TileWidths::middle
                                                                             : TileWidths::narrow;
            };
            return {one(traits.gate_up), one(traits.down)};
        }
        if (!is_grouped(family)) return all(TileWidths::narrow);
        if (most_rows <= max_narrow_rows || average_rows <= max_all_narrow)
            return all(TileWidths::narrow);
        if (average_rows >= min_all_wide) return all(TileWidths::wide);
        const bool are_16_bit = traits.gate_up.is_16_bit && traits.down.is_16_bit;
        if (average_rows <= max_middle && (are_16_bit || average_rows >= min_middle))
            return all(TileWidths::middle);
        const auto one = [](const GemmTraits& gemm) {
            return gemm.is_16_bit ? TileWidths::wide : TileWidths::both;
        };
        return {one(traits.gate_up), one(traits.down)};
    }
    // A dense matrix is one expert with all rows. Hopper's middle tiles were not measured for it.
    TileWidths of_dense(Family family, int64_t n_rows) const {
        if (family == Family::grouped || family == Family::grouped_f16)
            return n_rows <= max_narrow_rows ? TileWidths::narrow : TileWidths::wide;
        const MlpTraits traits{{.is_16_bit = true}, {.is_16_bit = true}};
        return of(family, traits, n_rows, static_cast<double>(n_rows)).gate_up;
    }

  private:
    static TileWidths of_fp8(const GemmTraits& gemm) {
        return gemm.has_fp8_middle ? TileWidths::middle : TileWidths::wide;
    }
};

// Names of the kernels of one GEMM, by its tiles. Families other than the grouped GEMMs have the
// first alone.
struct GemmNames {
    KernelName wide;
    KernelName narrow;
    KernelName middle;
};

// Decisions for chunks of up to max_tokens tokens, from the range before on.
struct LaunchRange {
    int64_t max_tokens = 0;
    LogitsKernel logits = LogitsKernel::tiled;
    SelectKernel select = SelectKernel::warp;
    SortKernel sort = SortKernel::runs;
    SortKernel dispatch_sort = SortKernel::runs;  // of moe_dispatch
    bool indexes_rows = false;  // grouped gate_up reads x by row index; else rows are gathered
    MlpTiles tiles;             // of the experts, if their family is grouped
    TileWidths dense_tiles = TileWidths::narrow;  // of the dense matrices, likewise
    bool gate_in_combine = false;  // combine computes the shared expert's gate; else its own kernel
    moe_type y_type = MOE_TYPE_F32;  // of down's rows

    bool has_same_decisions(const LaunchRange& other) const {
        return logits == other.logits && select == other.select && sort == other.sort &&
               dispatch_sort == other.dispatch_sort && indexes_rows == other.indexes_rows &&
               tiles == other.tiles && dense_tiles == other.dense_tiles &&
               gate_in_combine == other.gate_in_combine && y_type == other.y_type;
    }
};

// The gemv launches of 1 to max_tokens tokens. Whether the experts share one codebook is known with
// the weights, so there is a launch for either answer, of gate_up and of down.
struct GemvLaunches {
    explicit GemvLaunches(std::pmr::memory_resource* memory) : all(memory) {}

    int32_t max_tokens = 0;            // 0: this path is not taken
    std::pmr::vector<GemvLaunch> all;  // [max_tokens][2][2]

    static size_t index(int64_t n_tokens, bool gate_up_shares, bool down_shares) {
        return static_cast<size_t>(n_tokens - 1) * 4 + (gate_up_shares ? 2 : 0) +
               (down_shares ? 1 : 0);
    }
    const GemvLaunch& at(int64_t n_tokens, bool gate_up_shares, bool down_shares) const {
        return all[index(n_tokens, gate_up_shares, down_shares)];
    }
};

struct LaunchPlan {
    explicit LaunchPlan(std::pmr::memory_resource* memory)
        : experts_gemv(memory),
          expert_rows_gemv(memory),
          experts_and_shared_gemv(memory),
          shared_gemv(memory),
          ranges(memory) {}

    GemvLaunches experts_gemv;             // the routed experts
    GemvLaunches expert_rows_gemv;         // rows with an expert each: those of so many tokens
    GemvLaunches experts_and_shared_gemv;  // with the shared expert as one more slot
    GemvLaunches shared_gemv;              // the shared expert alone
    GemmNames gate_up, down, shared_gate_up, shared_down, latent_in, latent_out;
    GemmNames pre_activation;              // of gate_up that stops before the activation
    std::pmr::vector<LaunchRange> ranges;  // ascending; the last one serves every larger number
    TileChoice tiles{};                    // what the ranges were made by
    const LaunchRange& range(int64_t n_tokens) const {
        for (const LaunchRange& range : ranges)
            if (n_tokens <= range.max_tokens) return range;
        return ranges.back();
    }
};

}  // namespace moe::cuda
