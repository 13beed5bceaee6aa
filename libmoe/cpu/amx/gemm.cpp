// Products of the panels of AVX-512 (cpu/gemm/gemm.hpp) with activation rows, by the tiles of AMX:
// 16 activation rows meet 16 weight rows at once.
//
// Steps for 16 activation rows: 1. 256 columns of them are copied side by side, since rows of a
// tile must lie at one distance, 2. the columns under a scale are multiplied in tiles, 3. the
// products leave the tiles and meet their scales in vectors, in the order of operations of AVX-512.
// Results of integer panels have the bits that AVX-512 gives; those of bfloat16 are added in
// another order. The order does not depend on how many rows there are.
//
// A tile cannot be loaded before the stores of its rows have left the core, and products take a
// while: columns are copied and products begun some time before they are read.
#include "libmoe/cpu/avx512vnni/tables.hpp"

#if defined(MOE_X86)
#include <immintrin.h>

#include "libmoe/cpu/avx512vnni/vectors.inc"

#include "libmoe/cpu/amx/tiles.inc"

namespace moe::cpu {
namespace {

constexpr int tile_rows = 16;
constexpr int scale_columns = 32;  // of integers under a scale

// Tiles 0 to 5 have sums, or activations and weights after those that have; each four columns of
// bytes, or two of bfloat16, are a row of the tile of weights.
constexpr TileShapes shapes_of(int first_operand, int first_weights, int weight_rows) {
    TileShapes shapes;
    for (int i = 0; i < 8; ++i) {
        const bool is_weights = i >= first_weights, is_x = i >= first_operand && !is_weights;
        shapes.rows[i] = static_cast<uint8_t>(is_weights ? weight_rows : tile_rows);
        shapes.row_bytes[i] = static_cast<uint16_t>(is_x ? 4 * weight_rows : 64);
    }
    return shapes;
}

// --- integers ---------------------------------------------------------------------------------

// Which tiles a product has: neighbouring groups of columns have tiles of their own.
template <int parts>
struct IntegerTiles {
    static constexpr bool is_tight = parts == 3;
    static constexpr int first_x = is_tight ? 6 : 4, first_weights = is_tight ? 7 : 6;
    static constexpr int sums(int turn, int part) { return turn * parts + part; }
    static constexpr int x(int turn, int part) {
        return is_tight ? 6 : 4 + (parts == 2 ? part : turn);
    }
    static constexpr int weights(int turn) { return is_tight ? 7 : 6 + turn; }
};

// 256 columns of the integers of 16 rows with their scales and sums, of both of which every other
// number is used.
template <int parts>
struct IntegerStage {
    alignas(64) std::byte bytes[4][parts][tile_rows][64];
    alignas(64) float scales[tile_rows][16];
    alignas(64) float sums[tile_rows][16];
};

// An activation row from a column on.
struct IntegerRow {
    const std::byte* bytes;
    const float* scales;
    const float* sums;
};

template <int parts>
IntegerRow integer_row(const void* x, const GemvWeights& weights, int64_t column) {
    const int64_t n_groups = (weights.columns + quantized_step - 1) / quantized_step * 16;
    const auto* scales = static_cast<const float*>(x);
    return {reinterpret_cast<const std::byte*>(scales + 2 * n_groups) + weights.x_natural +
                parts * column,
            scales + column / 16, scales + n_groups + column / 16};
}

template <int parts>
MOE_INLINE void copy_row(const IntegerRow& row, int64_t k, int i, IntegerStage<parts>& stage) {
    MOE_UNROLL for (int v = 0; v < 4; ++v) MOE_UNROLL for (int part = 0; part < parts; ++part)
        _mm512_store_si512(stage.bytes[v][part][i],
                           load_bytes(row.bytes + parts * k + 64 * (parts * v + part)));
    _mm512_store_ps(stage.scales[i], _mm512_loadu_ps(row.scales + k / 16));
    const Floats sums = _mm512_loadu_ps(row.sums + k / 16);
    const Bytes next = _mm512_castps_si512(sums);
    _mm512_store_ps(stage.sums[i],
                    _mm512_add_ps(sums, _mm512_castsi512_ps(_mm512_alignr_epi32(next, next, 1))));
}

// 256 columns of an integer panel.
struct PanelPart {
    const std::byte* codes;
    const float* scales;
    const float* offsets;
};

template <int parts>
class IntegerProduct {
  public:
    // The panel's part meets n_rows staged rows.
    template <int n_rows>
    MOE_INLINE void add(const PanelPart& panel, const IntegerStage<parts>& x,
                        Floats (&sum)[n_rows]) {
        start<0>(panel, x, 0);
        start<1>(panel, x, 1);
        for (int g = 0; g < n_groups; g += 2) {
            const bool has_next = g + 2 < n_groups;
            if (has_next) start<0>(panel, x, g + 2);
            finish(panel, x, g, sum);
            if (has_next) start<1>(panel, x, g + 3);
            finish(panel, x, g + 1, sum);
        }
    }

