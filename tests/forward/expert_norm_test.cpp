// The norm of every expert's output and the one after LATENT_IN (Muse-Spark), beyond what the whole
// layer tells: the rows of slots, equal bits by any number of threads, what a weight that comes
// first changes, zeros, and the refusals of a plan.
#include <gtest/gtest.h>

#include "tests/support/layer_case.hpp"

namespace moe_test {
namespace {

constexpr int64_t H = 64, L = 32, E = 12, K = 4;

moe_layer_desc muse_spark(int32_t weight_first) {
    moe_layer_desc desc = plain_layer(H, 48, E, K);
    desc.has_router_input_scale = desc.has_selection_bias = desc.has_routed_scale = 1;
    desc.router_input_scale = 0.1768f;
    desc.score = MOE_SCORE_SIGMOID;
    desc.renormalize_eps = 1e-15f;
    desc.routed_scale = 2.5f;
    desc.latent = L;
    desc.has_latent_in_norm = desc.has_expert_norm = 1;
    desc.latent_in_norm_eps = desc.expert_norm_eps = 1e-5f;
    desc.expert_norm_weight_first = weight_first;
    return desc;
}

clients::RoutingResult routing_of(const LayerCase& layer, const Floats& x, int64_t n_tokens) {
    return clients::reference_route(layer.layer, x, n_tokens);
}

// The rows of slots, [T K, L], by a partial plan.
Floats slot_rows(const LayerCase& layer, const Floats& x, int64_t n_tokens,
                 const clients::RoutingResult& routing, moe_runtime* runtime = nullptr) {
    auto desc = layer.plan_desc(n_tokens);
    desc.partial = 1;
    const LayerRun run(layer, desc, runtime);
    const Floats weights(routing.weights.begin(), routing.weights.end());
    Floats out = clients::poisoned(n_tokens * K * L);
    forward(run, x, [&](auto& args) {
        args.routing = MOE_ROUTING_IDS_AND_WEIGHTS;
        args.ids = routing.ids.data();
        args.weights = weights.data();
        args.out = out.data();
        args.out_layout = MOE_OUT_PER_SLOT;
    });
    return out;
}

TEST(ExpertNorm, RowsOfSlotsHaveIt) {
    for (const int32_t weight_first : {0, 1})
        for (const int64_t T : {1, 6, 40}) {
            const LayerCase layer(muse_spark(weight_first));
            const Floats x = layer.x(T);
            const auto routing = routing_of(layer, x, T);
            clients::Doubles wanted;
            for (int64_t slot = 0; slot < T * K; ++slot) {
                const auto v = clients::expert_input(layer.layer, &x[slot / K * H]);
                const auto y = clients::reference_expert(layer.layer, routing.ids[slot], v.data());
                wanted.insert(wanted.end(), y.begin(), y.end());
            }
            const Floats rows = slot_rows(layer, x, T, routing);
            EXPECT_LE(error_of(rows, wanted, L), f32_tolerance) << weight_first << " " << T;
            EXPECT_FALSE(error_of(Floats(rows.size()), wanted, L) < 0.5) << "zero would pass too";
        }
}

// A row whose weight comes first has a mean square of one but for eps.
TEST(ExpertNorm, TheWeightComesFirstOrAfter) {
    constexpr int64_t T = 3;
    for (const int32_t weight_first : {0, 1}) {
        const LayerCase layer(muse_spark(weight_first));
        const Floats x = layer.x(T);
        const Floats rows = slot_rows(layer, x, T, routing_of(layer, x, T));
        const float* weight = layer.layer.values[MOE_ROLE_EXPERT_NORM].data();
        for (int64_t r = 0; r < T * K; ++r) {
            double sum = 0;
            for (int64_t l = 0; l < L; ++l) {
                const double value = rows[r * L + l] / (weight_first ? 1.0 : weight[l]);
                sum += value * value;
            }
            EXPECT_NEAR(sum / L, 1.0, 1e-2) << weight_first << " " << r;
        }
    }
    const LayerCase first(muse_spark(1)), after(muse_spark(0));
    const Floats x = first.x(T);
    const LayerRun run(first, first.plan_desc(T));
    EXPECT_GT(error_of(forward(run, x), after.reference(x), H), 1e-3);
}

TEST(ExpertNorm, AnyNumberOfThreadsGivesTheSameBits) {
    for (const char* format : {"f32", "bf16", "q8_0"})
        for (const int32_t weight_first : {0, 1}) {
            moe_layer_desc desc = muse_spark(weight_first);
            desc.intermediate = 64;
            const LayerCase layer(desc, format);
            const Runtime one = make_runtime(1), four = make_runtime(4);
            for (const int64_t T : {1, 5, 17, 70}) {
                const Floats x = layer.x(T);
                const LayerRun by_one(layer, layer.plan_desc(T), one.get());
                const LayerRun by_four(layer, layer.plan_desc(T), four.get());
                EXPECT_TRUE(same_bits(forward(by_one, x), forward(by_four, x)))
                    << format << " " << T;
                const auto routing = routing_of(layer, x, T);
                EXPECT_TRUE(same_bits(slot_rows(layer, x, T, routing, one.get()),
                                      slot_rows(layer, x, T, routing, four.get())))
                    << format << " " << T;
            }
        }
}

// Experts that give zeros, and no eps that keeps the norm from dividing by them.
TEST(ExpertNorm, ZerosStayZerosWithoutEps) {
    moe_layer_desc desc = plain_layer(H, 48, E, K);
    desc.has_expert_norm = 1;
    const LayerCase layer(desc);
    const LayerRun run(layer, layer.plan_desc(2));
    EXPECT_EQ(forward(run, Floats(2 * H, 0.0f)), Floats(2 * H, 0.0f));
}

// Slices of experts add up to the layer; a part of the intermediate is refused.
TEST(ExpertNorm, SlicesOfExpertsAlone) {
    constexpr int64_t T = 5;
    const LayerCase layer(muse_spark(1));
    const Floats x = layer.x(T);
    const auto routing = routing_of(layer, x, T);
    const Floats weights(routing.weights.begin(), routing.weights.end());
    clients::Doubles sum(T * L);
    for (const int32_t begin : {0, 5}) {
        auto slice = sized<moe_slice>();
        slice.has_expert_range = 1;
        slice.expert_begin = begin;
        slice.expert_count = begin ? 7 : 5;
        auto desc = layer.plan_desc(T);
        desc.partial = 1;
        desc.slice = &slice;
        const LayerRun run(layer, desc);
        Floats out = clients::poisoned(T * L);
        forward(run, x, [&](auto& args) {
            args.routing = MOE_ROUTING_IDS_AND_WEIGHTS;
            args.ids = routing.ids.data();
            args.weights = weights.data();
            args.out = out.data();
        });
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += out[i];
    }
    const auto wanted = clients::reference_routed(layer.layer, x, T, routing);
    EXPECT_LE(error_of(Floats(sum.begin(), sum.end()), wanted, L), f32_tolerance);

    auto slice = sized<moe_slice>();
    slice.has_intermediate_range = 1;
    slice.intermediate_count = 16;
    auto desc = layer.plan_desc(T);
    desc.partial = 1;
    desc.slice = &slice;
    moe_plan* plan = nullptr;
    EXPECT_MOE_ERROR(moe_plan_create(nullptr, &desc, &plan), MOE_ERROR_INVALID_ARGUMENT,
                     "intermediate_count is 16 of 48, but has_expert_norm is 1");
}

// Weights that lack one of the vectors are refused by its name.
TEST(ExpertNorm, ItsVectorsAreRequired) {
    const LayerCase layer(muse_spark(1));
    const Plan plan = make_plan(nullptr, layer.plan_desc(1));
    for (const moe_role role : {MOE_ROLE_LATENT_IN_NORM, MOE_ROLE_EXPERT_NORM}) {
        TensorList tensors(layer.tensors.weights_desc());
        tensors.remove(role);
        const moe_weights_desc desc = tensors.desc();
        moe_weights* weights = nullptr;
        EXPECT_MOE_ERROR(moe_weights_load(plan.get(), &desc, &weights), MOE_ERROR_NOT_FOUND,
                         moe_role_name(role));
    }
}

}  // namespace
}  // namespace moe_test
