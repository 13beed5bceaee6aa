// Per-token sums. The order of additions is part of the contract: slot by slot.
#include "libmoe/cpu/ref/combine.hpp"

#include <algorithm>
#include <cmath>

namespace moe::cpu {

template <class Real>
void combine_token(const Layer& layer, const Real* const* rows, const float* weights, int64_t n,
                   Real* out) {
    std::fill(out, out + n, Real{0});
    for (int32_t j = 0; j < layer.top_k; ++j) {
        if (!rows[j]) continue;
        const Real weight = layer.weight_on_input ? Real{1} : static_cast<Real>(weights[j]);
        for (int64_t i = 0; i < n; ++i) out[i] += weight * rows[j][i];
    }
}

template <class Real>
void add_identity_experts(const Layer& layer, const int32_t* ids, const float* weights,
                          const Real* x, int64_t n, Real* out) {
    for (int32_t j = 0; j < layer.top_k; ++j) {
        if (ids[j] < layer.n_experts) continue;
        const Real weight = weights[j];
        for (int64_t i = 0; i < n; ++i) out[i] += weight * x[i];
    }
}

template <class Real>
void add_down_bias(const Layer& layer, const float* bias, const int32_t* ids, const float* weights,
                   Real* out) {
    const int64_t width = layer.expert_width();
    for (int32_t j = 0; j < layer.top_k; ++j) {
        if (ids[j] < 0 || ids[j] >= layer.n_experts) continue;
        const Real weight = layer.weight_on_input ? Real{1} : static_cast<Real>(weights[j]);
        const float* row = bias + ids[j] * width;
        for (int64_t i = 0; i < width; ++i) out[i] += weight * static_cast<Real>(row[i]);
    }
}

template <class Real>
void rms_normalize(Real* v, int64_t n, float eps, const float* weight) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(v[i]) * v[i];
    const double mean = sum / static_cast<double>(n) + eps;
    // Zeros stay zeros without eps too. Double: tiny values have a scale beyond float.
    const double scale = mean == 0 ? 0.0 : 1.0 / std::sqrt(mean);
    for (int64_t i = 0; i < n; ++i)
        v[i] = static_cast<Real>(v[i] * scale) * (weight ? static_cast<Real>(weight[i]) : Real{1});
}

template <class Real>
void normalize_expert_row(const Layer& layer, const float* weight, int64_t n, Real* row) {
    if (!layer.expert_norm_weight_first)
        return rms_normalize(row, n, layer.expert_norm_eps, weight);
    for (int64_t i = 0; i < n; ++i) row[i] *= static_cast<Real>(weight[i]);
    rms_normalize(row, n, layer.expert_norm_eps, nullptr);
}

#define MOE_INSTANTIATE(Real)                                                                     \
    template void combine_token(const Layer&, const Real* const*, const float*, int64_t, Real*);  \
    template void add_identity_experts(const Layer&, const int32_t*, const float*, const Real*,   \
                                       int64_t, Real*);                                           \
    template void add_down_bias(const Layer&, const float*, const int32_t*, const float*, Real*); \
    template void rms_normalize(Real*, int64_t, float, const float*);                             \
    template void normalize_expert_row(const Layer&, const float*, int64_t, Real*);
MOE_INSTANTIATE(float)
MOE_INSTANTIATE(double)

}  // namespace moe::cpu
