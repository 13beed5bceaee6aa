// Matrices as MLX writes them: weight U32 [rows, columns * bits / 32] and scales [rows, groups],
// perhaps of a stack of experts. Shapes say bits and groups, the type of the scales says the mode;
// the entry of config.json for the module, where there is one, must say the same.
//   affine               scales and biases F16, BF16 or F32
//   mxfp4, nvfp4, mxfp8  scales U8: E8M0, E4M3, E8M0; nvfp4 may have global_scale F32
// Codes are little-endian streams along a row, so the bytes are those of formats that exist.
#include <algorithm>

#include "libmoe/checkpoint/layer_builder.hpp"
#include "libmoe/checkpoint/printable.hpp"
#include "libmoe/formats/format.hpp"
#include "libmoe/formats/int_codes.hpp"

namespace moe {
namespace {

struct MlxMode {
    std::string_view name;
    int64_t bits, group;  // 0: any
};
constexpr MlxMode affine_mode = {"affine", 0, 0};
constexpr MlxMode modes_of_bytes[] = {{"mxfp4", 4, 32}, {"nvfp4", 4, 16}, {"mxfp8", 8, 32}};

const MlxMode* find_mode(bool is_affine, int64_t bits, int64_t group) {
    if (is_affine) return &affine_mode;
    for (const MlxMode& mode : modes_of_bytes)
        if (mode.bits == bits && mode.group == group) return &mode;
    return nullptr;
}

bool is_known(std::string_view name) {
    return name == affine_mode.name ||
           std::any_of(std::begin(modes_of_bytes), std::end(modes_of_bytes),
                       [&](const MlxMode& mode) { return mode.name == name; });
}

}  // namespace

// MLX infers as much where config.json does not name the module: its default may be another.
void LayerBuilder::check_mlx_entry(const TensorEntry& entry, std::string_view module,
                                   std::string_view mode, int64_t bits, int64_t group) const {
    // Some writers have the second name alone.
    const std::string whole =
        settings().has_part("quantization.") ? "quantization" : "quantization_config";
    const std::string key = fmt::format("{}.{}", whole, module);
    const auto contradict = [&](std::string_view of, const auto& value) {
        fail_entry(MOE_ERROR_CORRUPT_FILE, entry,
                   fmt::format("is {} with {} bits in groups of {}, but '{}{}' of {} is {}", mode,
                               bits, group, printable(key).text, of, settings().file(), value));
    };
    for (const std::string& name : {key + ".mode", whole + ".mode"}) {
        const auto said = settings().find_text(name);
        if (said && !is_known(*said))
            fail_entry(MOE_ERROR_UNSUPPORTED, entry,
                       fmt::format("'{}' of {} is '{}', which is not affine, mxfp4, nvfp4 or mxfp8",
                                   printable(name).text, settings().file(), printable(*said).text));
    }
    if (settings().has(key)) {
        if (!settings().find_flag(key).value_or(true)) contradict("", "false");
        return;
    }
    if (!settings().has_part(key + ".")) return;
    const auto said = settings().find_text(key + ".mode").value_or(affine_mode.name);
    if (said != mode) contradict(".mode", fmt::format("'{}'", said));
    for (const auto& [of, value] : {std::pair{".bits", bits}, std::pair{".group_size", group}})
        if (const auto number = settings().find_integer({key + of}, 0, 1 << 24))
            if (*number != value) contradict(of, *number);
}

void LayerBuilder::add_mlx(const std::string& stem, const TensorEntry& entry,
                           const Wanted& wanted) {
    const TensorEntry& scales = get(stem + ".scales");
    require_type(scales, {MOE_TYPE_F16, MOE_TYPE_BF16, MOE_TYPE_F32, MOE_TYPE_U8});
    if (entry.rank == 0 || scales.rank == 0 || scales.dims().back() < 1 ||
        entry.dims().back() * 32 % wanted.columns != 0 ||
        wanted.columns % scales.dims().back() != 0)
        fail_entry(
            MOE_ERROR_CORRUPT_FILE, entry,
            fmt::format("has shape {} and scales {}: {} columns have no whole bits and "
                        "groups in it",
                        shape_text(entry.dims()), shape_text(scales.dims()), wanted.columns));
    const int64_t words = entry.dims().back(), groups = scales.dims().back();
    const int64_t bits = words * 32 / wanted.columns, group = wanted.columns / groups;
    const bool is_affine = scales.element->type != MOE_TYPE_U8;
    const MlxMode* mode = find_mode(is_affine, bits, group);
    if (!mode)
        fail_entry(MOE_ERROR_UNSUPPORTED, entry,
                   fmt::format("{} bits in groups of {} under scales of bytes are no mode of MLX "
                               "that is read",
                               bits, group));
    check_matrix(entry, wanted, wanted.rows, words);
    check_matrix(scales, wanted, wanted.rows, groups);
    check_mlx_entry(entry, entry.name.substr(0, entry.name.rfind('.')), mode->name, bits, group);
    if (is_affine) return add_mlx_affine(stem, entry, scales, wanted);
    add_mlx_bytes(stem, entry, scales, wanted, mode->name);
}

void LayerBuilder::add_mlx_affine(const std::string& stem, const TensorEntry& entry,
                                  const TensorEntry& scales, const Wanted& wanted) {
    if (wanted.role == MOE_ROLE_GATE_UP)
        fail_entry(MOE_ERROR_UNSUPPORTED, entry, "gate and up in one matrix of affine codes");
    const int64_t bits = entry.dims().back() * 32 / wanted.columns;
    const int64_t groups = scales.dims().back();
    const TensorEntry& biases = get(stem + ".biases");
    require_type(biases, {scales.element->type});
    check_matrix(biases, wanted, wanted.rows, groups);
    const moe_format format = int_format(MOE_PACKING_BIT_STREAM, static_cast<int32_t>(bits),
                                         static_cast<int32_t>(wanted.columns / groups),
                                         scales.element->type, MOE_ZERO_POINT_FLOAT);
    if (!find_format(format))
        fail_entry(MOE_ERROR_UNSUPPORTED, entry,
                   fmt::format("codes of {} bits are not read", bits));
    const auto add = [&](const Wanted& one) -> LayerTensor& {
        LayerTensor& tensor = append(entry, one);
        tensor.format = format;
        set_scales(tensor, scales);
        set_range(biases, tensor.zero_points, tensor.tensor.zero_points,
                  tensor.tensor.zero_point_bytes);
        return tensor;
    };
    if (wanted.role != MOE_ROLE_SHARED_GATE_UP) return (void)add(wanted);
    // The format is not sliceable: two matrices.
    const moe_gate_up_order order = resolve(wanted.form).order;
    if (order == MOE_GATE_UP_INTERLEAVED)
        fail_entry(MOE_ERROR_UNSUPPORTED, entry, "rows of gate and up in turns under affine codes");
    const int64_t rows = wanted.rows / 2;
    const bool is_gate_first = order == MOE_GATE_UP_GATE_FIRST;
    take_part(add({MOE_ROLE_SHARED_GATE, 0, rows, wanted.columns}), 2, is_gate_first ? 0 : 1);
    take_part(add({MOE_ROLE_SHARED_UP, 0, rows, wanted.columns}), 2, is_gate_first ? 1 : 0);
}

// The global scale of MLX is the largest weight: 448 * 6 times what multiplies.
void LayerBuilder::add_mlx_bytes(const std::string& stem, const TensorEntry& entry,
                                 const TensorEntry& scales, const Wanted& wanted,
                                 std::string_view mode) {
    constexpr float largest_product = 448.0f * 6.0f;
    if (const TensorEntry* biases = find(stem + ".biases")) fail_beside(*biases, mode);
    LayerTensor& tensor = append(entry, wanted);
    if (mode == "mxfp8") {
        tensor.format = format_of(MOE_TYPE_F8_E4M3);
        tensor.format.group_rows = 1;
        tensor.format.group_columns = 32;
        tensor.format.scale_type = MOE_TYPE_F8_E8M0;
    } else {
        tensor.format = find_format(std::string(mode).c_str())->format;
        tensor.format.struct_size = sizeof tensor.format;
    }
    set_scales(tensor, scales);
    if (mode != "nvfp4") return;
    const int64_t n = count_of(wanted);
    const TensorEntry* global = find(stem + ".global_scale");
    const float* largest = global ? read_floats(*global, n) : nullptr;
    auto* factors = static_cast<float*>(
        out_.values.allocate(static_cast<size_t>(n) * sizeof(float), alignof(float)));
    for (int64_t i = 0; i < n; ++i) factors[i] = largest ? largest[i] / largest_product : 1.0f;
    tensor.tensor.global_scale = factors;
    tensor.tensor.n_global_scales = n;
}

}  // namespace moe
