// The choice among kernels, and the loops with vectorised dot products.
#include "libmoe/cpu/kernels.hpp"

#include "libmoe/cpu/gemv/mlp_gemv.hpp"
#include "libmoe/cpu/ref/dot.hpp"
#include "libmoe/cpu/ref/mlp_loops.hpp"
#include "libmoe/cpu/simd.hpp"
#include "libmoe/formats/format.hpp"

namespace moe::cpu {
namespace {

#if defined(MOE_X86)
template <DotRows<float> dot_rows>
struct DenseDot {
    using Real = float;
    using Weight = WeightRow;

    static Weight fetch(const Matrix& matrix, int64_t row, float* scratch) {
        return fetch_row(matrix, row, scratch);
    }
    static void rows(Weight weight, int64_t columns, const InputRows<float>& rows, int64_t n,
                     float* out) {
        dot_rows(weight, columns, rows, n, out);
    }
};
#endif

}  // namespace

template <>
MlpKernels<double> mlp_kernels(Arithmetic) {
    return mlp_ref<double>();
}

template <>
MlpKernels<float> mlp_kernels(Arithmetic arithmetic) {
    if (gemv_family(arithmetic)) return mlp_gemv(arithmetic);
#if defined(MOE_X86)
    if (arithmetic == Arithmetic::avx512) return MlpLoops<DenseDot<dot_rows_avx512>>::kernels();
    if (arithmetic == Arithmetic::avx2) return MlpLoops<DenseDot<dot_rows_avx2>>::kernels();
#endif
    (void)arithmetic;
    return mlp_ref<float>();
}

WeightRow fetch_row(const Matrix& matrix, int64_t row, float* scratch) {
    if (matrix.column_stride == 0 && is_plain(matrix.format))
        return {matrix.data + row * matrix.row_stride, matrix.format.type};
    decode_row(matrix, row, scratch);
    return {reinterpret_cast<const std::byte*>(scratch), MOE_TYPE_F32};
}

}  // namespace moe::cpu
