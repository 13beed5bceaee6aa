// The table of keys: which belong to the MoE part of a configuration, and what each means. A key
// that a family reads is of no interest here, whatever it is.
#include "libmoe/checkpoint/unread_keys.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "libmoe/base/error.hpp"
#include "libmoe/checkpoint/printable.hpp"

namespace moe {
namespace {

// A key says this of a layer, and its value must then be what the description says, too.
enum class Meaning {
    Nothing,        // it changes no result, or tensors and their shapes say the same
    RoutedScale,    // a factor of the chosen weights
    HasScale,       // is there such a factor?
    Normalised,     // are the chosen weights divided by their sum?
    Score,          // the name of the function of the logits
    Sigmoid,        // is it a sigmoid?
    Method,         // greedy, group_limited_greedy or noaux_tc
    Groups,         // of experts
    GroupedFlag,    // are there groups?
    KeptGroups,     // of them
    SelectionBias,  // has it one?
    TopK,           // experts of a token
    Limit,          // of gate and up
    SharedLimit,    // the same of the shared expert
    Alpha,          // of the gate's sigmoid
    WeightOnInput,  // do weights multiply the experts' input?
    Activation,     // its name
    IfShared,       // says something of shared experts alone
    IfLatent,       // of projections to a latent alone
    Default,        // it has one value that changes nothing, which the rule names
    Unknown,        // zero, false and nothing are what changes nothing
};

// An asterisk at either end stands for any characters, none included. The first that fits decides.
struct KeyRule {
    std::string_view pattern;
    Meaning meaning = Meaning::Nothing;
    std::string_view value = {};  // of Default
};

constexpr KeyRule key_rules[] = {
    // Of attention, of layers that predict further tokens, of draft models.
    {"*attn*"},
    {"*attention*"},
    {"index_*"},
    {"candidate_*"},
    {"mtp_*"},
    {"dspark_*"},
    {"mova_*"},
    // Of training.
    {"*loss*"},
    {"*coef"},
    {"*coeff"},
    {"*dropout*"},
    {"*drop*"},
    {"*jitter*"},
    {"*capacity*"},
    {"*balanc*"},
    {"*bias_update*"},
    {"*initializer*"},
    {"*init_std*"},
    // Which layers have experts.
    {"*layer*"},
    {"*sparse_step*"},
    {"*freq*"},
    {"*dense*"},
    {"enable_moe_block"},
    {"use_moe"},
    {"use_mixed_mlp_moe"},
    // How it is computed.
    {"*dtype*"},
    {"*fp32*"},
    {"*precision*"},
    {"*parallel*"},
    {"*kernel*"},
    {"*backend*"},
    {"*implementation*"},
    {"*_impl"},
    {"*gemm"},
    {"*overlap*"},
    {"*dispatch*"},
    {"*permute*"},
    {"*redundant*"},
    {"*interleaved*"},
    {"*quant*"},
    {"*recompute*"},
    {"output_router_logits"},
    {"rms_norm_eps_moe_gate"},  // Inkling's configuration; nothing reads it
    // Known values.
    {"routed_scaling_factor", Meaning::RoutedScale},
    {"moe_routed_scaling_factor", Meaning::RoutedScale},
    {"router_scaling_factor", Meaning::RoutedScale},
    {"moe_router_scaling_factor", Meaning::RoutedScale},
    {"moe_router_topk_scaling_factor", Meaning::RoutedScale},
    {"route_scale", Meaning::RoutedScale},
    {"moe_router_enable_routed_scaling", Meaning::HasScale},
    {"norm_topk_prob", Meaning::Normalised},
    {"moe_renormalize", Meaning::Normalised},
    {"norm_expert_weight", Meaning::Normalised},
    {"route_norm", Meaning::Normalised},
    {"moe_norm_gate_logits", Meaning::Normalised},
    {"scoring_func", Meaning::Score},
    {"score_func", Meaning::Score},
    {"score_function", Meaning::Score},
    {"router_score_func", Meaning::Score},
    {"router_score_function", Meaning::Score},
    {"moe_router_activation", Meaning::Score},
    {"moe_router_activation_func", Meaning::Score},
    {"moe_router_score_func", Meaning::Score},
    {"moe_router_score_function", Meaning::Score},
    {"moe_gate_act", Meaning::Score},
    {"expert_selection_fn", Meaning::Score},
    {"moe_router_use_sigmoid", Meaning::Sigmoid},
    {"topk_method", Meaning::Method},
    {"n_group", Meaning::Groups},
    {"num_expert_group", Meaning::Groups},
    {"num_expert_groups", Meaning::Groups},
    {"router_n_groups", Meaning::Groups},
    {"use_grouped_topk", Meaning::GroupedFlag},
    {"group_limited_greedy", Meaning::GroupedFlag},
    {"topk_group", Meaning::KeptGroups},
    {"num_limited_groups", Meaning::KeptGroups},
    {"use_expert_bias", Meaning::SelectionBias},
    {"use_routing_bias", Meaning::SelectionBias},
    {"use_moe_router_bias", Meaning::SelectionBias},
    {"router_enable_expert_bias", Meaning::SelectionBias},
    {"moe_router_enable_expert_bias", Meaning::SelectionBias},
    {"moe_use_aux_free", Meaning::SelectionBias},
    {"*aux*"},
    {"num_experts_per_tok", Meaning::TopK},
    {"num_experts_per_token", Meaning::TopK},
    {"experts_per_token", Meaning::TopK},
    {"moe_router_topk", Meaning::TopK},
    {"moe_topk", Meaning::TopK},
    {"moe_top_k", Meaning::TopK},
    {"moe_k", Meaning::TopK},
    {"top_k_experts", Meaning::TopK},
    {"swiglu_limit", Meaning::Limit},
    {"swiglu_limits", Meaning::Limit},
    {"expert_swiglu_limit_list", Meaning::Limit},
    {"swiglu_limits_shared", Meaning::SharedLimit},
    {"share_expert_swiglu_limit_list", Meaning::SharedLimit},
    {"swiglu_alpha", Meaning::Alpha},
    {"moe_apply_router_weight_on_input", Meaning::WeightOnInput},
    {"apply_router_weight_on_input", Meaning::WeightOnInput},
    {"hidden_act", Meaning::Activation},
    {"hidden_activation", Meaning::Activation},
    {"mlp_hidden_act", Meaning::Activation},
    {"activation_function", Meaning::Activation},
    {"shared_moe_mode", Meaning::IfShared},
    {"shared_expert_combination_strategy", Meaning::IfShared},
    {"latent_moe_use_norm", Meaning::IfLatent},
    {"router_type", Meaning::Default, "topN"},
    {"moe_gate", Meaning::Default, "topk"},
    {"zero_expert_type", Meaning::Default, "identity"},
    {"expert_model_type"},
    // Sizes and numbers: tensors of another shape, or that nothing reads, are refused.
    {"*_size"},
    {"*_dim"},
    {"*_dims"},
    {"*num_experts"},
    {"*num_*_experts"},
    {"*num_shared_expert"},
    {"n_*_experts"},
    {"router_bias"},
    {"moe_router_enable_shared_expert"},
    // All others that name a part of the layer.
    {"*moe*", Meaning::Unknown},
    {"*expert*", Meaning::Unknown},
    {"*router*", Meaning::Unknown},
    {"*routed*", Meaning::Unknown},
    {"*routing*", Meaning::Unknown},
    {"route_*", Meaning::Unknown},
    {"*scoring*", Meaning::Unknown},
    {"*swiglu*", Meaning::Unknown},
    {"*situ_*", Meaning::Unknown},
    {"*topk*", Meaning::Unknown},
};

bool fits(std::string_view pattern, std::string_view key) {
    const bool any_before = pattern.starts_with('*'), any_after = pattern.ends_with('*');
    const size_t cut = any_before ? 1 : 0;
    const std::string_view word = pattern.substr(cut, pattern.size() - cut - (any_after ? 1 : 0));
    const size_t star = word.find('*');
    if (star != word.npos) {
        const std::string_view start = word.substr(0, star), end = word.substr(star + 1);
        const size_t found = any_before ? key.find(start) : key.starts_with(start) ? 0 : key.npos;
        return found != key.npos && key.substr(found + start.size()).ends_with(end);
    }
    if (any_before && any_after) return key.find(word) != key.npos;
    if (any_before) return key.ends_with(word);
    return any_after ? key.starts_with(word) : key == word;
}

const KeyRule* rule_of(std::string_view key) {
    const auto it = std::find_if(std::begin(key_rules), std::end(key_rules),
                                 [&](const KeyRule& rule) { return fits(rule.pattern, key); });
    return it == std::end(key_rules) ? nullptr : it;
}

using Entry = Settings::Entry;
using Kind = Settings::Kind;

std::optional<double> number_in(const Entry& entry) {
    if (entry.kind == Kind::Integer || entry.kind == Kind::Flag)
        return static_cast<double>(entry.integer);
    if (entry.kind == Kind::Real) return entry.real;
    return std::nullopt;
}

std::string value_in(const Entry& entry) {
    switch (entry.kind) {
        case Kind::Integer:
            return fmt::format("{}", entry.integer);
        case Kind::Real:
            return fmt::format("{}", entry.real);
        case Kind::Flag:
            return entry.integer ? "true" : "false";
        case Kind::Text:
            return fmt::format("'{}'", printable(entry.text).text);
        case Kind::Array:
            break;
    }
    return "a list";
}

bool is_near(double a, double b) {
    return std::abs(a - b) <= 1e-6 * std::abs(b);
}

bool says_nothing(const Entry& entry) {
    if (const auto number = number_in(entry)) return *number == 0;
    return entry.kind != Kind::Text || entry.text.empty() || entry.text == "none" ||
           entry.text == "None";
}

bool is_normalised(const moe_layer_desc& desc) {
    return desc.renormalize != MOE_RENORMALIZE_NONE || desc.post_score == MOE_SCORE_SOFTMAX;
}

bool is_score(std::string_view name, const moe_layer_desc& desc) {
    const moe_score score = desc.score == MOE_SCORE_NONE ? desc.post_score : desc.score;
    if (name == "softmax")
        return score == MOE_SCORE_SOFTMAX || desc.selection == MOE_SELECT_SPARSEMIXER;
    if (name == "sigmoid" || name == "noaux_tc") return score == MOE_SCORE_SIGMOID;
    return name == "sqrtsoftplus" && score == MOE_SCORE_SQRT_SOFTPLUS;
}

bool is_method(std::string_view name, const moe_layer_desc& desc) {
    const bool has_bias = desc.has_selection_bias || desc.selection == MOE_SELECT_HASH;
    if (name == "noaux_tc") return has_bias;
    if (name == "group_limited_greedy") return desc.n_group > 1 && !has_bias;
    return (name == "greedy" || name == "topk") && desc.n_group <= 1 && !has_bias;
}

bool is_limit(double value, bool has_gate, float gate, bool has_post, float post) {
    if (value <= 0) return !has_gate && !has_post;
    return (has_gate && is_near(value, gate)) || (has_post && is_near(value, post));
}

bool is_activation(std::string_view name, const moe_layer_desc& desc) {
    switch (desc.activation) {
        case MOE_ACTIVATION_SILU:
            return name == "silu" || name == "swish" || name == "swigluoai";
        case MOE_ACTIVATION_GELU_ERF:
            return name == "gelu";
        case MOE_ACTIVATION_GELU_TANH:
            return name == "gelu_pytorch_tanh" || name == "gelu_new";
        case MOE_ACTIVATION_RELU2:
            return name == "relu2";
        case MOE_ACTIVATION_SITU:
            return name == "situ";
        default:
            return false;
    }
}

bool text_agrees(Meaning meaning, const Entry& entry, const KeyRule& rule,
                 const moe_layer_desc& desc) {
    switch (meaning) {
        case Meaning::Score:
            return is_score(entry.text, desc);
        case Meaning::Method:
            return is_method(entry.text, desc);
        case Meaning::Activation:
            return is_activation(entry.text, desc);
        case Meaning::Default:
            return entry.text == rule.value;
        default:
            return says_nothing(entry);
    }
}

bool number_agrees(Meaning meaning, const Entry& entry, std::string_view key,
                   const moe_layer_desc& desc) {
    const double value = *number_in(entry);
    const bool flag = value != 0;
    const int32_t groups = std::max(desc.n_group, 1);
    switch (meaning) {
        case Meaning::RoutedScale:
            if (entry.kind == Kind::Flag && !flag) return true;
            return is_near(value, desc.has_routed_scale ? desc.routed_scale : 1.0);
        case Meaning::HasScale:
            return flag || !desc.has_routed_scale || desc.routed_scale == 1;
        case Meaning::Normalised:
            return flag == is_normalised(desc);
        case Meaning::Sigmoid:
            return flag == is_score("sigmoid", desc);
        case Meaning::Groups:
            return std::max(value, 1.0) == groups;
        case Meaning::GroupedFlag:
            return flag || groups == 1;
        case Meaning::KeptGroups:
            return groups == 1 || value == desc.topk_group;
        case Meaning::SelectionBias:
            return flag == (desc.has_selection_bias != 0);
        case Meaning::TopK:
            return value == desc.top_k;
        case Meaning::Limit:
            return is_limit(value, desc.has_gate_limit, desc.gate_limit, desc.has_post_limit,
                            desc.post_limit);
        case Meaning::SharedLimit:
            return is_limit(value, desc.has_shared_gate_limit, desc.shared_gate_limit,
                            desc.has_shared_post_limit, desc.shared_post_limit);
        case Meaning::Alpha:
            return is_near(value, desc.has_activation_alpha ? desc.activation_alpha : 1.0);
        case Meaning::WeightOnInput:
            return flag == (desc.weight_on == MOE_WEIGHT_ON_INPUT);
        default:
            break;
    }
    const bool is_factor = key.find("scal") != key.npos || key.find("factor") != key.npos ||
                           key.find("multiplier") != key.npos ||
                           key.find("temperature") != key.npos;
    return says_nothing(entry) || (is_factor && value == 1);
}

bool agrees(const Entry& entry, std::string_view key, const KeyRule& rule,
            const moe_layer_desc& desc) {
    const Meaning meaning = rule.meaning;
    if (meaning == Meaning::Nothing) return true;
    if (meaning == Meaning::IfShared && !desc.shared_intermediate) return true;
    if (meaning == Meaning::IfLatent && !desc.latent) return true;
    return number_in(entry) ? number_agrees(meaning, entry, key, desc)
                            : text_agrees(meaning, entry, rule, desc);
}

// A key without the configuration's prefix; empty for one of another part. A part of its own is
// the layer's only under these names. A list has a value for each layer.
struct KeyName {
    std::string_view key;
    std::string_view whole;  // with its part, without the number of a list
    bool is_listed = false;
    int64_t index = 0;
};

std::optional<KeyName> name_of(const Settings& settings, std::string_view whole) {
    const std::string_view prefix = settings.prefix();
    KeyName name{whole, whole};
    if (!prefix.empty() && whole.starts_with(prefix)) name.key = whole.substr(prefix.size());
    name.whole = name.key;
    for (const std::string_view part : {"ffn_config.", "moe_config.", "moe."})
        if (name.key.starts_with(part)) name.key.remove_prefix(part.size());
    const size_t dot = name.key.find('.');
    if (dot == name.key.npos) return name;
    const std::string_view digits = name.key.substr(dot + 1);
    if (digits.empty() || digits.find_first_not_of("0123456789") != digits.npos)
        return std::nullopt;
    for (const char c : digits.substr(0, 9)) name.index = 10 * name.index + (c - '0');
    name.key = name.key.substr(0, dot);
    name.whole = name.whole.substr(0, name.whole.rfind('.'));
    name.is_listed = true;
    return name;
}

// The same key under the prefix hides one that stands outside, and the last of equal keys the
// others.
bool is_hidden(const Settings& settings, const Entry& entry) {
    const auto entries = settings.entries();
    if (&entry != &entries.back() && (&entry + 1)->key == entry.key) return true;
    if (settings.prefix().empty() || entry.key.starts_with(settings.prefix())) return false;
    const std::string inside = std::string(settings.prefix()).append(entry.key);
    return settings.has(inside);
}

// A list has a value for each layer; one of another length, that nobody knows, is looked at, too.
bool is_of_layer(const Settings& settings, const KeyName& name, const KeyRule& rule,
                 int32_t layer) {
    if (!name.is_listed || name.index == layer) return true;
    if (rule.meaning != Meaning::Unknown || name.index != 0) return false;
    return !settings.has(fmt::format("{}.{}", name.whole, layer));
}

}  // namespace

void refuse_unread_keys(const Settings& settings, std::string_view family, int32_t layer,
                        const moe_layer_desc& as_read, const moe_layer_desc& desc) {
    for (const Entry& entry : settings.entries()) {
        if (entry.was_read) continue;
        const auto name = name_of(settings, entry.key);
        const KeyRule* rule = name ? rule_of(name->key) : nullptr;
        if (!rule || !is_of_layer(settings, *name, *rule, layer)) continue;
        if (is_hidden(settings, entry) || agrees(entry, name->key, *rule, as_read) ||
            agrees(entry, name->key, *rule, desc))
            continue;
        fail(MOE_ERROR_UNSUPPORTED,
             "{}: '{}' is {}, which family '{}' neither reads nor has in layer {}; a key that "
             "changes nothing may be removed",
             settings.file(), printable(entry.key).text, value_in(entry), family, layer);
    }
}

}  // namespace moe
