// The layer in double precision, written from the mathematics in moe.h section 4 and from nothing
// of the library: the judge of every client. Hash selection and sparsemixer are not among what the
// clients run.
#pragma once

#include <algorithm>
#include <numeric>

#include "support/layer_weights.hpp"

namespace clients {

struct Range {
    int64_t begin = 0, count = 0;
};

// Ids and weights of T tokens, dense [T, k].
struct RoutingResult {
    std::vector<int32_t> ids;
    std::vector<double> weights;
};

using Doubles = std::vector<double>;

inline double sigmoid(double v) {
    return 1.0 / (1.0 + std::exp(-v));
}

inline double dot(const float* row, const double* x, int64_t n) {
    double sum = 0.0;
    for (int64_t i = 0; i < n; ++i) sum += double(row[i]) * x[i];
    return sum;
}

inline double inverse_rms(const double* x, int64_t n, double eps) {
    const double squares = std::inner_product(x, x + n, x, 0.0);
    return 1.0 / std::sqrt(squares / double(n) + eps);
}

inline Doubles to_doubles(const float* x, int64_t n) {
    return Doubles(x, x + n);
}

// ---- routing
// ------------------------------------------------------------------------------------------------

inline Doubles reference_logits(const LayerWeights& layer, const float* x) {
    const moe_layer_desc& d = layer.desc;
    Doubles r = to_doubles(x, d.hidden);
    if (d.has_router_norm) {
        const double factor = inverse_rms(r.data(), d.hidden, d.router_norm_eps);
        for (double& v : r) v *= factor;
    }
    for (int32_t h = 0; h < d.hidden; ++h) {
        if (d.has_router_norm_weight) r[h] *= layer.values[MOE_ROLE_ROUTER_NORM][h];
        if (d.has_router_input_scale) r[h] *= d.router_input_scale;
    }
    Doubles z(experts_all(d));
    for (size_t e = 0; e < z.size(); ++e) {
        z[e] = dot(layer.row(MOE_ROLE_ROUTER, 0, int64_t(e)), r.data(), d.hidden);
        if (d.has_router_bias) z[e] += layer.values[MOE_ROLE_ROUTER_BIAS][e];
        if (d.has_logit_softcap) z[e] = d.logit_softcap * std::tanh(z[e] / d.logit_softcap);
    }
    return z;
}

inline Doubles score(moe_score kind, Doubles z) {
    if (kind == MOE_SCORE_SOFTMAX) {
        const double top = *std::max_element(z.begin(), z.end());
        for (double& v : z) v = std::exp(v - top);
        const double sum = std::accumulate(z.begin(), z.end(), 0.0);
        for (double& v : z) v /= sum;
    }
    if (kind == MOE_SCORE_SIGMOID)
        for (double& v : z) v = sigmoid(v);
    if (kind == MOE_SCORE_SQRT_SOFTPLUS)
        for (double& v : z) v = std::sqrt(v > 20.0 ? v : std::log1p(std::exp(v)));
    return z;
}

// Indices of the n largest, largest first, ties to the lowest index.
inline std::vector<int32_t> largest(const Doubles& values, int32_t n) {
    std::vector<int32_t> order(values.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return values[a] > values[b]; });
    order.resize(size_t(n));
    return order;
}

inline void limit_groups(const moe_layer_desc& d, Doubles& q) {
    if (d.n_group <= 1) return;
    const size_t width = q.size() / size_t(d.n_group);
    Doubles group_scores;
    for (int32_t g = 0; g < d.n_group; ++g) {
        Doubles keys(q.begin() + ptrdiff_t(g * width), q.begin() + ptrdiff_t((g + 1) * width));
        std::sort(keys.rbegin(), keys.rend());
        const bool two = d.group_score == MOE_GROUP_SCORE_TOP2_SUM && width > 1;
        group_scores.push_back(keys[0] + (two ? keys[1] : 0.0));
    }
    const std::vector<int32_t> kept = largest(group_scores, d.topk_group);
    const double mask = d.group_mask == MOE_GROUP_MASK_ZERO ? 0.0 : -HUGE_VAL;
    for (size_t e = 0; e < q.size(); ++e)
        if (std::find(kept.begin(), kept.end(), int32_t(e / width)) == kept.end()) q[e] = mask;
}

