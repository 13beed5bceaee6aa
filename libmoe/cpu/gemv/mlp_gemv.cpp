// Features of an MLP by the kernels of an instruction family, a tile of features and rows at a
// time: the products with gate and up, then the activation. Few rows take gemv kernels, with
// features in strict order of addresses, first those of gate, then those of up; many take gemm
// kernels.
#include "libmoe/cpu/gemv/mlp_gemv.hpp"

#include <algorithm>

#include "libmoe/cpu/gemv/weights.hpp"
#include "libmoe/cpu/ref/dot.hpp"
#include "libmoe/cpu/round.hpp"
#include "libmoe/cpu/simd.hpp"

namespace moe::cpu {
namespace {

// Tiles of gemv kernels, and of gemm kernels.
constexpr int64_t gemv_features = 64, gemv_rows = 4;
constexpr int64_t gemm_rows = 128;

// Rows that gemv kernels take at once: 4, 2 or 1.
int64_t rows_at_once(int64_t left) {
    return left >= 4 ? 4 : left >= 2 ? 2 : 1;
}

// Features [first, last) of rows [row, row + n).
struct Tile {
    int64_t first, last, row, n;
    bool in_panels;

    // Where the product of feature f and row r is.
    int64_t at(int64_t f, int64_t r) const {
        return in_panels ? (r - row) * panel_rows + f - first : (f - first) * n + r - row;
    }
};
// use(row, feature) in the order of the products.
template <class Use>
void for_each_product(const Tile& tile, Use use) {
    if (tile.in_panels) {
        for (int64_t row = tile.row; row < tile.row + tile.n; ++row)
            for (int64_t f = tile.first; f < tile.last; ++f) use(row, f);
    } else {
        for (int64_t f = tile.first; f < tile.last; ++f)
            for (int64_t row = tile.row; row < tile.row + tile.n; ++row) use(row, f);
    }
}
struct Products {
    alignas(64) float of_tile[gemm_rows * panel_rows];
};
static_assert(gemv_features * gemv_rows <= gemm_rows * panel_rows);

// One matrix with the kernels that read it; where none does, its rows are decoded one by one.
class GemvMatrix {
  public:
    GemvMatrix(const GemvFamily& family, const Matrix& matrix, const Quantization& rows)
        : family_(family), matrix_(matrix) {
        format_ = gemv_format_of(matrix);
        // Scales in tiles and a product of x each want the scratch memory.
        if (matrix.pre_quant_scale && matrix.tiled.row_step) return;
        if (!describe_gemv_weights(matrix, format_, weights_)) return;
        if (weights_.column_phase && !family.reads_amid_groups) return;
        if (rows.parts) kernels_ = family.kernels(format_, rows.parts);
        reads_floats_ = !kernels_;
        if (reads_floats_)
            kernels_ = family.kernels(format_, 0);
        else
            weights_.x_offset = offset_of_order(matrix.columns, rows, order_of(format_));
        weights_.x_natural = offset_of_order(matrix.columns, rows, ColumnOrder::natural);
        weights_.x_bf16 = offset_of_bf16(matrix.columns, rows);
        // Those read x as it is, and scales where they lie.
        if (!matrix.pre_quant_scale && !matrix.nested_scales)
            gemm_ = gemm_kernels(family, format_, rows);
    }

    bool has_panels() const { return gemm_.dequantize; }

    void multiply(const InputRows<float>& rows, const Tile& tile, float* scratch,
                  Products& products) const {
        const bool floats =
            tile.in_panels ? gemm_.rows == RowForm::floats : !kernels_ || reads_floats_;
        const void* x[gemm_rows];
        for (int64_t i = 0; i < tile.n; ++i)
            x[i] = floats ? static_cast<const void*>(rows.row(tile.row + i))
                          : rows.quantized_row(tile.row + i);
        float* out = products.of_tile;
        if (tile.in_panels) return multiply_panels(tile, x, scratch, out);
        if (kernels_ && matrix_.pre_quant_scale) return multiply_scaled(rows, tile, scratch, out);
        if (kernels_ && matrix_.nested_scales) return multiply_nested(tile, x, scratch, out);
        if (kernels_) return multiply_rows(tile, x, scratch, out);
        for (int64_t row = tile.first; row < tile.last; ++row, out += tile.n)
            multiply_decoded(row, tile.n, x, scratch, out);
    }

