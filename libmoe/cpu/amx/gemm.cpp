// Products of the panels of AVX-512 (cpu/gemm/gemm.hpp) with activation rows, by the tiles of AMX:
// 16 activation rows meet 16 weight rows at once.
//
// Where activation rows are there in bfloat16, panels are rounded to it with their scales, and a
// tile adds up the products of all columns of two panels. 16 or 32 activation rows lie in tiles, or
// their columns are copied side by side, since rows of a tile must lie at one distance.
//
// Steps for integer panels and 16 other activation rows: 1. 256 columns of them are copied side by
// side, 2. the columns under a scale are multiplied in tiles, 3. the products leave the tiles and
// meet their scales in vectors, in the order of operations of AVX-512, whose bits the results have.
//
// The order of operations does not depend on how many rows there are. A tile cannot be loaded
// before the stores of its rows have left the core, and products take a while: columns are copied
// and products begun some time before they are read.
#include "libmoe/cpu/avx512vnni/tables.hpp"

#if defined(MOE_X86)
#include <immintrin.h>

#include "libmoe/cpu/avx512vnni/vectors.inc"

#include "libmoe/cpu/amx/tiles.inc"

#include "libmoe/cpu/amx/round_panels.inc"

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
constexpr int bf16_panels = 2;
// Integers that take longer to round than gemv kernels take for few rows: both are as fast with
// about ten.
constexpr int64_t min_rows_of_integers = 10;
// Tiles of activation rows that share the weights.
constexpr int most_row_tiles = 2;
constexpr int bf16_x = bf16_panels * most_row_tiles, bf16_weights = bf16_x + most_row_tiles;

// 32 columns of 16 activation rows side by side.
using RowTile = uint16_t[tile_rows][bf16_columns];
static_assert(sizeof(RowTile) == row_tile_bytes(bf16_columns));

// Activation rows that lie in tiles.
template <int row_tiles>
class TiledRows {
  public:
    MOE_INLINE TiledRows(const std::byte* tiles, int64_t stride) : tiles_(tiles), stride_(stride) {}

    MOE_INLINE void prepare(int64_t) {}
    MOE_INLINE const std::byte* tile(int64_t step, int t) const {
        return tiles_ + t * stride_ + step * static_cast<int64_t>(sizeof(RowTile));
    }

  private:
    const std::byte* tiles_;
    int64_t stride_;
};

// Activation rows that lie anywhere: columns are copied some steps before they are multiplied. More
// of them at a time leave less of the L1 cache to what is copied.
template <int row_tiles>
class CopiedRows {
  public:
    // Rows beyond n are copies of others.
    MOE_INLINE CopiedRows(const void* const* x, int64_t n, int64_t offset, int64_t n_steps)
        : n_steps_(n_steps) {
        for (int64_t i = 0; i < row_tiles * tile_rows; ++i)
            rows_[i] = static_cast<const std::byte*>(x[i < n ? i : 0]) + offset;
        for (int64_t step = 0; step < ahead; ++step) copy(step);
    }

    MOE_INLINE void prepare(int64_t step) { copy(step + ahead); }
    MOE_INLINE const std::byte* tile(int64_t step, int t) const {
        return reinterpret_cast<const std::byte*>(tiles_[step % staged][t]);
    }

  private:
    static constexpr int64_t staged = 4, ahead = 2;

    MOE_INLINE void copy(int64_t step) {
        if (step >= n_steps_) return;
        MOE_UNROLL for (int t = 0; t < row_tiles; ++t)
            MOE_UNROLL for (int i = 0; i < tile_rows; ++i) _mm512_store_si512(
                tiles_[step % staged][t][i], load_bytes(rows_[t * tile_rows + i] + 64 * step));
    }

    alignas(64) RowTile tiles_[staged][row_tiles];
    const std::byte* rows_[row_tiles * tile_rows];
    int64_t n_steps_;
};

// The products of tile t of the rows and panel p.
constexpr int bf16_sums(int t, int p) {
    return bf16_panels * t + p;
}
// Adds them to the sums of n rows.
template <int t, int p>
MOE_INLINE void leave_tile(int64_t n, float* out) {
    alignas(64) float products[tile_rows][16];
    store_tile<bf16_sums(t, p)>(products, 64);
    for (int64_t i = t * tile_rows; i < n && i < (t + 1) * tile_rows; ++i) {
        float* sum = out + panel_rows * (bf16_panels * i + p);
        _mm512_storeu_ps(
            sum, _mm512_add_ps(_mm512_loadu_ps(sum), _mm512_load_ps(products[i - t * tile_rows])));
    }
}

