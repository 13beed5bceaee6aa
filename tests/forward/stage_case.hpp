// A layer with all that stages have to do with, its routed tokens, and their rows sorted by expert.
#pragma once

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/layer_case.hpp"

namespace moe_test::stages {

constexpr int64_t T = 9, H = 64, E = 6, K = 3, I = 48;
constexpr auto bad = MOE_ERROR_INVALID_ARGUMENT;

inline moe_layer_desc layer_desc() {
    auto d = plain_layer(H, I, E, K);
    d.has_gate_bias = d.has_up_bias = d.has_down_bias = 1;
    d.n_identity_experts = 1;
    d.shared_intermediate = 32;
    d.shared_activation = MOE_ACTIVATION_SILU;
    d.shared_is_gated = 1;
    return d;
}

// Routed tokens, and their rows sorted by expert in blocks.
struct StageCase {
    explicit StageCase(moe_layer_desc desc = layer_desc(), int32_t block = 1)
        : layer(desc),
          runtime(make_runtime(2)),
          run(layer, layer.plan_desc(T), runtime.get()),
          x(layer.x(T)),
          ids(T * K),
          weights(T * K),
          offsets(E + 1),
          counts(E),
          row_ids(T * K + E * (block - 1), 99),
          width(desc.latent ? desc.latent : H) {
        auto route_args = sized<moe_route_args>();
        route_args.n_tokens = T;
        route_args.x = x.data();
        route_args.out_ids = ids.data();
        route_args.out_weights = weights.data();
        must(moe_route(run.plan.get(), run.weights.get(), run.workspace.get(), &route_args),
             "moe_route");
        ids[4] = -1;
        dispatch_args = sized<moe_dispatch_args>();
        dispatch_args.block_rows = block;
        dispatch_args.n_tokens = T;
        dispatch_args.ids = ids.data();
        dispatch_args.out_offsets = offsets.data();
        dispatch_args.out_counts = counts.data();
        dispatch_args.out_row_ids = row_ids.data();
        dispatch_args.row_capacity = static_cast<int64_t>(row_ids.size());
        must(moe_dispatch(run.plan.get(), run.workspace.get(), &dispatch_args), "moe_dispatch");
        n_rows = offsets[E];
    }

    moe_status experts(const moe_experts_args& args) const {
        return moe_experts(run.plan.get(), run.weights.get(), run.workspace.get(), &args);
    }
    moe_experts_args tokens(moe_out_layout layout, Floats& out) const {
        auto args = sized<moe_experts_args>();
        args.out_layout = layout;
        args.n_tokens = T;
        args.x = x.data();
        args.ids = ids.data();
        args.weights = weights.data();
        args.out = out.data();
        return args;
    }
    // Rows of x as a dispatcher lays them out; padding is NaN.
    Floats sorted_x() const {
        Floats rows(static_cast<size_t>(n_rows * H), NAN);
        for (int64_t r = 0; r < n_rows; ++r)
            if (row_ids[r] >= 0) std::copy_n(&x[row_ids[r] / K * H], H, &rows[r * H]);
        return rows;
    }
    moe_experts_args sorted(const Floats& rows, moe_out_layout layout, Floats& out) const {
        auto args = tokens(layout, out);
        args.in_layout = MOE_IN_SORTED;
        args.x = rows.data();
        args.ids = nullptr;
        args.offsets = offsets.data();
        args.counts = counts.data();
        args.row_ids = row_ids.data();
        args.n_rows = n_rows;
        return args;
    }
    // F_id(x) of a slot.
    clients::Doubles slot(int64_t s) const {
        const auto v = clients::expert_input(layer.layer, &x[s / K * H]);
        return clients::reference_expert(layer.layer, ids[s], v.data());
    }
    clients::Doubles per_slot() const {
        clients::Doubles all(static_cast<size_t>(T * K * width));
        for (int64_t s = 0; s < T * K; ++s) {
            if (ids[s] < 0 || ids[s] >= E) continue;
            const auto y = slot(s);
            std::copy(y.begin(), y.end(), all.begin() + s * width);
        }
        return all;
    }
    clients::Doubles by_rows() const {
        clients::Doubles all(static_cast<size_t>(n_rows * width));
        for (int64_t r = 0; r < n_rows; ++r) {
            if (row_ids[r] < 0) continue;
            const auto y = slot(row_ids[r]);
            std::copy(y.begin(), y.end(), all.begin() + r * width);
        }
        return all;
    }
    // sum_j w_j F_id_j(x), without identity experts.
    clients::Doubles reduced() const {
        auto only_experts = ids;
        for (auto& id : only_experts)
            if (id >= E) id = -1;
        return clients::reference_routed(layer.layer, x, T, {only_experts, to_doubles(weights)});
    }

    LayerCase layer;
    Runtime runtime;
    LayerRun run;
    Floats x;
    std::vector<int32_t> ids;
    Floats weights;
    std::vector<int64_t> offsets, counts;
    std::vector<int32_t> row_ids;
    moe_dispatch_args dispatch_args;
    int64_t n_rows, width;
};

}  // namespace moe_test::stages
