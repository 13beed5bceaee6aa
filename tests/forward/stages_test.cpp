// The stages one by one: what each gives, in every layout of the table in moe.h, and that together
// they are moe_forward.
#include "tests/forward/stage_case.hpp"

namespace moe_test::stages {
namespace {

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
}  // namespace moe_test::stages
