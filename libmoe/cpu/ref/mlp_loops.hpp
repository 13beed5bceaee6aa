// The MLP loops over a dot product. ref/mlp.cpp gives them the scalar one and so defines the
// results; a vectorised dot product gets the same loops from outside this folder.
//
// Dot has the types Real and Weight, fetch(matrix, row, scratch) -> Weight, and rows(weight,
// columns, rows, n, out), which is dot_rows_ref up to rounding.
#pragma once

#include <algorithm>

#include "libmoe/cpu/ref/mlp.hpp"
#include "libmoe/cpu/round.hpp"

namespace moe::cpu {

template <class Dot>
class MlpLoops {
  public:
    using Real = typename Dot::Real;

    static MlpKernels<Real> kernels() { return {activate_features, pre_activation, project}; }

  private:
    using Weight = typename Dot::Weight;

    // Rows are taken in tiles so that the dot products of one weight row fit a small array.
    static constexpr int64_t tile_rows = 64;

    // Pre-activations of one feature for a tile of rows, biases added.
    struct Feature {
        Weight gate, up;
        Real gate_bias, up_bias;

        Feature(const Mlp& mlp, int64_t i, float* scratch)
            : gate{},
              up(Dot::fetch(*mlp.up, i, scratch)),
              gate_bias(mlp.gate_bias ? mlp.gate_bias[i] : 0.0f),
              up_bias(mlp.up_bias ? mlp.up_bias[i] : 0.0f) {
            if (mlp.gate) gate = Dot::fetch(*mlp.gate, i, scratch + mlp.up->columns);
        }
    };

    static void linear_tile(Weight weight, Real bias, int64_t columns, const MlpInput<Real>& input,
                            int64_t first, int64_t n, Real* out) {
        Dot::rows(weight, columns, input.rows.from(first), n, out);
        for (int64_t r = 0; r < n; ++r) {
            // (W (w x)) = w (W x): the weight on the input may be applied to the product.
            if (input.row_weight) out[r] *= static_cast<Real>(input.row_weight[first + r]);
            out[r] += bias;
        }
    }

    // Calls use(row, gate, up) for every row of the input.
    template <class Use>
    static void for_each_row(const Mlp& mlp, const MlpInput<Real>& input, int64_t i, float* scratch,
                             Use use) {
        const Feature feature(mlp, i, scratch);
        Real gate[tile_rows]{}, up[tile_rows];
        for (int64_t first = 0; first < input.n; first += tile_rows) {
            const int64_t n = std::min(tile_rows, input.n - first);
            linear_tile(feature.up, feature.up_bias, mlp.up->columns, input, first, n, up);
            if (mlp.gate)
                linear_tile(feature.gate, feature.gate_bias, mlp.up->columns, input, first, n,
                            gate);
            for (int64_t r = 0; r < n; ++r) use(first + r, gate[r], up[r]);
        }
    }

    static void activate_features(const Mlp& mlp, const MlpInput<Real>& input, int64_t first,
                                  int64_t last, moe_type round, float* scratch, Real* h,
                                  int64_t stride) {
        for (int64_t i = first; i < last; ++i)
            for_each_row(mlp, input, i, scratch, [&](int64_t row, Real gate, Real up) {
                h[row * stride + i] = round_to(activate(*mlp.activation, gate, up), round);
            });
    }

    static void pre_activation(const Mlp& mlp, const MlpInput<Real>& input, int64_t first,
                               int64_t last, float* scratch, Real* out, int64_t stride) {
        const int64_t up_column = mlp.gate ? mlp.width() : 0;
        for (int64_t i = first; i < last; ++i)
            for_each_row(mlp, input, i, scratch, [&](int64_t row, Real gate, Real up) {
                if (mlp.gate) out[row * stride + i] = gate;
                out[row * stride + up_column + i] = up;
            });
    }

    static void project(const Matrix& matrix, const InputRows<Real>& rows, int64_t n, int64_t first,
                        int64_t last, float* scratch, Real* out, int64_t stride,
                        const int32_t* out_index, const float* bias) {
        for (int64_t i = first; i < last; ++i) {
            const Weight weight = Dot::fetch(matrix, i, scratch);
            Real sums[tile_rows];
            for (int64_t begin = 0; begin < n; begin += tile_rows) {
                const int64_t count = std::min(tile_rows, n - begin);
                Dot::rows(weight, matrix.columns, rows.from(begin), count, sums);
                for (int64_t r = 0; r < count; ++r) {
                    const int64_t row = out_index ? out_index[begin + r] : begin + r;
                    out[row * stride + i] = sums[r] + (bias ? static_cast<Real>(bias[i]) : Real{0});
                }
            }
        }
    }
};

}  // namespace moe::cpu
