// moe_format_*, moe_quantize, moe_dequantize, moe_scale_layout_size, moe_convert_scales.
#include "libmoe/formats/format.hpp"

#include "libmoe/api/guard.hpp"
#include "libmoe/api/structs.hpp"
#include "libmoe/formats/scale_tiles.hpp"
#include "libmoe/layer/layer.hpp"
#include "libmoe/weights/view.hpp"

namespace moe {
namespace {

moe_format_info info_of(const moe_format& format) {
    moe_format_info info{};
    info.struct_size = sizeof info;
    const FormatName name = format_name(format);
    static_assert(sizeof name.text == sizeof info.name);
    std::memcpy(info.name, name.text, sizeof info.name);
    const FormatTraits* traits = find_format(format);
    if (!traits) return info;
    info.block_rows = traits->block_rows;
    info.block_columns = traits->block_columns;
    info.has_decode = traits->decode != nullptr;
    info.has_encode = traits->encode != nullptr;
    info.bits_per_weight = 8.0 * traits->block_bytes / traits->block_columns;
    if (traits->unsliceable_bytes) info.bits_per_weight = format.bits;
    if (traits->scale_bytes && format.group_rows > 0 && format.group_columns > 0)
        info.bits_per_weight +=
            8.0 * element_bytes(format.scale_type) / format.group_rows / format.group_columns;
    if (format.zero_point == MOE_ZERO_POINT_FLOAT && format.group_columns > 0)
        info.bits_per_weight += 8.0 * element_bytes(format.scale_type) / format.group_columns;
    const bool has_zeros = format.zero_point == MOE_ZERO_POINT_PACKED ||
                           format.zero_point == MOE_ZERO_POINT_PACKED_MINUS_ONE;
    if (has_zeros && format.group_columns > 0)
        info.bits_per_weight += 1.0 * format.bits / format.group_columns;
    return info;
}

// A buffer and its size, by the names of both fields.
void check_buffer(const void* buffer, const char* name, uint64_t bytes, const char* bytes_name,
                  uint64_t needed) {
    require(buffer != nullptr || needed == 0, "{} is NULL, {} bytes are needed", name, needed);
    require(bytes >= needed, "{} is {}, {} are needed", bytes_name, bytes, needed);
}

const float* codebook_of(const moe_quantize_args& args, const FormatTraits& traits) {
    if (traits.format.type != MOE_TYPE_CODEBOOK) return nullptr;
    if (const float* builtin = builtin_codebook(traits.format)) return builtin;
    require(args.codebook != nullptr, "codebook is NULL, {} needs one", traits.name);
    return args.codebook;
}

uint64_t checked_scale_bytes(moe_scale_layout layout, const char* name, int64_t rows,
                             int64_t columns) {
    require(rows > 0, "rows is {}, must be positive", rows);
    require(columns > 0, "columns is {}, must be positive", columns);
    require(layout == MOE_SCALE_LAYOUT_LINEAR || layout == MOE_SCALE_LAYOUT_TILED_128X4,
            "{} is {}, not a moe_scale_layout", name, static_cast<int32_t>(layout));
    return scale_layout_bytes(layout, rows, columns);
}

bool overlap(const std::byte* a, uint64_t a_bytes, const std::byte* b, uint64_t b_bytes) {
    const auto begin_a = reinterpret_cast<uintptr_t>(a), begin_b = reinterpret_cast<uintptr_t>(b);
    return begin_a < begin_b ? begin_b - begin_a < a_bytes : begin_a - begin_b < b_bytes;
}

}  // namespace
}  // namespace moe

using namespace moe;

const char* moe_role_name(moe_role role) noexcept {
    return role_name(role);
}

const char* moe_type_name(moe_type type) noexcept {
    return type_name(type);
}

const char* moe_format_name_at(uint32_t index) noexcept {
    const auto formats = all_formats();
    return index < formats.size() ? formats[index].name : nullptr;
}

moe_status moe_format_by_name(const char* name, moe_format* out_format) noexcept {
    return guard([&] {
        check_out(out_format, "out_format");
        require(name != nullptr, "name is NULL");
        const FormatTraits* traits = find_format(name);
        if (!traits) fail(MOE_ERROR_NOT_FOUND, "name is {}, not a format of this library", name);
        moe_format format = traits->format;
        format.struct_size = sizeof format;
        write_struct(out_format, format, "moe_format");
    });
}

