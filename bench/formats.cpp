#include "bench/formats.hpp"

#include <stdexcept>

namespace moe::bench {
namespace {

struct Unnamed {
    const char* name;
    moe_type type;
    int32_t bits, group_columns;
    moe_type scale_type;
    moe_packing packing;
    moe_zero_point zero_point;
    moe_codebook codebook;
    bool act_order = false;
    bool pre_quant_scale = false;
};

constexpr Unnamed unnamed[] = {
    {"int4_g128", MOE_TYPE_INT, 4, 128, MOE_TYPE_BF16, MOE_PACKING_BIT_STREAM,
     MOE_ZERO_POINT_MIDDLE, MOE_CODEBOOK_NONE},
    {"int4_g32", MOE_TYPE_INT, 4, 32, MOE_TYPE_BF16, MOE_PACKING_BIT_STREAM, MOE_ZERO_POINT_MIDDLE,
     MOE_CODEBOOK_NONE},
    {"int4_row", MOE_TYPE_INT, 4, -1, MOE_TYPE_BF16, MOE_PACKING_BIT_STREAM, MOE_ZERO_POINT_MIDDLE,
     MOE_CODEBOOK_NONE},
    {"int8_row", MOE_TYPE_I8, 0, -1, MOE_TYPE_F32, MOE_PACKING_DENSE, MOE_ZERO_POINT_NONE,
     MOE_CODEBOOK_NONE},
    {"gptq4", MOE_TYPE_INT, 4, 128, MOE_TYPE_F16, MOE_PACKING_GPTQ, MOE_ZERO_POINT_PACKED_MINUS_ONE,
     MOE_CODEBOOK_NONE},
    {"gptq8", MOE_TYPE_INT, 8, 128, MOE_TYPE_F16, MOE_PACKING_GPTQ, MOE_ZERO_POINT_PACKED,
     MOE_CODEBOOK_NONE},
    {"gptq4_any_order", MOE_TYPE_INT, 4, 128, MOE_TYPE_F16, MOE_PACKING_GPTQ,
     MOE_ZERO_POINT_PACKED_MINUS_ONE, MOE_CODEBOOK_NONE, true},
    {"nvfp4_pre_quant", MOE_TYPE_E2M1, 0, 16, MOE_TYPE_F8_E4M3, MOE_PACKING_NIBBLE_LOW_FIRST,
     MOE_ZERO_POINT_NONE, MOE_CODEBOOK_NONE, false, true},
    {"awq", MOE_TYPE_INT, 4, 128, MOE_TYPE_F16, MOE_PACKING_AWQ, MOE_ZERO_POINT_PACKED,
     MOE_CODEBOOK_NONE},
    {"nf4", MOE_TYPE_CODEBOOK, 4, 64, MOE_TYPE_F32, MOE_PACKING_NIBBLE_HIGH_FIRST,
     MOE_ZERO_POINT_NONE, MOE_CODEBOOK_BNB_NF4},
    {"fp8_row", MOE_TYPE_F8_E4M3, 0, -1, MOE_TYPE_F32, MOE_PACKING_DENSE, MOE_ZERO_POINT_NONE,
     MOE_CODEBOOK_NONE},
    {"mxfp8", MOE_TYPE_F8_E4M3, 0, 32, MOE_TYPE_F8_E8M0, MOE_PACKING_DENSE, MOE_ZERO_POINT_NONE,
     MOE_CODEBOOK_NONE},
};

}  // namespace

moe_format format_by_name(const std::string& name) {
    moe_format format{};
    format.struct_size = sizeof format;
    for (const Unnamed& one : unnamed) {
        if (name != one.name) continue;
        format.type = one.type;
        format.bits = one.bits;
        format.group_rows = 1;
        format.group_columns = one.group_columns;
        format.scale_type = one.scale_type;
        format.packing = one.packing;
        format.zero_point = one.zero_point;
        format.codebook = one.codebook;
        format.act_order = one.act_order;
        format.pre_quant_scale = one.pre_quant_scale;
        if (one.pre_quant_scale) format.global_scale = MOE_GLOBAL_SCALE_MULTIPLY;
        return format;
    }
    if (moe_format_by_name(name.c_str(), &format) != MOE_OK)
        throw std::runtime_error(moe_last_error());
    return format;
}

int64_t block_columns(const std::string& name) {
    moe_format_info info{};
    info.struct_size = sizeof info;
    const moe_format format = format_by_name(name);
    if (moe_format_get_info(&format, &info) != MOE_OK) throw std::runtime_error(moe_last_error());
    return info.block_columns;
}

ExpertFormats expert_formats(const std::string& format) {
    const size_t plus = format.find('+');
    if (plus == std::string::npos) return {format, format};
    return {format.substr(0, plus), format.substr(plus + 1)};
}

}  // namespace moe::bench
