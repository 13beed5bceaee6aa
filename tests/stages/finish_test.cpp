// moe_finish by parts and over slices, accumulation, the device-side number of tokens, and what a
// stage does with bad rows.
#include <gtest/gtest.h>

#include <utility>

#include "tests/stages/engine.hpp"

namespace moe {
namespace {

using test::Engine;
using test::Floats;
using test::not_written;

moe_layer_desc layer_with_everything(int32_t latent) {
    moe_layer_desc desc = test::plain_layer(64, 48, 6, 3);
    desc.has_gate_bias = desc.has_up_bias = desc.has_down_bias = 1;
    desc.shared_intermediate = 32;
    desc.shared_activation = MOE_ACTIVATION_SILU;
    desc.shared_is_gated = 1;
    desc.has_shared_scale = 1;
    desc.shared_scale = 0.5f;
    desc.combine = MOE_COMBINE_MEAN;
    desc.latent = latent;
    if (!latent) desc.n_identity_experts = 2;
    return desc;
}

moe_slice features(int32_t begin, int32_t count, int32_t shared_begin, int32_t shared_count) {
    auto slice = moe_test::sized<moe_slice>();
    slice.has_intermediate_range = slice.has_shared_range = 1;
    slice.intermediate_begin = begin;
    slice.intermediate_count = count;
    slice.shared_begin = shared_begin;
    slice.shared_count = shared_count;
    return slice;
}

Floats sum(const Floats& a, const Floats& b) {
    Floats out(a);
    for (size_t i = 0; i < out.size(); ++i) out[i] += b[i];
    return out;
}

bool same_routing(Engine& a, Engine& b) {
    a.route();
    b.route();
    return a.ids == b.ids && a.weights == b.weights;
}

// Two ranks along the intermediate: partial sums, each rank's shared part, one finish.
TEST(Finish, SlicesAddUpToTheLayer) {
    for (const int32_t latent : {0, 32}) {
        Engine whole(layer_with_everything(latent));
        const Floats wanted = whole.forward();
        const moe_slice first = features(0, 16, 0, 16), second = features(16, 32, 16, 16);
        Engine a(layer_with_everything(latent), {.slice = &first}),
            b(layer_with_everything(latent), {.slice = &second});
        ASSERT_TRUE(same_routing(a, b));
        const Floats routed = sum(a.forward(), b.forward());
        const Floats shared = sum(a.finish({}, MOE_FINISH_SHARED), b.finish({}, MOE_FINISH_SHARED));
        Floats got;
        if (latent) {
            // Both are halved: the shared sum here by hand, the routed one by its finish.
            got = a.finish(routed, MOE_FINISH_DOWN_BIAS | MOE_FINISH_LATENT | MOE_FINISH_COMBINE);
            for (size_t i = 0; i < got.size(); ++i) got[i] += shared[i] * 0.5f;
        } else {
            got = a.finish(sum(routed, shared),
                           MOE_FINISH_DOWN_BIAS | MOE_FINISH_COMBINE | MOE_FINISH_IDENTITY);
        }
        EXPECT_LT(moe_test::worst_row_error(got, wanted, 64), 1e-6) << "latent " << latent;
    }
}

TEST(Finish, PartsOneByOneAddUpToTheWhole) {
    const moe_slice slice = features(16, 32, 0, 16);
    for (const int32_t latent : {0, 32}) {
        Engine engine(layer_with_everything(latent), {.slice = &slice});
        const Floats routed = engine.forward();
        engine.route();
        const Floats wanted = engine.finish(routed);
        Floats steps = routed;
        if (latent) {
            steps = engine.finish(routed,
                                  MOE_FINISH_DOWN_BIAS | MOE_FINISH_LATENT | MOE_FINISH_COMBINE);
            steps = engine.finish({}, MOE_FINISH_SHARED | MOE_FINISH_COMBINE, steps);
        } else {
            for (const uint32_t part : {MOE_FINISH_DOWN_BIAS, MOE_FINISH_IDENTITY,
                                        MOE_FINISH_SHARED, MOE_FINISH_COMBINE}) {
                const Floats before = steps;
                steps = engine.finish(before, part);
                EXPECT_NE(steps, before) << "part " << part << " does nothing";
            }
        }
        EXPECT_LT(moe_test::worst_row_error(steps, wanted, 64), 1e-6) << "latent " << latent;
        if (latent) continue;
        EXPECT_EQ(steps, wanted) << "in the order of the whole, in float32, the bits are the same";
        // The terms apart, from nothing: linear.
        Floats terms(wanted.size(), 0.0f);
        for (const uint32_t part : {MOE_FINISH_DOWN_BIAS, MOE_FINISH_IDENTITY, MOE_FINISH_SHARED})
            terms = engine.finish({}, part, terms);
        terms = engine.finish(sum(terms, routed), MOE_FINISH_COMBINE);
        EXPECT_LT(moe_test::worst_row_error(terms, wanted, 64), 1e-6);
    }
}

TEST(Finish, WithoutARoutedSumTheDownBiasStillGoesThroughTheLatent) {
    const moe_slice slice = features(0, 16, 0, 16);
    Engine engine(layer_with_everything(32), {.slice = &slice});
    engine.route();
    const Floats zeros(static_cast<size_t>(engine.T * engine.L), 0.0f);
    const Floats wanted = engine.finish(zeros);
    EXPECT_EQ(engine.finish({}), wanted);
    EXPECT_NE(engine.finish({}, MOE_FINISH_SHARED | MOE_FINISH_COMBINE), wanted);
}

TEST(Finish, LatentSumsNeedTheirProjection) {
    Engine engine(layer_with_everything(32));
    auto args = moe_test::sized<moe_finish_args>();
    const Floats routed(static_cast<size_t>(engine.T * 32));
    Floats out(static_cast<size_t>(engine.T * 64));
    args.n_tokens = engine.T;
    args.routed = routed.data();
    args.x = engine.x.data();
    args.out = out.data();
    args.parts = MOE_FINISH_SHARED;
    EXPECT_MOE_ERROR(
        moe_finish(engine.plan.get(), engine.resident.get(), engine.workspace.get(), &args),
        MOE_ERROR_INVALID_ARGUMENT, "MOE_FINISH_LATENT");
    args.parts = MOE_FINISH_ALL;
    args.out = out.data();
    args.routed = out.data();
    EXPECT_MOE_ERROR(
        moe_finish(engine.plan.get(), engine.resident.get(), engine.workspace.get(), &args),
        MOE_ERROR_INVALID_ARGUMENT, "out is routed");
    args.parts = 64;
    EXPECT_MOE_ERROR(
        moe_finish(engine.plan.get(), engine.resident.get(), engine.workspace.get(), &args),
        MOE_ERROR_INVALID_ARGUMENT, "parts is 0x40");
}

// The biases of a sliced layer are as wide as its latent.
TEST(Finish, LatentDownBiasesNeedTheirProjectionToo) {
    const moe_slice slice = features(0, 16, 0, 16);
    Engine engine(layer_with_everything(32), {.slice = &slice});
    engine.route();
    auto args = moe_test::sized<moe_finish_args>();
    Floats out(static_cast<size_t>(engine.T * 64), not_written);
    args.n_tokens = engine.T;
    args.ids = engine.ids.data();
    args.weights = engine.weights.data();
    args.out = out.data();
    args.parts = MOE_FINISH_DOWN_BIAS;
    EXPECT_MOE_ERROR(
        moe_finish(engine.plan.get(), engine.resident.get(), engine.workspace.get(), &args),
        MOE_ERROR_INVALID_ARGUMENT, "DOWN_BIAS gives [T, 32] of a latent");
    EXPECT_EQ(out, Floats(out.size(), not_written));
}

TEST(Finish, MayWorkInPlace) {
    Engine whole(layer_with_everything(0));
    Engine engine(layer_with_everything(0),
                  {.max_workspace_bytes = whole.plan->workspace_need(3).host_bytes});
    ASSERT_LT(engine.plan->setup.chunk_tokens, engine.T);
    engine.route();
    engine.dispatch(1);
    Floats routed = engine.combine(
        MOE_IN_TOKENS, engine.experts(engine.experts_args(MOE_IN_TOKENS, MOE_OUT_PER_SLOT), 64));
    const Floats wanted = engine.finish(routed);
    auto args = moe_test::sized<moe_finish_args>();
    args.n_tokens = engine.T;
    args.routed = args.out = routed.data();
    args.x = engine.x.data();
    ASSERT_MOE_OK(
        moe_finish(engine.plan.get(), engine.resident.get(), engine.workspace.get(), &args));
    EXPECT_EQ(routed, wanted);
    EXPECT_EQ(engine.forward(), wanted);
}

TEST(Identity, WholePlansAddThemInCombineAndPartialOnesInFinish) {
    const moe_layer_desc desc = layer_with_everything(0);
    Engine whole(desc), partial(desc, {.partial = true});
    const Floats wanted = whole.forward();
    ASSERT_TRUE(same_routing(whole, partial));
    ASSERT_GT(std::count_if(whole.ids.begin(), whole.ids.end(), [](int32_t id) { return id >= 6; }),
              0);
    EXPECT_LT(moe_test::worst_row_error(partial.finish(partial.forward()), wanted, 64), 1e-6);
    partial.dispatch(1);
    const Floats reduced =
        partial.experts(partial.experts_args(MOE_IN_SORTED, MOE_OUT_REDUCED), 64);
    EXPECT_EQ(reduced, partial.forward());
    EXPECT_GT(
        moe_test::worst_row_error(partial.finish(reduced, 31u & ~MOE_FINISH_IDENTITY), wanted, 64),
        1e-2);
    // A whole plan's combine asks for x.
    whole.dispatch(1);
    const Floats slots = whole.experts(whole.experts_args(MOE_IN_TOKENS, MOE_OUT_PER_SLOT), 64);
    auto args = whole.combine_args(MOE_IN_TOKENS, slots);
    Floats out(static_cast<size_t>(whole.T * 64));
    args.out = out.data();
    args.x = nullptr;
    EXPECT_MOE_ERROR(moe_combine(whole.plan.get(), whole.workspace.get(), &args),
                     MOE_ERROR_INVALID_ARGUMENT, "x is NULL");
}

TEST(Stages, AccumulateAddsToWhatIsThere) {
    Engine engine(layer_with_everything(0), {.partial = true});
    engine.route();
    engine.dispatch(1);
    const Floats before = test::gaussian(engine.T * engine.L, 77);
    for (const auto in : {MOE_IN_TOKENS, MOE_IN_SORTED}) {
        auto args = engine.experts_args(in, MOE_OUT_REDUCED);
        const Floats plain = engine.experts(args, engine.L);
        Floats out = before;
        args.out = out.data();
        args.accumulate = 1;
        ASSERT_MOE_OK(engine.try_experts(args));
        EXPECT_EQ(out, sum(before, plain)) << "in " << in;
    }
    const Floats slots =
        engine.experts(engine.experts_args(MOE_IN_TOKENS, MOE_OUT_PER_SLOT), engine.L);
    Floats out = before;
    auto args = engine.combine_args(MOE_IN_TOKENS, slots);
    args.out = out.data();
    args.accumulate = 1;
    ASSERT_MOE_OK(moe_combine(engine.plan.get(), engine.workspace.get(), &args));
    EXPECT_EQ(out, sum(before, engine.combine(MOE_IN_TOKENS, slots)));
    EXPECT_EQ(engine.finish(out, 0, before), sum(before, engine.finish(out)));
    auto rows = engine.experts_args(MOE_IN_TOKENS, MOE_OUT_PER_SLOT);
    rows.accumulate = 1;
    EXPECT_MOE_ERROR(engine.try_experts(rows), MOE_ERROR_INVALID_ARGUMENT, "accumulate");
}

// Rows beyond the true number of tokens are neither read nor written, by any stage.
TEST(Stages, TheDeviceSideNumberOfTokensIsRespected) {
    for (const int32_t latent : {0, 32}) {
        Engine all(layer_with_everything(latent)), engine(layer_with_everything(latent));
        const Floats wanted = all.forward();
        const int32_t true_tokens = 6;
        engine.n_tokens_device = &true_tokens;
        std::fill(engine.x.begin() + true_tokens * engine.H, engine.x.end(), test::poison);
        const auto expect_first = [&](const Floats& got, int64_t width) {
            const auto end = static_cast<size_t>(true_tokens * width);
            for (size_t i = 0; i < got.size(); ++i)
                ASSERT_EQ(got[i], i < end ? wanted[i] : not_written) << "element " << i;
        };
        expect_first(engine.forward(), engine.H);
        engine.route();
        EXPECT_EQ(engine.ids[static_cast<size_t>(true_tokens * engine.k)], -9)
            << "ids beyond were written";
        engine.dispatch(4);
        for (const int32_t slot : engine.row_ids) EXPECT_LT(slot, true_tokens * engine.k);
        for (const auto in : {MOE_IN_TOKENS, MOE_IN_SORTED}) {
            const Floats rows = engine.experts(engine.experts_args(in, MOE_OUT_ROWS), engine.L);
            expect_first(engine.finish(engine.combine(MOE_IN_SORTED, rows)), engine.H);
            const Floats slots =
                engine.experts(engine.experts_args(in, MOE_OUT_PER_SLOT), engine.L);
            EXPECT_EQ(slots[static_cast<size_t>(true_tokens * engine.k * engine.L)], not_written);
            expect_first(engine.finish(engine.combine(MOE_IN_TOKENS, slots)), engine.H);
        }
        EXPECT_EQ(engine.faults().faults, 0u);
    }
}

TEST(Faults, TokensOutOfRangeAreClamped) {
    for (const int32_t tokens : {-3, 12, INT32_MAX, INT32_MIN}) {
        Engine engine(layer_with_everything(0));
        const Floats wanted = engine.forward();
        engine.n_tokens_device = &tokens;
        EXPECT_EQ(engine.forward(), tokens < 0 ? Floats(wanted.size(), not_written) : wanted);
        EXPECT_EQ(engine.faults().faults, static_cast<uint32_t>(MOE_FAULT_TOKENS_OUT_OF_RANGE))
            << tokens;
        engine.route();
        EXPECT_EQ(engine.faults().faults, static_cast<uint32_t>(MOE_FAULT_TOKENS_OUT_OF_RANGE))
            << tokens;
        EXPECT_EQ(engine.faults().faults, 0u) << "faults are told once";
    }
}

TEST(Faults, IdsOutOfRangeAreSkippedAndCounted) {
    Engine engine(layer_with_everything(0));
    engine.route();
    std::vector<int32_t> skipped = engine.ids;
    for (const size_t slot : {1, 7, 20}) skipped[slot] = -1;
    std::swap(engine.ids, skipped);
    const Floats wanted = engine.forward(true);
    engine.dispatch(1);
    const auto offsets = engine.offsets;
    EXPECT_EQ(engine.faults().faults, 0u);
    engine.ids[1] = 8;
    engine.ids[7] = -2;
    engine.ids[20] = INT32_MIN;
    EXPECT_EQ(engine.forward(true), wanted);
    EXPECT_EQ(engine.faults().n_skipped, 3);
    engine.dispatch(1);
    EXPECT_EQ(engine.offsets, offsets);
    const auto faults = engine.faults();
    EXPECT_EQ(faults.faults, static_cast<uint32_t>(MOE_FAULT_ID_OUT_OF_RANGE));
    EXPECT_EQ(faults.n_skipped, 3);
}

// Two rows of one slot: the first counts.
TEST(Faults, OfTwoRowsOfASlotTheSecondIsSkipped) {
    Engine engine(layer_with_everything(0), {.partial = true});
    engine.route();
    engine.dispatch(4);
    for (const auto out : {MOE_OUT_PER_SLOT, MOE_OUT_REDUCED}) {
        const auto args = engine.experts_args(MOE_IN_SORTED, out);
        const Floats before = engine.experts(args, engine.L);
        const auto row = static_cast<size_t>(engine.offsets[2]);
        const int32_t good = std::exchange(engine.row_ids[row], -1);
        const Floats without = engine.experts(args, engine.L);
        EXPECT_NE(without, before);
        EXPECT_EQ(engine.faults().faults, 0u);
        engine.row_ids[row] = engine.row_ids[0];
        EXPECT_EQ(engine.experts(args, engine.L), without);
        const auto faults = engine.faults();
        EXPECT_EQ(faults.faults, static_cast<uint32_t>(MOE_FAULT_OFFSETS_OUT_OF_RANGE));
        EXPECT_EQ(faults.n_skipped, 1);
        engine.row_ids[row] = good;
    }
}

class BadRows : public testing::Test {
  protected:
    BadRows() : engine(layer_with_everything(0)) {
        engine.route();
        engine.dispatch(4);
    }
    // Runs with the rows as they now are and expects the fault; unskipped rows are as before.
    void expect_skipped(moe_experts_args args, const Floats& before, int64_t n_skipped,
                        const char* what) {
        const Floats got = engine.experts(args, engine.L);
        const auto faults = engine.faults();
        EXPECT_EQ(faults.faults, static_cast<uint32_t>(MOE_FAULT_OFFSETS_OUT_OF_RANGE)) << what;
        EXPECT_EQ(faults.n_skipped, n_skipped) << what;
        size_t n_lost = 0;
        ASSERT_EQ(got.size(), before.size());
        for (size_t i = 0; i < got.size(); ++i) {
            if (got[i] == before[i]) continue;
            ++n_lost;
            ASSERT_TRUE(got[i] == not_written || got[i] == 0.0f) << what << ": a row changed";
        }
        EXPECT_LT(n_lost, got.size()) << what;
    }
    Engine engine;
};

TEST_F(BadRows, OffsetsAreClamped) {
    for (const auto in : {MOE_IN_TOKENS, MOE_IN_SORTED}) {
        const auto good = engine.offsets;
        const Floats before = engine.experts(engine.experts_args(in, MOE_OUT_ROWS), engine.L);
        for (const int64_t bad : {int64_t{-1}, INT64_MIN, engine.n_rows() + 1, INT64_MAX}) {
            engine.offsets[6] = bad;
            auto args = engine.experts_args(in, MOE_OUT_ROWS);
            expect_skipped(args, before, 1, "last offset");
            engine.offsets = good;
        }
        engine.offsets[0] = -5;
        expect_skipped(engine.experts_args(in, MOE_OUT_ROWS), before, 1, "first offset");
        engine.offsets = good;
    }
}

// A row of two experts would be what the last of them made of it, or both at once.
TEST(Faults, ExpertsOutOfOrderAreSkipped) {
    for (const int32_t n_threads : {1, 3}) {
        Engine engine(layer_with_everything(0), {.n_threads = n_threads});
        engine.route();
        engine.dispatch(4);
        const int64_t n = engine.n_rows();
        ASSERT_GT(n, 12);
        const struct {
            const char* what;
            std::vector<int64_t> offsets, same, counts;
        } cases[] = {
            {"begins anew", {0, 4, 0, 8, 8, 8, n}, {0, 4, 4, 8, 8, 8, n}, {4, 0, 0, 0, 0, n - 8}},
            {"ends early", {0, 8, 3, 9, 9, 9, n}, {0, 8, 8, 9, 9, 9, n}, {8, 0, 0, 0, 0, n - 9}},
            {"ends too far", {0, n + 9, 2, 6, 6, n, n}, {0, n, n, n, n, n, n}, {n, 0, 0, 0, 0, 0}},
        };
        for (const auto& c : cases)
            for (const auto& [in, out] :
                 {std::pair{MOE_IN_TOKENS, MOE_OUT_ROWS}, std::pair{MOE_IN_SORTED, MOE_OUT_ROWS},
                  std::pair{MOE_IN_SORTED, MOE_OUT_PER_SLOT}}) {
                SCOPED_TRACE(c.what);
                auto args = engine.experts_args(in, out);
                args.offsets = c.same.data();
                args.counts = c.counts.data();
                const Floats wanted = engine.experts(args, engine.L);
                EXPECT_EQ(engine.faults().faults, 0u);
                args.offsets = c.offsets.data();
                args.counts = nullptr;
                EXPECT_EQ(engine.experts(args, engine.L), wanted) << in << ' ' << out;
                EXPECT_EQ(engine.faults().faults,
                          static_cast<uint32_t>(MOE_FAULT_OFFSETS_OUT_OF_RANGE));
            }
    }
}

TEST_F(BadRows, RowIdsAreSkipped) {
    for (const auto in : {MOE_IN_TOKENS, MOE_IN_SORTED})
        for (const auto out : {MOE_OUT_ROWS, MOE_OUT_PER_SLOT}) {
            const auto good = engine.row_ids;
            const Floats before = engine.experts(engine.experts_args(MOE_IN_SORTED, out), engine.L);
            auto args = engine.experts_args(in, out);  // takes x before the ids go bad
            if (in == MOE_IN_TOKENS && out != MOE_OUT_ROWS) continue;
            const auto row = static_cast<size_t>(engine.offsets[2]);
            for (const int32_t bad : {33, -2, INT32_MAX, INT32_MIN}) {
                if (in == MOE_IN_SORTED && out == MOE_OUT_ROWS && bad > 0)
                    continue;  // marks of padding only
                engine.row_ids[row] = bad;
                expect_skipped(args, before, 1, "row id");
                engine.row_ids = good;
            }
        }
}

TEST_F(BadRows, CountsAreClamped) {
    const auto good = engine.counts;
    auto args = engine.experts_args(MOE_IN_BATCHED, MOE_OUT_ROWS);
    // Rows beyond the counts are poison: a count that is too large gives rows of NaN there, inside
    // the batch.
    const Floats before = engine.experts(args, engine.L);
    for (const int64_t bad : {int64_t{-1}, INT64_MIN}) {
        engine.counts[1] = bad;
        args.counts = engine.counts.data();
        expect_skipped(args, before, 1, "count");
    }
    for (const int64_t bad : {args.batch_capacity + 1, INT64_MAX}) {
        engine.counts[1] = bad;
        Floats out(before.size(), not_written);
        args.out = out.data();
        ASSERT_MOE_OK(engine.try_experts(args));
        EXPECT_EQ(engine.faults().n_skipped, 1);
        const auto first = static_cast<size_t>(2 * args.batch_capacity * engine.L);
        EXPECT_TRUE(std::equal(before.begin() + static_cast<int64_t>(first), before.end(),
                               out.begin() + static_cast<int64_t>(first)))
            << "another expert's rows changed";
    }
    engine.counts = good;
    args = engine.experts_args(MOE_IN_SORTED, MOE_OUT_ROWS);
    const Floats sorted = engine.experts(args, engine.L);
    args.counts = engine.counts.data();
    EXPECT_EQ(engine.experts(args, engine.L), sorted);
    EXPECT_EQ(engine.faults().faults, 0u);
    for (const int64_t bad : {int64_t{-1}, INT64_MAX}) {
        engine.counts[2] = bad;
        expect_skipped(args, sorted, 1, "count of blocked rows");
    }
}

TEST_F(BadRows, CombineSkipsThemToo) {
    const Floats rows = engine.experts(engine.experts_args(MOE_IN_SORTED, MOE_OUT_ROWS), engine.L);
    const auto row = static_cast<size_t>(engine.offsets[1]);
    const int32_t good = engine.row_ids[row];
    engine.row_ids[row] = -1;
    const Floats without = engine.combine(MOE_IN_SORTED, rows);
    EXPECT_EQ(engine.faults().faults, 0u);
    for (const int32_t bad : {33, INT32_MAX, -2, INT32_MIN}) {
        engine.row_ids[row] = bad;
        EXPECT_EQ(engine.combine(MOE_IN_SORTED, rows), without);
        const auto faults = engine.faults();
        EXPECT_EQ(faults.faults, static_cast<uint32_t>(MOE_FAULT_OFFSETS_OUT_OF_RANGE)) << bad;
        EXPECT_EQ(faults.n_skipped, 1) << bad;
    }
    engine.row_ids[row] = engine.row_ids[0];  // a second row of that slot
    EXPECT_EQ(engine.combine(MOE_IN_SORTED, rows), without);
    EXPECT_EQ(engine.faults().n_skipped, 1);
    engine.row_ids[row] = good;
    EXPECT_NE(engine.combine(MOE_IN_SORTED, rows), without);
}

TEST_F(BadRows, DispatchNeedsRoom) {
    for (const int32_t block : {0, 1, 8}) {
        auto args = engine.dispatch_args(block);
        const int64_t needed = args.row_capacity;
        EXPECT_EQ(needed, engine.T * engine.k + 6 * (std::max(block, 1) - 1));
        args.row_capacity -= 1;
        EXPECT_MOE_ERROR(moe_dispatch(engine.plan.get(), engine.workspace.get(), &args),
                         MOE_ERROR_INVALID_ARGUMENT,
                         "row_capacity is " + std::to_string(needed - 1));
        EXPECT_MOE_ERROR(moe_dispatch(engine.plan.get(), engine.workspace.get(), &args),
                         MOE_ERROR_INVALID_ARGUMENT, "may need " + std::to_string(needed));
        for (const int32_t id : engine.row_ids)
            ASSERT_EQ(id, -77) << "written by a call that failed";
        args.row_capacity = needed;
        EXPECT_MOE_OK(moe_dispatch(engine.plan.get(), engine.workspace.get(), &args));
    }
}

}  // namespace
}  // namespace moe
