// Activation rows as integers, for AVX-512.
#include "libmoe/cpu/avx512vnni/tables.hpp"

#if defined(MOE_X86)
#include <immintrin.h>

#include "libmoe/cpu/avx512vnni/vectors.inc"

namespace moe::cpu {
namespace {

// 32 columns: the scale takes the largest magnitude to 127 in the most significant part, so that no
// part overflows when the next one is rounded. A group with an infinity or a NaN has the scale NaN
// and codes 0.
template <int parts>
struct Group {
    static constexpr float largest_code = parts == 1 ? 127.0f : parts == 2 ? 32512.0f : 8323072.0f;
    // Scales are normal numbers with a finite inverse.
    static constexpr float least_scale = 0x1p-120f;

    Bytes codes[2];
    float scale;

    MOE_INLINE Group(Floats low, Floats high) {
        const Floats most = _mm512_max_ps(_mm512_abs_ps(low), _mm512_abs_ps(high));
        const Floats either = _mm512_add_ps(_mm512_sub_ps(low, low), _mm512_sub_ps(high, high));
        const bool is_finite = _mm512_cmp_ps_mask(either, either, _CMP_UNORD_Q) == 0;
        const float wanted = _mm512_reduce_max_ps(most) * (1.0f / largest_code);
        scale = wanted > least_scale ? wanted : least_scale;
        const Floats inverse = _mm512_set1_ps(is_finite ? 1.0f / scale : 0.0f);
        codes[0] = _mm512_cvtps_epi32(_mm512_maskz_mul_ps(is_finite ? 0xFFFF : 0, low, inverse));
        codes[1] = _mm512_cvtps_epi32(_mm512_maskz_mul_ps(is_finite ? 0xFFFF : 0, high, inverse));
        if (!is_finite) scale = __builtin_nanf("");
    }
};

// The parts of 256 columns in their natural order, the least significant first.
template <int parts>
struct Step {
    alignas(64) std::byte bytes[parts][quantized_step];

    // Sum of the least significant parts of 32 columns from `column` on.
    MOE_INLINE float low_sum(int64_t column) const {
        const __m256i ones = _mm256_set1_epi8(1);
        const auto low = _mm256_load_si256(reinterpret_cast<const __m256i*>(bytes[0] + column));
        const __m256i sums = _mm256_dpbusd_epi32(_mm256_setzero_si256(), ones, low);
        return static_cast<float>(_mm512_reduce_add_epi32(_mm512_zextsi256_si512(sums)));
    }
    // 16 columns from `column` on. Returns the sum of their integers.
    MOE_INLINE float store(Bytes codes, int64_t column) {
        const auto sum = static_cast<float>(_mm512_reduce_add_epi32(codes));
        const Bytes half = _mm512_set1_epi32(128);
        MOE_UNROLL for (int part = 0; part < parts; ++part) {
            _mm_store_si128(reinterpret_cast<__m128i*>(bytes[part] + column),
                            _mm512_cvtepi32_epi8(codes));
            codes = _mm512_srai_epi32(_mm512_add_epi32(codes, half), 8);
        }
        return sum;
    }
    void store_in_order(const uint8_t* order, std::byte* out) const {
        for (int64_t v = 0; v < 4; ++v) {
            const Bytes places = load_bytes(order + 64 * v);
            const __mmask64 from_second_half = _mm512_movepi8_mask(places);
            for (int part = 0; part < parts; ++part) {
                const std::byte* p = bytes[parts - 1 - part];
                const Bytes first =
                    _mm512_permutex2var_epi8(load_bytes(p), places, load_bytes(p + 64));
                const Bytes second =
                    _mm512_permutex2var_epi8(load_bytes(p + 128), places, load_bytes(p + 192));
                _mm512_storeu_si512(out + 64 * (parts * v + part),
                                    _mm512_mask_mov_epi8(first, from_second_half, second));
            }
        }
    }
};

// Words of columns 16 half to 16 half + 15 of 32, for panels of AVX2.
template <int parts>
MOE_INLINE void store_words(Bytes codes, int half, std::byte* out) {
    const auto store = [&](Bytes words, std::byte* to) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 32 * half),
                            _mm512_cvtepi32_epi16(_mm512_shuffle_epi32(words, _MM_PERM_DBCA)));
    };
    if constexpr (parts == 2) return store(codes, out);
    const Bytes upper = _mm512_srai_epi32(_mm512_add_epi32(codes, _mm512_set1_epi32(128)), 8);
    store(upper, out);
    store(_mm512_sub_epi32(codes, _mm512_slli_epi32(upper, 8)), out + 64);
}

