// Scales beside a matrix, and matrices under a grid of them: what the shape of the scales means,
// for codes of E4M3, E5M2 and int8 alike.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "libmoe/base/checked.hpp"
#include "libmoe/checkpoint/element.hpp"
#include "libmoe/checkpoint/layer_builder.hpp"
#include "libmoe/formats/format.hpp"

namespace moe {
namespace {

constexpr int32_t common_block = 128;
constexpr int32_t e8m0_group = 32;

using Shape = std::vector<int64_t>;

// Without dimensions of one: [N/128, 1, K/128, 1] is a grid, [N, 1] a row each, [1] one scale.
Shape without_ones(std::span<const int64_t> dims) {
    Shape shape;
    for (const int64_t size : dims)
        if (size != 1) shape.push_back(size);
    return shape;
}

}  // namespace

// DeepSeek (and MiniMax) say weight_scale_inv, the tools weight_scale, DeepSeek-V4 scale, ModelOpt
// of merged experts gate_up_proj_weight_scale, Inkling w13_weight.scale: all multiply. Null: none.
const TensorEntry* LayerBuilder::find_scales(const WeightName& of) const {
    for (const std::string& name : {of.name + "_scale_inv", of.name + "_scale", of.stem + ".scale",
                                    of.name + "_weight_scale", of.name + ".scale"})
        if (const TensorEntry* scales = find(name)) return scales;
    return nullptr;
}

const TensorEntry& LayerBuilder::get_scales(const WeightName& of) const {
    const TensorEntry* scales = find_scales(of);
    return scales ? *scales : get(of.name + "_scale_inv");
}

bool LayerBuilder::is_transposed(const Wanted& wanted) const {
    return wanted.fused && resolve(wanted.form).orientation == MOE_ORIENTATION_IN_OUT;
}

// The rows of gate and of up, where they are merged and not interleaved.
int64_t LayerBuilder::half_rows(const Wanted& wanted) const {
    const bool has_halves =
        wanted.role == MOE_ROLE_GATE_UP && resolve(wanted.form).order != MOE_GATE_UP_INTERLEAVED;
    return has_halves ? wanted.rows / 2 : 0;
}

// The sizes of blocks that the configuration names, 128 x 128 where it names none.
LayerBuilder::ScaleGroup LayerBuilder::block_of(const SettingsPart& part, bool& is_named) const {
    int32_t sizes[2] = {common_block, common_block};
    is_named = false;
    for (int i = 0; i < 2; ++i)
        // Then compressed-tensors'.
        for (const char* key : {"weight_block_size", "block_structure",
                                "config_groups.group_0.weights.block_structure"})
            if (const auto size = part.find_integer(fmt::format("{}.{}", key, i), 1, 65536)) {
                sizes[i] = static_cast<int32_t>(*size);
                is_named = true;
                break;
            }
    return {sizes[0], sizes[1]};
}

// From the shape of the scales: blocks; E8M0 also per 1 x 32 and 32 x 32; a pair for gate and up;
// else one per row, or one in all.
LayerBuilder::ScaleGroup LayerBuilder::scale_group_of(const WeightName& of,
                                                      const TensorEntry& entry,
                                                      const TensorEntry& scales,
                                                      const Wanted& wanted) const {
    std::span<const int64_t> dims = scales.dims();
    const bool is_stack = wanted.expert == MOE_ALL_EXPERTS;
    if (is_stack && without_ones(dims).empty()) return {-1, -1};  // of all experts
    if (is_stack) {
        if (dims.front() != count_of(wanted))
            fail_entry(MOE_ERROR_CORRUPT_FILE, scales,
                       fmt::format("has shape {}, its first size must be the {} experts",
                                   shape_text(dims), count_of(wanted)));
        dims = dims.subspan(1);
    }
    bool is_named = false;
    const ScaleGroup block = block_of(quantization_of(of.stem), is_named);
    const auto half = static_cast<int32_t>(half_rows(wanted));
    const bool pair_first = half > 0 && (dims.size() == 1 || !is_named);
    std::vector<ScaleGroup> groups = {block};
    if (pair_first) groups.insert(groups.begin(), {half, -1});
    if (is_e8m0(scales.element->type)) {
        groups.push_back({1, e8m0_group});
        groups.push_back({e8m0_group, e8m0_group});
    }
    groups.push_back({1, -1});
    groups.push_back({-1, -1});
    // A shape of two sizes means what it says, and lies as the codes do; others are compared
    // without their ones.
    const auto fits = [&](const ScaleGroup& group, bool exactly) {
        int64_t grid[] = {divide_up(wanted.rows, group_extent(group.rows)),
                          divide_up(wanted.columns, group_extent(group.columns))};
        if (is_transposed(wanted)) std::swap(grid[0], grid[1]);
        if (!exactly) return without_ones(dims) == without_ones(std::span<const int64_t>(grid));
        return dims.size() == 2 && std::equal(dims.begin(), dims.end(), grid);
    };
    const bool exactly = std::any_of(groups.begin(), groups.end(),
                                     [&](const ScaleGroup& group) { return fits(group, true); });
    for (const ScaleGroup& group : groups)
        if (fits(group, exactly)) return group;
    fail_entry(
        MOE_ERROR_CORRUPT_FILE, scales,
        fmt::format(
            "has shape {}, {} is wanted for blocks of {} x {}, or one scale{}, or one per "
            "row of {}",
            shape_text(scales.dims()),
            shape_text(std::initializer_list<int64_t>{divide_up(wanted.rows, block.rows),
                                                      divide_up(wanted.columns, block.columns)}),
            block.rows, block.columns, half > 0 ? ", or one for gate and one for up" : "",
            shape_text(entry.dims())));
}

// A matrix under the scales of blocks, rows or the whole. Scales of another type than the file's
// become float32.
LayerTensor& LayerBuilder::add_grid(const WeightName& of, moe_type type, moe_type scale_type,
                                    const TensorEntry& entry, const TensorEntry& scales,
                                    const Wanted& wanted) {
    const bool transposed = is_transposed(wanted);
    if (transposed)
        check_matrix(entry, wanted, wanted.columns, wanted.rows);
    else
        check_matrix(entry, wanted, wanted.rows, wanted.columns);
    ScaleGroup group = scale_group_of(of, entry, scales, wanted);
    const ScaleGroup in_file = group;
    const bool gate_up = wanted.role == MOE_ROLE_GATE_UP;
    if (gate_up && group.rows > 0 && wanted.rows / 2 % group.rows != 0) {
        if (!half_rows(wanted))
            fail_entry(MOE_ERROR_UNSUPPORTED, entry,
                       fmt::format("a block of {} rows has rows of gate and of up", group.rows));
        group.rows = static_cast<int32_t>(std::gcd<int64_t>(half_rows(wanted), group.rows));
    }
    LayerTensor& tensor = append(entry, wanted);
    tensor.format = format_of(type);
    tensor.format.group_rows = group.rows;
    tensor.format.group_columns = group.columns;
    tensor.format.scale_type = scale_type;
    tensor.tensor.orientation = transposed ? MOE_ORIENTATION_IN_OUT : MOE_ORIENTATION_OUT_IN;
    set_grid_scales(tensor, scales, in_file, wanted);
    return tensor;
}

// Scales as the tensor's format wants them: where they lie in the file, or a copy of them that is
// transposed with the codes, repeated for blocks of gate and of up, or for every expert.
void LayerBuilder::set_grid_scales(LayerTensor& tensor, const TensorEntry& scales,
                                   const ScaleGroup& in_file, const Wanted& wanted) {
    const moe_format& format = tensor.format;
    const bool is_stack = wanted.expert == MOE_ALL_EXPERTS;
    const int64_t n_experts = count_of(wanted);
    const int64_t rows = divide_up(wanted.rows, group_extent(format.group_rows));
    const int64_t file_rows = divide_up(wanted.rows, group_extent(in_file.rows));
    const int64_t columns = divide_up(wanted.columns, group_extent(format.group_columns));
    const bool is_turned = is_transposed(wanted) && file_rows > 1 && columns > 1;
    const bool is_shared = is_stack && without_ones(scales.dims()).empty();
    const bool is_same =
        scales.element->type == format.scale_type || element_bytes(scales.element->type) == 1;
    if (is_same && !is_turned && !is_shared && rows == file_rows) return set_scales(tensor, scales);
    const int64_t n = (is_shared ? 1 : n_experts) * file_rows * columns;
    const std::byte* from = pointer_to_values(scales, n, is_same);
    const auto size = static_cast<int64_t>(element_bytes(format.scale_type));
    const auto bytes = static_cast<uint64_t>(n_experts * rows * columns * size);
    auto* to = static_cast<std::byte*>(out_.values.allocate(bytes, alignof(float)));
    tensor.tensor.scales = to;
    tensor.tensor.scale_bytes = bytes;
    for (int64_t e = 0; e < n_experts; ++e)
        for (int64_t r = 0; r < rows; ++r)
            for (int64_t c = 0; c < columns; ++c, to += size) {
                const int64_t row = rows == file_rows ? r : r * format.group_rows / in_file.rows;
                const int64_t at = is_turned ? c * file_rows + row : row * columns + c;
                const int64_t first = is_shared ? 0 : e * file_rows * columns;
                std::memcpy(to, from + (first + at) * size, static_cast<size_t>(size));
            }
}

// Scales stay as they are, or become float32.
const std::byte* LayerBuilder::pointer_to_values(const TensorEntry& entry, int64_t count,
                                                 bool as_they_are) {
    if (!as_they_are) return reinterpret_cast<const std::byte*>(read_floats(entry, count));
    read_.push_back(&entry);
    auto* values = static_cast<std::byte*>(out_.values.allocate(entry.bytes, alignof(float)));
    files_.files[entry.file].read(entry.offset, entry.bytes, values);
    return values;
}

}  // namespace moe
