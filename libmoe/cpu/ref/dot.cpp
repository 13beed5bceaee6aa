// Plain loops in float or double.
#include "libmoe/cpu/ref/dot.hpp"

#include "libmoe/formats/format.hpp"
#include "libmoe/formats/interleaved.hpp"

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

}  // namespace

void decode_row(const Matrix& matrix, int64_t row, float* out) {
    if (matrix.interleaving) return decode_interleaved_row(matrix, row, out);
    matrix.traits->decode(matrix, row, 0, matrix.columns, out);
}

template <class Real>
void dot_rows_ref(const float* weight, int64_t columns, const InputRows<Real>& rows, int64_t n,
                  Real* out) {
    for (int64_t i = 0; i < n; ++i) out[i] = dot(weight, rows.row(i), columns);
}

template void dot_rows_ref(const float*, int64_t, const InputRows<float>&, int64_t, float*);
template void dot_rows_ref(const float*, int64_t, const InputRows<double>&, int64_t, double*);

}  // namespace moe::cpu
