// Matrices of E4M3, E5M2 and E2M1 codes as the tools write them.
#include "libmoe/base/checked.hpp"
#include "libmoe/checkpoint/element.hpp"
#include "libmoe/checkpoint/layer_builder.hpp"
#include "libmoe/formats/format.hpp"
#include "libmoe/formats/int_codes.hpp"

namespace moe {
namespace {

constexpr int64_t nvfp4_group = 16;
constexpr int64_t mxfp4_group = 32;

moe_format named_format(const char* name) {
    moe_format format = find_format(name)->format;
    format.struct_size = sizeof format;
    return format;
}

}  // namespace

// E4M3 or E5M2; E5M2 may have no scales.
void LayerBuilder::add_fp8(const WeightName& of, const TensorEntry& entry, const Wanted& wanted) {
    const moe_type type = entry.element->type;
    if (type == MOE_TYPE_F8_E5M2 && !find_scales(of)) return add_plain(entry, wanted);
    const TensorEntry& scales = get_scales(of);
    require_type(scales,
                 {MOE_TYPE_F32, MOE_TYPE_BF16, MOE_TYPE_F16, MOE_TYPE_F8_E8M0, MOE_TYPE_U8});
    const moe_type scale_type = scales.element->type;
    LayerTensor& tensor = add_grid(of, type, is_e8m0(scale_type) ? MOE_TYPE_F8_E8M0 : scale_type,
                                   entry, scales, wanted);
    read_input_scale(tensor, of.stem, wanted);
}

// Sizes of the type F4 count codes, those of bytes two.
int64_t LayerBuilder::fp4_columns(const TensorEntry& entry, const Wanted& wanted) {
    return entry.element->type == MOE_TYPE_E2M1 ? wanted.columns : wanted.columns / 2;
}

// E4M3 scales are NVFP4's, E8M0 ones MXFP4's, where they are for 16 and for 32 columns.
void LayerBuilder::add_fp4(const WeightName& of, const TensorEntry& entry, const Wanted& wanted) {
    check_not_transposed(entry, wanted);
    const TensorEntry* found = find_scales(of);
    const TensorEntry& scales = found ? *found : get(of.name + "_scale");
    const moe_type type = scales.element->type;
    const int64_t groups = scales.rank > 0 ? scales.dims().back() : 0;
    const bool has_global =
        find(of.name + "_global_scale") || find(of.name + "_scale_2") || find(of.name + ".scale2");
    if (is_e8m0(type) && !is_wide_group(groups, wanted)) return add_mxfp4(entry, scales, wanted);
    const bool is_grid = is_e8m0(type) || is_float_scale(type) ||
                         (type == MOE_TYPE_F8_E4M3 && !has_global && is_wide_group(groups, wanted));
    if (is_grid && (!is_float_scale(type) || says_fp4(of, entry)))
        return add_fp4_grid(of, entry, scales, wanted);
    require_type(scales, {MOE_TYPE_F8_E4M3, MOE_TYPE_U8, MOE_TYPE_F8_E8M0});
    if (entry.element->type != MOE_TYPE_E2M1) require_type(entry, {MOE_TYPE_U8});
    add_nvfp4(of, entry, scales, wanted);
}

// Groups of more columns than MXFP4's, by the number of them.
bool LayerBuilder::is_wide_group(int64_t groups, const Wanted& wanted) {
    return groups > 0 && wanted.columns % groups == 0 &&
           wanted.columns / groups % mxfp4_group == 0 && wanted.columns / groups > mxfp4_group;
}

// Two codes in a byte under float scales are also int4's.
bool LayerBuilder::says_fp4(const WeightName& of, const TensorEntry& entry) const {
    if (entry.element->type == MOE_TYPE_E2M1) return true;
    if (settings().find_text("expert_dtype") == "fp4") return true;
    const SettingsPart part = quantization_of(of.stem);
    return part.is_of_module() && part.find_text("type") == "float" &&
           part.find_integer("num_bits", 1, 64) == 4;
}

// FP4 in any other groups of columns.
void LayerBuilder::add_fp4_grid(const WeightName& of, const TensorEntry& entry,
                                const TensorEntry& scales, const Wanted& wanted) {
    if (entry.element->type != MOE_TYPE_E2M1) require_type(entry, {MOE_TYPE_U8, MOE_TYPE_I8});
    check_matrix(entry, wanted, wanted.rows, fp4_columns(entry, wanted));
    const int64_t groups = scales.rank > 0 ? scales.dims().back() : 0;
    check_matrix(scales, wanted, wanted.rows, groups);
    const SettingsPart part = quantization_of(of.stem);
    const int32_t group = group_size(scales, part, groups, wanted.columns);
    for (const char* key : {"expert_group_size", "group_size"}) {
        const auto said = part.find_integer(key, -1, 1 << 24).value_or(-1);
        if (said <= 0 || divide_up(wanted.columns, said) == groups) continue;
        fail_entry(MOE_ERROR_CORRUPT_FILE, scales,
                   fmt::format("has {} groups of {} columns, but '{}' of the configuration is {}",
                               groups, wanted.columns, key, said));
    }
    const moe_type type = scales.element->type;
    LayerTensor& tensor = append(entry, wanted);
    tensor.format = format_of(MOE_TYPE_E2M1);
    tensor.format.group_rows = 1;
    tensor.format.group_columns = group;
    tensor.format.scale_type = is_e8m0(type) ? MOE_TYPE_F8_E8M0 : type;
    tensor.format.packing = MOE_PACKING_NIBBLE_LOW_FIRST;
    if (!find_format(tensor.format))
        fail_entry(MOE_ERROR_UNSUPPORTED, scales,
                   fmt::format("FP4 in groups of {} columns is not read", group));
    set_scales(tensor, scales);
}

void LayerBuilder::add_nvfp4(const WeightName& of, const TensorEntry& entry,
                             const TensorEntry& scales, const Wanted& wanted) {
    if (wanted.columns % nvfp4_group != 0) {
        fail_entry(MOE_ERROR_CORRUPT_FILE, entry,
                   fmt::format("{} columns are not a multiple of {}", wanted.columns, nvfp4_group));
    }
    // compressed-tensors, whose codes are "weight_packed", divides by its global scale; ModelOpt
    // multiplies.
    const bool is_packed = entry.name.ends_with("_packed");
    const bool divides = is_packed || find(of.name + "_global_scale");
    const TensorEntry* inklings = find(of.name + ".scale2");
    const TensorEntry& global =
        inklings ? *inklings : get(of.name + (divides ? "_global_scale" : "_scale_2"));
    check_matrix(entry, wanted, wanted.rows, fp4_columns(entry, wanted));
    const auto group = quantization().find_integer("group_size", -1, 1 << 24).value_or(-1);
    if (group > 0 && group != nvfp4_group && scales.rank > 0 &&
        scales.dims().back() == wanted.columns / group)
        fail_entry(MOE_ERROR_UNSUPPORTED, scales,
                   fmt::format("NVFP4 in groups of {} columns is not read", group));
    check_matrix(scales, wanted, wanted.rows, wanted.columns / nvfp4_group);
    LayerTensor& tensor = append(entry, wanted);
    tensor.format = named_format("nvfp4");
    if (divides) tensor.format.global_scale = MOE_GLOBAL_SCALE_DIVIDE;
    set_scales(tensor, scales);
    read_global_scale(tensor, global, wanted);
    read_input_scale(tensor, of.stem, wanted);
}

void LayerBuilder::add_mxfp4(const TensorEntry& entry, const TensorEntry& scales,
                             const Wanted& wanted) {
    if (wanted.columns % mxfp4_group != 0) {
        fail_entry(MOE_ERROR_CORRUPT_FILE, entry,
                   fmt::format("{} columns are not a multiple of {}", wanted.columns, mxfp4_group));
    }
    if (entry.element->type != MOE_TYPE_E2M1) require_type(entry, {MOE_TYPE_U8, MOE_TYPE_I8});
    check_matrix(entry, wanted, wanted.rows, fp4_columns(entry, wanted));
    check_matrix(scales, wanted, wanted.rows, wanted.columns / mxfp4_group);
    LayerTensor& tensor = append(entry, wanted);
    tensor.format = named_format("mxfp4");
    set_scales(tensor, scales);
}

void LayerBuilder::mxfp4_blocks(std::string_view stem, char mark, const Wanted& wanted) {
    const TensorEntry& entry = get(std::string(stem) + mark + "blocks");
    const TensorEntry& scales = get(std::string(stem) + mark + "scales");
    for (const TensorEntry* part : {&entry, &scales}) require_type(*part, {MOE_TYPE_U8});
    if (wanted.columns % mxfp4_group != 0) {
        fail_entry(MOE_ERROR_CORRUPT_FILE, entry,
                   fmt::format("{} columns are not a multiple of {}", wanted.columns, mxfp4_group));
    }
    const int64_t groups = wanted.columns / mxfp4_group;
    check_shape(entry, {count_of(wanted), wanted.rows, groups, mxfp4_group / 2}, false);
    check_shape(scales, {count_of(wanted), wanted.rows, groups}, false);
    LayerTensor& tensor = append(entry, wanted);
    tensor.format = named_format("mxfp4");
    set_scales(tensor, scales);
}

}  // namespace moe
