// Gemv kernels of bf16 and fp8 weights with bfloat16 activations, for AVX-512 with BF16: two
// columns are multiplied and added at once. Activations are one bfloat16 each, or two whose sum
// they are.
//
// Both weights are exact in bfloat16, so the products are exact and their sums those of float32. A
// subnormal number of bfloat16 counts as zero; no fp8 code is one.
//
// Steps for 64 columns of fp8: 1. the codes are brought into an order in which step 3 gives the
// natural one, 2. the seven bits of a magnitude look up the low and the high byte of its bfloat16,
// 3. both are interleaved, 4. the products of the columns under one scale are added, and meet it.
#include "libmoe/cpu/avx512vnni/tables.hpp"

#if defined(MOE_X86)
#include <immintrin.h>
#define MOE_GEMV_AVX512 1

#include "libmoe/cpu/avx512vnni/vectors.inc"

#include "libmoe/cpu/avx512vnni/row_sums.inc"

#include "libmoe/cpu/dequant/block_scales.inc"

#include "libmoe/cpu/dequant/row_groups.inc"

#include "libmoe/cpu/dequant/e2m1.inc"

#include "libmoe/cpu/dequant/grid.inc"

#include "libmoe/cpu/dequant/dense.inc"

namespace moe::cpu {
namespace {

// An activation row: `low` is what `high` rounded off, where it is read.
struct Bf16Row {
    const std::byte *high, *low;