  private:
    // Weights in which `tile` is features [first, last). Scales in tiles are copied to scratch:
    // those of a tile of features fit a decoded row, since a row has a byte for every 16 columns at
    // most.
    struct Part {
        GemvWeights weights;
        int64_t first, last;
    };
    Part part_of(const Tile& tile, float* scratch) const {
        static_assert(gemv_features <= 16 * static_cast<int64_t>(sizeof(float)));
        Part part{weights_, tile.first, tile.last};
        if (!matrix_.tiled.row_step) return part;
        auto* copy = reinterpret_cast<std::byte*>(scratch);
        copy_untiled_scales(matrix_, tile.first, tile.last, copy);
        part.weights.data += tile.first * weights_.row_stride;
        part.weights.scales = copy;
        part.weights.scale_row_stride = untiled_row_bytes(matrix_);
        part.weights.scale_rows = 1;
        part.first = 0;
        part.last = tile.last - tile.first;
        return part;
    }
    void multiply_rows(const Tile& tile, const void* const* x, float* scratch, float* out) const {
        const Part part = part_of(tile, scratch);
        kernels_->of_rows[tile.n / 2](part.weights, part.first, part.last, x, out);
    }
    void multiply_panels(const Tile& tile, const void* const* x, float* scratch, float* out) const {
        auto* panel = reinterpret_cast<std::byte*>(scratch);
        Part part = part_of(tile, scratch + gemm_scratch_floats);
        const int64_t in_strip = matrix_.interleaving ? tile.first % panel_rows : 0;
        part.first -= in_strip;
        const int64_t padded = padded_columns(weights_.columns);
        std::fill_n(out, tile.n * panel_rows, 0.0f);
        if (gemm_.enter) gemm_.enter();
        for (int64_t column = 0; column < padded; column += panel_columns) {
            const int64_t columns = std::min(panel_columns, padded - column);
            gemm_.dequantize(part.weights, part.first, part.last - part.first, column, columns,
                             panel);
            gemm_.multiply(panel, part.weights, column, columns, x, tile.n, out);
        }
        if (gemm_.leave) gemm_.leave();
        for (int64_t i = 0; in_strip && i < tile.n; ++i)
            std::copy(out + i * panel_rows + in_strip, out + (i + 1) * panel_rows,
                      out + i * panel_rows);
    }
    // Row by row, with the scales that nested ones make.
    void multiply_nested(const Tile& tile, const void* const* x, float* scratch, float* out) const {
        GemvWeights one = weights_;
        one.scales = reinterpret_cast<const std::byte*>(scratch);
        one.scale_type = MOE_TYPE_F32;
        for (int64_t row = tile.first; row < tile.last; ++row) {
            one.data = weights_.data + row * weights_.row_stride;
            one.column_phase = copy_nested_scales(matrix_, row, scratch);
            kernels_->of_rows[tile.n / 2](one, 0, 1, x, out + (row - tile.first) * tile.n);
        }
    }
    // W x = W' (x * scale): row by row of x, which is multiplied and quantized again.
    void multiply_scaled(const InputRows<float>& rows, const Tile& tile, float* scratch,
                         float* out) const {
        const Quantization how{rows.quantization.parts, bit_of(order_of(format_))};
        auto* integers = reinterpret_cast<std::byte*>(scratch + matrix_.columns);
        GemvWeights weights = weights_;
        weights.x_offset = 0;
        for (int64_t i = 0; i < tile.n; ++i) {
            const float* row = rows.row(tile.row + i);
            for (int64_t k = 0; k < matrix_.columns; ++k)
                scratch[k] = row[k] * matrix_.pre_quant_scale[k];
            if (!reads_floats_) family_.quantize(scratch, matrix_.columns, how, integers);
            const void* x = reads_floats_ ? static_cast<const void*>(scratch) : integers;
            float products[gemv_features];
            kernels_->of_rows[0](weights, tile.first, tile.last, &x, products);
            for (int64_t f = 0; f < tile.last - tile.first; ++f) out[f * tile.n + i] = products[f];
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
    GemmKernels gemm_{};
    bool reads_floats_ = false;
};

// use(tile) for tiles of features and rows.
template <class Use>
void for_each_tile(int64_t first, int64_t last, int64_t n_rows, bool in_panels, Use use) {
    const int64_t features = in_panels ? panel_rows : gemv_features;
    for (int64_t i = first, end; i < last; i = end) {
        // Strips of interleaved rows begin at these multiples.
        end = std::min(i / panel_rows * panel_rows + features, last);
        for (int64_t r = 0, n; r < n_rows; r += n) {
            n = in_panels ? std::min(n_rows - r, gemm_rows) : rows_at_once(n_rows - r);
            use(Tile{i, end, r, n, in_panels});
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
        const bool in_panels =
            input.rows.in_panels && up.has_panels() && (!mlp.gate || gate.has_panels());
        for_each_tile(first, last, input.n, in_panels, [&](const Tile& tile) {
            Products gates, ups;
            if (mlp.gate) gate.multiply(input.rows, tile, scratch, gates);
            up.multiply(input.rows, tile, scratch, ups);
            for_each_product(tile, [&](int64_t row, int64_t f) {
                const int64_t at = tile.at(f, row);
                const float g =
                    mlp.gate ? linear(gates.of_tile[at], input.row_weight, row, mlp.gate_bias, f)
                             : 0.0f;
                use(row, f, g, linear(ups.of_tile[at], input.row_weight, row, mlp.up_bias, f));
            });
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
        const bool in_panels = rows.in_panels && weights.has_panels();
        for_each_tile(first, last, n_rows, in_panels, [&](const Tile& tile) {
            Products products;
            weights.multiply(rows, tile, scratch, products);
            for_each_product(tile, [&](int64_t row, int64_t f) {
                const int64_t to = out_index ? out_index[row] : row;
                out[to * stride + f] =
                    linear(products.of_tile[tile.at(f, row)], nullptr, row, bias, f);
            });
        });
    }

    static MlpKernels<float> kernels() { return {activate_features, pre_activation, project}; }
};

}  // namespace

const GemvFamily* gemv_family(Arithmetic arithmetic) {
#if defined(MOE_X86)
    if (arithmetic == Arithmetic::gemv_avx512vnni) return &gemv_avx512vnni;
    if (arithmetic == Arithmetic::gemv_amx) return &gemv_amx;
    if (arithmetic == Arithmetic::gemv_avx2) return &gemv_avx2;
#elif defined(MOE_AARCH64)
    if (arithmetic == Arithmetic::gemv_i8mm) return &gemv_i8mm;
    if (arithmetic == Arithmetic::gemv_neon) return &gemv_neon;
#endif
    (void)arithmetic;
    return nullptr;
}

MlpKernels<float> mlp_gemv(Arithmetic arithmetic) {
    if (arithmetic == Arithmetic::gemv_avx2) return MlpGemv<Arithmetic::gemv_avx2>::kernels();
    if (arithmetic == Arithmetic::gemv_neon) return MlpGemv<Arithmetic::gemv_neon>::kernels();
    if (arithmetic == Arithmetic::gemv_i8mm) return MlpGemv<Arithmetic::gemv_i8mm>::kernels();
    if (arithmetic == Arithmetic::gemv_amx) return MlpGemv<Arithmetic::gemv_amx>::kernels();
    return MlpGemv<Arithmetic::gemv_avx512vnni>::kernels();
}

}  // namespace moe::cpu
