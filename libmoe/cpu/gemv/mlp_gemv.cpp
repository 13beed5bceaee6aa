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

// Tiles of gemv kernels, and of gemm kernels. Weight rows that are decoded one by one come in tiles
// of many rows, too, so that none is decoded again for every four of them.
constexpr int64_t gemv_features = 64;
constexpr int64_t gemm_rows = 128;
static_assert(gemm_rows % rows_of_tile == 0);
enum class Way : uint8_t { gemv, gemm, decoded };

// Rows that gemv kernels take at once: any number up to `most`, or 4, 2 and 1.
struct RowGroups {
    int64_t most;
    bool is_any;
};
constexpr RowGroups rows_of_all_kernels{4, false};

RowGroups common(RowGroups a, RowGroups b) {
    if (!a.is_any || !b.is_any) return rows_of_all_kernels;
    return {std::min(a.most, b.most), true};
}

// Groups of any number differ by one at most.
int64_t rows_at_once(int64_t left, RowGroups rows) {
    if (!rows.is_any) return left >= 4 ? 4 : left >= 2 ? 2 : 1;
    const int64_t groups = (left + rows.most - 1) / rows.most;
    return (left + groups - 1) / groups;
}

GemvKernel kernel_of(const GemvKernels& kernels, int64_t n) {
    return n == 3 || n > 4 ? kernels.of_more_rows[n / 2 - 1] : kernels.of_rows[n / 2];
}

// Features [first, last) of rows [row, row + n).
struct Tile {
    int64_t first, last, row, n;
    int64_t of_panels;  // features that its panels have; 0: it is not in panels

    bool in_panels() const { return of_panels != 0; }
    // Products from a feature, and from a row, to the next.
    int64_t feature_step() const { return in_panels() ? 1 : n; }
    int64_t row_step() const { return in_panels() ? of_panels : 1; }
    int64_t n_products() const { return n * (in_panels() ? of_panels : last - first); }
};
constexpr int64_t most_products = gemm_rows * most_panels * panel_rows;
struct Products {
    alignas(64) float of_tile[most_products];
};
static_assert(gemv_features * gemv_rows <= most_products);

// One matrix with the kernels that read it; where none does, its rows are decoded one by one.
class GemvMatrix {
  public:
    GemvMatrix(const GemvFamily& family, const Matrix& matrix, const InputRows<float>& input)
        : family_(family), matrix_(matrix) {
        const Quantization& rows = input.quantization;
        format_ = gemv_format_of(matrix);
        // Scales in tiles and a product of x each want the scratch memory.
        if (matrix.pre_quant_scale && matrix.tiled.row_step) return;
        if (!describe_gemv_weights(matrix, format_, weights_)) return;
        if (weights_.column_phase && !family.reads_amid_groups) return;
        parts_ = rows.parts;
        if (rows.parts) kernels_ = family.kernels(format_, rows.parts);
        // A product of x by pre_quant_scale is not rounded to bfloat16.
        const bool has_exact_bf16 = rows.has_bf16 && !rows.rounds_to_bf16;
        if (!kernels_ && family.of_bf16 && !matrix.pre_quant_scale &&
            (has_exact_bf16 || rows.has_bf16_pair))
            kernels_ = family.of_bf16(format_, rows.has_bf16_pair);
        reads_floats_ = !kernels_;
        if (reads_floats_)
            kernels_ = family.kernels(format_, 0);
        else
            weights_.x_offset = offset_of_order(matrix.columns, rows, order_of(format_));
        weights_.x_natural = offset_of_order(matrix.columns, rows, ColumnOrder::natural);
        weights_.x_bf16 = offset_of_bf16(matrix.columns, rows);
        weights_.x_bf16_low = weights_.x_bf16 + 2 * padded_columns(matrix.columns);
        weights_.x_words = offset_of_words(matrix.columns, rows);
        weights_.x_low_sums = offset_of_low_sums(matrix.columns, rows);
        // Those read x as it is, and scales where they lie.
        if (input.in_panels && !matrix.pre_quant_scale && !matrix.nested_scales)
            gemm_ = gemm_kernels(family, format_, rows);
    }

    bool has_panels() const { return gemm_.dequantize; }
    int64_t features_of_panels() const { return gemm_.n_panels * panel_rows; }
    // How rows of the matrix are multiplied.
    Way way(bool in_panels) const {
        return in_panels && has_panels() ? Way::gemm : kernels_ ? Way::gemv : Way::decoded;
    }

    RowGroups row_groups() const {
        if (!kernels_ || !kernels_->of_more_rows[0]) return rows_of_all_kernels;
        return {most_gemv_rows(parts_, weights_.columns), true};
    }

