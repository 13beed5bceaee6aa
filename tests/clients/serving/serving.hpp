// What the parts of the serving client share: a layer, a batch of tokens, and routing that the
// engine made itself.
#pragma once

#include "support/layer_tensors.hpp"
#include "support/reference_layer.hpp"

namespace clients {

// Ids and weights as an engine has them: int32, and the same as int64 in wider rows.
struct OwnRouting {
    int32_t k = 0;
    std::vector<int32_t> ids;    // [T, k]
    std::vector<float> weights;  // [T, k]

    RoutingResult reference() const { return {ids, Doubles(weights.begin(), weights.end())}; }
};

// A tenth of the slots is -1, some ids occur twice in a token, one token has no expert at all.
inline OwnRouting random_routing(int64_t n_tokens, int32_t k, int32_t n_experts, uint64_t seed) {
    Random random(seed);
    OwnRouting routing{k, {}, {}};
    for (int64_t slot = 0; slot < n_tokens * k; ++slot) {
        const bool absent = random.below(10) == 0 || slot / k == 1;
        routing.ids.push_back(absent ? -1 : random.below(n_experts));
        routing.weights.push_back(0.6f + 0.4f * random.value());
    }
    return routing;
}

struct Batch {
    LayerWeights layer;
    LayerTensors tensors;
    int64_t T;
    std::vector<float> x;  // [T, H]
    OwnRouting routing;

    Batch(const moe_layer_desc& desc, int64_t n_tokens, Form form, uint64_t seed)
        : layer(random_weights(desc, seed)),
          tensors(layer, "f32", form),
          T(n_tokens),
          x(Random(seed + 1).values(n_tokens * desc.hidden)),
          routing(random_routing(n_tokens, desc.top_k, experts_all(desc), seed + 2)) {}

    int64_t H() const { return layer.desc.hidden; }
    int64_t L() const { return expert_width(layer.desc); }
    int32_t E() const { return layer.desc.n_experts; }
    int32_t k() const { return layer.desc.top_k; }
    moe_plan_desc plan_desc() const { return tensors.plan_desc(layer.desc, T); }

    moe_forward_args given_routing(std::vector<float>& out) const {
        auto args = sized<moe_forward_args>();
        args.routing = MOE_ROUTING_IDS_AND_WEIGHTS;
        args.n_tokens = T;
        args.x = x.data();
        args.ids = routing.ids.data();
        args.weights = routing.weights.data();
        args.out = out.data();
        return args;
    }
};

// Everything around the experts that a slice has to leave alone: biases, latent with norm, gated
// shared expert, mean.
inline moe_layer_desc rich_layer() {
    moe_layer_desc desc = plain_layer(96, 80, 9, 3);
    desc.has_gate_bias = desc.has_up_bias = desc.has_down_bias = 1;
    desc.latent = 64;
    desc.has_latent_norm = 1;
    desc.latent_norm_eps = 1e-6f;
    desc.shared_intermediate = 48;
    desc.shared_activation = MOE_ACTIVATION_GELU_TANH;
    desc.shared_is_gated = 1;
    desc.has_shared_expert_gate = 1;
    desc.has_shared_scale = 1;
    desc.shared_scale = 0.7f;
    desc.combine = MOE_COMBINE_MEAN;
    return desc;
}

// stages.cpp
void forward_with_own_routing();
void stages_equal_forward();
// slices.cpp
void expert_parallel();
void tensor_parallel();
// calls.cpp
void tokens_counted_on_the_device();
void faults_are_reported();
void expert_map_overrides_membership();
void weight_on_input();
void identity_experts();

}  // namespace clients
