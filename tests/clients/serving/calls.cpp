// What a single call may ask for: tokens counted on the device, an expert map, bad ids, weights on
// the input, identity experts, counts of tokens per expert.
#include "serving/serving.hpp"

namespace clients {
namespace {

moe_layer_desc sigmoid_layer() {
    moe_layer_desc desc = plain_layer(64, 48, 8, 2);
    desc.score = MOE_SCORE_SIGMOID;
    desc.has_selection_bias = 1;
    desc.has_routed_scale = 1;
    desc.routed_scale = 2.5f;
    desc.renormalize_eps = 1e-20f;
    desc.shared_intermediate = 32;
    desc.shared_activation = MOE_ACTIVATION_SILU;
    desc.shared_is_gated = 1;
    return desc;
}

struct Outputs {
    std::vector<float> out, logits, weights;
    std::vector<int32_t> ids;
    std::vector<int64_t> counts;

    explicit Outputs(const Batch& batch)
        : out(poisoned(batch.T * batch.H())),
          logits(poisoned(batch.T * experts_all(batch.layer.desc))),
          weights(poisoned(batch.T * batch.k())),
          ids(size_t(batch.T * batch.k()), -77),
          counts(size_t(experts_all(batch.layer.desc)), -77) {}

    void ask(moe_forward_args& args) {
        args.out = out.data();
        args.out_logits = logits.data();
        args.out_weights = weights.data();
        args.out_ids = ids.data();
        args.out_expert_counts = counts.data();
    }
};

moe_forward_args computed_routing(const Batch& batch, Outputs& outputs) {
    auto args = sized<moe_forward_args>();
    args.n_tokens = batch.T;
    args.x = batch.x.data();
    outputs.ask(args);
    return args;
}

void check_counts(const Outputs& outputs, const std::vector<int32_t>& ids, int64_t n_slots) {
    std::vector<int64_t> want(outputs.counts.size());
    for (int64_t slot = 0; slot < n_slots; ++slot)
        if (ids[size_t(slot)] >= 0) ++want[size_t(ids[size_t(slot)])];
    for (size_t e = 0; e < want.size(); ++e)
        CHECK(outputs.counts[e] == want[e], "expert %zu: %lld tokens counted, %lld routed", e,
              static_cast<long long>(outputs.counts[e]), static_cast<long long>(want[e]));
}

void check_routing(const Batch& batch, const Outputs& outputs, const RoutingResult& want,
                   int64_t n_tokens) {
    for (int64_t slot = 0; slot < n_tokens * batch.k(); ++slot) {
        CHECK(outputs.ids[size_t(slot)] == want.ids[size_t(slot)],
              "slot %lld: expert %d, wanted %d", static_cast<long long>(slot),
              outputs.ids[size_t(slot)], want.ids[size_t(slot)]);
        CHECK(std::abs(outputs.weights[size_t(slot)] - want.weights[size_t(slot)]) <=
                  1e-5 * want.weights[size_t(slot)],
              "slot %lld: weight %g, wanted %g", static_cast<long long>(slot),
              outputs.weights[size_t(slot)], want.weights[size_t(slot)]);
    }
}

// Rows from n_tokens on keep what was in them.
template <class Value, class IsUntouched>
void check_untouched(const std::vector<Value>& rows, int64_t width, int64_t n_tokens,
                     const char* name, IsUntouched is_untouched) {
    for (size_t i = size_t(n_tokens * width); i < rows.size(); ++i)
        CHECK(is_untouched(rows[i]), "%s: row %zu is beyond the tokens and was written", name,
              i / size_t(width));
}

}  // namespace

void tokens_counted_on_the_device() {
    std::puts("fewer tokens than the capture shape");
    const Batch batch(sigmoid_layer(), 20, Form::stacked, 500);
    const LayerRun run(nullptr, batch.tensors, batch.plan_desc());
    const RoutingResult routing = reference_route(batch.layer, batch.x, batch.T);
    const Doubles want = reference_forward(batch.layer, batch.x, batch.T, routing);
    for (int32_t true_tokens : {13, 20, 1, 0}) {
        Outputs outputs(batch);
        moe_forward_args args = computed_routing(batch, outputs);
        args.n_tokens_device = &true_tokens;
        CHECK_OK(run.forward(args));
        CHECK_ROWS(want, outputs.out, true_tokens, batch.H(), f32_tolerance, "the true rows");
        check_routing(batch, outputs, routing, true_tokens);
        check_counts(outputs, routing.ids, true_tokens * batch.k());
        check_untouched(outputs.out, batch.H(), true_tokens, "out", is_poison);
        check_untouched(outputs.logits, experts_all(batch.layer.desc), true_tokens, "out_logits",
                        is_poison);
        check_untouched(outputs.weights, batch.k(), true_tokens, "out_weights", is_poison);
        check_untouched(outputs.ids, batch.k(), true_tokens, "out_ids",
                        [](int32_t id) { return id == -77; });
    }
    CHECK(take_faults(run.workspace).faults == 0, "fewer tokens are no fault");

    const int32_t too_many = 21;
    Outputs outputs(batch);
    moe_forward_args args = computed_routing(batch, outputs);
    args.n_tokens_device = &too_many;
    CHECK_OK(run.forward(args));
    CHECK_ROWS(want, outputs.out, batch.T, batch.H(), f32_tolerance,
               "a count above n_tokens is clamped");
    const moe_workspace_faults faults = take_faults(run.workspace);
    CHECK(faults.faults == MOE_FAULT_TOKENS_OUT_OF_RANGE, "faults %u", faults.faults);
}

void faults_are_reported() {
    std::puts("bad ids");
    Batch batch(rich_layer(), 11, Form::stacked, 600);
    const LayerRun run(nullptr, batch.tensors, batch.plan_desc());
    batch.routing.ids[0] = batch.E();  // one past the last
    batch.routing.ids[4] = -2;
    batch.routing.ids[10] = 0x7fffffff;
    const Doubles want =
        reference_forward(batch.layer, batch.x, batch.T, batch.routing.reference());
    std::vector<float> out = poisoned(batch.T * batch.H());
    moe_forward_args args = batch.given_routing(out);
    std::vector<int64_t> counts(size_t(batch.E()), -77);
    args.out_expert_counts = counts.data();
    CHECK_OK(run.forward(args));
    CHECK_ROWS(want, out, batch.T, batch.H(), f32_tolerance, "their slots are skipped");
    moe_workspace_faults faults = take_faults(run.workspace);
    CHECK(faults.faults == MOE_FAULT_ID_OUT_OF_RANGE, "faults %u", faults.faults);
    CHECK(faults.n_skipped == 3, "%lld slots skipped", static_cast<long long>(faults.n_skipped));
    faults = take_faults(run.workspace);
    CHECK(faults.faults == 0 && faults.n_skipped == 0, "faults are told once");
}

void expert_map_overrides_membership() {
    std::puts("expert map");
    const Batch batch(rich_layer(), 11, Form::stacked, 700);
    const LayerRun run(nullptr, batch.tensors, batch.plan_desc());
    // Replicas: expert 3 is served by 0, the last two have moved away, the rest is rotated.
    const std::vector<int32_t> map = {1, 2, 3, 0, 5, 6, 4, -1, -1};
    OwnRouting mapped = batch.routing;
    for (int32_t& id : mapped.ids) id = id < 0 ? -1 : map[size_t(id)];
    const Doubles want = reference_forward(batch.layer, batch.x, batch.T, mapped.reference());
    std::vector<float> out = poisoned(batch.T * batch.H());
    moe_forward_args args = batch.given_routing(out);
    args.expert_map = map.data();
    args.n_expert_map = int32_t(map.size());
    CHECK_OK(run.forward(args));
    CHECK_ROWS(want, out, batch.T, batch.H(), f32_tolerance, "global ids through the caller's map");
    CHECK(take_faults(run.workspace).faults == 0, "an absent expert is no fault");
    args.n_expert_map = 4;
    CHECK_REFUSED(run.forward(args), MOE_ERROR_INVALID_ARGUMENT, "n_expert_map");
}

void weight_on_input() {
    std::puts("weights on the input");
    moe_layer_desc desc = sigmoid_layer();
    desc.weight_on = MOE_WEIGHT_ON_INPUT;
    desc.renormalize = MOE_RENORMALIZE_NONE;
    desc.renormalize_eps = 0.0f;
    const Batch batch(desc, 17, Form::stacked, 800);
    const LayerRun run(nullptr, batch.tensors, batch.plan_desc());

    const RoutingResult routing = reference_route(batch.layer, batch.x, batch.T);
    const Doubles want = reference_forward(batch.layer, batch.x, batch.T, routing);
    Outputs outputs(batch);
    CHECK_OK(run.forward(computed_routing(batch, outputs)));
    check_routing(batch, outputs, routing, batch.T);
    CHECK_ROWS(want, outputs.out, batch.T, batch.H(), f32_tolerance, "computed routing");

    // Rows that carry their own weights: two experts, every token once each.
    std::vector<float> rows, row_weights, out = poisoned(2 * batch.T * batch.H());
    Doubles want_rows;
    std::vector<int64_t> offsets(size_t(batch.E()) + 1, 2 * batch.T);
    offsets[0] = offsets[1] = offsets[2] = 0;
    offsets[3] = batch.T;
    for (int64_t r = 0; r < 2 * batch.T; ++r) {
        const float* token = batch.x.data() + r % batch.T * batch.H();
        rows.insert(rows.end(), token, token + batch.H());
        row_weights.push_back(0.25f + float(r % 5));
        const Doubles y = reference_slot(batch.layer, r < batch.T ? 2 : 3, row_weights.back(),
                                         to_doubles(token, batch.H()));
        want_rows.insert(want_rows.end(), y.begin(), y.end());
    }
    auto args = sized<moe_experts_args>();
    args.in_layout = MOE_IN_SORTED;
    args.out_layout = MOE_OUT_ROWS;
    args.x = rows.data();
    args.offsets = offsets.data();
    args.row_weights = row_weights.data();
    args.n_rows = 2 * batch.T;
    args.out = out.data();
    CHECK_OK(moe_experts(run.plan.get(), run.weights.get(), run.workspace.get(), &args));
    CHECK_ROWS(want_rows, out, 2 * batch.T, batch.H(), f32_tolerance,
               "rows with weights of their own");
}

void identity_experts() {
    std::puts("identity experts");
    moe_layer_desc desc = plain_layer(64, 48, 6, 3);
    desc.n_identity_experts = 2;
    desc.has_selection_bias = 1;
    const Batch batch(desc, 33, Form::stacked, 900);
    const LayerRun run(nullptr, batch.tensors, batch.plan_desc());
    const RoutingResult routing = reference_route(batch.layer, batch.x, batch.T);
    CHECK(*std::max_element(routing.ids.begin(), routing.ids.end()) >= desc.n_experts,
          "no token chose an identity expert: this test would prove nothing");
    const Doubles want = reference_forward(batch.layer, batch.x, batch.T, routing);

    Outputs outputs(batch);
    CHECK_OK(run.forward(computed_routing(batch, outputs)));
    check_routing(batch, outputs, routing, batch.T);
    check_counts(outputs, routing.ids, batch.T * batch.k());
    CHECK_ROWS(want, outputs.out, batch.T, batch.H(), f32_tolerance, "computed routing");

    std::vector<float> slots = poisoned(batch.T * batch.k() * batch.H()),
                       out = poisoned(batch.T * batch.H());
    auto experts = sized<moe_experts_args>();
    experts.out_layout = MOE_OUT_PER_SLOT;
    experts.n_tokens = batch.T;
    experts.x = batch.x.data();
    experts.ids = outputs.ids.data();
    experts.out = slots.data();
    CHECK_OK(moe_experts(run.plan.get(), run.weights.get(), run.workspace.get(), &experts));
    auto combine = sized<moe_combine_args>();
    combine.n_tokens = batch.T;
    combine.rows = slots.data();
    combine.ids = outputs.ids.data();
    combine.weights = outputs.weights.data();
    combine.x = batch.x.data();
    combine.out = out.data();
    CHECK_OK(moe_combine(run.plan.get(), run.workspace.get(), &combine));
    CHECK_ROWS(want, out, batch.T, batch.H(), f32_tolerance, "per slot -> combine with x");
}

}  // namespace clients