inline void finish_weights(const LayerWeights& layer, const int32_t* ids, Doubles& w) {
    const moe_layer_desc& d = layer.desc;
    w = score(d.post_score, std::move(w));
    const double sum = std::accumulate(w.begin(), w.end(), 0.0);
    double divisor = 1.0;
    if (d.renormalize == MOE_RENORMALIZE_SUM_ADD) divisor = sum + d.renormalize_eps;
    if (d.renormalize == MOE_RENORMALIZE_SUM_CLAMP)
        divisor = std::max(sum, double(d.renormalize_eps));
    for (size_t j = 0; j < w.size(); ++j) {
        w[j] /= divisor;
        if (d.has_routed_scale) w[j] *= d.routed_scale;
        if (d.has_expert_scale && ids[j] >= 0 && ids[j] < d.n_experts)
            w[j] *= layer.values[MOE_ROLE_EXPERT_SCALE][ids[j]];
    }
}

// Makes ids and weights of one token from its logits, by the first selection bias or the second.
inline RoutingResult route_logits(const LayerWeights& layer, const Doubles& z, bool second) {
    const moe_layer_desc& d = layer.desc;
    CHECK(d.selection == MOE_SELECT_TOP_K, "the clients' reference has no selection %d",
          d.selection);
    const Doubles s = score(d.score, z);
    Doubles q = s;
    for (size_t e = 0; e < q.size() && d.has_selection_bias; ++e)
        q[e] += layer.values[second ? MOE_ROLE_SECOND_SELECTION_BIAS : MOE_ROLE_SELECTION_BIAS][e];
    limit_groups(d, q);
    RoutingResult result;
    result.ids = largest(q, d.top_k);
    for (int32_t id : result.ids) result.weights.push_back(s[size_t(id)]);
    finish_weights(layer, result.ids.data(), result.weights);
    return result;
}

// uses_second_bias: a flag for each token, or none at all.
inline RoutingResult reference_route(const LayerWeights& layer, const std::vector<float>& x,
                                     int64_t n_tokens,
                                     const std::vector<int8_t>& uses_second_bias = {}) {
    RoutingResult all;
    for (int64_t t = 0; t < n_tokens; ++t) {
        const bool second = !uses_second_bias.empty() && uses_second_bias[size_t(t)] != 0;
        const RoutingResult one =
            route_logits(layer, reference_logits(layer, x.data() + t * layer.desc.hidden), second);
        all.ids.insert(all.ids.end(), one.ids.begin(), one.ids.end());
        all.weights.insert(all.weights.end(), one.weights.begin(), one.weights.end());
    }
    return all;
}

// ---- experts
// ------------------------------------------------------------------------------------------------

struct ActivationRule {
    moe_activation kind;
    bool gated;
    double alpha, up_offset, gate_limit, up_limit, post_limit, situ_beta, situ_beta_up;
};

inline ActivationRule routed_activation(const moe_layer_desc& d) {
    return {d.activation,
            d.is_gated != 0,
            d.has_activation_alpha ? d.activation_alpha : 1.0,
            d.activation_up_offset,
            d.has_gate_limit ? d.gate_limit : HUGE_VAL,
            d.has_up_limit ? d.up_limit : HUGE_VAL,
            d.has_post_limit ? d.post_limit : HUGE_VAL,
            d.situ_beta,
            d.situ_beta_up};
}

inline ActivationRule shared_activation(const moe_layer_desc& d) {
    return {d.shared_activation,
            d.shared_is_gated != 0,
            d.has_shared_activation_alpha ? d.shared_activation_alpha : 1.0,
            d.shared_activation_up_offset,
            d.has_shared_gate_limit ? d.shared_gate_limit : HUGE_VAL,
            d.has_shared_up_limit ? d.shared_up_limit : HUGE_VAL,
            d.has_shared_post_limit ? d.shared_post_limit : HUGE_VAL,
            d.shared_situ_beta,
            d.shared_situ_beta_up};
}

// Without a gate g is up's output and there is nothing to multiply.
inline double activate(const ActivationRule& rule, double g, double u) {
    g = std::min(g, rule.gate_limit);
    u = std::clamp(u, -rule.up_limit, rule.up_limit);
    const double times = rule.gated ? u + rule.up_offset : 1.0;
    switch (rule.kind) {
        case MOE_ACTIVATION_SILU:
            return std::min(g * sigmoid(rule.alpha * g), rule.post_limit) * times;
        case MOE_ACTIVATION_GELU_TANH:
            return g / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g))) *
                   times;
        case MOE_ACTIVATION_GELU_ERF:
            return g / 2 * (1 + std::erf(g / std::sqrt(2.0))) * times;
        case MOE_ACTIVATION_RELU2:
            return std::max(g, 0.0) * std::max(g, 0.0);
        case MOE_ACTIVATION_SITU:
            return rule.situ_beta * std::tanh(g / rule.situ_beta) * sigmoid(g) * rule.situ_beta_up *
                   std::tanh(u / rule.situ_beta_up);
        default:
            break;
    }
    CHECK(false, "activation %d", rule.kind);
    return 0;
}

