// Matrices of packed integers (GPTQ, AWQ, AutoRound, compressed-tensors, W4AFP8) and of
// bitsandbytes as the tools write them, and kbit codes as `moe quantize` does.
#include <algorithm>
#include <array>
#include <string>

#include "libmoe/base/checked.hpp"
#include "libmoe/base/element.hpp"
#include "libmoe/checkpoint/json.hpp"
#include "libmoe/checkpoint/layer_builder.hpp"
#include "libmoe/checkpoint/printable.hpp"
#include "libmoe/formats/format.hpp"
#include "libmoe/formats/int_codes.hpp"

namespace moe {
namespace {

constexpr int32_t most_config_groups = 16;
constexpr int64_t largest_bits = 8;
constexpr int64_t kbit_group = 32;
constexpr uint64_t largest_state = 65536;  // bytes of bitsandbytes' JSON

}  // namespace

// Columns that share a scale: what the configuration says where it makes `groups` of them, else
// what divides them evenly. One group is -1.
int32_t LayerBuilder::group_size(const TensorEntry& scales, const SettingsPart& part,
                                 int64_t groups, int64_t columns) const {
    if (groups == 1) return -1;
    std::vector<std::string> keys = {"group_size"};
    for (int32_t i = 0; i < most_config_groups; ++i)
        keys.push_back(fmt::format("config_groups.group_{}.weights.group_size", i));
    for (const std::string& key : keys) {
        const auto size = part.find_integer(key, -1, 1 << 24);
        if (size && *size > 0 && divide_up(columns, *size) == groups)
            return static_cast<int32_t>(*size);
    }
    if (groups < 1 || columns % groups != 0)
        fail_entry(MOE_ERROR_CORRUPT_FILE, scales,
                   fmt::format("has {} groups of {} columns, which no group_size of the "
                               "configuration gives",
                               groups, columns));
    return static_cast<int32_t>(columns / groups);
}

// The group of every column, kept unless all are -1, which compressed-tensors writes for "none".
// False where they are in order.
bool LayerBuilder::read_group_index(const TensorEntry& entry, int64_t groups, int32_t group,
                                    const Wanted& wanted, moe_tensor& tensor) {
    require_type(entry, {MOE_TYPE_I32});
    check_shape(entry, {wanted.columns}, true);
    read_.push_back(&entry);
    auto* index = static_cast<int32_t*>(out_.values.allocate(entry.bytes, alignof(int32_t)));
    files_.files[entry.file].read(entry.offset, entry.bytes, index);
    if (std::all_of(index, index + wanted.columns, [](int32_t g) { return g == -1; })) return false;
    const int64_t size = group_extent(group);
    bool in_order = true;
    for (int64_t k = 0; k < wanted.columns; ++k) {
        if (index[k] < 0 || index[k] >= groups)
            fail_entry(
                MOE_ERROR_CORRUPT_FILE, entry,
                fmt::format("the group of column {} is {}, there are {}", k, index[k], groups));
        in_order = in_order && index[k] == k / size;
    }
    tensor.permutation = index;
    tensor.permutation_bytes = entry.bytes;
    return !in_order;
}

// What GPTQ and AWQ have in common: qweight int32 of two dimensions, scales [groups, rows], qzeros
// int32 [groups, rows * bits / 32]; the format as `packing` and `zero_point` have it.
LayerTensor& LayerBuilder::add_transposed_int(const std::string& stem, const SettingsPart& part,
                                              const Wanted& wanted, const moe_format& start) {
    const TensorEntry& entry = get(stem + ".qweight");
    const TensorEntry& scales = get(stem + ".scales");
    const TensorEntry& zeros = get(stem + ".qzeros");
    require_type(entry, {MOE_TYPE_I32});
    require_type(zeros, {MOE_TYPE_I32});
    require_type(scales, {MOE_TYPE_F16, MOE_TYPE_BF16, MOE_TYPE_F32});
    const int64_t packed_rows = wanted.rows * start.bits / 32;
    const int64_t groups = dimension(scales, 0);
    const int32_t group = group_size(scales, part, groups, wanted.columns);
    if (start.packing == MOE_PACKING_AWQ)
        check_shape(entry, {wanted.columns, packed_rows}, false);
    else
        check_shape(entry, {wanted.columns * start.bits / 32, wanted.rows}, false,
                    fmt::format(" for the {} bits of the configuration", start.bits));
    check_shape(scales, {groups, wanted.rows}, false);
    check_shape(zeros, {groups, packed_rows}, false);
    LayerTensor& tensor = append(entry, wanted);
    tensor.format = start;
    tensor.format.group_columns = group;
    tensor.format.scale_type = scales.element->type;
    set_scales(tensor, scales);
    set_range(zeros, tensor.zero_points, tensor.tensor.zero_points, tensor.tensor.zero_point_bytes);
    return tensor;
}

// Symmetric quantisation has the middle of the codes for every zero point. Some writers store it as
// one version of the format and say the other one.
void LayerBuilder::check_symmetric_zeros(const TensorEntry& zeros, int32_t bits, bool is_v2) const {
    std::pmr::vector<uint32_t> words(zeros.bytes / 4, out_.values.upstream_resource());
    files_.files[zeros.file].read(zeros.offset, zeros.bytes, words.data());
    const auto first_word_unlike = [&](uint32_t code) {
        std::array<uint32_t, largest_bits> of_32{};  // words of 32 codes
        for (int32_t i = 0; i < 32 * bits; ++i)
            of_32[static_cast<size_t>(i / 32)] |= (code >> i % bits & 1u) << i % 32;
        const auto row = static_cast<size_t>(dimension(zeros, 1));
        size_t at = 0;
        while (at < words.size() && words[at] == of_32[at % row % static_cast<size_t>(bits)]) ++at;
        return at;
    };
    const uint32_t middle = 1u << (bits - 1);
    const size_t at = first_word_unlike(is_v2 ? middle : middle - 1);
    if (at == words.size()) return;
    if (const auto packing = quantization().find_text("packing_format"))
        fail_entry(MOE_ERROR_CORRUPT_FILE, zeros,
                   fmt::format("word {} is {:#010x}: not all zero points are {}, as sym says in "
                               "packing_format {}",
                               at, words[at], middle, printable(*packing).text));
    const bool is_other = first_word_unlike(is_v2 ? middle - 1 : middle) == words.size();
    const char* const version = is_v2 ? "gptq_v2" : "gptq";
    fail_entry(MOE_ERROR_CORRUPT_FILE, zeros,
               is_other
                   ? fmt::format("holds the zero points of checkpoint_format {}, but the "
                                 "configuration says {}, and sym",
                                 is_v2 ? "gptq" : "gptq_v2", version)
                   : fmt::format("word {} is {:#010x}: not all zero points are {}, as sym says "
                                 "in checkpoint_format {}",
                                 at, words[at], middle, version));
}

// Whose packing the configuration names.
LayerBuilder::IntCodes LayerBuilder::int_codes(const TensorEntry& entry,
                                               const SettingsPart& part) const {
    auto method = part.find_text("quant_method");
    if (!method && files_.is_autogptq_file) method = "gptq";
    if (!method)
        fail_entry(MOE_ERROR_NOT_FOUND, entry,
                   fmt::format("{} has no quant_method, which says whether this is GPTQ or AWQ",
                               settings().file()));
    const auto unread = [&](const char* what, std::string_view value, const char* more = "") {
        fail_entry(MOE_ERROR_UNSUPPORTED, entry,
                   fmt::format("{} '{}'{} is not read: its shape is {}", what,
                               printable(value).text, more, shape_text(entry.dims())));
    };
    if (const auto rotation = part.find_text("rotation"); rotation && !rotation->empty())
        unread("rotation", *rotation);
    if (method == "auto-round" || method == "intel/auto-round") return autoround_codes(entry, part);
    if (method == "awq") {
        for (const char* key : {"version", "checkpoint_format"}) {
            const auto layout = part.find_text(key).value_or("gemm");
            if (layout != "gemm" && layout != "GEMM") unread("the AWQ layout", layout);
        }
        return IntCodes::Awq;
    }
    if (method != "gptq") unread("quant_method", *method, ", neither gptq nor awq,");
    auto version = part.find_text("checkpoint_format");
    if (!version) version = part.find_text("format");
    if (version == "gptq_v2") return IntCodes::GptqV2;
    if (version && version != "gptq") unread("checkpoint_format", *version);
    return IntCodes::GptqV1;
}

// Its own packing stores zero points as they are, those named after AutoGPTQ one less. Old files
// have the name in `backend`, with that of a kernel behind.
LayerBuilder::IntCodes LayerBuilder::autoround_codes(const TensorEntry& entry,
                                                     const SettingsPart& part) const {
    constexpr struct {
        std::string_view name;
        IntCodes codes;
    } packings[] = {{"auto_round:auto_gptq", IntCodes::GptqV1},
                    {"auto_round:gptq", IntCodes::GptqV1},
                    {"auto_gptq", IntCodes::GptqV1},
                    {"auto_round:gptqmodel", IntCodes::GptqV2},
                    {"auto_round", IntCodes::GptqV2},
                    {"auto_round:auto_awq", IntCodes::Awq},
                    {"auto_round:awq", IntCodes::Awq}};
    const auto named = part.find_text("packing_format");
    const auto written = named ? named : part.find_text("backend");
    if (!written)
        fail_entry(MOE_ERROR_NOT_FOUND, entry,
                   fmt::format("{} has no packing_format, which says how it is packed",
                               settings().file()));
    std::string_view name = *written;
    for (const std::string_view kernel : {":exllamav2", ":tritonv2", ":triton", ":marlin"})
        if (name.ends_with(kernel)) name.remove_suffix(kernel.size());
    const auto unread = [&](const char* key, std::string_view value) {
        fail_entry(MOE_ERROR_UNSUPPORTED, entry,
                   fmt::format("{} '{}' of AutoRound is not read", key, printable(value).text));
    };
    const auto type = part.find_text("data_type").value_or("int");
    if (!type.starts_with("int")) unread("data_type", type);
    const auto bits = part.find_integer("act_bits", 0, 64).value_or(16);
    if (bits < 16) unread("act_bits", std::to_string(bits));
    for (const auto& packing : packings)
        if (packing.name == name) return packing.codes;
    unread(named ? "packing_format" : "backend", *written);
    return {};
}

void LayerBuilder::add_qweight(const std::string& stem, const TensorEntry& entry,
                               const Wanted& wanted) {
    const ModuleRule* rule = files_.rules.find(full_name(stem));
    if (rule && rule->is_exception)
        fail_entry(MOE_ERROR_CORRUPT_FILE, entry,
                   fmt::format("is quantised, but '{}' of '{}' in {} excepts it",
                               printable(rule->written).text, rule->list, settings().file()));
    const SettingsPart part = files_.quantization_of(rule);
    const IntCodes codes = int_codes(entry, part);
    check_separate(entry, wanted);
    if (codes == IntCodes::Awq) return add_awq(stem, part, wanted);
    add_gptq(stem, part, codes == IntCodes::GptqV2, wanted);
}

// desc_act decides the format, so that all experts have one, unless all are in order (finish); a
// g_idx out of order without it is refused.
void LayerBuilder::add_gptq(const std::string& stem, const SettingsPart& part, bool is_v2,
                            const Wanted& wanted) {
    const int64_t bits = part.integer("bits", 1, largest_bits);
    moe_format format = gptq_format.format;
    format.bits = static_cast<int32_t>(bits);
    if (is_v2) format.zero_point = MOE_ZERO_POINT_PACKED;
    LayerTensor& tensor = add_transposed_int(stem, part, wanted, format);
    if (part.find_flag("sym").value_or(false))
        check_symmetric_zeros(get(stem + ".qzeros"), format.bits, is_v2);
    const bool act_order = part.find_flag("desc_act").value_or(false);
    tensor.format.act_order = act_order;
    const TensorEntry* index = find(stem + ".g_idx");
    if (!index) {
        if (act_order) (void)get(stem + ".g_idx");
        return;
    }
    const TensorEntry& scales = get(stem + ".scales");
    const bool permuted = read_group_index(*index, dimension(scales, 0),
                                           tensor.format.group_columns, wanted, tensor.tensor);
    if (permuted && !act_order)
        fail_entry(MOE_ERROR_CORRUPT_FILE, *index, "is out of order, but desc_act is not true");
}

void LayerBuilder::add_awq(const std::string& stem, const SettingsPart& part,
                           const Wanted& wanted) {
    (void)add_transposed_int(stem, part, wanted, awq_format.format);
}

// Bits of a code, from the words of a row. Few columns leave a choice, which the configuration
// makes.
int64_t LayerBuilder::packed_bits(const TensorEntry& entry, const SettingsPart& part,
                                  int64_t columns) const {
    const int64_t words = dimension(entry, 1);
    const auto fits = [&](int64_t bits) { return divide_up(columns * bits, 32) == words; };
    int64_t least = 1, most = largest_bits;
    while (least < largest_bits && !fits(least)) ++least;
    while (most > least && !fits(most)) --most;
    if (least == most) return least;
    std::vector<std::string> keys = {"num_bits"};
    for (int32_t i = 0; i < most_config_groups && !part.is_of_module(); ++i)
        keys.push_back(fmt::format("config_groups.group_{}.weights.num_bits", i));
    for (const std::string& key : keys) {
        const auto bits = part.find_integer(key, 1, largest_bits);
        if (bits && fits(*bits)) return *bits;
    }
    fail_entry(
        MOE_ERROR_CORRUPT_FILE, entry,
        fmt::format("has {} words for {} columns, which are {} to {} bits; no num_bits of the "
                    "configuration says which",
                    words, columns, least, most));
}

// The group of the module; where none names it, those that say anything. A flag as "true" or
// "false".
bool LayerBuilder::every_group_says(const SettingsPart& part, const char* key,
                                    std::string_view text) {
    const bool is_flag = text == "true" || text == "false";
    const auto is_said = [&](const std::string& name) {
        return is_flag ? part.find_flag(name) == (text == "true") : part.find_text(name) == text;
    };
    if (part.is_of_module()) return is_said(key);
    bool says = false;
    for (int32_t i = 0; i < most_config_groups; ++i) {
        const std::string name = fmt::format("config_groups.group_{}.weights.{}", i, key);
        if (!part.has(name)) continue;
        if (!is_said(name)) return false;
        says = true;
    }
    return says;
}

// What the tool says the sizes are, where it says them.
void LayerBuilder::check_weight_shape(const std::string& stem, const Wanted& wanted) const {
    const TensorEntry* entry = find(stem + ".weight_shape");
    if (!entry) return;
    require_type(*entry, {MOE_TYPE_I64, MOE_TYPE_I32});
    check_shape(*entry, {2}, false);
    int64_t sizes[2] = {};
    const uint64_t each = entry->bytes / 2;  // the low bytes of zeroed integers
    for (uint64_t i = 0; i < 2; ++i)
        files_.files[entry->file].read(entry->offset + i * each, each, &sizes[i]);
    if (sizes[0] == wanted.rows && sizes[1] == wanted.columns) return;
    fail_entry(
        MOE_ERROR_CORRUPT_FILE, *entry,
        fmt::format("is {}, {} is wanted", shape_text(sizes),
                    shape_text(std::initializer_list<int64_t>{wanted.rows, wanted.columns})));
}

// weight_packed [rows, ceil(columns * bits / 32)], weight_scale [rows, groups] or [1],
// weight_zero_point [ceil(rows * bits / 32), groups], weight_g_idx [columns].
void LayerBuilder::add_pack_quantized(const std::string& stem, const Wanted& wanted) {
    const TensorEntry& entry = get(stem + ".weight_packed");
    const TensorEntry& scales = get(stem + ".weight_scale");
    check_separate(entry, wanted);
    require_type(entry, {MOE_TYPE_I32});
    require_type(scales, {MOE_TYPE_F16, MOE_TYPE_BF16, MOE_TYPE_F32});
    check_weight_shape(stem, wanted);
    const SettingsPart part = quantization_of(stem);
    const int64_t bits = packed_bits(entry, part, wanted.columns);
    check_shape(entry, {wanted.rows, divide_up(wanted.columns * bits, 32)}, false);
    const bool per_tensor = scales.rank < 2 && wanted.rows != 1;
    const int64_t groups = scales.rank < 2 ? 1 : scales.shape[1];
    const int32_t group = group_size(scales, part, groups, wanted.columns);
    if (per_tensor)
        check_shape(scales, {1}, false);
    else
        check_shape(scales, {wanted.rows, groups}, true);
    LayerTensor& tensor = append(entry, wanted);
    tensor.format = int_format(MOE_PACKING_BIT_STREAM, static_cast<int32_t>(bits), group,
                               scales.element->type, MOE_ZERO_POINT_MIDDLE);
    if (per_tensor) tensor.format.group_rows = -1;
    set_scales(tensor, scales);
    if (const TensorEntry* zeros = find(stem + ".weight_zero_point")) {
        require_type(*zeros, {MOE_TYPE_I32});
        check_shape(*zeros, {divide_up(wanted.rows * bits, 32), groups}, false);
        set_range(*zeros, tensor.zero_points, tensor.tensor.zero_points,
                  tensor.tensor.zero_point_bytes);
        tensor.format.zero_point = MOE_ZERO_POINT_PACKED;
    } else if (every_group_says(part, "symmetric", "false")) {
        (void)get(stem + ".weight_zero_point");
    }
    const TensorEntry* index = find(stem + ".weight_g_idx");
    if (!index) {
        if (every_group_says(part, "actorder", "group")) (void)get(stem + ".weight_g_idx");
        return;
    }
    (void)read_group_index(*index, groups, group, wanted, tensor.tensor);
    tensor.format.act_order = tensor.tensor.permutation != nullptr;
}

// bitsandbytes: weight I8 [rows, columns], SCB F32 [rows], 127 times the scale.
void LayerBuilder::add_int8(const std::string& stem, const TensorEntry& entry,
                            const Wanted& wanted) {
    const TensorEntry& scb = get(stem + ".SCB");
    check_separate(entry, wanted);
    check_matrix(entry, wanted, wanted.rows, wanted.columns);
    check_shape(scb, {wanted.rows}, false);
    const float* values = read_floats(scb, wanted.rows);
    const auto n = static_cast<size_t>(wanted.rows);
    auto* scales = static_cast<float*>(out_.values.allocate(n * sizeof(float), alignof(float)));
    for (size_t i = 0; i < n; ++i) scales[i] = values[i] / 127.0f;
    LayerTensor& tensor = append(entry, wanted);
    tensor.format = format_of(MOE_TYPE_I8);
    tensor.format.group_rows = 1;
    tensor.format.group_columns = -1;
    tensor.format.scale_type = MOE_TYPE_F32;
    tensor.tensor.scales = scales;
    tensor.tensor.scale_bytes = n * sizeof(float);
}

// Weights made for int8 activations: bytes under the scale of a block, a row or the matrix. The
// scales become float32.
void LayerBuilder::add_int8_grid(const WeightName& of, const TensorEntry& entry,
                                 const Wanted& wanted) {
    if (entry.rank > 0 && entry.dims().back() == wanted.columns / 2 && !is_transposed(wanted))
        return says_fp4(of, entry) ? add_fp4(of, entry, wanted) : add_int4(of, entry, wanted);
    (void)add_grid(of, MOE_TYPE_I8, MOE_TYPE_F32, entry, get_scales(of), wanted);
}

// W4AFP8: two codes of 4 bits in a byte, two's complement, the even column in the low half, and a
// scale for each group of columns of a row. The activations' type does not matter here.
void LayerBuilder::add_int4(const WeightName& of, const TensorEntry& entry, const Wanted& wanted) {
    const SettingsPart part = quantization_of(of.stem);
    const auto method = part.find_text("quant_method").value_or("");
    if (method != "w4afp8")
        fail_entry(MOE_ERROR_UNSUPPORTED, entry,
                   fmt::format("two codes of 4 bits in a byte are read for quant_method 'w4afp8', "
                               "not '{}'",
                               printable(method).text));
    const TensorEntry& scales = get_scales(of);
    check_matrix(entry, wanted, wanted.rows, wanted.columns / 2);
    const int64_t groups = scales.rank > 0 ? scales.dims().back() : 0;
    check_matrix(scales, wanted, wanted.rows, groups);
    LayerTensor& tensor = append(entry, wanted);
    tensor.format = int_format(MOE_PACKING_NIBBLE_LOW_FIRST, 4,
                               group_size(scales, part, groups, wanted.columns),
                               scales.element->type, MOE_ZERO_POINT_NONE);
    if (!find_format(tensor.format))
        fail_entry(MOE_ERROR_CORRUPT_FILE, scales,
                   fmt::format("groups of {} columns share bytes", tensor.format.group_columns));
    set_scales(tensor, scales);
    read_input_scale(tensor, of.stem, wanted);
}

// weight_planes I32 [rows, columns / 32 * bits], weight_absmax [rows, columns / 32]: bytes of E4M4,
// or float32. The width follows from the shape; the codebook is the normal-float one of that width.
void LayerBuilder::add_kbit(const std::string& stem, const Wanted& wanted) {
    const TensorEntry& entry = get(stem + ".weight_planes");
    const TensorEntry& scales = get(stem + ".weight_absmax");
    check_separate(entry, wanted);
    require_type(entry, {MOE_TYPE_I32});
    require_type(scales, {MOE_TYPE_U8, MOE_TYPE_F32});
    if (wanted.columns % kbit_group != 0)
        fail_entry(MOE_ERROR_CORRUPT_FILE, entry,
                   fmt::format("{} columns are not a multiple of {}", wanted.columns, kbit_group));
    const int64_t groups = wanted.columns / kbit_group;
    const int64_t bits = std::clamp<int64_t>(dimension(entry, 1) / groups, 2, 5);
    check_shape(entry, {wanted.rows, groups * bits}, false);
    check_shape(scales, {wanted.rows, groups}, false);
    const bool is_float = scales.element->type == MOE_TYPE_F32;
    LayerTensor& tensor = append(entry, wanted);
    tensor.format =
        find_format(fmt::format("kbit{}{}", bits, is_float ? "_f32" : "").c_str())->format;
    tensor.format.struct_size = sizeof tensor.format;
    set_scales(tensor, scales);
}

const TensorEntry* LayerBuilder::bnb_state(const std::string& stem) const {
    const TensorEntry* state = find(stem + ".weight.quant_state.bitsandbytes__nf4");
    return state ? state : find(stem + ".weight.quant_state.bitsandbytes__fp4");
}

namespace {

// The JSON that bitsandbytes writes as a tensor of bytes.
struct BnbState {
    BnbState(const File& file, const TensorEntry& entry)
        : name(fmt::format("{}: tensor '{}'", file.name(), printable(entry.name).text)),
          settings(*std::pmr::get_default_resource(), name) {
        if (entry.bytes > largest_state)
            fail(MOE_ERROR_CORRUPT_FILE, "{}: has {} bytes, at most {} are read", name, entry.bytes,
                 largest_state);
        std::string text(entry.bytes, '\0');
        file.read(entry.offset, entry.bytes, text.data());
        read_settings_json(text, name, settings);
    }
    std::string name;
    Settings settings;
};

}  // namespace

int64_t LayerBuilder::bnb_rows(const TensorEntry& state) const {
    return BnbState(files_.files[state.file], state)
        .settings.integer({"shape.0"}, 1, int64_t{1} << 24);
}

// weight U8 [elements / 2, 1], or the same bytes as fewer elements of a wider type
// (bnb_4bit_quant_storage); absmax F32 [blocks]; nested: absmax U8, nested_absmax F32,
// nested_quant_map F32 [256] and nested_offset in the JSON of quant_state.
void LayerBuilder::add_bnb_4bit(const std::string& stem, const TensorEntry& entry,
                                const Wanted& wanted) {
    const TensorEntry& state_entry = *bnb_state(stem);
    read_.push_back(&state_entry);
    const BnbState state(files_.files[state_entry.file], state_entry);
    check_separate(entry, wanted);
    const auto expect = [&](const char* key, int64_t value) {
        const int64_t got = state.settings.integer({key}, 0, int64_t{1} << 40);
        if (got != value)
            fail_entry(MOE_ERROR_CORRUPT_FILE, state_entry,
                       fmt::format("'{}' is {}, {} is wanted", key, got, value));
    };
    expect("shape.0", wanted.rows);
    expect("shape.1", wanted.columns);
    const int64_t elements = wanted.rows * wanted.columns;
    const int64_t block = state.settings.integer({"blocksize"}, 1, 1 << 24);
    const int64_t blocks = divide_up(elements, block);
    require_type(entry, {MOE_TYPE_U8, MOE_TYPE_I8, MOE_TYPE_BF16, MOE_TYPE_F16, MOE_TYPE_F32});
    const auto size = static_cast<int64_t>(element_bytes(entry.element->type));
    const int64_t bytes = divide_up(elements, 2);
    if (bytes % size != 0)
        fail_entry(MOE_ERROR_CORRUPT_FILE, entry,
                   fmt::format("{} bytes of codes are no whole elements of type {}", bytes,
                               entry.type_name()));
    check_shape(entry, {bytes / size, 1}, false);
    moe_format format = format_of(MOE_TYPE_CODEBOOK);
    format.bits = 4;
    format.group_rows = 1;
    format.group_columns = static_cast<int32_t>(block);
    format.packing = MOE_PACKING_NIBBLE_HIGH_FIRST;
    const bool is_nf4 = state_entry.name.ends_with("nf4");
    format.codebook = is_nf4 ? MOE_CODEBOOK_BNB_NF4 : MOE_CODEBOOK_BNB_FP4;
    const float* map = read_floats(get(stem + ".weight.quant_map"), 16);
    if (!std::equal(map, map + 16, builtin_codebook(format)))
        fail_entry(MOE_ERROR_UNSUPPORTED, get(stem + ".weight.quant_map"),
                   fmt::format("is not the table of {}", is_nf4 ? "nf4" : "fp4"));
    const TensorEntry& absmax = get(stem + ".weight.absmax");
    check_shape(absmax, {blocks}, false);
    require_type(absmax, {MOE_TYPE_F32, MOE_TYPE_U8});
    format.scale_type = absmax.element->type;
    format.nested_scales = absmax.element->type == MOE_TYPE_U8;
    LayerTensor& tensor = append(entry, wanted);
    tensor.format = format;
    set_scales(tensor, absmax);
    if (!format.nested_scales) return;
    expect("nested_blocksize", nested_group);
    const int64_t nested = divide_up(blocks, nested_group);
    tensor.tensor.nested_scales = read_floats(get(stem + ".weight.nested_absmax"), nested);
    tensor.tensor.nested_scale_bytes = static_cast<uint64_t>(nested) * sizeof(float);
    tensor.tensor.nested_codebook = read_floats(get(stem + ".weight.nested_quant_map"), 256);
    const auto offset = state.settings.find_number("nested_offset");
    if (!offset) fail_entry(MOE_ERROR_CORRUPT_FILE, state_entry, "has no 'nested_offset'");
    tensor.tensor.nested_offset = *offset;
}

}  // namespace moe
