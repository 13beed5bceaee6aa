// The loops of mlp_loops.hpp with the scalar dot product.
#include "libmoe/cpu/ref/mlp.hpp"

#include "libmoe/cpu/ref/dot.hpp"
#include "libmoe/cpu/ref/mlp_loops.hpp"

namespace moe::cpu {
namespace {

template <class Number>
struct ScalarDot {
    using Real = Number;
    using Weight = const float*;

    static Weight fetch(const Matrix& matrix, int64_t row, float* scratch) {
        decode_row(matrix, row, scratch);
        return scratch;
    }
    static void rows(Weight weight, int64_t columns, const InputRows<Real>& rows, int64_t n,
                     Real* out) {
        dot_rows_ref(weight, columns, rows, n, out);
    }
};

}  // namespace

template <class Real>
MlpKernels<Real> mlp_ref() {
    return MlpLoops<ScalarDot<Real>>::kernels();
}

template MlpKernels<float> mlp_ref();
template MlpKernels<double> mlp_ref();

}  // namespace moe::cpu
