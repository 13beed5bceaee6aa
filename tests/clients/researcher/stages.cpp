// Route, dispatch, experts, combine and finish, each called alone and held against own loops.
#include "researcher/researcher.hpp"
#include "support/layer_tensors.hpp"
#include "support/reference_layer.hpp"

namespace clients {
namespace {

// DeepSeek-V3's routing with a router norm, so that every step of the stage has something to do.
moe_layer_desc grouped_layer(float softcap) {
    moe_layer_desc desc = plain_layer(64, 48, 12, 3);
    desc.score = MOE_SCORE_SIGMOID;
    desc.has_selection_bias = 1;
    desc.has_router_norm = desc.has_router_norm_weight = 1;
    desc.router_norm_eps = 1e-6f;
    desc.has_logit_softcap = softcap > 0.0f;
    desc.logit_softcap = softcap;
    desc.n_group = 4;
    desc.topk_group = 2;
    desc.group_score = MOE_GROUP_SCORE_TOP2_SUM;
    desc.renormalize_eps = 1e-20f;
    desc.has_routed_scale = 1;
    desc.routed_scale = 2.5f;
    desc.has_expert_scale = 1;
    desc.has_gate_bias = desc.has_up_bias = desc.has_down_bias = 1;
    desc.shared_intermediate = 32;
    desc.shared_activation = MOE_ACTIVATION_GELU_ERF;
    desc.shared_is_gated = 1;
    return desc;
}

struct Bench {
    LayerWeights layer;
    LayerTensors tensors;
    int64_t T = 19;
    LayerRun run;
    std::vector<float> x;
    // What route gave; the later stages go on with it.
    std::vector<int32_t> ids;
    std::vector<float> weights;

    explicit Bench(float softcap)
        : layer(random_weights(grouped_layer(softcap), 61)),
          tensors(layer, "f32", Form::stacked),
          run(nullptr, tensors, tensors.plan_desc(layer.desc, T)),
          x(Random(62).values(T * 64)) {}