    MOE_INLINE Bf16Row() = default;
    MOE_INLINE Bf16Row(const void* x, const GemvWeights& weights)
        : high(static_cast<const std::byte*>(x) + weights.x_bf16),
          low(static_cast<const std::byte*>(x) + weights.x_bf16_low) {}
};

MOE_INLINE Floats dot_pairs(Floats sum, Bytes weights, const std::byte* x) {
    const Bytes row = load_bytes(x);
    return _mm512_dpbf16_ps(sum, reinterpret_cast<const __m512bh&>(weights),
                            reinterpret_cast<const __m512bh&>(row));
}
// 32 columns from `column` on.
template <int parts>
MOE_INLINE Floats dot_32(Floats sum, Bytes weights, const Bf16Row& x, int64_t column) {
    sum = dot_pairs(sum, weights, x.high + 2 * column);
    return parts == 2 ? dot_pairs(sum, weights, x.low + 2 * column) : sum;
}

// Bytes ahead of the loads that are prefetched into L2: further ahead is another page, and slower.
constexpr int64_t bf16_prefetch_distance = 2560;

// --- bf16 -------------------------------------------------------------------------------------

template <int parts, int n>
void bf16_gemv(const GemvWeights& weights, int64_t first, int64_t last, const void* const* rows,
               float* out) {
    Bf16Row x[n];
    for (int i = 0; i < n; ++i) x[i] = Bf16Row(rows[i], weights);
    const int64_t n_blocks = (weights.columns + quantized_step - 1) / quantized_step;
    RowSums sums(out, 1.0f);
    for (int64_t row = first; row < last; ++row) {
        RowReader<Bf16Format> reader(weights, row);
        Floats sum[n][4];
        MOE_UNROLL for (int i = 0; i < n; ++i) MOE_UNROLL for (int j = 0; j < 4; ++j) sum[i][j] =
            _mm512_setzero_ps();
        for (int64_t b = 0; b < n_blocks; ++b) {
            const Bf16 block = reader.block(b);
            MOE_UNROLL for (int j = 0; j < 8; ++j) _mm_prefetch(
                reinterpret_cast<const char*>(block.p + 64 * j + bf16_prefetch_distance),
                _MM_HINT_T1);
            MOE_UNROLL for (int j = 0; j < 8; ++j) {
                const Bytes w = load_bytes(block.p + 64 * j);
                MOE_UNROLL for (int i = 0; i < n; ++i) sum[i][j % 4] =
                    dot_32<parts>(sum[i][j % 4], w, x[i], quantized_step * b + 32 * j);
            }
        }
        MOE_UNROLL for (int i = 0; i < n; ++i) sums.add(_mm512_add_ps(
            _mm512_add_ps(sum[i][0], sum[i][1]), _mm512_add_ps(sum[i][2], sum[i][3])));
    }
    sums.finish();
}

// --- fp8 --------------------------------------------------------------------------------------

// Columns of 64 codes in two vectors.
MOE_INLINE void fp8_to_bf16(const std::byte* codes, Bytes (&w)[2]) {
    const Bytes order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
    e4m3_to_bf16(_mm512_permutexvar_epi64(order, load_bytes(codes)), w);
}

// 128 columns from `column` on, of which `codes` are those.
template <int parts, int n>
MOE_INLINE void add_128_fp8(const std::byte* codes, Floats scale, const Bf16Row (&x)[n],
                            int64_t column, Floats (&sum)[n]) {
    Floats part[n];
    MOE_UNROLL for (int i = 0; i < n; ++i) part[i] = _mm512_setzero_ps();
    MOE_UNROLL for (int q = 0; q < 2; ++q) {
        Bytes w[2];
        fp8_to_bf16(codes + 64 * q, w);
        MOE_UNROLL for (int j = 0; j < 2; ++j) MOE_UNROLL for (int i = 0; i < n; ++i) part[i] =
            dot_32<parts>(part[i], w[j], x[i], column + 64 * q + 32 * j);
    }
    MOE_UNROLL for (int i = 0; i < n; ++i) sum[i] = _mm512_fmadd_ps(part[i], scale, sum[i]);
}
// The same of 256 columns under any scales.
template <int parts, int n>
MOE_INLINE void add_256_fp8(const Fp8& block, const Bf16Row (&x)[n], int64_t column,
                            Floats (&sum)[n]) {
    MOE_UNROLL for (int q = 0; q < 4; ++q) {
        Bytes w[2];
        fp8_to_bf16(block.p + 64 * q, w);
        MOE_UNROLL for (int j = 0; j < 2; ++j) {
            const int at = 64 * q + 32 * j;
            const Floats scale = _mm512_permutexvar_ps(_mm512_set1_epi32(at / 16), block.scale);
            MOE_UNROLL for (int i = 0; i < n; ++i) sum[i] = _mm512_fmadd_ps(
                dot_32<parts>(_mm512_setzero_ps(), w[j], x[i], column + at), scale, sum[i]);
        }
    }
}

template <bool is_wide, int parts, int n>
void fp8_gemv_under(const GemvWeights& weights, int64_t first, int64_t last,
                    const void* const* rows, float* out) {
    Bf16Row x[n];
    for (int i = 0; i < n; ++i) x[i] = Bf16Row(rows[i], weights);
    const int64_t n_blocks = (weights.columns + quantized_step - 1) / quantized_step;
    RowSums sums(out, 1.0f);
    WideScales scales;
    for (int64_t row = first; row < last; ++row) {
        RowReader<Fp8Format> reader(weights, row);
        if (is_wide) scales.read(weights, reader.row);
        Floats sum[n];
        MOE_UNROLL for (int i = 0; i < n; ++i) sum[i] = _mm512_setzero_ps();
        for (int64_t b = 0; b < n_blocks; ++b) {
            const int64_t column = quantized_step * b;
            if constexpr (is_wide) {
                const std::byte* codes = reader.bytes_of(b);
                MOE_UNROLL for (int h = 0; h < 2; ++h) add_128_fp8<parts, n>(
                    codes + 128 * h, scales.of_column(column + 128 * h), x, column + 128 * h, sum);
            } else {
                add_256_fp8<parts, n>(reader.block(b), x, column, sum);
            }
        }
        MOE_UNROLL for (int i = 0; i < n; ++i) sums.add(sum[i]);
    }
    sums.finish();
}
template <int parts, int n>
void fp8_gemv(const GemvWeights& weights, int64_t first, int64_t last, const void* const* rows,
              float* out) {
    if (WideScales::are_wide(weights))
        fp8_gemv_under<true, parts, n>(weights, first, last, rows, out);
    else
        fp8_gemv_under<false, parts, n>(weights, first, last, rows, out);
}

template <int parts>
constexpr GemvKernels bf16_kernels = {
    {bf16_gemv<parts, 1>, bf16_gemv<parts, 2>, bf16_gemv<parts, 4>}};
template <int parts>
constexpr GemvKernels fp8_kernels = {{fp8_gemv<parts, 1>, fp8_gemv<parts, 2>, fp8_gemv<parts, 4>}};

}  // namespace

const GemvKernels* gemv_avx512bf16(GemvFormat format, bool is_pair) {
    if (format == GemvFormat::bf16) return is_pair ? &bf16_kernels<2> : &bf16_kernels<1>;
    if (format == GemvFormat::fp8) return is_pair ? &fp8_kernels<2> : &fp8_kernels<1>;
    return nullptr;
}

}  // namespace moe::cpu
#endif
