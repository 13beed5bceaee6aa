// pack(): tile by tile and block by block, codes are read out of the source's packing into a grid,
// scales are lowered, and the grid is placed.
#include "libmoe/weights/pack.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "libmoe/base/error.hpp"
#include "libmoe/formats/element.hpp"
#include "libmoe/formats/format.hpp"
#include "libmoe/weights/device_weights.hpp"
#include "libmoe/weights/packed_scales.hpp"
#include "libmoe/weights/source_codes.hpp"

namespace moe {
namespace {

PackedType kbit_type_of(const moe_format& format) {
    const auto first =
        format.scale_type == MOE_TYPE_F32 ? PackedType::kbit2_f32 : PackedType::kbit2;
    return static_cast<PackedType>(static_cast<int32_t>(first) + format.bits - 2);
}

// A scale per 8 rows and 32 k holds any grid whose groups are unions of those, exactly.
bool fits_e4m3(const moe_format& format) {
    return format.type == MOE_TYPE_F8_E4M3 && group_extent(format.group_rows) % 8 == 0 &&
           group_extent(format.group_columns) % 32 == 0;
}

GridScale grid_scale_of(moe_type type) {
    switch (type) {
        case MOE_TYPE_F16:
            return GridScale::f16;
        case MOE_TYPE_BF16:
            return GridScale::bf16;
        case MOE_TYPE_F8_E8M0:
            return GridScale::e8m0;
        case MOE_TYPE_F8_E4M3:
            return GridScale::e4m3;
        default:
            return GridScale::f32;  // nested ones become that
    }
}

GridZero grid_zero_of(moe_zero_point zero_point) {
    switch (zero_point) {
        case MOE_ZERO_POINT_PACKED:
            return GridZero::packed;
        case MOE_ZERO_POINT_PACKED_MINUS_ONE:
            return GridZero::packed_minus_one;
        default:
            return GridZero::middle;
    }
}

PackedType grid_kind_of(const moe_format& format) {
    if (format.type == MOE_TYPE_F8_E4M3) return PackedType::grid_e4m3;
    if (format.type == MOE_TYPE_CODEBOOK || format.type == MOE_TYPE_E2M1)
        return PackedType::grid_codebook;
    switch (format.type == MOE_TYPE_I8 ? 8 : format.bits) {
        case 1:
            return PackedType::grid_1;
        case 2:
            return PackedType::grid_2;
        case 3:
            return PackedType::grid_3;
        case 4:
            return PackedType::grid_4;
        case 5:
            return PackedType::grid_5;
        case 6:
            return PackedType::grid_6;
        case 7:
            return PackedType::grid_7;
        case 8:
            return PackedType::grid_8;
        default:
            return PackedType::none;
    }
}

GridColumns grid_columns_of(const moe_format& format) {
    if (format.act_order && format.group_columns > 0) return GridColumns::groups;
    return format.pre_quant_scale ? GridColumns::factors : GridColumns::none;
}

// Not where a group begins between two steps.
PackedType grid_type_of(const moe_format& format) {
    const PackedType kind = grid_kind_of(format);
    const int32_t group = format.group_columns < 0 ? 0 : format.group_columns;
    if (kind == PackedType::none || group % 16 != 0 || group > most_grid_group)
        return PackedType::none;
    return grid_type(kind, grid_scale_of(format.scale_type), grid_zero_of(format.zero_point), group,
                     grid_columns_of(format));
}

PackedType gguf_type_of(int32_t block_id) {
    constexpr struct {
        int32_t block_id;
        PackedType type;
    } types[] = {
        {2, PackedType::q4_0},     {3, PackedType::q4_1},     {6, PackedType::q5_0},
        {7, PackedType::q5_1},     {8, PackedType::q8_0},     {10, PackedType::q2_k},
        {11, PackedType::q3_k},    {12, PackedType::q4_k},    {13, PackedType::q5_k},
        {14, PackedType::q6_k},    {16, PackedType::iq2_xxs}, {17, PackedType::iq2_xs},
        {18, PackedType::iq3_xxs}, {20, PackedType::iq4_nl},  {21, PackedType::iq3_s},
        {23, PackedType::iq4_xs},  {39, PackedType::mxfp4},   {40, PackedType::nvfp4},
    };
    for (const auto& one : types)
        if (one.block_id == block_id) return one.type;
    return PackedType::none;
}

struct Job {
    const Matrix& source;
    PackedType type;
    TileRows half;
    ScaleSource scales;

    int32_t first_row() const { return half == TileRows::second_half ? 8 : 0; }
    int32_t n_rows() const { return half == TileRows::all ? tile_rows : 8; }
};

template <class Code>
class Packer {
  public:
    explicit Packer(const Job& job)
        : job_(job), read_(read_codes_of<Code>(job.source.format)), grid_() {}

    void pack(std::byte* to) {
        const int64_t k = job_.source.columns;
        for (int64_t row = 0; row < job_.source.rows; row += job_.n_rows()) {
            for (int64_t k0 = 0; k0 < k; k0 += 16 * steps_of_block(k0, k))
                pack_block(row, k0, steps_of_block(k0, k), to);
            to += tile_bytes(job_.type, k);
        }
    }