// [gate I, up I] of one row, biases added; without a gate [up I].
inline Doubles before_activation(const LayerWeights& layer, int64_t e, const double* v) {
    const moe_layer_desc& d = layer.desc;
    const int64_t I = d.intermediate, L = expert_width(d);
    Doubles out;
    const auto append = [&](int matrix, int bias, int32_t has_bias) {
        for (int64_t i = 0; i < I; ++i)
            out.push_back(dot(layer.row(matrix, e, i), v, L) +
                          (has_bias ? layer.expert(bias, e)[i] : 0.0f));
    };
    if (d.is_gated) append(MOE_ROLE_GATE, MOE_ROLE_GATE_BIAS, d.has_gate_bias);
    append(MOE_ROLE_UP, MOE_ROLE_UP_BIAS, d.has_up_bias);
    return out;
}

// The norm of one expert's output, in place.
inline void normalize_expert(const LayerWeights& layer, Doubles& y) {
    const moe_layer_desc& d = layer.desc;
    if (!d.has_expert_norm) return;
    Doubles scaled = y;
    for (size_t l = 0; l < y.size(); ++l) scaled[l] *= layer.values[MOE_ROLE_EXPERT_NORM][l];
    const Doubles& of = d.expert_norm_weight_first ? scaled : y;
    const double factor = inverse_rms(of.data(), int64_t(of.size()), d.expert_norm_eps);
    for (size_t l = 0; l < y.size(); ++l) y[l] = scaled[l] * factor;
}

// F_e(v) [L] from the intermediate features of the range, with or without the down bias.
inline Doubles reference_expert(const LayerWeights& layer, int64_t e, const double* v, Range range,
                                bool bias) {
    const moe_layer_desc& d = layer.desc;
    const int64_t L = expert_width(d), I = d.intermediate;
    const Doubles h = before_activation(layer, e, v);
    const ActivationRule rule = routed_activation(d);
    Doubles activated(static_cast<size_t>(range.count)), out(static_cast<size_t>(L));
    for (int64_t i = 0; i < range.count; ++i) {
        const int64_t g = range.begin + i, u = d.is_gated ? I + g : g;
        activated[i] = activate(rule, h[g], h[u]);
    }
    for (int64_t l = 0; l < L; ++l) {
        out[l] = dot(layer.row(MOE_ROLE_DOWN, e, l) + range.begin, activated.data(), range.count);
        if (bias && d.has_down_bias) out[l] += layer.expert(MOE_ROLE_DOWN_BIAS, e)[l];
    }
    normalize_expert(layer, out);
    return out;
}

inline Doubles reference_expert(const LayerWeights& layer, int64_t e, const double* v) {
    return reference_expert(layer, e, v, {0, layer.desc.intermediate}, true);
}

// The experts of one token read x, or LATENT_IN x and its norm.
inline Doubles expert_input(const LayerWeights& layer, const float* x) {
    const Doubles token = to_doubles(x, layer.desc.hidden);
    if (!layer.desc.latent) return token;
    Doubles v(layer.desc.latent);
    for (size_t l = 0; l < v.size(); ++l)
        v[l] = dot(layer.row(MOE_ROLE_LATENT_IN, 0, int64_t(l)), token.data(), layer.desc.hidden);
    if (!layer.desc.has_latent_in_norm) return v;
    const double factor = inverse_rms(v.data(), int64_t(v.size()), layer.desc.latent_in_norm_eps);
    for (size_t l = 0; l < v.size(); ++l) v[l] *= factor * layer.values[MOE_ROLE_LATENT_IN_NORM][l];
    return v;
}

