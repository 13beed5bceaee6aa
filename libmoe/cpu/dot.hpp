// Dot products of one weight row with many activation rows: the only arithmetic that differs
// between the reference and the vectorised kernels.
#pragma once

#include "libmoe/cpu/rows.hpp"
#include "libmoe/cpu/setup.hpp"
#include "libmoe/formats/matrix.hpp"

namespace moe::cpu {

template <class Real>
struct Dot {
    DotRows<Real> rows;
    bool reads_dense;  // takes f32, f16 and bf16 weights as they lie, else decoded float32
};

template <class Real>
Dot<Real> make_dot(Arithmetic arithmetic);

// Row `row` of a matrix, where it lies or decoded into scratch (columns floats).
WeightRow fetch_row(const Matrix& matrix, int64_t row, bool reads_dense, float* scratch);

// Instruction sets of this machine and build.
bool has_avx2();
bool has_avx512();

}  // namespace moe::cpu
