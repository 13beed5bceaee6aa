// Products of bfloat16 panels with bfloat16 activations for AVX-512 with BF16: two columns of a
// weight row and of an activation row are multiplied and added at once. A panel is
// [columns / 2, 16, 2] bfloat16, then, where the format has them, scales [columns / 32, 16]
// float32. That of bf16 and f16 weights has rows (RowPanel), but for the tiles of AMX.
//
// Weights that bfloat16 holds are exact: those of bf16, and of fp8 before its scales. Those of f16
// and the values of a codebook are rounded. For the tiles of AMX, which add up columns under
// different scales, all are rounded with their scales.
#include "libmoe/cpu/avx512vnni/tables.hpp"

#if defined(MOE_X86)
#include <immintrin.h>
#define MOE_GEMV_AVX512 1

#include "libmoe/cpu/avx512vnni/vectors.inc"

#include "libmoe/cpu/avx512vnni/panels.inc"

#include "libmoe/cpu/gemm/for_rows.inc"

#include "libmoe/cpu/dequant/passes.inc"

#include "libmoe/cpu/avx512vnni/row_sums.inc"

#include "libmoe/cpu/dequant/block_scales.inc"

#include "libmoe/cpu/dequant/row_groups.inc"

#include "libmoe/cpu/dequant/e2m1.inc"

#include "libmoe/cpu/dequant/grid.inc"

#include "libmoe/cpu/dequant/dense.inc"
#include "libmoe/cpu/dequant/kbit.inc"

namespace moe::cpu {
namespace {

// Activation rows at a time: a sum for each, or four beside four weight rows.
constexpr int rows_of_panels = 8, rows_in_place = 6;

struct Bf16Rows {
    uint16_t values[panel_rows][panel_columns + 32];
    float scales[panel_rows][panel_columns / 16];
};
static_assert(sizeof(Bf16Rows) <= panel_source_bytes);

// 256 columns; scaled: the values times scales of 16 columns each.
template <bool scaled, class Block>
MOE_INLINE void store_bf16(const Block& block, Floats scales, uint16_t* to) {
    MOE_UNROLL for (int q = 0; q < 4; ++q) {
        Floats v[4];
        block.values(q, v);
        MOE_UNROLL for (int j = 0; scaled && j < 4; ++j) v[j] =
            _mm512_mul_ps(v[j], _mm512_permutexvar_ps(_mm512_set1_epi32(4 * q + j), scales));
        MOE_UNROLL for (int j = 0; j < 4; j += 2) {
            const __m512bh both = _mm512_cvtne2ps_pbh(v[j + 1], v[j]);
            _mm512_store_si512(to + 64 * q + 16 * j, reinterpret_cast<const Bytes&>(both));
        }
    }
}
template <bool scaled>
MOE_INLINE void store_bf16(const Bf16& block, Floats, uint16_t* to) {
    MOE_UNROLL for (int i = 0; i < 8; ++i)
        _mm512_store_si512(to + 32 * i, load_bytes(block.p + 64 * i));
}

template <class Format, bool scaled>
void dequantize_bf16(const GemvWeights& weights, int64_t first, int64_t n, int64_t column,
                     int64_t columns, std::byte* panel) {
    using Block = typename Format::Block;
    constexpr bool has_scales = Block::has_scale && !scaled;
    auto& rows = *reinterpret_cast<Bf16Rows*>(panel + panel_bytes);
    for (int64_t i = 0; i < panel_rows; ++i) {
        RowReader<Format> reader(weights, first + (i < n ? i : n - 1));
        for (int64_t k = 0; k < columns; k += quantized_step) {
            const Block block = reader.block((column + k) / quantized_step);
            Floats scales{};
            if constexpr (Block::has_scale)
                scales = _mm512_mul_ps(block.scale, _mm512_set1_ps(Format::factor(weights)));
            store_bf16<scaled && Block::has_scale>(block, scales, rows.values[i] + k);
            if constexpr (has_scales) _mm512_store_ps(rows.scales[i] + k / 16, scales);
        }
    }
    transpose_rows(reinterpret_cast<const std::byte*>(rows.values[0]), sizeof rows.values[0],
                   columns / 2, panel);
    if constexpr (has_scales)
        transpose_scales<32>(rows.scales, columns, panel + columns * panel_rows * 2);
}

MOE_INLINE Floats dot_pairs(Floats sum, Bytes weights, const uint16_t* x) {
    const Bytes pair = _mm512_set1_epi32(load_number<int32_t>(x));
    return _mm512_dpbf16_ps(sum, reinterpret_cast<const __m512bh&>(weights),
                            reinterpret_cast<const __m512bh&>(pair));
}

template <bool has_scales, int n>
void multiply_bf16(const std::byte* panel, const float* scales, int64_t columns,
                   const uint16_t* const* x, LinesAhead& ahead, float* out) {
    Floats sum[n];
    MOE_UNROLL for (int i = 0; i < n; ++i) sum[i] = _mm512_loadu_ps(out + 16 * i);
    for (int64_t k = 0; k < columns; k += 32, panel += 16 * 64, scales += 16) {
        ahead.fetch();
        Floats part[n];
        MOE_UNROLL for (int i = 0; i < n; ++i) part[i] = has_scales ? _mm512_setzero_ps() : sum[i];
        MOE_UNROLL for (int j = 0; j < 16; ++j) {
            const Bytes weights = load_bytes(panel + 64 * j);
            MOE_UNROLL for (int i = 0; i < n; ++i) part[i] =
                dot_pairs(part[i], weights, x[i] + k + 2 * j);
        }
        MOE_UNROLL for (int i = 0; i < n; ++i) sum[i] =
            has_scales ? _mm512_fmadd_ps(part[i], _mm512_load_ps(scales), sum[i]) : part[i];
    }
    MOE_UNROLL for (int i = 0; i < n; ++i) _mm512_storeu_ps(out + 16 * i, sum[i]);
}

MOE_INLINE const uint16_t* bf16_of_row(const void* row, const GemvWeights& weights) {
    return reinterpret_cast<const uint16_t*>(static_cast<const std::byte*>(row) + weights.x_bf16);
}

template <bool has_scales>
void multiply_bf16_panel(const std::byte* panel, const GemvWeights& weights, int64_t column,
                         int64_t columns, const void* const* x, int64_t n, float* sums) {
    const auto* scales = reinterpret_cast<const float*>(panel + columns * panel_rows * 2);
    LinesAhead ahead(weights, groups_of_rows(n, rows_of_panels) * (columns / 32));
    for_rows<rows_of_panels>(n, [&]<int n_rows>(int64_t first) {
        const uint16_t* rows[n_rows];
        for (int i = 0; i < n_rows; ++i) rows[i] = bf16_of_row(x[first + i], weights) + column;
        multiply_bf16<has_scales, n_rows>(panel, scales, columns, rows, ahead,
                                          sums + first * panel_rows);
    });
}

// Rows are multiplied as they lie, without a transposition that would take a third of the time for
// 32 activation rows: a lane has every sixteenth pair of columns, and lanes are added last.
struct RowPanel {
    // Rows of the copy do not meet in a set of the cache.
    static constexpr int64_t copy_stride = panel_columns + 32;

