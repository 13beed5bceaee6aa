// Sigmoid scores with a selection bias under many names: GLM, dots, MiniMax, Kimi-Linear, K3, Ling,
// Hunyuan 3 and 4, Trinity, Laguna, LFM2, MiMo, EXAONE, Sarvam, Beam, Step and Nemotron-H. What a
// configuration leaves out is taken from the family's configuration class in transformers.
#include <string>

#include "libmoe/base/error.hpp"
#include "libmoe/checkpoint/families.hpp"

namespace moe {

void build_glm4_moe(LayerBuilder& layer) {
    build_scored_layer(layer, {});
}

void build_glm4_moe_lite(LayerBuilder& layer) {
    build_scored_layer(layer, {.scale = 1.8f});
}

void build_glm_moe_dsa(LayerBuilder& layer) {
    build_scored_layer(layer, {.scale = 2.5f});
}

// Gate and up are clamped before the activation, in both kinds of experts.
void build_glm5_next(LayerBuilder& layer) {
    build_scored_layer(layer, {.scale = 2.5f});
    set_limit_before(layer.desc(), layer.settings().find_number("swiglu_limit").value_or(10.0f));
    give_shared_expert_the_limits(layer.desc());
}

// In the routed experts alone.
void build_hy_v4(LayerBuilder& layer) {
    build_scored_layer(layer, {.scale = 2.827f});
    set_limit_before(layer.desc(), layer.settings().find_number("swiglu_limit").value_or(10.0f));
}

void build_flint(LayerBuilder& layer) {
    build_scored_layer(layer, {.bias = "", .shared = "shared_expert.", .eps = 0});
}

void build_sarvam_moe(LayerBuilder& layer) {
    build_scored_layer(layer, {.bias = "gate.expert_bias", .scale = 2.5f});
}

void build_param2moe(LayerBuilder& layer) {
    build_scored_layer(layer, {.bias = "gate.expert_bias"});
}

// The model scales the sum of the experts; here the weights are, which is the same.
void build_beam(LayerBuilder& layer) {
    build_scored_layer(layer, {.shared = "", .groups = 8, .kept_groups = 4, .scale = 2.5f});
}

void build_dots1(LayerBuilder& layer) {
    build_scored_layer(layer, {.norm = false});
}

// Some have limits in a list, for both kinds of experts.
void build_exaone_moe(LayerBuilder& layer) {
    build_scored_layer(layer, {.bias = "e_score_correction_bias", .scale = 2.5f});
    set_limit_before(layer.desc(), number_of_layer(layer, "swiglu_limits"));
    give_shared_expert_the_limits(layer.desc());
}

void build_mimo_v2_flash(LayerBuilder& layer) {
    build_scored_layer(layer, {.shared = ""});
}

// A softmax, with groups where the configuration has them, and no bias.
void build_mistral4(LayerBuilder& layer) {
    build_scored_layer(layer, {.score = MOE_SCORE_SOFTMAX, .bias = ""});
}

void build_mistral_large4(LayerBuilder& layer) {
    require_flag(layer.settings(), "norm_topk_prob", true);
    build_mistral4(layer);
}

// Kimi-K3 is one whose experts lie between projections to a latent, with a norm before the second.
void build_kimi_linear(LayerBuilder& layer) {
    read_latent(layer, "routed_expert_hidden_size");
    build_scored_layer(layer, {.scale = 2.446f});
    add_latent(layer, "routed_expert_down_proj.weight", "routed_expert_up_proj.weight");
    const Settings& settings = layer.settings();
    moe_layer_desc& desc = layer.desc();
    const bool has_norm = layer.find("routed_expert_norm.weight") != nullptr;
    if (!desc.latent || !settings.find_flag("latent_moe_use_norm").value_or(has_norm)) return;
    desc.has_latent_norm = 1;
    desc.latent_norm_eps = settings.number("rms_norm_eps");
    layer.vector("routed_expert_norm.weight", {MOE_ROLE_LATENT_NORM, 0, 1, desc.latent});
}

// Ling 1 has a softmax and no bias; the second generation says score_function sigmoid, or has the
// bias that only it has.
void build_bailing_moe(LayerBuilder& layer) {
    if (!layer.find("gate.expert_bias")) {
        return build_scored_layer(layer, {.score = MOE_SCORE_SOFTMAX, .bias = "", .eps = 0});
    }
    build_scored_layer(layer, {.bias = "gate.expert_bias", .scale = 2.5f});
}

// The third generation has limits in lists, a value for each layer.
void build_bailing_hybrid(LayerBuilder& layer) {
    build_scored_layer(layer,
                       {.bias = "gate.expert_bias", .groups = 8, .kept_groups = 4, .scale = 2.5f});
    set_limit_after(layer.desc(), number_of_layer(layer, "expert_swiglu_limit_list"));
    set_shared_limit_after(layer.desc(), number_of_layer(layer, "share_expert_swiglu_limit_list"));
}

void build_minimax_m2(LayerBuilder& layer) {
    build_scored_layer(
        layer,
        {.width = "intermediate_size", .bias = "e_score_correction_bias", .shared = "", .eps = 0});
}

// The activation of gpt-oss, in the shared expert as well.
void build_minimax_m3(LayerBuilder& layer) {
    build_scored_layer(layer, {.width = "intermediate_size",
                               .bias = "e_score_correction_bias",
                               .scale = 2.0f,
                               .eps = 0,
                               .own_activation = "swigluoai"});
    const Settings& settings = layer.settings();
    moe_layer_desc& desc = layer.desc();
    desc.activation = MOE_ACTIVATION_SILU;
    desc.has_activation_alpha = 1;
    desc.activation_alpha = settings.find_number("swiglu_alpha").value_or(1.702f);
    desc.activation_up_offset = 1.0f;
    desc.has_gate_limit = desc.has_up_limit = 1;
    desc.gate_limit = desc.up_limit = settings.find_number("swiglu_limit").value_or(7.0f);
    if (!desc.shared_intermediate) return;
    desc.shared_activation = desc.activation;
    give_shared_expert_the_limits(desc);
}

void build_hy_v3(LayerBuilder& layer) {
    for (const char* key : {"route_norm", "moe_router_use_sigmoid"})
        require_flag(layer.settings(), key, true);
    build_scored_layer(layer, {.router = "router.gate.weight",
                               .bias = "expert_bias",
                               .shared = "shared_mlp.",
                               .scale_key = "router_scaling_factor",
                               .scale = 2.826f});
}

void build_afmoe(LayerBuilder& layer) {
    build_scored_layer(
        layer, {.router = "router.gate.weight", .bias = "expert_bias", .scale_key = "route_scale"});
    // The model's router normalises sigmoids alone.
    moe_layer_desc& desc = layer.desc();
    if (desc.score == MOE_SCORE_SIGMOID) return;
    desc.renormalize = MOE_RENORMALIZE_NONE;
    desc.renormalize_eps = 0;
}

void build_laguna(LayerBuilder& layer) {
    build_scored_layer(layer, {.bias = "experts.e_score_correction_bias",
                               .shared = "shared_expert.",
                               .scale_key = "moe_routed_scaling_factor",
                               .eps = 0});
    const Settings& settings = layer.settings();
    const float cap = settings.find_number("moe_router_logit_softcapping").value_or(0.0f);
    if (cap > 0) {
        layer.desc().has_logit_softcap = 1;
        layer.desc().logit_softcap = cap;
    }
    if (settings.find_flag("moe_apply_router_weight_on_input").value_or(false))
        layer.desc().weight_on = MOE_WEIGHT_ON_INPUT;
}

void build_lfm2_moe(LayerBuilder& layer) {
    const bool bias = layer.settings().find_flag("use_expert_bias").value_or(true);
    build_scored_layer(layer, {.bias = bias ? "expert_bias" : "", .shared = "", .eps = 1e-6f});
}

// Three stacks, and the shared expert beside the block: names are those of the whole layer, in
// MLX's files those of its block. Limits come after the activation and are lists with a value for
// each layer, 0 for none.
void build_step(LayerBuilder& layer) {
    const Settings& settings = layer.settings();
    read_sizes(layer, {"moe_intermediate_size"});
    set_activation(layer);
    moe_layer_desc& desc = layer.desc();
    desc.score = score_of(settings, MOE_SCORE_SIGMOID);
    if (settings.flag({"norm_expert_weight"}, true)) desc.renormalize = MOE_RENORMALIZE_SUM_ADD;
    set_routed_scale(layer, "moe_router_scaling_factor", 1.0f);
    set_limit_after(desc, number_of_layer(layer, "swiglu_limits"));
    add_router(layer, first_weight(layer, {"moe.gate.weight", "gate.gate.weight"}));
    add_selection_bias(layer, {"moe.router_bias", "gate.router_bias"});
    if (stack_stem(layer).empty()) (void)layer.get("moe.gate_proj.weight");  // says what is missing
    add_experts(layer);
    add_shared_expert(layer, "share_expert.");
    set_shared_limit_after(desc, number_of_layer(layer, "swiglu_limits_shared"));
}

// The best logits with a bias, and sigmoids of the logits as weights. The bias lies beside the
// block.
void build_kolibri1(LayerBuilder& layer) {
    read_sizes(layer, {"moe_intermediate_size"});
    set_activation(layer);
    moe_layer_desc& desc = layer.desc();
    desc.score = MOE_SCORE_NONE;
    desc.post_score = MOE_SCORE_SIGMOID;
    if (layer.settings().flag({"norm_topk_prob"}, false)) {
        desc.renormalize = MOE_RENORMALIZE_SUM_ADD;
        desc.renormalize_eps = 1e-20f;
    }
    add_router(layer, "mlp.gate.weight");
    add_selection_bias(layer, {"moe.router.expert_bias"});
    add_experts(layer, {}, "mlp.experts.");
    add_any_shared_expert(layer, {"mlp.shared_experts."});
}

namespace {

void add_ungated_experts(LayerBuilder& layer) {
    const moe_layer_desc& desc = layer.desc();
    const int64_t features = expert_features(desc), width = desc.intermediate;
    if (layer.has_weight("switch_mlp.fc1.weight")) {  // MLX
        layer.weight("switch_mlp.fc1.weight", {MOE_ROLE_UP, MOE_ALL_EXPERTS, width, features});
        layer.weight("switch_mlp.fc2.weight", {MOE_ROLE_DOWN, MOE_ALL_EXPERTS, features, width});
        return;
    }
    if (layer.find("experts.up_proj")) {  // as transformers has it in memory
        layer.weight("experts.up_proj", {MOE_ROLE_UP, MOE_ALL_EXPERTS, width, features});
        layer.weight("experts.down_proj", {MOE_ROLE_DOWN, MOE_ALL_EXPERTS, features, width});
        return;
    }
    for (int32_t e = 0; e < desc.n_experts; ++e) {
        const std::string stem = "experts." + std::to_string(e) + ".";
        layer.weight(stem + "up_proj.weight", {MOE_ROLE_UP, e, width, features});
        layer.weight(stem + "down_proj.weight", {MOE_ROLE_DOWN, e, features, width});
    }
}

}  // namespace

// Experts without a gate matrix, squared ReLU; in the larger models between projections to a latent
// of fewer features, which the shared expert does not share.
void build_nemotron_h(LayerBuilder& layer) {
    const Settings& settings = layer.settings();
    read_sizes(layer, {"moe_intermediate_size"});
    moe_layer_desc& desc = layer.desc();
    const auto activation = settings.find_text("mlp_hidden_act").value_or("relu2");
    if (activation != "relu2")
        fail(MOE_ERROR_UNSUPPORTED, "{}: mlp_hidden_act is not relu2", settings.file());
    desc.activation = MOE_ACTIVATION_RELU2;
    desc.score = MOE_SCORE_SIGMOID;
    set_groups(layer, 1, 1, MOE_GROUP_SCORE_TOP2_SUM);
    set_routed_scale(layer, "routed_scaling_factor", 1.0f);
    if (settings.flag({"norm_topk_prob"}, true)) {
        desc.renormalize = MOE_RENORMALIZE_SUM_ADD;
        desc.renormalize_eps = 1e-20f;
    }
    add_router(layer, "gate.weight");
    add_selection_bias(layer, {"gate.e_score_correction_bias"});
    read_latent(layer, "moe_latent_size");
    add_latent(layer, "fc1_latent_proj.weight", "fc2_latent_proj.weight");
    add_ungated_experts(layer);
    const int64_t width = layer.rows_of("shared_experts.up_proj.weight");
    set_shared_expert(layer, width, "shared_experts.up_proj.weight");
    layer.weight("shared_experts.up_proj.weight", {MOE_ROLE_SHARED_UP, 0, width, desc.hidden});
    layer.weight("shared_experts.down_proj.weight", {MOE_ROLE_SHARED_DOWN, 0, desc.hidden, width});
}

}  // namespace moe
