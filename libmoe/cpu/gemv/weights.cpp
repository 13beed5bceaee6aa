// Formats and matrices for the gemv kernels.
#include "libmoe/cpu/gemv/weights.hpp"

#include <array>
#include <bit>
#include <span>

#include "libmoe/base/iq_grids.hpp"
#include "libmoe/formats/block.hpp"

namespace moe::cpu {
namespace {

struct BlockFormat {
    int32_t id;  // of ggml
    GemvFormat format;
};
constexpr BlockFormat block_formats[] = {
    {2, GemvFormat::q4_0},     {3, GemvFormat::q4_1},        {6, GemvFormat::q5_0},
    {7, GemvFormat::q5_1},     {8, GemvFormat::q8_0},        {10, GemvFormat::q2_k},
    {11, GemvFormat::q3_k},    {12, GemvFormat::q4_k},       {13, GemvFormat::q5_k},
    {14, GemvFormat::q6_k},    {16, GemvFormat::iq2_xxs},    {17, GemvFormat::iq2_xs},
    {18, GemvFormat::iq3_xxs}, {20, GemvFormat::iq4_nl},     {21, GemvFormat::iq3_s},
    {23, GemvFormat::iq4_xs},  {39, GemvFormat::mxfp4_gguf}, {40, GemvFormat::nvfp4_gguf},
};

GemvFormat block_format(int32_t id) {
    for (const BlockFormat& one : block_formats)
        if (one.id == id) return one.format;
    return GemvFormat::none;
}

// Groups of columns that a shift finds: powers of two from 32 on, or all columns.
bool is_grid_group(int32_t columns) {
    return columns == -1 || (columns >= 32 && std::has_single_bit(static_cast<uint32_t>(columns)));
}

GemvFormat int_format(const moe_format& format) {
    const bool in_nibbles = format.packing == MOE_PACKING_BIT_STREAM && format.bits == 4;
    return in_nibbles && format.zero_point == MOE_ZERO_POINT_MIDDLE && !format.act_order &&
                   is_grid_group(format.group_columns)
               ? GemvFormat::int4
               : GemvFormat::none;
}

GemvFormat e2m1_format(const moe_format& format) {
    if (format.pre_quant_scale) return GemvFormat::none;
    return format.scale_type == MOE_TYPE_F8_E8M0 ? GemvFormat::mxfp4 : GemvFormat::nvfp4;
}

GemvFormat kbit_format(const moe_format& format) {
    constexpr GemvFormat by_bits[2][4] = {
        {GemvFormat::kbit2, GemvFormat::kbit3, GemvFormat::kbit4, GemvFormat::kbit5},
        {GemvFormat::kbit2_given, GemvFormat::kbit3_given, GemvFormat::kbit4_given,
         GemvFormat::kbit5_given}};
    const bool in_planes = format.packing == MOE_PACKING_BIT_PLANES;
    if (!in_planes || format.bits < 2 || format.bits > 5) return GemvFormat::none;
    return by_bits[format.codebook == MOE_CODEBOOK_GIVEN][format.bits - 2];
}

GemvFormat known_format(const moe_format& format) {
    switch (format.type) {
        case MOE_TYPE_F32:
            return GemvFormat::f32;
        case MOE_TYPE_F16:
            return GemvFormat::f16;
        case MOE_TYPE_BF16:
            return GemvFormat::bf16;
        case MOE_TYPE_GGUF:
            return block_format(format.block_id);
        case MOE_TYPE_E2M1:
            return e2m1_format(format);
        case MOE_TYPE_F8_E4M3:
            return is_grid_group(format.group_columns) ? GemvFormat::fp8 : GemvFormat::none;
        case MOE_TYPE_I8:
            return is_grid_group(format.group_columns) ? GemvFormat::int8 : GemvFormat::none;
        case MOE_TYPE_INT:
            return int_format(format);
        case MOE_TYPE_CODEBOOK:
            return kbit_format(format);
        default:
            return GemvFormat::none;
    }
}

// Entries of a grid with a byte for each magnitude.
template <class Entry, int n, int bits, uint32_t (*entry)(uint32_t), int32_t (*magnitude)(uint32_t)>
const void* grid_of_bytes() {
    static const std::array<Entry, n> grid = [] {
        std::array<Entry, n> bytes{};
        for (uint32_t i = 0; i < n; ++i)
            for (uint32_t j = 0; j < sizeof(Entry); ++j)
                bytes[i] |= static_cast<Entry>(magnitude(entry(i) >> bits * j & ((1u << bits) - 1)))
                            << 8 * j;
        return bytes;
    }();
    return grid.data();
}

const void* grid_of(GemvFormat format) {
    switch (format) {
        case GemvFormat::iq2_xxs:
            return grid_of_bytes<uint64_t, 256, 2, iq2_xxs_entry, iq2_magnitude>();
        case GemvFormat::iq2_xs:
            return grid_of_bytes<uint64_t, 512, 2, iq2_xs_entry, iq2_magnitude>();
        case GemvFormat::iq3_xxs:
            return grid_of_bytes<uint32_t, 256, 4, iq3_xxs_entry, iq3_xxs_magnitude>();
        case GemvFormat::iq3_s:
            return grid_of_bytes<uint32_t, 512, 4, iq3_s_entry, iq3_s_magnitude>();
        default:
            return nullptr;
    }
}

float global_scale_of(const Matrix& matrix) {
    switch (matrix.format.global_scale) {
        case MOE_GLOBAL_SCALE_MULTIPLY:
            return matrix.global_scale;
        case MOE_GLOBAL_SCALE_DIVIDE:
            return 1.0f / matrix.global_scale;
        default:
            return 1.0f;
    }
}

// The part of a matrix that is not sliceable, where it begins in the middle of nothing.
bool move_to_part(const Matrix& matrix, GemvWeights& out) {
    const int64_t group = group_extent(matrix.format.group_columns);
    if (matrix.column_begin % 8 || (matrix.column_begin && matrix.column_begin % group))
        return false;
    out.data += matrix.row_begin * matrix.row_stride + matrix.column_begin / 2;
    out.scales += matrix.row_begin * matrix.scale_row_stride +
                  matrix.column_begin / group * element_bytes(matrix.format.scale_type);
    return true;
}

constexpr uint32_t bit_of(ColumnOrder order) {
    return 1u << static_cast<int>(order);
}

}  // namespace

ColumnOrder order_of(GemvFormat format) {
    switch (format) {
        case GemvFormat::q4_0:
        case GemvFormat::q4_1:
        case GemvFormat::q5_0:
        case GemvFormat::q5_1:
        case GemvFormat::iq4_nl:
        case GemvFormat::iq4_xs:
        case GemvFormat::mxfp4_gguf:
        case GemvFormat::kbit2:
        case GemvFormat::kbit3:
        case GemvFormat::kbit4:
        case GemvFormat::kbit5:
            return ColumnOrder::halves_of_32;
        case GemvFormat::nvfp4_gguf:
            return ColumnOrder::halves_of_16;
        case GemvFormat::mxfp4:
        case GemvFormat::nvfp4:
        case GemvFormat::int4:
            return ColumnOrder::even_odd;
        case GemvFormat::q4_k:
        case GemvFormat::q5_k:
            return ColumnOrder::nibble_rows;
        case GemvFormat::q6_k:
            return ColumnOrder::split_halves;
        case GemvFormat::q2_k:
        case GemvFormat::q3_k:
            return ColumnOrder::two_bit_rows;
        default:
            return ColumnOrder::natural;
    }
}

int64_t padded_columns(int64_t columns) {
    return (columns + quantized_step - 1) / quantized_step * quantized_step;
}

GemvFormat gemv_format_of(const moe_format& format) {
    return find_format(format) ? known_format(format) : GemvFormat::none;
}

Quantization quantization_for(const GemvFamily& family, GemvFormat format, moe_type activation_type,
                              bool to_int8, bool for_panels) {
    Quantization how;
    const bool has_int8 = family.kernels(GemvFormat::q8_0, 1);
    const int32_t parts = to_int8 && has_int8 ? 1 : activation_type == MOE_TYPE_F32 ? 3 : 2;
    if (family.kernels(format, parts)) how = {parts, bit_of(order_of(format))};
    if (!for_panels) return how;
    const auto form = [&](bool has_bf16) {
        return gemm_kernels(family, format, {how.parts, how.orders, has_bf16}).rows;
    };
    if (form(false) == RowForm::integers) how.orders |= bit_of(ColumnOrder::natural);
    how.has_bf16 = activation_type == MOE_TYPE_BF16 && form(true) == RowForm::bf16;
    return how;
}

bool describe_gemv_weights(const Matrix& matrix, GemvFormat format, GemvWeights& out) {
    if (format == GemvFormat::none || matrix.column_stride || matrix.scale_column_phase)
        return false;
    const moe_format& source = matrix.format;
    out = {matrix.data,
           matrix.scales,
           matrix.row_stride,
           matrix.scale_row_stride,
           matrix.columns,
           source.group_rows > 0 ? source.group_rows : group_extent(source.group_rows),
           matrix.scale_row_phase,
           source.group_columns > 0 ? std::countr_zero(static_cast<uint32_t>(source.group_columns))
                                    : 40,
           source.scale_type,
           global_scale_of(matrix),
           source.codebook == MOE_CODEBOOK_GIVEN ? matrix.codebook : builtin_codebook(source),
           grid_of(format),
           0,
           0,
           0,
           column_orders.place[static_cast<int>(order_of(format))]};
    if (out.scale_rows < 1) out.scale_rows = 1;
    return format != GemvFormat::int4 || move_to_part(matrix, out);
}

bool reads(const GemvFamily& family, GemvFormat format) {
    return family.kernels(format, 0) || family.kernels(format, 2);
}

GemmKernels gemm_kernels(const GemvFamily& family, GemvFormat format, const Quantization& rows) {
    return family.gemm ? family.gemm(format, rows) : GemmKernels{};
}

int64_t untiled_row_bytes(const Matrix& matrix) {
    return matrix.columns / matrix.format.group_columns;
}

void copy_untiled_scales(const Matrix& matrix, int64_t first, int64_t last, std::byte* out) {
    const int64_t n = untiled_row_bytes(matrix);
    for (int64_t row = first; row < last; ++row) {
        const RowScales scales = row_scales(matrix, row, 0);
        for (int64_t i = 0; i < n; ++i) *out++ = *scales.at(i);
    }
}

int64_t quantized_row_bytes(int64_t columns, const Quantization& how) {
    return offset_of_bf16(columns, how) + (how.has_bf16 ? 2 * padded_columns(columns) : 0);
}

int64_t offset_of_bf16(int64_t columns, const Quantization& how) {
    const int64_t padded = padded_columns(columns);
    const int64_t scales_and_sums = padded / 16 * 2 * static_cast<int64_t>(sizeof(float));
    return how.parts ? scales_and_sums + padded * how.parts * std::popcount(how.orders) : 0;
}

int64_t offset_of_order(int64_t columns, const Quantization& how, ColumnOrder order) {
    const uint32_t before = how.orders & (bit_of(order) - 1);
    return padded_columns(columns) * how.parts * std::popcount(before);
}

}  // namespace moe::cpu
