// The router's steps: router input, logits, and the choice of experts; or ids and weights that the
// caller gives.
#include <algorithm>
#include <cmath>

#include "libmoe/cpu/pipeline.hpp"
#include "libmoe/cpu/ref/combine.hpp"
#include "libmoe/cpu/ref/dot.hpp"
#include "libmoe/cpu/ref/route.hpp"
#include "libmoe/cpu/round.hpp"

namespace moe::cpu {
namespace {

constexpr int64_t block_experts = 8;

// float64 sums of float32 products, rounded once: the answer that every float32 kernel is compared
// with.
float exact_dot(const float* a, const float* b, int64_t n) {
    double sums[8]{};
    for (int64_t i = 0; i < n; i += 8)
        for (int lane = 0; lane < 8; ++lane)
            sums[lane] += static_cast<double>(a[i + lane]) * b[i + lane];
    return static_cast<float>(((sums[0] + sums[4]) + (sums[1] + sums[5])) +
                              ((sums[2] + sums[6]) + (sums[3] + sums[7])));
}

int64_t token_id_at(const void* ids, moe_type type, int64_t t) {
    return type == MOE_TYPE_I64 ? static_cast<const int64_t*>(ids)[t]
                                : static_cast<const int32_t*>(ids)[t];
}

}  // namespace

template <class Real>
void Pipeline<Real>::route(const RouteInput& input, int64_t first, int64_t n) {
    const int64_t n_all = layer().n_experts_all();
    if (input.logits) {
        team_.for_each(n, [&](int32_t, int64_t t) {
            const float* row = input.logits + (first + t) * input.logits_stride;
            std::copy(row, row + n_all, b_.logits + t * n_all);
        });
    } else {
        prepare_router_input(input, first, n);
        compute_logits(n);
    }
    if (input.out_logits)
        team_.for_each(n, [&](int32_t, int64_t t) {
            std::copy_n(b_.logits + t * n_all, n_all,
                        input.out_logits + (first + t) * input.out_logits_stride);
        });
    choose_experts(input, first, n);
}

template <class Real>
void Pipeline<Real>::prepare_router_input(const RouteInput& input, int64_t first, int64_t n) {
    const Routing& routing = layer().routing;
    const int64_t hidden = layer().hidden;
    team_.for_each(n, [&](int32_t, int64_t t) {
        float* r = b_.router_input + t * hidden;
        const auto& rows = input.router_input;
        load_activations(rows.type, rows.row(first + t), hidden, r);
        if (routing.has_router_norm)
            rms_normalize(r, hidden, routing.router_norm_eps,
                          weights_.vector(MOE_ROLE_ROUTER_NORM));
        if (routing.router_input_scale != 1.0f)
            for (int64_t i = 0; i < hidden; ++i) r[i] *= routing.router_input_scale;
    });
}

template <class Real>
void Pipeline<Real>::compute_logits(int64_t n) {
    const Matrix& router = weights_.matrix(MOE_ROLE_ROUTER);
    const float* bias = weights_.vector(MOE_ROLE_ROUTER_BIAS);
    const int64_t hidden = layer().hidden;
    team_.for_each(divide_up(router.rows, block_experts), [&](int32_t worker, int64_t block) {
        const int64_t last = std::min((block + 1) * block_experts, router.rows);
        for (int64_t e = block * block_experts; e < last; ++e) {
            float* row = b_.weight_row(worker);
            decode_row(router, e, row);
            for (int64_t t = 0; t < n; ++t)
                b_.logits[t * router.rows + e] =
                    exact_dot(row, b_.router_input + t * hidden, hidden) + (bias ? bias[e] : 0.0f);
        }
    });
}

// Ids that are not the router's choice: the caller's, or those of the hash table. null when the
// router chooses.
template <class Real>
const int32_t* Pipeline<Real>::given_ids(const RouteInput& input, int64_t token, int32_t* ids) {
    const int32_t k = layer().top_k;
    if (input.routing == MOE_ROUTING_IDS) {
        const int64_t bad = input.ids.read(token, k, layer().n_experts_all(), ids);
        if (bad) faults_.add(MOE_FAULT_ID_OUT_OF_RANGE, bad);
        return ids;
    }
    if (layer().routing.selection != MOE_SELECT_HASH) return nullptr;
    const int64_t id = token_id_at(input.token_ids, input.token_ids_type, token);
    if (id < 0 || id >= layer().routing.hash_vocabulary) {
        faults_.add(MOE_FAULT_TOKEN_ID_OUT_OF_RANGE, k);
        std::fill(ids, ids + k, -1);
    } else {
        std::copy_n(weights_.hash_table.data() + id * k, k, ids);
    }
    return ids;
}

template <class Real>
void Pipeline<Real>::choose_experts(const RouteInput& input, int64_t first, int64_t n) {
    const int32_t k = layer().top_k;
    const int64_t scratch_floats = route_scratch_floats(layer().routing);
    RouteVectors vectors;
    vectors.expert_scale = weights_.vector(MOE_ROLE_EXPERT_SCALE);
    vectors.n_experts = layer().n_experts;
    team_.for_each(n, [&](int32_t worker, int64_t t) {
        int32_t* ids = b_.ids + t * k;
        const bool second = input.uses_second_bias && input.uses_second_bias[first + t] != 0;
        RouteVectors of_token = vectors;
        of_token.selection_bias =
            weights_.vector(second ? MOE_ROLE_SECOND_SELECTION_BIAS : MOE_ROLE_SELECTION_BIAS);
        const int32_t bad =
            route_token(layer().routing, of_token, b_.logits + t * layer().n_experts_all(),
                        b_.route_scratch + worker * scratch_floats,
                        given_ids(input, first + t, ids), setup_.x_type, ids, b_.weights + t * k);
        if (bad) faults_.add(MOE_FAULT_ID_OUT_OF_RANGE, bad);
    });
}

template <class Real>
void Pipeline<Real>::take_ids(const IdRows& ids, int64_t first, int64_t n) {
    const int32_t k = layer().top_k;
    team_.once([&] {
        int64_t bad = 0;
        for (int64_t t = 0; t < n; ++t)
            bad += ids.read(first + t, k, layer().n_experts_all(), b_.ids + t * k);
        if (bad) faults_.add(MOE_FAULT_ID_OUT_OF_RANGE, bad);
    });
}

template <class Real>
void Pipeline<Real>::take_weights(const void* weights, moe_type type, int64_t stride, int64_t first,
                                  int64_t n) {
    const int32_t k = layer().top_k;
    const ActivationRows rows{weights, stride, type};
    team_.once([&] {
        for (int64_t t = 0; t < n; ++t)
            load_activations(type, rows.row(first + t), k, b_.weights + t * k);
    });
}

template void Pipeline<float>::route(const RouteInput&, int64_t, int64_t);
template void Pipeline<double>::route(const RouteInput&, int64_t, int64_t);
template void Pipeline<float>::take_ids(const IdRows&, int64_t, int64_t);
template void Pipeline<double>::take_ids(const IdRows&, int64_t, int64_t);
template void Pipeline<float>::take_weights(const void*, moe_type, int64_t, int64_t, int64_t);
template void Pipeline<double>::take_weights(const void*, moe_type, int64_t, int64_t, int64_t);

}  // namespace moe::cpu
