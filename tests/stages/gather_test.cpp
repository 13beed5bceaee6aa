// moe_gather: rows of x in the order of a dispatch, against a plain loop over its row ids; types,
// padding, broken rows, and what a GEMM of the caller's makes of the rows.
#include <gtest/gtest.h>

#include "libmoe/base/half.hpp"
#include "tests/stages/engine.hpp"
#include "tests/support/layer_case.hpp"

namespace moe {
namespace {

using moe_test::LayerCase;
using moe_test::LayerRun;
using moe_test::must;
using moe_test::sized;
using test::Engine;
using test::Floats;

constexpr auto bad_argument = MOE_ERROR_INVALID_ARGUMENT;

// What moe_gather gave; poisoned before the call.
struct Rows {
    explicit Rows(const Engine& engine, int64_t width)
        : rows(static_cast<size_t>(engine.n_rows() * width), test::not_written),
          tokens(static_cast<size_t>(engine.n_rows()), -9),
          weights(static_cast<size_t>(engine.n_rows()), test::poison) {}
    Floats rows;
    std::vector<int32_t> tokens;
    Floats weights;
};

moe_gather_args args_of(const Engine& engine, Rows& to) {
    auto args = sized<moe_gather_args>();
    args.n_tokens = engine.T;
    args.x = engine.x.data();
    args.offsets = engine.offsets.data();
    args.counts = engine.counts.data();
    args.row_ids = engine.row_ids.data();
    args.n_rows = engine.n_rows();
    args.out = to.rows.data();
    args.weights = engine.weights.data();
    args.out_row_tokens = to.tokens.data();
    args.out_row_weights = to.weights.data();
    return args;
}

moe_status gather(Engine& engine, const moe_gather_args& args) {
    return moe_gather(engine.plan.get(), engine.workspace.get(), &args);
}

// The same by a plain loop over the row ids.
Rows wanted_rows(const Engine& engine) {
    Rows wanted(engine, engine.H);
    for (int64_t r = 0; r < engine.n_rows(); ++r) {
        const auto row = static_cast<size_t>(r);
        const int32_t slot = engine.row_ids[row];
        wanted.tokens[row] = slot < 0 ? -1 : static_cast<int32_t>(slot / engine.k);
        wanted.weights[row] = slot < 0 ? 0.0f : engine.weights[static_cast<size_t>(slot)];
        if (slot >= 0)
            std::copy_n(engine.x.data() + slot / engine.k * engine.H, engine.H,
                        wanted.rows.data() + r * engine.H);
    }
    return wanted;
}

struct RoutedEngine : Engine {
    explicit RoutedEngine(int32_t n_threads = 2)
        : Engine(test::plain_layer(64, 48, 6, 3), {.n_threads = n_threads}) {
        route();
    }
};

TEST(Gather, IsTheRowsOfTheDispatchInEveryBlockSize) {
    for (const int32_t n_threads : {1, 3})
        for (const int32_t block : {0, 1, 4, 16}) {
            RoutedEngine engine(n_threads);
            engine.dispatch(block);
            Rows got(engine, engine.H);
            ASSERT_MOE_OK(gather(engine, args_of(engine, got)));
            const Rows wanted = wanted_rows(engine);
            EXPECT_EQ(got.rows, wanted.rows) << block;
            EXPECT_EQ(got.tokens, wanted.tokens) << block;
            EXPECT_EQ(got.weights, wanted.weights) << block;
            EXPECT_EQ(engine.faults().faults, 0u);
            // Every slot has its row: the test would pass with an empty dispatch otherwise.
            EXPECT_EQ(std::count_if(got.tokens.begin(), got.tokens.end(),
                                    [](int32_t t) { return t >= 0; }),
                      engine.T * engine.k);
        }
}

// The number of rows is the device's to know: a capacity beyond it is left alone.
TEST(Gather, LeavesWhatNoExpertHas) {
    RoutedEngine engine;
    engine.dispatch(4);
    const auto used = static_cast<size_t>(engine.n_rows());
    const Rows wanted = wanted_rows(engine);
    engine.row_ids.resize(used + 5, 0);  // these name token 0, and belong to nobody
    Rows got(engine, engine.H);
    auto args = args_of(engine, got);
    args.counts = nullptr;
    ASSERT_MOE_OK(gather(engine, args));
    for (size_t r = used; r < used + 5; ++r) {
        EXPECT_EQ(got.tokens[r], -1);
        EXPECT_EQ(got.weights[r], 0.0f);
        EXPECT_EQ(got.rows[r * static_cast<size_t>(engine.H)], test::not_written);
    }
    got.rows.resize(wanted.rows.size());
    EXPECT_EQ(got.rows, wanted.rows);
}

TEST(Gather, FeedsSortedRowsToTheExperts) {
    RoutedEngine engine;
    engine.dispatch(8);
    Rows rows(engine, engine.H);
    ASSERT_MOE_OK(gather(engine, args_of(engine, rows)));
    auto args = engine.experts_args(MOE_IN_SORTED, MOE_OUT_REDUCED);
    args.x = rows.rows.data();
    EXPECT_EQ(engine.finish(engine.experts(args, engine.L)), engine.forward());
}

TEST(Gather, CopiesBitsOfEveryTypeWithStrides) {
    const LayerCase layer(moe_test::plain_layer(32, 16, 4, 2));
    for (const auto type : {MOE_TYPE_F32, MOE_TYPE_F16, MOE_TYPE_BF16}) {
        auto desc = layer.plan_desc(3);
        desc.x_type = type;
        const LayerRun run(layer, desc);
        const Floats values = layer.x(3);
        const size_t size = type == MOE_TYPE_F32 ? 4 : 2;
        const moe_test::Bytes dense = moe_test::pack(values, type);
        moe_test::Bytes x(3 * 40 * size, std::byte{0x55}), out(4 * 36 * size, std::byte{0x66});
        for (size_t t = 0; t < 3; ++t)
            std::memcpy(x.data() + t * 40 * size, dense.data() + t * 32 * size, 32 * size);
        const int64_t offsets[5] = {0, 1, 1, 3, 4};
        const int32_t row_ids[4] = {5, 0, 3, 1};
        auto args = sized<moe_gather_args>();
        args.n_tokens = 3;
        args.x = x.data();
        args.x_row_stride = 40;
        args.offsets = offsets;
        args.row_ids = row_ids;
        args.n_rows = 4;
        args.out = out.data();
        args.out_row_stride = 36;
        ASSERT_MOE_OK(moe_gather(run.plan.get(), run.workspace.get(), &args));
        for (size_t r = 0; r < 4; ++r) {
            const auto token = static_cast<size_t>(row_ids[r] / 2);
            EXPECT_EQ(std::memcmp(out.data() + r * 36 * size, dense.data() + token * 32 * size,
                                  32 * size),
                      0)
                << type << " row " << r;
            EXPECT_EQ(out[(r * 36 + 32) * size], std::byte{0x66}) << "wrote between the rows";
        }
    }
}

TEST(Gather, TakesLatentRows) {
    moe_layer_desc desc = test::plain_layer(64, 48, 6, 3);
    desc.latent = 32;
    Engine engine(desc);
    engine.route();
    engine.dispatch(1);
    Rows rows(engine, engine.L);
    auto args = args_of(engine, rows);
    args.x_is_latent = 1;  // the first T * L values of x, as rows of L
    ASSERT_MOE_OK(gather(engine, args));
    for (int64_t r = 0; r < engine.n_rows(); ++r)
        for (int64_t i = 0; i < engine.L; ++i)
            ASSERT_EQ(rows.rows[static_cast<size_t>(r * engine.L + i)],
                      engine.x[static_cast<size_t>(
                          engine.row_ids[static_cast<size_t>(r)] / engine.k * engine.L + i)]);
}

TEST(Gather, SkipsBrokenRowsAndSaysSo) {
    RoutedEngine engine;
    engine.dispatch(1);
    const Rows wanted = wanted_rows(engine);
    engine.row_ids[2] = static_cast<int32_t>(engine.T * engine.k);
    engine.row_ids[3] = INT32_MIN;
    Rows got(engine, engine.H);
    ASSERT_MOE_OK(gather(engine, args_of(engine, got)));
    const moe_workspace_faults faults = engine.faults();
    EXPECT_EQ(faults.faults, uint32_t{MOE_FAULT_OFFSETS_OUT_OF_RANGE});
    EXPECT_EQ(faults.n_skipped, 2);
    for (size_t r = 0; r < got.tokens.size(); ++r) {
        const bool broken = r == 2 || r == 3;
        EXPECT_EQ(got.tokens[r], broken ? -1 : wanted.tokens[r]);
        EXPECT_EQ(got.rows[r * static_cast<size_t>(engine.H)],
                  broken ? test::not_written : wanted.rows[r * static_cast<size_t>(engine.H)]);
    }
    engine.offsets.back() = int64_t{1} << 40;
    engine.offsets[1] = -7;
    EXPECT_MOE_OK(gather(engine, args_of(engine, got)));
    EXPECT_EQ(engine.faults().faults, uint32_t{MOE_FAULT_OFFSETS_OUT_OF_RANGE});
}

TEST(Gather, RefusesByName) {
    RoutedEngine engine;
    engine.dispatch(1);
    Rows rows(engine, engine.H);
    const auto refused = [&](auto change, const char* text) {
        auto args = args_of(engine, rows);
        change(args);
        EXPECT_MOE_ERROR(gather(engine, args), bad_argument, text);
    };
    refused([](auto& a) { a.x = nullptr; }, "x is NULL");
    refused([](auto& a) { a.out = nullptr; }, "out is NULL");
    refused([](auto& a) { a.offsets = nullptr; }, "offsets is NULL");
    refused([](auto& a) { a.row_ids = nullptr; }, "row_ids is NULL");
    refused([](auto& a) { a.weights = nullptr; }, "weights is NULL");
    refused([](auto& a) { a.n_rows = -1; }, "n_rows is -1");
    refused([](auto& a) { a.n_tokens = 12; }, "n_tokens is 12");
    refused([](auto& a) { a.x_is_latent = 1; }, "x_is_latent is 1, but the layer has no latent");
    refused([](auto& a) { a.x_is_latent = 2; }, "x_is_latent is 2");
    refused([](auto& a) { a.x_row_stride = 63; }, "x_row_stride is 63");
    refused([](auto& a) { a.out = const_cast<void*>(a.x); }, "out");
    refused([](auto& a) { a.n_threads = -1; }, "n_threads is -1");
    EXPECT_MOE_ERROR(moe_gather(nullptr, engine.workspace.get(), nullptr), bad_argument,
                     "plan is NULL");
    auto nothing = sized<moe_gather_args>();
    EXPECT_MOE_OK(gather(engine, nothing));
    moe_test::LayerCase layer(test::plain_layer(64, 48, 6, 3));
    auto desc = layer.plan_desc(4);
    desc.stages = MOE_STAGE_ROUTE;
    const moe_test::Plan plan = moe_test::make_plan(nullptr, desc);
    const moe_test::Workspace workspace = moe_test::make_workspace(nullptr, plan.get());
    EXPECT_MOE_ERROR(moe_gather(plan.get(), workspace.get(), &nothing), bad_argument,
                     "without stage dispatch");
}

}  // namespace
}  // namespace moe
