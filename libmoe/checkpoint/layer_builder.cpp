// Lookup, format detection and shape checks.
#include "libmoe/checkpoint/layer_builder.hpp"

#include <algorithm>
#include <array>
#include <cctype>

#include "libmoe/base/checked.hpp"
#include "libmoe/base/element.hpp"
#include "libmoe/base/half.hpp"
#include "libmoe/checkpoint/printable.hpp"
#include "libmoe/formats/format.hpp"
#include "libmoe/layer/layer.hpp"

namespace moe {

namespace {

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

moe_format gguf_format(int32_t ggml_id) {
    moe_format format = format_of(MOE_TYPE_GGUF);
    format.block_id = ggml_id;
    return format;
}

}  // namespace

LayerBuilder::LayerBuilder(const CheckpointFiles& files, const FusedOverride& override,
                           std::string_view prefix, int32_t number, LayerData& out)
    : files_(files), override_(override), prefix_(prefix), number_(number), out_(out) {
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
    fail(MOE_ERROR_NOT_FOUND, "{}: there is no tensor '{}'{}", files_.name(),
         printable(full_name(name)).text, files_.absent_parts());
}

int64_t LayerBuilder::dimension(const TensorEntry& entry, uint32_t index) const {
    if (index < entry.rank) return entry.shape[index];
    fail_entry(MOE_ERROR_CORRUPT_FILE, entry,
               fmt::format("has shape {}, too few dimensions", shape_text(entry.dims())));
}

void LayerBuilder::fail_missing(std::string_view what) const {
    const TensorEntry* first = files_.index.find_prefix(full_name("experts."));
    fail(MOE_ERROR_NOT_FOUND,
         "{}: there is no tensor {} under '{}'; the first of its experts is '{}'{}", files_.name(),
         what, printable(prefix_).text, first ? printable(first->name).text : "none",
         files_.absent_parts());
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

void LayerBuilder::fail_beside(const TensorEntry& entry, std::string_view format) const {
    fail_entry(MOE_ERROR_UNSUPPORTED, entry, fmt::format("beside a weight in {}", format));
}

const std::byte* LayerBuilder::pointer(const TensorEntry& entry) const {
    const std::byte* base = files_.files[entry.file].mapped();
    return base ? base + entry.offset : nullptr;
}

void LayerBuilder::check_shape(const TensorEntry& entry, std::initializer_list<int64_t> wanted,
                               bool ignore_leading_ones, std::string_view why) const {
    std::span<const int64_t> want(wanted.begin(), wanted.size());
    std::span<const int64_t> got = entry.dims();
    if (ignore_leading_ones) {
        want = without_leading_ones(want);
        got = without_leading_ones(got);
    }
    if (std::equal(want.begin(), want.end(), got.begin(), got.end())) return;
    fail_entry(MOE_ERROR_CORRUPT_FILE, entry,
               fmt::format("has shape {}, {} is wanted{}", shape_text(entry.dims()),
                           shape_text(want), why));
}

// GGUF drops trailing dimensions of one, which are the leading ones here.
void LayerBuilder::check_matrix(const TensorEntry& entry, const Wanted& wanted, int64_t rows,
                                int64_t columns) const {
    if (wanted.expert == MOE_ALL_EXPERTS) {
        check_shape(entry, {count_of(wanted) + wanted.unread_experts, rows, columns},
                    files_.is_gguf);
    } else {
        check_shape(entry, {rows, columns}, files_.is_gguf);
    }
}

int64_t LayerBuilder::count_of(const Wanted& wanted) const {
    if (wanted.expert != MOE_ALL_EXPERTS) return 1;
    return wanted.n_stacked ? wanted.n_stacked : out_.desc.n_experts;
}

LayerTensor& LayerBuilder::append(const TensorEntry& entry, const Wanted& wanted) {
    read_.push_back(&entry);
    LayerTensor& added = out_.tensors.emplace_back();
    added.name = entry.name;
    added.data = range_of(entry);
    moe_tensor& tensor = added.tensor;
    tensor.struct_size = sizeof tensor;
    tensor.role = wanted.role;
    tensor.expert = wanted.expert;
    tensor.n_experts = wanted.expert == MOE_ALL_EXPERTS ? count_of(wanted) : 0;
    tensor.rows = wanted.rows;
    tensor.columns = wanted.columns;
    tensor.data = pointer(entry);
    tensor.data_bytes = entry.bytes;
    if (wanted.role == MOE_ROLE_GATE_UP || wanted.role == MOE_ROLE_GATE_UP_BIAS ||
        wanted.role == MOE_ROLE_SHARED_GATE_UP) {
        tensor.gate_up_order = resolve(wanted.form).order;
    }
    return added;
}

void LayerBuilder::set_range(const TensorEntry& entry, FileRange& range, const void*& data,
                             uint64_t& bytes) {
    read_.push_back(&entry);
    range = range_of(entry);
    data = pointer(entry);
    bytes = entry.bytes;
}

void LayerBuilder::set_scales(LayerTensor& tensor, const TensorEntry& entry) {
    set_range(entry, tensor.scales, tensor.tensor.scales, tensor.tensor.scale_bytes);
}

void LayerBuilder::check_separate(const TensorEntry& entry, const Wanted& wanted) const {
    if (wanted.expert != MOE_ALL_EXPERTS && wanted.role != MOE_ROLE_GATE_UP) return;
    fail_entry(MOE_ERROR_UNSUPPORTED, entry,
               fmt::format("type {} in a merged tensor of experts", entry.type_name()));
}

FusedForm LayerBuilder::resolve(const FusedForm& form) const {
    FusedForm out = form;
    if (override_.has_orientation) out.orientation = override_.orientation;
    if (override_.gate_up_order != MOE_GATE_UP_NONE) out.order = override_.gate_up_order;
    return out;
}

void LayerBuilder::require_type(const TensorEntry& entry,
                                std::initializer_list<moe_type> types) const {
    if (std::find(types.begin(), types.end(), entry.element->type) != types.end()) return;
    std::string wanted;
    for (const moe_type type : types) {
        if (!wanted.empty()) wanted += " or ";
        for (const char* c = type_name(type); *c; ++c)
            wanted += static_cast<char>(std::toupper(*c));
    }
    fail_entry(MOE_ERROR_UNSUPPORTED, entry,
               fmt::format("is {}, {} is wanted", entry.type_name(), wanted));
}

const float* LayerBuilder::read_floats(const TensorEntry& entry, int64_t count) {
    read_.push_back(&entry);
    const moe_type type = entry.element->type;
    require_type(entry, {MOE_TYPE_F32, MOE_TYPE_BF16, MOE_TYPE_F16});
    const auto size = static_cast<uint64_t>(element_bytes(type));
    const auto n = static_cast<uint64_t>(count);
    if (entry.bytes / size != n) {
        fail_entry(
            MOE_ERROR_CORRUPT_FILE, entry,
            fmt::format("has shape {}, {} values are wanted", shape_text(entry.dims()), count));
    }
    float* values = new_floats(count);
    // Narrow ones go to the end first, and are widened from the front.
    auto* bytes = reinterpret_cast<std::byte*>(values) + n * (sizeof(float) - size);
    files_.files[entry.file].read(entry.offset, entry.bytes, bytes);
    if (type == MOE_TYPE_F32) return values;
    for (uint64_t i = 0; i < n; ++i) {
        const auto half = load<uint16_t>(bytes + 2 * i);
        values[i] = type == MOE_TYPE_F16 ? f16_to_float(half) : bf16_to_float(half);
    }
    return values;
}

void LayerBuilder::read_global_scale(LayerTensor& tensor, const TensorEntry& entry,
                                     const Wanted& wanted) {
    const int64_t count = count_of(wanted);
    tensor.tensor.global_scale = read_floats(entry, count);
    tensor.tensor.n_global_scales = count;
}

void LayerBuilder::read_input_scale(LayerTensor& tensor, std::string_view stem,
                                    const Wanted& wanted) {
    const TensorEntry* entry = find(std::string(stem) + ".input_scale");
    const TensorEntry* inverse = entry ? nullptr : find(std::string(stem) + ".input_global_scale");
    if (!entry && !inverse) return;
    const int64_t count = count_of(wanted);
    const float* values = read_floats(entry ? *entry : *inverse, count);
    tensor.tensor.n_input_scales = count;
    tensor.tensor.input_scale = values;
    if (entry) return;
    // compressed-tensors multiplies activations by its scale, where others divide.
    float* scales = new_floats(count);
    for (int64_t i = 0; i < count; ++i) scales[i] = 1.0f / values[i];
    tensor.tensor.input_scale = scales;
}

// Formats without zero points or a scale of the activations must not have one beside them: it would
// be left out silently. So would be the low-rank part that ModelOpt's SVDQuant adds to a weight.
void LayerBuilder::read_companions(LayerTensor& tensor, std::string_view stem,
                                   const Wanted& wanted) {
    const TensorEntry* zeros = find(std::string(stem) + ".weight_zero_point");
    if (zeros && tensor.format.zero_point == MOE_ZERO_POINT_NONE) {
        // Some versions of compressed-tensors wrote those of symmetric codes, too.
        if (!is_all_zero(*zeros)) fail_beside(*zeros, format_name(tensor.format).text);
        read_.push_back(zeros);
    }
    if (const TensorEntry* part = find(std::string(stem) + ".svdquant_lora_a"))
        fail_beside(*part, format_name(tensor.format).text);
    const TensorEntry* entry = find(std::string(stem) + ".pre_quant_scale");
    if (!entry) return;
    check_shape(*entry, {wanted.columns}, true);
    tensor.format.pre_quant_scale = 1;
    if (!find_format(tensor.format)) fail_beside(*entry, format_name(tensor.format).text);
    tensor.tensor.pre_quant_scale = read_floats(*entry, wanted.columns);
    tensor.tensor.pre_quant_scale_bytes = static_cast<uint64_t>(wanted.columns) * sizeof(float);
}

LayerBuilder::WeightName::WeightName(std::string_view given) : name(given), stem(given) {
    constexpr std::string_view suffix = ".weight";
    if (given.ends_with(suffix)) stem.resize(given.size() - suffix.size());
}

bool LayerBuilder::has_weight(std::string_view name) const {
    const std::string stem = WeightName(name).stem;
    return find(name) || find(stem + ".qweight") || find(stem + ".weight_packed") ||
           find(stem + ".weight_planes") || find(torchao_name(name, "qdata"));
}

int64_t LayerBuilder::rows_of(std::string_view name) const {
    const std::string stem = WeightName(name).stem;
    // GPTQ and AWQ have the rows of the matrix along the columns of the scales.
    if (find(stem + ".qweight")) return dimension(get(stem + ".scales"), 1);
    if (const TensorEntry* packed = find(stem + ".weight_packed")) return dimension(*packed, 0);
    if (const TensorEntry* planes = find(stem + ".weight_planes")) return dimension(*planes, 0);
    if (const TensorEntry* codes = find(torchao_name(name, "qdata"))) return dimension(*codes, 0);
    if (const TensorEntry* state = bnb_state(stem)) return bnb_rows(*state);
    return dimension(get(name), 0);
}

// Those whose codes are recognised by the name of their tensor.
bool LayerBuilder::add_quantised(const WeightName& of, const Wanted& wanted) {
    const std::string& stem = of.stem;
    if (const TensorEntry* codes = find(stem + ".qweight"))
        return add_qweight(stem, *codes, wanted), true;
    if (const TensorEntry* packed = find(stem + ".weight_packed")) {
        if (packed->element->type == MOE_TYPE_U8 || packed->element->type == MOE_TYPE_E2M1)
            return add_fp4(of, *packed, wanted), true;
        return add_pack_quantized(stem, wanted), true;
    }
    if (find(stem + ".weight_planes")) return add_kbit(stem, wanted), true;
    if (const TensorEntry* codes = find(torchao_name(of.name, "qdata")))
        return add_torchao(of, *codes, wanted), true;
    return false;
}

void LayerBuilder::weight(std::string_view name, const Wanted& wanted) {
    const size_t first = out_.tensors.size();
    const WeightName of(name);
    refuse_transform(of.stem, wanted.role);
    add_weight(of, wanted);
    for (size_t i = first; i < out_.tensors.size(); ++i) {
        if (wanted.unread_experts && !is_plain(out_.tensors[i].format))
            fail(MOE_ERROR_UNSUPPORTED,
                 "tensor '{}{}': has identity experts too, which are read of a stack in floating "
                 "point alone, not in {}",
                 prefix_, of.name, format_name(out_.tensors[i].format).text);
        read_companions(out_.tensors[i], of.stem, wanted);
    }
    if (!wanted.n_stacked) return;
    for (size_t i = first, end = out_.tensors.size(); i < end; ++i) split_stack(i, wanted);
}

namespace {

// The e-th of n parts that lie one after the other.
void take_part(FileRange& range, const void*& data, uint64_t& bytes, uint64_t n, uint64_t e) {
    range.bytes /= n;
    range.offset += e * range.bytes;
    bytes /= n;
    if (data) data = static_cast<const std::byte*>(data) + e * bytes;
}

void take_part(const float*& values, int64_t& count, uint64_t e) {
    if (count <= 1) return;
    values += e;
    count = 1;
}

}  // namespace

void take_part(LayerTensor& one, uint64_t n, uint64_t e) {
    moe_tensor& tensor = one.tensor;
    take_part(one.data, tensor.data, tensor.data_bytes, n, e);
    take_part(one.scales, tensor.scales, tensor.scale_bytes, n, e);
    take_part(one.zero_points, tensor.zero_points, tensor.zero_point_bytes, n, e);
}

// A stack holds all experts of a layer or is one tensor for each: here the experts 0, 1 and so on
// of the stack become those from first_stacked on. The first one takes the place of the stack.
void LayerBuilder::split_stack(size_t index, const Wanted& wanted) {
    const LayerTensor stack = out_.tensors[index];
    const auto n = static_cast<uint64_t>(wanted.n_stacked);
    for (uint64_t e = 0; e < n; ++e) {
        LayerTensor one = stack;
        moe_tensor& tensor = one.tensor;
        tensor.expert = wanted.first_stacked + static_cast<int32_t>(e);
        tensor.n_experts = 0;
        take_part(one, n, e);
        take_part(tensor.global_scale, tensor.n_global_scales, e);
        take_part(tensor.input_scale, tensor.n_input_scales, e);
        if (e == 0)
            out_.tensors[index] = one;
        else
            out_.tensors.push_back(one);
    }
}

void LayerBuilder::add_weight(const WeightName& of, const Wanted& wanted) {
    if (add_quantised(of, wanted)) return;
    const std::string& stem = of.stem;
    const TensorEntry& entry = get(of.name);
    const moe_type type = entry.element->type;
    if (type == MOE_TYPE_GGUF) return add_gguf(of, entry, wanted);
    if (bnb_state(stem)) return add_bnb_4bit(stem, entry, wanted);
    if (find(of.name + ".absmax")) (void)get(of.name + ".quant_state.bitsandbytes__nf4");
    if (is_float_type(type)) {
        if (const TensorEntry* scales = find_scales(of); scales && !leaves_scale(wanted))
            if (!add_output_scale(std::string(scales->name.substr(prefix_.size())), wanted))
                fail_beside(*scales, entry.type_name());
        if (const TensorEntry* scales = find(stem + ".scales"))
            fail_beside(*scales, entry.type_name());
        return add_plain(entry, wanted);
    }
    if (entry.type_name() == "U32") return add_mlx(stem, entry, wanted);
    if (type == MOE_TYPE_F8_E4M3 || type == MOE_TYPE_F8_E5M2) return add_fp8(of, entry, wanted);
    if (type == MOE_TYPE_I8 && find(stem + ".SCB")) return add_int8(stem, entry, wanted);
    if (type == MOE_TYPE_I8 && has_float_scales(of)) return add_int8_grid(of, entry, wanted);
    const bool may_be_fp4 = type == MOE_TYPE_U8 || type == MOE_TYPE_I8 || type == MOE_TYPE_E2M1;
    if (may_be_fp4 && !files_.is_gguf) return add_fp4(of, entry, wanted);
    fail_entry(MOE_ERROR_UNSUPPORTED, entry, fmt::format("type {} is not read", entry.type_name()));
}

bool LayerBuilder::is_all_zero(const TensorEntry& entry) const {
    std::pmr::string bytes(entry.bytes, '\0', &files_.memory);
    files_.files[entry.file].read(entry.offset, entry.bytes, bytes.data());
    return bytes.find_first_not_of('\0') == bytes.npos;
}

bool LayerBuilder::has_float_scales(const WeightName& of) const {
    const TensorEntry* scales = find_scales(of);
    return scales && is_float_type(scales->element->type);
}

void LayerBuilder::add_plain(const TensorEntry& entry, const Wanted& wanted) {
    const bool transposed = is_transposed(wanted);
    if (transposed) {
        check_matrix(entry, wanted, wanted.columns, wanted.rows);
    } else {
        check_matrix(entry, wanted, wanted.rows, wanted.columns);
    }
    LayerTensor& tensor = append(entry, wanted);
    if (wanted.unread_experts) {
        const auto n = static_cast<uint64_t>(out_.desc.n_experts);
        tensor.data.bytes = entry.bytes / (n + static_cast<uint64_t>(wanted.unread_experts)) * n;
        tensor.tensor.data_bytes = tensor.data.bytes;
    }
    tensor.format = format_of(entry.element->type);
    tensor.tensor.orientation = transposed ? MOE_ORIENTATION_IN_OUT : MOE_ORIENTATION_OUT_IN;
}

void LayerBuilder::check_not_transposed(const TensorEntry& entry, const Wanted& wanted) const {
    if (!is_transposed(wanted)) return;
    fail_entry(MOE_ERROR_UNSUPPORTED, entry,
               fmt::format("orientation IN_OUT with type {}", entry.type_name()));
}

void LayerBuilder::add_gguf(const WeightName& of, const TensorEntry& entry, const Wanted& wanted) {
    check_not_transposed(entry, wanted);
    check_matrix(entry, wanted, wanted.rows, wanted.columns);
    LayerTensor& tensor = append(entry, wanted);
    tensor.format = gguf_format(entry.element->ggml_id);
    // NVFP4 blocks have a global scale per expert in a tensor of their own.
    const std::string scale_name = of.stem + ".scale";
    const TensorEntry* scale = find(scale_name);
    if (!scale || leaves_scale(wanted)) return;
    moe_format scaled = tensor.format;
    scaled.global_scale = MOE_GLOBAL_SCALE_MULTIPLY;
    if (find_format(scaled)) {
        tensor.format = scaled;
        return read_global_scale(tensor, *scale, wanted);
    }
    if (!add_output_scale(scale_name, wanted)) fail_beside(*scale, entry.type_name());
}

// Gemma-4's router has its norm under that name in a GGUF. Left unread, it is refused.
bool LayerBuilder::leaves_scale(const Wanted& wanted) const {
    return files_.is_gguf && wanted.role == MOE_ROLE_ROUTER;
}

// In a GGUF a factor for each expert beside the stack of down multiplies what the expert gives:
// Gemma-4's. A bias of down comes after it and would be multiplied as well.
bool LayerBuilder::add_output_scale(const std::string& name, const Wanted& wanted) {
    moe_layer_desc& desc = out_.desc;
    const bool is_stack = wanted.role == MOE_ROLE_DOWN && wanted.expert == MOE_ALL_EXPERTS;
    if (!files_.is_gguf || !is_stack || desc.has_down_bias) return false;
    desc.has_expert_scale = 1;
    vector(name, {MOE_ROLE_EXPERT_SCALE, 0, 1, desc.n_experts});
    return true;
}

void LayerBuilder::vector(std::string_view name, const Wanted& wanted) {
    const TensorEntry& entry = get(name);
    if (!is_float_type(entry.element->type)) {
        fail_entry(MOE_ERROR_UNSUPPORTED, entry,
                   fmt::format("a vector of type {} is not read", entry.type_name()));
    }
    if (wanted.expert == MOE_ALL_EXPERTS) {
        check_shape(entry, {count_of(wanted), wanted.columns}, files_.is_gguf);
    } else {
        check_shape(entry, {wanted.columns}, true);
    }
    append(entry, wanted).format = format_of(entry.element->type);
}

float* LayerBuilder::new_floats(int64_t n) {
    return static_cast<float*>(
        out_.values.allocate(static_cast<size_t>(n) * sizeof(float), alignof(float)));
}

// A vector whose values are not those of the file.
void LayerBuilder::append_made(const TensorEntry& entry, const Wanted& wanted,
                               const float* values) {
    LayerTensor& tensor = append(entry, wanted);
    tensor.format = format_of(MOE_TYPE_F32);
    tensor.data.bytes = 0;  // nothing to read: the values are here
    tensor.tensor.data = values;
    tensor.tensor.data_bytes = static_cast<uint64_t>(wanted.columns) * sizeof(float);
}

void LayerBuilder::vector_and(std::string_view name, const Wanted& wanted, float last, int32_t n) {
    const TensorEntry& entry = get(name);
    const int64_t n_read = wanted.columns - n;
    const float* read = read_floats(entry, n_read);
    float* values = new_floats(wanted.columns);
    std::fill_n(std::copy_n(read, n_read, values), n, last);
    append_made(entry, wanted, values);
}

void LayerBuilder::centred_vector(std::string_view name, const Wanted& wanted) {
    const TensorEntry& entry = get(name);
    check_shape(entry, {wanted.columns}, true);
    const float* stored = read_floats(entry, wanted.columns);
    float* values = new_floats(wanted.columns);
    const moe_type type = entry.element->type;
    std::transform(stored, stored + wanted.columns, values,
                   [&](float value) { return round_to_type(1.0f + value, type); });
    append_made(entry, wanted, values);
}

void LayerBuilder::flat_stack(std::string_view name, const Wanted& wanted) {
    const TensorEntry& entry = get(name);
    require_type(entry, {MOE_TYPE_F32, MOE_TYPE_BF16, MOE_TYPE_F16});
    const bool transposed = resolve(wanted.form).orientation == MOE_ORIENTATION_IN_OUT;
    const int64_t n = out_.desc.n_experts;
    if (transposed) {
        check_shape(entry, {n * wanted.columns, wanted.rows}, false);
    } else {
        check_shape(entry, {n * wanted.rows, wanted.columns}, false);
    }
    LayerTensor& tensor = append(entry, wanted);
    tensor.format = format_of(entry.element->type);
    tensor.tensor.orientation = transposed ? MOE_ORIENTATION_IN_OUT : MOE_ORIENTATION_OUT_IN;
}

void LayerBuilder::table(std::string_view name, const Wanted& wanted) {
    const TensorEntry& entry = get(name);
    require_type(entry, {MOE_TYPE_I32, MOE_TYPE_I64});
    check_shape(entry, {wanted.rows, wanted.columns}, false);
    append(entry, wanted).format = format_of(entry.element->type);
}

void LayerBuilder::drop_needless_orders() {
    const auto is_out_of_order = [](const LayerTensor& one) {
        const moe_tensor& tensor = one.tensor;
        if (!one.format.act_order || !tensor.permutation) return one.format.act_order != 0;
        const int64_t size = group_extent(one.format.group_columns);
        for (int64_t k = 0; k < tensor.columns; ++k)
            if (tensor.permutation[k] != k / size) return true;
        return false;
    };
    if (std::any_of(out_.tensors.begin(), out_.tensors.end(), is_out_of_order)) return;
    for (LayerTensor& tensor : out_.tensors) tensor.format.act_order = 0;
}

// Experts that calibration did not reach have none where the others have one: it is one.
void LayerBuilder::complete_pre_quant_scales() {
    std::array<const LayerTensor*, MOE_ROLE_COUNT> scaled{};
    for (const LayerTensor& tensor : out_.tensors)
        if (tensor.format.pre_quant_scale) scaled[tensor.tensor.role] = &tensor;
    const float* ones = nullptr;
    int64_t n_ones = 0;
    for (LayerTensor& tensor : out_.tensors) {
        const LayerTensor* other = scaled[tensor.tensor.role];
        if (!other || tensor.format.pre_quant_scale) continue;
        moe_format format = tensor.format;
        format.pre_quant_scale = 1;
        if (!same_format(other->format, format)) continue;
        const int64_t n = tensor.tensor.columns;
        const uint64_t bytes = static_cast<uint64_t>(n) * sizeof(float);
        if (n_ones < n) {
            float* values = new_floats(n);
            std::fill(values, values + n, 1.0f);
            ones = values;
            n_ones = n;
        }
        tensor.format = format;
        tensor.tensor.pre_quant_scale = ones;
        tensor.tensor.pre_quant_scale_bytes = bytes;
    }
}

void LayerBuilder::finish() {
    drop_needless_orders();
    complete_pre_quant_scales();
    for (LayerTensor& tensor : out_.tensors) tensor.tensor.format = &tensor.format;
    refuse_all_unread();
}

}  // namespace moe
