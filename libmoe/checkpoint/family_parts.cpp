// Parts of layers that several families share.
#include <algorithm>
#include <string>

#include "libmoe/base/error.hpp"
#include "libmoe/checkpoint/families.hpp"
#include "libmoe/checkpoint/printable.hpp"

namespace moe {
namespace {

constexpr int64_t largest_size = 1 << 24;
constexpr int64_t most_experts = 4096;
constexpr int64_t largest_top_k = 64;

struct ExpertNames {
    const char* gate;
    const char* up;
    const char* down;
};
// All occur under any block name; the third as transformers saves the shared expert of Hunyuan 4.
constexpr ExpertNames spellings[] = {{"gate_proj", "up_proj", "down_proj"},
                                     {"w1", "w3", "w2"},
                                     {"linear_gate", "up_proj", "down_proj"}};

std::string expert_weight(std::string_view stem, int32_t expert, const char* name) {
    return fmt::format("{}{}.{}.weight", stem, expert, name);
}

void add_separate_experts(LayerBuilder& layer, std::string_view stem, const ExpertNames& names) {
    const moe_layer_desc& desc = layer.desc();
    const int32_t features = expert_features(desc), width = desc.intermediate;
    for (int32_t e = 0; e < desc.n_experts; ++e) {
        layer.weight(expert_weight(stem, e, names.gate), {MOE_ROLE_GATE, e, width, features});
        layer.weight(expert_weight(stem, e, names.up), {MOE_ROLE_UP, e, width, features});
        layer.weight(expert_weight(stem, e, names.down), {MOE_ROLE_DOWN, e, features, width});
    }
}

void add_stacked_experts(LayerBuilder& layer, std::string_view stem) {
    const int64_t features = expert_features(layer.desc()), width = layer.desc().intermediate;
    const auto name = [&](const char* matrix) { return fmt::format("{}{}.weight", stem, matrix); };
    layer.weight(name("gate_proj"), {MOE_ROLE_GATE, MOE_ALL_EXPERTS, width, features});
    layer.weight(name("up_proj"), {MOE_ROLE_UP, MOE_ALL_EXPERTS, width, features});
    layer.weight(name("down_proj"), {MOE_ROLE_DOWN, MOE_ALL_EXPERTS, features, width});
}

moe_activation activation_of(const LayerBuilder& layer) {
    const Settings& settings = layer.settings();
    auto name = settings.find_text("hidden_act");
    if (!name) name = settings.find_text("hidden_activation");           // Gemma
    if (!name) name = settings.find_text("ffn_config.ffn_act_fn.name");  // DBRX
    if (!name || *name == "silu" || *name == "swish") return MOE_ACTIVATION_SILU;
    if (*name == "gelu") return MOE_ACTIVATION_GELU_ERF;
    if (*name == "gelu_pytorch_tanh" || *name == "gelu_new") return MOE_ACTIVATION_GELU_TANH;
    if (*name == "situ") return MOE_ACTIVATION_SITU;
    fail(MOE_ERROR_UNSUPPORTED, "{}: hidden_act '{}' is not known", settings.file(),
         printable(*name).text);
}

}  // namespace

void read_sizes(LayerBuilder& layer, SettingKeys intermediate_keys) {
    const Settings& settings = layer.settings();
    moe_layer_desc& desc = layer.desc();
    const auto read = [&](SettingKeys keys, int64_t high) {
        if (const auto value = find_layer_integer(layer, keys, 1, high))
            return static_cast<int32_t>(*value);
        return static_cast<int32_t>(settings.integer(keys, 1, high));  // says which are missing
    };
    desc.hidden = read({"hidden_size", "d_model"}, largest_size);
    desc.intermediate = read(intermediate_keys, largest_size);
    // transformers 5 writes num_local_experts where older files have num_experts; then ERNIE and
    // Step, DBRX.
    desc.n_experts = read({"num_experts", "num_local_experts", "n_routed_experts",
                           "moe_num_experts", "ffn_config.moe_num_experts"},
                          most_experts);
    // gpt-oss; Kimi-Linear; Hunyuan and LongCat; ERNIE; Step; Gemma; DBRX.
    desc.top_k = read({"num_experts_per_tok", "experts_per_token", "num_experts_per_token",
                       "moe_topk", "moe_k", "moe_top_k", "top_k_experts", "ffn_config.moe_top_k"},
                      largest_top_k);
}

std::optional<int64_t> find_layer_integer(const LayerBuilder& layer, SettingKeys keys, int64_t low,
                                          int64_t high) {
    for (const std::string_view key : keys) {
        if (const auto value = layer.settings().find_integer({key}, low, high)) return value;
        const std::string listed = fmt::format("{}.{}", key, layer.number());
        if (const auto value = layer.settings().find_integer({listed}, low, high)) return value;
    }
    return std::nullopt;
}

void require_flag(const Settings& settings, std::string_view key, bool fixed) {
    const bool value = settings.find_flag(key).value_or(fixed);
    if (value != fixed)
        fail(MOE_ERROR_UNSUPPORTED, "{}: '{}' is {}, but models of this family have {}",
             settings.file(), key, value, fixed);
}

void set_routed_scale(LayerBuilder& layer, std::string_view key, float implied) {
    layer.desc().has_routed_scale = 1;
    layer.desc().routed_scale = layer.settings().find_number(key).value_or(implied);
}

void set_limit_before(moe_layer_desc& desc, float limit) {
    if (limit <= 0) return;
    desc.has_gate_limit = desc.has_up_limit = 1;
    desc.gate_limit = desc.up_limit = limit;
}

void set_limit_after(moe_layer_desc& desc, float limit) {
    if (limit <= 0) return;
    desc.has_post_limit = desc.has_up_limit = 1;
    desc.post_limit = desc.up_limit = limit;
}

void set_shared_limit_before(moe_layer_desc& desc, float limit) {
    if (limit <= 0) return;
    desc.has_shared_gate_limit = desc.has_shared_up_limit = 1;
    desc.shared_gate_limit = desc.shared_up_limit = limit;
}

void set_shared_limit_after(moe_layer_desc& desc, float limit) {
    if (limit <= 0) return;
    desc.has_shared_post_limit = desc.has_shared_up_limit = 1;
    desc.shared_post_limit = desc.shared_up_limit = limit;
}

float number_of_layer(const LayerBuilder& layer, std::string_view key) {
    const std::string listed = fmt::format("{}.{}", key, layer.number());
    return layer.settings().find_number(listed).value_or(0.0f);
}

void set_groups(LayerBuilder& layer, int32_t default_groups, int32_t default_kept,
                moe_group_score score) {
    const Settings& settings = layer.settings();
    moe_layer_desc& desc = layer.desc();
    const auto found = settings.find_integer({"n_group", "num_expert_group"}, 0, desc.n_experts);
    const int64_t groups = found.value_or(default_groups);
    if (groups <= 1) return;
    const int64_t least = score == MOE_GROUP_SCORE_TOP2_SUM ? 2 : 1;
    if (desc.n_experts % groups != 0 || desc.n_experts / groups < least)
        fail(MOE_ERROR_CORRUPT_FILE,
             "{}: n_group is {}{}, but {} experts are not {} groups of {} or more", settings.file(),
             groups, found ? "" : " where the key is absent", desc.n_experts, groups, least);
    desc.n_group = static_cast<int32_t>(groups);
    desc.topk_group = static_cast<int32_t>(
        settings.find_integer({"topk_group"}, 1, groups).value_or(default_kept));
    desc.group_score = score;
}

std::string_view first_weight(const LayerBuilder& layer, SettingKeys names) {
    for (const std::string_view name : names)
        if (layer.has_weight(name)) return name;
    return *names.begin();
}

void set_activation(LayerBuilder& layer) {
    moe_layer_desc& desc = layer.desc();
    desc.activation = activation_of(layer);
    desc.is_gated = 1;
    if (desc.activation != MOE_ACTIVATION_SITU) return;
    desc.situ_beta = layer.settings().number("activation_situ_beta");
    desc.situ_beta_up = layer.settings().number("activation_situ_linear_beta");
}

void read_latent(LayerBuilder& layer, std::string_view key) {
    const auto latent = layer.settings().find_integer({key}, 0, largest_size);
    layer.desc().latent = static_cast<int32_t>(latent.value_or(0));
}

void add_latent(LayerBuilder& layer, std::string_view in, std::string_view out) {
    const moe_layer_desc& desc = layer.desc();
    if (!desc.latent) return;
    layer.weight(in, {MOE_ROLE_LATENT_IN, 0, desc.latent, desc.hidden});
    layer.weight(out, {MOE_ROLE_LATENT_OUT, 0, desc.hidden, desc.latent});
}

int32_t expert_features(const moe_layer_desc& desc) {
    return desc.latent ? desc.latent : desc.hidden;
}

void set_softmax_routing(moe_layer_desc& desc, bool renormalize) {
    desc.score = MOE_SCORE_SOFTMAX;
    desc.renormalize = renormalize ? MOE_RENORMALIZE_SUM_ADD : MOE_RENORMALIZE_NONE;
}

void set_oai_activation(moe_layer_desc& desc, float limit) {
    desc.activation = MOE_ACTIVATION_SILU;
    desc.is_gated = 1;
    desc.has_activation_alpha = 1;
    desc.activation_alpha = 1.702f;
    desc.activation_up_offset = 1.0f;
    desc.has_gate_limit = desc.has_up_limit = 1;
    desc.gate_limit = desc.up_limit = limit;
}

void set_gpt_oss_layer(moe_layer_desc& desc, float limit) {
    desc.score = MOE_SCORE_NONE;
    desc.post_score = MOE_SCORE_SOFTMAX;
    set_oai_activation(desc, limit);
    desc.has_router_bias = 1;
    desc.has_gate_bias = desc.has_up_bias = desc.has_down_bias = 1;
}

void add_router(LayerBuilder& layer, std::string_view name) {
    moe_layer_desc& desc = layer.desc();
    desc.has_router = 1;
    layer.weight(name, {MOE_ROLE_ROUTER, 0, desc.n_experts + desc.n_identity_experts, desc.hidden});
}

void add_selection_bias(LayerBuilder& layer, SettingKeys names) {
    moe_layer_desc& desc = layer.desc();
    desc.has_selection_bias = 1;
    layer.vector(first_weight(layer, names),
                 {MOE_ROLE_SELECTION_BIAS, 0, 1, desc.n_experts + desc.n_identity_experts});
}

// mlx-lm has those of most families in a module of its own, of some in `experts`, of Gemma-4 below;
// of Granite names are those of the whole layer. The last one is Step's own.
std::string_view stack_stem(const LayerBuilder& layer) {
    for (const std::string_view stem :
         {"switch_mlp.", "experts.", "experts.switch_glu.", "block_sparse_moe.switch_mlp.", "moe."})
        if (layer.has_weight(fmt::format("{}gate_proj.weight", stem))) return stem;
    return {};
}

void add_experts(LayerBuilder& layer, const FusedForm& form, std::string_view stem) {
    const moe_layer_desc& desc = layer.desc();
    for (const ExpertNames& names : spellings) {
        if (layer.has_weight(expert_weight(stem, 0, names.gate)))
            return add_separate_experts(layer, stem, names);
    }
    if (const std::string_view stacks = stack_stem(layer); !stacks.empty())
        return add_stacked_experts(layer, stacks);
    const std::string gate_up = std::string(stem) + "gate_up_proj";
    if (!layer.find(gate_up) && !layer.find(std::string(stem) + "_gate_up_proj_qdata")) {
        layer.fail_missing(
            fmt::format("{0}0.gate_proj.weight, {0}0.w1.weight or {1}", stem, gate_up));
    }
    const int64_t features = expert_features(desc), width = desc.intermediate;
    LayerBuilder::Wanted both = {
        MOE_ROLE_GATE_UP, MOE_ALL_EXPERTS, 2 * width, features, true, form};
    // transformers 5 writes a gate and an up of identity experts, too, and no down.
    const bool has_more = desc.n_identity_experts && layer.find(gate_up) &&
                          layer.dimension(gate_up, 0) == desc.n_experts + desc.n_identity_experts;
    if (has_more) both.unread_experts = desc.n_identity_experts;
    layer.weight(gate_up, both);
    layer.weight(std::string(stem) + "down_proj",
                 {MOE_ROLE_DOWN, MOE_ALL_EXPERTS, features, width, true, form});
}

void set_shared_expert(LayerBuilder& layer, int64_t width, std::string_view name) {
    moe_layer_desc& desc = layer.desc();
    if (width < 1 || width > largest_size) layer.fail_unsupported(name, "its width");
    desc.shared_intermediate = static_cast<int32_t>(width);
    desc.shared_activation = desc.activation;
    desc.shared_situ_beta = desc.situ_beta;
    desc.shared_situ_beta_up = desc.situ_beta_up;
    desc.shared_is_gated = desc.is_gated;
}

void add_shared_gate_up(LayerBuilder& layer, std::string_view gate_up, std::string_view down,
                        const FusedForm& form) {
    const int64_t width = layer.rows_of(gate_up) / 2, hidden = layer.desc().hidden;
    set_shared_expert(layer, width, gate_up);
    layer.weight(gate_up, {MOE_ROLE_SHARED_GATE_UP, 0, 2 * width, hidden, false, form});
    layer.weight(down, {MOE_ROLE_SHARED_DOWN, 0, hidden, width});
}

void add_shared_expert(LayerBuilder& layer, std::string_view stem) {
    const auto name = [&](const char* matrix) { return std::string(stem) + matrix + ".weight"; };
    // As transformers 5 saves MiniMax-M3.
    if (layer.has_weight(name("gate_up_proj")))
        return add_shared_gate_up(layer, name("gate_up_proj"), name("down_proj"), {});
    const auto known =
        std::find_if(std::begin(spellings), std::end(spellings),
                     [&](const ExpertNames& one) { return layer.has_weight(name(one.gate)); });
    const ExpertNames& names = known == std::end(spellings) ? spellings[0] : *known;
    const int64_t width = layer.rows_of(name(names.gate)), hidden = layer.desc().hidden;
    set_shared_expert(layer, width, name(names.gate));
    layer.weight(name(names.gate), {MOE_ROLE_SHARED_GATE, 0, width, hidden});
    layer.weight(name(names.up), {MOE_ROLE_SHARED_UP, 0, width, hidden});
    layer.weight(name(names.down), {MOE_ROLE_SHARED_DOWN, 0, hidden, width});
}

void add_any_shared_expert(LayerBuilder& layer, SettingKeys stems) {
    const auto count = find_layer_integer(
        layer,
        {"n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert"},
        0, 4096);
    for (const std::string_view stem : stems)
        for (const char* first :
             {"gate_proj.weight", "w1.weight", "linear_gate.weight", "gate_up_proj.weight"})
            if (layer.has_weight(std::string(stem) + first)) return add_shared_expert(layer, stem);
    // Says what is missing; tensors of a spelling that is not known must not pass for no expert.
    for (const std::string_view stem : stems)
        if (layer.has_any(stem)) return add_shared_expert(layer, stem);
    const auto width = layer.settings().find_integer(
        {"shared_expert_intermediate_size", "shared_intermediate_size"}, 0, largest_size);
    if (count.value_or(width.value_or(0)) > 0) add_shared_expert(layer, *stems.begin());
}

void give_shared_expert_the_limits(moe_layer_desc& desc) {
    if (!desc.shared_intermediate) return;
    desc.has_shared_activation_alpha = desc.has_activation_alpha;
    desc.shared_activation_alpha = desc.activation_alpha;
    desc.shared_activation_up_offset = desc.activation_up_offset;
    desc.has_shared_gate_limit = desc.has_gate_limit;
    desc.shared_gate_limit = desc.gate_limit;
    desc.has_shared_up_limit = desc.has_up_limit;
    desc.shared_up_limit = desc.up_limit;
}

void add_shared_expert_gate(LayerBuilder& layer, std::string_view name) {
    layer.desc().has_shared_expert_gate = 1;
    layer.weight(name, {MOE_ROLE_SHARED_EXPERT_GATE, 0, 1, layer.desc().hidden});
}

}  // namespace moe
