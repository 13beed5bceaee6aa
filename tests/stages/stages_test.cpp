// The stage calls against moe_forward, to the bit: every cell of the layout table of moe.h, chunks,
// weights on the input, latent rows, stopping before the activation.
#include <gtest/gtest.h>

#include "libmoe/layer/activation.hpp"
#include "tests/stages/engine.hpp"

namespace moe {
namespace {

using test::Engine;
using test::EngineChoices;
using test::Floats;
using test::not_written;

moe_layer_desc with_shared(moe_layer_desc desc) {
    desc.shared_intermediate = 32;
    desc.shared_activation = MOE_ACTIVATION_GELU_TANH;
    desc.shared_is_gated = 1;
    desc.has_shared_expert_gate = 1;
    desc.combine = MOE_COMBINE_MEAN;
    return desc;
}

moe_layer_desc biased_layer() {
    moe_layer_desc desc = test::plain_layer(64, 48, 6, 3);
    desc.has_gate_bias = desc.has_up_bias = desc.has_down_bias = 1;
    return with_shared(desc);
}

moe_layer_desc input_weighted_layer() {
    moe_layer_desc desc = biased_layer();
    desc.weight_on = MOE_WEIGHT_ON_INPUT;
    return desc;
}

moe_layer_desc latent_layer() {
    moe_layer_desc desc = biased_layer();
    desc.latent = 32;
    desc.has_latent_norm = 1;
    desc.latent_norm_eps = 1e-5f;
    return desc;
}

moe_layer_desc ungated_layer() {
    moe_layer_desc desc = test::plain_layer(64, 80, 6, 2);
    desc.is_gated = 0;
    desc.activation = MOE_ACTIVATION_RELU2;
    return desc;
}

moe_layer_desc identity_layer() {
    moe_layer_desc desc = biased_layer();
    desc.n_identity_experts = 2;
    return desc;
}

// Rows of moe_experts have the norm, which moe_combine leaves as it is.
moe_layer_desc expert_norm_layer() {
    moe_layer_desc desc = identity_layer();
    desc.has_expert_norm = 1;
    desc.expert_norm_eps = 1e-5f;
    return desc;
}

moe_layer_desc muse_spark_layer() {
    moe_layer_desc desc = test::plain_layer(64, 48, 6, 3);
    desc.latent = 32;
    desc.has_latent_in_norm = desc.has_expert_norm = desc.expert_norm_weight_first = 1;
    desc.latent_in_norm_eps = desc.expert_norm_eps = 1e-5f;
    return desc;
}

struct NamedLayer {
    const char* name;
    moe_layer_desc desc;
};

std::vector<NamedLayer> layers() {
    return {{"biased", biased_layer()},        {"input_weighted", input_weighted_layer()},
            {"latent", latent_layer()},        {"ungated", ungated_layer()},
            {"identity", identity_layer()},    {"expert_norm", expert_norm_layer()},
            {"muse_spark", muse_spark_layer()}};
}

// The routed sum of the engine's tokens by way of one cell of the table.
Floats routed_by(Engine& engine, moe_in_layout in, moe_out_layout out) {
    auto args = engine.experts_args(in, out);
    const Floats rows = engine.experts(args, engine.L);
    if (out == MOE_OUT_REDUCED) return rows;
    if (out == MOE_OUT_PER_SLOT) return engine.combine(MOE_IN_TOKENS, rows);
    if (in == MOE_IN_BATCHED)
        return engine.combine(MOE_IN_TOKENS, engine.by_slot(rows, engine.batch_slots(), engine.L));
    engine.by_slot(rows, engine.row_ids, engine.L);  // checks the padding
    return engine.combine(MOE_IN_SORTED, rows);
}

bool adds_identity(const Engine& engine, moe_out_layout out) {
    // Rows and slots are summed by moe_combine, which adds the identity experts of a whole plan.
    return !engine.tensors.layer.n_identity_experts || engine.plan->partial ||
           out != MOE_OUT_REDUCED;
}

void check_all_cells(Engine& engine) {
    const Floats wanted = engine.forward();
    ASSERT_EQ(std::count(wanted.begin(), wanted.end(), 0.0f), 0);
    ASSERT_EQ(std::count(wanted.begin(), wanted.end(), not_written), 0);
    engine.route();
    for (const int32_t block : {0, 1, 4, 16}) {
        ASSERT_NO_FATAL_FAILURE(engine.dispatch(block));
        for (const auto in : {MOE_IN_TOKENS, MOE_IN_SORTED, MOE_IN_BATCHED})
            for (const auto out : {MOE_OUT_REDUCED, MOE_OUT_PER_SLOT, MOE_OUT_ROWS}) {
                if (in == MOE_IN_BATCHED && out != MOE_OUT_ROWS) continue;
                if (!adds_identity(engine, out)) continue;
                const Floats routed = routed_by(engine, in, out);
                const Floats got = engine.plan->partial ? routed : engine.finish(routed);
                EXPECT_EQ(got, wanted)
                    << "block " << block << " in " << in << " out " << out << ", error "
                    << moe_test::worst_row_error(got, wanted, static_cast<size_t>(engine.H));
            }
    }
    EXPECT_EQ(engine.faults().faults, 0u);
}

TEST(Stages, EveryCellOfTheTableGivesForwardsBits) {
    for (const NamedLayer& layer : layers())
        for (const int32_t n_threads : {1, 3}) {
            SCOPED_TRACE(layer.name);
            Engine engine(layer.desc, {.n_threads = n_threads});
            check_all_cells(engine);
        }
}

TEST(Stages, InFloat64AndByTheReference) {
    for (const NamedLayer& layer : layers()) {
        SCOPED_TRACE(layer.name);
        Engine reference(layer.desc, {.filter = "cpu_any_f32_experts_ref,cpu_any_f32_finish_ref"});
        check_all_cells(reference);
        // In float64 rows are rounded between stages, so only near.
        Engine exact(layer.desc, {.intermediate_type = MOE_TYPE_F64});
        const Floats wanted = exact.forward();
        EXPECT_LT(moe_test::worst_row_error(reference.forward(), wanted, 64), 1e-5);
        exact.route();
        exact.dispatch(4);
        const Floats got = exact.finish(routed_by(exact, MOE_IN_SORTED, MOE_OUT_ROWS));
        EXPECT_LT(moe_test::worst_row_error(got, wanted, 64), 1e-6);
    }
}

uint64_t bytes_for(const Engine& engine, int64_t tokens) {
    return engine.plan->workspace_need(tokens).host_bytes;
}

TEST(Stages, SmallChunksGiveTheSameBits) {
    for (const NamedLayer& layer : layers()) {
        SCOPED_TRACE(layer.name);
        Engine whole(layer.desc);
        ASSERT_EQ(whole.plan->setup.chunk_tokens, 11);
        for (const int64_t tokens : {1, 2, 4}) {
            Engine engine(layer.desc, {.max_workspace_bytes = bytes_for(whole, tokens)});
            ASSERT_LE(engine.plan->setup.chunk_tokens, tokens);
            check_all_cells(engine);
            EXPECT_EQ(engine.forward(), whole.forward());
        }
    }
}

TEST(Stages, PartialPlansGiveTheirRoutedSum) {
    const std::vector<int32_t> odd{-1, 0, -1, 2, -1, 1};
    auto by_map = moe_test::sized<moe_slice>();
    by_map.expert_to_local = odd.data();
    by_map.n_expert_to_local = 6;
    auto features = moe_test::sized<moe_slice>();
    features.has_intermediate_range = 1;
    features.intermediate_begin = 16;
    features.intermediate_count = 16;
    for (const NamedLayer& layer : layers())
        for (const moe_slice* slice :
             {static_cast<const moe_slice*>(nullptr), static_cast<const moe_slice*>(&features)}) {
            if (slice && layer.desc.has_expert_norm) continue;  // it needs the whole sum
            SCOPED_TRACE(layer.name);
            Engine engine(layer.desc, {.slice = slice, .partial = true});
            check_all_cells(engine);
        }
    // With absent experts some tokens have no row: their sum is zero.
    Engine engine(biased_layer(), {.slice = &by_map});
    const Floats wanted = engine.forward();
    engine.route();
    engine.dispatch(4);
    EXPECT_EQ(routed_by(engine, MOE_IN_TOKENS, MOE_OUT_REDUCED), wanted);
    EXPECT_EQ(routed_by(engine, MOE_IN_SORTED, MOE_OUT_REDUCED), wanted);
    EXPECT_EQ(routed_by(engine, MOE_IN_SORTED, MOE_OUT_PER_SLOT), wanted);
    EXPECT_EQ(routed_by(engine, MOE_IN_BATCHED, MOE_OUT_ROWS), wanted);
}

// A workspace for fewer tokens than the plan's max_tokens serves calls with as few; rows have no
// number of tokens at all.
TEST(Stages, SmallerWorkspacesServeSmallerCalls) {
    for (const NamedLayer& layer : layers()) {
        SCOPED_TRACE(layer.name);
        Engine probe(layer.desc, {.n_tokens = 11, .max_tokens = 200});
        ASSERT_LT(bytes_for(probe, 11), bytes_for(probe, 200));
        Engine engine(layer.desc,
                      {.n_tokens = 11, .max_tokens = 200, .workspace_bytes = bytes_for(probe, 11)});
        check_all_cells(engine);

        probe.route();
        probe.dispatch(4);
        Engine least(layer.desc,
                     {.n_tokens = 11, .max_tokens = 200, .workspace_bytes = bytes_for(probe, 1)});
        auto args = probe.experts_args(MOE_IN_SORTED, MOE_OUT_ROWS);
        const Floats wanted = probe.experts(args, probe.L);
        args.n_tokens = 0;
        Floats row_weights;
        for (const int32_t slot : probe.row_ids)
            row_weights.push_back(slot < 0 ? test::poison
                                           : probe.weights[static_cast<size_t>(slot)]);
        args.row_weights = row_weights.data();
        args.weights = nullptr;
        EXPECT_EQ(least.experts(args, least.L), wanted);
        EXPECT_EQ(least.faults().faults, 0u);
        args.n_tokens = 2;
        EXPECT_EQ(least.experts(args, least.L), wanted) << "a number that rows have no use for";
        Floats out(wanted.size());
        args.out_layout = MOE_OUT_PER_SLOT;
        args.out = out.data();
        EXPECT_MOE_ERROR(least.try_experts(args), MOE_ERROR_WORKSPACE_TOO_SMALL,
                         std::to_string(bytes_for(probe, 2)));
    }
}

TEST(Stages, WeightsOnTheInputComeBySlotOrByRow) {
    Engine engine(input_weighted_layer());
    engine.route();
    engine.dispatch(4);
    auto args = engine.experts_args(MOE_IN_SORTED, MOE_OUT_ROWS);
    const Floats by_slot = engine.experts(args, engine.L);
    Floats row_weights;
    for (const int32_t slot : engine.row_ids)
        row_weights.push_back(slot < 0 ? test::poison : engine.weights[static_cast<size_t>(slot)]);
    args.weights = nullptr;
    args.row_weights = row_weights.data();
    EXPECT_EQ(engine.experts(args, engine.L), by_slot);
    for (float& weight : row_weights) weight *= 2;
    EXPECT_NE(engine.experts(args, engine.L), by_slot) << "the weights have no effect";
    args.row_weights = nullptr;
    EXPECT_MOE_ERROR(engine.try_experts(args), MOE_ERROR_INVALID_ARGUMENT, "weights on the input");
    args = engine.experts_args(MOE_IN_SORTED, MOE_OUT_ROWS);
    args.row_ids = nullptr;
    EXPECT_MOE_ERROR(engine.try_experts(args), MOE_ERROR_INVALID_ARGUMENT, "weights on the input");
    // Tokens by slot have no rows that row_weights could belong to.
    args = engine.experts_args(MOE_IN_TOKENS, MOE_OUT_PER_SLOT);
    Floats out(engine.slots() * static_cast<size_t>(engine.L));
    args.out = out.data();
    args.weights = nullptr;
    args.row_weights = row_weights.data();
    EXPECT_MOE_ERROR(engine.try_experts(args), MOE_ERROR_INVALID_ARGUMENT, "weights");
}

// Rows after LATENT_IN, computed here in double and rounded once.
Floats latent_rows(const Engine& engine) {
    Floats out(static_cast<size_t>(engine.T * engine.L));
    const auto matrix = engine.tensors.values(MOE_ROLE_LATENT_IN);
    for (int64_t t = 0; t < engine.T; ++t)
        for (int64_t l = 0; l < engine.L; ++l) {
            double sum = 0;
            for (int64_t i = 0; i < engine.H; ++i)
                sum += static_cast<double>(matrix.at(0, l, i)) *
                       engine.x[static_cast<size_t>(t * engine.H + i)];
            out[static_cast<size_t>(t * engine.L + l)] = static_cast<float>(sum);
        }
    return out;
}

TEST(Stages, LatentRowsMayBeGiven) {
    Engine engine(latent_layer());
    engine.route();
    engine.dispatch(4);
    const Floats latent = latent_rows(engine);
    for (const auto out : {MOE_OUT_REDUCED, MOE_OUT_PER_SLOT, MOE_OUT_ROWS}) {
        auto args = engine.experts_args(MOE_IN_TOKENS, out);
        const Floats wanted = engine.experts(args, engine.L);
        args.x_is_latent = 1;
        args.x = latent.data();
        const Floats got = engine.experts(args, engine.L);
        EXPECT_LT(moe_test::worst_row_error(got, wanted, static_cast<size_t>(engine.L)), 1e-5)
            << "out " << out;
    }
    Floats rows(static_cast<size_t>(engine.n_rows() * engine.L), test::poison);
    for (int64_t r = 0; r < engine.n_rows(); ++r)
        if (const int32_t slot = engine.row_ids[static_cast<size_t>(r)]; slot >= 0)
            std::copy_n(latent.data() + slot / engine.k * engine.L, engine.L,
                        rows.data() + r * engine.L);
    auto args = engine.experts_args(MOE_IN_SORTED, MOE_OUT_REDUCED);
    const Floats wanted = engine.experts(args, engine.L);
    args.x_is_latent = 1;
    args.x = rows.data();
    EXPECT_LT(moe_test::worst_row_error(engine.experts(args, engine.L), wanted,
                                        static_cast<size_t>(engine.L)),
              1e-5);
    Engine without(biased_layer());
    args = without.experts_args(MOE_IN_TOKENS, MOE_OUT_REDUCED);
    args.x_is_latent = 1;
    EXPECT_MOE_ERROR(without.try_experts(args), MOE_ERROR_INVALID_ARGUMENT, "x_is_latent");
}

// [gate, up] of one slot in double.
std::vector<double> pre_activation(const Engine& engine, size_t slot, int64_t first,
                                   int64_t count) {
    const Layer& layer = engine.tensors.layer;
    const int32_t expert = engine.ids[slot];
    const auto* token = engine.x.data() + static_cast<int64_t>(slot) / engine.k * engine.H;
    const double weight = layer.weight_on_input ? engine.weights[slot] : 1.0;
    std::vector<double> out;
    const auto append = [&](moe_role role, moe_role bias, bool has_bias) {
        const auto matrix = engine.tensors.values(role);
        for (int64_t i = first; i < first + count; ++i) {
            double sum = 0;
            for (int64_t c = 0; c < engine.H; ++c)
                sum += static_cast<double>(matrix.at(expert, i, c)) * token[c] * weight;
            out.push_back(sum + (has_bias ? engine.tensors.values(bias).at(expert, 0, i) : 0.0f));
        }
    };
    if (layer.activation.gated) append(MOE_ROLE_GATE, MOE_ROLE_GATE_BIAS, layer.has_gate_bias);
    append(MOE_ROLE_UP, MOE_ROLE_UP_BIAS, layer.has_up_bias);
    return out;
}

Floats all_pre_activations(const Engine& engine) {
    Floats out;
    const Slice& slice = engine.plan->layout.slice;
    for (size_t slot = 0; slot < engine.slots(); ++slot)
        for (const double value :
             pre_activation(engine, slot, slice.intermediate_begin, slice.intermediate_count))
            out.push_back(static_cast<float>(value));
    return out;
}

TEST(Stages, StoppingBeforeTheActivationGivesGateAndUp) {
    auto features = moe_test::sized<moe_slice>();
    features.has_intermediate_range = 1;
    features.intermediate_begin = 16;
    features.intermediate_count = 32;
    for (const moe_layer_desc& desc : {biased_layer(), input_weighted_layer(), ungated_layer()})
        for (const moe_slice* slice :
             {static_cast<const moe_slice*>(nullptr), static_cast<const moe_slice*>(&features)}) {
            Engine engine(desc, {.slice = slice});
            engine.route();
            engine.dispatch(4);
            const int64_t width =
                engine.plan->layout.slice.intermediate_count * (desc.is_gated ? 2 : 1);
            const Floats wanted = all_pre_activations(engine);
            const auto run = [&](moe_in_layout in, moe_out_layout out) {
                auto args = engine.experts_args(in, out);
                args.stop_before_activation = 1;
                return engine.experts(args, width);
            };
            const Floats slots = run(MOE_IN_TOKENS, MOE_OUT_PER_SLOT);
            EXPECT_LT(moe_test::worst_row_error(slots, wanted, static_cast<size_t>(width)), 1e-6);
            EXPECT_EQ(run(MOE_IN_SORTED, MOE_OUT_PER_SLOT), slots);
            for (const auto in : {MOE_IN_TOKENS, MOE_IN_SORTED})
                EXPECT_EQ(engine.by_slot(run(in, MOE_OUT_ROWS), engine.row_ids, width), slots)
                    << "in " << in;
            const Floats batch = run(MOE_IN_BATCHED, MOE_OUT_ROWS);
            EXPECT_EQ(engine.by_slot(batch, engine.batch_slots(), width), slots);
            auto args = engine.experts_args(MOE_IN_TOKENS, MOE_OUT_REDUCED);
            args.stop_before_activation = 1;
            EXPECT_MOE_ERROR(engine.try_experts(args), MOE_ERROR_INVALID_ARGUMENT,
                             "stop_before_activation");
        }
}

}  // namespace
}  // namespace moe
