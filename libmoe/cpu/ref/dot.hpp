// The dot product that defines the results of every kernel: a decoded weight row with activation
// rows.
#pragma once

#include "libmoe/cpu/rows.hpp"
#include "libmoe/formats/matrix.hpp"

namespace moe::cpu {

// Row `row` of a matrix as its format decodes it, into matrix.columns floats.
void decode_row(const Matrix& matrix, int64_t row, float* out);

// out[i] = weight . row(i), i < n, in sixteen partial sums. columns is a multiple of 16.
template <class Real>
void dot_rows_ref(const float* weight, int64_t columns, const InputRows<Real>& rows, int64_t n,
                  Real* out);

}  // namespace moe::cpu
