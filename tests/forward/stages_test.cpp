// The stages one by one: what each gives, in every layout of the table in moe.h, and that together
// they are moe_forward.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/layer_case.hpp"

namespace moe_test {
namespace {

constexpr int64_t T = 9, H = 64, E = 6, K = 3, I = 48;
constexpr auto bad = MOE_ERROR_INVALID_ARGUMENT;

moe_layer_desc layer_desc() {
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

// Rows of padding keep the poison; the others are compared.
void expect_rows(const StageCase& c, Floats out) {
    for (int64_t r = 0; r < c.n_rows; ++r)
        for (int64_t i = 0; i < c.width; ++i) {
            float& value = out[r * c.width + i];
            if (c.row_ids[r] >= 0) continue;
            EXPECT_TRUE(clients::is_poison(value)) << "padding row " << r << " was written";
            value = 0;
        }
    EXPECT_LE(error_of(out, c.by_rows(), c.width), f32_tolerance);
}

TEST(Stages, OneAfterTheOtherAreForward) {
    StageCase c;
    Floats slots(T * K * H), sum(T * H), out(T * H);
    ASSERT_MOE_OK(c.experts(c.tokens(MOE_OUT_PER_SLOT, slots)));
    auto combine = sized<moe_combine_args>();
    combine.n_tokens = T;
    combine.rows = slots.data();
    combine.ids = c.ids.data();
    combine.weights = c.weights.data();
    combine.x = c.x.data();
    combine.out = sum.data();
    ASSERT_MOE_OK(moe_combine(c.run.plan.get(), c.run.workspace.get(), &combine));
    auto finish = sized<moe_finish_args>();
    finish.n_tokens = T;
    finish.routed = sum.data();
    finish.x = c.x.data();
    finish.out = out.data();
    ASSERT_MOE_OK(
        moe_finish(c.run.plan.get(), c.run.weights.get(), c.run.workspace.get(), &finish));
    const Floats whole = forward(c.run, c.x, [&](auto& args) {
        args.routing = MOE_ROUTING_IDS_AND_WEIGHTS;
        args.ids = c.ids.data();
        args.weights = c.weights.data();
    });
    EXPECT_TRUE(same_bits(out, whole));
    finish.out = sum.data();
    ASSERT_MOE_OK(
        moe_finish(c.run.plan.get(), c.run.weights.get(), c.run.workspace.get(), &finish));
    EXPECT_TRUE(same_bits(sum, whole)) << "out may be routed itself";
}

TEST(Dispatch, SortsSlotsByExpertInBlocks) {
    for (const int32_t block : {1, 4, 16}) {
        const StageCase c(layer_desc(), block);
        EXPECT_EQ(c.offsets[0], 0);
        for (int64_t e = 0; e < E; ++e) {
            std::vector<int32_t> wanted;
            for (int32_t s = 0; s < T * K; ++s)
                if (c.ids[s] == e) wanted.push_back(s);
            EXPECT_EQ(c.counts[e], static_cast<int64_t>(wanted.size()));
            EXPECT_EQ(c.offsets[e] % block, 0);
            wanted.resize((wanted.size() + block - 1) / block * block, -1);
            const std::vector<int32_t> got(c.row_ids.begin() + c.offsets[e],
                                           c.row_ids.begin() + c.offsets[e + 1]);
            EXPECT_EQ(got, wanted) << "expert " << e << ", blocks of " << block;
        }
        EXPECT_TRUE(std::all_of(c.row_ids.begin() + c.n_rows, c.row_ids.end(), [](int32_t id) {
            return id == 99;
        })) << "wrote beyond the rows";
    }
    StageCase c;
    c.dispatch_args.row_capacity = T * K - 1;
    EXPECT_MOE_ERROR(moe_dispatch(c.run.plan.get(), c.run.workspace.get(), &c.dispatch_args), bad,
                     "row_capacity is 26");
    c.dispatch_args.out_offsets = nullptr;
    EXPECT_MOE_ERROR(moe_dispatch(c.run.plan.get(), c.run.workspace.get(), &c.dispatch_args), bad,
                     "out_offsets");
}

TEST(Experts, EveryInputAndOutputLayout) {
    for (const int32_t block : {1, 4})
        for (const int32_t latent : {0, 32, 96}) {
            auto desc = layer_desc();
            desc.latent = latent;
            desc.n_identity_experts = 0;
            const StageCase c(desc, block);
            Floats slots = clients::poisoned(T * K * c.width), sum = clients::poisoned(T * c.width);
            ASSERT_MOE_OK(c.experts(c.tokens(MOE_OUT_PER_SLOT, slots)));
            EXPECT_LE(error_of(slots, c.per_slot(), c.width), f32_tolerance);
            ASSERT_MOE_OK(c.experts(c.tokens(MOE_OUT_REDUCED, sum)));
            EXPECT_LE(error_of(sum, c.reduced(), c.width), f32_tolerance);
            Floats rows = clients::poisoned(c.n_rows * c.width);
            auto to_rows = c.tokens(MOE_OUT_ROWS, rows);
            to_rows.offsets = c.offsets.data();
            to_rows.row_ids = c.row_ids.data();
            to_rows.n_rows = c.n_rows;
            ASSERT_MOE_OK(c.experts(to_rows));
            expect_rows(c, rows);

            const Floats sorted = c.sorted_x();
            slots = clients::poisoned(T * K * c.width);
            sum = clients::poisoned(T * c.width);
            rows = clients::poisoned(c.n_rows * c.width);
            ASSERT_MOE_OK(c.experts(c.sorted(sorted, MOE_OUT_PER_SLOT, slots)));
            EXPECT_LE(error_of(slots, c.per_slot(), c.width), f32_tolerance);
            ASSERT_MOE_OK(c.experts(c.sorted(sorted, MOE_OUT_REDUCED, sum)));
            EXPECT_LE(error_of(sum, c.reduced(), c.width), f32_tolerance);
            ASSERT_MOE_OK(c.experts(c.sorted(sorted, MOE_OUT_ROWS, rows)));
            expect_rows(c, rows);
            EXPECT_EQ(faults_of(c.run.workspace).faults, 0u);
        }
}

// Reduced output of a whole plan is what experts and combine give together.
TEST(Experts, ReducedOutputHasTheIdentityExperts) {
    const StageCase c;
    Floats sum = clients::poisoned(T * H);
    ASSERT_MOE_OK(c.experts(c.tokens(MOE_OUT_REDUCED, sum)));
    clients::Doubles wanted = c.reduced();
    int n_identity = 0;
    for (int64_t s = 0; s < T * K; ++s) {
        if (c.ids[s] < E) continue;
        ++n_identity;
        for (int64_t i = 0; i < H; ++i) wanted[s / K * H + i] += c.weights[s] * c.x[s / K * H + i];
    }
    ASSERT_GT(n_identity, 0) << "no token went to an identity expert";
    EXPECT_LE(error_of(sum, wanted, H), f32_tolerance);
    EXPECT_MOE_ERROR(c.experts(c.sorted(c.sorted_x(), MOE_OUT_REDUCED, sum)),
                     MOE_ERROR_INVALID_ARGUMENT, "identity experts");
}

TEST(Experts, BatchedRows) {
    const StageCase c;
    constexpr int64_t capacity = T;
    Floats x(E * capacity * H, NAN), out = clients::poisoned(E * capacity * H);
    clients::Doubles wanted(E * capacity * H);
    for (int64_t e = 0; e < E; ++e)
        for (int64_t i = 0; i < c.counts[e]; ++i) {
            const int64_t slot = c.row_ids[c.offsets[e] + i], row = e * capacity + i;
            std::copy_n(&c.x[slot / K * H], H, &x[row * H]);
            const auto y = c.slot(slot);
            std::copy(y.begin(), y.end(), wanted.begin() + row * H);
        }
    auto args = sized<moe_experts_args>();
    args.in_layout = MOE_IN_BATCHED;
    args.out_layout = MOE_OUT_ROWS;
    args.x = x.data();
    args.counts = c.counts.data();
    args.batch_capacity = capacity;
    args.out = out.data();
    ASSERT_MOE_OK(c.experts(args));
    for (int64_t e = 0; e < E; ++e)
        for (int64_t i = c.counts[e] * H; i < capacity * H; ++i) {
            float& value = out[e * capacity * H + i];
            EXPECT_TRUE(clients::is_poison(value)) << "rows beyond the count are not written";
            value = 0;
        }
    EXPECT_LE(error_of(out, wanted, H), f32_tolerance);
    const std::vector<int64_t> wrong = {INT64_MAX, -1, INT64_MIN, capacity + 1, 0, 0};
    args.counts = wrong.data();
    Floats zeros(x.size(), 0.0f);
    args.x = zeros.data();
    EXPECT_MOE_OK(c.experts(args));
    const auto faults = faults_of(c.run.workspace);
    EXPECT_EQ(faults.faults, uint32_t{MOE_FAULT_OFFSETS_OUT_OF_RANGE});
    EXPECT_EQ(faults.n_skipped, 4);
}

TEST(Experts, StopBeforeTheActivation) {
    const StageCase c;
    clients::Doubles wanted(T * K * 2 * I);
    for (int64_t s = 0; s < T * K; ++s) {
        if (c.ids[s] < 0 || c.ids[s] >= E) continue;
        const auto v = clients::expert_input(c.layer.layer, &c.x[s / K * H]);
        const auto h = clients::before_activation(c.layer.layer, c.ids[s], v.data());
        std::copy(h.begin(), h.end(), wanted.begin() + s * 2 * I);
    }
    Floats out = clients::poisoned(T * K * 2 * I);
    auto args = c.tokens(MOE_OUT_PER_SLOT, out);
    args.stop_before_activation = 1;
    ASSERT_MOE_OK(c.experts(args));
    EXPECT_LE(error_of(out, wanted, 2 * I), f32_tolerance);
    args.out_layout = MOE_OUT_REDUCED;
    EXPECT_MOE_ERROR(c.experts(args), bad, "stop_before_activation");
}

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

TEST(Combine, TakesSortedRows) {
    const StageCase c(layer_desc(), 4);
    Floats rows = clients::poisoned(c.n_rows * H), sum = clients::poisoned(T * H);
    ASSERT_MOE_OK(c.experts(c.sorted(c.sorted_x(), MOE_OUT_ROWS, rows)));
    auto args = sized<moe_combine_args>();
    args.rows_layout = MOE_IN_SORTED;
    args.n_tokens = T;
    args.rows = rows.data();
    args.row_ids = c.row_ids.data();
    args.n_rows = c.n_rows;
    args.ids = c.ids.data();
    args.weights = c.weights.data();
    args.x = c.x.data();
    args.out = sum.data();
    ASSERT_MOE_OK(moe_combine(c.run.plan.get(), c.run.workspace.get(), &args));
    const auto wanted =
        clients::reference_routed(c.layer.layer, c.x, T, {c.ids, to_doubles(c.weights)});
    EXPECT_LE(error_of(sum, wanted, H), f32_tolerance);
    Floats twice = sum;
    args.out = twice.data();
    args.accumulate = 1;
    ASSERT_MOE_OK(moe_combine(c.run.plan.get(), c.run.workspace.get(), &args));
    for (size_t i = 0; i < sum.size(); ++i) EXPECT_EQ(twice[i], 2 * sum[i]);
    args.x = nullptr;
    EXPECT_MOE_ERROR(moe_combine(c.run.plan.get(), c.run.workspace.get(), &args), bad, "x is NULL");
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

TEST(Finish, WithoutRoutedIsTheRestAlone) {
    StageCase c;
    Floats shared(T * H), out(T * H);
    auto args = sized<moe_finish_args>();
    args.n_tokens = T;
    args.parts = MOE_FINISH_SHARED;
    args.x = c.x.data();
    args.out = shared.data();
    auto finish = [&] {
        return moe_finish(c.run.plan.get(), c.run.weights.get(), c.run.workspace.get(), &args);
    };
    ASSERT_MOE_OK(finish());
    const auto wanted = clients::reference_finish(c.layer.layer, c.x, T, clients::Doubles(T * H));
    EXPECT_LE(error_of(shared, wanted, H), f32_tolerance);
    args.parts = 32;
    EXPECT_MOE_ERROR(finish(), bad, "parts");
    args.parts = 0;
    args.x = nullptr;
    EXPECT_MOE_ERROR(finish(), bad, "x is NULL");
}

}  // namespace
}  // namespace moe_test