  private:
    static constexpr int n_groups = quantized_step / scale_columns;
    static constexpr int n_begun = 4;  // at most three are; a power of two makes addresses cheap
    using Tiles = IntegerTiles<parts>;

    template <int turn, int part>
    MOE_INLINE void start_part(const IntegerStage<parts>& x, int g) {
        constexpr int sums = Tiles::sums(turn, part), rows = Tiles::x(turn, part);
        const int k = g * scale_columns;
        zero_tile<sums>();
        load_tile<rows>(x.bytes[k / 64][part][0] + k % 64, 64);
        dot_bytes<sums, rows, Tiles::weights(turn)>();
        store_tile<sums>(products_[g % n_begun][part], 64);
    }
    template <int turn>
    MOE_INLINE void start(const PanelPart& panel, const IntegerStage<parts>& x, int g) {
        load_tile<Tiles::weights(turn)>(panel.codes + g * scale_columns * panel_rows, 64);
        start_part<turn, 0>(x, g);
        if constexpr (parts > 1) start_part<turn, 1>(x, g);
        if constexpr (parts > 2) start_part<turn, 2>(x, g);
    }
    MOE_INLINE Floats product(int g, int i) const {
        const auto of_part = [&](int part) { return load_bytes(products_[g % n_begun][part][i]); };
        if constexpr (parts == 1) return _mm512_cvtepi32_ps(of_part(0));
        const Bytes both = _mm512_add_epi32(_mm512_slli_epi32(of_part(0), 8), of_part(1));
        if constexpr (parts == 2) return _mm512_cvtepi32_ps(both);
        return _mm512_fmadd_ps(_mm512_cvtepi32_ps(both), _mm512_set1_ps(256.0f),
                               _mm512_cvtepi32_ps(of_part(2)));
    }
    template <int n_rows>
    MOE_INLINE void finish(const PanelPart& panel, const IntegerStage<parts>& x, int g,
                           Floats (&sum)[n_rows]) const {
        const Floats scale = _mm512_load_ps(panel.scales + 16 * g);
        const Floats offset = _mm512_load_ps(panel.offsets + 16 * g);
        const int group = g * scale_columns / 16;
        MOE_UNROLL for (int i = 0; i < n_rows; ++i) {
            const Floats both = _mm512_mul_ps(scale, _mm512_set1_ps(x.scales[i][group]));
            sum[i] = _mm512_fmadd_ps(product(g, i), both, sum[i]);
            sum[i] = _mm512_fnmadd_ps(offset, _mm512_set1_ps(x.sums[i][group]), sum[i]);
        }
    }

