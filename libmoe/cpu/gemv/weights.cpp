// Formats and matrices for the gemv kernels.
#include "libmoe/cpu/gemv/weights.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <span>

#include "libmoe/base/iq_grids.hpp"
#include "libmoe/formats/block.hpp"
#include "libmoe/formats/int_codes.hpp"
#include "libmoe/formats/interleaved.hpp"

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

GemvFormat pack_format(const moe_format& format) {
    if (format.bits == 4)
        return format.zero_point == MOE_ZERO_POINT_MIDDLE ? GemvFormat::int4 : GemvFormat::pack4;
    return format.bits == 8 ? GemvFormat::pack8 : GemvFormat::pack;
}

GemvFormat gptq_format(int32_t bits) {
    switch (bits) {
        case 2:
            return GemvFormat::gptq2;
        case 3:
            return GemvFormat::gptq3;
        case 4:
            return GemvFormat::gptq4;
        case 8:
            return GemvFormat::gptq8;
        default:
            return GemvFormat::none;
    }
}

GemvFormat act_order_format(const moe_format& format) {
    using enum GemvFormat;
    const bool is_gptq = format.packing == MOE_PACKING_GPTQ;
    switch (format.bits) {
        case 2:
            return is_gptq ? gptq2_act_order : pack2_act_order;
        case 3:
            return is_gptq ? gptq3_act_order : none;
        case 4:
            return is_gptq ? gptq4_act_order : pack4_act_order;
        case 8:
            return is_gptq ? gptq8_act_order : pack8_act_order;
        default:
            return none;  // codes straddle words anywhere
    }
}

GemvFormat int_format(const moe_format& format) {
    if (format.act_order) return act_order_format(format);
    if (!is_grid_group(format.group_columns)) return GemvFormat::none;
    switch (format.packing) {
        case MOE_PACKING_BIT_STREAM:
            return pack_format(format);
        case MOE_PACKING_GPTQ:
            return gptq_format(format.bits);
        case MOE_PACKING_AWQ:
            return GemvFormat::awq;
        case MOE_PACKING_NIBBLE_LOW_FIRST:
            return GemvFormat::int4_nibbles;
        default:
            return GemvFormat::none;
    }
}

GemvFormat e2m1_format(const moe_format& format) {
    if (format.scale_type == MOE_TYPE_F8_E8M0 && format.group_columns == 32)
        return GemvFormat::mxfp4;
    if (format.scale_type == MOE_TYPE_F8_E4M3)
        return format.group_columns == 16 ? GemvFormat::nvfp4 : GemvFormat::none;
    return is_grid_group(format.group_columns) ? GemvFormat::fp4_grid : GemvFormat::none;
}