// One slot with everything that depends on where the weight goes: w F(v), or F(w v).
inline Doubles reference_slot(const LayerWeights& layer, int32_t id, double weight,
                              const Doubles& v) {
    const bool on_input = layer.desc.weight_on == MOE_WEIGHT_ON_INPUT;
    Doubles in = v;
    if (on_input)
        for (double& value : in) value *= weight;
    Doubles y = id < layer.desc.n_experts ? reference_expert(layer, id, in.data()) : in;
    if (!on_input)
        for (double& value : y) value *= weight;
    return y;
}

// Routed sums [T, L]; ids outside [0, E_all) are skipped.
inline Doubles reference_routed(const LayerWeights& layer, const std::vector<float>& x,
                                int64_t n_tokens, const RoutingResult& routing) {
    const moe_layer_desc& d = layer.desc;
    const int64_t L = expert_width(d);
    Doubles sums(static_cast<size_t>(n_tokens * L));
    for (int64_t t = 0; t < n_tokens; ++t) {
        const Doubles v = expert_input(layer, x.data() + t * d.hidden);
        for (int64_t j = t * d.top_k; j < (t + 1) * d.top_k; ++j) {
            if (routing.ids[j] < 0 || routing.ids[j] >= experts_all(d)) continue;
            const Doubles y = reference_slot(layer, routing.ids[j], routing.weights[j], v);
            for (int64_t l = 0; l < L; ++l) sums[t * L + l] += y[l];
        }
    }
    return sums;
}

// ---- what follows the routed sum
// ------------------------------------------------------------------------------

inline Doubles reference_shared(const LayerWeights& layer, const float* x) {
    const moe_layer_desc& d = layer.desc;
    const Doubles token = to_doubles(x, d.hidden);
    const ActivationRule rule = shared_activation(d);
    Doubles activated(d.shared_intermediate), out(d.hidden);
    for (int32_t s = 0; s < d.shared_intermediate; ++s) {
        const double u = dot(layer.row(MOE_ROLE_SHARED_UP, 0, s), token.data(), d.hidden);
        const double g =
            rule.gated ? dot(layer.row(MOE_ROLE_SHARED_GATE, 0, s), token.data(), d.hidden) : u;
        activated[s] = activate(rule, g, u);
    }
    double factor = d.has_shared_scale ? d.shared_scale : 1.0;
    if (d.has_shared_expert_gate)
        factor *=
            sigmoid(dot(layer.values[MOE_ROLE_SHARED_EXPERT_GATE].data(), token.data(), d.hidden));
    for (int32_t h = 0; h < d.hidden; ++h)
        out[h] = factor * dot(layer.row(MOE_ROLE_SHARED_DOWN, 0, h), activated.data(),
                              d.shared_intermediate);
    return out;
}

inline Doubles leave_latent(const LayerWeights& layer, const double* sum) {
    const moe_layer_desc& d = layer.desc;
    const int64_t L = expert_width(d);
    Doubles y(sum, sum + L);
    if (!d.latent) return y;
    const double factor = d.has_latent_norm ? inverse_rms(sum, L, d.latent_norm_eps) : 1.0;
    for (int64_t l = 0; l < L; ++l)
        y[l] *= factor * (d.has_latent_norm ? layer.values[MOE_ROLE_LATENT_NORM][l] : 1.0f);
    Doubles out(d.hidden);
    for (int32_t h = 0; h < d.hidden; ++h)
        out[h] = dot(layer.row(MOE_ROLE_LATENT_OUT, 0, h), y.data(), L);
    return out;
}

// Routed sums [T, L] to the layer's output [T, H].
inline Doubles reference_finish(const LayerWeights& layer, const std::vector<float>& x,
                                int64_t n_tokens, const Doubles& routed) {
    const moe_layer_desc& d = layer.desc;
    Doubles out;
    for (int64_t t = 0; t < n_tokens; ++t) {
        Doubles y = leave_latent(layer, routed.data() + t * expert_width(d));
        if (d.shared_intermediate) {
            const Doubles shared = reference_shared(layer, x.data() + t * d.hidden);
            for (int32_t h = 0; h < d.hidden; ++h) y[h] += shared[h];
        }
        if (d.combine == MOE_COMBINE_MEAN)
            for (double& v : y) v *= 0.5;
        out.insert(out.end(), y.begin(), y.end());
    }
    return out;
}

// The layer with the routing given.
inline Doubles reference_forward(const LayerWeights& layer, const std::vector<float>& x,
                                 int64_t n_tokens, const RoutingResult& routing) {
    return reference_finish(layer, x, n_tokens, reference_routed(layer, x, n_tokens, routing));
}

}  // namespace clients