    alignas(64) int32_t products_[n_begun][parts][tile_rows][16];
};

// Rows [n, n_rows) are zeros, whose sums are not stored.
template <int n_rows>
MOE_INLINE void load_sums(const float* from, int64_t n, Floats (&sum)[n_rows]) {
    MOE_UNROLL for (int i = 0; i < n_rows; ++i) sum[i] =
        i < n ? _mm512_loadu_ps(from + panel_rows * i) : _mm512_setzero_ps();
}
template <int n_rows>
MOE_INLINE void store_sums(const Floats (&sum)[n_rows], int64_t n, float* to) {
    MOE_UNROLL for (int i = 0; i < n_rows; ++i) if (i < n)
        _mm512_storeu_ps(to + panel_rows * i, sum[i]);
}

template <int parts, int n_rows>
void multiply_integers(const std::byte* panel, int64_t columns, const IntegerRow* rows, int64_t n,
                       float* out) {
    const auto* scales = reinterpret_cast<const float*>(panel + columns * panel_rows);
    const int64_t n_scales = columns / scale_columns * panel_rows;
    IntegerProduct<parts> product;
    IntegerStage<parts> stages[2];
    if (n < tile_rows) stages[0] = stages[1] = {};
    const auto copy = [&](int64_t k) {
        IntegerStage<parts>& stage = stages[k / quantized_step % 2];
        for (int i = 0; k < columns && i < n; ++i) copy_row<parts>(rows[i], k, i, stage);
    };
    copy(0);
    Floats sum[n_rows];
    load_sums(out, n, sum);
    for (int64_t k = 0; k < columns; k += quantized_step) {
        copy(k + quantized_step);
        const float* part_scales = scales + k / scale_columns * panel_rows;
        product.add({panel + k * panel_rows, part_scales, part_scales + n_scales},
                    stages[k / quantized_step % 2], sum);
    }
    store_sums(sum, n, out);
}

// call<n_rows>(first, n): the vectors of up to eight rows are half of a tile's.
template <class Call>
MOE_INLINE void for_tiles(int64_t n, Call call) {
    for (int64_t first = 0; first < n; first += tile_rows) {
        const int64_t left = n - first;
        if (left <= 8)
            call.template operator()<8>(first, left);
        else
            call.template operator()<tile_rows>(first, left < tile_rows ? left : tile_rows);
    }
}

template <int parts>
void multiply_integer_panel(const std::byte* panel, const GemvWeights& weights, int64_t column,
                            int64_t columns, const void* const* x, int64_t n, float* sums) {
    for_tiles(n, [&]<int n_rows>(int64_t first, int64_t count) {
        IntegerRow rows[n_rows];
        for (int64_t i = 0; i < count; ++i)
            rows[i] = integer_row<parts>(x[first + i], weights, column);
        multiply_integers<parts, n_rows>(panel, columns, rows, count, sums + first * panel_rows);
    });
}

template <int parts>
void enter_integers() {
    static constexpr TileShapes shapes = shapes_of(
        IntegerTiles<parts>::first_x, IntegerTiles<parts>::first_weights, scale_columns / 4);
    configure_tiles(shapes);
}

void leave() {
    release_tiles();
}

// --- bfloat16 ---------------------------------------------------------------------------------

constexpr int bf16_columns = 32;  // of a tile
constexpr int bf16_sums = 4;      // tiles, so that products need not wait for each other
constexpr int bf16_x = 4, bf16_weights = 6;

struct Bf16Stage {
    alignas(64) uint16_t values[quantized_step / bf16_columns][tile_rows][bf16_columns];
};

MOE_INLINE void copy_row(const std::byte* row, int i, Bf16Stage& stage) {
    MOE_UNROLL for (int step = 0; step < quantized_step / bf16_columns; ++step)
        _mm512_store_si512(stage.values[step][i], load_bytes(row + 64 * step));
}

// The products of 256 columns of 16 rows.
template <bool has_scales>
class Bf16Product {
  public:
    MOE_INLINE void start(const std::byte* panel, const Bf16Stage& x) {
        for (int turn = 0; turn < n_turns; ++turn) {
            start_tile<0>(panel, x, turn);
            start_tile<1>(panel, x, turn);
            start_tile<2>(panel, x, turn);
            start_tile<3>(panel, x, turn);
        }
    }
    // Adds them under the scales of the panel.
    template <int n_rows>
    MOE_INLINE void finish(const float* scales, Floats (&sum)[n_rows]) const {
        for (int turn = 0; turn < n_turns; ++turn)
            finish_turn(turn, scales + turn * bf16_sums * panel_rows, sum);
    }

  private:
    static constexpr int n_steps = quantized_step / bf16_columns;
    // A tile has the products under one scale, or without scales those of two steps.
    static constexpr int n_turns = has_scales ? n_steps / bf16_sums : 1;

    template <int tile>
    MOE_INLINE void add_step(const std::byte* panel, const Bf16Stage& x, int step) {
        constexpr int rows = bf16_x + tile % 2, weights = bf16_weights + tile % 2;
        load_tile<weights>(panel + step * bf16_columns * panel_rows * 2, 64);
        load_tile<rows>(x.values[step][0], 64);
        dot_bf16<tile, rows, weights>();
    }
    template <int tile>
    MOE_INLINE void start_tile(const std::byte* panel, const Bf16Stage& x, int turn) {
        const int step = turn * bf16_sums + tile;
        zero_tile<tile>();
        add_step<tile>(panel, x, step);
        if constexpr (!has_scales) add_step<tile>(panel, x, step + bf16_sums);
        store_tile<tile>(products_[turn][tile], 64);
    }
    template <int n_rows>
    MOE_INLINE void finish_turn(int turn, const float* scales, Floats (&sum)[n_rows]) const {
        MOE_UNROLL for (int i = 0; i < n_rows; ++i) {
            const auto of_tile = [&](int tile) { return _mm512_load_ps(products_[turn][tile][i]); };
            if constexpr (has_scales) {
                MOE_UNROLL for (int tile = 0; tile < bf16_sums; ++tile) sum[i] =
                    _mm512_fmadd_ps(of_tile(tile), _mm512_load_ps(scales + 16 * tile), sum[i]);
            } else {
                const Floats even = _mm512_add_ps(of_tile(0), of_tile(2));
                const Floats odd = _mm512_add_ps(of_tile(1), of_tile(3));
                sum[i] = _mm512_add_ps(sum[i], _mm512_add_ps(even, odd));
            }
        }
    }

