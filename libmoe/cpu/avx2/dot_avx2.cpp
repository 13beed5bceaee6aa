// Dot products with AVX2, FMA and F16C.
#include "libmoe/cpu/simd.hpp"

#if defined(MOE_X86)
#include <immintrin.h>

namespace moe::cpu {
namespace {

using Vector = __m256;
constexpr int lanes = 8;

Vector zero() {
    return _mm256_setzero_ps();
}
Vector add(Vector a, Vector b) {
    return _mm256_add_ps(a, b);
}
Vector multiply_add(Vector a, Vector b, Vector c) {
    return _mm256_fmadd_ps(a, b, c);
}
Vector load_x(const float* x) {
    return _mm256_loadu_ps(x);
}
Vector load_f32(const std::byte* p) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
}
Vector load_f16(const std::byte* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
Vector load_bf16(const std::byte* p) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}
float sum(Vector v) {
    __m128 quad = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    quad = _mm_add_ps(quad, _mm_movehl_ps(quad, quad));
    return _mm_cvtss_f32(_mm_add_ss(quad, _mm_shuffle_ps(quad, quad, 1)));
}
#include "libmoe/cpu/simd_dot.inc"

}  // namespace

void dot_rows_avx2(WeightRow weight, int64_t columns, const InputRows<float>& rows, int64_t n,
                   float* out) {
    dot_rows_any(weight, columns, rows, n, out);
}

}  // namespace moe::cpu
#endif
