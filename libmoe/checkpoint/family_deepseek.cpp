// DeepSeek-V2 to -V4.1 (Kimi-K2 is V3, A.X-K2 nearly so), and the scored layer that many others
// are: groups of experts, a selection bias, a routed scale, shared experts stored as one MLP. Their
// configurations mostly name neither scoring function nor top-k method: both follow from the model
// type.
#include "libmoe/base/error.hpp"
#include "libmoe/checkpoint/families.hpp"
#include "libmoe/checkpoint/printable.hpp"

namespace moe {

moe_score score_of(const Settings& settings, moe_score implied) {
    // Then Ling's, Kimi-Linear's, Trinity's, Step's, Laguna's.
    for (const char* key : {"scoring_func", "score_function", "moe_router_activation_func",
                            "score_func", "moe_router_activation", "moe_router_score_func"}) {
        const auto name = settings.find_text(key);
        if (!name) continue;
        if (*name == "softmax") return MOE_SCORE_SOFTMAX;
        if (*name == "sigmoid") return MOE_SCORE_SIGMOID;
        if (*name == "noaux_tc") return MOE_SCORE_SIGMOID;  // dots.llm1 names the method here
        if (*name == "sqrtsoftplus") return MOE_SCORE_SQRT_SOFTPLUS;
        fail(MOE_ERROR_UNSUPPORTED, "{}: {} '{}' is not known", settings.file(), key,
             printable(*name).text);
    }
    return implied;
}

namespace {

// DeepSeek-V4.1 has other numbers of experts in the layers that draft tokens; zero is the model's.
void read_draft_sizes(LayerBuilder& layer) {
    const Settings& settings = layer.settings();
    const auto read = [&](std::string_view key, int64_t most, int32_t& size) {
        const auto found = settings.find_integer({key}, 0, most);
        if (found.value_or(0) > 0) size = static_cast<int32_t>(*found);
    };
    const auto n_layers = settings.find_integer({"num_hidden_layers"}, 0, INT32_MAX);
    if (!n_layers || layer.number() < *n_layers) return;
    read("dspark_n_routed_experts", 4096, layer.desc().n_experts);
    read("dspark_num_experts_per_tok", 64, layer.desc().top_k);
}

}  // namespace

void build_deepseek_v2(LayerBuilder& layer) {
    read_sizes(layer, {"moe_intermediate_size"});
    set_activation(layer);
    moe_layer_desc& desc = layer.desc();
    require_flag(layer.settings(), "norm_topk_prob", false);  // transformers never normalises here
    desc.score = score_of(layer.settings(), MOE_SCORE_SOFTMAX);
    const auto method = layer.settings().find_text("topk_method").value_or("greedy");
    if (method == "group_limited_greedy") {
        for (const char* key : {"n_group", "topk_group"})
            (void)layer.settings().integer({key}, 1, desc.n_experts);  // DeepseekV2Config has none
        set_groups(layer, 0, 0, MOE_GROUP_SCORE_MAX);
    } else if (method != "greedy") {
        fail(MOE_ERROR_UNSUPPORTED, "{}: topk_method '{}' is not known", layer.settings().file(),
             printable(method).text);
    }
    set_routed_scale(layer, "routed_scaling_factor", 1.0f);
    add_router(layer, "gate.weight");
    add_experts(layer);
    add_any_shared_expert(layer, {"shared_experts."});
}

void build_scored_layer(LayerBuilder& layer, const ScoredFacts& facts) {
    const Settings& settings = layer.settings();
    read_sizes(layer, {facts.width});
    read_draft_sizes(layer);
    moe_layer_desc& desc = layer.desc();
    desc.is_gated = 1;
    const auto activation = settings.find_text("hidden_act");
    if (!facts.own_activation || activation != facts.own_activation) set_activation(layer);
    desc.score = score_of(settings, facts.score);
    set_groups(layer, facts.groups, facts.kept_groups, MOE_GROUP_SCORE_TOP2_SUM);
    set_routed_scale(layer, facts.scale_key, facts.scale);
    // Then Kimi-Linear's and Ling's, Trinity's.
    if (settings.flag({"norm_topk_prob", "moe_renormalize", "route_norm"}, facts.norm)) {
        desc.renormalize = MOE_RENORMALIZE_SUM_ADD;
        desc.renormalize_eps = facts.eps;
    }
    // MLX has Ling's in a module of the gate's.
    add_router(layer, first_weight(layer, {facts.router, "gate.weight", "gate.gate_proj.weight"}));
    if (*facts.bias)
        add_selection_bias(layer,
                           {facts.bias, "gate.e_score_correction_bias", "e_score_correction_bias"});
    add_experts(layer);
    if (*facts.shared) add_any_shared_expert(layer, {facts.shared, "shared_experts."});
}

void build_deepseek_v3(LayerBuilder& layer) {
    // The defaults are those of DeepseekV3Config, for configurations that leave them out.
    build_scored_layer(layer, {.groups = 8, .kept_groups = 4, .scale = 2.5f});
}

// Groups that are not chosen keep a key of zero, above the negative ones. Smaller models have no
// groups.
void build_axk2(LayerBuilder& layer) {
    build_scored_layer(layer, {.scale = 2.5f});
    if (layer.desc().n_group > 1) layer.desc().group_mask = MOE_GROUP_MASK_ZERO;
}

// The square root of softplus, and experts whose gate and up are clamped before the activation; the
// shared expert's, too, in transformers. The first layers take their experts from a table of token
// ids. Names of the released files have no "model." before them. V4.1 may have a second bias, which
// chooses the experts of image tokens, and divides its logits by a temperature, 1 if it is absent.
void build_deepseek_v4(LayerBuilder& layer) {
    const bool hash = layer.find("gate.tid2eid") != nullptr;
    build_scored_layer(
        layer, {.score = MOE_SCORE_SQRT_SOFTPLUS, .bias = hash ? "" : "gate.bias", .scale = 1.5f});
    moe_layer_desc& desc = layer.desc();
    set_limit_before(desc, layer.settings().find_number("swiglu_limit").value_or(10.0f));
    give_shared_expert_the_limits(desc);
    if (hash) return add_hash_table(layer, "gate.tid2eid");
    if (layer.find("gate.bias_vl")) {
        desc.has_second_selection_bias = 1;
        layer.vector("gate.bias_vl", {MOE_ROLE_SECOND_SELECTION_BIAS, 0, 1, desc.n_experts});
    }
    const float temperature = layer.settings().find_number("gate_temp").value_or(1.0f);
    if (temperature == 1.0f) return;
    if (temperature <= 0)
        fail(MOE_ERROR_CORRUPT_FILE, "{}: gate_temp is {}", layer.settings().file(), temperature);
    desc.has_router_input_scale = 1;
    desc.router_input_scale = 1.0f / temperature;
}

void add_hash_table(LayerBuilder& layer, std::string_view name) {
    constexpr int64_t largest_vocabulary = 1 << 24;
    const int64_t rows = layer.dimension(name, 0);
    if (rows < 1 || rows > largest_vocabulary) layer.fail_unsupported(name, "its vocabulary");
    moe_layer_desc& desc = layer.desc();
    desc.selection = MOE_SELECT_HASH;
    desc.hash_vocabulary = static_cast<int32_t>(rows);
    layer.table(name, {MOE_ROLE_HASH_TABLE, 0, rows, desc.top_k});
}

}  // namespace moe