    alignas(64) float products_[n_turns][bf16_sums][tile_rows][16];
};

template <bool has_scales, int n_rows>
void multiply_bf16(const std::byte* panel, int64_t columns, const std::byte* const* rows, int64_t n,
                   float* out) {
    const auto* scales = reinterpret_cast<const float*>(panel + columns * panel_rows * 2);
    Bf16Product<has_scales> products[2];
    Bf16Stage stages[2];
    if (n < tile_rows) stages[0] = stages[1] = {};
    const auto copy = [&](int64_t k) {
        for (int i = 0; k < columns && i < n; ++i)
            copy_row(rows[i] + 2 * k, i, stages[k / quantized_step % 2]);
    };
    const auto start = [&](int64_t k) {
        const int64_t half = k / quantized_step % 2;
        if (k < columns) products[half].start(panel + k * panel_rows * 2, stages[half]);
    };
    copy(0);
    copy(quantized_step);
    start(0);
    Floats sum[n_rows];
    load_sums(out, n, sum);
    for (int64_t k = 0; k < columns; k += quantized_step) {
        start(k + quantized_step);
        copy(k + 2 * quantized_step);
        products[k / quantized_step % 2].finish(scales + k / bf16_columns * panel_rows, sum);
    }
    store_sums(sum, n, out);
}

template <bool has_scales>
void multiply_bf16_panel(const std::byte* panel, const GemvWeights& weights, int64_t column,
                         int64_t columns, const void* const* x, int64_t n, float* sums) {
    for_tiles(n, [&]<int n_rows>(int64_t first, int64_t count) {
        const std::byte* rows[n_rows];
        for (int64_t i = 0; i < count; ++i)
            rows[i] = static_cast<const std::byte*>(x[first + i]) + weights.x_bf16 + 2 * column;
        multiply_bf16<has_scales, n_rows>(panel, columns, rows, count, sums + first * panel_rows);
    });
}

void enter_bf16() {
    static constexpr TileShapes shapes = shapes_of(bf16_x, bf16_weights, bf16_columns / 2);
    configure_tiles(shapes);
}

// --- which kernel reads which panel -----------------------------------------------------------

struct TileKernel {
    PanelMultiply multiply;
    void (*enter)();
};

template <int parts>
constexpr TileKernel integer_kernel{multiply_integer_panel<parts>, enter_integers<parts>};

TileKernel tile_kernel(const GemmKernels& panels, int32_t parts) {
    if (panels.rows == RowForm::bf16)
        return {panels.scale_columns ? multiply_bf16_panel<true> : multiply_bf16_panel<false>,
                enter_bf16};
    return parts == 1 ? integer_kernel<1> : parts == 2 ? integer_kernel<2> : integer_kernel<3>;
}

// AVX-512 multiplies panels of float32, and integers under a scale for 16 columns: they leave a
// tile after a quarter of the columns that it could hold, and were no quicker by tiles (nvfp4,
// q6_k).
bool are_for_tiles(const GemmKernels& panels) {
    return panels.rows == RowForm::bf16 ||
           (panels.rows == RowForm::integers && panels.scale_columns == scale_columns);
}

GemmKernels gemm(GemvFormat format, const Quantization& rows) {
    GemmKernels kernels = avx512vnni_gemm(format, rows);
    if (!kernels.dequantize || !are_for_tiles(kernels)) return kernels;
    const TileKernel tiles = tile_kernel(kernels, rows.parts);
    kernels.multiply = tiles.multiply;
    kernels.enter = tiles.enter;
    kernels.leave = leave;
    return kernels;
}

}  // namespace

const GemvFamily gemv_amx = {avx512vnni_kernels, quantize_avx512vnni, gemm, true,
                             gemv_avx512bf16,    activate_avx512vnni, true};

}  // namespace moe::cpu
#endif
