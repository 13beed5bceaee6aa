// A table of the fields that may be overridden: those that files say in words, and may say wrongly
// or leave out. What the tensors show is not among them.
#include "libmoe/checkpoint/overrides.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>

#include "libmoe/base/error.hpp"
#include "libmoe/checkpoint/printable.hpp"
#include "libmoe/layer/layer.hpp"

namespace moe {
namespace {

struct EnumName {
    const char* name;
    int32_t value;
};

constexpr EnumName scores[] = {{"none", MOE_SCORE_NONE},
                               {"softmax", MOE_SCORE_SOFTMAX},
                               {"sigmoid", MOE_SCORE_SIGMOID},
                               {"sqrt_softplus", MOE_SCORE_SQRT_SOFTPLUS}};
constexpr EnumName selections[] = {{"top_k", MOE_SELECT_TOP_K},
                                   {"sparsemixer", MOE_SELECT_SPARSEMIXER},
                                   {"hash", MOE_SELECT_HASH}};
constexpr EnumName group_scores[] = {{"none", MOE_GROUP_SCORE_NONE},
                                     {"max", MOE_GROUP_SCORE_MAX},
                                     {"top2_sum", MOE_GROUP_SCORE_TOP2_SUM}};
constexpr EnumName group_masks[] = {{"infinity", MOE_GROUP_MASK_INFINITY},
                                    {"zero", MOE_GROUP_MASK_ZERO}};
constexpr EnumName renormalizations[] = {{"none", MOE_RENORMALIZE_NONE},
                                         {"sum_add", MOE_RENORMALIZE_SUM_ADD},
                                         {"sum_clamp", MOE_RENORMALIZE_SUM_CLAMP}};
constexpr EnumName weight_sides[] = {{"output", MOE_WEIGHT_ON_OUTPUT},
                                     {"input", MOE_WEIGHT_ON_INPUT}};
constexpr EnumName combine_rules[] = {{"sum", MOE_COMBINE_SUM}, {"mean", MOE_COMBINE_MEAN}};
constexpr EnumName activations[] = {{"silu", MOE_ACTIVATION_SILU},
                                    {"gelu_tanh", MOE_ACTIVATION_GELU_TANH},
                                    {"gelu_erf", MOE_ACTIVATION_GELU_ERF},
                                    {"relu2", MOE_ACTIVATION_RELU2},
                                    {"situ", MOE_ACTIVATION_SITU}};

enum class Kind : uint8_t { whole, real, word };

// Offset 0 is that of struct_size: no has_ flag.
struct LayerField {
    const char* name;
    Kind kind;
    size_t offset;
    size_t has_offset;
    std::span<const EnumName> words;
};

#define MOE_WHOLE(field)                                            \
    {                                                               \
#field, Kind::whole, offsetof(moe_layer_desc, field), 0, {} \
    }
#define MOE_REAL(field)                                            \
    {                                                              \
#field, Kind::real, offsetof(moe_layer_desc, field), 0, {} \
    }
#define MOE_OPTIONAL_REAL(field)                             \
    {                                                        \
#field, Kind::real, offsetof(moe_layer_desc, field), \
            offsetof(moe_layer_desc, has_##field), {}        \
    }
#define MOE_WORD(field, words) \
    { #field, Kind::word, offsetof(moe_layer_desc, field), 0, words }

constexpr LayerField fields[] = {
    MOE_WHOLE(top_k),
    MOE_REAL(router_norm_eps),
    MOE_OPTIONAL_REAL(router_input_scale),
    MOE_OPTIONAL_REAL(logit_softcap),
    MOE_WORD(score, scores),
    MOE_WORD(post_score, scores),
    MOE_WORD(selection, selections),
    MOE_REAL(sparsemixer_jitter),
    MOE_WHOLE(n_group),
    MOE_WHOLE(topk_group),
    MOE_WORD(group_score, group_scores),
    MOE_WORD(group_mask, group_masks),
    MOE_WORD(renormalize, renormalizations),
    MOE_REAL(renormalize_eps),
    MOE_OPTIONAL_REAL(routed_scale),
    MOE_WORD(weight_on, weight_sides),
    MOE_WHOLE(round_logits),
    MOE_WHOLE(round_weights),
    MOE_WORD(activation, activations),
    MOE_OPTIONAL_REAL(activation_alpha),
    MOE_REAL(activation_up_offset),
    MOE_OPTIONAL_REAL(gate_limit),
    MOE_OPTIONAL_REAL(up_limit),
    MOE_OPTIONAL_REAL(post_limit),
    MOE_REAL(situ_beta),
    MOE_REAL(situ_beta_up),
    MOE_REAL(latent_norm_eps),
    MOE_REAL(latent_in_norm_eps),
    MOE_REAL(expert_norm_eps),
    MOE_WHOLE(expert_norm_weight_first),
    MOE_OPTIONAL_REAL(shared_scale),
    MOE_WORD(shared_activation, activations),
    MOE_OPTIONAL_REAL(shared_activation_alpha),
    MOE_REAL(shared_activation_up_offset),
    MOE_OPTIONAL_REAL(shared_gate_limit),
    MOE_OPTIONAL_REAL(shared_up_limit),
    MOE_OPTIONAL_REAL(shared_post_limit),
    MOE_REAL(shared_situ_beta),
    MOE_REAL(shared_situ_beta_up),
    MOE_WORD(combine, combine_rules),
};

#undef MOE_WHOLE
#undef MOE_REAL
#undef MOE_OPTIONAL_REAL
#undef MOE_WORD

constexpr std::string_view of_tensors[] = {
    "hidden", "intermediate", "n_experts",           "n_identity_experts", "hash_vocabulary",
    "latent", "is_gated",     "shared_intermediate", "shared_is_gated"};

std::string_view trimmed(std::string_view text) {
    const size_t begin = text.find_first_not_of(" \t\n");
    if (begin == std::string_view::npos) return {};
    return text.substr(begin, text.find_last_not_of(" \t\n") + 1 - begin);
}

std::string all_names() {
    std::string names;
    for (const LayerField& field : fields) names += std::string(" ") + field.name;
    return names;
}

size_t row_of(std::string_view name) {
    const auto found = std::find_if(std::begin(fields), std::end(fields),
                                    [&](const LayerField& field) { return field.name == name; });
    if (found != std::end(fields)) return static_cast<size_t>(found - fields);
    const bool is_shown =
        name.starts_with("has_") ||
        std::find(std::begin(of_tensors), std::end(of_tensors), name) != std::end(of_tensors);
    require(!is_shown, "'{}' cannot be overridden: the tensors, or another field, say it",
            printable(name).text);
    fail(MOE_ERROR_INVALID_ARGUMENT, "'{}' is none of{}", printable(name).text, all_names());
}

template <class Number>
bool parse(std::string_view text, Number& number) {
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    return error == std::errc() && stop == end;
}

int32_t word_of(const LayerField& field, std::string_view value) {
    std::string known;
    for (const EnumName& one : field.words) {
        if (value == one.name) return one.value;
        known += std::string(" ") + one.name;
    }
    fail(MOE_ERROR_INVALID_ARGUMENT, "{} is '{}', must be one of{}", field.name,
         printable(value).text, known);
}

int32_t bits_of(const LayerField& field, std::string_view value) {
    if (field.kind == Kind::word) return word_of(field, value);
    int32_t whole = 0;
    float real = 0;
    if (field.kind == Kind::whole && parse(value, whole)) return whole;
    if (field.kind == Kind::real && parse(value, real) && std::isfinite(real))
        return std::bit_cast<int32_t>(real);
    fail(MOE_ERROR_INVALID_ARGUMENT, "{} is '{}', must be a {}{}", field.name,
         printable(value).text, field.kind == Kind::whole ? "whole number" : "number",
         field.has_offset ? " or none" : "");
}

void store_field(moe_layer_desc& desc, size_t offset, int32_t bits) {
    std::memcpy(reinterpret_cast<std::byte*>(&desc) + offset, &bits, sizeof bits);
}

}  // namespace

Overrides::Overrides(std::pmr::memory_resource& memory, const char* text) : values_(&memory) {
    if (!text) return;
    const ErrorContext context("options.overrides: ");
    for (std::string_view rest = text; !trimmed(rest).empty();) {
        const size_t comma = std::min(rest.find(','), rest.size());
        add(trimmed(rest.substr(0, comma)));
        rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
}

void Overrides::add(std::string_view item) {
    const size_t equals = item.find('=');
    require(equals != std::string_view::npos, "'{}' is not NAME=VALUE", printable(item).text);
    const std::string_view name = trimmed(item.substr(0, equals));
    const std::string_view value = trimmed(item.substr(equals + 1));
    const size_t row = row_of(name);
    for (const Value& one : values_)
        require(one.row != row, "{} is given twice, the second time as '{}'", fields[row].name,
                printable(value).text);
    const bool is_none = fields[row].has_offset != 0 && value == "none";
    values_.push_back({row, is_none, is_none ? 0 : bits_of(fields[row], value)});
}

void Overrides::apply(moe_layer_desc& desc) const {
    if (values_.empty()) return;
    for (const Value& value : values_) {
        const LayerField& field = fields[value.row];
        store_field(desc, field.offset, value.number);
        if (field.has_offset) store_field(desc, field.has_offset, value.is_none ? 0 : 1);
    }
    const ErrorContext context("options.overrides: ");
    make_layer(desc);
}

}  // namespace moe
