// Which packed type a source format is lowered to.
#include "libmoe/formats/format.hpp"
#include "libmoe/weights/lower.hpp"

namespace moe {
namespace {

PackedType kbit_type_of(const moe_format& format) {
    const bool has_f32 = format.scale_type == MOE_TYPE_F32;
    switch (format.bits) {
        case 2:
            return has_f32 ? PackedType::kbit2_f32 : PackedType::kbit2;
        case 3:
            return has_f32 ? PackedType::kbit3_f32 : PackedType::kbit3;
        case 4:
            return has_f32 ? PackedType::kbit4_f32 : PackedType::kbit4;
        case 5:
            return has_f32 ? PackedType::kbit5_f32 : PackedType::kbit5;
        default:
            return PackedType::none;
    }
}

// A scale per 8 rows and 32 k holds any grid whose groups are unions of those, exactly.
bool fits_e4m3(const moe_format& format) {
    return format.type == MOE_TYPE_F8_E4M3 && group_extent(format.group_rows) % 8 == 0 &&
           group_extent(format.group_columns) % 32 == 0;
}

GridScale scale_of(moe_type type) {
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

GridZero zero_of(moe_zero_point zero_point) {
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

// none where a group begins between two steps.
PackedType grid_type_of(const moe_format& format) {
    const PackedType kind = grid_kind_of(format);
    const int32_t group = format.group_columns < 0 ? 0 : format.group_columns;
    if (kind == PackedType::none || group % 16 != 0 || group > most_grid_group)
        return PackedType::none;
    return grid_type(kind, scale_of(format.scale_type), zero_of(format.zero_point), group);
}

// A scale and a bias of float16 for every 32 columns hold those of any group that is made of such.
// Codes of three bits and fewer take four.
PackedType affine_type_of(const moe_format& format) {
    const bool fits =
        format.scale_type != MOE_TYPE_F32 && group_extent(format.group_columns) % 32 == 0;
    if (!fits || format.bits > 5) return PackedType::none;
    return format.bits == 5 ? PackedType::q5_1 : PackedType::q4_1;
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

}  // namespace

ColumnTable column_table_of(const moe_format& format) {
    if (format.act_order && format.group_columns > 0) return ColumnTable::order;
    return format.pre_quant_scale ? ColumnTable::factors : ColumnTable::none;
}

PackedType packed_type_of(const moe_format& format) {
    const FormatTraits* traits = find_format(format);
    if (!traits) return PackedType::none;
    if (format.zero_point == MOE_ZERO_POINT_FLOAT) return affine_type_of(format);
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

}  // namespace moe