template <int row_tiles, class Rows>
void multiply_bf16(const std::byte* panels, int64_t columns, Rows& rows, int64_t n, float* out) {
    zero_tile<bf16_sums(0, 0)>();
    zero_tile<bf16_sums(0, 1)>();
    if constexpr (row_tiles > 1) {
        zero_tile<bf16_sums(1, 0)>();
        zero_tile<bf16_sums(1, 1)>();
    }
    for (int64_t step = 0; step < columns / bf16_columns; ++step) {
        rows.prepare(step);
        const std::byte* weights = panels + step * bf16_columns * panel_rows * 2;
        load_tile<bf16_weights>(weights, 64);
        load_tile<bf16_x>(rows.tile(step, 0), 64);
        dot_bf16<bf16_sums(0, 0), bf16_x, bf16_weights>();
        load_tile<bf16_weights + 1>(weights + bf16_panel_bytes, 64);
        dot_bf16<bf16_sums(0, 1), bf16_x, bf16_weights + 1>();
        if constexpr (row_tiles > 1) {
            load_tile<bf16_x + 1>(rows.tile(step, 1), 64);
            dot_bf16<bf16_sums(1, 0), bf16_x + 1, bf16_weights>();
            dot_bf16<bf16_sums(1, 1), bf16_x + 1, bf16_weights + 1>();
        }
    }
    leave_tile<0, 0>(n, out);
    leave_tile<0, 1>(n, out);
    if constexpr (row_tiles > 1) {
        leave_tile<1, 0>(n, out);
        leave_tile<1, 1>(n, out);
    }
}

// call<row_tiles>(first, n) for as many tiles of rows as share the weights.
template <class Call>
MOE_INLINE void for_row_tiles(int64_t n, Call call) {
    constexpr int64_t most = most_row_tiles * tile_rows;
    for (int64_t first = 0; first < n; first += most) {
        const int64_t left = n - first;
        if (left <= tile_rows)
            call.template operator()<1>(first, left);
        else
            call.template operator()<most_row_tiles>(first, left < most ? left : most);
    }
}

void multiply_bf16_panels(const std::byte* panels, const GemvWeights& weights, int64_t column,
                          int64_t columns, const void* const* x, int64_t n, float* sums) {
    for_row_tiles(n, [&]<int row_tiles>(int64_t first, int64_t count) {
        CopiedRows<row_tiles> rows(x + first, count, weights.x_bf16 + 2 * column,
                                   columns / bf16_columns);
        multiply_bf16<row_tiles>(panels, columns, rows, count,
                                 sums + first * bf16_panels * panel_rows);
    });
}

void multiply_bf16_tiles(const std::byte* panels, int64_t column, int64_t columns,
                         const std::byte* tiles, int64_t tile_bytes, int64_t n, float* sums) {
    for_row_tiles(n, [&]<int row_tiles>(int64_t first, int64_t count) {
        TiledRows<row_tiles> rows(tiles + first / tile_rows * tile_bytes + row_tile_bytes(column),
                                  tile_bytes);
        multiply_bf16<row_tiles>(panels, columns, rows, count,
                                 sums + first * bf16_panels * panel_rows);
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

TileKernel integer_tile_kernel(int32_t parts) {
    return parts == 1 ? integer_kernel<1> : parts == 2 ? integer_kernel<2> : integer_kernel<3>;
}

// Weights of float32 are not rounded, and neither are codes of eight bits with zero points: those
// far from the middle would make all weights of a row large beside their sums.
bool may_be_rounded(GemvFormat format) {
    switch (format) {
        case GemvFormat::f32:
        case GemvFormat::pack8:
        case GemvFormat::gptq8:
        case GemvFormat::pack8_act_order:
        case GemvFormat::gptq8_act_order:
            return false;
        default:
            return true;
    }
}

// Where the rows are there in bfloat16, so are the panels: their tiles add up all
// columns, and those of integers leave for each scale. AVX-512 multiplies panels of float32 with
// other rows, and integers under a scale for 16 columns: they leave a tile after a quarter of the
// columns that it could hold, and were no quicker by tiles (nvfp4, q6_k).
GemmKernels gemm(GemvFormat format, const Quantization& rows) {
    GemmKernels kernels = avx512vnni_gemm(format, rows);
    if (!kernels.dequantize) return kernels;
    if (rows.has_bf16 && may_be_rounded(format)) {
        if (kernels.rows == RowForm::bf16) kernels = gemm_avx512bf16(format, true);
        if (kernels.rows == RowForm::integers) kernels.min_rows = min_rows_of_integers;
        kernels.round = panel_round(kernels);
        kernels.multiply = multiply_bf16_panels;
        kernels.multiply_tiles = multiply_bf16_tiles;
        kernels.rows = RowForm::bf16;
        kernels.scale_columns = 0;
        kernels.enter = enter_bf16;
        kernels.leave = leave;
        kernels.n_panels = bf16_panels;
        return kernels;
    }
    if (kernels.rows != RowForm::integers || kernels.scale_columns != scale_columns) return kernels;
    const TileKernel tiles = integer_tile_kernel(rows.parts);
    kernels.multiply = tiles.multiply;
    kernels.enter = tiles.enter;
    kernels.leave = leave;
    return kernels;
}

}  // namespace

const GemvFamily gemv_amx = {avx512vnni_kernels, quantize_avx512vnni, gemm, true,
                             gemv_avx512bf16,    activate_avx512vnni, true, true};

}  // namespace moe::cpu
#endif