    void multiply(const InputRows<float>& rows, const Tile& tile, float* scratch,
                  Products& products) const {
        const bool floats =
            tile.in_panels() ? gemm_.rows == RowForm::floats : !kernels_ || reads_floats_;
        const void* x[gemm_rows];
        for (int64_t i = 0; i < tile.n; ++i)
            x[i] = floats ? static_cast<const void*>(rows.row(tile.row + i))
                          : rows.quantized_row(tile.row + i);
        float* out = products.of_tile;
        if (tile.in_panels()) return multiply_panels(rows, tile, x, scratch, out);
        if (kernels_ && matrix_.pre_quant_scale) return multiply_scaled(rows, tile, scratch, out);
        if (kernels_ && matrix_.nested_scales) return multiply_nested(tile, x, scratch, out);
        if (kernels_) return multiply_rows(tile, x, scratch, out);
        multiply_decoded(tile, x, scratch, out);
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
        part.weights.rows = tile.last - tile.first;
        part.weights.scales = copy;
        part.weights.scale_row_stride = untiled_row_bytes(matrix_);
        part.weights.scale_rows = 1;
        part.first = 0;
        part.last = tile.last - tile.first;
        return part;
    }
    void multiply_rows(const Tile& tile, const void* const* x, float* scratch, float* out) const {
        const Part part = part_of(tile, scratch);
        kernel_of(*kernels_, tile.n)(part.weights, part.first, part.last, x, out);
    }
    void multiply_panels(const InputRows<float>& rows, const Tile& tile, const void* const* x,
                         float* scratch, float* out) const {
        auto* panels = reinterpret_cast<std::byte*>(scratch);
        Part part = part_of(tile, scratch + gemm_scratch_floats);
        const int64_t in_strip = matrix_.interleaving ? tile.first % panel_rows : 0;
        part.first -= in_strip;
        const int64_t padded = padded_columns(weights_.columns);
        std::fill_n(out, tile.n_products(), 0.0f);
        const int64_t tile_bytes = row_tile_bytes(padded);
        const std::byte* row_tiles =
            rows.tiles ? rows.tiles + tile.row / rows_of_tile * tile_bytes : nullptr;
        alignas(64) std::byte tiles_of_caller[saved_tiles_bytes];
        if (gemm_.enter) gemm_.enter(tiles_of_caller);
        for (int64_t column = 0; column < padded; column += panel_columns) {
            const int64_t columns = std::min(panel_columns, padded - column);
            for (int64_t i = 0; i < gemm_.n_panels; ++i)
                make_panel(part, i, column, columns, panels);
            look_ahead(part, column + columns < padded ? column + columns : 0);
            if (row_tiles && gemm_.multiply_tiles)
                gemm_.multiply_tiles(panels, column, columns, row_tiles, tile_bytes, tile.n, out);
            else
                gemm_.multiply(panels, part.weights, column, columns, x, tile.n, out);
        }
        if (gemm_.leave) gemm_.leave(tiles_of_caller);
        for (int64_t i = 0; in_strip && i < tile.n; ++i) {
            float* row = out + i * tile.row_step();
            std::copy(row + in_strip, row + tile.row_step(), row);
        }
    }
    // The panel after these: of the same rows from a column on, or of the rows after them from
    // column 0 on.
    void look_ahead(Part& part, int64_t column) const {
        part.weights.ahead = nullptr;
        const int64_t first = column ? part.first : part.last;
        if (!rows_are_contiguous(matrix_) || first >= part.weights.rows) return;
        const int64_t whole = std::max(matrix_.whole_columns, matrix_.columns);
        const auto bytes = [&](int64_t columns) { return matrix_.row_stride * columns / whole; };
        part.weights.ahead = part.weights.data + first * part.weights.row_stride + bytes(column);
        part.weights.ahead_bytes = bytes(std::min(panel_columns, weights_.columns - column));
        part.weights.ahead_rows = std::min(panel_rows, part.weights.rows - first);
    }
    // Panel i of a tile; where the tile has fewer rows, nobody reads the sums of the panel.
    void make_panel(const Part& part, int64_t i, int64_t column, int64_t columns,
                    std::byte* panels) const {
        const int64_t first = part.first + i * panel_rows;
        const int64_t n = std::min(part.last - first, panel_rows);
        if (n <= 0) return;
        std::byte* panel = panels + i * bf16_panel_bytes;
        std::byte* made = gemm_.round ? panels + most_panels * bf16_panel_bytes : panel;
        gemm_.dequantize(part.weights, first, n, column, columns, made);
        if (gemm_.round) gemm_.round(made, columns, panel);
    }
    // Row by row, with the scales that nested ones make.
    void multiply_nested(const Tile& tile, const void* const* x, float* scratch, float* out) const {
        GemvWeights one = weights_;
        one.scales = reinterpret_cast<const std::byte*>(scratch);
        one.scale_type = MOE_TYPE_F32;
        one.rows = 1;
        for (int64_t row = tile.first; row < tile.last; ++row) {
            one.data = weights_.data + row * weights_.row_stride;
            one.column_phase = copy_nested_scales(matrix_, row, scratch);
            kernel_of(*kernels_, tile.n)(one, 0, 1, x, out + (row - tile.first) * tile.n);
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
    // Two weight rows at a time, which the scratch memory holds: activation rows come from a cache
    // for both.
    void multiply_decoded(const Tile& tile, const void* const* x, float* scratch,
                          float* out) const {
        const GemvKernels& kernels = *family_.kernels(GemvFormat::f32, 0);
        GemvWeights decoded{};
        decoded.data = reinterpret_cast<const std::byte*>(scratch);
        decoded.columns = matrix_.columns;
        decoded.row_stride = matrix_.columns * static_cast<int64_t>(sizeof(float));
        decoded.scale_rows = 1;
        for (int64_t row = tile.first, n_rows; row < tile.last; row += n_rows) {
            n_rows = std::min<int64_t>(2, tile.last - row);
            for (int64_t i = 0; i < n_rows; ++i)
                decode_row(matrix_, row + i, scratch + i * matrix_.columns);
            for (int64_t i = 0, n; i < tile.n; i += n) {
                n = rows_at_once(tile.n - i, rows_of_all_kernels);
                float products[2 * gemv_rows];
                kernel_of(kernels, n)(decoded, 0, n_rows, x + i, products);
                for (int64_t j = 0; j < n_rows; ++j)
                    std::copy_n(products + j * n, n, out + (row + j - tile.first) * tile.n + i);
            }
        }
    }

    const GemvFamily& family_;
    const Matrix& matrix_;
    GemvFormat format_ = GemvFormat::none;
    GemvWeights weights_{};
    const GemvKernels* kernels_ = nullptr;
    GemmKernels gemm_{};
    int64_t parts_ = 0;  // of the integers of a row
    bool reads_floats_ = false;
};

// use(tile) for tiles of features and rows; groups: rows that gemv kernels take.
template <class Use>
void for_each_tile(int64_t first, int64_t last, int64_t n_rows, Way way, int64_t of_panels,
                   RowGroups groups, Use use) {
    if (way != Way::gemm) of_panels = 0;
    const int64_t features = way == Way::gemv ? gemv_features : std::max(of_panels, panel_rows);
    for (int64_t i = first, end; i < last; i = end) {
        // Strips of interleaved rows begin at these multiples.
        end = std::min(i / panel_rows * panel_rows + features, last);
        for (int64_t r = 0, n; r < n_rows; r += n) {
            n = way == Way::gemv ? rows_at_once(n_rows - r, groups)
                                 : std::min(n_rows - r, gemm_rows);
            use(Tile{i, end, r, n, of_panels});
        }
    }
}

// Applies the weights on the input and a bias, each of which may be null, to products.
void add_linear(const Tile& tile, const float* row_weight, const float* bias, Products& products) {
    if (!row_weight && !bias) return;
    for (int64_t r = 0; r < tile.n; ++r) {
        // (W (w x)) = w (W x): the weight on the input may be applied to the product.
        const float weight = row_weight ? row_weight[tile.row + r] : 1.0f;
        float* at = products.of_tile + r * tile.row_step();
        for (int64_t f = tile.first; f < tile.last; ++f, at += tile.feature_step())
            *at = *at * weight + (bias ? bias[f] : 0.0f);
    }
}

// The features of the tile's row r go to out + f.
void store_row(const Tile& tile, const Products& products, int64_t r, float* out) {
    const float* at = products.of_tile + r * tile.row_step();
    const int64_t step = tile.feature_step();
    if (step == 1) {
        std::copy_n(at, tile.last - tile.first, out + tile.first);
        return;
    }
    for (int64_t f = tile.first; f < tile.last; ++f, at += step) out[f] = *at;
}

// ups = act(gates, ups), rounded to a type.
void activate_products(const GemvFamily& family, const Activation& activation, moe_type round,
                       int64_t n, Products& gates, Products& ups) {
    const bool is_vector = family.activate && activation.kind != MOE_ACTIVATION_SITU;
    if (!is_vector) {
        for (int64_t i = 0; i < n; ++i)
            ups.of_tile[i] =
                round_to(activate(activation, gates.of_tile[i], ups.of_tile[i]), round);
        return;
    }
    const int64_t padded = (n + activation_step - 1) / activation_step * activation_step;
    std::fill(gates.of_tile + n, gates.of_tile + padded, 0.0f);
    std::fill(ups.of_tile + n, ups.of_tile + padded, 0.0f);
    const GateActivation how{activation.kind,      activation.gated,      round == MOE_TYPE_BF16,
                             activation.alpha,     activation.gate_limit, activation.up_limit,
                             activation.up_offset, activation.post_limit};
    family.activate(how, activation.gated ? gates.of_tile : ups.of_tile, ups.of_tile, n,
                    ups.of_tile);
    if (round == MOE_TYPE_F16)
        for (int64_t i = 0; i < n; ++i) ups.of_tile[i] = round_to(ups.of_tile[i], round);
}

template <Arithmetic arithmetic>
struct MlpGemv {
    static GemvMatrix with_kernels(const Matrix& matrix, const InputRows<float>& rows) {
        return {*gemv_family(arithmetic), matrix, rows};
    }

    // use(tile, gates, ups), the biases added; gates are there where the expert has a gate.
    template <class Use>
    static void for_each_feature(const Mlp& mlp, const MlpInput<float>& input, int64_t first,
                                 int64_t last, float* scratch, Use use) {
        const GemvMatrix up = with_kernels(*mlp.up, input.rows);
        const GemvMatrix gate = with_kernels(mlp.gate ? *mlp.gate : *mlp.up, input.rows);
        // Where gate and up differ, gemv kernels take the tile.
        const Way of_up = up.way(input.rows.in_panels && gate.has_panels());
        const bool is_same = of_up == gate.way(of_up == Way::gemm) &&
                             up.features_of_panels() == gate.features_of_panels();
        const Way way = is_same ? of_up : Way::gemv;
        const RowGroups groups = common(up.row_groups(), gate.row_groups());
        const auto multiply_tile = [&](const Tile& tile) {
            Products gates, ups;
            if (mlp.gate) {
                gate.multiply(input.rows, tile, scratch, gates);
                add_linear(tile, input.row_weight, mlp.gate_bias, gates);
            }
            up.multiply(input.rows, tile, scratch, ups);
            add_linear(tile, input.row_weight, mlp.up_bias, ups);
            use(tile, gates, ups);
        };
        for_each_tile(first, last, input.n, way, up.features_of_panels(), groups, multiply_tile);
    }

    static void activate_features(const Mlp& mlp, const MlpInput<float>& input, int64_t first,
                                  int64_t last, moe_type round, float* scratch, float* h,
                                  int64_t stride) {
        for_each_feature(mlp, input, first, last, scratch,
                         [&](const Tile& tile, Products& gates, Products& ups) {
                             activate_products(*gemv_family(arithmetic), *mlp.activation, round,
                                               tile.n_products(), gates, ups);
                             for (int64_t r = 0; r < tile.n; ++r)
                                 store_row(tile, ups, r, h + (tile.row + r) * stride);
                         });
    }

    static void pre_activation(const Mlp& mlp, const MlpInput<float>& input, int64_t first,
                               int64_t last, float* scratch, float* out, int64_t stride) {
        const int64_t up_column = mlp.gate ? mlp.width() : 0;
        for_each_feature(mlp, input, first, last, scratch,
                         [&](const Tile& tile, const Products& gates, const Products& ups) {
                             for (int64_t r = 0; r < tile.n; ++r) {
                                 float* row = out + (tile.row + r) * stride;
                                 if (mlp.gate) store_row(tile, gates, r, row);
                                 store_row(tile, ups, r, row + up_column);
                             }
                         });
    }

    static void project(const Matrix& matrix, const InputRows<float>& rows, int64_t n_rows,
                        int64_t first, int64_t last, float* scratch, float* out, int64_t stride,
                        const int32_t* out_index, const float* bias) {
        const GemvMatrix weights = with_kernels(matrix, rows);
        const Way way = weights.way(rows.in_panels);
        const auto multiply_tile = [&](const Tile& tile) {
            Products products;
            weights.multiply(rows, tile, scratch, products);
            add_linear(tile, nullptr, bias, products);
            for (int64_t r = 0; r < tile.n; ++r) {
                const int64_t row = tile.row + r;
                store_row(tile, products, r, out + (out_index ? out_index[row] : row) * stride);
            }
        };
        for_each_tile(first, last, n_rows, way, weights.features_of_panels(), weights.row_groups(),
                      multiply_tile);
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
