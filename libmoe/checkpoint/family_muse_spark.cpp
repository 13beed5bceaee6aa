// Muse-Spark: experts between projections to a latent, with an RMS norm of what they read and of
// what each of them gives. The router reads the block's input and multiplies its logits. Weights of
// norms are stored less one. What a configuration leaves out is that of the class in transformers.
#include "libmoe/base/error.hpp"
#include "libmoe/checkpoint/families.hpp"

namespace moe {
namespace {

void set_routing(LayerBuilder& layer) {
    moe_layer_desc& desc = layer.desc();
    desc.score = MOE_SCORE_SIGMOID;
    desc.renormalize = MOE_RENORMALIZE_SUM_ADD;
    desc.renormalize_eps = 1e-15f;
    set_routed_scale(layer, "routed_scaling_factor", 1.0f);
    // The model multiplies logits; without a bias it may as well be what the router reads.
    desc.has_router_input_scale = 1;
    desc.router_input_scale =
        layer.settings().find_number("output_multiplier").value_or(0.1767766952966369f);
}

void refuse_shared_experts(const Settings& settings) {
    const int64_t n = settings.find_integer({"num_shared_experts"}, 0, 4096).value_or(0);
    if (n)
        fail(MOE_ERROR_UNSUPPORTED,
             "{}: 'num_shared_experts' is {}, but models of this family have none", settings.file(),
             n);
}

void add_norms(LayerBuilder& layer) {
    moe_layer_desc& desc = layer.desc();
    desc.has_latent_in_norm = 1;
    desc.latent_in_norm_eps = layer.settings().find_number("rms_norm_eps").value_or(1e-5f);
    layer.centred_vector("pre_expert_norm.weight", {MOE_ROLE_LATENT_IN_NORM, 0, 1, desc.latent});
    desc.has_expert_norm = desc.expert_norm_weight_first = 1;
    desc.expert_norm_eps = layer.settings().find_number("post_norm_eps").value_or(1e-8f);
    layer.centred_vector("experts.post_expert_norm.weight",
                         {MOE_ROLE_EXPERT_NORM, 0, 1, desc.latent});
}

}  // namespace

void build_muse_spark(LayerBuilder& layer) {
    read_sizes(layer, {"moe_intermediate_size"});
    layer.desc().latent =
        static_cast<int32_t>(layer.settings().integer({"moe_hidden_size"}, 1, 1 << 24));
    refuse_shared_experts(layer.settings());
    set_activation(layer);
    set_routing(layer);
    add_router(layer, "gate.weight");
    add_selection_bias(layer, {"gate.e_score_correction_bias"});
    add_latent(layer, "pre_expert_proj.weight", "post_expert_proj.weight");
    add_norms(layer);
    add_experts(layer, {});
}

}  // namespace moe
