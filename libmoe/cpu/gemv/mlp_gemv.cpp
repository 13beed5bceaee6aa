// Features of an MLP by gemv kernels: for some features and up to four rows of activations at a
// time the products with gate and up, then the activation. Features come in strict order of
// addresses, first those of gate, then those of up.
#include "libmoe/cpu/gemv/mlp_gemv.hpp"

#include <algorithm>

#include "libmoe/cpu/gemv/weights.hpp"
#include "libmoe/cpu/ref/dot.hpp"
#include "libmoe/cpu/round.hpp"
#include "libmoe/cpu/simd.hpp"

namespace moe::cpu {
namespace {

constexpr int64_t tile_rows = 4;
constexpr int64_t tile_features = 64;
using Products = float[tile_features * tile_rows];

// Rows that are taken at once: 4, 2 or 1.
int64_t rows_at_once(int64_t left) {
    return left >= 4 ? 4 : left >= 2 ? 2 : 1;
}

// One matrix with the kernels that read it; where none does, its rows are decoded one by one.
class GemvMatrix {
  public:
    GemvMatrix(const GemvFamily& family, const Matrix& matrix, const Quantization& rows)
        : family_(family), matrix_(matrix) {
        format_ = gemv_format_of(matrix);
        // Scales in tiles and a product of x each want the scratch memory.
        if (matrix.pre_quant_scale && matrix.tiled.row_step) return;
        if (!describe_gemv_weights(matrix, format_, weights_)) return;
        if (rows.parts) kernels_ = family.kernels(format_, rows.parts);
        reads_floats_ = !kernels_;
        if (reads_floats_)
            kernels_ = family.kernels(format_, 0);
        else
            weights_.x_offset = offset_of_order(matrix.columns, rows, format_);
    }

    // out[(feature - first) * n + i], i < n <= 4.
    void multiply(const InputRows<float>& rows, int64_t n, int64_t first, int64_t last,
                  float* scratch, float* out) const {
        const void* x[tile_rows];
        const bool floats = !kernels_ || reads_floats_;
        for (int64_t i = 0; i < n; ++i)
            x[i] = floats ? static_cast<const void*>(rows.row(i)) : rows.quantized_row(i);
        if (kernels_ && matrix_.pre_quant_scale)
            return multiply_scaled(rows, n, first, last, scratch, out);
        if (kernels_ && matrix_.nested_scales)
            return multiply_nested(n, x, first, last, scratch, out);
        if (kernels_ && matrix_.tiled.row_step)
            return multiply_tiled(n, x, first, last, reinterpret_cast<std::byte*>(scratch), out);
        if (kernels_) return kernels_->of_rows[n / 2](weights_, first, last, x, out);
        for (int64_t row = first; row < last; ++row, out += n)
            multiply_decoded(row, n, x, scratch, out);
    }

  private:
    // With scales copied from their tiles: those of a tile of features fit a decoded row, since a
    // row has a byte for every 16 columns at most.
    void multiply_tiled(int64_t n, const void* const* x, int64_t first, int64_t last,
                        std::byte* scratch, float* out) const {
        static_assert(tile_features <= 16 * static_cast<int64_t>(sizeof(float)));
        copy_untiled_scales(matrix_, first, last, scratch);
        GemvWeights copied = weights_;
        copied.data += first * weights_.row_stride;
        copied.scales = scratch;
        copied.scale_row_stride = untiled_row_bytes(matrix_);
        copied.scale_rows = 1;
        kernels_->of_rows[n / 2](copied, 0, last - first, x, out);
    }
    // Row by row, with the scales that nested ones make.
    void multiply_nested(int64_t n, const void* const* x, int64_t first, int64_t last,
                         float* scratch, float* out) const {
        GemvWeights one = weights_;
        one.scales = reinterpret_cast<const std::byte*>(scratch);
        one.scale_type = MOE_TYPE_F32;
        for (int64_t row = first; row < last; ++row) {
            one.data = weights_.data + row * weights_.row_stride;
            one.column_phase = copy_nested_scales(matrix_, row, scratch);
            kernels_->of_rows[n / 2](one, 0, 1, x, out + (row - first) * n);
        }
    }
    // W x = W' (x * scale): row by row of x, which is multiplied and quantized again.
    void multiply_scaled(const InputRows<float>& rows, int64_t n, int64_t first, int64_t last,
                         float* scratch, float* out) const {
        const auto parts = rows.quantization.parts;
        const Quantization how =
            quantization_for(family_, format_, parts == 3 ? MOE_TYPE_F32 : MOE_TYPE_BF16);
        auto* integers = reinterpret_cast<std::byte*>(scratch + matrix_.columns);
        GemvWeights weights = weights_;
        weights.x_offset = 0;
        for (int64_t i = 0; i < n; ++i) {
            for (int64_t k = 0; k < matrix_.columns; ++k)
                scratch[k] = rows.row(i)[k] * matrix_.pre_quant_scale[k];
            if (!reads_floats_) family_.quantize(scratch, matrix_.columns, how, integers);
            const void* x = reads_floats_ ? static_cast<const void*>(scratch) : integers;
            float products[tile_features];
            kernels_->of_rows[0](weights, first, last, &x, products);
            for (int64_t f = 0; f < last - first; ++f) out[f * n + i] = products[f];
        }
    }
    void multiply_decoded(int64_t row, int64_t n, const void* const* x, float* scratch,
                          float* out) const {
        decode_row(matrix_, row, scratch);
        GemvWeights one{};
        one.data = reinterpret_cast<const std::byte*>(scratch);
        one.columns = matrix_.columns;
        one.scale_rows = 1;
        family_.kernels(GemvFormat::f32, 0)->of_rows[n / 2](one, 0, 1, x, out);
    }