    const std::byte* rows;
    int64_t stride;
    alignas(64) uint16_t copy[panel_rows * copy_stride];
};
static_assert(sizeof(RowPanel) <= panel_bytes);

template <class Format>
void copy_to_bf16(const GemvWeights& weights, int64_t first, int64_t n, int64_t column,
                  int64_t columns, std::byte* panel) {
    auto& rows = *reinterpret_cast<RowPanel*>(panel);
    rows.rows = reinterpret_cast<const std::byte*>(rows.copy);
    rows.stride = 2 * RowPanel::copy_stride;
    for (int64_t i = 0; i < panel_rows; ++i) {
        RowReader<Format> reader(weights, first + (i < n ? i : n - 1));
        uint16_t* to = rows.copy + i * RowPanel::copy_stride;
        for (int64_t k = 0; k < columns; k += quantized_step)
            store_bf16<false>(reader.block((column + k) / quantized_step), Floats{}, to + k);
    }
}

// Weights of bfloat16 stay where they are, unless rows end before the panel.
void point_to_bf16(const GemvWeights& weights, int64_t first, int64_t n, int64_t column,
                   int64_t columns, std::byte* panel) {
    if (n < panel_rows || column + columns > weights.columns)
        return copy_to_bf16<Bf16Format>(weights, first, n, column, columns, panel);
    auto& rows = *reinterpret_cast<RowPanel*>(panel);
    rows.rows = weights.data + first * weights.row_stride + 2 * column;
    rows.stride = weights.row_stride;
}

// Sums of the lanes of four vectors.
MOE_INLINE __m128 sums_of_four(Floats a, Floats b, Floats c, Floats d) {
    const Floats quads = add_halves_of_quads(add_pairs_of_lanes(a, b), add_pairs_of_lanes(c, d));
    const __m256 halves =
        _mm256_add_ps(_mm512_castps512_ps256(quads), _mm512_extractf32x8_ps(quads, 1));
    return _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1));
}

