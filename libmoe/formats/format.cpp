// The table of all formats, the look-ups in it, sizes and names.
#include "libmoe/formats/format.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "libmoe/base/checked.hpp"
#include "libmoe/formats/entries.hpp"

namespace moe {
namespace {

// Formats with a public name come first, in the order of moe.h.
constexpr size_t named_count = 32;
constexpr size_t format_count = 70;
using Table = std::array<FormatTraits, format_count>;

Table make_table() {
    Table table{};
    auto next = std::copy(dense_formats.begin(), dense_formats.end(), table.begin());
    *next++ = fp8_128x128_format;
    *next++ = nvfp4_format;
    *next++ = mxfp4_format;
    next = std::copy(kbit_formats.begin(), kbit_formats.end(), next);
    *next++ = q8_0_format;
    *next++ = q4_k_format;
    *next++ = mxfp4_gguf_format;
    *next++ = q4_0_format;
    *next++ = q4_1_format;
    *next++ = q5_0_format;
    *next++ = q5_1_format;
    *next++ = q2_k_format;
    *next++ = q3_k_format;
    *next++ = q5_k_format;
    *next++ = q6_k_format;
    *next++ = iq4_nl_format;
    *next++ = iq4_xs_format;
    *next++ = nvfp4_gguf_format;
    *next++ = iq2_xxs_format;
    *next++ = iq2_xs_format;
    *next++ = iq3_xxs_format;
    *next++ = iq3_s_format;
    next = std::copy(kbit_given_formats.begin(), kbit_given_formats.end(), next);
    *next++ = fp8_128x128_e8m0_format;
    *next++ = nvfp4_divide_format;
    *next++ = nvfp4_gguf_alone_format;
    next = std::copy(nvfp4_pre_quant_formats.begin(), nvfp4_pre_quant_formats.end(), next);
    next = std::copy(fp8_grid_formats.begin(), fp8_grid_formats.end(), next);
    *next++ = int8_grid_format;
    next = std::copy(nibble_grid_formats.begin(), nibble_grid_formats.end(), next);
    next = std::copy(e5m2_formats.begin(), e5m2_formats.end(), next);
    *next++ = gptq_format;
    *next++ = awq_format;
    next = std::copy(pack_quantized_formats.begin(), pack_quantized_formats.end(), next);
    *next++ = affine_format;
    next = std::copy(bnb_4bit_formats.begin(), bnb_4bit_formats.end(), next);
    return table;
}

const Table& table() {
    static const Table formats = make_table();
    return formats;
}

const char* packing_name(moe_packing packing) {
    switch (packing) {
        case MOE_PACKING_DENSE:
            return "dense";
        case MOE_PACKING_NIBBLE_LOW_FIRST:
            return "nibble_low_first";
        case MOE_PACKING_NIBBLE_HIGH_FIRST:
            return "nibble_high_first";
        case MOE_PACKING_BIT_PLANES:
            return "bit_planes";
        case MOE_PACKING_BIT_STREAM:
            return "bit_stream";
        case MOE_PACKING_GPTQ:
            return "gptq";
        case MOE_PACKING_AWQ:
            return "awq";
        default:
            return "unknown";
    }
}

// Ends the text in the buffer, cut to fit.
template <class... Args>
void append(FormatName& name, fmt::format_string<Args...> format, Args&&... args) {
    const size_t used = std::strlen(name.text);
    const size_t capacity = sizeof name.text - 1 - used;
    *fmt::format_to_n(name.text + used, capacity, format, std::forward<Args>(args)...).out = '\0';
}

void append_groups(const moe_format& format, FormatName& name) {
    const auto size = [](int32_t group) { return group == -1 ? "all" : fmt::format("{}", group); };
    append(name, " {}x{}", size(format.group_rows), size(format.group_columns));
}

const char* zero_point_name(moe_zero_point zero_point) {
    switch (zero_point) {
        case MOE_ZERO_POINT_PACKED:
            return " zeros";
        case MOE_ZERO_POINT_PACKED_MINUS_ONE:
            return " zeros-1";
        case MOE_ZERO_POINT_FLOAT:
            return " biases (MLX affine)";
        default:
            return "";
    }
}

// ggml's names of the blocks that are described and not read.
const char* unread_block_name(int32_t id) {
    switch (id) {
        case 9:
            return " (q8_1)";
        case 15:
            return " (q8_k)";
        case 19:
            return " (iq1_s)";
        case 22:
            return " (iq2_s)";
        case 29:
            return " (iq1_m)";
        case 34:
            return " (tq1_0)";
        case 35:
            return " (tq2_0)";
        default:
            return "";
    }
}

void describe(const moe_format& format, FormatName& name) {
    if (format.type == MOE_TYPE_GGUF)
        return append(name, "gguf type {}{}", format.block_id, unread_block_name(format.block_id));
    append(name, "{}", type_name(format.type));
    if (format.bits) append(name, "{}", format.bits);
    if (format.packing != MOE_PACKING_DENSE) append(name, " {}", packing_name(format.packing));
    if (format.codebook == MOE_CODEBOOK_BNB_NF4) append(name, " nf4");
    if (format.codebook == MOE_CODEBOOK_BNB_FP4) append(name, " fp4");
    if (format.scale_type != MOE_TYPE_NONE) {
        append_groups(format, name);
        append(name, " {}", type_name(format.scale_type));
    }
    append(name, "{}", zero_point_name(format.zero_point));
    if (format.global_scale == MOE_GLOBAL_SCALE_DIVIDE) append(name, " divide");
    if (format.act_order) append(name, " act_order");
    if (format.nested_scales) append(name, " nested");
    if (format.pre_quant_scale) append(name, " pre_quant_scale");
}

}  // namespace

std::span<const FormatTraits> all_formats() {
    return std::span(table()).first(named_count);
}

bool same_format(const moe_format& a, const moe_format& b) {
    return a.type == b.type && a.bits == b.bits && a.group_rows == b.group_rows &&
           a.group_columns == b.group_columns && a.scale_type == b.scale_type &&
           a.global_scale == b.global_scale && a.zero_point == b.zero_point &&
           a.packing == b.packing && a.codebook == b.codebook && a.block_id == b.block_id &&
           a.act_order == b.act_order && a.nested_scales == b.nested_scales &&
           a.pre_quant_scale == b.pre_quant_scale;
}

const FormatTraits* find_format(const moe_format& format) {
    for (const FormatTraits& traits : table()) {
        const bool fits =
            traits.accepts ? traits.accepts(format) : same_format(traits.format, format);
        if (fits) return &traits;
    }
    return nullptr;
}

const FormatTraits* find_format(const char* name) {
    for (const FormatTraits& traits : all_formats()) {
        if (std::strcmp(traits.name, name) == 0) return &traits;
    }
    return nullptr;
}

const FormatTraits& get_format(const moe_format& format, const char* what) {
    const FormatTraits* traits = find_format(format);
    if (!traits) {
        fail(MOE_ERROR_UNSUPPORTED, "{}: the format {} is not supported by this version", what,
             format_name(format).text);
    }
    return *traits;
}

FormatName format_name(const moe_format& format) {
    FormatName name{};
    const FormatTraits* traits = find_format(format);
    if (traits && !traits->accepts) {
        append(name, "{}", traits->name);
    } else {
        describe(format, name);
    }
    return name;
}

int32_t element_bytes(moe_type type) {
    switch (type) {
        case MOE_TYPE_F64:
        case MOE_TYPE_I64:
            return 8;
        case MOE_TYPE_F32:
        case MOE_TYPE_I32:
            return 4;
        case MOE_TYPE_F16:
        case MOE_TYPE_BF16:
            return 2;
        case MOE_TYPE_I8:
        case MOE_TYPE_U8:
        case MOE_TYPE_F8_E4M3:
        case MOE_TYPE_F8_E5M2:
        case MOE_TYPE_F8_E8M0:
        case MOE_TYPE_F8_E4M4:
            return 1;
        default:
            return 0;
    }
}

bool is_plain(const moe_format& format) {
    const bool float_type =
        format.type == MOE_TYPE_F32 || format.type == MOE_TYPE_F16 || format.type == MOE_TYPE_BF16;
    return float_type && format.scale_type == MOE_TYPE_NONE;
}

bool may_be_transposed(const moe_format& format) {
    return is_plain(format) || format.type == MOE_TYPE_F8_E4M3 || format.type == MOE_TYPE_F8_E5M2 ||
           format.type == MOE_TYPE_I8;
}

const char* type_name(moe_type type) {
    switch (type) {
        case MOE_TYPE_NONE:
            return "none";
        case MOE_TYPE_F32:
            return "f32";
        case MOE_TYPE_F16:
            return "f16";
        case MOE_TYPE_BF16:
            return "bf16";
        case MOE_TYPE_F64:
            return "f64";
        case MOE_TYPE_I8:
            return "i8";
        case MOE_TYPE_U8:
            return "u8";
        case MOE_TYPE_I32:
            return "i32";
        case MOE_TYPE_I64:
            return "i64";
        case MOE_TYPE_F8_E4M3:
            return "f8_e4m3";
        case MOE_TYPE_F8_E5M2:
            return "f8_e5m2";
        case MOE_TYPE_F8_E8M0:
            return "f8_e8m0";
        case MOE_TYPE_F8_E4M4:
            return "f8_e4m4";
        case MOE_TYPE_E2M1:
            return "e2m1";
        case MOE_TYPE_INT:
            return "int";
        case MOE_TYPE_CODEBOOK:
            return "codebook";
        case MOE_TYPE_GGUF:
            return "gguf";
        default:
            return "unknown";
    }
}

MatrixBytes matrix_bytes(const FormatTraits& traits, const moe_format& format, int64_t rows,
                         int64_t columns) {
    require(rows > 0, "rows is {}, must be positive", rows);
    require(columns > 0, "columns is {}, must be positive", columns);
    require(columns % traits.block_columns == 0, "columns is {}, must be a multiple of {} for {}",
            columns, traits.block_columns, traits.name);
    if (traits.unsliceable_bytes) return traits.unsliceable_bytes(format, rows, columns);
    const auto groups = [](int64_t count, int32_t group) {
        return uint64_t((count - 1) / group_extent(group) + 1);
    };
    MatrixBytes bytes{};
    bytes.row_stride = checked_multiply(uint64_t(columns / traits.block_columns),
                                        uint64_t(traits.block_bytes), "bytes of a row");
    bytes.data = checked_multiply(bytes.row_stride, uint64_t(rows), "bytes of a matrix");
    if (traits.scale_bytes) {
        bytes.scale_row_stride = checked_multiply(groups(columns, format.group_columns),
                                                  uint64_t(traits.scale_bytes), "scales of a row");
        bytes.scales =
            checked_multiply(bytes.scale_row_stride, groups(rows, format.group_rows), "scales");
    }
    // Offsets inside a matrix are signed.
    require(bytes.data <= INT64_MAX && bytes.scales <= INT64_MAX,
            "a matrix of {} x {} {} weights is too large", rows, columns, traits.name);
    return bytes;
}

const float* builtin_codebook(const moe_format& format) {
    if (format.type == MOE_TYPE_E2M1) return e2m1_codebook();
    if (format.type != MOE_TYPE_CODEBOOK) return nullptr;
    if (format.codebook == MOE_CODEBOOK_NORMAL_FLOAT) return normal_float_codebook(format.bits);
    return bnb_codebook(format.codebook);
}

}  // namespace moe
