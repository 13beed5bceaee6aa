// Parts of layers that several families share.
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
// Both spellings occur under either block name.
constexpr ExpertNames spellings[] = {{"gate_proj", "up_proj", "down_proj"}, {"w1", "w3", "w2"}};

std::string expert_weight(int32_t expert, const char* name) {
    return fmt::format("experts.{}.{}.weight", expert, name);
}

void add_separate_experts(LayerBuilder& layer, const ExpertNames& names) {
    const moe_layer_desc& desc = layer.desc();
    const int32_t hidden = desc.hidden, width = desc.intermediate;
    for (int32_t e = 0; e < desc.n_experts; ++e) {
        layer.weight(expert_weight(e, names.gate), {MOE_ROLE_GATE, e, width, hidden});
        layer.weight(expert_weight(e, names.up), {MOE_ROLE_UP, e, width, hidden});
        layer.weight(expert_weight(e, names.down), {MOE_ROLE_DOWN, e, hidden, width});
    }
    if (layer.has_weight(expert_weight(desc.n_experts, names.gate))) {
        fail(MOE_ERROR_CORRUPT_FILE, "{}: says {} experts, but there is a tensor '{}'",
             layer.settings().file(), desc.n_experts, expert_weight(desc.n_experts, names.gate));
    }
}

moe_activation activation_of(const LayerBuilder& layer) {
    const auto name = layer.settings().find_text("hidden_act");
    if (!name || *name == "silu" || *name == "swish") return MOE_ACTIVATION_SILU;
    if (*name == "gelu") return MOE_ACTIVATION_GELU_ERF;
    if (*name == "gelu_pytorch_tanh" || *name == "gelu_new") return MOE_ACTIVATION_GELU_TANH;
    fail(MOE_ERROR_UNSUPPORTED, "{}: hidden_act '{}' is not known", layer.settings().file(),
         printable(*name).text);
}

}  // namespace

void read_sizes(LayerBuilder& layer, SettingKeys intermediate_keys) {
    const Settings& settings = layer.settings();
    moe_layer_desc& desc = layer.desc();
    const auto read = [&](SettingKeys keys, int64_t high) {
        return static_cast<int32_t>(settings.integer(keys, 1, high));
    };
    desc.hidden = read({"hidden_size"}, largest_size);
    desc.intermediate = read(intermediate_keys, largest_size);
    // transformers 5 writes num_local_experts where older files have num_experts.
    desc.n_experts = read({"num_experts", "num_local_experts", "n_routed_experts"}, most_experts);
    desc.top_k = read({"num_experts_per_tok", "experts_per_token"}, largest_top_k);
}

void set_activation(LayerBuilder& layer) {
    layer.desc().activation = activation_of(layer);
    layer.desc().is_gated = 1;
}

void set_softmax_routing(moe_layer_desc& desc, bool renormalize) {
    desc.score = MOE_SCORE_SOFTMAX;
    desc.renormalize = renormalize ? MOE_RENORMALIZE_SUM_ADD : MOE_RENORMALIZE_NONE;
}

void set_gpt_oss_layer(moe_layer_desc& desc, float limit) {
    desc.score = MOE_SCORE_NONE;
    desc.post_score = MOE_SCORE_SOFTMAX;
    desc.activation = MOE_ACTIVATION_SILU;
    desc.is_gated = 1;
    desc.has_activation_alpha = 1;
    desc.activation_alpha = 1.702f;
    desc.activation_up_offset = 1.0f;
    desc.has_gate_limit = desc.has_up_limit = 1;
    desc.gate_limit = desc.up_limit = limit;
    desc.has_router_bias = 1;
    desc.has_gate_bias = desc.has_up_bias = desc.has_down_bias = 1;
}

void add_router(LayerBuilder& layer, std::string_view name) {
    moe_layer_desc& desc = layer.desc();
    desc.has_router = 1;
    layer.weight(name, {MOE_ROLE_ROUTER, 0, desc.n_experts, desc.hidden});
}

void add_experts(LayerBuilder& layer) {
    const moe_layer_desc& desc = layer.desc();
    for (const ExpertNames& names : spellings) {
        if (layer.has_weight(expert_weight(0, names.gate)))
            return add_separate_experts(layer, names);
    }
    if (!layer.find("experts.gate_up_proj")) {
        layer.fail_missing(
            "experts.0.gate_proj.weight, experts.0.w1.weight or experts.gate_up_proj");
    }
    layer.weight("experts.gate_up_proj", {MOE_ROLE_GATE_UP, MOE_ALL_EXPERTS,
                                          int64_t{2} * desc.intermediate, desc.hidden, true});
    layer.weight("experts.down_proj",
                 {MOE_ROLE_DOWN, MOE_ALL_EXPERTS, desc.hidden, desc.intermediate, true});
}

void add_shared_expert(LayerBuilder& layer, std::string_view stem) {
    moe_layer_desc& desc = layer.desc();
    const auto name = [&](const char* matrix) {
        return std::string(stem) + matrix + "_proj.weight";
    };
    const int64_t width = layer.rows_of(name("gate"));
    if (width < 1 || width > largest_size) layer.fail_unsupported(name("gate"), "its width");
    desc.shared_intermediate = static_cast<int32_t>(width);
    desc.shared_activation = desc.activation;
    desc.shared_is_gated = 1;
    layer.weight(name("gate"), {MOE_ROLE_SHARED_GATE, 0, width, desc.hidden});
    layer.weight(name("up"), {MOE_ROLE_SHARED_UP, 0, width, desc.hidden});
    layer.weight(name("down"), {MOE_ROLE_SHARED_DOWN, 0, desc.hidden, width});
}

void add_shared_expert_gate(LayerBuilder& layer, std::string_view name) {
    layer.desc().has_shared_expert_gate = 1;
    layer.weight(name, {MOE_ROLE_SHARED_EXPERT_GATE, 0, 1, layer.desc().hidden});
}

}  // namespace moe