// Four weight rows with n activation rows.
template <int n>
MOE_INLINE void multiply_bf16_rows(const std::byte* weights, int64_t stride, int64_t columns,
                                   const uint16_t* const* x, float* out, LinesAhead& ahead) {
    constexpr int n_rows = 4;
    Floats sum[n][n_rows];
    MOE_UNROLL for (int i = 0; i < n; ++i) MOE_UNROLL for (int j = 0; j < n_rows; ++j) sum[i][j] =
        _mm512_setzero_ps();
    for (int64_t k = 0; k < columns; k += 32) {
        ahead.fetch();
        __m512bh weight[n_rows];
        MOE_UNROLL for (int j = 0; j < n_rows; ++j) weight[j] =
            reinterpret_cast<__m512bh>(load_bytes(weights + j * stride + 2 * k));
        MOE_UNROLL for (int i = 0; i < n; ++i) {
            const auto row = reinterpret_cast<__m512bh>(load_bytes(x[i] + k));
            MOE_UNROLL for (int j = 0; j < n_rows; ++j) sum[i][j] =
                _mm512_dpbf16_ps(sum[i][j], weight[j], row);
        }
    }
    MOE_UNROLL for (int i = 0; i < n; ++i) {
        float* to = out + panel_rows * i;
        const __m128 sums = sums_of_four(sum[i][0], sum[i][1], sum[i][2], sum[i][3]);
        _mm_storeu_ps(to, _mm_add_ps(_mm_loadu_ps(to), sums));
    }
}

void multiply_row_panel(const std::byte* panel, const GemvWeights& weights, int64_t column,
                        int64_t columns, const void* const* x, int64_t n, float* sums) {
    const auto& all = *reinterpret_cast<const RowPanel*>(panel);
    LinesAhead ahead(weights, groups_of_rows(n, rows_in_place) * (columns / 32 * panel_rows / 4));
    for_rows<rows_in_place>(n, [&]<int n_rows>(int64_t first) {
        const uint16_t* rows[n_rows];
        for (int i = 0; i < n_rows; ++i) rows[i] = bf16_of_row(x[first + i], weights) + column;
        for (int64_t j = 0; j < panel_rows; j += 4)
            multiply_bf16_rows<n_rows>(all.rows + j * all.stride, all.stride, columns, rows,
                                       sums + first * panel_rows + j, ahead);
    });
}

template <class Format, int64_t min_rows = min_panel_rows>
GemmKernels bf16_kernels(bool scaled) {
    constexpr bool has_scale = Format::Block::has_scale;
    if (scaled)
        return {dequantize_bf16<Format, true>, multiply_bf16_panel<false>, RowForm::bf16, 0};
    return {.dequantize = dequantize_bf16<Format, false>,
            .multiply = multiply_bf16_panel<has_scale>,
            .rows = RowForm::bf16,
            .scale_columns = has_scale ? 32 : 0,
            .min_rows = min_rows};
}

}  // namespace

GemmKernels gemm_avx512bf16(GemvFormat format, bool scaled) {
    switch (format) {
        case GemvFormat::bf16:
            if (scaled) return bf16_kernels<Bf16Format>(true);
            return {.dequantize = point_to_bf16,
                    .multiply = multiply_row_panel,
                    .rows = RowForm::bf16,
                    .min_rows = 2};
        case GemvFormat::f16:
            if (scaled) return bf16_kernels<F16Format>(true);
            return {.dequantize = copy_to_bf16<F16Format>,
                    .multiply = multiply_row_panel,
                    .rows = RowForm::bf16,
                    .min_rows = 3};
        case GemvFormat::fp8:
            return bf16_kernels<Fp8Format, 12>(scaled);
        case GemvFormat::kbit2:
        case GemvFormat::kbit2_given:
            return bf16_kernels<KbitFormat<2>>(scaled);
        case GemvFormat::kbit3:
        case GemvFormat::kbit3_given:
            return bf16_kernels<KbitFormat<3>, 10>(scaled);
        case GemvFormat::kbit4:
        case GemvFormat::kbit4_given:
            return bf16_kernels<KbitFormat<4>, 10>(scaled);
        case GemvFormat::kbit5:
        case GemvFormat::kbit5_given:
            return bf16_kernels<KbitFormat<5>, 10>(scaled);
        default:
            return {};
    }
}

}  // namespace moe::cpu
#endif