GemvFormat kbit_format(const moe_format& format) {
    constexpr GemvFormat by_bits[2][4] = {
        {GemvFormat::kbit2, GemvFormat::kbit3, GemvFormat::kbit4, GemvFormat::kbit5},
        {GemvFormat::kbit2_given, GemvFormat::kbit3_given, GemvFormat::kbit4_given,
         GemvFormat::kbit5_given}};
    if (format.packing == MOE_PACKING_NIBBLE_HIGH_FIRST)
        return is_grid_group(format.group_columns) ? GemvFormat::bnb4 : GemvFormat::none;
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

GemvFormat interleaved_format(GemvFormat format) {
    switch (format) {
        case GemvFormat::q4_0:
            return GemvFormat::q4_0_x16;
        case GemvFormat::q4_1:
            return GemvFormat::q4_1_x16;
        case GemvFormat::q8_0:
            return GemvFormat::q8_0_x16;
        case GemvFormat::q4_k:
            return GemvFormat::q4_k_x16;
        case GemvFormat::q5_k:
            return GemvFormat::q5_k_x16;
        case GemvFormat::q6_k:
            return GemvFormat::q6_k_x16;
        case GemvFormat::iq4_nl:
            return GemvFormat::iq4_nl_x16;
        case GemvFormat::iq4_xs:
            return GemvFormat::iq4_xs_x16;
        case GemvFormat::mxfp4_gguf:
            return GemvFormat::mxfp4_gguf_x16;
        case GemvFormat::nvfp4_gguf:
            return GemvFormat::nvfp4_gguf_x16;
        case GemvFormat::mxfp4:
            return GemvFormat::mxfp4_x16;
        case GemvFormat::nvfp4:
            return GemvFormat::nvfp4_x16;
        default:
            return GemvFormat::none;
    }
}

struct Grid {
    const void* bytes;    // entries with a byte for each magnitude
    const void* entries;  // of two bytes
};

template <class Bytes, int n, int bits, uint32_t (*entry)(uint32_t), int32_t (*magnitude)(uint32_t)>
Grid make_grid() {
    struct Tables {
        alignas(64) std::array<uint16_t, n> entries;
        std::array<Bytes, n> bytes;
    };
    static const Tables grid = [] {
        Tables tables{};
        for (uint32_t i = 0; i < n; ++i) {
            tables.entries[i] = static_cast<uint16_t>(entry(i));
            for (uint32_t j = 0; j < sizeof(Bytes); ++j)
                tables.bytes[i] |=
                    static_cast<Bytes>(magnitude(entry(i) >> bits * j & ((1u << bits) - 1)))
                    << 8 * j;
        }
        return tables;
    }();
    return {grid.bytes.data(), grid.entries.data()};
}

Grid grid_of(GemvFormat format) {
    switch (format) {
        case GemvFormat::iq2_xxs:
            return make_grid<uint64_t, 256, 2, iq2_xxs_entry, iq2_magnitude>();
        case GemvFormat::iq2_xs:
            return make_grid<uint64_t, 512, 2, iq2_xs_entry, iq2_magnitude>();
        case GemvFormat::iq3_xxs:
            return make_grid<uint32_t, 256, 4, iq3_xxs_entry, iq3_xxs_magnitude>();
        case GemvFormat::iq3_s:
            return make_grid<uint32_t, 512, 4, iq3_s_entry, iq3_s_magnitude>();
        default:
            return {};
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

// Columns from the begin of a group, or of the scales of a row, to column 0 of a matrix.
int64_t column_phase_of(const Matrix& matrix) {
    const int64_t begin = matrix.column_begin + matrix.scale_column_phase;
    const bool in_order = matrix.format.group_columns > 0 && !matrix.format.act_order;
    return in_order ? begin % matrix.format.group_columns : 0;
}

// The part of pack_quantized or affine. Eight columns are whole bytes.
bool move_to_packed_part(const Matrix& matrix, GemvWeights& out) {
    const moe_format& format = matrix.format;
    const int64_t group = group_extent(format.group_columns);
    if (matrix.column_begin % 8) return false;
    const int64_t scale_row = format.group_rows == 1 ? matrix.row_begin : 0;
    const int64_t first_scale = scale_row * matrix.scale_row_stride +
                                matrix.column_begin / group * element_bytes(format.scale_type);
    out.data += matrix.row_begin * matrix.row_stride + matrix.column_begin / 8 * format.bits;
    out.scales += first_scale;
    if (format.zero_point == MOE_ZERO_POINT_MIDDLE) return true;
    if (format.zero_point == MOE_ZERO_POINT_FLOAT) {
        out.biases = matrix.zero_points + first_scale;
        return true;
    }
    out.zeros = matrix.zero_points + matrix.column_begin / group * 4;
    out.zero_stride = column_groups(format, matrix.whole_columns) * 4;
    out.zero_row = matrix.row_begin;
    return true;
}

// The part of gptq or awq. Eight rows are whole bytes of zero points, and 32 columns whole words.
bool move_to_transposed_part(const Matrix& matrix, GemvWeights& out) {
    const moe_format& format = matrix.format;
    const bool is_gptq = format.packing == MOE_PACKING_GPTQ;
    if (matrix.column_begin % 32 || matrix.row_begin % 8 || matrix.columns % 32) return false;
    const int64_t group = matrix.column_begin / group_extent(format.group_columns);
    const int64_t row_of_words =
        is_gptq ? matrix.column_begin / 32 * format.bits : matrix.column_begin;
    out.data +=
        row_of_words * matrix.row_stride + (is_gptq ? 4 * matrix.row_begin : matrix.row_begin / 2);
    out.scales +=
        group * matrix.scale_row_stride + matrix.row_begin * element_bytes(format.scale_type);
    out.zero_stride = matrix.whole_rows * format.bits / 32 * 4;
    out.zeros = matrix.zero_points + group * out.zero_stride + matrix.row_begin / 8 * format.bits;
    out.zero_added = format.zero_point == MOE_ZERO_POINT_PACKED_MINUS_ONE;
    return true;
}

// The part of a matrix with act-order. Any group may have columns in it.
bool move_to_act_order_part(const Matrix& matrix, GemvWeights& out) {
    const moe_format& format = matrix.format;
    out.column_groups = matrix.permutation + matrix.column_begin;
    out.n_groups = column_groups(format, matrix.whole_columns);
    const int64_t first_bit = matrix.column_begin * format.bits;
    if (format.packing == MOE_PACKING_GPTQ) {
        const int64_t step = format.bits == 3 ? 32 : 32 / format.bits;  // codes in whole words
        if (matrix.column_begin % step || matrix.row_begin % 8 || matrix.columns % step)
            return false;
        out.data += first_bit / 32 * matrix.row_stride + 4 * matrix.row_begin;
        out.scales += matrix.row_begin * element_bytes(format.scale_type);
        out.zero_stride = matrix.whole_rows * format.bits / 32 * 4;
        out.zeros = matrix.zero_points + matrix.row_begin / 8 * format.bits;
        out.zero_added = format.zero_point == MOE_ZERO_POINT_PACKED_MINUS_ONE;
        return true;
    }
    if (matrix.column_begin % 32) return false;
    out.data += matrix.row_begin * matrix.row_stride + first_bit / 8;
    if (format.group_rows == 1) out.scales += matrix.row_begin * matrix.scale_row_stride;
    if (format.zero_point == MOE_ZERO_POINT_MIDDLE) return true;
    out.zeros = matrix.zero_points;
    out.zero_stride = out.n_groups * 4;
    out.zero_row = matrix.row_begin;
    return true;
}

// The part of bnb4, whose groups go on from row to row.
bool move_to_flat_part(const Matrix& matrix, GemvWeights& out) {
    const int64_t group = matrix.format.group_columns;
    const int64_t begin = matrix.row_begin * matrix.whole_columns + matrix.column_begin;
    if (matrix.whole_columns % 32 || matrix.column_begin % 32) return false;
    out.row_stride = matrix.whole_columns / 2;
    out.group_row_step = matrix.whole_columns;
    out.data += begin / 2;
    out.scales += begin / group * matrix.traits->scale_bytes;
    out.column_phase = begin % group;
    return true;
}

// Moves to the part that the view is of a matrix that is not sliceable. False where this begins
// amid bytes.
bool move_to_part(const Matrix& matrix, GemvFormat format, GemvWeights& out) {
    switch (format) {
        case GemvFormat::int4:
        case GemvFormat::pack4:
        case GemvFormat::pack8:
        case GemvFormat::pack:
            return move_to_packed_part(matrix, out);
        case GemvFormat::gptq2:
        case GemvFormat::gptq3:
        case GemvFormat::gptq4:
        case GemvFormat::gptq8:
        case GemvFormat::awq:
            return move_to_transposed_part(matrix, out);
        case GemvFormat::gptq2_act_order:
        case GemvFormat::gptq3_act_order:
        case GemvFormat::gptq4_act_order:
        case GemvFormat::gptq8_act_order:
        case GemvFormat::pack2_act_order:
        case GemvFormat::pack4_act_order:
        case GemvFormat::pack8_act_order:
            return move_to_act_order_part(matrix, out);
        case GemvFormat::bnb4:
            return move_to_flat_part(matrix, out);
        default:
            return true;
    }
}

bool has_row_stride(const moe_format& format) {
    return format.packing != MOE_PACKING_GPTQ && format.packing != MOE_PACKING_AWQ &&
           format.packing != MOE_PACKING_NIBBLE_HIGH_FIRST;
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
        case GemvFormat::iq2_xxs:
        case GemvFormat::iq2_xs:
        case GemvFormat::iq3_xxs:
        case GemvFormat::iq3_s:
            return ColumnOrder::halves_of_16;
        case GemvFormat::mxfp4:
        case GemvFormat::nvfp4:
        case GemvFormat::mxfp4_x16:
        case GemvFormat::nvfp4_x16:
        case GemvFormat::int4:
        case GemvFormat::int4_nibbles:
        case GemvFormat::fp4_grid:
        case GemvFormat::pack4:
        case GemvFormat::gptq4:
        case GemvFormat::bnb4:
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

// AVX-512 looks up integers of two bytes for these.
bool has_integer_codebook(GemvFormat format) {
    return format >= GemvFormat::kbit2 && format <= GemvFormat::kbit5;
}

GemvFormat gemv_format_of(const moe_format& format, bool interleaved) {
    if (!find_format(format)) return GemvFormat::none;
    const GemvFormat found = known_format(format);
    return interleaved && interleaving_of(format) ? interleaved_format(found) : found;
}

Quantization quantization_for(const GemvFamily& family, GemvFormat format, const RowUse& use) {
    Quantization how;
    const bool has_int8 = family.kernels(GemvFormat::q8_0, 1);
    const int32_t parts = use.to_int8 && has_int8 ? 1 : use.type == MOE_TYPE_F32 ? 3 : 2;
    if (family.kernels(format, parts)) how = {parts, bit_of(order_of(format))};
    how.has_computed = use.is_computed || use.beside_computed;
    how.has_low_sums = how.parts == 2 && has_integer_codebook(format);
    if (family.of_bf16 && family.of_bf16(format, false) && use.has_avx512bf16) {
        how.has_bf16 = use.type == MOE_TYPE_BF16;
        how.has_bf16_pair =
            use.type == MOE_TYPE_F16 || (use.is_computed && use.type == MOE_TYPE_BF16);
    }
    if (!use.for_panels) return how;
    // Panels may take integers where the gemv takes float32 rows.
    if (gemm_kernels(family, format, {parts, 0, false, true}).rows == RowForm::words)
        return {parts, how.orders, false, true};
    const auto form = [&](bool has_bf16, bool for_all) {
        const Quantization rows{.parts = how.parts,
                                .orders = how.orders,
                                .has_bf16 = has_bf16,
                                .bf16_for_all = for_all,
                                .has_computed = how.has_computed};
        return gemm_kernels(family, format, rows).rows;
    };
    // Rows would lose more as bytes than as bfloat16, which the tiles of AMX take faster.
    const bool is_exact = use.type == MOE_TYPE_BF16;
    const bool for_all = family.takes_tiles && ((is_exact && !use.beside_computed) || use.to_int8);
    if ((is_exact || for_all) && use.has_avx512bf16 && form(true, for_all) == RowForm::bf16) {
        how.has_bf16 = true;
        how.rounds_to_bf16 = !is_exact;
        how.bf16_for_all = for_all;
    } else if (form(false, false) == RowForm::integers) {
        how.orders |= bit_of(ColumnOrder::natural);
    }
    return how;
}

Quantization merged(const Quantization& a, const Quantization& b) {
    return {.parts = std::max(a.parts, b.parts),
            .orders = a.orders | b.orders,
            .has_bf16 = a.has_bf16 || b.has_bf16,
            .has_words = a.has_words || b.has_words,
            .has_bf16_pair = a.has_bf16_pair || b.has_bf16_pair,
            .rounds_to_bf16 = a.rounds_to_bf16 || b.rounds_to_bf16,
            .bf16_for_all = a.bf16_for_all || b.bf16_for_all,
            .has_low_sums = a.has_low_sums || b.has_low_sums,
            .has_computed = a.has_computed || b.has_computed};
}

GemvFormat gemv_format_of(const Matrix& matrix) {
    // A matrix with traits is of a format that the library knows: tasks do not look it up again.
    const GemvFormat format = matrix.traits ? known_format(matrix.format) : GemvFormat::none;
    if (matrix.interleaving) return interleaved_format(format);
    if (!matrix.column_stride) return format;
    const bool rows_touch = matrix.row_stride == element_bytes(matrix.format.type);
    switch (rows_touch ? format : GemvFormat::none) {
        case GemvFormat::f32:
            return GemvFormat::f32_transposed;
        case GemvFormat::f16:
            return GemvFormat::f16_transposed;
        case GemvFormat::bf16:
            return GemvFormat::bf16_transposed;
        default:
            return GemvFormat::none;
    }
}

bool describe_gemv_weights(const Matrix& matrix, GemvFormat format, GemvWeights& out) {
    if (format == GemvFormat::none) return false;
    const moe_format& source = matrix.format;
    out = {};
    out.data = matrix.data;
    out.scales = matrix.scales;
    out.row_stride = matrix.column_stride ? matrix.column_stride : matrix.row_stride;
    out.scale_row_stride = matrix.scale_row_stride;
    out.columns = matrix.columns;
    out.scale_rows = source.group_rows > 0 ? source.group_rows
                                           : std::max<int64_t>(group_extent(source.group_rows), 1);
    out.scale_phase = matrix.scale_row_phase;
    out.scale_shift = source.group_columns > 0
                          ? std::countr_zero(static_cast<uint32_t>(source.group_columns))
                          : 40;
    out.scale_type = source.scale_type;
    out.global_scale = global_scale_of(matrix);
    out.codebook =
        source.codebook == MOE_CODEBOOK_GIVEN ? matrix.codebook : builtin_codebook(source);
    const Grid grid = grid_of(format);
    out.grid = grid.bytes;
    out.grid_entries = grid.entries;
    out.bits = source.bits;
    out.rows = matrix.rows;
    out.column_phase = column_phase_of(matrix);
    out.ordered = column_orders.column[static_cast<int>(order_of(format))];
    return out.column_phase % 32 == 0 && move_to_part(matrix, format, out);
}

bool rows_are_contiguous(const Matrix& matrix) {
    return has_row_stride(matrix.format) && !matrix.column_stride && !matrix.interleaving;
}

int64_t row_bytes(const Matrix& matrix) {
    const moe_format& format = matrix.format;
    if (!has_row_stride(format)) return std::max<int64_t>(matrix.columns * format.bits / 8, 1);
    return matrix.column_stride ? matrix.columns * element_bytes(format.type) : matrix.row_stride;
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

int64_t copy_nested_scales(const Matrix& matrix, int64_t row, float* out) {
    const int64_t group = matrix.format.group_columns;
    const int64_t element = (matrix.row_begin + row) * matrix.whole_columns + matrix.column_begin;
    const int64_t phase = element % group;
    const int64_t count = (phase + matrix.columns - 1) / group + 1;
    for (int64_t i = 0; i < count; ++i) out[i] = nested_scale(matrix, element / group + i);
    return phase;
}

int64_t quantized_row_bytes(int64_t columns, const Quantization& how) {
    // Rows begin at lines of the cache, but do not meet in its sets.
    constexpr int64_t line = 64, set_distance = 4096;
    const int64_t low_sums = (padded_columns(columns) / 32 * 4 + line - 1) / line * line;
    const int64_t bytes = offset_of_low_sums(columns, how) + (how.has_low_sums ? low_sums : 0);
    return bytes % set_distance || !bytes ? bytes : bytes + line;
}

int64_t offset_of_low_sums(int64_t columns, const Quantization& how) {
    const int64_t bf16_rows = how.has_bf16_pair ? 2 : how.has_bf16 ? 1 : 0;
    return offset_of_bf16(columns, how) + bf16_rows * 2 * padded_columns(columns);
}

int64_t offset_of_words(int64_t columns, const Quantization& how) {
    return padded_columns(columns) * how.parts * std::popcount(how.orders);
}

int64_t offset_of_bf16(int64_t columns, const Quantization& how) {
    if (!how.parts) return 0;
    const int64_t padded = padded_columns(columns);
    const int64_t scales_and_sums =
        3 * numbers_of_row(columns) * static_cast<int64_t>(sizeof(float));
    const int64_t words = how.has_words ? padded * 2 * (how.parts - 1) : 0;
    return scales_and_sums + offset_of_words(columns, how) + words;
}

int64_t offset_of_order(int64_t columns, const Quantization& how, ColumnOrder order) {
    const uint32_t before = how.orders & (bit_of(order) - 1);
    return padded_columns(columns) * how.parts * std::popcount(before);
}

}  // namespace moe::cpu
