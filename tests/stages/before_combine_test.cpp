// Rows before the combine, with the weights and the map that a combine of the caller's needs: their
// sum in double precision is the combined output, per slot and in the order of a dispatch. The
// second is what FlashInfer and vLLM call the unfinalized output.
#include <gtest/gtest.h>

#include <optional>

#include "tests/stages/engine.hpp"

namespace moe {
namespace {

using test::Engine;
using test::Floats;
using Doubles = std::vector<double>;

constexpr double sum_tolerance = 1e-6;  // one rounding to float32, and float32 sums

// Sum over j of weights[t, j] times row map[t * k + j]; a slot of -1 adds nothing.
Doubles finalized(const Engine& engine, const Floats& rows, const std::vector<int32_t>& map,
                  const Floats& weights) {
    Doubles out(static_cast<size_t>(engine.T * engine.L), 0.0);
    for (size_t slot = 0; slot < map.size(); ++slot) {
        if (map[slot] < 0) continue;
        const auto row = static_cast<size_t>(map[slot] * engine.L);
        const auto token = static_cast<size_t>(engine.L) * (slot / static_cast<size_t>(engine.k));
        for (size_t i = 0; i < static_cast<size_t>(engine.L); ++i)
            out[token + i] += static_cast<double>(weights[slot]) * rows[row + i];
    }
    return out;
}

double error_of_sum(const Engine& engine, const Doubles& got, const Floats& wanted) {
    return moe_test::worst_row_error(got, Doubles(wanted.begin(), wanted.end()),
                                     static_cast<size_t>(engine.L));
}

// Expert 4 is another rank's: its slots have no row.
struct PartialEngine {
    PartialEngine() : slice(moe_test::sized<moe_slice>()) {
        slice.has_expert_range = 1;
        slice.expert_begin = 0;
        slice.expert_count = 5;
        engine.emplace(test::plain_layer(64, 48, 6, 3),
                       test::EngineChoices{.slice = &slice, .partial = true});
        engine->route();
        EXPECT_GT(std::count(engine->ids.begin(), engine->ids.end(), 5), 0);
    }
    moe_slice slice;
    std::optional<Engine> engine;
};

TEST(BeforeCombine, RowsPerSlotAreOneCallWithIdsAndWeights) {
    PartialEngine partial;
    Engine& engine = *partial.engine;
    const Floats wanted = engine.forward();
    Floats rows(engine.slots() * static_cast<size_t>(engine.L), test::not_written);
    std::vector<int32_t> ids(engine.slots(), -9), map(engine.slots());
    Floats weights(engine.slots(), test::poison);
    auto args = moe_test::sized<moe_forward_args>();
    args.n_tokens = engine.T;
    args.x = engine.x.data();
    args.out_layout = MOE_OUT_PER_SLOT;
    args.out = rows.data();
    args.out_ids = ids.data();
    args.out_weights = weights.data();
    ASSERT_MOE_OK(
        moe_forward(engine.plan.get(), engine.resident.get(), engine.workspace.get(), &args));
    EXPECT_EQ(ids, engine.ids);
    EXPECT_EQ(weights, engine.weights);
    for (size_t slot = 0; slot < map.size(); ++slot) {
        map[slot] = static_cast<int32_t>(slot);  // the map of slots is the identity
        const bool is_here = ids[slot] < 5;
        EXPECT_EQ(rows[slot * static_cast<size_t>(engine.L)] != 0.0f, is_here) << slot;
    }
    EXPECT_LE(error_of_sum(engine, finalized(engine, rows, map, weights), wanted), sum_tolerance);
    EXPECT_EQ(engine.combine(MOE_IN_TOKENS, rows), wanted) << "moe_combine, to the bit";
}

TEST(BeforeCombine, PermutedRowsComeWithTheMapOfTheDispatch) {
    PartialEngine partial;
    Engine& engine = *partial.engine;
    const Floats wanted = engine.forward();
    for (const int32_t block : {1, 8}) {
        engine.dispatch(block);
        const Floats rows =
            engine.experts(engine.experts_args(MOE_IN_TOKENS, MOE_OUT_ROWS), engine.L);
        // expanded_idx_to_permuted_idx: the inverse of the row ids.
        std::vector<int32_t> map(engine.slots(), -1);
        for (size_t r = 0; r < engine.row_ids.size(); ++r)
            if (engine.row_ids[r] >= 0)
                map[static_cast<size_t>(engine.row_ids[r])] = static_cast<int32_t>(r);
        EXPECT_EQ(std::count(map.begin(), map.end(), -1),
                  std::count(engine.ids.begin(), engine.ids.end(), 5));
        EXPECT_LE(error_of_sum(engine, finalized(engine, rows, map, engine.weights), wanted),
                  sum_tolerance)
            << block;
        EXPECT_EQ(engine.combine(MOE_IN_SORTED, rows), wanted) << "moe_combine, to the bit";
    }
}

}  // namespace
}  // namespace moe
