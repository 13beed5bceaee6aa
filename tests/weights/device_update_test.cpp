// Updates of packed weights: the tensor that is given takes the place of the old one, and nothing
// else changes.
#include <gtest/gtest.h>

#include "tests/weights/packed_layers.hpp"

namespace moe {
namespace {

using moe_test::Plan;
using test::expect_fails;
using test::expect_packed_matrix;
using test::expect_packed_vector;
using test::LayerChoices;
using test::LayerTensors;
using test::make_plan;
using test::odd_experts;
using test::PackedWeights;
using test::rich_layer;
using test::small_layer;

// Every role and expert in turn is replaced alone, and nothing else changes.
void expect_updates(const LayerTensors& before, const LayerTensors& after) {
    const Plan plan = make_plan(before);
    for (const moe_tensor* tensor : after.tensors) {
        PackedWeights packed(*plan);
        ASSERT_NO_FATAL_FAILURE(packed.load(before.tensors));
        const bool expert_role = is_expert_role(tensor->role);
        const moe_tensor one = expert_role ? after.stack(tensor->role).single(3) : *tensor;
        ASSERT_NO_FATAL_FAILURE(packed.update(one));
        const auto [first, second] = parts_of(tensor->role);
        for (int i = 1; i < MOE_ROLE_COUNT; ++i) {
            const auto role = static_cast<moe_role>(i);
            if (role == MOE_ROLE_HASH_TABLE || !packed.handle.layout.needs(role)) continue;
            const bool touched = role == first || role == second;
            if (!is_matrix_role(role)) {
                if (touched && expert_role) continue;
                ASSERT_NO_FATAL_FAILURE(
                    expect_packed_vector(packed, touched ? after : before, role));
                continue;
            }
            for (int64_t place = 0; place < packed.handle.layout.count(role); ++place) {
                const bool is_new = touched && (!expert_role || place == 3);
                SCOPED_TRACE(std::string("update of ") + role_name(tensor->role));
                ASSERT_NO_FATAL_FAILURE(
                    expect_packed_matrix(packed, is_new ? after : before, role, place));
            }
        }
    }
}

TEST(DeviceUpdate, OfOneExpertAndOfOneHalf) {
    for (const char* format : {"bf16", "nvfp4", "mxfp4", "kbit3", "q8_0", "q4_k", "fp8_128x128"})
        for (const auto order : {MOE_GATE_UP_NONE, MOE_GATE_UP_GATE_FIRST}) {
            SCOPED_TRACE(format);
            const bool blocks = test::format_named(format).block_columns == 256;
            const moe_layer_desc desc = blocks ? rich_layer(256, 256) : small_layer();
            const LayerChoices old{.everywhere = format, .fused = order, .seed = 1};
            const LayerChoices fresh{.everywhere = format, .fused = order, .seed = 2};
            ASSERT_NO_FATAL_FAILURE(
                expect_updates(LayerTensors(desc, old), LayerTensors(desc, fresh)));
        }
}

TEST(DeviceUpdate, OfOneVectorOfAnExpert) {
    const LayerTensors before(rich_layer(), {.everywhere = "bf16", .seed = 1});
    const LayerTensors after(rich_layer(), {.everywhere = "bf16", .seed = 2});
    const Plan plan = make_plan(before);
    PackedWeights packed(*plan);
    packed.load(before.tensors);
    packed.update(after.stack(MOE_ROLE_UP_BIAS).single(3));
    const float* bias = packed.handle.device.vectors[MOE_ROLE_UP_BIAS];
    for (int64_t e = 0; e < 5; ++e)
        for (int64_t i = 0; i < 512; ++i)
            ASSERT_EQ(bias[e * 512 + i],
                      (e == 3 ? after : before).values(MOE_ROLE_UP_BIAS).at(e, 0, i));
}

TEST(DeviceUpdate, OfWhatIsNotHeldAreRefused) {
    const LayerTensors layer(rich_layer(), {.everywhere = "bf16"});
    const std::vector<int32_t> odd{-1, 0, -1, 1, -1};
    const moe_slice slice = odd_experts(odd);
    const Plan plan = make_plan(layer, {.slice = &slice});
    PackedWeights packed(*plan);
    packed.load(layer.tensors);
    expect_fails([&] { packed.update(layer.stack(MOE_ROLE_UP).single(2)); }, MOE_ERROR_NOT_FOUND,
                 "tensor up of expert 2");
    ASSERT_NO_FATAL_FAILURE(packed.update(layer.stack(MOE_ROLE_UP).single(3)));
}

}  // namespace
}  // namespace moe
