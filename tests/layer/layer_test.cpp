// Every rule of moe_layer_desc: what is legal passes, what is not is refused by name and value.
#include "libmoe/layer/layer.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "libmoe/base/error.hpp"

namespace moe {
namespace {

moe_layer_desc small_layer() {
    moe_layer_desc desc{};
    desc.struct_size = sizeof desc;
    desc.hidden = 64;
    desc.intermediate = 48;
    desc.n_experts = 8;
    desc.top_k = 2;
    desc.has_router = 1;
    desc.score = MOE_SCORE_SOFTMAX;
    desc.activation = MOE_ACTIVATION_SILU;
    desc.is_gated = 1;
    return desc;
}

moe_layer_desc shared_layer() {
    moe_layer_desc desc = small_layer();
    desc.shared_intermediate = 80;
    desc.shared_activation = MOE_ACTIVATION_SILU;
    desc.shared_is_gated = 1;
    return desc;
}

moe_layer_desc grouped_layer() {
    moe_layer_desc desc = small_layer();
    desc.n_group = 4;
    desc.topk_group = 2;
    desc.group_score = MOE_GROUP_SCORE_TOP2_SUM;
    return desc;
}

moe_layer_desc sparsemixer_layer() {
    moe_layer_desc desc = small_layer();
    desc.score = MOE_SCORE_NONE;
    desc.selection = MOE_SELECT_SPARSEMIXER;
    desc.sparsemixer_jitter = 0.01f;
    return desc;
}

moe_layer_desc hash_layer() {
    moe_layer_desc desc = small_layer();
    desc.selection = MOE_SELECT_HASH;
    desc.hash_vocabulary = 1000;
    return desc;
}

std::string refusal(const moe_layer_desc& desc) {
    try {
        make_layer(desc);
    } catch (const Error& error) {
        EXPECT_EQ(error.status(), MOE_ERROR_INVALID_ARGUMENT);
        return error.what();
    }
    return "accepted";
}

void expect_refused(moe_layer_desc desc, void (*change)(moe_layer_desc&), const char* text) {
    EXPECT_EQ(refusal(desc), "accepted") << text;
    change(desc);
    EXPECT_NE((" " + refusal(desc)).find(std::string(" ") + text), std::string::npos)
        << refusal(desc) << "\nshould name: " << text;
}

struct Refusal {
    moe_layer_desc (*base)();
    void (*change)(moe_layer_desc&);
    const char* text;  // field and value
};

using Desc = moe_layer_desc;

template <class Enum>
Enum as(int32_t value) {
    return static_cast<Enum>(value);
}

const Refusal size_rules[] = {
    {small_layer, [](Desc& d) { d.hidden = 0; }, "hidden is 0;"},
    {small_layer, [](Desc& d) { d.hidden = 48; }, "hidden is 48;"},
    {small_layer, [](Desc& d) { d.hidden = -32; }, "hidden is -32;"},
    {small_layer, [](Desc& d) { d.intermediate = 0; }, "intermediate is 0;"},
    {small_layer, [](Desc& d) { d.intermediate = 40; }, "intermediate is 40;"},
    {small_layer, [](Desc& d) { d.n_experts = 0; }, "n_experts is 0;"},
    {small_layer, [](Desc& d) { d.n_experts = 4097; }, "n_experts is 4097;"},
    {small_layer, [](Desc& d) { d.top_k = 0; }, "top_k is 0;"},
    {small_layer, [](Desc& d) { d.top_k = 9; }, "top_k is 9;"},
    {small_layer, [](Desc& d) { d.n_experts = 128, d.top_k = 65; }, "top_k is 65;"},
    {small_layer, [](Desc& d) { d.n_identity_experts = -1; }, "n_identity_experts is -1;"},
    {small_layer, [](Desc& d) { d.n_identity_experts = INT32_MAX; },
     "n_identity_experts is 2147483647;"},
    {small_layer, [](Desc& d) { d.n_identity_experts = 4, d.latent = 32; },
     "latent is 32 but n_identity_experts is 4"},
    {small_layer, [](Desc& d) { d.latent = 48; }, "latent is 48;"},
    {small_layer, [](Desc& d) { d.latent = -32; }, "latent is -32;"},
    {shared_layer, [](Desc& d) { d.shared_intermediate = 24; }, "shared_intermediate is 24;"},
    {shared_layer, [](Desc& d) { d.shared_intermediate = -16; }, "shared_intermediate is -16;"},
};

const Refusal routing_rules[] = {
    {small_layer, [](Desc& d) { d.has_router = 2; }, "has_router is 2;"},
    {small_layer, [](Desc& d) { d.has_router = 0, d.has_router_bias = 1; },
     "has_router_bias is 1 but has_router is 0"},
    {small_layer, [](Desc& d) { d.has_router = 0, d.has_router_norm = 1; },
     "has_router_norm is 1 but has_router is 0"},
    {small_layer, [](Desc& d) { d.has_router_norm_weight = 1; },
     "has_router_norm_weight is 1 but has_router_norm is 0"},
    {small_layer, [](Desc& d) { d.router_norm_eps = 0.5f; },
     "router_norm_eps is 0.5 but has_router_norm is 0"},
    {small_layer, [](Desc& d) { d.has_router_norm = 1, d.router_norm_eps = -0.5f; },
     "router_norm_eps is -0.5;"},
    {small_layer, [](Desc& d) { d.has_router = 0, d.has_router_input_scale = 1; },
     "has_router_input_scale is 1 but has_router is 0"},
    {small_layer, [](Desc& d) { d.router_input_scale = 3; },
     "router_input_scale is 3 but has_router_input_scale is 0"},
    {small_layer, [](Desc& d) { d.logit_softcap = 30; },
     "logit_softcap is 30 but has_logit_softcap is 0"},
    {small_layer, [](Desc& d) { d.has_logit_softcap = 1; }, "logit_softcap is 0;"},
    {small_layer, [](Desc& d) { d.has_logit_softcap = 1, d.logit_softcap = -1; },
     "logit_softcap is -1;"},
    {small_layer, [](Desc& d) { d.score = as<moe_score>(4); }, "score is 4;"},
    {small_layer, [](Desc& d) { d.score = as<moe_score>(-1); }, "score is -1;"},
    {small_layer, [](Desc& d) { d.post_score = MOE_SCORE_SQRT_SOFTPLUS; }, "post_score is 3;"},
    {small_layer, [](Desc& d) { d.selection = as<moe_selection>(3); }, "selection is 3;"},
    {small_layer, [](Desc& d) { d.renormalize = as<moe_renormalize>(3); }, "renormalize is 3;"},
    {small_layer, [](Desc& d) { d.renormalize_eps = 0.25f; },
     "renormalize_eps is 0.25 but renormalize is 0"},
    {small_layer,
     [](Desc& d) { d.renormalize = MOE_RENORMALIZE_SUM_ADD, d.renormalize_eps = -0.25f; },
     "renormalize_eps is -0.25;"},
    {small_layer, [](Desc& d) { d.routed_scale = 2.5f; },
     "routed_scale is 2.5 but has_routed_scale is 0"},
    {small_layer, [](Desc& d) { d.has_routed_scale = 1, d.routed_scale = NAN; },
     "routed_scale is nan;"},
    {small_layer, [](Desc& d) { d.weight_on = as<moe_weight_on>(2); }, "weight_on is 2;"},
    {small_layer, [](Desc& d) { d.round_logits = -1; }, "round_logits is -1;"},
    {small_layer, [](Desc& d) { d.round_weights = 5; }, "round_weights is 5;"},
    {small_layer, [](Desc& d) { d.has_expert_scale = 2; }, "has_expert_scale is 2;"},
    {small_layer, [](Desc& d) { d.has_selection_bias = 2; }, "has_selection_bias is 2;"},
    {small_layer, [](Desc& d) { d.has_second_selection_bias = 2; },
     "has_second_selection_bias is 2;"},
    {small_layer, [](Desc& d) { d.has_second_selection_bias = 1; },
     "has_second_selection_bias is 1 but has_selection_bias is 0"},
};

const Refusal selection_rules[] = {
    {grouped_layer, [](Desc& d) { d.n_group = -1; }, "n_group is -1;"},
    {grouped_layer, [](Desc& d) { d.n_group = 3; }, "n_group is 3;"},
    {grouped_layer, [](Desc& d) { d.n_group = 16; }, "n_group is 16;"},
    {grouped_layer, [](Desc& d) { d.topk_group = 5; }, "topk_group is 5;"},
    {grouped_layer, [](Desc& d) { d.topk_group = 0; }, "topk_group is 0;"},
    {grouped_layer, [](Desc& d) { d.topk_group = 1, d.top_k = 3; }, "topk_group is 1;"},
    {grouped_layer, [](Desc& d) { d.group_score = MOE_GROUP_SCORE_NONE; }, "group_score is 0;"},
    {grouped_layer, [](Desc& d) { d.group_score = as<moe_group_score>(3); }, "group_score is 3;"},
    {grouped_layer, [](Desc& d) { d.n_group = 8; }, "group_score is 2,"},
    {grouped_layer, [](Desc& d) { d.group_mask = as<moe_group_mask>(2); }, "group_mask is 2;"},
    {small_layer, [](Desc& d) { d.group_mask = MOE_GROUP_MASK_ZERO; },
     "group_mask is 1 but n_group is 0"},
    {small_layer, [](Desc& d) { d.topk_group = 1; }, "topk_group is 1 but n_group is 0"},
    {small_layer, [](Desc& d) { d.group_score = MOE_GROUP_SCORE_MAX; },
     "group_score is 1 but n_group is 0"},
    {sparsemixer_layer, [](Desc& d) { d.top_k = 1; }, "top_k is 1;"},
    {sparsemixer_layer, [](Desc& d) { d.n_experts = 1, d.top_k = 2; }, "top_k is 2;"},
    {sparsemixer_layer, [](Desc& d) { d.score = MOE_SCORE_SOFTMAX; },
     "score is 1 but selection is 1"},
    {sparsemixer_layer, [](Desc& d) { d.post_score = MOE_SCORE_SOFTMAX; },
     "post_score is 1 but selection is 1"},
    {sparsemixer_layer, [](Desc& d) { d.has_selection_bias = 1; },
     "has_selection_bias is 1 but selection is 1"},
    {sparsemixer_layer, [](Desc& d) { d.hash_vocabulary = 7; },
     "hash_vocabulary is 7 but selection is 1"},
    {sparsemixer_layer,
     [](Desc& d) { d.n_group = 2, d.topk_group = 1, d.group_score = MOE_GROUP_SCORE_MAX; },
     "n_group is 2 but selection is 1"},
    {sparsemixer_layer, [](Desc& d) { d.sparsemixer_jitter = -0.5f; },
     "sparsemixer_jitter is -0.5;"},
    {small_layer, [](Desc& d) { d.sparsemixer_jitter = 0.5f; },
     "sparsemixer_jitter is 0.5 but selection is 0"},
    {hash_layer, [](Desc& d) { d.hash_vocabulary = 0; }, "hash_vocabulary is 0;"},
    {hash_layer, [](Desc& d) { d.hash_vocabulary = -1; }, "hash_vocabulary is -1;"},
    {hash_layer, [](Desc& d) { d.has_selection_bias = 1; },
     "has_selection_bias is 1 but selection is 2"},
    {hash_layer, [](Desc& d) { d.sparsemixer_jitter = 0.5f; },
     "sparsemixer_jitter is 0.5 but selection is 2"},
    {hash_layer,
     [](Desc& d) { d.n_group = 2, d.topk_group = 1, d.group_score = MOE_GROUP_SCORE_MAX; },
     "n_group is 2 but selection is 2"},
    {small_layer, [](Desc& d) { d.hash_vocabulary = 9; },
     "hash_vocabulary is 9 but selection is 0"},
};

const Refusal activation_rules[] = {
    {small_layer, [](Desc& d) { d.activation = MOE_ACTIVATION_NONE; }, "activation is 0;"},
    {small_layer, [](Desc& d) { d.activation = as<moe_activation>(6); }, "activation is 6;"},
    {small_layer, [](Desc& d) { d.is_gated = 2; }, "is_gated is 2;"},
    {small_layer, [](Desc& d) { d.activation = MOE_ACTIVATION_RELU2; },
     "is_gated is 1 but activation is 4"},
    {small_layer, [](Desc& d) { d.is_gated = 0, d.activation = MOE_ACTIVATION_SITU; },
     "is_gated is 0 but activation is 5"},
    {small_layer, [](Desc& d) { d.activation_alpha = 1.5f; },
     "activation_alpha is 1.5 but has_activation_alpha is 0"},
    {small_layer,
     [](Desc& d) {
         d.activation = MOE_ACTIVATION_GELU_ERF;
         d.has_activation_alpha = 1;
         d.activation_alpha = 2;
     },
     "has_activation_alpha is 1 but activation is 3"},
    {small_layer,
     [](Desc& d) { d.activation = MOE_ACTIVATION_GELU_TANH, d.activation_up_offset = 1; },
     "activation_up_offset is 1 but activation is 2"},
    {small_layer, [](Desc& d) { d.is_gated = 0, d.activation_up_offset = 1; },
     "activation_up_offset is 1 but is_gated is 0"},
    {small_layer, [](Desc& d) { d.gate_limit = 7; }, "gate_limit is 7 but has_gate_limit is 0"},
    {small_layer, [](Desc& d) { d.has_gate_limit = 1; }, "gate_limit is 0;"},
    {small_layer, [](Desc& d) { d.has_gate_limit = 1, d.gate_limit = INFINITY; },
     "gate_limit is inf;"},
    {small_layer, [](Desc& d) { d.up_limit = 7; }, "up_limit is 7 but has_up_limit is 0"},
    {small_layer, [](Desc& d) { d.has_up_limit = 1, d.up_limit = -7; }, "up_limit is -7;"},
    {small_layer, [](Desc& d) { d.is_gated = 0, d.has_up_limit = 1, d.up_limit = 7; },
     "has_up_limit is 1 but is_gated is 0"},
    {small_layer, [](Desc& d) { d.post_limit = 7; }, "post_limit is 7 but has_post_limit is 0"},
    {small_layer, [](Desc& d) { d.has_post_limit = 1; }, "post_limit is 0;"},
    {small_layer, [](Desc& d) { d.situ_beta = 4; }, "situ_beta is 4 but activation is 1"},
    {small_layer, [](Desc& d) { d.situ_beta_up = 25; }, "situ_beta_up is 25 but activation is 1"},
    {small_layer, [](Desc& d) { d.activation = MOE_ACTIVATION_SITU, d.situ_beta_up = 25; },
     "situ_beta is 0;"},
    {small_layer,
     [](Desc& d) {
         d.activation = MOE_ACTIVATION_SITU;
         d.situ_beta = 4;
         d.situ_beta_up = -25;
     },
     "situ_beta_up is -25;"},
    {small_layer, [](Desc& d) { d.is_gated = 0, d.has_gate_bias = 1; },
     "has_gate_bias is 1 but is_gated is 0"},
    {small_layer, [](Desc& d) { d.has_up_bias = 3; }, "has_up_bias is 3;"},
    {small_layer, [](Desc& d) { d.has_down_bias = -3; }, "has_down_bias is -3;"},
    {small_layer, [](Desc& d) { d.has_latent_norm = 1; }, "has_latent_norm is 1 but latent is 0"},
    {small_layer, [](Desc& d) { d.latent_norm_eps = 0.5f; },
     "latent_norm_eps is 0.5 but has_latent_norm is 0"},
    {small_layer, [](Desc& d) { d.latent = 32, d.has_latent_norm = 1, d.latent_norm_eps = -0.5f; },
     "latent_norm_eps is -0.5;"},
    {small_layer, [](Desc& d) { d.has_latent_in_norm = 1; },
     "has_latent_in_norm is 1 but latent is 0"},
    {small_layer, [](Desc& d) { d.latent = 32, d.has_latent_in_norm = 2; },
     "has_latent_in_norm is 2;"},
    {small_layer, [](Desc& d) { d.latent = 32, d.latent_in_norm_eps = 0.5f; },
     "latent_in_norm_eps is 0.5 but has_latent_in_norm is 0"},
    {small_layer,
     [](Desc& d) { d.latent = 32, d.has_latent_in_norm = 1, d.latent_in_norm_eps = -0.5f; },
     "latent_in_norm_eps is -0.5;"},
    {small_layer, [](Desc& d) { d.has_expert_norm = 2; }, "has_expert_norm is 2;"},
    {small_layer, [](Desc& d) { d.expert_norm_eps = 0.5f; },
     "expert_norm_eps is 0.5 but has_expert_norm is 0"},
    {small_layer, [](Desc& d) { d.has_expert_norm = 1, d.expert_norm_eps = NAN; },
     "expert_norm_eps is nan;"},
    {small_layer, [](Desc& d) { d.has_expert_norm = 1, d.expert_norm_eps = -1; },
     "expert_norm_eps is -1;"},
    {small_layer, [](Desc& d) { d.expert_norm_weight_first = 1; },
     "expert_norm_weight_first is 1 but has_expert_norm is 0"},
    {small_layer, [](Desc& d) { d.has_expert_norm = 1, d.expert_norm_weight_first = 2; },
     "expert_norm_weight_first is 2;"},
};

const Refusal shared_rules[] = {
    {shared_layer, [](Desc& d) { d.shared_activation = MOE_ACTIVATION_NONE; },
     "shared_activation is 0;"},
    {shared_layer, [](Desc& d) { d.shared_activation = as<moe_activation>(7); },
     "shared_activation is 7;"},
    {shared_layer, [](Desc& d) { d.shared_activation = MOE_ACTIVATION_RELU2; },
     "shared_is_gated is 1 but shared_activation is 4"},
    {shared_layer, [](Desc& d) { d.has_shared_post_limit = 1; }, "shared_post_limit is 0;"},
    {shared_layer, [](Desc& d) { d.has_shared_gate_limit = 1, d.shared_gate_limit = -1; },
     "shared_gate_limit is -1;"},
    {shared_layer, [](Desc& d) { d.shared_activation = MOE_ACTIVATION_SITU; },
     "shared_situ_beta is 0;"},
    {shared_layer, [](Desc& d) { d.shared_scale = 2; },
     "shared_scale is 2 but has_shared_scale is 0"},
    {shared_layer, [](Desc& d) { d.has_shared_scale = 1, d.shared_scale = -INFINITY; },
     "shared_scale is -inf;"},
    {shared_layer, [](Desc& d) { d.combine = as<moe_combine_rule>(2); }, "combine is 2;"},
    {small_layer, [](Desc& d) { d.combine = MOE_COMBINE_MEAN; },
     "combine is 1 but shared_intermediate is 0"},
    {small_layer, [](Desc& d) { d.has_shared_expert_gate = 1; },
     "has_shared_expert_gate is 1 but shared_intermediate is 0"},
    {small_layer, [](Desc& d) { d.has_shared_scale = 1, d.shared_scale = 1; },
     "has_shared_scale is 1 but shared_intermediate is 0"},
    {small_layer, [](Desc& d) { d.shared_activation = MOE_ACTIVATION_SILU; },
     "shared_activation is 1 but shared_intermediate is 0"},
    {small_layer, [](Desc& d) { d.shared_is_gated = 1; },
     "shared_is_gated is 1 but shared_intermediate is 0"},
    {small_layer, [](Desc& d) { d.has_shared_activation_alpha = 1; },
     "has_shared_activation_alpha is 1 but shared_intermediate is 0"},
    {small_layer, [](Desc& d) { d.shared_activation_alpha = 2; },
     "shared_activation_alpha is 2 but has_shared_activation_alpha is 0"},
    {small_layer, [](Desc& d) { d.shared_activation_up_offset = 1; },
     "shared_activation_up_offset is 1 but shared_is_gated is 0"},
    {small_layer, [](Desc& d) { d.has_shared_gate_limit = 1; },
     "has_shared_gate_limit is 1 but shared_intermediate is 0"},
    {small_layer, [](Desc& d) { d.shared_gate_limit = 7; },
     "shared_gate_limit is 7 but has_shared_gate_limit is 0"},
    {small_layer, [](Desc& d) { d.has_shared_up_limit = 1; },
     "has_shared_up_limit is 1 but shared_is_gated is 0"},
    {small_layer, [](Desc& d) { d.shared_up_limit = 7; },
     "shared_up_limit is 7 but has_shared_up_limit is 0"},
    {small_layer, [](Desc& d) { d.has_shared_post_limit = 1; },
     "has_shared_post_limit is 1 but shared_intermediate is 0"},
    {small_layer, [](Desc& d) { d.shared_post_limit = 7; },
     "shared_post_limit is 7 but has_shared_post_limit is 0"},
    {small_layer, [](Desc& d) { d.shared_situ_beta = 4; },
     "shared_situ_beta is 4 but shared_intermediate is 0"},
    {small_layer, [](Desc& d) { d.shared_situ_beta_up = 4; },
     "shared_situ_beta_up is 4 but shared_intermediate is 0"},
};

template <size_t n>
void expect_all_refused(const Refusal (&rules)[n]) {
    for (const Refusal& rule : rules) expect_refused(rule.base(), rule.change, rule.text);
}

TEST(Layer, RefusesSizes) {
    expect_all_refused(size_rules);
}
TEST(Layer, RefusesRouting) {
    expect_all_refused(routing_rules);
}
TEST(Layer, RefusesSelection) {
    expect_all_refused(selection_rules);
}
TEST(Layer, RefusesActivations) {
    expect_all_refused(activation_rules);
}
TEST(Layer, RefusesSharedExperts) {
    expect_all_refused(shared_rules);
}

TEST(Layer, TakesRealSizes) {
    for (const int32_t intermediate : {1856, 704, 80, 2880, 16}) {
        moe_layer_desc desc = small_layer();
        desc.intermediate = intermediate;
        EXPECT_EQ(refusal(desc), "accepted") << intermediate;
    }
    moe_layer_desc desc = small_layer();
    desc.n_experts = 4096;
    desc.top_k = 64;
    EXPECT_EQ(refusal(desc), "accepted");
    desc.n_experts = desc.top_k = 1;
    EXPECT_EQ(refusal(desc), "accepted");
    desc.n_identity_experts = 1;
    desc.top_k = 2;
    EXPECT_EQ(refusal(desc), "accepted");
}

// Configurations say n_group 1 and mean none.
TEST(Layer, OneGroupIsNone) {
    moe_layer_desc desc = small_layer();
    desc.n_group = desc.topk_group = 1;
    desc.group_score = MOE_GROUP_SCORE_TOP2_SUM;
    desc.group_mask = MOE_GROUP_MASK_ZERO;
    const Routing routing = make_layer(desc).routing;
    EXPECT_EQ(routing.n_group, 1);
    EXPECT_EQ(routing.group_score, MOE_GROUP_SCORE_NONE);
    EXPECT_EQ(routing.group_mask, MOE_GROUP_MASK_INFINITY);
}

TEST(Layer, TakesUngatedActivations) {
    moe_layer_desc desc = small_layer();
    desc.is_gated = 0;
    for (const moe_activation kind : {MOE_ACTIVATION_SILU, MOE_ACTIVATION_GELU_TANH,
                                      MOE_ACTIVATION_GELU_ERF, MOE_ACTIVATION_RELU2}) {
        desc.activation = kind;
        EXPECT_EQ(refusal(desc), "accepted") << kind;
        EXPECT_FALSE(make_layer(desc).has_role(MOE_ROLE_GATE));
    }
}

TEST(Layer, ResolvesDefaults) {
    const Layer layer = make_layer(shared_layer());
    EXPECT_EQ(layer.routing.routed_scale, 1.0f);
    EXPECT_EQ(layer.routing.router_input_scale, 1.0f);
    EXPECT_EQ(layer.activation.alpha, 1.0f);
    EXPECT_EQ(layer.activation.gate_limit, Activation::no_limit);
    EXPECT_EQ(layer.shared_activation.post_limit, Activation::no_limit);
    EXPECT_EQ(layer.shared_scale, 1.0f);
    EXPECT_EQ(layer.combine_scale, 1.0f);
    EXPECT_EQ(layer.routing.n_group, 1);
}

TEST(Layer, KeepsWhatIsGiven) {
    moe_layer_desc desc = shared_layer();
    desc.struct_size = 1;  // of an older program; what is kept is whole
    desc.n_identity_experts = 4;
    desc.has_routed_scale = desc.has_activation_alpha = desc.has_gate_limit = 1;
    desc.routed_scale = 2.5f;
    desc.activation_alpha = 1.702f;
    desc.gate_limit = 7;
    desc.activation_up_offset = 1;
    desc.has_shared_up_limit = desc.has_shared_scale = 1;
    desc.shared_up_limit = 16;
    desc.shared_scale = 0.5f;
    desc.combine = MOE_COMBINE_MEAN;
    desc.weight_on = MOE_WEIGHT_ON_INPUT;
    const Layer layer = make_layer(desc);
    EXPECT_EQ(layer.desc.struct_size, sizeof desc);
    EXPECT_EQ(layer.n_experts_all(), 12);
    EXPECT_EQ(layer.routing.n_experts_all, 12);
    EXPECT_EQ(layer.routing.routed_scale, 2.5f);
    EXPECT_EQ(layer.activation.alpha, 1.702f);
    EXPECT_EQ(layer.activation.gate_limit, 7.0f);
    EXPECT_EQ(layer.activation.up_offset, 1.0f);
    EXPECT_EQ(layer.shared_activation.up_limit, 16.0f);
    EXPECT_EQ(layer.shared_activation.up_offset, 0.0f);
    EXPECT_EQ(layer.shared_scale, 0.5f);
    EXPECT_EQ(layer.combine_scale, 0.5f);
    EXPECT_TRUE(layer.weight_on_input);
}

void expect_shape(const Layer& layer, moe_role role, int64_t rows, int64_t columns) {
    EXPECT_TRUE(layer.has_role(role)) << role_name(role);
    EXPECT_EQ(layer.role_shape(role).rows, rows) << role_name(role);
    EXPECT_EQ(layer.role_shape(role).columns, columns) << role_name(role);
}

moe_layer_desc layer_with_everything() {
    moe_layer_desc desc = hash_layer();
    desc.has_router_bias = desc.has_router_norm = desc.has_router_norm_weight = 1;
    desc.has_expert_scale = 1;
    desc.has_gate_bias = desc.has_up_bias = desc.has_down_bias = 1;
    desc.latent = 32;
    desc.has_latent_norm = desc.has_latent_in_norm = desc.has_expert_norm = 1;
    desc.shared_intermediate = 80;
    desc.shared_activation = MOE_ACTIVATION_SILU;
    desc.shared_is_gated = desc.has_shared_expert_gate = 1;
    return desc;
}

TEST(Layer, ShapesOfEveryRole) {
    const Layer layer = make_layer(layer_with_everything());
    expect_shape(layer, MOE_ROLE_ROUTER, 8, 64);
    expect_shape(layer, MOE_ROLE_ROUTER_BIAS, 1, 8);
    expect_shape(layer, MOE_ROLE_ROUTER_NORM, 1, 64);
    expect_shape(layer, MOE_ROLE_HASH_TABLE, 1000, 2);
    expect_shape(layer, MOE_ROLE_EXPERT_SCALE, 1, 8);
    expect_shape(layer, MOE_ROLE_GATE, 48, 32);
    expect_shape(layer, MOE_ROLE_UP, 48, 32);
    expect_shape(layer, MOE_ROLE_DOWN, 32, 48);
    expect_shape(layer, MOE_ROLE_GATE_BIAS, 1, 48);
    expect_shape(layer, MOE_ROLE_UP_BIAS, 1, 48);
    expect_shape(layer, MOE_ROLE_DOWN_BIAS, 1, 32);
    expect_shape(layer, MOE_ROLE_SHARED_GATE, 80, 64);
    expect_shape(layer, MOE_ROLE_SHARED_UP, 80, 64);
    expect_shape(layer, MOE_ROLE_SHARED_DOWN, 64, 80);
    expect_shape(layer, MOE_ROLE_SHARED_EXPERT_GATE, 1, 64);
    expect_shape(layer, MOE_ROLE_LATENT_IN, 32, 64);
    expect_shape(layer, MOE_ROLE_LATENT_OUT, 64, 32);
    expect_shape(layer, MOE_ROLE_LATENT_NORM, 1, 32);
    expect_shape(layer, MOE_ROLE_LATENT_IN_NORM, 1, 32);
    expect_shape(layer, MOE_ROLE_EXPERT_NORM, 1, 32);
    EXPECT_EQ(layer.role_shape(MOE_ROLE_GATE_UP).rows, 96);
    EXPECT_EQ(layer.role_shape(MOE_ROLE_GATE_UP_BIAS).columns, 96);
    EXPECT_EQ(layer.role_shape(MOE_ROLE_SHARED_GATE_UP).rows, 160);
    EXPECT_FALSE(layer.has_role(MOE_ROLE_SELECTION_BIAS));
}

TEST(Layer, SmallLayerHasFewRoles) {
    const Layer layer = make_layer(small_layer());
    for (int32_t role = 0; role < MOE_ROLE_COUNT; role++) {
        const bool expected = role == MOE_ROLE_ROUTER || role == MOE_ROLE_GATE ||
                              role == MOE_ROLE_UP || role == MOE_ROLE_DOWN;
        EXPECT_EQ(layer.has_role(as<moe_role>(role)), expected) << role;
    }
}

TEST(Layer, RoleNamesAndKinds) {
    EXPECT_STREQ(role_name(MOE_ROLE_ROUTER), "router");
    EXPECT_STREQ(role_name(MOE_ROLE_GATE), "gate");
    EXPECT_STREQ(role_name(MOE_ROLE_DOWN_BIAS), "down_bias");
    EXPECT_STREQ(role_name(MOE_ROLE_SHARED_GATE_UP), "shared_gate_up");
    EXPECT_STREQ(role_name(MOE_ROLE_LATENT_NORM), "latent_norm");
    EXPECT_STREQ(role_name(MOE_ROLE_SECOND_SELECTION_BIAS), "second_selection_bias");
    EXPECT_STREQ(role_name(MOE_ROLE_LATENT_IN_NORM), "latent_in_norm");
    EXPECT_STREQ(role_name(MOE_ROLE_EXPERT_NORM), "expert_norm");
    EXPECT_STREQ(role_name(as<moe_role>(MOE_ROLE_COUNT)), "unknown");
    EXPECT_STREQ(role_name(as<moe_role>(-1)), "unknown");
    EXPECT_TRUE(is_expert_role(MOE_ROLE_GATE) && is_expert_role(MOE_ROLE_GATE_UP_BIAS));
    EXPECT_FALSE(is_expert_role(MOE_ROLE_EXPERT_SCALE) || is_expert_role(MOE_ROLE_SHARED_GATE));
    EXPECT_TRUE(is_matrix_role(MOE_ROLE_ROUTER) && is_matrix_role(MOE_ROLE_LATENT_OUT));
    EXPECT_FALSE(is_matrix_role(MOE_ROLE_SHARED_EXPERT_GATE) ||
                 is_matrix_role(MOE_ROLE_HASH_TABLE) || is_matrix_role(MOE_ROLE_DOWN_BIAS));
}

}  // namespace
}  // namespace moe
