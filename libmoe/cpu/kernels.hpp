// The functions behind the arithmetic that a plan has chosen: the reference loops, or the same
// loops with a vectorised dot product.
#pragma once

#include "libmoe/cpu/ref/mlp.hpp"
#include "libmoe/cpu/setup.hpp"

namespace moe::cpu {

template <class Real>
MlpKernels<Real> mlp_kernels(Arithmetic arithmetic);

// Row `row` of a matrix for a vectorised dot product: where it lies if it is contiguous f32, f16 or
// bf16, else decoded into scratch (columns floats).
WeightRow fetch_row(const Matrix& matrix, int64_t row, float* scratch);

}  // namespace moe::cpu
