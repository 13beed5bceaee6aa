// DeepSeek-V2 and -V3 (and Kimi-K2, which is V3): groups of experts, a routed scale, shared experts
// stored as one MLP. The configurations of V3 name neither scoring function nor top-k method: both
// follow from the model type.
#include "libmoe/base/error.hpp"
#include "libmoe/checkpoint/families.hpp"
#include "libmoe/checkpoint/printable.hpp"

namespace moe {
namespace {

moe_score score_of(const Settings& settings, moe_score implied) {
    const auto name = settings.find_text("scoring_func");
    if (!name) return implied;
    if (*name == "softmax") return MOE_SCORE_SOFTMAX;
    if (*name == "sigmoid") return MOE_SCORE_SIGMOID;
    fail(MOE_ERROR_UNSUPPORTED, "{}: scoring_func '{}' is not known", settings.file(),
         printable(*name).text);
}

void set_groups(LayerBuilder& layer, int32_t default_groups, int32_t default_kept,
                moe_group_score score) {
    const Settings& settings = layer.settings();
    moe_layer_desc& desc = layer.desc();
    const auto groups =
        settings.find_integer({"n_group"}, 0, desc.n_experts).value_or(default_groups);
    if (groups <= 1) return;
    desc.n_group = static_cast<int32_t>(groups);
    desc.topk_group = static_cast<int32_t>(
        settings.find_integer({"topk_group"}, 1, groups).value_or(default_kept));
    desc.group_score = score;
}

void set_routed_scale(LayerBuilder& layer, float implied) {
    layer.desc().has_routed_scale = 1;
    layer.desc().routed_scale =
        layer.settings().find_number("routed_scaling_factor").value_or(implied);
}

void add_tensors(LayerBuilder& layer) {
    add_router(layer, "gate.weight");
    add_experts(layer);
    const auto shared = layer.settings().find_integer({"n_shared_experts"}, 0, 4096);
    if (shared.value_or(0) > 0 || layer.has_weight("shared_experts.gate_proj.weight")) {
        add_shared_expert(layer, "shared_experts.");
    }
}

}  // namespace

void build_deepseek_v2(LayerBuilder& layer) {
    read_sizes(layer, {"moe_intermediate_size"});
    set_activation(layer);
    moe_layer_desc& desc = layer.desc();
    // Never renormalised: transformers ignores norm_topk_prob for this family.
    desc.score = score_of(layer.settings(), MOE_SCORE_SOFTMAX);
    const auto method = layer.settings().find_text("topk_method").value_or("greedy");
    if (method == "group_limited_greedy") {
        set_groups(layer, 0, 0, MOE_GROUP_SCORE_MAX);
    } else if (method != "greedy") {
        fail(MOE_ERROR_UNSUPPORTED, "{}: topk_method '{}' is not known", layer.settings().file(),
             printable(method).text);
    }
    set_routed_scale(layer, 1.0f);
    add_tensors(layer);
}

void build_deepseek_v3(LayerBuilder& layer) {
    read_sizes(layer, {"moe_intermediate_size"});
    set_activation(layer);
    moe_layer_desc& desc = layer.desc();
    desc.score = score_of(layer.settings(), MOE_SCORE_SIGMOID);
    // The defaults are those of DeepseekV3Config, for configurations that leave them out.
    set_groups(layer, 8, 4, MOE_GROUP_SCORE_TOP2_SUM);
    set_routed_scale(layer, 2.5f);
    if (layer.settings().find_flag("norm_topk_prob").value_or(true)) {
        // DeepSeek-V3 in transformers divides by (sum + 1e-20).
        desc.renormalize = MOE_RENORMALIZE_SUM_ADD;
        desc.renormalize_eps = 1e-20f;
    }
    desc.has_selection_bias = 1;
    layer.vector("gate.e_score_correction_bias", {MOE_ROLE_SELECTION_BIAS, 0, 1, desc.n_experts});
    add_tensors(layer);
}

}  // namespace moe
