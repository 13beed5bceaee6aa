// moe_forward against the layer in double precision, over layers that differ in one thing each:
// what section 4 of moe.h says, term by term.
#include <gtest/gtest.h>

#include "tests/support/layer_case.hpp"

namespace moe_test {
namespace {

struct LayerVariant {
    const char* name;
    moe_layer_desc desc;
    int64_t n_tokens = 5;
    const char* format = "f32";
};

moe_layer_desc with(moe_layer_desc desc, const std::function<void(moe_layer_desc&)>& change) {
    change(desc);
    return desc;
}

const moe_layer_desc small = plain_layer(64, 48, 6, 3);

void add_shared(moe_layer_desc& d) {
    d.shared_intermediate = 48;
    d.shared_activation = MOE_ACTIVATION_SILU;
    d.shared_is_gated = 1;
}

std::vector<LayerVariant> routing_layers() {
    return {
        {"plain", small},
        {"k_is_E", plain_layer(64, 48, 6, 6)},
        {"one_expert", plain_layer(32, 16, 1, 1)},
        {"no_score", with(small, [](auto& d) { d.score = MOE_SCORE_NONE; })},
        {"sigmoid_bias", with(small,
                              [](auto& d) {
                                  d.score = MOE_SCORE_SIGMOID;
                                  d.has_selection_bias = 1;
                              })},
        {"sqrt_softplus", with(small, [](auto& d) { d.score = MOE_SCORE_SQRT_SOFTPLUS; })},
        {"router_bias_softcap", with(small,
                                     [](auto& d) {
                                         d.has_router_bias = 1;
                                         d.has_logit_softcap = 1;
                                         d.logit_softcap = 1.5f;
                                     })},
        {"router_norm", with(small,
                             [](auto& d) {
                                 d.has_router_norm = 1;
                                 d.has_router_norm_weight = 1;
                                 d.router_norm_eps = 1e-6f;
                                 d.has_router_input_scale = 1;
                                 d.router_input_scale = 0.5f;
                             })},
        {"post_softmax", with(small,
                              [](auto& d) {
                                  d.score = MOE_SCORE_NONE;
                                  d.post_score = MOE_SCORE_SOFTMAX;
                                  d.renormalize = MOE_RENORMALIZE_NONE;
                              })},
        {"post_sigmoid", with(small,
                              [](auto& d) {
                                  d.score = MOE_SCORE_NONE;
                                  d.post_score = MOE_SCORE_SIGMOID;
                              })},
        {"renormalize_clamp", with(small,
                                   [](auto& d) {
                                       d.score = MOE_SCORE_SIGMOID;
                                       d.renormalize = MOE_RENORMALIZE_SUM_CLAMP;
                                       d.renormalize_eps = 2.0f;
                                   })},
        {"renormalize_add", with(small, [](auto& d) { d.renormalize_eps = 0.25f; })},
        {"scales", with(small,
                        [](auto& d) {
                            d.has_routed_scale = 1;
                            d.routed_scale = 2.5f;
                            d.has_expert_scale = 1;
                        })},
        {"group_max", with(small,
                           [](auto& d) {
                               d.n_group = 3;
                               d.topk_group = 2;
                               d.group_score = MOE_GROUP_SCORE_MAX;
                           })},
        {"group_top2", with(plain_layer(64, 48, 12, 3),
                            [](auto& d) {
                                d.n_group = 3;
                                d.topk_group = 1;
                                d.group_score = MOE_GROUP_SCORE_TOP2_SUM;
                            })},
        {"kolibri1", with(small,
                          [](auto& d) {
                              d.score = MOE_SCORE_NONE;
                              d.post_score = MOE_SCORE_SIGMOID;
                              d.has_selection_bias = 1;
                              d.renormalize = MOE_RENORMALIZE_NONE;
                          })},
        {"group_mask_zero", with(plain_layer(64, 48, 12, 4),
                                 [](auto& d) {
                                     d.score = MOE_SCORE_NONE;
                                     d.has_selection_bias = 1;
                                     d.renormalize = MOE_RENORMALIZE_NONE;
                                     d.n_group = 3;
                                     d.topk_group = 1;
                                     d.group_score = MOE_GROUP_SCORE_TOP2_SUM;
                                     d.group_mask = MOE_GROUP_MASK_ZERO;
                                 })},
        {"weight_on_input", with(small, [](auto& d) { d.weight_on = MOE_WEIGHT_ON_INPUT; })},
        {"identity", with(small, [](auto& d) { d.n_identity_experts = 3; }), 12},
    };
}

std::vector<LayerVariant> expert_layers() {
    return {
        {"biases",
         with(small, [](auto& d) { d.has_gate_bias = d.has_up_bias = d.has_down_bias = 1; })},
        {"biases_weight_on_input", with(small,
                                        [](auto& d) {
                                            d.has_gate_bias = d.has_up_bias = d.has_down_bias = 1;
                                            d.weight_on = MOE_WEIGHT_ON_INPUT;
                                        })},
        {"gelu_tanh", with(small, [](auto& d) { d.activation = MOE_ACTIVATION_GELU_TANH; })},
        {"gelu_erf", with(small, [](auto& d) { d.activation = MOE_ACTIVATION_GELU_ERF; })},
        {"relu2", with(small,
                       [](auto& d) {
                           d.activation = MOE_ACTIVATION_RELU2;
                           d.is_gated = 0;
                       })},
        {"silu_without_gate", with(small, [](auto& d) { d.is_gated = 0; })},
        {"situ", with(small,
                      [](auto& d) {
                          d.activation = MOE_ACTIVATION_SITU;
                          d.situ_beta = 1.25f;
                          d.situ_beta_up = 0.75f;
                      })},
        {"gpt_oss", with(small,
                         [](auto& d) {
                             d.has_activation_alpha = d.has_gate_limit = d.has_up_limit = 1;
                             d.activation_alpha = 1.702f;
                             d.activation_up_offset = 1.0f;
                             d.gate_limit = 0.4f;
                             d.up_limit = 0.5f;
                         })},
        {"post_limit", with(small,
                            [](auto& d) {
                                d.has_post_limit = 1;
                                d.post_limit = 0.2f;
                            })},
        {"shared", with(small, add_shared)},
        {"shared_gate_scale_mean", with(small,
                                        [](auto& d) {
                                            add_shared(d);
                                            d.has_shared_expert_gate = 1;
                                            d.has_shared_scale = 1;
                                            d.shared_scale = 0.7f;
                                            d.combine = MOE_COMBINE_MEAN;
                                        })},
        {"shared_relu2", with(small,
                              [](auto& d) {
                                  add_shared(d);
                                  d.shared_activation = MOE_ACTIVATION_RELU2;
                                  d.shared_is_gated = 0;
                              })},
        {"latent", with(small, [](auto& d) { d.latent = 32; })},
        {"latent_norm_shared", with(small,
                                    [](auto& d) {
                                        d.latent = 32;
                                        d.has_latent_norm = 1;
                                        d.latent_norm_eps = 1e-5f;
                                        add_shared(d);
                                    })},
        {"latent_wider", with(plain_layer(32, 48, 6, 3), [](auto& d) { d.latent = 96; })},
    };
}

void add_expert_norm(moe_layer_desc& d, int32_t weight_first) {
    d.has_expert_norm = 1;
    d.expert_norm_eps = 1e-5f;
    d.expert_norm_weight_first = weight_first;
}

moe_layer_desc muse_spark() {
    return with(plain_layer(64, 48, 12, 4), [](auto& d) {
        d.has_router_input_scale = d.has_selection_bias = d.has_routed_scale = 1;
        d.router_input_scale = 0.1768f;
        d.score = MOE_SCORE_SIGMOID;
        d.renormalize_eps = 1e-15f;
        d.routed_scale = 2.5f;
        d.latent = 32;
        d.has_latent_in_norm = 1;
        d.latent_in_norm_eps = 1e-5f;
        add_expert_norm(d, 1);
    });
}

// The sums of other layers are made in different ways for few tokens and for many.
std::vector<LayerVariant> normalized_layers() {
    return {
        {"latent_in_norm", with(small,
                                [](auto& d) {
                                    d.latent = 32;
                                    d.has_latent_in_norm = 1;
                                    d.latent_in_norm_eps = 1e-5f;
                                })},
        {"latent_norms", with(small,
                              [](auto& d) {
                                  d.latent = 32;
                                  d.has_latent_in_norm = d.has_latent_norm = 1;
                                  d.latent_in_norm_eps = 0.25f;
                                  d.latent_norm_eps = 1e-5f;
                              })},
        {"expert_norm", with(small, [](auto& d) { add_expert_norm(d, 0); })},
        {"expert_norm_of_many", with(small, [](auto& d) { add_expert_norm(d, 0); }), 40},
        {"expert_norm_weight_first", with(small, [](auto& d) { add_expert_norm(d, 1); })},
        {"expert_norm_large_eps", with(small,
                                       [](auto& d) {
                                           add_expert_norm(d, 1);
                                           d.expert_norm_eps = 0.25f;
                                       })},
        {"expert_norm_biases_shared", with(small,
                                           [](auto& d) {
                                               add_expert_norm(d, 1);
                                               d.has_gate_bias = d.has_up_bias = d.has_down_bias =
                                                   1;
                                               add_shared(d);
                                           })},
        {"expert_norm_identity",
         with(small,
              [](auto& d) {
                  add_expert_norm(d, 0);
                  d.n_identity_experts = 3;
              }),
         12},
        {"expert_norm_weight_on_input", with(small,
                                             [](auto& d) {
                                                 add_expert_norm(d, 1);
                                                 d.weight_on = MOE_WEIGHT_ON_INPUT;
                                             })},
        {"muse_spark", muse_spark()},
        {"muse_spark_one", muse_spark(), 1},
        {"muse_spark_of_many", muse_spark(), 40},
        {"muse_spark_bf16", muse_spark(), 9, "bf16"},
    };
}

std::vector<LayerVariant> sizes() {
    return {
        {"I_16_H_32", plain_layer(32, 16, 4, 2)},
        {"I_80", plain_layer(96, 80, 4, 2)},
        {"I_80_bf16", plain_layer(96, 80, 4, 2), 9, "bf16"},
        {"bf16", small, 9, "bf16"},
        {"gpt_oss_size", plain_layer(2880, 2880, 2, 2), 2, "bf16"},
        {"many_experts", plain_layer(32, 16, 130, 8), 33},
        {"widest_k", plain_layer(32, 16, 80, 64), 3},
    };
}

class Layers : public testing::TestWithParam<LayerVariant> {};

TEST_P(Layers, AgreeWithTheReference) {
    const LayerVariant& variant = GetParam();
    const LayerCase layer(variant.desc, variant.format);
    const LayerRun run(layer, layer.plan_desc(variant.n_tokens));
    const Floats x = layer.x(variant.n_tokens);
    const auto wanted = layer.reference(x);
    EXPECT_LE(error_of(forward(run, x), wanted, run.hidden), f32_tolerance);
    EXPECT_FALSE(error_of(Floats(x.size()), wanted, run.hidden) < 0.5) << "zero would pass too";
}

TEST_P(Layers, AgreeWithTheReferenceInDouble) {
    const LayerVariant& variant = GetParam();
    const LayerCase layer(variant.desc, variant.format);
    auto desc = layer.plan_desc(variant.n_tokens);
    desc.intermediate_type = MOE_TYPE_F64;
    const LayerRun run(layer, desc);
    const Floats x = layer.x(variant.n_tokens);
    // Weights of the routing are float32, and so is the output.
    EXPECT_LE(error_of(forward(run, x), layer.reference(x), run.hidden), 1e-6);
}

void PrintTo(const LayerVariant& variant, std::ostream* out) {
    *out << variant.name;
}

std::string name_of(const testing::TestParamInfo<LayerVariant>& info) {
    return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(Routing, Layers, testing::ValuesIn(routing_layers()), name_of);
INSTANTIATE_TEST_SUITE_P(Experts, Layers, testing::ValuesIn(expert_layers()), name_of);
INSTANTIATE_TEST_SUITE_P(Norms, Layers, testing::ValuesIn(normalized_layers()), name_of);
INSTANTIATE_TEST_SUITE_P(Sizes, Layers, testing::ValuesIn(sizes()), name_of);

}  // namespace
}  // namespace moe_test
