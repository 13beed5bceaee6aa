// Activation rows as integers, for AVX2; the bits are those of avx512vnni/quantize.cpp.
#include "libmoe/cpu/avx2/gemv_tables.hpp"

#if defined(MOE_X86)
#include <immintrin.h>

#include "libmoe/cpu/avx2/vectors.inc"

namespace moe::cpu {
namespace {

// Scales are normal numbers with a finite inverse.
constexpr float least_scale = 0x1p-120f;

float largest_lane(Floats v) {
    __m128 quad = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    quad = _mm_max_ps(quad, _mm_movehl_ps(quad, quad));
    return _mm_cvtss_f32(_mm_max_ss(quad, _mm_movehdup_ps(quad)));
}

// 32 columns of which `x` has the values: integers that the largest magnitude takes to `largest`.
// Returns the scale; an infinity or a NaN makes it NaN and the integers 0.
float quantize_group(const Floats (&x)[4], float largest, Bytes (&codes)[4]) {
    const Floats magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFFFFFF));
    Floats most = _mm256_setzero_ps(), differences = _mm256_setzero_ps();
    for (int i = 0; i < 4; ++i) {
        most = _mm256_max_ps(most, _mm256_and_ps(x[i], magnitude));
        differences = _mm256_add_ps(differences, _mm256_sub_ps(x[i], x[i]));
    }
    const bool is_finite =
        _mm256_movemask_ps(_mm256_cmp_ps(differences, differences, _CMP_UNORD_Q)) == 0;
    const float wanted = largest_lane(most) * (1.0f / largest);
    const float scale = wanted > least_scale ? wanted : least_scale;
    const Floats inverse = _mm256_set1_ps(1.0f / scale);
    for (int i = 0; i < 4; ++i)
        codes[i] =
            is_finite ? _mm256_cvtps_epi32(_mm256_mul_ps(x[i], inverse)) : _mm256_setzero_si256();
    return is_finite ? scale : __builtin_nanf("");
}

// The least significant byte of 32 integers.
Bytes low_bytes(const Bytes (&codes)[4]) {
    const Bytes mask = _mm256_set1_epi32(255);
    const auto masked = [&](int i) { return _mm256_and_si256(codes[i], mask); };
    const Bytes words = _mm256_packus_epi32(masked(0), masked(1));
    const Bytes more = _mm256_packus_epi32(masked(2), masked(3));
    return _mm256_permutevar8x32_epi32(_mm256_packus_epi16(words, more),
                                       _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

float sum_of(Bytes a, Bytes b) {
    alignas(32) int32_t lanes[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), _mm256_add_epi32(a, b));
    int32_t sum = 0;
    for (const int32_t lane : lanes) sum += lane;
    return static_cast<float>(sum);
}

// 32 integers as words, of each four columns 0, 2, 1 and 3.
void store_words(const Bytes (&codes)[4], std::byte* out) {
    for (int i = 0; i < 4; i += 2) {
        const Bytes two = _mm256_packs_epi32(_mm256_shuffle_epi32(codes[i], 0xD8),
                                             _mm256_shuffle_epi32(codes[i + 1], 0xD8));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 32 * (i / 2)),
                            _mm256_permute4x64_epi64(two, 0xD8));
    }
}

// 256 columns: scales and sums, the same of 32 columns, and the parts in their natural order, the
// least significant first. words: where they go, too, or null.
template <int parts>
void quantize_step(const float* row, int64_t columns, float* scales, float* sums, float* of_32,
                   std::byte (&bytes)[parts][quantized_step], std::byte* words) {
    constexpr float largest = parts == 2 ? 32512.0f : 8323072.0f;
    for (int64_t k = 0; k < quantized_step; k += 32) {
        Floats x[4];
        for (int64_t i = 0; i < 4; ++i)
            x[i] = k + 8 * i < columns ? _mm256_loadu_ps(row + k + 8 * i) : _mm256_setzero_ps();
        Bytes codes[4];
        const float scale = quantize_group(x, largest, codes);
        scales[k / 16] = scales[k / 16 + 1] = scale;
        sums[k / 16] = sum_of(codes[0], codes[1]) * scale;
        sums[k / 16 + 1] = sum_of(codes[2], codes[3]) * scale;
        of_32[k / 32] = scale;
        of_32[k / 32 + 8] = sums[k / 16] + sums[k / 16 + 1];
        for (int part = 0; part < parts; ++part) {
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(bytes[part] + k), low_bytes(codes));
            if (words && part == parts - 2) store_words(codes, words + 2 * k * (parts - 1));
            Bytes low[4];
            for (int i = 0; i < 4; ++i) {
                const Bytes rest =
                    _mm256_srai_epi32(_mm256_add_epi32(codes[i], _mm256_set1_epi32(128)), 8);
                low[i] = _mm256_sub_epi32(codes[i], _mm256_slli_epi32(rest, 8));
                codes[i] = rest;
            }
            if (words && part == parts - 3) store_words(low, words + 2 * k * (parts - 1) + 64);
        }
    }
}

template <int parts>
void quantize(const float* row, int64_t columns, const Quantization& how, std::byte* out) {
    const int64_t padded = (columns + quantized_step - 1) / quantized_step * quantized_step;
    auto* scales = reinterpret_cast<float*>(out);
    float* sums = scales + padded / 16;
    float* of_32 = sums + padded / 16;
    auto* integers = reinterpret_cast<std::byte*>(of_32 + padded / 16);
    std::byte* const words = how.has_words ? integers + offset_of_words(columns, how) : nullptr;
    std::byte bytes[parts][quantized_step];
    for (int64_t begin = 0; begin < padded; begin += quantized_step) {
        quantize_step<parts>(row + begin, columns - begin, scales + begin / 16, sums + begin / 16,
                             of_32 + begin / 16, bytes,
                             words ? words + 2 * begin * (parts - 1) : nullptr);
        std::byte* to = integers + begin * parts;
        for (uint32_t order = 0; how.orders >> order; ++order) {
            if (!(how.orders >> order & 1)) continue;
            const uint8_t* column = column_orders.column[order];
            for (int i = 0; i < quantized_step; ++i)
                for (int part = 0; part < parts; ++part)
                    to[i / 64 * (64 * parts) + 64 * part + i % 64] =
                        bytes[parts - 1 - part][column[i]];
            to += padded * parts;
        }
    }
}

}  // namespace

void quantize_avx2(const float* row, int64_t columns, const Quantization& how, std::byte* out) {
    if (how.parts == 2)
        quantize<2>(row, columns, how, out);
    else
        quantize<3>(row, columns, how, out);
}

}  // namespace moe::cpu
#endif
