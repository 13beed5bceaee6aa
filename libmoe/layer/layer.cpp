// Makes the validated layer from a moe_layer_desc. Input: the description. Output: Layer with every
// default resolved; it also tells which tensors the layer has, by role.
#include "libmoe/layer/layer.hpp"

#include <algorithm>
#include <iterator>

#include "libmoe/layer/layer_rules.hpp"

namespace moe {
namespace {

float given_or(int32_t given, float value, float otherwise) {
    return given ? value : otherwise;
}

Routing make_routing(const moe_layer_desc& desc) {
    Routing routing;
    routing.n_experts_all = desc.n_experts + desc.n_identity_experts;
    routing.top_k = desc.top_k;
    routing.has_router = desc.has_router;
    routing.has_router_bias = desc.has_router_bias;
    routing.has_selection_bias = desc.has_selection_bias;
    routing.has_second_selection_bias = desc.has_second_selection_bias;
    routing.has_router_norm = desc.has_router_norm;
    routing.has_router_norm_weight = desc.has_router_norm_weight;
    routing.has_expert_scale = desc.has_expert_scale;
    routing.round_logits = desc.round_logits;
    routing.round_weights = desc.round_weights;
    routing.router_norm_eps = desc.router_norm_eps;
    routing.router_input_scale =
        given_or(desc.has_router_input_scale, desc.router_input_scale, 1.0f);
    routing.logit_softcap = desc.logit_softcap;
    routing.score = desc.score;
    routing.post_score = desc.post_score;
    routing.selection = desc.selection;
    routing.sparsemixer_jitter = desc.sparsemixer_jitter;
    routing.hash_vocabulary = desc.hash_vocabulary;
    if (desc.n_group > 1) {
        routing.n_group = desc.n_group;
        routing.topk_group = desc.topk_group;
        routing.group_score = desc.group_score;
        routing.group_mask = desc.group_mask;
    }
    routing.renormalize = desc.renormalize;
    routing.renormalize_eps = desc.renormalize_eps;
    routing.routed_scale = given_or(desc.has_routed_scale, desc.routed_scale, 1.0f);
    return routing;
}

Activation make_activation(const moe_layer_desc& desc) {
    Activation activation;
    activation.kind = desc.activation;
    activation.gated = desc.is_gated;
    activation.alpha = given_or(desc.has_activation_alpha, desc.activation_alpha, 1.0f);
    activation.up_offset = desc.activation_up_offset;
    activation.gate_limit = given_or(desc.has_gate_limit, desc.gate_limit, Activation::no_limit);
    activation.up_limit = given_or(desc.has_up_limit, desc.up_limit, Activation::no_limit);
    activation.post_limit = given_or(desc.has_post_limit, desc.post_limit, Activation::no_limit);
    activation.situ_beta = desc.situ_beta;
    activation.situ_beta_up = desc.situ_beta_up;
    return activation;
}

Activation make_shared_activation(const moe_layer_desc& desc) {
    Activation activation;
    activation.kind = desc.shared_activation;
    activation.gated = desc.shared_is_gated;
    activation.alpha =
        given_or(desc.has_shared_activation_alpha, desc.shared_activation_alpha, 1.0f);
    activation.up_offset = desc.shared_activation_up_offset;
    activation.gate_limit =
        given_or(desc.has_shared_gate_limit, desc.shared_gate_limit, Activation::no_limit);
    activation.up_limit =
        given_or(desc.has_shared_up_limit, desc.shared_up_limit, Activation::no_limit);
    activation.post_limit =
        given_or(desc.has_shared_post_limit, desc.shared_post_limit, Activation::no_limit);
    activation.situ_beta = desc.shared_situ_beta;
    activation.situ_beta_up = desc.shared_situ_beta_up;
    return activation;
}

// The index is a moe_role.
constexpr const char* role_names[MOE_ROLE_COUNT] = {
    "none",
    "router",
    "router_bias",
    "selection_bias",
    "router_norm",
    "hash_table",
    "expert_scale",
    "gate",
    "up",
    "down",
    "gate_up",
    "gate_bias",
    "up_bias",
    "down_bias",
    "gate_up_bias",
    "shared_gate",
    "shared_up",
    "shared_down",
    "shared_gate_up",
    "shared_expert_gate",
    "latent_in",
    "latent_out",
    "latent_norm",
    "second_selection_bias",
    "latent_in_norm",
    "expert_norm",
};

}  // namespace

Layer make_layer(const moe_layer_desc& desc) {
    check_layer_rules(desc);
    Layer layer;
    layer.desc = desc;
    layer.desc.struct_size = sizeof(moe_layer_desc);
    layer.hidden = desc.hidden;
    layer.intermediate = desc.intermediate;
    layer.n_experts = desc.n_experts;
    layer.n_identity_experts = desc.n_identity_experts;
    layer.top_k = desc.top_k;
    layer.latent = desc.latent;
    layer.shared_intermediate = desc.shared_intermediate;
    layer.routing = make_routing(desc);
    layer.activation = make_activation(desc);
    if (desc.shared_intermediate) layer.shared_activation = make_shared_activation(desc);
    layer.weight_on_input = desc.weight_on == MOE_WEIGHT_ON_INPUT;
    layer.has_gate_bias = desc.has_gate_bias;
    layer.has_up_bias = desc.has_up_bias;
    layer.has_down_bias = desc.has_down_bias;
    layer.has_latent_norm = desc.has_latent_norm;
    layer.latent_norm_eps = desc.latent_norm_eps;
    layer.has_latent_in_norm = desc.has_latent_in_norm;
    layer.latent_in_norm_eps = desc.latent_in_norm_eps;
    layer.has_expert_norm = desc.has_expert_norm;
    layer.expert_norm_eps = desc.expert_norm_eps;
    layer.expert_norm_weight_first = desc.expert_norm_weight_first;
    layer.has_shared_expert_gate = desc.has_shared_expert_gate;
    layer.shared_scale = given_or(desc.has_shared_scale, desc.shared_scale, 1.0f);
    layer.combine_scale = desc.combine == MOE_COMBINE_MEAN ? 0.5f : 1.0f;
    return layer;
}

bool Layer::has_role(moe_role role) const {
    const bool shared = shared_intermediate > 0;
    switch (role) {
        case MOE_ROLE_ROUTER:
            return routing.has_router;
        case MOE_ROLE_ROUTER_BIAS:
            return routing.has_router_bias;
        case MOE_ROLE_SELECTION_BIAS:
            return routing.has_selection_bias;
        case MOE_ROLE_SECOND_SELECTION_BIAS:
            return routing.has_second_selection_bias;
        case MOE_ROLE_ROUTER_NORM:
            return routing.has_router_norm_weight;
        case MOE_ROLE_HASH_TABLE:
            return routing.selection == MOE_SELECT_HASH;
        case MOE_ROLE_EXPERT_SCALE:
            return routing.has_expert_scale;
        case MOE_ROLE_GATE:
            return activation.gated;
        case MOE_ROLE_UP:
        case MOE_ROLE_DOWN:
            return true;
        case MOE_ROLE_GATE_BIAS:
            return has_gate_bias;
        case MOE_ROLE_UP_BIAS:
            return has_up_bias;
        case MOE_ROLE_DOWN_BIAS:
            return has_down_bias;
        case MOE_ROLE_SHARED_GATE:
            return shared && shared_activation.gated;
        case MOE_ROLE_SHARED_UP:
        case MOE_ROLE_SHARED_DOWN:
            return shared;
        case MOE_ROLE_SHARED_EXPERT_GATE:
            return has_shared_expert_gate;
        case MOE_ROLE_LATENT_IN:
        case MOE_ROLE_LATENT_OUT:
            return latent > 0;
        case MOE_ROLE_LATENT_NORM:
            return has_latent_norm;
        case MOE_ROLE_LATENT_IN_NORM:
            return has_latent_in_norm;
        case MOE_ROLE_EXPERT_NORM:
            return has_expert_norm;
        default:
            return false;
    }
}

Layer::Shape Layer::role_shape(moe_role role) const {
    const int64_t h = hidden, i = intermediate, l = expert_width(), s = shared_intermediate;
    switch (role) {
        case MOE_ROLE_ROUTER:
            return {n_experts_all(), h};
        case MOE_ROLE_ROUTER_BIAS:
        case MOE_ROLE_SELECTION_BIAS:
        case MOE_ROLE_SECOND_SELECTION_BIAS:
            return {1, n_experts_all()};
        case MOE_ROLE_ROUTER_NORM:
        case MOE_ROLE_SHARED_EXPERT_GATE:
            return {1, h};
        case MOE_ROLE_HASH_TABLE:
            return {routing.hash_vocabulary, top_k};
        case MOE_ROLE_EXPERT_SCALE:
            return {1, n_experts};
        case MOE_ROLE_GATE:
        case MOE_ROLE_UP:
            return {i, l};
        case MOE_ROLE_DOWN:
            return {l, i};
        case MOE_ROLE_GATE_UP:
            return {2 * i, l};
        case MOE_ROLE_GATE_BIAS:
        case MOE_ROLE_UP_BIAS:
            return {1, i};
        case MOE_ROLE_DOWN_BIAS:
        case MOE_ROLE_LATENT_NORM:
        case MOE_ROLE_LATENT_IN_NORM:
        case MOE_ROLE_EXPERT_NORM:
            return {1, l};
        case MOE_ROLE_GATE_UP_BIAS:
            return {1, 2 * i};
        case MOE_ROLE_SHARED_GATE:
        case MOE_ROLE_SHARED_UP:
            return {s, h};
        case MOE_ROLE_SHARED_DOWN:
            return {h, s};
        case MOE_ROLE_SHARED_GATE_UP:
            return {2 * s, h};
        case MOE_ROLE_LATENT_IN:
            return {l, h};
        case MOE_ROLE_LATENT_OUT:
            return {h, l};
        default:
            return {0, 0};
    }
}

const char* role_name(moe_role role) {
    const auto index = static_cast<int64_t>(role);
    return index >= 0 && index < MOE_ROLE_COUNT ? role_names[index] : "unknown";
}

bool is_expert_role(moe_role role) {
    return role >= MOE_ROLE_GATE && role <= MOE_ROLE_GATE_UP_BIAS;
}

bool is_matrix_role(moe_role role) {
    constexpr moe_role matrices[] = {
        MOE_ROLE_ROUTER,         MOE_ROLE_GATE,        MOE_ROLE_UP,         MOE_ROLE_DOWN,
        MOE_ROLE_GATE_UP,        MOE_ROLE_SHARED_GATE, MOE_ROLE_SHARED_UP,  MOE_ROLE_SHARED_DOWN,
        MOE_ROLE_SHARED_GATE_UP, MOE_ROLE_LATENT_IN,   MOE_ROLE_LATENT_OUT,
    };
    return std::find(std::begin(matrices), std::end(matrices), role) != std::end(matrices);
}

}  // namespace moe
