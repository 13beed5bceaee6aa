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

// The products of n vectors of codes, four columns each, with one part of the activations.
template <int n>
MOE_INLINE Bytes dot_broadcast(Bytes sum, const Bytes (&codes)[n], const std::byte* x) {
    MOE_UNROLL for (int j = 0; j < n; ++j) sum =
        _mm512_dpbusd_epi32(sum, codes[j], broadcast_4(x + 4 * j));
    return sum;
}

// The same with all parts; those of 64 columns lie 64 bytes apart.
template <int parts, int n>
MOE_INLINE Floats dot_parts(const Bytes (&codes)[n], const std::byte* x) {
    const Bytes zero = _mm512_setzero_si512();
    const Bytes first = dot_broadcast(zero, codes, x);
    if constexpr (parts == 1) return _mm512_cvtepi32_ps(first);
    const Bytes both = dot_broadcast(_mm512_slli_epi32(first, 8), codes, x + 64);
    if constexpr (parts == 2) return _mm512_cvtepi32_ps(both);
    const Floats low = _mm512_cvtepi32_ps(dot_broadcast(zero, codes, x + 128));
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(both), _mm512_set1_ps(256.0f), low);
}

template <int parts, int scale_columns, int n>
void multiply_integers(const IntegerPanel& panel, const QuantizedRow* rows, float* out) {
    constexpr int n_codes = scale_columns / 4, n_groups = 64 / scale_columns;
    Floats sum[n];
    MOE_UNROLL for (int i = 0; i < n; ++i) sum[i] = _mm512_loadu_ps(out + 16 * i);
    const std::byte* codes_at = panel.codes;
    const float *scales = panel.scales, *offsets = panel.offsets;
    for (int64_t k = 0; k < panel.columns; k += 64) {
        MOE_UNROLL for (int g = 0; g < n_groups; ++g) {
            Bytes codes[n_codes];
            MOE_UNROLL for (int j = 0; j < n_codes; ++j) codes[j] = load_bytes(codes_at + 64 * j);
            const Floats scale = _mm512_load_ps(scales), offset = _mm512_load_ps(offsets);
            const int64_t group = k / 16 + g * scale_columns / 16;
            MOE_UNROLL for (int i = 0; i < n; ++i) {
                const QuantizedRow& x = rows[i];
                const Floats product =
                    dot_parts<parts>(codes, x.bytes + parts * k + g * scale_columns);
                const Floats both = _mm512_mul_ps(scale, _mm512_set1_ps(x.scales[group]));
                sum[i] = _mm512_fmadd_ps(product, both, sum[i]);
                const Floats x_sum =
                    _mm512_set1_ps(x.sums[scale_columns == 32 ? group / 2 : group]);
                sum[i] = _mm512_fnmadd_ps(offset, x_sum, sum[i]);
            }
            codes_at += 64 * n_codes;
            scales += 16;
            offsets += 16;
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
    for_rows<8>(n, [&]<int n_rows>(int64_t first) {
        QuantizedRow rows[n_rows];
        // With a scale for 32 columns their sums are wanted.
        float sums_of_32[n_rows][panel_columns / 32];
        for (int i = 0; i < n_rows; ++i) {
            QuantizedRow& row = rows[i] = quantized_row(x[first + i], natural);
            row.bytes += parts * column;
            row.scales += column / 16;
            row.sums += column / 16;
            if constexpr (scale_columns == 32) {
                for (int64_t g = 0; g < columns / 32; ++g)
                    sums_of_32[i][g] = row.sums[2 * g] + row.sums[2 * g + 1];
                row.sums = sums_of_32[i];
            }
        }
        multiply_integers<parts, scale_columns, n_rows>(all, rows, sums + first * panel_rows);
    });
}

template <int n>
void multiply_values(const float* panel, int64_t columns, const float* const* x, float* out) {
    Floats sum[n];
    MOE_UNROLL for (int i = 0; i < n; ++i) sum[i] = _mm512_loadu_ps(out + 16 * i);
    for (int64_t k = 0; k < columns; k += 4) {
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
    for_rows<8>(n, [&]<int n_rows>(int64_t first) {
        const float* rows[n_rows];
        for (int i = 0; i < n_rows; ++i) rows[i] = static_cast<const float*>(x[first + i]) + column;
        multiply_values<n_rows>(reinterpret_cast<const float*>(panel), used, rows,
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
