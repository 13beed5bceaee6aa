// Packed down with act-order: the rows of gate and up, and their biases, lie in its order of
// columns.
#include <gtest/gtest.h>

#include "libmoe/weights/view.hpp"
#include "tests/formats/sources.hpp"
#include "tests/weights/packed_layers.hpp"

namespace moe {
namespace {

using moe_test::Plan;
using test::expect_fails;
using test::LayerTensors;
using test::make_plan;
using test::PackedWeights;

constexpr int32_t hidden = 64, features = 96, n_experts = 3;

moe_layer_desc layer_with_biases() {
    moe_layer_desc desc = test::plain_layer(hidden, features, n_experts, 2);
    desc.has_gate_bias = desc.has_up_bias = 1;
    return desc;
}

// A layer in a format, whose down matrices have act-order, each another one.
struct FoldedLayer {
    explicit FoldedLayer(const char* format, uint64_t seed = 1,
                         moe_gate_up_order fused = MOE_GATE_UP_NONE)
        : down_format(test::int_format(MOE_PACKING_GPTQ, 4, 32, MOE_TYPE_F16,
                                       MOE_ZERO_POINT_PACKED_MINUS_ONE, true)),
          layer(layer_with_biases(), {.everywhere = format, .fused = fused, .seed = seed}) {
        layer.formats[MOE_ROLE_DOWN] = &down_format;
        for (uint64_t e = 0; e < n_experts; ++e)
            sources.push_back(test::random_source(down_format, hidden, features, 70 + e));
        for (size_t e = 0; e < n_experts; ++e) {
            downs.push_back(sources[e].tensor());
            downs.back().role = MOE_ROLE_DOWN;
            downs.back().expert = static_cast<int32_t>(e);
            orders.push_back(test::columns_of(view_of(downs.back(), 0, "down")));
        }
        tensors = test::tensors_without(layer, {MOE_ROLE_DOWN});
        for (const moe_tensor& down : downs) tensors.push_back(&down);
    }

    // Row or entry i of the expert's role on the device is this one of the tensor.
    int64_t row(int64_t expert, int64_t i) const {
        return orders[static_cast<size_t>(expert)][static_cast<size_t>(i)];
    }

