// One MLP, routed expert or shared: h = act(gate v, up v), out = down h, for the rows of tokens
// that it serves. Work comes in blocks of output features so that threads can share one MLP.
#pragma once

#include "libmoe/cpu/rows.hpp"
#include "libmoe/formats/matrix.hpp"
#include "libmoe/layer/activation.hpp"

namespace moe::cpu {

struct Mlp {
    const Matrix* gate;  // null without a gate
    const Matrix* up;
    const Matrix* down;
    const float* gate_bias;  // null: none
    const float* up_bias;
    const float* down_bias;
    const Activation* activation;

    int64_t width() const { return up->rows; }
};

template <class Real>
struct MlpInput {
    InputRows<Real> rows;
    const float* row_weight;  // multiplies the input of each row; null: ones
    int64_t n;
};

// The functions of one arithmetic.
template <class Real>
struct MlpKernels {
    // Features [first, last) of h, [n, width] with row stride `stride`, rounded to `round`.
    // scratch: two decoded weight rows.
    void (*activate)(const Mlp& mlp, const MlpInput<Real>& input, int64_t first, int64_t last,
                     moe_type round, float* scratch, Real* h, int64_t stride);

    // The same, stopped before the activation: gate at column i, up at column width + i (up alone
    // without a gate).
    void (*pre_activation)(const Mlp& mlp, const MlpInput<Real>& input, int64_t first, int64_t last,
                           float* scratch, Real* out, int64_t stride);

    // Features [first, last) of matrix v_i + bias (null: none): row i goes to out + out_index[i] *
    // stride (i * stride when null). scratch: one decoded weight row.
    void (*project)(const Matrix& matrix, const InputRows<Real>& rows, int64_t n, int64_t first,
                    int64_t last, float* scratch, Real* out, int64_t stride,
                    const int32_t* out_index, const float* bias);
};

// The reference: plain loops, weights decoded to float32.
template <class Real>
MlpKernels<Real> mlp_ref();

}  // namespace moe::cpu
