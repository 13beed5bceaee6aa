#include "tests/cpu/gemv_cases.hpp"

#include <map>

#include "libmoe/base/element.hpp"
#include "libmoe/cpu/features.hpp"
#include "libmoe/cpu/tile_permission.hpp"

namespace moe::cpu {
namespace {

// Integers of every packing, width, kind of zero point, type of scale and group size in use.
std::vector<moe_format> int_formats() {
    using test::int_format;
    std::vector<moe_format> all;
    const moe_type types[] = {MOE_TYPE_F16, MOE_TYPE_BF16, MOE_TYPE_F32};
    const int32_t groups[] = {32, 64, 128, -1};
    for (int32_t bits = 1; bits <= 8; ++bits)
        for (const auto zero : {MOE_ZERO_POINT_MIDDLE, MOE_ZERO_POINT_PACKED}) {
            const auto i = static_cast<size_t>(2 * bits + zero);
            all.push_back(
                int_format(MOE_PACKING_BIT_STREAM, bits, groups[i % 4], types[i % 3], zero));
        }
    for (const int32_t group : groups)
        for (const auto zero : {MOE_ZERO_POINT_MIDDLE, MOE_ZERO_POINT_PACKED})
            all.push_back(int_format(MOE_PACKING_BIT_STREAM, 4, group, MOE_TYPE_BF16, zero));
    all.back().group_rows = 1;
    for (int32_t bits = 1; bits <= 8; ++bits)
        for (const int32_t group : groups)
            all.push_back(int_format(MOE_PACKING_BIT_STREAM, bits, group,
                                     types[static_cast<size_t>(bits + group + 1) % 3],
                                     MOE_ZERO_POINT_FLOAT));
    all.push_back(int_format(MOE_PACKING_BIT_STREAM, 4, 32, MOE_TYPE_F16, MOE_ZERO_POINT_MIDDLE));
    all.back().group_rows = -1;
    for (const int32_t bits : {2, 3, 4, 8})
        for (const auto zero : {MOE_ZERO_POINT_PACKED, MOE_ZERO_POINT_PACKED_MINUS_ONE})
            for (const int32_t group : {32, 128, -1})
                all.push_back(int_format(MOE_PACKING_GPTQ, bits, group,
                                         types[static_cast<size_t>(bits + group + 1) % 3], zero));
    // With act-order groups may have any size, and be more than a table of the kernels holds.
    for (const int32_t bits : {2, 3, 4, 8})
        for (const int32_t group : {1, 3, 16, 48, 128, -1})
            all.push_back(int_format(
                MOE_PACKING_GPTQ, bits, group, types[static_cast<size_t>(bits + group + 1) % 3],
                group % 3 ? MOE_ZERO_POINT_PACKED : MOE_ZERO_POINT_PACKED_MINUS_ONE, true));
    for (const int32_t bits : {2, 4, 8})
        for (const int32_t group : {1, 3, 16, 128, -1})
            all.push_back(int_format(MOE_PACKING_BIT_STREAM, bits, group,
                                     types[static_cast<size_t>(bits + group + 1) % 3],
                                     group % 3 ? MOE_ZERO_POINT_PACKED : MOE_ZERO_POINT_MIDDLE,
                                     true));
    all.push_back(
        int_format(MOE_PACKING_BIT_STREAM, 4, 32, MOE_TYPE_BF16, MOE_ZERO_POINT_MIDDLE, true));
    all.back().group_rows = -1;
    for (const int32_t group : groups)
        all.push_back(int_format(MOE_PACKING_AWQ, 4, group,
                                 types[static_cast<size_t>(group + 1) / 32 % 3],
                                 MOE_ZERO_POINT_PACKED));
    return all;
}

std::vector<moe_format> nibble_formats() {
    using test::nibble_format;
    return {nibble_format(MOE_TYPE_INT, MOE_TYPE_F32, 64),
            nibble_format(MOE_TYPE_INT, MOE_TYPE_F16, -1),
            nibble_format(MOE_TYPE_INT, MOE_TYPE_BF16, 128),
            nibble_format(MOE_TYPE_E2M1, MOE_TYPE_F32, -1),
            nibble_format(MOE_TYPE_E2M1, MOE_TYPE_F16, 128),
            nibble_format(MOE_TYPE_E2M1, MOE_TYPE_BF16, 32),
            nibble_format(MOE_TYPE_E2M1, MOE_TYPE_F8_E8M0, 64)};
}

}  // namespace

std::vector<Arithmetic> families() {
    std::vector<Arithmetic> all;
    if (has_amx() && may_use_tiles()) all.push_back(Arithmetic::gemv_amx);
#if defined(MOE_EMULATE_AMX)
    return all;  // the others are tested as they are
#endif
    if (has_avx512vnni()) all.push_back(Arithmetic::gemv_avx512vnni);
    if (has_avx2()) all.push_back(Arithmetic::gemv_avx2);
    if (has_i8mm()) all.push_back(Arithmetic::gemv_i8mm);
    if (has_neon()) all.push_back(Arithmetic::gemv_neon);
    return all;
}

FormatTraits traits_of(const char* name, const moe_format& format) {
    FormatTraits traits = *find_format(format);
    traits.name = name;
    traits.format = format;
    return traits;
}

FormatTraits traits_of(const moe_format& format) {
    static std::map<std::string, int> names;  // that outlive the traits
    return traits_of(names.try_emplace(format_name(format).text).first->first.c_str(), format);
}

std::vector<FormatTraits> known_formats() {
    std::vector<FormatTraits> all(all_formats().begin(), all_formats().end());
    for (const FormatTraits& grid : test::one_row_grids()) all.push_back(grid);
    for (const moe_format& format : int_formats()) all.push_back(traits_of(format));
    for (const auto codebook : {MOE_CODEBOOK_BNB_NF4, MOE_CODEBOOK_BNB_FP4})
        for (const bool nested : {false, true})
            for (const int32_t group : {32, 64, 4096})
                all.push_back(traits_of(test::bnb_format(codebook, group, nested)));
    moe_format mxfp8 = format_of(MOE_TYPE_F8_E4M3);
    mxfp8.group_rows = 1;
    mxfp8.group_columns = 32;
    mxfp8.scale_type = MOE_TYPE_F8_E8M0;
    all.push_back(traits_of("mxfp8", mxfp8));
    for (const char* name : {"kbit2", "kbit3", "kbit4", "kbit5", "kbit4_f32"}) {
        moe_format given = find_format(name)->format;
        given.codebook = MOE_CODEBOOK_GIVEN;
        all.push_back(traits_of(given));
    }
    for (const moe_format& format : nibble_formats()) all.push_back(traits_of(format));
    moe_format nvfp4 = find_format("nvfp4")->format;
    nvfp4.pre_quant_scale = 1;
    all.push_back(traits_of(nvfp4));
    nvfp4.global_scale = MOE_GLOBAL_SCALE_DIVIDE;
    all.push_back(traits_of(nvfp4));
    nvfp4.pre_quant_scale = 0;
    all.push_back(traits_of(nvfp4));
    return all;
}

std::vector<FormatTraits> unread_formats() {
    std::vector<FormatTraits> all;
    all.push_back(traits_of(test::int_format(MOE_PACKING_BIT_STREAM, 5, 128, MOE_TYPE_F16,
                                             MOE_ZERO_POINT_PACKED, true)));
    for (const auto packing : {MOE_PACKING_BIT_STREAM, MOE_PACKING_GPTQ, MOE_PACKING_AWQ})
        for (const int32_t group : {16, 48})
            all.push_back(traits_of(
                test::int_format(packing, 4, group, MOE_TYPE_F16, MOE_ZERO_POINT_PACKED)));
    all.push_back(traits_of(test::bnb_format(MOE_CODEBOOK_BNB_NF4, 16, false)));
    for (const auto type : {MOE_TYPE_F8_E4M3, MOE_TYPE_I8}) {
        moe_format grid = format_of(type);
        grid.group_rows = 1;
        grid.group_columns = 48;
        grid.scale_type = MOE_TYPE_F32;
        all.push_back(traits_of(grid));
    }
    return all;
}

void fill_with_bytes(test::Stored& stored) {
    stored.data = test::random_bytes(stored.data.size(), 11);
    const auto block = static_cast<size_t>(stored.traits->block_bytes);
    for (const size_t place : test::f16_places(stored.traits->format))
        for (size_t at = place; at < stored.data.size(); at += block)
            store(stored.data.data() + at, float_to_f16(0.01f + 0.0001f * (at % 64)));
    const moe_type scale_type = stored.traits->format.scale_type;
    if (scale_type == MOE_TYPE_F8_E4M3 || scale_type == MOE_TYPE_F8_E8M0) {
        const bool is_e8m0 = scale_type == MOE_TYPE_F8_E8M0;
        for (size_t at = 0; at < stored.scales.size(); ++at)
            stored.scales[at] = static_cast<std::byte>(is_e8m0 ? 0x78 + at % 4 : 0x30 + at % 16);
        return;
    }
    if (scale_type == MOE_TYPE_F16 || scale_type == MOE_TYPE_BF16) {
        for (size_t at = 0; at + 2 <= stored.scales.size(); at += 2) {
            const float scale = 0.01f + 0.001f * static_cast<float>(at % 32);
            store(stored.scales.data() + at,
                  scale_type == MOE_TYPE_F16 ? float_to_f16(scale) : float_to_bf16(scale));
        }
        return;
    }
    for (size_t at = 0; at + 4 <= stored.scales.size(); at += 4)
        store(stored.scales.data() + at, 0.01f + 0.001f * static_cast<float>(at % 16));
}

std::vector<float> project(Arithmetic arithmetic, const Matrix& weights,
                           const Activations& activations, int64_t n) {
    std::vector<float> out(static_cast<size_t>(n * weights.rows), -77.0f);
    const ThreadScratch scratch(weights.columns);
    mlp_gemv(arithmetic)
        .project(weights, activations.rows, n, 0, weights.rows, scratch.data(), out.data(),
                 weights.rows, nullptr, nullptr);
    return out;
}
std::vector<float> project(Arithmetic arithmetic, const Weights& weights,
                           const Activations& activations, int64_t n) {
    return project(arithmetic, weights.matrix, activations, n);
}

// Four sums: one alone would wait for its addition before at every step.
static double exact_sum(const float* weights, const float* x, int64_t columns) {
    double a = 0, b = 0, c = 0, d = 0;
    int64_t k = 0;
    for (; k + 4 <= columns; k += 4) {
        a += static_cast<double>(weights[k]) * x[k];
        b += static_cast<double>(weights[k + 1]) * x[k + 1];
        c += static_cast<double>(weights[k + 2]) * x[k + 2];
        d += static_cast<double>(weights[k + 3]) * x[k + 3];
    }
    for (; k < columns; ++k) a += static_cast<double>(weights[k]) * x[k];
    return a + b + (c + d);
}

std::vector<float> exact(const Matrix& matrix, const std::vector<float>& values,
                         const std::vector<float>& x, int64_t n) {
    const int64_t rows = matrix.rows, columns = matrix.columns;
    std::vector<float> out;
    for (int64_t i = 0; i < n; ++i)
        for (int64_t row = 0; row < rows; ++row)
            out.push_back(static_cast<float>(
                exact_sum(values.data() + row * columns, x.data() + i * columns, columns)));
    return out;
}

std::vector<float> exact(const Weights& weights, const std::vector<float>& x, int64_t n) {
    return exact(weights.matrix, weights.values, x, n);
}

static double sum_of_squares(const float* values, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(values[i]) * values[i];
    return sum;
}

double worst_error(const std::vector<float>& got, const Matrix& matrix,
                   const std::vector<float>& values, const std::vector<float>& x, int64_t n) {
    const std::vector<float> right = exact(matrix, values, x, n);
    if (got.size() != right.size()) return INFINITY;
    const int64_t rows = matrix.rows, columns = matrix.columns;
    const double of_weights =
        sum_of_squares(values.data(), rows * columns) / static_cast<double>(columns);
    double worst = 0;
    for (int64_t i = 0; i < n; ++i) {
        double error = 0;
        for (int64_t at = i * rows; at < (i + 1) * rows; ++at) {
            const double difference =
                static_cast<double>(got[static_cast<size_t>(at)]) - right[static_cast<size_t>(at)];
            error += difference * difference;
        }
        const double norm = std::max(sum_of_squares(right.data() + i * rows, rows),
                                     of_weights * sum_of_squares(x.data() + i * columns, columns));
        const double relative = std::sqrt(error / norm);
        if (!(relative <= worst)) worst = relative;  // NaN is never small
    }
    return worst;
}

double worst_error(const std::vector<float>& got, const Weights& weights,
                   const std::vector<float>& x, int64_t n) {
    return worst_error(got, weights.matrix, weights.values, x, n);
}

int64_t rows_of(const moe_format& format, int64_t usual) {
    if (format.packing == MOE_PACKING_AWQ) return 40;
    if (format.packing != MOE_PACKING_GPTQ) return usual;
    return format.bits == 8 ? 36 : format.bits == 4 ? 40 : 96;
}

std::vector<bool> layouts_of(const FormatTraits& traits) {
    if (interleaving_of(traits.format)) return {false, true};
    return {false};
}

std::vector<int64_t> columns_of(const FormatTraits& traits) {
    const moe_packing packing = traits.format.packing;
    const bool in_words = packing == MOE_PACKING_GPTQ || packing == MOE_PACKING_AWQ ||
                          packing == MOE_PACKING_NIBBLE_HIGH_FIRST;
    if (in_words) return {32, 96, 256, 352, 1056};
    if (traits.block_columns == 256) return {256, 768};
    if (traits.block_columns == 64) return {64, 256, 704};
    const bool in_groups = traits.block_columns == 32 || traits.format.group_columns == 32;
    if (in_groups) return {32, 96, 256, 352, 2880};
    if (traits.format.group_columns > 32) return {128, 256, 384, 2048};
    return {16, 48, 240, 256, 272, 720};
}

bool rounds_values(Arithmetic arithmetic, const moe_format& format, const InputRows<float>& rows) {
    if (format.pre_quant_scale || format.nested_scales) return false;  // they have no panels
    const bool is_amx = arithmetic == Arithmetic::gemv_amx;
    const bool is_rounded = format.type == MOE_TYPE_CODEBOOK || format.type == MOE_TYPE_F16 ||
                            (is_amx && format.type != MOE_TYPE_BF16);
    return rows.quantization.has_bf16 && rows.in_panels && is_rounded;
}

double bound_of_error(Arithmetic arithmetic, const moe_format& format, const Activations& x,
                      const Bound& bound) {
    if (x.rows.quantization.rounds_to_bf16 && x.rows.in_panels) return bound.error;
    if (rounds_values(arithmetic, format, x.rows)) return bound_of_rounded_values(bound.outlier);
    return x.rows.quantization.parts ? bound.error : 1e-5;
}

void Activations::lay_tiles(int64_t n, int64_t columns) {
    const int64_t padded = padded_columns(columns);
    const int64_t n_tiles = (n + rows_of_tile - 1) / rows_of_tile;
    tiles.resize(static_cast<size_t>(n_tiles * row_tile_bytes(padded)));
    rows.tiles = tiles.data();
    const auto at = [&](int64_t row, int64_t column) {
        return row / rows_of_tile * row_tile_bytes(padded) + row_tile_bytes(column) +
               row % rows_of_tile * 64;
    };
    for (int64_t i = 0; i < n_tiles * rows_of_tile; ++i)
        for (int64_t k = 0; k < padded; k += 32)
            std::memcpy(tiles.data() + at(i, k),
                        rows.quantized_row(std::min(i, n - 1)) +
                            offset_of_bf16(columns, rows.quantization) + 2 * k,
                        64);
}

std::vector<int64_t> tokens_of(Way way, int64_t columns) {
    if (way == Way::rows) return {1, 2, 3, 4, 5, 6, 7};
    // Groups of rows have every size.
    return columns == 256 ? std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 131}
                          : std::vector<int64_t>{15};
}

}  // namespace moe::cpu
