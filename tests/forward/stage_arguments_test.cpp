// Arguments of the stages: what is refused, and what is not even looked at.
#include "tests/forward/stage_case.hpp"

namespace moe_test::stages {
namespace {

// Neither pointers nor the weights that a layer has on its input.
TEST(Experts, WithoutWorkNothingIsRequired) {
    for (const auto weight_on : {MOE_WEIGHT_ON_OUTPUT, MOE_WEIGHT_ON_INPUT}) {
        auto desc = plain_layer(H, I, E, K);
        desc.weight_on = weight_on;
        StageCase c(desc);
        const auto idle = [&](moe_in_layout in, moe_out_layout out) {
            auto args = sized<moe_experts_args>();
            args.in_layout = in;
            args.out_layout = out;
            EXPECT_MOE_OK(c.experts(args)) << in << ' ' << out;
        };
        for (const auto out : {MOE_OUT_REDUCED, MOE_OUT_PER_SLOT, MOE_OUT_ROWS}) {
            idle(MOE_IN_TOKENS, out);
            idle(MOE_IN_SORTED, out);
        }
        idle(MOE_IN_BATCHED, MOE_OUT_ROWS);
        EXPECT_EQ(faults_of(c.run.workspace).faults, 0u);
        // With tokens but no rows there are zeros to be written.
        Floats out(T * H, 3.0f);
        auto args = c.sorted({}, MOE_OUT_REDUCED, out);
        const std::vector<int64_t> zeros(E + 1);
        args.offsets = args.counts = zeros.data();
        args.n_rows = 0;
        args.x = c.x.data();
        EXPECT_MOE_OK(c.experts(args));
        EXPECT_EQ(out, Floats(T * H, 0.0f));
        args.offsets = nullptr;
        EXPECT_MOE_ERROR(c.experts(args), bad, "offsets is NULL");
    }
    auto desc = plain_layer(H, I, E, K);
    desc.weight_on = MOE_WEIGHT_ON_INPUT;
    const StageCase c(desc);
    Floats out(T * K * H);
    auto args = c.tokens(MOE_OUT_PER_SLOT, out);
    args.weights = nullptr;
    EXPECT_MOE_ERROR(c.experts(args), bad, "weights on the input");
}

TEST(Stages, XAndOutMustNotOverlap) {
    StageCase c;
    Floats both(4 * T * K * H, 1.0f);
    const Floats before = both;
    float* x = both.data() + T * K * H;
    // Calls with out `shift` elements after x, whose rows are n_x and those of out n_out.
    using Call = std::function<moe_status(float*)>;
    const auto expect = [&](const char* what, int64_t n_x, int64_t n_out, const Call& call) {
        SCOPED_TRACE(what);
        for (const int64_t shift : {int64_t{0}, n_x * H - 1, -(n_out * H - 1)})
            EXPECT_MOE_ERROR(call(x + shift), bad, "overlap");
        EXPECT_EQ(both, before) << "a refused call writes nothing";
        for (const int64_t shift : {n_x * H, -n_out * H}) {
            EXPECT_MOE_OK(call(x + shift));
            both = before;
        }
    };
    const auto experts = [&](moe_experts_args args) {
        args.x = x;
        return [&c, args](float* out) mutable {
            args.out = out;
            return c.experts(args);
        };
    };
    Floats unused;
    expect("reduced", T, T, experts(c.tokens(MOE_OUT_REDUCED, unused)));
    expect("per slot", T, T * K, experts(c.tokens(MOE_OUT_PER_SLOT, unused)));
    auto to_rows = c.tokens(MOE_OUT_ROWS, unused);
    to_rows.offsets = c.offsets.data();
    to_rows.row_ids = c.row_ids.data();
    to_rows.n_rows = c.n_rows;
    expect("tokens to rows", T, c.n_rows, experts(to_rows));
    expect("rows to rows", c.n_rows, c.n_rows, experts(c.sorted({}, MOE_OUT_ROWS, unused)));
    expect("rows to slots", c.n_rows, T * K, experts(c.sorted({}, MOE_OUT_PER_SLOT, unused)));
    auto batched = sized<moe_experts_args>();
    batched.in_layout = MOE_IN_BATCHED;
    batched.out_layout = MOE_OUT_ROWS;
    const std::vector<int64_t> counts(E, 1);
    batched.counts = counts.data();
    batched.batch_capacity = 2;
    expect("batched", 2 * E, 2 * E, experts(batched));

    const Floats rows(T * K * H, 0.5f);
    auto combine = sized<moe_combine_args>();
    combine.n_tokens = T;
    combine.rows = rows.data();
    combine.ids = c.ids.data();
    combine.weights = c.weights.data();
    combine.x = x;
    expect("combine", T, T, [&](float* out) {
        combine.out = out;
        return moe_combine(c.run.plan.get(), c.run.workspace.get(), &combine);
    });
    auto finish = sized<moe_finish_args>();
    finish.n_tokens = T;
    finish.x = x;
    expect("finish", T, T, [&](float* out) {
        finish.out = out;
        return moe_finish(c.run.plan.get(), c.run.weights.get(), c.run.workspace.get(), &finish);
    });
}

// Side by side in one buffer they share no byte, whatever the number of rows of each.
TEST(Stages, XAndOutMayShareRowsOfABuffer) {
    const StageCase c;
    const auto call = [&](int64_t n_tokens, int64_t distance) {
        Floats both(T * 4 * H, 0.5f);
        Floats unused;
        auto args = c.tokens(MOE_OUT_PER_SLOT, unused);
        args.n_tokens = n_tokens;
        args.x_row_stride = args.out_row_stride = 4 * H;
        args.x = both.data();
        args.out = both.data() + distance;
        return c.experts(args);
    };
    EXPECT_MOE_OK(call(T, H));
    EXPECT_MOE_OK(call(1, H));
    EXPECT_MOE_ERROR(call(T, H - 1), bad, "overlap");
    EXPECT_MOE_ERROR(call(1, H - 1), bad, "overlap");
    EXPECT_MOE_ERROR(call(T, H + 1), bad, "overlap");  // with the next row of x
}

TEST(Experts, WrongArgumentsAreNamed) {
    const StageCase c;
    Floats out(T * K * H);
    auto call = [&](const std::function<void(moe_experts_args&)>& change) {
        auto args = c.tokens(MOE_OUT_PER_SLOT, out);
        change(args);
        return c.experts(args);
    };
    EXPECT_MOE_ERROR(call([](auto& a) { a.in_layout = moe_in_layout(3); }), bad, "in_layout is 3");
    EXPECT_MOE_ERROR(call([](auto& a) { a.out_layout = moe_out_layout(3); }), bad,
                     "out_layout is 3");
    EXPECT_MOE_ERROR(call([](auto& a) { a.in_layout = MOE_IN_BATCHED; }), bad, "BATCHED");
    EXPECT_MOE_ERROR(call([](auto& a) { a.in_layout = MOE_IN_SORTED; }), bad, "offsets is NULL");
    EXPECT_MOE_ERROR(call([](auto& a) { a.ids = nullptr; }), bad, "ids is NULL");
    EXPECT_MOE_ERROR(call([](auto& a) { a.accumulate = 1; }), bad, "accumulate");
    EXPECT_MOE_ERROR(call([](auto& a) { a.x_is_latent = 1; }), bad, "x_is_latent");
    EXPECT_MOE_ERROR(call([&](auto& a) { a.x_scales = out.data(); }), bad,
                     "x_scales are given, but the plan's x_type is f32");
    EXPECT_MOE_ERROR(call([](auto& a) {
                         a.in_layout = MOE_IN_SORTED;
                         a.n_rows = -1;
                     }),
                     bad, "n_rows is -1");
    EXPECT_MOE_ERROR(call([](auto& a) {
                         a.in_layout = MOE_IN_BATCHED;
                         a.out_layout = MOE_OUT_ROWS;
                         a.batch_capacity = -1;
                     }),
                     bad, "batch_capacity is -1");
    EXPECT_MOE_ERROR(call([](auto& a) {
                         a.out_layout = MOE_OUT_REDUCED;
                         a.weights = nullptr;
                     }),
                     bad, "weights is NULL");
}

template <class P>
P* off_by_one(P* pointer) {
    return reinterpret_cast<P*>(reinterpret_cast<uintptr_t>(pointer) + 1);
}

// What neither the layouts nor the layer have a use for is neither read nor looked at.
TEST(Experts, ArgumentsWithoutAUseHaveNoEffect) {
    const StageCase c;
    const int32_t wrong_tokens = -5;
    const std::vector<int64_t> wild(E + 1, -77);
    const Floats sorted_x = c.sorted_x(), nan(T * K * H + 1, NAN);
    using Spoil = std::function<void(moe_experts_args&)>;
    Floats out(T * K * H);
    const auto same = [&](const char* what, const moe_experts_args& args, const Spoil& spoil) {
        SCOPED_TRACE(what);
        std::fill(out.begin(), out.end(), 7.0f);
        ASSERT_MOE_OK(c.experts(args));
        const Floats wanted = out;
        auto spoilt = args;
        spoil(spoilt);
        std::fill(out.begin(), out.end(), 7.0f);
        EXPECT_MOE_OK(c.experts(spoilt));
        EXPECT_TRUE(same_bits(out, wanted));
        EXPECT_EQ(faults_of(c.run.workspace).faults, 0u);
    };
    const Spoil rows = [&](auto& a) {
        a.offsets = a.counts = off_by_one(wild.data());
        a.row_ids = off_by_one(c.row_ids.data());
        a.n_rows = -1;
    };
    const Spoil ids = [&](auto& a) {
        a.ids = off_by_one(c.ids.data());
        a.ids_type = moe_type(99);
        a.ids_row_stride = 1;
        a.expert_map = off_by_one(c.ids.data());
        a.n_expert_map = -1;
    };
    const Spoil weights = [&](auto& a) {
        a.weights = off_by_one(nan.data());
        a.weights_row_stride = 1;
        a.row_weights = off_by_one(nan.data());
    };
    const Spoil batch = [](auto& a) { a.batch_capacity = -1; };
    const Spoil tokens = [&](auto& a) {
        a.n_tokens = -1;
        a.n_tokens_device = &wrong_tokens;
    };
    const auto check = [&](const moe_experts_args& args, const std::vector<Spoil>& spoils) {
        for (size_t i = 0; i < spoils.size(); ++i) same(std::to_string(i).c_str(), args, spoils[i]);
    };
    check(c.tokens(MOE_OUT_PER_SLOT, out), {rows, weights, batch});
    check(c.tokens(MOE_OUT_REDUCED, out),
          {rows, batch, [&](auto& a) { a.row_weights = off_by_one(nan.data()); }});
    check(c.sorted(sorted_x, MOE_OUT_ROWS, out), {ids, weights, batch, tokens});
    check(c.sorted(sorted_x, MOE_OUT_PER_SLOT, out), {ids, weights, batch});
    auto batched = sized<moe_experts_args>();
    batched.in_layout = MOE_IN_BATCHED;
    batched.out_layout = MOE_OUT_ROWS;
    batched.x = sorted_x.data();
    batched.batch_capacity = 2;
    const std::vector<int64_t> one(E, 1);
    batched.counts = one.data();
    batched.out = out.data();
    check(batched, {ids, tokens, [&](auto& a) {
                        a.n_rows = -1;
                        a.offsets = off_by_one(wild.data());
                        a.weights = off_by_one(nan.data());
                        a.weights_row_stride = 1;
                    }});
    auto to_rows = c.tokens(MOE_OUT_ROWS, out);
    to_rows.offsets = c.offsets.data();
    to_rows.row_ids = c.row_ids.data();
    to_rows.n_rows = c.n_rows;
    check(to_rows, {ids, weights, batch, [&](auto& a) { a.n_tokens_device = &wrong_tokens; }});
}

TEST(Stages, ArgumentsWithoutAUseHaveNoEffect) {
    const StageCase c;
    const Floats rows(T * K * H, 0.5f);
    const std::vector<int32_t> wrong_ids(T * K, 99);
    Floats out(T * H), wanted;
    auto combine = sized<moe_combine_args>();
    combine.n_tokens = T;
    combine.rows = rows.data();
    combine.ids = c.ids.data();
    combine.weights = c.weights.data();
    combine.x = c.x.data();
    combine.out = out.data();
    const auto run_combine = [&] {
        return moe_combine(c.run.plan.get(), c.run.workspace.get(), &combine);
    };
    ASSERT_MOE_OK(run_combine());
    wanted = out;
    combine.row_ids = off_by_one(c.row_ids.data());
    combine.n_rows = -1;
    EXPECT_MOE_OK(run_combine());
    EXPECT_TRUE(same_bits(out, wanted));

    auto route = sized<moe_route_args>();
    std::vector<int32_t> ids(T * K);
    Floats weights(T * K), logits = clients::Random(3).values(T * (E + 1));
    route.routing = MOE_ROUTING_LOGITS;
    route.n_tokens = T;
    route.logits = logits.data();
    route.out_ids = ids.data();
    route.out_weights = weights.data();
    route.x = off_by_one(c.x.data());
    route.x_row_stride = route.router_input_row_stride = route.out_logits_row_stride = 1;
    route.router_input = off_by_one(c.x.data());
    route.ids = off_by_one(wrong_ids.data());
    route.ids_type = route.token_ids_type = moe_type(99);
    EXPECT_MOE_OK(moe_route(c.run.plan.get(), c.run.weights.get(), c.run.workspace.get(), &route));

    auto finish = sized<moe_finish_args>();
    finish.n_tokens = T;
    finish.x = c.x.data();
    finish.out = out.data();
    const auto run_finish = [&] {
        return moe_finish(c.run.plan.get(), c.run.weights.get(), c.run.workspace.get(), &finish);
    };
    ASSERT_MOE_OK(run_finish());
    wanted = out;
    finish.ids = wrong_ids.data();
    EXPECT_MOE_OK(run_finish()) << "ids without weights";
    EXPECT_TRUE(same_bits(out, wanted));
    finish.weights = off_by_one(weights.data());
    finish.ids = off_by_one(wrong_ids.data());
    finish.ids_type = MOE_TYPE_F32;
    finish.ids_row_stride = finish.weights_row_stride = finish.routed_row_stride = 1;
    EXPECT_MOE_OK(run_finish());
    EXPECT_TRUE(same_bits(out, wanted));
    finish.ids_type = MOE_TYPE_NONE;
    finish.ids = wrong_ids.data();
    finish.weights = weights.data();
    EXPECT_MOE_OK(run_finish());
    finish.parts = MOE_FINISH_COMBINE;
    finish.x = off_by_one(c.x.data());
    EXPECT_MOE_OK(run_finish()) << "without the shared expert x is of no use";
    EXPECT_EQ(faults_of(c.run.workspace).faults, 0u) << "ids that nobody reads are not wrong";
}

// What a plan was not made for is refused by name.
TEST(Stages, OfThePlanOnly) {
    const LayerCase layer(plain_layer(H, I, E, K));
    auto desc = layer.plan_desc(T);
    desc.stages = MOE_STAGE_EXPERTS;
    const LayerRun run(layer, desc);
    const Floats x = layer.x(T);
    Floats out(T * H);
    EXPECT_MOE_ERROR(run.forward(forward_args(T, x.data(), out.data())), bad, "stages");
    const auto route = sized<moe_route_args>();
    EXPECT_MOE_ERROR(moe_route(run.plan.get(), run.weights.get(), run.workspace.get(), &route), bad,
                     "route");
    const auto dispatch = sized<moe_dispatch_args>();
    EXPECT_MOE_ERROR(moe_dispatch(run.plan.get(), run.workspace.get(), &dispatch), bad, "dispatch");
    const auto combine = sized<moe_combine_args>();
    EXPECT_MOE_ERROR(moe_combine(run.plan.get(), run.workspace.get(), &combine), bad, "combine");
    const auto finish = sized<moe_finish_args>();
    EXPECT_MOE_ERROR(moe_finish(run.plan.get(), run.weights.get(), run.workspace.get(), &finish),
                     bad, "finish");
    const auto experts = sized<moe_experts_args>();
    EXPECT_MOE_OK(moe_experts(run.plan.get(), run.weights.get(), run.workspace.get(), &experts));
    auto report = sized<moe_memory_report>();
    ASSERT_MOE_OK(moe_weights_memory(run.weights.get(), &report));
    EXPECT_EQ(report.role_bytes[MOE_ROLE_ROUTER], 0u) << "weights of other stages are not loaded";
}

}  // namespace
}  // namespace moe_test::stages
