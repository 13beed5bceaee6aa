// Loading notes what codebooks are like, and kernels are chosen by it.
#include <gtest/gtest.h>

#include "tests/weights/packed_layers.hpp"

namespace moe {
namespace {

using moe_test::Plan;
using test::LayerTensors;
using test::make_plan;
using test::PackedWeights;
using test::rich_layer;

// Kernels take another way where all experts have one codebook, a shared one that follows them
// among these.
TEST(DeviceCodebooks, NotesWhereAllCodebooksAreTheSame) {
    moe_layer_desc desc = rich_layer(64, 96);
    desc.shared_intermediate = 96;
    const LayerTensors layer(desc, {.everywhere = "kbit4"});
    const Plan plan = make_plan(layer);
    ASSERT_TRUE(plan);
    PackedWeights packed(*plan);
    ASSERT_NO_FATAL_FAILURE(packed.load(layer.tensors));
    const DevicePlacement& placement = packed.handle.placement;
    ASSERT_TRUE(placement.shared_follows);
    const auto are_one = [&](moe_role role) {
        read_codebooks(packed.handle, packed.block);
        return packed.handle.device.matrices[role].has_one_codebook;
    };
    EXPECT_TRUE(are_one(MOE_ROLE_GATE));
    EXPECT_TRUE(are_one(MOE_ROLE_DOWN));
    EXPECT_TRUE(are_one(MOE_ROLE_SHARED_DOWN));
    EXPECT_FALSE(are_one(MOE_ROLE_ROUTER));

    const auto change_last = [&](moe_role role) {
        const DevicePlacement::Region& place = placement.matrices[role];
        const float other = 0.25f;
        packed.block.write(place.codebooks + static_cast<uint64_t>(place.n_codebooks) * 256 - 128,
                           &other, sizeof other);
        packed.block.synchronize();  // a write reads its source as late as this
    };
    change_last(MOE_ROLE_GATE);  // of the shared expert
    EXPECT_FALSE(are_one(MOE_ROLE_GATE));
    EXPECT_TRUE(are_one(MOE_ROLE_DOWN));
    EXPECT_TRUE(are_one(MOE_ROLE_SHARED_GATE)) << "one is the same as itself";
}

// ... and quicker ones where that codebook has a form of its own, in gate and up alike.
TEST(DeviceCodebooks, NotesCodebooksThatAreBytesOrMirrored) {
    moe_layer_desc desc = rich_layer(64, 96);
    for (const char* format : {"kbit2", "kbit3", "kbit4", "kbit5", "kbit5_f32"}) {
        SCOPED_TRACE(format);
        const LayerTensors layer(desc, {.everywhere = format});
        const Plan plan = make_plan(layer);
        ASSERT_TRUE(plan);
        PackedWeights packed(*plan);
        ASSERT_NO_FATAL_FAILURE(packed.load(layer.tensors));
        const auto noted = [&](moe_role role) -> const PackedMatrix& {
            read_codebooks(packed.handle, packed.block);
            return packed.handle.device.matrices[role];
        };
        const int32_t bits = code_bits(noted(MOE_ROLE_GATE).type);
        for (const moe_role role : {MOE_ROLE_GATE, MOE_ROLE_DOWN}) {
            EXPECT_EQ(noted(role).byte_codebook.scale != 0.0f, bits <= 3);
            EXPECT_EQ(noted(role).has_mirrored_codebook, bits == 5);
        }
        // Another value of rows 8 to 15, which are up's, in every expert.
        const DevicePlacement::Region& gate = packed.handle.placement.matrices[MOE_ROLE_GATE];
        const float other = 0.25f;
        for (int64_t i = 0; i < gate.n_codebooks; ++i)
            packed.block.write(gate.codebooks + static_cast<uint64_t>(i) * 256 + 128, &other,
                               sizeof other);
        packed.block.synchronize();
        EXPECT_TRUE(noted(MOE_ROLE_GATE).has_one_codebook);
        EXPECT_EQ(noted(MOE_ROLE_GATE).byte_codebook.scale, 0.0f);
        EXPECT_FALSE(noted(MOE_ROLE_GATE).has_mirrored_codebook);
        EXPECT_EQ(noted(MOE_ROLE_DOWN).byte_codebook.scale != 0.0f, bits <= 3);
    }
}

}  // namespace
}  // namespace moe
