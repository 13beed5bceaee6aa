// Products of a panel with activation rows for AVX2: a lane is a weight row, an activation is
// broadcast. Words are multiplied by vpmaddwd, which adds two columns of a lane; 32 codes of 9 bits
// and activations of 16 fit its sums.
//
// The order of operations of a row does not depend on how many rows there are.
#include "libmoe/cpu/avx2/gemv_tables.hpp"

#if defined(MOE_X86)
#include <immintrin.h>

#include "libmoe/cpu/avx2/vectors.inc"

#include "libmoe/cpu/avx2/panels.inc"

#include "libmoe/cpu/gemm/for_rows.inc"

#include "libmoe/cpu/dequant/passes.inc"

#include "libmoe/cpu/avx2/int8_loops.inc"

namespace moe::cpu {
namespace {

// Four columns, or four numbers, of each of 16 rows: those of rows 8 half to 8 half + 7 become
// vectors of one column, or number, each.
MOE_INLINE void transpose_4x8(const std::byte* rows, int64_t stride, Bytes (&out)[4]) {
    Bytes two[4];
    MOE_UNROLL for (int i = 0; i < 4; ++i) two[i] =
        join(load_16(rows + i * stride), load_16(rows + (i + 4) * stride));
    const Bytes low01 = _mm256_unpacklo_epi32(two[0], two[1]);
    const Bytes low23 = _mm256_unpacklo_epi32(two[2], two[3]);
    const Bytes high01 = _mm256_unpackhi_epi32(two[0], two[1]);
    const Bytes high23 = _mm256_unpackhi_epi32(two[2], two[3]);
    out[0] = _mm256_unpacklo_epi64(low01, low23);
    out[1] = _mm256_unpackhi_epi64(low01, low23);
    out[2] = _mm256_unpacklo_epi64(high01, high23);
    out[3] = _mm256_unpackhi_epi64(high01, high23);
}
MOE_INLINE void store_vector(void* to, Bytes v) {
    _mm256_store_si256(static_cast<__m256i*>(to), v);
}

constexpr int64_t quad_bytes = 4 * panel_rows * 2;  // of four columns in a panel of words

template <bool is_signed>
void transpose_codes(const std::byte* rows, int64_t stride, int64_t columns, const uint8_t* ordered,
                     std::byte* panel) {
    for (int64_t k = 0; k < columns; k += 16) {
        std::byte* const begin = panel + k / quantized_step * (quantized_step / 4 * quad_bytes);
        const uint8_t* first = ordered + k % quantized_step;
        MOE_UNROLL for (int half = 0; half < 2; ++half) {
            Bytes quad[4];
            transpose_4x8(rows + k + 8 * half * stride, stride, quad);
            MOE_UNROLL for (int j = 0; j < 4; ++j) {
                std::byte* to = begin + first[4 * j] * (quad_bytes / 4) + 32 * half;
                if constexpr (is_signed) {
                    store_vector(to, _mm256_srai_epi16(_mm256_slli_epi16(quad[j], 8), 8));
                    store_vector(to + 64, _mm256_srai_epi16(quad[j], 8));
                } else {
                    store_vector(to, _mm256_and_si256(quad[j], _mm256_set1_epi16(255)));
                    store_vector(to + 64, _mm256_srli_epi16(quad[j], 8));
                }
            }
        }
    }
}

struct WordPanel {
    const std::byte* codes;
    const float* scales;
    int64_t columns;
};
struct WordRow {
    const std::byte* words;
    const float* scales;
    const float* sums;
};

// Columns of a panel that are multiplied with all rows before the next ones: 16 KB, which stay in
// L1.
constexpr int64_t word_columns = 512, value_columns = 256;

MOE_INLINE Bytes broadcast_pair(const std::byte* p) {
    return _mm256_set1_epi32(load_number<int32_t>(p));
}

// The compiler would make all products of a group before it adds them in a tree, for which there
// are not enough registers.
MOE_INLINE void keep_in_order(Bytes (&sum)[2]) {
    asm("" : "+x"(sum[0]), "+x"(sum[1]));
}

// parts - 1 words of an activation have sums of their own.
template <int parts, int scale_columns, int n>
MOE_INLINE void add_group(const std::byte* codes, const Floats (&scale)[2],
                          const std::byte* const (&words)[n], const float (&x_scale)[n],
                          float* out) {
    constexpr int n_words = parts - 1;
    Bytes sum[n][n_words][2];
    MOE_UNROLL for (int q = 0; q < scale_columns / 2; ++q) {
        const Bytes first = load_bytes(codes + 64 * q), second = load_bytes(codes + 64 * q + 32);
        MOE_UNROLL for (int i = 0; i < n; ++i) MOE_UNROLL for (int w = 0; w < n_words; ++w) {
            const Bytes pair = broadcast_pair(words[i] + 64 * w + 4 * q);
            const Bytes a = _mm256_madd_epi16(first, pair), b = _mm256_madd_epi16(second, pair);
            sum[i][w][0] = q ? _mm256_add_epi32(sum[i][w][0], a) : a;
            sum[i][w][1] = q ? _mm256_add_epi32(sum[i][w][1], b) : b;
            keep_in_order(sum[i][w]);
        }
    }
    MOE_UNROLL for (int i = 0; i < n; ++i) MOE_UNROLL for (int v = 0; v < 2; ++v) {
        Floats product = _mm256_cvtepi32_ps(sum[i][0][v]);
        if constexpr (parts == 3)
            product = _mm256_fmadd_ps(product, _mm256_set1_ps(256.0f),
                                      _mm256_cvtepi32_ps(sum[i][n_words - 1][v]));
        const Floats both = _mm256_mul_ps(scale[v], _mm256_set1_ps(x_scale[i]));
        float* to = out + 16 * i + 8 * v;
        _mm256_storeu_ps(to, _mm256_fmadd_ps(product, both, _mm256_loadu_ps(to)));
    }
}

template <int parts, int scale_columns, int n>
void multiply_words(const WordPanel& panel, const WordRow* rows, float* out) {
    const std::byte* codes = panel.codes;
    const float* scales = panel.scales;
    for (int64_t k = 0; k < panel.columns; k += 32) {
        MOE_UNROLL for (int g = 0; g < 32 / scale_columns; ++g) {
            const Floats scale[2] = {_mm256_load_ps(scales), _mm256_load_ps(scales + 8)};
            const std::byte* words[n];
            float x_scale[n];
            MOE_UNROLL for (int i = 0; i < n; ++i) {
                words[i] = rows[i].words + 2 * k * (parts - 1) + 32 * g;
                x_scale[i] = rows[i].scales[k / 16];
            }
            add_group<parts, scale_columns, n>(codes, scale, words, x_scale, out);
            // The sums stay in memory: kept in registers, they would be spilled there, too.
            asm("" : : : "memory");
            codes += 32 * scale_columns;
            scales += 16;
        }
    }
}

// out -= offsets times the sums of the activations.
template <int scale_columns, int n>
void subtract_offsets(const float* offsets, int64_t columns, const WordRow* rows, float* out) {
    Floats sum[n][2];
    MOE_UNROLL for (int i = 0; i < n; ++i) MOE_UNROLL for (int v = 0; v < 2; ++v) sum[i][v] =
        _mm256_loadu_ps(out + 16 * i + 8 * v);
    for (int64_t g = 0; g < columns / 16; g += scale_columns / 16) {
        const Floats low = _mm256_load_ps(offsets), high = _mm256_load_ps(offsets + 8);
        MOE_UNROLL for (int i = 0; i < n; ++i) {
            float x_sum = rows[i].sums[g];
            if constexpr (scale_columns == 32) x_sum += rows[i].sums[g + 1];
            sum[i][0] = _mm256_fnmadd_ps(low, _mm256_set1_ps(x_sum), sum[i][0]);
            sum[i][1] = _mm256_fnmadd_ps(high, _mm256_set1_ps(x_sum), sum[i][1]);
        }
        offsets += 16;
    }
    MOE_UNROLL for (int i = 0; i < n; ++i) MOE_UNROLL for (int v = 0; v < 2; ++v)
        _mm256_storeu_ps(out + 16 * i + 8 * v, sum[i][v]);
}

template <int parts, int scale_columns, bool has_offsets>
void multiply_word_panel(const std::byte* panel, const GemvWeights& weights, int64_t column,
                         int64_t columns, const void* const* x, int64_t n, float* sums) {
    constexpr int most = parts == 2 ? 4 : 2;
    const auto* scales = reinterpret_cast<const float*>(panel + columns * panel_rows * 2);
    const float* offsets = scales + columns / scale_columns * panel_rows;
    for (int64_t k = 0; k < columns; k += word_columns) {
        const int64_t left = columns - k, used = left < word_columns ? left : word_columns;
        const int64_t from_scale = k / scale_columns * panel_rows;
        const WordPanel block = {panel + k * panel_rows * 2, scales + from_scale, used};
        for_rows<most>(n, [&]<int n_rows>(int64_t first) {
            WordRow rows[n_rows];
            for (int i = 0; i < n_rows; ++i) {
                const QuantizedRow row = quantized_row(x[first + i], weights);
                rows[i] = {
                    row.bytes + weights.x_words - weights.x_offset + 2 * (column + k) * (parts - 1),
                    row.scales + (column + k) / 16, row.sums + (column + k) / 16};
            }
            float* out = sums + first * panel_rows;
            multiply_words<parts, scale_columns, n_rows>(block, rows, out);
            if constexpr (has_offsets)
                subtract_offsets<scale_columns, n_rows>(offsets + from_scale, used, rows, out);
        });
    }
}

template <int n>
void multiply_values(const float* panel, int64_t columns, const float* const* x, float* out) {
    Floats sum[n][2];
    MOE_UNROLL for (int i = 0; i < n; ++i) MOE_UNROLL for (int v = 0; v < 2; ++v) sum[i][v] =
        _mm256_loadu_ps(out + 16 * i + 8 * v);
    for (int64_t k = 0; k < columns; k += 4) {
        MOE_UNROLL for (int j = 0; j < 4; ++j) {
            const Floats first = _mm256_load_ps(panel + 16 * (k + j));
            const Floats second = _mm256_load_ps(panel + 16 * (k + j) + 8);
            MOE_UNROLL for (int i = 0; i < n; ++i) {
                const Floats one = _mm256_set1_ps(x[i][k + j]);
                sum[i][0] = _mm256_fmadd_ps(first, one, sum[i][0]);
                sum[i][1] = _mm256_fmadd_ps(second, one, sum[i][1]);
            }
        }
    }
    MOE_UNROLL for (int i = 0; i < n; ++i) MOE_UNROLL for (int v = 0; v < 2; ++v)
        _mm256_storeu_ps(out + 16 * i + 8 * v, sum[i][v]);
}

}  // namespace

void transpose_codes_avx2(const std::byte* rows, int64_t stride, int64_t columns,
                          const uint8_t* ordered, bool is_signed, std::byte* panel) {
    if (is_signed)
        transpose_codes<true>(rows, stride, columns, ordered, panel);
    else
        transpose_codes<false>(rows, stride, columns, ordered, panel);
}

void transpose_floats_avx2(const float* rows, int64_t stride, int64_t columns, float* to) {
    for (int64_t k = 0; k < columns; k += 4) MOE_UNROLL for (int half = 0; half < 2; ++half) {
            Bytes number[4];
            transpose_4x8(reinterpret_cast<const std::byte*>(rows + k + 8 * half * stride),
                          stride * 4, number);
            MOE_UNROLL for (int j = 0; j < 4; ++j)
                store_vector(to + 16 * (k + j) + 8 * half, number[j]);
        }
}

// Rows end at weights.columns, a multiple of 16; the panel is zero beyond.
void multiply_value_panel_avx2(const std::byte* panel, const GemvWeights& weights, int64_t column,
                               int64_t columns, const void* const* x, int64_t n, float* sums) {
    const int64_t left = weights.columns - column, used = left < columns ? left : columns;
    for (int64_t k = 0; k < used; k += value_columns) {
        const int64_t count = used - k < value_columns ? used - k : value_columns;
        for_rows<4>(n, [&]<int n_rows>(int64_t first) {
            const float* rows[n_rows];
            for (int i = 0; i < n_rows; ++i)
                rows[i] = static_cast<const float*>(x[first + i]) + column + k;
            multiply_values<n_rows>(reinterpret_cast<const float*>(panel) + k * panel_rows, count,
                                    rows, sums + first * panel_rows);
        });
    }
}

PanelMultiply word_panel_multiply_avx2(int32_t parts, const WordPanels& panels) {
    constexpr PanelMultiply all[2][2][2] = {
        {{multiply_word_panel<2, 16, false>, multiply_word_panel<2, 16, true>},
         {multiply_word_panel<2, 32, false>, multiply_word_panel<2, 32, true>}},
        {{multiply_word_panel<3, 16, false>, multiply_word_panel<3, 16, true>},
         {multiply_word_panel<3, 32, false>, multiply_word_panel<3, 32, true>}}};
    return all[parts - 2][panels.scale_columns / 32][panels.has_offsets];
}

}  // namespace moe::cpu
#endif
