// Products of a panel with activation rows for AVX-512 with VNNI: a lane is a weight row, an
// activation is broadcast. Up to eight activation rows share what is loaded of the panel.
//
// The order of operations of a row does not depend on how many rows there are.
#include "libmoe/cpu/avx512vnni/tables.hpp"

#if defined(MOE_X86)
#include <immintrin.h>

#include "libmoe/cpu/avx512vnni/vectors.inc"

#include "libmoe/cpu/avx512vnni/panels.inc"

#include "libmoe/cpu/gemm/for_rows.inc"

#include "libmoe/cpu/dequant/passes.inc"

#include "libmoe/cpu/avx512vnni/row_sums.inc"

#include "libmoe/cpu/avx512vnni/int8_loops.inc"

namespace moe::cpu {
namespace {

constexpr int most_rows = 8;

// Some columns of an integer panel and of the activation rows.
struct IntegerPanel {
    const std::byte* codes;
    const float* scales;
    const float* offsets;
    int64_t columns;
};

MOE_INLINE Bytes broadcast_4(const std::byte* p) {
    return _mm512_set1_epi32(load_number<int32_t>(p));
}

// Adds the products of n_codes vectors of codes, four columns each, with a part of n activation
// rows. The sums of the rows take turns, since each product waits for the one before it in its sum.
template <int n_codes, int n>
MOE_INLINE void add_products(const std::byte* codes, const QuantizedRow* rows, int64_t at,
                             Bytes (&sum)[n]) {
    MOE_UNROLL for (int j = 0; j < n_codes; ++j) {
        const Bytes code = load_bytes(codes + 64 * j);
        MOE_UNROLL for (int i = 0; i < n; ++i) sum[i] =
            _mm512_dpbusd_epi32(sum[i], code, broadcast_4(rows[i].bytes + at + 4 * j));
    }
}

// The same with all parts; those of 64 columns lie 64 bytes apart.
template <int parts, int n_codes, int n>
MOE_INLINE void multiply_parts(const std::byte* codes, const QuantizedRow* rows, int64_t at,
                               Floats (&product)[n]) {
    Bytes sum[n];
    MOE_UNROLL for (int i = 0; i < n; ++i) sum[i] = _mm512_setzero_si512();
    add_products<n_codes>(codes, rows, at, sum);
    if constexpr (parts > 1) {
        MOE_UNROLL for (int i = 0; i < n; ++i) sum[i] = _mm512_slli_epi32(sum[i], 8);
        add_products<n_codes>(codes, rows, at + 64, sum);
    }
    MOE_UNROLL for (int i = 0; i < n; ++i) product[i] = _mm512_cvtepi32_ps(sum[i]);
    if constexpr (parts == 3) {
        MOE_UNROLL for (int i = 0; i < n; ++i) sum[i] = _mm512_setzero_si512();
        add_products<n_codes>(codes, rows, at + 128, sum);
        MOE_UNROLL for (int i = 0; i < n; ++i) product[i] =
            _mm512_fmadd_ps(product[i], _mm512_set1_ps(256.0f), _mm512_cvtepi32_ps(sum[i]));
    }
}

// The scale of an activation row for group g of 32 of the 64 columns from k on, and eight numbers
// further their sum.
MOE_INLINE const float* of_32_columns(const QuantizedRow& x, int64_t k, int g) {
    return x.of_32 + k / quantized_step * 16 + k % quantized_step / 32 + g;
}

// 32 columns from k + 32 g on. Where they are under two scales, the products meet these before that
// of the activations, which is the same for both.
template <int parts, int scale_columns, int n>
MOE_INLINE void multiply_32_columns(const std::byte* codes, const float* scales,
                                    const float* offsets, const QuantizedRow* rows, int64_t k,
                                    int g, Floats (&sum)[n]) {
    const int64_t at = parts * k + 32 * g;
    Floats product[n];
    multiply_parts<parts, scale_columns / 4>(codes, rows, at, product);
    const Floats scale = _mm512_load_ps(scales), offset = _mm512_load_ps(offsets);
    if constexpr (scale_columns == 32) {
        MOE_UNROLL for (int i = 0; i < n; ++i) {
            const float* x = of_32_columns(rows[i], k, g);
            const Floats both = _mm512_mul_ps(scale, _mm512_set1_ps(x[0]));
            sum[i] = _mm512_fmadd_ps(product[i], both, sum[i]);
            sum[i] = _mm512_fnmadd_ps(offset, _mm512_set1_ps(x[8]), sum[i]);
        }
    } else {
        MOE_UNROLL for (int i = 0; i < n; ++i) product[i] = _mm512_mul_ps(product[i], scale);
        Floats second[n];
        multiply_parts<parts, scale_columns / 4>(codes + 256, rows, at + 16, second);
        const Floats scale_of_second = _mm512_load_ps(scales + 16);
        const Floats offset_of_second = _mm512_load_ps(offsets + 16);
        MOE_UNROLL for (int i = 0; i < n; ++i) {
            const float* sums_of_x = rows[i].sums + k / 16 + 2 * g;
            product[i] = _mm512_fmadd_ps(second[i], scale_of_second, product[i]);
            sum[i] =
                _mm512_fmadd_ps(product[i], _mm512_set1_ps(*of_32_columns(rows[i], k, g)), sum[i]);
            sum[i] = _mm512_fnmadd_ps(offset, _mm512_set1_ps(sums_of_x[0]), sum[i]);
            sum[i] = _mm512_fnmadd_ps(offset_of_second, _mm512_set1_ps(sums_of_x[1]), sum[i]);
        }
    }
}

template <int parts, int scale_columns, int n>
void multiply_integers(const IntegerPanel& panel, const QuantizedRow* rows, LinesAhead& ahead,
                       float* out) {
    constexpr int n_scales = 32 / scale_columns * 16;  // of 32 columns
    Floats sum[n];
    MOE_UNROLL for (int i = 0; i < n; ++i) sum[i] = _mm512_loadu_ps(out + 16 * i);
    const std::byte* codes = panel.codes;
    const float *scales = panel.scales, *offsets = panel.offsets;
    for (int64_t k = 0; k < panel.columns; k += 64) {
        MOE_UNROLL for (int g = 0; g < 2; ++g) {
            ahead.fetch();
            multiply_32_columns<parts, scale_columns>(codes, scales, offsets, rows, k, g, sum);
            codes += 512;
            scales += n_scales;
            offsets += n_scales;
        }
    }
    MOE_UNROLL for (int i = 0; i < n; ++i) _mm512_storeu_ps(out + 16 * i, sum[i]);
}

template <int parts, int scale_columns>
void multiply_integer_panel(const std::byte* panel, const GemvWeights& weights, int64_t column,
                            int64_t columns, const void* const* x, int64_t n, float* sums) {
    const auto* scales = reinterpret_cast<const float*>(panel + columns * panel_rows);
    const IntegerPanel all = {panel, scales, scales + columns / scale_columns * panel_rows,
                              columns};
    GemvWeights natural = weights;
    natural.x_offset = weights.x_natural;
    LinesAhead ahead(weights, groups_of_rows(n, most_rows) * (columns / 32));
    for_rows<most_rows>(n, [&]<int n_rows>(int64_t first) {
        QuantizedRow rows[n_rows];
        for (int i = 0; i < n_rows; ++i) {
            QuantizedRow& row = rows[i] = quantized_row(x[first + i], natural);
            row.bytes += parts * column;
            row.scales += column / 16;
            row.sums += column / 16;
            row.of_32 += column / 16;
        }
        multiply_integers<parts, scale_columns, n_rows>(all, rows, ahead,
                                                        sums + first * panel_rows);
    });
}

template <int n>
void multiply_values(const float* panel, int64_t columns, const float* const* x, LinesAhead& ahead,
                     float* out) {
    Floats sum[n];
    MOE_UNROLL for (int i = 0; i < n; ++i) sum[i] = _mm512_loadu_ps(out + 16 * i);
    for (int64_t k = 0; k < columns; k += 4) {
        ahead.fetch();
        MOE_UNROLL for (int j = 0; j < 4; ++j) {
            const Floats weight = _mm512_load_ps(panel + 16 * (k + j));
            MOE_UNROLL for (int i = 0; i < n; ++i) sum[i] =
                _mm512_fmadd_ps(weight, _mm512_set1_ps(x[i][k + j]), sum[i]);
        }
    }
    MOE_UNROLL for (int i = 0; i < n; ++i) _mm512_storeu_ps(out + 16 * i, sum[i]);
}

}  // namespace

// Rows end at weights.columns, a multiple of 16; the panel is zero beyond.
void multiply_value_panel_avx512(const std::byte* panel, const GemvWeights& weights, int64_t column,
                                 int64_t columns, const void* const* x, int64_t n, float* sums) {
    const int64_t left = weights.columns - column;
    const int64_t used = left < columns ? left : columns;
    LinesAhead ahead(weights, groups_of_rows(n, most_rows) * (columns / 4));
    for_rows<most_rows>(n, [&]<int n_rows>(int64_t first) {
        const float* rows[n_rows];
        for (int i = 0; i < n_rows; ++i) rows[i] = static_cast<const float*>(x[first + i]) + column;
        multiply_values<n_rows>(reinterpret_cast<const float*>(panel), used, rows, ahead,
                                sums + first * panel_rows);
    });
}

PanelMultiply integer_panel_multiply_avx512vnni(int32_t parts, int scale_columns) {
    constexpr PanelMultiply all[3][2] = {
        {multiply_integer_panel<1, 16>, multiply_integer_panel<1, 32>},
        {multiply_integer_panel<2, 16>, multiply_integer_panel<2, 32>},
        {multiply_integer_panel<3, 16>, multiply_integer_panel<3, 32>}};
    return all[parts - 1][scale_columns / 32];
}

}  // namespace moe::cpu
#endif
