// The gemm kernels: products of 16 weight rows with many activation rows. Some columns of the
// weight rows are dequantized once into a panel, in which a vector has one value of each weight
// row, and all activation rows are multiplied with it. Files of the instruction families include
// this one, so nothing in it is inline.
//
// A panel of integers, of C columns: codes [C / 4, 16, 4] unsigned bytes, then scales and offsets
// [C / g, 16] each, float32, for g = 16 or 32 columns: W = scale * code - offset. Activation rows
// are quantized (gemv/gemv.hpp), in the natural order.
// A panel of values: [C, 16] float32. Activation rows are float32.
// A panel of bfloat16: cpu/avx512bf16. Activation rows are bfloat16.
// A panel of words: codes of 16 bits; cpu/avx2. Activation rows are words (gemv/gemv.hpp).
//
// AVX-512 makes the first three; AVX-512 or the tiles of AMX multiply them (cpu/amx). AVX2 makes
// and multiplies panels of words and of values.
#pragma once

#include <cstddef>
#include <cstdint>

namespace moe::cpu {

struct GemvWeights;

constexpr int64_t panel_rows = 16;
// Columns of a panel at most: with its activations it lies in the caches of a core.
constexpr int64_t panel_columns = 1024;
// Memory of a panel, and of the rows that it is made of.
constexpr int64_t panel_bytes = panel_columns * panel_rows * static_cast<int64_t>(sizeof(float));
constexpr int64_t panel_source_bytes = panel_bytes + (int64_t{4} << 10);
// Two panels of bfloat16, and one that they are rounded from.
constexpr int64_t bf16_panel_bytes = panel_columns * panel_rows * 2;
constexpr int64_t most_panels = 2;
constexpr int64_t gemm_scratch_bytes =
    most_panels * bf16_panel_bytes + panel_bytes + panel_source_bytes;
constexpr int64_t gemm_scratch_floats = gemm_scratch_bytes / static_cast<int64_t>(sizeof(float));

// Columns [column, column + columns) of weight rows [first, first + n), n <= 16; column and columns
// are multiples of 256. scratch: panel_bytes + panel_source_bytes at an address that 64 divides,
// where the panel comes first.
using PanelDequantize = void (*)(const GemvWeights& weights, int64_t first, int64_t n,
                                 int64_t column, int64_t columns, std::byte* scratch);

// rounded = a panel with its scales, as one of bfloat16 without them.
using PanelRound = void (*)(const std::byte* panel, int64_t columns, std::byte* rounded);

// sums[i * 16 * n_panels + j] += weight row j . x[i] over the columns of the panels, i < n. A
// second panel lies bf16_panel_bytes behind the first one.
using PanelMultiply = void (*)(const std::byte* panel, const GemvWeights& weights, int64_t column,
                               int64_t columns, const void* const* x, int64_t n, float* sums);

// Rows in bfloat16 may lie in tiles of 16 rows, [columns / 32, 16, 32]: rows of a matrix tile lie
// at one distance then. Rows beyond the last one are copies of it.
constexpr int64_t rows_of_tile = 16;
constexpr int64_t row_tile_bytes(int64_t columns) {
    return 2 * columns * rows_of_tile;
}
// PanelMultiply with such rows; tile_bytes from tile to tile.
using PanelMultiplyTiles = void (*)(const std::byte* panels, int64_t column, int64_t columns,
                                    const std::byte* tiles, int64_t tile_bytes, int64_t n,
                                    float* sums);

// Rows from which on a panel pays.
constexpr int64_t min_panel_rows = 8;

// Kernels read float32 rows, or the integers, the bfloat16 or the words of quantized rows.
enum class RowForm : uint8_t { floats, integers, bf16, words };

constexpr int64_t saved_tiles_bytes = 64;

struct GemmKernels {
    PanelDequantize dequantize;  // null: there are none
    PanelMultiply multiply;
    RowForm rows;
    int scale_columns = 0;  // of the panel under a scale; 0: it has no scales
    // Before the first call of multiply and after the last one, by the same thread; null: nothing.
    // They keep the caller's tiles of AMX: ggml gives its threads theirs once and relies on them.
    void (*enter)(std::byte* saved) = nullptr;
    void (*leave)(const std::byte* saved) = nullptr;
    int64_t min_rows = min_panel_rows;
    PanelRound round = nullptr;  // between the two; null: multiply reads what dequantize made
    PanelMultiplyTiles multiply_tiles = nullptr;
    int64_t n_panels = 1;  // that multiply takes at once; two are of bfloat16
};

}  // namespace moe::cpu
