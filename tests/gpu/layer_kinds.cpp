// The tables of layers.
#include "layer_kinds.hpp"

#include <functional>

#include "layer.hpp"

namespace moe_gpu {
namespace {

using Change = std::function<void(moe_layer_desc&)>;

moe_layer_desc with(moe_layer_desc desc, const Change& change) {
    change(desc);
    return desc;
}

moe_layer_desc small() {
    return plain_layer(128, 64, 16, 4);
}

void add_shared(moe_layer_desc& d) {
    d.shared_intermediate = 48;
    d.shared_activation = MOE_ACTIVATION_SILU;
    d.shared_is_gated = 1;
}

void add_groups(moe_layer_desc& d, int32_t n, int32_t kept, moe_group_score score) {
    d.n_group = n;
    d.topk_group = kept;
    d.group_score = score;
}

void add_latent_in_norm(moe_layer_desc& d) {
    d.has_latent_in_norm = 1;
    d.latent_in_norm_eps = 1e-5f;
}

void add_expert_norm(moe_layer_desc& d, int32_t weight_first) {
    d.has_expert_norm = 1;
    d.expert_norm_eps = 1e-5f;
    d.expert_norm_weight_first = weight_first;
}

void scale_by(moe_layer_desc& d, float scale) {
    d.has_routed_scale = 1;
    d.routed_scale = scale;
}

void deepseek_v3(moe_layer_desc& d) {
    d.score = MOE_SCORE_SIGMOID;
    d.has_selection_bias = 1;
    d.renormalize_eps = 1e-20f;
    scale_by(d, 2.5f);
    add_groups(d, 4, 2, MOE_GROUP_SCORE_TOP2_SUM);
}

const NamedLayer plain_rules[] = {
    {"softmax_sum", small()},
    {"softmax", with(small(), [](auto& d) { d.renormalize = MOE_RENORMALIZE_NONE; })},
    {"no_score", with(small(),
                      [](auto& d) {
                          d.score = MOE_SCORE_NONE;
                          d.renormalize = MOE_RENORMALIZE_NONE;
                      })},
    {"sigmoid_bias", with(small(),
                          [](auto& d) {
                              d.score = MOE_SCORE_SIGMOID;
                              d.has_selection_bias = 1;
                          })},
    {"softmax_bias", with(small(), [](auto& d) { d.has_selection_bias = 1; })},
    {"sqrt_softplus", with(small(),
                           [](auto& d) {
                               d.score = MOE_SCORE_SQRT_SOFTPLUS;
                               d.renormalize = MOE_RENORMALIZE_SUM_CLAMP;
                               d.renormalize_eps = 0x1p-14f;
                               d.has_selection_bias = 1;
                           })},
    {"post_softmax", with(small(),
                          [](auto& d) {
                              d.score = MOE_SCORE_NONE;
                              d.post_score = MOE_SCORE_SOFTMAX;
                              d.renormalize = MOE_RENORMALIZE_NONE;
                          })},
    {"post_sigmoid", with(small(),
                          [](auto& d) {
                              d.score = MOE_SCORE_NONE;
                              d.post_score = MOE_SCORE_SIGMOID;
                          })},
    {"kolibri1", with(small(),
                      [](auto& d) {
                          d.score = MOE_SCORE_NONE;
                          d.post_score = MOE_SCORE_SIGMOID;
                          d.has_selection_bias = 1;
                          d.renormalize = MOE_RENORMALIZE_NONE;
                      })},
    {"llama4", with(plain_layer(128, 64, 16, 1),
                    [](auto& d) {
                        d.score = MOE_SCORE_NONE;
                        d.post_score = MOE_SCORE_SIGMOID;
                        d.renormalize = MOE_RENORMALIZE_NONE;
                        d.weight_on = MOE_WEIGHT_ON_INPUT;
                        add_shared(d);
                    })},
    {"sum_clamp", with(small(),
                       [](auto& d) {
                           d.score = MOE_SCORE_SIGMOID;
                           d.renormalize = MOE_RENORMALIZE_SUM_CLAMP;
                           d.renormalize_eps = 2.0f;
                       })},
    {"sum_add", with(small(), [](auto& d) { d.renormalize_eps = 0.25f; })},
    {"router_bias_softcap", with(small(),
                                 [](auto& d) {
                                     d.has_router_bias = 1;
                                     d.has_logit_softcap = 1;
                                     d.logit_softcap = 1.5f;
                                 })},
    {"router_norm", with(small(),
                         [](auto& d) {
                             d.has_router_norm = 1;
                             d.has_router_norm_weight = 1;
                             d.router_norm_eps = 1e-6f;
                             d.has_router_input_scale = 1;
                             d.router_input_scale = 0.5f;
                         })},
    {"scales", with(small(),
                    [](auto& d) {
                        scale_by(d, 2.5f);
                        d.has_expert_scale = 1;
                    })},
    {"round_logits", with(small(), [](auto& d) { d.round_logits = 1; })},
    {"round_weights", with(small(), [](auto& d) { d.round_weights = 1; })},
};

const NamedLayer chosen_rules[] = {
    {"group_max", with(small(),
                       [](auto& d) {
                           d.renormalize = MOE_RENORMALIZE_NONE;
                           scale_by(d, 16);
                           add_groups(d, 8, 3, MOE_GROUP_SCORE_MAX);
                       })},
    {"group_top2", with(small(), deepseek_v3)},
    {"group_mask_zero", with(small(),
                             [](auto& d) {
                                 d.score = MOE_SCORE_NONE;
                                 d.post_score = MOE_SCORE_SIGMOID;
                                 d.has_selection_bias = 1;
                                 add_groups(d, 8, 3, MOE_GROUP_SCORE_TOP2_SUM);
                                 d.group_mask = MOE_GROUP_MASK_ZERO;
                             })},
    {"second_bias", with(small(),
                         [](auto& d) {
                             d.score = MOE_SCORE_SQRT_SOFTPLUS;
                             d.renormalize_eps = 1e-20f;
                             d.has_selection_bias = d.has_second_selection_bias = 1;
                             scale_by(d, 1.5f);
                         })},
    {"second_bias_in_groups", with(small(),
                                   [](auto& d) {
                                       deepseek_v3(d);
                                       d.has_second_selection_bias = 1;
                                   })},
    {"sparsemixer", with(plain_layer(128, 64, 16, 2),
                         [](auto& d) {
                             d.score = MOE_SCORE_NONE;
                             d.renormalize = MOE_RENORMALIZE_NONE;
                             d.selection = MOE_SELECT_SPARSEMIXER;
                             d.sparsemixer_jitter = 0.01f;
                         })},
    {"hash", with(plain_layer(128, 64, 16, 3),
                  [](auto& d) {
                      d.selection = MOE_SELECT_HASH;
                      d.hash_vocabulary = 50;
                  })},
    {"identity", with(small(), [](auto& d) { d.n_identity_experts = 8; })},
    {"weight_on_input", with(small(), [](auto& d) { d.weight_on = MOE_WEIGHT_ON_INPUT; })},
    {"k_is_e", plain_layer(128, 64, 8, 8)},
    {"one_expert", plain_layer(64, 48, 1, 1)},
};

void add_biases(moe_layer_desc& d) {
    d.has_gate_bias = d.has_up_bias = d.has_down_bias = 1;
}

void gpt_oss(moe_layer_desc& d) {
    add_biases(d);
    d.has_activation_alpha = d.has_gate_limit = d.has_up_limit = 1;
    d.activation_alpha = 1.702f;
    d.activation_up_offset = 1.0f;
    d.gate_limit = 1.0f;
    d.up_limit = 1.5f;
}

const NamedLayer activations[] = {
    {"gelu_tanh", with(small(), [](auto& d) { d.activation = MOE_ACTIVATION_GELU_TANH; })},
    {"gelu_erf", with(small(), [](auto& d) { d.activation = MOE_ACTIVATION_GELU_ERF; })},
    {"relu2", with(small(),
                   [](auto& d) {
                       d.activation = MOE_ACTIVATION_RELU2;
                       d.is_gated = 0;
                   })},
    {"relu2_bias", with(small(),
                        [](auto& d) {
                            d.activation = MOE_ACTIVATION_RELU2;
                            d.is_gated = 0;
                            d.has_up_bias = d.has_down_bias = 1;
                        })},
    {"silu_without_gate", with(small(), [](auto& d) { d.is_gated = 0; })},
    {"situ", with(small(),
                  [](auto& d) {
                      d.activation = MOE_ACTIVATION_SITU;
                      d.situ_beta = 1.25f;
                      d.situ_beta_up = 0.75f;
                  })},
    {"gpt_oss", with(small(), gpt_oss)},
    {"post_limit", with(small(),
                        [](auto& d) {
                            d.has_post_limit = 1;
                            d.post_limit = 0.4f;
                        })},
    {"biases", with(small(), add_biases)},
    {"gate_bias", with(small(), [](auto& d) { d.has_gate_bias = 1; })},
    {"down_bias", with(small(), [](auto& d) { d.has_down_bias = 1; })},
    {"biases_weight_on_input", with(small(),
                                    [](auto& d) {
                                        add_biases(d);
                                        d.weight_on = MOE_WEIGHT_ON_INPUT;
                                    })},
};

const NamedLayer surroundings[] = {
    {"shared", with(small(), add_shared)},
    {"shared_gate_scale_mean", with(small(),
                                    [](auto& d) {
                                        add_shared(d);
                                        d.has_shared_expert_gate = 1;
                                        d.has_shared_scale = 1;
                                        d.shared_scale = 0.7f;
                                        d.combine = MOE_COMBINE_MEAN;
                                    })},
    // The shared expert is as the others.
    {"shared_alike", with(small(),
                          [](auto& d) {
                              add_shared(d);
                              d.shared_intermediate = 64;
                          })},
    {"shared_alike_gate_scale_mean", with(small(),
                                          [](auto& d) {
                                              add_shared(d);
                                              d.shared_intermediate = 64;
                                              d.has_shared_expert_gate = 1;
                                              d.has_shared_scale = 1;
                                              d.shared_scale = 0.7f;
                                              d.combine = MOE_COMBINE_MEAN;
                                          })},
    {"shared_alike_identity", with(small(),
                                   [](auto& d) {
                                       add_shared(d);
                                       d.shared_intermediate = 64;
                                       d.n_identity_experts = 4;
                                   })},
    {"shared_alike_widest_k", with(plain_layer(64, 64, 80, 63),
                                   [](auto& d) {
                                       add_shared(d);
                                       d.shared_intermediate = 64;
                                   })},
    {"shared_relu2", with(small(),
                          [](auto& d) {
                              add_shared(d);
                              d.shared_activation = MOE_ACTIVATION_RELU2;
                              d.shared_is_gated = 0;
                          })},
    {"shared_limits", with(small(),
                           [](auto& d) {
                               add_shared(d);
                               d.has_shared_gate_limit = d.has_shared_up_limit = 1;
                               d.shared_gate_limit = 0.8f;
                               d.shared_up_limit = 0.9f;
                               d.has_shared_activation_alpha = 1;
                               d.shared_activation_alpha = 1.3f;
                               d.shared_activation_up_offset = 0.5f;
                           })},
    {"latent", with(small(), [](auto& d) { d.latent = 64; })},
    {"latent_norm_shared", with(small(),
                                [](auto& d) {
                                    d.latent = 32;
                                    d.has_latent_norm = 1;
                                    d.latent_norm_eps = 1e-5f;
                                    add_shared(d);
                                })},
    {"latent_wider", with(plain_layer(64, 48, 6, 3), [](auto& d) { d.latent = 96; })},
    {"latent_in_norm", with(small(),
                            [](auto& d) {
                                d.latent = 64;
                                add_latent_in_norm(d);
                            })},
    {"expert_norm", with(small(), [](auto& d) { add_expert_norm(d, 0); })},
    {"expert_norm_weight_first", with(small(),
                                      [](auto& d) {
                                          add_expert_norm(d, 1);
                                          add_shared(d);
                                          d.shared_intermediate = 64;
                                      })},
    {"expert_norm_identity", with(small(),
                                  [](auto& d) {
                                      add_expert_norm(d, 1);
                                      d.n_identity_experts = 4;
                                  })},
    {"muse_spark", with(plain_layer(128, 64, 16, 4),
                        [](auto& d) {
                            d.has_router_input_scale = d.has_selection_bias = 1;
                            d.router_input_scale = 0.1768f;
                            d.score = MOE_SCORE_SIGMOID;
                            d.renormalize_eps = 1e-15f;
                            scale_by(d, 2.5f);
                            d.latent = 64;
                            add_latent_in_norm(d);
                            add_expert_norm(d, 1);
                        })},
    {"identity_shared", with(small(),
                             [](auto& d) {
                                 d.n_identity_experts = 4;
                                 add_shared(d);
                             })},
    {"deepseek_v3", with(small(),
                         [](auto& d) {
                             deepseek_v3(d);
                             add_shared(d);
                         })},
    {"widest_k", plain_layer(64, 32, 80, 64)},
    {"many_experts", plain_layer(64, 32, 300, 8)},
};

template <size_t n, size_t m>
std::vector<NamedLayer> joined(const NamedLayer (&a)[n], const NamedLayer (&b)[m]) {
    std::vector<NamedLayer> all(a, a + n);
    all.insert(all.end(), b, b + m);
    return all;
}

}  // namespace

std::vector<NamedLayer> routing_layers() {
    return joined(plain_rules, chosen_rules);
}

std::vector<NamedLayer> expert_layers() {
    return joined(activations, surroundings);
}

std::vector<NamedLayer> activation_layers() {
    return {std::begin(activations), std::end(activations)};
}

moe_layer_desc rich_layer(int32_t hidden, int32_t intermediate, int32_t n_experts, int32_t top_k) {
    moe_layer_desc desc = plain_layer(hidden, intermediate, n_experts, top_k);
    add_biases(desc);
    add_shared(desc);
    desc.has_shared_expert_gate = 1;
    desc.combine = MOE_COMBINE_MEAN;
    return desc;
}

moe_layer_desc rich_layer_on_grid(int32_t hidden, int32_t intermediate, int32_t n_experts,
                                  int32_t top_k) {
    moe_layer_desc desc = rich_layer(hidden, intermediate, n_experts, top_k);
    desc.shared_intermediate = 64;
    return desc;
}

}  // namespace moe_gpu
