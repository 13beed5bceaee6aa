// The weights of one layer as float32 values by role and expert: what the clients hand to libmoe as
// tensors and what their reference computes with.
#pragma once

#include <cstdint>
#include <vector>

#include "support/check.hpp"

namespace clients {

// Small, repeatable, the same on every machine.
class Random {
  public:
    explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ull + 1) {}
    uint64_t bits() {
        uint64_t z = (state_ += 0x9E3779B97F4A7C15ull);
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
        return z ^ (z >> 31);
    }
    // In [-1, 1).
    float value() { return float(int32_t(bits() >> 32)) * 0x1p-31f; }
    int32_t below(int32_t n) { return int32_t((bits() >> 33) % uint64_t(n)); }
    std::vector<float> values(int64_t n, float scale = 1.0f) {
        std::vector<float> result(static_cast<size_t>(n));
        for (float& v : result) v = scale * value();
        return result;
    }

  private:
    uint64_t state_;
};

struct RoleShape {
    int64_t n = 0;  // experts, 1 for roles without; 0: the layer has no such tensor
    int64_t rows = 0;
    int64_t columns = 0;
};

inline int32_t expert_width(const moe_layer_desc& d) {
    return d.latent ? d.latent : d.hidden;
}
inline int32_t experts_all(const moe_layer_desc& d) {
    return d.n_experts + d.n_identity_experts;
}

inline RoleShape shape_of(const moe_layer_desc& d, int role) {
    const int64_t H = d.hidden, I = d.intermediate, E = d.n_experts, L = expert_width(d);
    const int64_t S = d.shared_intermediate, all = experts_all(d);
    const auto when = [](int32_t has, RoleShape shape) { return has ? shape : RoleShape{}; };
    switch (role) {
        case MOE_ROLE_ROUTER:
            return when(d.has_router, {1, all, H});
        case MOE_ROLE_ROUTER_BIAS:
            return when(d.has_router_bias, {1, 1, all});
        case MOE_ROLE_SELECTION_BIAS:
            return when(d.has_selection_bias, {1, 1, all});
        case MOE_ROLE_SECOND_SELECTION_BIAS:
            return when(d.has_second_selection_bias, {1, 1, all});
        case MOE_ROLE_ROUTER_NORM:
            return when(d.has_router_norm_weight, {1, 1, H});
        case MOE_ROLE_EXPERT_SCALE:
            return when(d.has_expert_scale, {1, 1, E});
        case MOE_ROLE_GATE:
            return when(d.is_gated, {E, I, L});
        case MOE_ROLE_UP:
            return {E, I, L};
        case MOE_ROLE_DOWN:
            return {E, L, I};
        case MOE_ROLE_GATE_BIAS:
            return when(d.has_gate_bias, {E, 1, I});
        case MOE_ROLE_UP_BIAS:
            return when(d.has_up_bias, {E, 1, I});
        case MOE_ROLE_DOWN_BIAS:
            return when(d.has_down_bias, {E, 1, L});
        case MOE_ROLE_SHARED_GATE:
            return when(S && d.shared_is_gated, {1, S, H});
        case MOE_ROLE_SHARED_UP:
            return when(S, {1, S, H});
        case MOE_ROLE_SHARED_DOWN:
            return when(S, {1, H, S});
        case MOE_ROLE_SHARED_EXPERT_GATE:
            return when(d.has_shared_expert_gate, {1, 1, H});
        case MOE_ROLE_LATENT_IN:
            return when(d.latent, {1, L, H});
        case MOE_ROLE_LATENT_OUT:
            return when(d.latent, {1, H, L});
        case MOE_ROLE_LATENT_NORM:
            return when(d.has_latent_norm, {1, 1, L});
        case MOE_ROLE_LATENT_IN_NORM:
            return when(d.has_latent_in_norm, {1, 1, L});
        case MOE_ROLE_EXPERT_NORM:
            return when(d.has_expert_norm, {1, 1, L});
        default:
            return {};
    }
}

inline bool is_vector(int role) {
    switch (role) {
        case MOE_ROLE_ROUTER_BIAS:
        case MOE_ROLE_SELECTION_BIAS:
        case MOE_ROLE_SECOND_SELECTION_BIAS:
        case MOE_ROLE_ROUTER_NORM:
        case MOE_ROLE_EXPERT_SCALE:
        case MOE_ROLE_GATE_BIAS:
        case MOE_ROLE_UP_BIAS:
        case MOE_ROLE_DOWN_BIAS:
        case MOE_ROLE_SHARED_EXPERT_GATE:
        case MOE_ROLE_LATENT_NORM:
        case MOE_ROLE_LATENT_IN_NORM:
        case MOE_ROLE_EXPERT_NORM:
            return true;
        default:
            return false;
    }
}

// Weights of norms, and scales.
inline bool is_around_one(int role) {
    return role == MOE_ROLE_ROUTER_NORM || role == MOE_ROLE_LATENT_NORM ||
           role == MOE_ROLE_LATENT_IN_NORM || role == MOE_ROLE_EXPERT_NORM ||
           role == MOE_ROLE_EXPERT_SCALE;
}

struct LayerWeights {
    moe_layer_desc desc;
    std::vector<float> values[MOE_ROLE_COUNT];  // [n, rows, columns] dense

    const float* expert(int role, int64_t e) const {
        const RoleShape shape = shape_of(desc, role);
        return values[role].data() + e * shape.rows * shape.columns;
    }
    const float* row(int role, int64_t e, int64_t r) const {
        return expert(role, e) + r * shape_of(desc, role).columns;
    }
};

// Values of a size that keeps every stage of the order of one. Norm weights and scales of experts
// lie around one.
inline LayerWeights random_weights(const moe_layer_desc& desc, uint64_t seed) {
    LayerWeights layer;
    layer.desc = desc;
    Random random(seed);
    for (int role = 0; role < MOE_ROLE_COUNT; ++role) {
        const RoleShape shape = shape_of(desc, role);
        const float scale = is_vector(role) ? 0.3f : 1.7f / std::sqrt(float(shape.columns + 1));
        layer.values[role] = random.values(shape.n * shape.rows * shape.columns, scale);
        if (is_around_one(role))
            for (float& v : layer.values[role]) v += 1.0f;
    }
    return layer;
}

// A plain softmax layer to start from: sizes, k, everything else off.
inline moe_layer_desc plain_layer(int32_t hidden, int32_t intermediate, int32_t n_experts,
                                  int32_t top_k) {
    auto desc = sized<moe_layer_desc>();
    desc.hidden = hidden;
    desc.intermediate = intermediate;
    desc.n_experts = n_experts;
    desc.top_k = top_k;
    desc.has_router = 1;
    desc.score = MOE_SCORE_SOFTMAX;
    desc.renormalize = MOE_RENORMALIZE_SUM_ADD;
    desc.activation = MOE_ACTIVATION_SILU;
    desc.is_gated = 1;
    return desc;
}

}  // namespace clients