    const GemvFamily& family_;
    const Matrix& matrix_;
    GemvFormat format_ = GemvFormat::none;
    GemvWeights weights_{};
    const GemvKernels* kernels_ = nullptr;
    bool reads_floats_ = false;
};

// use(first feature, last feature, first row, rows) for tiles of features and rows.
template <class Use>
void for_each_tile(int64_t first, int64_t last, int64_t n_rows, Use use) {
    for (int64_t i = first; i < last; i += tile_features) {
        const int64_t end = std::min(i + tile_features, last);
        for (int64_t r = 0, n; r < n_rows; r += n) {
            n = rows_at_once(n_rows - r);
            use(i, end, r, n);
        }
    }
}

float linear(float product, const float* row_weight, int64_t row, const float* bias, int64_t i) {
    // (W (w x)) = w (W x): the weight on the input may be applied to the product.
    if (row_weight) product *= row_weight[row];
    return product + (bias ? bias[i] : 0.0f);
}

template <Arithmetic arithmetic>
struct MlpGemv {
    static GemvMatrix with_kernels(const Matrix& matrix, const InputRows<float>& rows) {
        return {*gemv_family(arithmetic), matrix, rows.quantization};
    }

    // use(row, feature, gate, up)
    template <class Use>
    static void for_each_feature(const Mlp& mlp, const MlpInput<float>& input, int64_t first,
                                 int64_t last, float* scratch, Use use) {
        const GemvMatrix up = with_kernels(*mlp.up, input.rows);
        const GemvMatrix gate = with_kernels(mlp.gate ? *mlp.gate : *mlp.up, input.rows);
        for_each_tile(first, last, input.n, [&](int64_t i, int64_t end, int64_t r, int64_t n) {
            Products gates, ups;
            const InputRows<float> rows = input.rows.from(r);
            if (mlp.gate) gate.multiply(rows, n, i, end, scratch, gates);
            up.multiply(rows, n, i, end, scratch, ups);
            for (int64_t f = i; f < end; ++f)
                for (int64_t row = r; row < r + n; ++row) {
                    const int64_t at = (f - i) * n + row - r;
                    const float g = mlp.gate
                                        ? linear(gates[at], input.row_weight, row, mlp.gate_bias, f)
                                        : 0.0f;
                    use(row, f, g, linear(ups[at], input.row_weight, row, mlp.up_bias, f));
                }
        });
    }

    static void activate_features(const Mlp& mlp, const MlpInput<float>& input, int64_t first,
                                  int64_t last, moe_type round, float* scratch, float* h,
                                  int64_t stride) {
        for_each_feature(
            mlp, input, first, last, scratch, [&](int64_t row, int64_t i, float gate, float up) {
                h[row * stride + i] = round_to(activate(*mlp.activation, gate, up), round);
            });
    }

    static void pre_activation(const Mlp& mlp, const MlpInput<float>& input, int64_t first,
                               int64_t last, float* scratch, float* out, int64_t stride) {
        const int64_t up_column = mlp.gate ? mlp.width() : 0;
        for_each_feature(mlp, input, first, last, scratch,
                         [&](int64_t row, int64_t i, float gate, float up) {
                             if (mlp.gate) out[row * stride + i] = gate;
                             out[row * stride + up_column + i] = up;
                         });
    }

    static void project(const Matrix& matrix, const InputRows<float>& rows, int64_t n_rows,
                        int64_t first, int64_t last, float* scratch, float* out, int64_t stride,
                        const int32_t* out_index, const float* bias) {
        const GemvMatrix weights = with_kernels(matrix, rows);
        for_each_tile(first, last, n_rows, [&](int64_t i, int64_t end, int64_t r, int64_t n) {
            Products products;
            weights.multiply(rows.from(r), n, i, end, scratch, products);
            for (int64_t f = i; f < end; ++f)
                for (int64_t row = r; row < r + n; ++row) {
                    const int64_t to = out_index ? out_index[row] : row;
                    out[to * stride + f] =
                        linear(products[(f - i) * n + row - r], nullptr, row, bias, f);
                }
        });
    }

    static MlpKernels<float> kernels() { return {activate_features, pre_activation, project}; }
};

}  // namespace

const GemvFamily* gemv_family(Arithmetic arithmetic) {
#if defined(MOE_X86)
    if (arithmetic == Arithmetic::gemv_avx512vnni) return &gemv_avx512vnni;
    if (arithmetic == Arithmetic::gemv_avx2) return &gemv_avx2;
#endif
    (void)arithmetic;
    return nullptr;
}

MlpKernels<float> mlp_gemv(Arithmetic arithmetic) {
    if (arithmetic == Arithmetic::gemv_avx2) return MlpGemv<Arithmetic::gemv_avx2>::kernels();
    return MlpGemv<Arithmetic::gemv_avx512vnni>::kernels();
}

}  // namespace moe::cpu
