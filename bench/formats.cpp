#include "bench/formats.hpp"

#include <stdexcept>

namespace moe::bench {
namespace {

struct Unnamed {
    const char* name;
    moe_type type;
    int32_t bits, group_rows, group_columns;
    moe_type scale_type;
    moe_packing packing = MOE_PACKING_DENSE;
    moe_zero_point zero_point = MOE_ZERO_POINT_NONE;
    moe_codebook codebook = MOE_CODEBOOK_NONE;
    bool act_order = false;
    bool pre_quant_scale = false;
};

constexpr Unnamed packed_int(const char* name, int32_t bits, int32_t group) {
    return {name,
            MOE_TYPE_INT,
            bits,
            1,
            group,
            MOE_TYPE_BF16,
            MOE_PACKING_BIT_STREAM,
            MOE_ZERO_POINT_MIDDLE};
}
constexpr Unnamed gptq(const char* name, int32_t bits, int32_t group, moe_zero_point zero_point) {
    return {name, MOE_TYPE_INT, bits, 1, group, MOE_TYPE_F16, MOE_PACKING_GPTQ, zero_point};
}
constexpr Unnamed awq(const char* name, int32_t group) {
    return {name, MOE_TYPE_INT, 4, 1, group, MOE_TYPE_F16, MOE_PACKING_AWQ, MOE_ZERO_POINT_PACKED};
}
constexpr Unnamed bitsandbytes(const char* name, moe_codebook codebook) {
    return {name,
            MOE_TYPE_CODEBOOK,
            4,
            1,
            64,
            MOE_TYPE_F32,
            MOE_PACKING_NIBBLE_HIGH_FIRST,
            MOE_ZERO_POINT_NONE,
            codebook};
}

constexpr Unnamed unnamed[] = {
    packed_int("int4_g32", 4, 32),
    packed_int("int4_g64", 4, 64),
    packed_int("int4_g128", 4, 128),
    packed_int("int4_row", 4, -1),
    {"int4_nibbles", MOE_TYPE_INT, 4, 1, 128, MOE_TYPE_BF16, MOE_PACKING_NIBBLE_LOW_FIRST},
    packed_int("int8_g32", 8, 32),
    packed_int("int8_g128", 8, 128),
    {"int8_row", MOE_TYPE_I8, 0, 1, -1, MOE_TYPE_F32},
    gptq("gptq4", 4, 128, MOE_ZERO_POINT_PACKED_MINUS_ONE),
    gptq("gptq4_g32", 4, 32, MOE_ZERO_POINT_PACKED_MINUS_ONE),
    gptq("gptq4_row", 4, -1, MOE_ZERO_POINT_PACKED_MINUS_ONE),
    gptq("gptq8", 8, 128, MOE_ZERO_POINT_PACKED),
    {"gptq4_any_order", MOE_TYPE_INT, 4, 1, 128, MOE_TYPE_F16, MOE_PACKING_GPTQ,
     MOE_ZERO_POINT_PACKED_MINUS_ONE, MOE_CODEBOOK_NONE, true},
    awq("awq", 128),
    awq("awq_g64", 64),
    bitsandbytes("nf4", MOE_CODEBOOK_BNB_NF4),
    bitsandbytes("bnb_fp4", MOE_CODEBOOK_BNB_FP4),
    {"fp8_tensor", MOE_TYPE_F8_E4M3, 0, -1, -1, MOE_TYPE_F32},
    {"fp8_row", MOE_TYPE_F8_E4M3, 0, 1, -1, MOE_TYPE_F32},
    {"mxfp8", MOE_TYPE_F8_E4M3, 0, 1, 32, MOE_TYPE_F8_E8M0},
    {"nvfp4_pre_quant", MOE_TYPE_E2M1, 0, 1, 16, MOE_TYPE_F8_E4M3, MOE_PACKING_NIBBLE_LOW_FIRST,
     MOE_ZERO_POINT_NONE, MOE_CODEBOOK_NONE, false, true},
};

}  // namespace

moe_format format_by_name(const std::string& name) {
    moe_format format{};
    format.struct_size = sizeof format;
    for (const Unnamed& one : unnamed) {
        if (name != one.name) continue;
        format.type = one.type;
        format.bits = one.bits;
        format.group_rows = one.group_rows;
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
    const size_t first = format.find('+'), last = format.rfind('+');
    if (first == std::string::npos) return {format, format, format};
    const std::string gate = format.substr(0, first), down = format.substr(last + 1);
    if (first == last) return {gate, gate, down};
    return {gate, format.substr(first + 1, last - first - 1), down};
}

}  // namespace moe::bench