moe_status moe_format_get_info(const moe_format* format, moe_format_info* out_info) noexcept {
    return guard([&] {
        check_out(out_info, "out_info");
        write_struct(out_info, info_of(read_struct(format, "moe_format")), "moe_format_info");
    });
}

moe_status moe_format_size(const moe_format* given, int64_t rows, int64_t columns,
                           uint64_t* out_data_bytes, uint64_t* out_scale_bytes) noexcept {
    return guard([&] {
        check_out(out_data_bytes, "out_data_bytes");
        check_out(out_scale_bytes, "out_scale_bytes");
        const moe_format format = read_struct(given, "moe_format");
        const MatrixBytes bytes = matrix_bytes(get_format(format, "format"), format, rows, columns);
        *out_data_bytes = bytes.data;
        *out_scale_bytes = bytes.scales;
    });
}

moe_status moe_quantize(const moe_quantize_args* given) noexcept {
    return guard([&] {
        const moe_quantize_args args = read_struct(given, "moe_quantize_args");
        const moe_format format = read_struct(args.format, "moe_format");
        const FormatTraits& traits = get_format(format, "format");
        if (!traits.encode)
            fail(MOE_ERROR_UNSUPPORTED, "format {} is not written by this version", traits.name);
        const MatrixBytes bytes = matrix_bytes(traits, format, args.rows, args.columns);
        require(args.source != nullptr, "source is NULL");
        check_buffer(args.data, "data", args.data_bytes, "data_bytes", bytes.data);
        check_buffer(args.scales, "scales", args.scale_bytes, "scale_bytes", bytes.scales);
        require(format.global_scale == MOE_GLOBAL_SCALE_NONE || args.global_scale != nullptr,
                "global_scale is NULL, {} has one", traits.name);
        traits.encode(traits, args.source, args.rows, args.columns,
                      {static_cast<std::byte*>(args.data), static_cast<std::byte*>(args.scales),
                       args.global_scale, codebook_of(args, traits), &format});
    });
}

moe_status moe_dequantize(const moe_tensor* given, int64_t expert, float* out,
                          uint64_t out_elements) noexcept {
    return guard([&] {
        moe_tensor tensor = read_struct(given, "moe_tensor");
        const moe_format format = read_struct(tensor.format, "moe_format");
        tensor.format = &format;
        require(tensor.space != MOE_SPACE_DEVICE, "space is MOE_SPACE_DEVICE, must be host memory");
        // A tensor whose role is not said may be a stack, too.
        const bool has_experts = tensor.role == MOE_ROLE_NONE || is_expert_role(tensor.role);
        const bool stack = has_experts && tensor.expert == MOE_ALL_EXPERTS;
        const int64_t n = stack ? tensor.n_experts : 1;
        require(expert >= 0 && expert < n, "expert is {}, the tensor has {}", expert, n);
        check_out(out, "out");
        const Matrix matrix = view_of(tensor, expert, "tensor");
        const auto needed = static_cast<uint64_t>(matrix.rows) * matrix.columns;
        require(out_elements >= needed, "out_elements is {}, the matrix has {}", out_elements,
                needed);
        for (int64_t row = 0; row < matrix.rows; ++row)
            matrix.traits->decode(matrix, row, 0, matrix.columns, out + row * matrix.columns);
    });
}

moe_status moe_scale_layout_size(moe_scale_layout layout, int64_t rows, int64_t columns,
                                 uint64_t* out_bytes) noexcept {
    return guard([&] {
        check_out(out_bytes, "out_bytes");
        *out_bytes = checked_scale_bytes(layout, "layout", rows, columns);
    });
}

moe_status moe_convert_scales(const moe_convert_scales_args* given) noexcept {
    return guard([&] {
        const auto args = read_struct(given, "moe_convert_scales_args");
        const uint64_t from_bytes =
            checked_scale_bytes(args.source_layout, "source_layout", args.rows, args.columns);
        const uint64_t to_bytes =
            checked_scale_bytes(args.layout, "layout", args.rows, args.columns);
        check_buffer(args.source, "source", args.source_bytes, "source_bytes", from_bytes);
        check_buffer(args.scales, "scales", args.scale_bytes, "scale_bytes", to_bytes);
        const auto* from = static_cast<const std::byte*>(args.source);
        auto* to = static_cast<std::byte*>(args.scales);
        require(!overlap(from, from_bytes, to, to_bytes), "scales overlaps source");
        convert_scales({from, args.source_layout, args.rows, args.columns}, args.layout, to);
    });
}