  private:
    void pack_block(int64_t row, int64_t k0, int32_t n, std::byte* tile) {
        const BlockOffset place = block_offset(job_.type, job_.source.columns, k0, n);
        Code(*const codes)[block_columns] = grid_.at + job_.first_row();
        if (read_) read_(job_.source, {row, job_.n_rows(), k0, 16 * n}, codes);
        if (has_sign_codes(job_.type)) take_sign_codes(codes, 16 * n);
        if constexpr (sizeof(Code) == 1)
            for (int32_t r = 0; r < job_.n_rows(); ++r)
                lower_scales(job_.scales, row + r, k0, n, job_.first_row() + r, codes[r],
                             tile + place.scales);
        if (const auto store_codes = store_codes_of<Code>(job_.type, n))
            store_codes(grid_, job_.half, tile + place.codes);
    }

    void take_sign_codes(Code (*codes)[block_columns], int32_t columns) {
        for (int32_t r = 0; r < job_.n_rows(); ++r)
            for (int32_t c = 0; c < columns; ++c)
                codes[r][c] = static_cast<Code>(sign_code(codes[r][c]));
    }

    const Job& job_;
    ReadCodes<Code> read_;
    CodeGrid<Code> grid_;
};

void check(const Matrix& source, PackedType type, TileRows rows, const char* what) {
    const PackedType own = packed_type_of(source.format);
    if (own == PackedType::none || own != type)
        fail(MOE_ERROR_UNSUPPORTED, "{}: {} does not pack to type {}", what,
             format_name(source.format).text, static_cast<int32_t>(type));
    const int32_t step = rows == TileRows::all ? 16 : 8;
    require(source.rows > 0 && source.rows % step == 0,
            "{}: rows is {}, must be a multiple of {} to be packed", what, source.rows, step);
    const int32_t columns = column_step(type);
    require(source.columns > 0 && source.columns % columns == 0,
            "{}: columns is {}, must be a multiple of {} to be packed", what, source.columns,
            columns);
    check_scale_grid(source, type, what);
}

// What multiplies the packed matrix; a grid has it in its codebook.
float global_of(const Matrix& source, const ScaleSource& scales) {
    if (is_grid(scales.type)) return 1.0f;
    if (scales.type == PackedType::mxfp4)
        return e8m0_to_f32(static_cast<uint8_t>(scales.largest_exponent));
    if (source.format.global_scale == MOE_GLOBAL_SCALE_NONE) return 1.0f;
    if (source.format.global_scale == MOE_GLOBAL_SCALE_MULTIPLY) return source.global_scale;
    const float inverse = 1.0f / source.global_scale;
    if (!std::isnormal(inverse))
        fail(MOE_ERROR_UNSUPPORTED, "{}: global_scale {} divides and has no reciprocal in float32",
             scales.what, source.global_scale);
    return inverse;
}

}  // namespace

PackedType packed_type_of(const moe_format& format) {
    const FormatTraits* traits = find_format(format);
    if (!traits) return PackedType::none;
    if (traits->parts && !fits_e4m3(format)) return grid_type_of(format);
    switch (format.type) {
        case MOE_TYPE_F32:
            return PackedType::f32;
        case MOE_TYPE_F16:
            return PackedType::f16;
        case MOE_TYPE_BF16:
            return PackedType::bf16;
        case MOE_TYPE_F8_E4M3:
            return PackedType::e4m3;
        case MOE_TYPE_E2M1:
            return format.scale_type == MOE_TYPE_F8_E8M0 ? PackedType::mxfp4 : PackedType::nvfp4;
        case MOE_TYPE_CODEBOOK:
            return kbit_type_of(format);
        case MOE_TYPE_GGUF:
            return gguf_type_of(format.block_id);
        default:
            return PackedType::none;
    }
}

float pack(const Matrix& source, PackedType type, TileRows rows, std::byte* to, const char* what) {
    check(source, type, rows, what);
    // The scales of group g are then those of the columns from g * group_columns on.
    Matrix in_order = source;
    in_order.permutation = nullptr;
    Job job{in_order, type, rows, {in_order, type, what}};
    if (type == PackedType::mxfp4) job.scales.largest_exponent = largest_exponent(source, what);
    const float global = global_of(source, job.scales);
    switch (code_bits(type)) {
        case 32:
            Packer<uint32_t>(job).pack(to);
            break;
        case 16:
            Packer<uint16_t>(job).pack(to);
            break;
        default:
            Packer<uint8_t>(job).pack(to);
    }
    return global;
}

void packed_codebook(const Matrix& source, PackedType type, float* values) {
    const int64_t n = int64_t{1} << code_bits(type);
    if (source.codebook) {
        for (uint32_t code = 0; code < n; ++code)
            values[has_sign_codes(type) ? sign_code(code) : code] = source.codebook[code];
        return;
    }
    const bool divides = source.format.global_scale == MOE_GLOBAL_SCALE_DIVIDE;
    for (int64_t code = 0; code < n; ++code) {
        const float value = e2m1_to_f32(static_cast<uint8_t>(code));
        values[code] = divides ? value / source.global_scale : value * source.global_scale;
    }
}

void packed_columns(const Matrix& source, PackedType type, uint32_t* columns) {
    const bool are_groups = moe::grid_columns_of(type) == GridColumns::groups;
    for (int64_t k = 0; k < source.columns; ++k)
        columns[k] = are_groups ? static_cast<uint32_t>(source.permutation[k])
                                : std::bit_cast<uint32_t>(source.pre_quant_scale[k]);
}

}  // namespace moe
