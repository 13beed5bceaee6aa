// Lookup, format detection and shape checks.
#include "libmoe/checkpoint/layer_builder.hpp"

#include <algorithm>

#include "libmoe/base/checked.hpp"
#include "libmoe/checkpoint/printable.hpp"
#include "libmoe/formats/format.hpp"

namespace moe {

moe_format plain_format(moe_type type) {
    moe_format format{};
    format.struct_size = sizeof format;
    format.type = type;
    return format;
}

namespace {

constexpr int64_t nvfp4_group = 16;
constexpr int64_t mxfp4_group = 32;
constexpr int64_t fp8_block = 128;

bool is_float_type(moe_type type) {
    return type == MOE_TYPE_F32 || type == MOE_TYPE_F16 || type == MOE_TYPE_BF16;
}

std::span<const int64_t> without_leading_ones(std::span<const int64_t> dims) {
    while (dims.size() > 1 && dims.front() == 1) dims = dims.subspan(1);
    return dims;
}

FileRange range_of(const TensorEntry& entry) {
    return {entry.file, entry.offset, entry.bytes};
}

moe_format named_format(const char* name) {
    moe_format format = find_format(name)->format;
    format.struct_size = sizeof format;
    return format;
}

moe_format gguf_format(int32_t ggml_id) {
    moe_format format = plain_format(MOE_TYPE_GGUF);
    format.block_id = ggml_id;
    return format;
}

moe_format fp8_format(int32_t group_rows, int32_t group_columns, moe_type scale_type) {
    moe_format format = plain_format(MOE_TYPE_F8_E4M3);
    format.group_rows = group_rows;
    format.group_columns = group_columns;
    format.scale_type = scale_type;
    return format;
}

}  // namespace

LayerBuilder::LayerBuilder(const CheckpointFiles& files, const FusedOverride& override,
                           std::string_view prefix, LayerData& out)
    : files_(files), override_(override), prefix_(prefix), out_(out) {
    out_.desc.struct_size = sizeof out_.desc;
}

std::string_view LayerBuilder::full_name(std::string_view name) const {
    name_.assign(prefix_);
    name_ += name;
    return name_;
}

const TensorEntry* LayerBuilder::find(std::string_view name) const {
    return files_.index.find(full_name(name));
}

const TensorEntry& LayerBuilder::get(std::string_view name) const {
    if (const TensorEntry* entry = find(name)) return *entry;
    fail(MOE_ERROR_NOT_FOUND, "{}: there is no tensor '{}'", files_.files.front().name(),
         printable(full_name(name)).text);
}

int64_t LayerBuilder::dimension(std::string_view name, uint32_t index) const {
    const TensorEntry& entry = get(name);
    if (index < entry.rank) return entry.shape[index];
    fail_entry(MOE_ERROR_CORRUPT_FILE, entry,
               fmt::format("has shape {}, too few dimensions", shape_text(entry.dims())));
}

void LayerBuilder::fail_missing(std::string_view what) const {
    const TensorEntry* first = files_.index.find_prefix(full_name("experts."));
    fail(MOE_ERROR_NOT_FOUND,
         "{}: there is no tensor {} under '{}'; the first of its experts is '{}'",
         files_.files.front().name(), what, printable(prefix_).text,
         first ? printable(first->name).text : "none");
}

void LayerBuilder::fail_unsupported(std::string_view name, std::string_view what) const {
    const TensorEntry& entry = get(name);
    fail_entry(MOE_ERROR_UNSUPPORTED, entry,
               fmt::format("{} is not read: its shape is {}", what, shape_text(entry.dims())));
}

void LayerBuilder::fail_entry(moe_status status, const TensorEntry& entry,
                              std::string_view what) const {
    fail(status, "{}: tensor '{}': {}", files_.files[entry.file].name(), printable(entry.name).text,
         what);
}

const std::byte* LayerBuilder::pointer(const TensorEntry& entry) const {
    const std::byte* base = files_.files[entry.file].mapped();
    return base ? base + entry.offset : nullptr;
}

void LayerBuilder::check_shape(const TensorEntry& entry, std::initializer_list<int64_t> wanted,
                               bool ignore_leading_ones) const {
    std::span<const int64_t> want(wanted.begin(), wanted.size());
    std::span<const int64_t> got = entry.dims();
    if (ignore_leading_ones) {
        want = without_leading_ones(want);
        got = without_leading_ones(got);
    }
    if (std::equal(want.begin(), want.end(), got.begin(), got.end())) return;
    fail_entry(
        MOE_ERROR_CORRUPT_FILE, entry,
        fmt::format("has shape {}, {} is wanted", shape_text(entry.dims()), shape_text(want)));
}

// GGUF drops trailing dimensions of one, which are the leading ones here.
void LayerBuilder::check_matrix(const TensorEntry& entry, const Wanted& wanted, int64_t rows,
                                int64_t columns) const {
    if (wanted.expert == MOE_ALL_EXPERTS) {
        check_shape(entry, {out_.desc.n_experts, rows, columns}, files_.is_gguf);
    } else {
        check_shape(entry, {rows, columns}, files_.is_gguf);
    }
}

LayerTensor& LayerBuilder::append(const TensorEntry& entry, const Wanted& wanted) {
    LayerTensor& added = out_.tensors.emplace_back();
    added.name = entry.name;
    added.data = range_of(entry);
    moe_tensor& tensor = added.tensor;
    tensor.struct_size = sizeof tensor;
    tensor.role = wanted.role;
    tensor.expert = wanted.expert;
    tensor.n_experts = wanted.expert == MOE_ALL_EXPERTS ? out_.desc.n_experts : 0;
    tensor.rows = wanted.rows;
    tensor.columns = wanted.columns;
    tensor.data = pointer(entry);
    tensor.data_bytes = entry.bytes;
    if (wanted.role == MOE_ROLE_GATE_UP || wanted.role == MOE_ROLE_GATE_UP_BIAS) {
        tensor.gate_up_order = resolve(wanted.form).order;
    }
    return added;
}

void LayerBuilder::set_scales(LayerTensor& tensor, const TensorEntry& entry) const {
    tensor.scales = range_of(entry);
    tensor.tensor.scales = pointer(entry);
    tensor.tensor.scale_bytes = entry.bytes;
}

FusedForm LayerBuilder::resolve(const FusedForm& form) const {
    FusedForm out = form;
    if (override_.has_orientation) out.orientation = override_.orientation;
    if (override_.gate_up_order != MOE_GATE_UP_NONE) out.order = override_.gate_up_order;
    return out;
}

const float* LayerBuilder::read_floats(const TensorEntry& entry, int64_t count) {
    if (entry.element->type != MOE_TYPE_F32) {
        fail_entry(MOE_ERROR_UNSUPPORTED, entry,
                   fmt::format("is {}, F32 is wanted", entry.element->name));
    }
    const uint64_t bytes = static_cast<uint64_t>(count) * sizeof(float);
    if (entry.bytes != bytes) {
        fail_entry(
            MOE_ERROR_CORRUPT_FILE, entry,
            fmt::format("has shape {}, {} values are wanted", shape_text(entry.dims()), count));
    }
    void* values = out_.values.allocate(bytes, alignof(float));
    files_.files[entry.file].read(entry.offset, bytes, values);
    return static_cast<const float*>(values);
}

void LayerBuilder::read_global_scale(LayerTensor& tensor, const TensorEntry& entry,
                                     const Wanted& wanted) {
    const int64_t count = wanted.expert == MOE_ALL_EXPERTS ? out_.desc.n_experts : 1;
    tensor.tensor.global_scale = read_floats(entry, count);
    tensor.tensor.n_global_scales = count;
}

void LayerBuilder::read_input_scale(LayerTensor& tensor, std::string_view weight_name,
                                    const Wanted& wanted) {
    constexpr std::string_view suffix = ".weight";
    if (!weight_name.ends_with(suffix)) return;
    std::string name(weight_name.substr(0, weight_name.size() - suffix.size()));
    const TensorEntry* entry = find(name + ".input_scale");
    if (!entry) return;
    const int64_t count = wanted.expert == MOE_ALL_EXPERTS ? out_.desc.n_experts : 1;
    tensor.tensor.input_scale = read_floats(*entry, count);
    tensor.tensor.n_input_scales = count;
}

void LayerBuilder::weight(std::string_view name, const Wanted& wanted) {
    const TensorEntry& entry = get(name);
    const moe_type type = entry.element->type;
    if (type == MOE_TYPE_GGUF) return add_gguf(name, entry, wanted);
    if (is_float_type(type)) return add_plain(entry, wanted);
    if (type == MOE_TYPE_F8_E4M3) return add_fp8(name, entry, wanted);
    if (type == MOE_TYPE_U8) return add_nvfp4(name, entry, wanted);
    fail_entry(MOE_ERROR_UNSUPPORTED, entry,
               fmt::format("type {} is not read", entry.element->name));
}

void LayerBuilder::add_plain(const TensorEntry& entry, const Wanted& wanted) {
    const bool transposed =
        wanted.fused && resolve(wanted.form).orientation == MOE_ORIENTATION_IN_OUT;
    if (transposed) {
        check_matrix(entry, wanted, wanted.columns, wanted.rows);
    } else {
        check_matrix(entry, wanted, wanted.rows, wanted.columns);
    }
    LayerTensor& tensor = append(entry, wanted);
    tensor.format = plain_format(entry.element->type);
    tensor.tensor.orientation = transposed ? MOE_ORIENTATION_IN_OUT : MOE_ORIENTATION_OUT_IN;
}

void LayerBuilder::check_not_transposed(const TensorEntry& entry, const Wanted& wanted) const {
    if (!wanted.fused || resolve(wanted.form).orientation == MOE_ORIENTATION_OUT_IN) return;
    fail_entry(MOE_ERROR_UNSUPPORTED, entry,
               fmt::format("orientation IN_OUT with type {}", entry.element->name));
}

void LayerBuilder::add_gguf(std::string_view name, const TensorEntry& entry, const Wanted& wanted) {
    check_not_transposed(entry, wanted);
    check_matrix(entry, wanted, wanted.rows, wanted.columns);
    LayerTensor& tensor = append(entry, wanted);
    tensor.format = gguf_format(entry.element->ggml_id);
    constexpr std::string_view suffix = ".weight";
    if (!name.ends_with(suffix)) return;
    // NVFP4 blocks have a global scale per expert in a tensor of their own.
    std::string scale_name(name.substr(0, name.size() - suffix.size()));
    if (const TensorEntry* scale = find(scale_name + ".scale")) {
        read_global_scale(tensor, *scale, wanted);
        tensor.format.global_scale = MOE_GLOBAL_SCALE_MULTIPLY;
    }
}

void LayerBuilder::add_fp8(std::string_view name, const TensorEntry& entry, const Wanted& wanted) {
    check_not_transposed(entry, wanted);
    check_matrix(entry, wanted, wanted.rows, wanted.columns);
    const TensorEntry& scales = get(std::string(name) + "_scale_inv");
    const moe_type scale_type = scales.element->type;
    if (scale_type != MOE_TYPE_F32 && scale_type != MOE_TYPE_F8_E8M0) {
        fail_entry(MOE_ERROR_UNSUPPORTED, scales,
                   fmt::format("scales of type {} are not read", scales.element->name));
    }
    const auto block = [&](const char* key) {
        return static_cast<int32_t>(settings().find_integer({key}, 1, 65536).value_or(fp8_block));
    };
    const int32_t rows = block("quantization_config.weight_block_size.0");
    const int32_t columns = block("quantization_config.weight_block_size.1");
    const bool gate_up = wanted.role == MOE_ROLE_GATE_UP;
    if (gate_up && wanted.rows / 2 % rows != 0) {
        fail_entry(MOE_ERROR_UNSUPPORTED, entry,
                   fmt::format("a block of {} rows has rows of gate and of up", rows));
    }
    check_matrix(scales, wanted, divide_up(wanted.rows, rows), divide_up(wanted.columns, columns));
    LayerTensor& tensor = append(entry, wanted);
    tensor.format = fp8_format(rows, columns, scale_type);
    set_scales(tensor, scales);
    read_input_scale(tensor, name, wanted);
}

void LayerBuilder::add_nvfp4(std::string_view name, const TensorEntry& entry,
                             const Wanted& wanted) {
    check_not_transposed(entry, wanted);
    const TensorEntry& global = get(std::string(name) + "_scale_2");
    const TensorEntry& scales = get(std::string(name) + "_scale");
    if (wanted.columns % nvfp4_group != 0) {
        fail_entry(MOE_ERROR_CORRUPT_FILE, entry,
                   fmt::format("{} columns are not a multiple of {}", wanted.columns, nvfp4_group));
    }
    check_matrix(entry, wanted, wanted.rows, wanted.columns / 2);
    if (scales.element->type != MOE_TYPE_F8_E4M3) {
        fail_entry(MOE_ERROR_UNSUPPORTED, scales,
                   fmt::format("scales of type {} are not read", scales.element->name));
    }
    check_matrix(scales, wanted, wanted.rows, wanted.columns / nvfp4_group);
    LayerTensor& tensor = append(entry, wanted);
    tensor.format = named_format("nvfp4");
    set_scales(tensor, scales);
    read_global_scale(tensor, global, wanted);
    read_input_scale(tensor, name, wanted);
}

void LayerBuilder::mxfp4_blocks(std::string_view stem, const Wanted& wanted) {
    const TensorEntry& entry = get(std::string(stem) + "_blocks");
    const TensorEntry& scales = get(std::string(stem) + "_scales");
    for (const TensorEntry* part : {&entry, &scales}) {
        if (part->element->type == MOE_TYPE_U8) continue;
        fail_entry(MOE_ERROR_UNSUPPORTED, *part,
                   fmt::format("is {}, U8 is wanted", part->element->name));
    }
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

void LayerBuilder::vector(std::string_view name, const Wanted& wanted) {
    const TensorEntry& entry = get(name);
    if (!is_float_type(entry.element->type)) {
        fail_entry(MOE_ERROR_UNSUPPORTED, entry,
                   fmt::format("a vector of type {} is not read", entry.element->name));
    }
    if (wanted.expert == MOE_ALL_EXPERTS) {
        check_shape(entry, {out_.desc.n_experts, wanted.columns}, files_.is_gguf);
    } else {
        check_shape(entry, {wanted.columns}, true);
    }
    append(entry, wanted).format = plain_format(entry.element->type);
}

void LayerBuilder::finish() {
    for (LayerTensor& tensor : out_.tensors) tensor.tensor.format = &tensor.format;
}

}  // namespace moe
