// Matrices of E4M3 and E2M1 codes as the tools write them: which scales lie beside them, and what
// their shapes mean.
#include <algorithm>

#include "libmoe/base/checked.hpp"
#include "libmoe/checkpoint/layer_builder.hpp"
#include "libmoe/formats/format.hpp"

namespace moe {
namespace {

constexpr int64_t nvfp4_group = 16;
constexpr int64_t mxfp4_group = 32;
constexpr int64_t fp8_block = 128;

moe_format named_format(const char* name) {
    moe_format format = find_format(name)->format;
    format.struct_size = sizeof format;
    return format;
}

bool is_e8m0(moe_type type) {
    return type == MOE_TYPE_F8_E8M0 || type == MOE_TYPE_U8;
}

using Shape = std::vector<int64_t>;

// Without dimensions of one: [N/128, 1, K/128, 1] is a grid, [N, 1] a row each, [1] one scale.
Shape without_ones(std::span<const int64_t> dims) {
    Shape shape;
    for (const int64_t size : dims)
        if (size != 1) shape.push_back(size);
    return shape;
}

}  // namespace

// From the shape of the scales: the blocks that the configuration names, 128 x 128 where it names
// none; E8M0 also per 1 x 32 and 32 x 32; else one per row, or one in all.
LayerBuilder::ScaleGroup LayerBuilder::scale_group_of(const TensorEntry& entry,
                                                      const TensorEntry& scales,
                                                      const Wanted& wanted) const {
    const auto block = [&](int i) -> int32_t {
        // Then compressed-tensors'.
        for (const char* key :
             {"weight_block_size", "config_groups.group_0.weights.block_structure"})
            if (const auto size =
                    quantization().find_integer(fmt::format("{}.{}", key, i), 1, 65536))
                return static_cast<int32_t>(*size);
        return fp8_block;
    };
    std::vector<ScaleGroup> groups = {{block(0), block(1)}};
    if (is_e8m0(scales.element->type)) {
        groups.push_back({1, mxfp4_group});
        groups.push_back({mxfp4_group, mxfp4_group});
    }
    groups.push_back({1, -1});
    groups.push_back({-1, -1});
    std::span<const int64_t> dims = scales.dims();
    if (wanted.expert == MOE_ALL_EXPERTS) {
        if (dims.empty() || dims.front() != out_.desc.n_experts)
            fail_entry(MOE_ERROR_CORRUPT_FILE, scales,
                       fmt::format("has shape {}, its first size must be the {} experts",
                                   shape_text(dims), out_.desc.n_experts));
        dims = dims.subspan(1);
    }
    // A shape of two sizes means what it says; others are compared without their ones.
    const auto fits = [&](const ScaleGroup& group, bool exactly) {
        const int64_t grid[] = {divide_up(wanted.rows, group_extent(group.rows)),
                                divide_up(wanted.columns, group_extent(group.columns))};
        if (exactly) return dims.size() == 2 && std::equal(dims.begin(), dims.end(), grid);
        return without_ones(dims) == without_ones(std::span<const int64_t>(grid));
    };
    const bool exactly = std::any_of(groups.begin(), groups.end(),
                                     [&](const ScaleGroup& group) { return fits(group, true); });
    for (const ScaleGroup& group : groups)
        if (fits(group, exactly)) return group;
    fail_entry(MOE_ERROR_CORRUPT_FILE, scales,
               fmt::format("has shape {}, {} is wanted for blocks of {} x {}, or one scale, or one "
                           "per row of {}",
                           shape_text(scales.dims()),
                           shape_text(std::initializer_list<int64_t>{
                               divide_up(wanted.rows, groups[0].rows),
                               divide_up(wanted.columns, groups[0].columns)}),
                           groups[0].rows, groups[0].columns, shape_text(entry.dims())));
}

void LayerBuilder::add_fp8(const WeightName& of, const TensorEntry& entry, const Wanted& wanted) {
    check_not_transposed(entry, wanted);
    check_matrix(entry, wanted, wanted.rows, wanted.columns);
    // DeepSeek (and MiniMax) say weight_scale_inv, the tools weight_scale, DeepSeek-V4 scale: all
    // multiply.
    const TensorEntry* scales = find(of.name + "_scale_inv");
    if (!scales) scales = find(of.name + "_scale");
    if (!scales) scales = find(of.stem + ".scale");
    if (!scales) scales = &get(of.name + "_scale_inv");
    require_type(*scales,
                 {MOE_TYPE_F32, MOE_TYPE_BF16, MOE_TYPE_F16, MOE_TYPE_F8_E8M0, MOE_TYPE_U8});
    const moe_type type = scales->element->type;
    LayerTensor& tensor = append_grid(MOE_TYPE_F8_E4M3, is_e8m0(type) ? MOE_TYPE_F8_E8M0 : type,
                                      entry, *scales, wanted);
    set_scales(tensor, *scales);
    read_input_scale(tensor, of.stem, wanted);
}

// A matrix under the scales of blocks, rows or the whole; the caller sets the scales.
LayerTensor& LayerBuilder::append_grid(moe_type type, moe_type scale_type, const TensorEntry& entry,
                                       const TensorEntry& scales, const Wanted& wanted) {
    const ScaleGroup group = scale_group_of(entry, scales, wanted);
    const bool gate_up = wanted.role == MOE_ROLE_GATE_UP;
    if (gate_up && group.rows > 0 && wanted.rows / 2 % group.rows != 0) {
        fail_entry(MOE_ERROR_UNSUPPORTED, entry,
                   fmt::format("a block of {} rows has rows of gate and of up", group.rows));
    }
    LayerTensor& tensor = append(entry, wanted);
    tensor.format = format_of(type);
    tensor.format.group_rows = group.rows;
    tensor.format.group_columns = group.columns;
    tensor.format.scale_type = scale_type;
    return tensor;
}

// Sizes of the type F4 count codes, those of bytes two.
int64_t LayerBuilder::fp4_columns(const TensorEntry& entry, const Wanted& wanted) {
    return entry.element->type == MOE_TYPE_E2M1 ? wanted.columns : wanted.columns / 2;
}

// E4M3 scales are NVFP4's, E8M0 ones MXFP4's.
void LayerBuilder::add_fp4(const WeightName& of, const TensorEntry& entry, const Wanted& wanted) {
    check_not_transposed(entry, wanted);
    const TensorEntry* scales = find(of.name + "_scale");
    if (!scales) scales = find(of.stem + ".scale");  // DeepSeek-V4
    if (!scales) scales = &get(of.name + "_scale");
    if (is_e8m0(scales->element->type)) return add_mxfp4(entry, *scales, wanted);
    require_type(*scales, {MOE_TYPE_F8_E4M3, MOE_TYPE_U8, MOE_TYPE_F8_E8M0});
    if (entry.element->type != MOE_TYPE_E2M1) require_type(entry, {MOE_TYPE_U8});
    add_nvfp4(of, entry, *scales, wanted);
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
    const TensorEntry& global = get(of.name + (divides ? "_global_scale" : "_scale_2"));
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
    check_shape(entry, {out_.desc.n_experts, wanted.rows, groups, mxfp4_group / 2}, false);
    check_shape(scales, {out_.desc.n_experts, wanted.rows, groups}, false);
    LayerTensor& tensor = append(entry, wanted);
    tensor.format = named_format("mxfp4");
    set_scales(tensor, scales);
}

}  // namespace moe