    int64_t k() const { return layer.desc.top_k; }
    int64_t H() const { return layer.desc.hidden; }
    int64_t E() const { return layer.desc.n_experts; }
    RoutingResult routing() const { return {ids, Doubles(weights.begin(), weights.end())}; }
    Doubles token(int64_t slot) const { return to_doubles(x.data() + slot / k() * H(), H()); }
};

void run_route(const Bench& bench, const moe_route_args& args) {
    CHECK_OK(
        moe_route(bench.run.plan.get(), bench.run.weights.get(), bench.run.workspace.get(), &args));
}

void route(Bench& bench) {
    std::vector<float> logits = poisoned(bench.T * bench.E());
    bench.ids.assign(size_t(bench.T * bench.k()), -77);
    bench.weights = poisoned(bench.T * bench.k());
    auto args = sized<moe_route_args>();
    args.n_tokens = bench.T;
    args.x = bench.x.data();
    args.out_ids = bench.ids.data();
    args.out_weights = bench.weights.data();
    args.out_logits = logits.data();
    run_route(bench, args);

    Doubles want_logits;
    for (int64_t t = 0; t < bench.T; ++t) {
        const Doubles z = reference_logits(bench.layer, bench.x.data() + t * bench.H());
        want_logits.insert(want_logits.end(), z.begin(), z.end());
    }
    if (!bench.layer.desc.has_logit_softcap)
        CHECK_ROWS(want_logits, logits, bench.T, bench.E(), f32_tolerance, "route: logits");
    const RoutingResult want = reference_route(bench.layer, bench.x, bench.T);
    CHECK(want.ids == bench.ids, "route: other experts than own loops");
    CHECK_ROWS(want.weights, bench.weights, bench.T, bench.k(), f32_tolerance, "route: weights");

    // From its own logits: the very same; from ids alone: the weights of these ids.
    std::vector<int32_t> ids(bench.ids.size(), -77);
    std::vector<float> weights = poisoned(bench.T * bench.k());
    auto again = sized<moe_route_args>();
    again.routing = MOE_ROUTING_LOGITS;
    again.n_tokens = bench.T;
    again.logits = logits.data();
    again.out_ids = ids.data();
    again.out_weights = weights.data();
    if (!bench.layer.desc.has_logit_softcap) {
        run_route(bench, again);
        CHECK(ids == bench.ids && weights == bench.weights, "route from logits differs from x");
    }
    args.routing = MOE_ROUTING_IDS;
    args.ids = bench.ids.data();
    args.out_ids = nullptr;
    args.out_weights = weights.data();
    run_route(bench, args);
    CHECK(weights == bench.weights, "route with ids given computes other weights");
}

void dispatch(const Bench& bench) {
    std::vector<int64_t> offsets(size_t(bench.E()) + 1), want_offsets{0};
    std::vector<int32_t> row_ids(bench.ids.size()), want_rows;
    auto args = sized<moe_dispatch_args>();
    args.n_tokens = bench.T;
    args.ids = bench.ids.data();
    args.out_offsets = offsets.data();
    args.out_row_ids = row_ids.data();
    args.row_capacity = int64_t(row_ids.size());
    CHECK_OK(moe_dispatch(bench.run.plan.get(), bench.run.workspace.get(), &args));
    for (int32_t e = 0; e < bench.E(); ++e) {
        for (size_t slot = 0; slot < bench.ids.size(); ++slot)
            if (bench.ids[slot] == e) want_rows.push_back(int32_t(slot));
        want_offsets.push_back(int64_t(want_rows.size()));
    }
    CHECK(offsets == want_offsets && row_ids == want_rows, "dispatch differs from own loops");
    std::puts("  dispatch: own loops");
}

std::vector<float> run_experts(const Bench& bench, bool stop, int64_t width) {
    std::vector<float> out = poisoned(bench.T * bench.k() * width);
    auto args = sized<moe_experts_args>();
    args.out_layout = MOE_OUT_PER_SLOT;
    args.stop_before_activation = stop;
    args.n_tokens = bench.T;
    args.x = bench.x.data();
    args.ids = bench.ids.data();
    args.out = out.data();
    CHECK_OK(moe_experts(bench.run.plan.get(), bench.run.weights.get(), bench.run.workspace.get(),
                         &args));
    return out;
}

std::vector<float> experts(const Bench& bench) {
    Doubles want_before, want;
    for (int64_t slot = 0; slot < bench.T * bench.k(); ++slot) {
        const Doubles v = bench.token(slot);
        const Doubles h = before_activation(bench.layer, bench.ids[size_t(slot)], v.data());
        const Doubles y = reference_expert(bench.layer, bench.ids[size_t(slot)], v.data());
        want_before.insert(want_before.end(), h.begin(), h.end());
        want.insert(want.end(), y.begin(), y.end());
    }
    const int64_t slots = bench.T * bench.k(), both = 2 * bench.layer.desc.intermediate;
    CHECK_ROWS(want_before, run_experts(bench, true, both), slots, both, f32_tolerance,
               "experts, stopped before the activation");
    std::vector<float> rows = run_experts(bench, false, bench.H());
    CHECK_ROWS(want, rows, slots, bench.H(), f32_tolerance, "experts");
    return rows;
}

std::vector<float> combine(const Bench& bench, const std::vector<float>& rows) {
    Doubles want(size_t(bench.T * bench.H()));
    for (int64_t slot = 0; slot < bench.T * bench.k(); ++slot)
        for (int64_t h = 0; h < bench.H(); ++h)
            want[size_t(slot / bench.k() * bench.H() + h)] +=
                double(bench.weights[size_t(slot)]) * rows[size_t(slot * bench.H() + h)];
    std::vector<float> out = poisoned(bench.T * bench.H());
    auto args = sized<moe_combine_args>();
    args.n_tokens = bench.T;
    args.rows = rows.data();
    args.ids = bench.ids.data();
    args.weights = bench.weights.data();
    args.out = out.data();
    CHECK_OK(moe_combine(bench.run.plan.get(), bench.run.workspace.get(), &args));
    CHECK_ROWS(want, out, bench.T, bench.H(), f32_tolerance, "combine");
    return out;
}

void finish(const Bench& bench, std::vector<float> routed) {
    const Doubles want =
        reference_finish(bench.layer, bench.x, bench.T, Doubles(routed.begin(), routed.end()));
    std::vector<float> out = poisoned(bench.T * bench.H());
    auto args = sized<moe_finish_args>();
    args.n_tokens = bench.T;
    args.routed = routed.data();
    args.x = bench.x.data();
    args.out = out.data();
    const LayerRun& run = bench.run;
    CHECK_OK(moe_finish(run.plan.get(), run.weights.get(), run.workspace.get(), &args));
    CHECK_ROWS(want, out, bench.T, bench.H(), f32_tolerance, "finish");
    args.out = routed.data();
    CHECK_OK(moe_finish(run.plan.get(), run.weights.get(), run.workspace.get(), &args));
    CHECK(routed == out, "finish in place differs");

    std::vector<float> whole = poisoned(bench.T * bench.H());
    auto forward = sized<moe_forward_args>();
    forward.n_tokens = bench.T;
    forward.x = bench.x.data();
    forward.out = whole.data();
    CHECK_OK(run.forward(forward));
    CHECK_ROWS(whole, out, bench.T, bench.H(), f32_tolerance,
               "the stages one by one against forward");
}

}  // namespace

void every_stage_against_own_loops() {
    std::puts("stages");
    Bench capped(0.8f);
    route(capped);
    Bench bench(0.0f);
    route(bench);
    dispatch(bench);
    finish(bench, combine(bench, experts(bench)));
}

}  // namespace clients