template <int parts>
void quantize(const float* row, int64_t columns, const Quantization& how, std::byte* out) {
    const uint32_t orders = how.orders;
    const int64_t padded = (columns + quantized_step - 1) / quantized_step * quantized_step;
    auto* scales = reinterpret_cast<float*>(out);
    float* sums = scales + padded / 16;
    float* of_32 = sums + padded / 16;
    auto* bytes = reinterpret_cast<std::byte*>(of_32 + padded / 16);
    const auto load = [&](int64_t at) {
        return at < columns ? _mm512_loadu_ps(row + at) : _mm512_setzero_ps();
    };
    std::byte* const words = how.has_words ? bytes + offset_of_words(columns, how) : nullptr;
    auto* const low_sums = reinterpret_cast<float*>(out + offset_of_low_sums(columns, how));
    Step<parts> step;
    for (int64_t begin = 0; begin < padded; begin += quantized_step) {
        for (int64_t k = begin; k < begin + quantized_step; k += 32) {
            const Group<parts> group(load(k), load(k + 16));
            for (int i = 0; i < 2; ++i) {
                scales[k / 16 + i] = group.scale;
                sums[k / 16 + i] = step.store(group.codes[i], k - begin + 16 * i) * group.scale;
                if constexpr (parts > 1)
                    if (words) store_words<parts>(group.codes[i], i, words + 2 * k * (parts - 1));
            }
            float* of_group = of_32 + begin / 16 + (k - begin) / 32;
            of_group[0] = group.scale;
            of_group[8] = sums[k / 16] + sums[k / 16 + 1];
            if constexpr (parts == 2)
                if (how.has_low_sums) low_sums[k / 32] = step.low_sum(k - begin) * group.scale;
        }
        std::byte* to = bytes + begin * parts;
        for (uint32_t order = 0; orders >> order; ++order) {
            if (!(orders >> order & 1)) continue;
            step.store_in_order(column_orders.column[order], to);
            to += padded * parts;
        }
    }
    for (int64_t i = padded / 32; how.has_low_sums && i % 16; ++i) low_sums[i] = 0;
}

// To nearest, ties to even; NaN stays NaN.
MOE_INLINE __m256i to_bf16(Floats v) {
    const Bytes bits = _mm512_castps_si512(v);
    const Bytes odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const Bytes rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
    const __mmask16 is_nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(
        _mm512_mask_mov_epi32(rounded, is_nan, _mm512_set1_epi32(0x7FC00000)), 16));
}

MOE_INLINE Floats from_bf16(__m256i v) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16));
}

// The row in bfloat16, and, in a pair, what that rounded off: nothing where it became infinite,
// since the difference of infinities is NaN.
void store_bf16(const float* row, int64_t columns, bool is_pair, std::byte* out) {
    const int64_t padded = (columns + quantized_step - 1) / quantized_step * quantized_step;
    const auto store = [&](int64_t at, __m256i v) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 2 * at), v);
    };
    for (int64_t k = 0; k < padded; k += 16) {
        const Floats v = k < columns ? _mm512_loadu_ps(row + k) : _mm512_setzero_ps();
        const __m256i high = to_bf16(v);
        store(k, high);
        if (!is_pair) continue;
        const Floats rounded = from_bf16(high);
        const __mmask16 is_infinite = _mm512_fpclass_ps_mask(rounded, 0x18);
        store(padded + k, to_bf16(_mm512_maskz_sub_ps(~is_infinite, v, rounded)));
    }
}

}  // namespace

void quantize_avx512vnni(const float* row, int64_t columns, const Quantization& how,
                         std::byte* out) {
    if (how.parts == 1) quantize<1>(row, columns, how, out);
    if (how.parts == 2) quantize<2>(row, columns, how, out);
    if (how.parts == 3) quantize<3>(row, columns, how, out);
    if (how.has_bf16 || how.has_bf16_pair)
        store_bf16(row, columns, how.has_bf16_pair, out + offset_of_bf16(columns, how));
}

}  // namespace moe::cpu
#endif
