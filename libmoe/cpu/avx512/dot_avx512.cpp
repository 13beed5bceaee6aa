// Dot products with AVX-512.
#include "libmoe/cpu/simd.hpp"

#if defined(MOE_X86)
#include <immintrin.h>

namespace moe::cpu {
namespace {

using Vector = __m512;
constexpr int lanes = 16;

Vector zero() {
    return _mm512_setzero_ps();
}
Vector add(Vector a, Vector b) {
    return _mm512_add_ps(a, b);
}
Vector multiply_add(Vector a, Vector b, Vector c) {
    return _mm512_fmadd_ps(a, b, c);
}
Vector load_x(const float* x) {
    return _mm512_loadu_ps(x);
}
Vector load_f32(const std::byte* p) {
    return _mm512_loadu_ps(p);
}
Vector load_f16(const std::byte* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
Vector load_bf16(const std::byte* p) {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}
float sum(Vector v) {
    return _mm512_reduce_add_ps(v);
}
#include "libmoe/cpu/simd_dot.inc"

}  // namespace

void dot_rows_avx512(WeightRow weight, int64_t columns, const InputRows<float>& rows, int64_t n,
                     float* out) {
    dot_rows_any(weight, columns, rows, n, out);
}

}  // namespace moe::cpu
#endif