    moe_format down_format;
    LayerTensors layer;
    std::vector<test::Source> sources;
    std::vector<moe_tensor> downs;
    std::vector<std::vector<uint32_t>> orders;
    std::vector<const moe_tensor*> tensors;
};

// The rows of one expert's gate or up are those of `from`, in the order of `folded`.
void expect_rows(const PackedWeights& packed, const FoldedLayer& folded, const FoldedLayer& from,
                 moe_role role, int64_t expert) {
    const auto got = packed.values(role, expert);
    const auto source = from.layer.values(role);
    for (int64_t r = 0; r < features; ++r)
        for (int64_t k = 0; k < hidden; ++k)
            ASSERT_TRUE(test::is_close(got[static_cast<size_t>(r * hidden + k)],
                                       source.at(expert, folded.row(expert, r), k)))
                << role_name(role) << " of expert " << expert << ": " << r << ", " << k;
}

void expect_bias(const PackedWeights& packed, const FoldedLayer& folded, const FoldedLayer& from,
                 moe_role role, int64_t expert) {
    const float* bias = packed.handle.device.vectors[role];
    const auto source = from.layer.values(role);
    for (int64_t i = 0; i < features; ++i)
        ASSERT_EQ(bias[expert * features + i], source.at(expert, 0, folded.row(expert, i)))
            << role_name(role) << " of expert " << expert << ": " << i;
}

void expect_down(const PackedWeights& packed, const FoldedLayer& folded, int64_t expert) {
    ASSERT_EQ(packed.handle.device.matrices[MOE_ROLE_DOWN].table, ColumnTable::none);
    const auto got = packed.values(MOE_ROLE_DOWN, expert);
    for (int64_t r = 0; r < hidden; ++r)
        for (int64_t i = 0; i < features; ++i)
            ASSERT_TRUE(test::same_float(
                got[static_cast<size_t>(r * features + i)],
                static_cast<float>(
                    folded.sources[static_cast<size_t>(expert)].value(r, folded.row(expert, i)))))
                << "down of expert " << expert << ": " << r << ", " << i;
}

// Where the rows are of the source's features, for what stops before the activation.
void expect_inverse(const PackedWeights& packed, const FoldedLayer& folded, int64_t expert) {
    const int64_t k = packed.handle.device.matrices[MOE_ROLE_DOWN].k;
    const uint32_t* rows = packed.handle.device.rows_of_features + 2 * expert * k;
    for (uint32_t i = 0; i < features; ++i)
        ASSERT_EQ(rows[folded.row(expert, i)], i) << "expert " << expert;
}

void expect_expert(const PackedWeights& packed, const FoldedLayer& folded, int64_t expert) {
    for (const moe_role role : {MOE_ROLE_GATE, MOE_ROLE_UP})
        ASSERT_NO_FATAL_FAILURE(expect_rows(packed, folded, folded, role, expert));
    for (const moe_role role : {MOE_ROLE_GATE_BIAS, MOE_ROLE_UP_BIAS})
        ASSERT_NO_FATAL_FAILURE(expect_bias(packed, folded, folded, role, expert));
    ASSERT_NO_FATAL_FAILURE(expect_down(packed, folded, expert));
    ASSERT_NO_FATAL_FAILURE(expect_inverse(packed, folded, expert));
}

void expect_all(const PackedWeights& packed, const FoldedLayer& folded) {
    for (int64_t e = 0; e < n_experts; ++e)
        ASSERT_NO_FATAL_FAILURE(expect_expert(packed, folded, e));
}

TEST(FoldedOrder, RowsOfGateAndUpLieAsTheColumnsOfDown) {
    for (const char* format : {"bf16", "f32", "nvfp4", "mxfp4", "kbit3", "q8_0", "q5_1"})
        for (const bool batched : {false, true}) {
            SCOPED_TRACE(format);
            const FoldedLayer folded(format);
            ASSERT_NE(folded.orders[0], folded.orders[1]);
            const Plan plan = make_plan(folded.layer);
            PackedWeights packed(*plan);
            ASSERT_NO_FATAL_FAILURE(packed.load(folded.tensors, batched));
            ASSERT_NO_FATAL_FAILURE(expect_all(packed, folded));
        }
}

TEST(FoldedOrder, TensorsMayComeInAnyOrder) {
    FoldedLayer folded("nvfp4");
    std::reverse(folded.tensors.begin(), folded.tensors.end());
    const Plan plan = make_plan(folded.layer);
    PackedWeights packed(*plan);
    // Packing is tried after each of them, as with a file that is read expert by expert.
    packed.load(LoadRequest{}, false, [&](PackedLoader& loader) {
        for (const moe_tensor* tensor : folded.tensors) {
            loader.add(*tensor);
            loader.pack();
        }
    });
    ASSERT_NO_FATAL_FAILURE(expect_all(packed, folded));
}

TEST(FoldedOrder, GateAndUpMayComeInOneTensor) {
    for (const auto order : {MOE_GATE_UP_GATE_FIRST, MOE_GATE_UP_INTERLEAVED}) {
        const FoldedLayer before("bf16", 1, order), after("bf16", 2, order);
        const Plan plan = make_plan(before.layer);
        PackedWeights packed(*plan);
        ASSERT_NO_FATAL_FAILURE(packed.load(before.tensors));
        ASSERT_NO_FATAL_FAILURE(expect_all(packed, before));
        // The tensors of all experts at once.
        for (const moe_role role : {MOE_ROLE_GATE_UP, MOE_ROLE_GATE_UP_BIAS})
            for (const moe_tensor* tensor : after.tensors) {
                if (tensor->role != role) continue;
                ASSERT_NO_FATAL_FAILURE(packed.update(*tensor));
            }
        ASSERT_NO_FATAL_FAILURE(expect_all(packed, after));
    }
}

// Local experts that are not the first ones.
TEST(FoldedOrder, EveryLocalExpertHasItsOwn) {
    const FoldedLayer folded("nvfp4");
    const std::vector<int32_t> map{-1, 0, 1};
    const moe_slice slice = test::odd_experts(map);
    const Plan plan = make_plan(folded.layer, {.slice = &slice});
    PackedWeights packed(*plan);
    ASSERT_NO_FATAL_FAILURE(packed.load(folded.tensors));
    for (int64_t place = 0; place < 2; ++place) {
        const auto got = packed.values(MOE_ROLE_UP, place);
        const float* bias = packed.handle.device.vectors[MOE_ROLE_UP_BIAS] + place * features;
        for (int64_t r = 0; r < features; ++r) {
            const int64_t row = folded.row(place + 1, r);
            ASSERT_TRUE(test::is_close(got[static_cast<size_t>(r * hidden)],
                                       folded.layer.values(MOE_ROLE_UP).at(place + 1, row, 0)));
            ASSERT_EQ(bias[r], folded.layer.values(MOE_ROLE_UP_BIAS).at(place + 1, 0, row));
        }
    }
}

TEST(FoldedOrder, UpdatesTakeTheOrderThatIsThere) {
    const FoldedLayer before("nvfp4"), after("nvfp4", 2);
    const Plan plan = make_plan(before.layer);
    for (const moe_role role : {MOE_ROLE_GATE, MOE_ROLE_UP, MOE_ROLE_GATE_BIAS, MOE_ROLE_UP_BIAS}) {
        PackedWeights packed(*plan);
        ASSERT_NO_FATAL_FAILURE(packed.load(before.tensors));
        ASSERT_NO_FATAL_FAILURE(packed.update(after.layer.stack(role).single(1)));
        const auto expect = is_matrix_role(role) ? expect_rows : expect_bias;
        for (int64_t e = 0; e < n_experts; ++e)
            ASSERT_NO_FATAL_FAILURE(expect(packed, before, e == 1 ? after : before, role, e));
        ASSERT_NO_FATAL_FAILURE(expect_expert(packed, before, 2));
    }
}

TEST(FoldedOrder, DownIsUpdatedInTheSameOrderAlone) {
    const FoldedLayer folded("bf16");
    const Plan plan = make_plan(folded.layer);
    PackedWeights packed(*plan);
    ASSERT_NO_FATAL_FAILURE(packed.load(folded.tensors));
    moe_tensor other = folded.downs[0];
    other.expert = 1;
    expect_fails([&] { packed.update(other); }, MOE_ERROR_UNSUPPORTED,
                 "down of expert 1: permutation differs from the one by which the rows of gate");
    ASSERT_NO_FATAL_FAILURE(expect_all(packed, folded));
    test::Source again = test::random_source(folded.down_format, hidden, features, 99);
    again.permutation = folded.sources[1].permutation;
    moe_tensor down = again.tensor();
    down.role = MOE_ROLE_DOWN;
    down.expert = 1;
    ASSERT_NO_FATAL_FAILURE(packed.update(down));
    const auto got = packed.values(MOE_ROLE_DOWN, 1);
    for (int64_t i = 0; i < features; ++i)
        ASSERT_TRUE(test::same_float(got[static_cast<size_t>(i)],
                                     static_cast<float>(again.value(0, folded.row(1, i)))));
}

// Stages apart keep the rows of gate and up, and kernels gather by the table of down.
TEST(FoldedOrder, IsNotWhereStagesAreApart) {
    const FoldedLayer folded("bf16");
    const Plan plan = make_plan(folded.layer), same = make_plan(folded.layer);
    plan->layout.keeps_tables_apart = true;
    PackedWeights packed(*plan), by_order(*same);
    EXPECT_NE(packed.handle.layout.id, by_order.handle.layout.id);
    ASSERT_NO_FATAL_FAILURE(packed.load(folded.tensors));
    EXPECT_EQ(packed.handle.device.matrices[MOE_ROLE_DOWN].table, ColumnTable::order);
    EXPECT_EQ(packed.handle.device.rows_of_features, nullptr);
    for (const moe_role role : {MOE_ROLE_GATE, MOE_ROLE_UP})
        for (int64_t e = 0; e < n_experts; ++e)
            ASSERT_NO_FATAL_FAILURE(test::expect_packed_matrix(packed, folded.layer, role, e));
    ASSERT_NO_FATAL_FAILURE(test::expect_packed_vector(packed, folded.layer, MOE_ROLE_GATE_BIAS));
}

}  // namespace
}  // namespace moe
