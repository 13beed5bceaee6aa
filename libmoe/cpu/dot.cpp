// The reference dot product, the choice among kernels, and row fetching.
#include "libmoe/cpu/dot.hpp"

#include "libmoe/cpu/features.hpp"
#include "libmoe/cpu/simd.hpp"
#include "libmoe/formats/format.hpp"

namespace moe::cpu {
namespace {

// Sixteen partial sums: more exact than one, and a shape that any compiler vectorises without
// reordering.
template <class Real>
Real dot(const float* weight, const Real* x, int64_t columns) {
    constexpr int lanes = 16;
    Real sums[lanes]{};
    for (int64_t k = 0; k < columns; k += lanes)
        for (int lane = 0; lane < lanes; ++lane)
            sums[lane] += static_cast<Real>(weight[k + lane]) * x[k + lane];
    for (int half = lanes / 2; half > 0; half /= 2)
        for (int lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
    return sums[0];
}

template <class Real>
void dot_rows_ref(WeightRow weight, int64_t columns, const InputRows<Real>& rows, int64_t n,
                  Real* out) {
    const auto* values = reinterpret_cast<const float*>(weight.data);
    for (int64_t i = 0; i < n; ++i) out[i] = dot(values, rows.row(i), columns);
}

}  // namespace

template <>
Dot<double> make_dot(Arithmetic) {
    return {dot_rows_ref<double>, false};
}

template <>
Dot<float> make_dot(Arithmetic arithmetic) {
#if defined(MOE_X86)
    if (arithmetic == Arithmetic::avx512) return {dot_rows_avx512, true};
    if (arithmetic == Arithmetic::avx2) return {dot_rows_avx2, true};
#endif
    (void)arithmetic;
    return {dot_rows_ref<float>, false};
}

WeightRow fetch_row(const Matrix& matrix, int64_t row, bool reads_dense, float* scratch) {
    if (reads_dense && matrix.column_stride == 0 && is_plain(matrix.format))
        return {matrix.data + row * matrix.row_stride, matrix.format.type};
    matrix.traits->decode(matrix, row, 0, matrix.columns, scratch);
    return {reinterpret_cast<const std::byte*>(scratch), MOE_TYPE_F32};
}

bool has_avx2() {
#if defined(MOE_X86)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
#else
    return false;
#endif
}

bool has_avx512() {
#if defined(MOE_X86)
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
#else
    return false;
#endif
}

}  // namespace moe::cpu
