// The MLP loops. Rows are taken in tiles so that the dot products of one weight row fit a small
// array.
#include "libmoe/cpu/ref/mlp.hpp"

#include <algorithm>

#include "libmoe/cpu/round.hpp"

namespace moe::cpu {
namespace {

constexpr int64_t tile_rows = 64;

// Pre-activations of one feature for a tile of rows, biases added.
template <class Real>
struct Feature {
    WeightRow gate, up;
    Real gate_bias, up_bias;

    Feature(const Mlp& mlp, bool reads_dense, int64_t i, float* scratch)
        : gate{},
          up(fetch_row(*mlp.up, i, reads_dense, scratch)),
          gate_bias(mlp.gate_bias ? mlp.gate_bias[i] : 0.0f),
          up_bias(mlp.up_bias ? mlp.up_bias[i] : 0.0f) {
        if (mlp.gate) gate = fetch_row(*mlp.gate, i, reads_dense, scratch + mlp.up->columns);
    }
};

template <class Real>
void linear_tile(const Dot<Real>& dot, WeightRow weight, Real bias, int64_t columns,
                 const MlpInput<Real>& input, int64_t first, int64_t n, Real* out) {
    dot.rows(weight, columns, input.rows.from(first), n, out);
    for (int64_t r = 0; r < n; ++r) {
        // (W (w x)) = w (W x): the weight on the input may be applied to the product.
        if (input.row_weight) out[r] *= static_cast<Real>(input.row_weight[first + r]);
        out[r] += bias;
    }
}

// Calls use(row, gate, up) for every row of the input.
template <class Real, class Use>
void for_each_row(const Mlp& mlp, const Dot<Real>& dot, const MlpInput<Real>& input, int64_t i,
                  float* scratch, Use use) {
    const Feature<Real> feature(mlp, dot.reads_dense, i, scratch);
    Real gate[tile_rows]{}, up[tile_rows];
    for (int64_t first = 0; first < input.n; first += tile_rows) {
        const int64_t n = std::min(tile_rows, input.n - first);
        linear_tile(dot, feature.up, feature.up_bias, mlp.up->columns, input, first, n, up);
        if (mlp.gate)
            linear_tile(dot, feature.gate, feature.gate_bias, mlp.up->columns, input, first, n,
                        gate);
        for (int64_t r = 0; r < n; ++r) use(first + r, gate[r], up[r]);
    }
}

}  // namespace

template <class Real>
void mlp_activate(const Mlp& mlp, const Dot<Real>& dot, const MlpInput<Real>& input, int64_t first,
                  int64_t last, moe_type round, float* scratch, Real* h, int64_t stride) {
    for (int64_t i = first; i < last; ++i)
        for_each_row(mlp, dot, input, i, scratch, [&](int64_t row, Real gate, Real up) {
            h[row * stride + i] = round_to(activate(*mlp.activation, gate, up), round);
        });
}

template <class Real>
void mlp_pre_activation(const Mlp& mlp, const Dot<Real>& dot, const MlpInput<Real>& input,
                        int64_t first, int64_t last, float* scratch, Real* out, int64_t stride) {
    const int64_t up_column = mlp.gate ? mlp.width() : 0;
    for (int64_t i = first; i < last; ++i)
        for_each_row(mlp, dot, input, i, scratch, [&](int64_t row, Real gate, Real up) {
            if (mlp.gate) out[row * stride + i] = gate;
            out[row * stride + up_column + i] = up;
        });
}

template <class Real>
void project(const Matrix& matrix, const Dot<Real>& dot, const InputRows<Real>& rows, int64_t n,
             int64_t first, int64_t last, float* scratch, Real* out, int64_t stride,
             const int32_t* out_index, const float* bias) {
    for (int64_t i = first; i < last; ++i) {
        const WeightRow weight = fetch_row(matrix, i, dot.reads_dense, scratch);
        Real sums[tile_rows];
        for (int64_t begin = 0; begin < n; begin += tile_rows) {
            const int64_t count = std::min(tile_rows, n - begin);
            dot.rows(weight, matrix.columns, rows.from(begin), count, sums);
            for (int64_t r = 0; r < count; ++r) {
                const int64_t row = out_index ? out_index[begin + r] : begin + r;
                out[row * stride + i] = sums[r] + (bias ? static_cast<Real>(bias[i]) : Real{0});
            }
        }
    }
}

#define MOE_INSTANTIATE(Real)                                                                      \
    template void mlp_activate(const Mlp&, const Dot<Real>&, const MlpInput<Real>&, int64_t,       \
                               int64_t, moe_type, float*, Real*, int64_t);                         \
    template void mlp_pre_activation(const Mlp&, const Dot<Real>&, const MlpInput<Real>&, int64_t, \
                                     int64_t, float*, Real*, int64_t);                             \
    template void project(const Matrix&, const Dot<Real>&, const InputRows<Real>&, int64_t,        \
                          int64_t, int64_t, float*, Real*, int64_t, const int32_t*, const float*);
MOE_INSTANTIATE(float)
MOE_INSTANTIATE(double)

}  // namespace moe::cpu
