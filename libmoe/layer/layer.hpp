// The validated layer: moe_layer_desc with its rules checked and its defaults resolved. It knows no
// device.
#pragma once

#include <cstdint>
#include <limits>

#include "moe/moe.h"

namespace moe {

struct Activation {
    static constexpr float no_limit = std::numeric_limits<float>::infinity();

    moe_activation kind = MOE_ACTIVATION_NONE;
    bool gated = true;
    float alpha = 1.0f;
    float up_offset = 0.0f;
    float gate_limit = no_limit;
    float up_limit = no_limit;
    float post_limit = no_limit;
    float situ_beta = 0.0f;
    float situ_beta_up = 0.0f;

    bool operator==(const Activation&) const = default;
};

// Routing fields keep the names of moe_layer_desc.
struct Routing {
    int32_t n_experts_all = 0;  // routed and identity experts
    int32_t top_k = 0;
    bool has_router = false;
    bool has_router_bias = false;
    bool has_selection_bias = false;
    bool has_second_selection_bias = false;
    bool has_router_norm = false;
    bool has_router_norm_weight = false;
    bool has_expert_scale = false;
    bool round_logits = false;
    bool round_weights = false;
    float router_norm_eps = 0.0f;
    float router_input_scale = 1.0f;
    float logit_softcap = 0.0f;  // 0: none
    moe_score score = MOE_SCORE_NONE;
    moe_score post_score = MOE_SCORE_NONE;
    moe_selection selection = MOE_SELECT_TOP_K;
    float sparsemixer_jitter = 0.0f;
    int32_t hash_vocabulary = 0;
    int32_t n_group = 1;
    int32_t topk_group = 1;
    moe_group_score group_score = MOE_GROUP_SCORE_NONE;
    moe_group_mask group_mask = MOE_GROUP_MASK_INFINITY;
    moe_renormalize renormalize = MOE_RENORMALIZE_NONE;
    float renormalize_eps = 0.0f;
    float routed_scale = 1.0f;
};

struct Layer {
    moe_layer_desc desc{};  // as given, struct_size set; keys and explanations print it
    int32_t hidden = 0;
    int32_t intermediate = 0;
    int32_t n_experts = 0;
    int32_t n_identity_experts = 0;
    int32_t top_k = 0;
    int32_t latent = 0;               // 0: none
    int32_t shared_intermediate = 0;  // 0: no shared expert
    Routing routing;
    Activation activation;
    Activation shared_activation;
    bool weight_on_input = false;
    bool has_gate_bias = false;
    bool has_up_bias = false;
    bool has_down_bias = false;
    bool has_latent_norm = false;
    float latent_norm_eps = 0.0f;
    bool has_latent_in_norm = false;
    float latent_in_norm_eps = 0.0f;
    bool has_expert_norm = false;
    float expert_norm_eps = 0.0f;
    bool expert_norm_weight_first = false;
    bool has_shared_expert_gate = false;
    float shared_scale = 1.0f;
    float combine_scale = 1.0f;  // 0.5 for the mean

    int32_t n_experts_all() const { return n_experts + n_identity_experts; }
    // Width of the routed experts' input and output: L of the header.
    int32_t expert_width() const { return latent ? latent : hidden; }
    // Tells whether the layer has a matrix or vector of this role; GATE_UP roles are not valid
    // here.
    bool has_role(moe_role role) const;
    // Shape of one tensor of the role, which for expert roles is that of one expert.
    struct Shape {
        int64_t rows, columns;
    };
    Shape role_shape(moe_role role) const;
};

// Checks every rule of the header; fails naming the first wrong field and its value.
Layer make_layer(const moe_layer_desc& desc);

const char* role_name(moe_role role);
// Tells whether the role has one matrix per local expert (GATE .. GATE_UP_BIAS).
bool is_expert_role(moe_role role);
// Tells weight matrices from vectors, which are kept in float32.
bool is_matrix_role(moe_role role);

}  // namespace moe
