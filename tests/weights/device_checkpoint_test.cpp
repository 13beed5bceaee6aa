// Packed weights from checkpoints: read expert by expert they are, byte for byte, what they are
// from the mapping, and that is what the files hold.
#include <gtest/gtest.h>

#include "libmoe/weights/view.hpp"
#include "tests/checkpoint/models.hpp"
#include "tests/weights/host_block.hpp"

namespace moe {
namespace {

using moe_test::Plan;
using moe_test::sized;
using test::Folder;
using test::Model;
using test::PackedWeights;

Plan plan_of(const test::Handle& checkpoint, int32_t layer, const moe_slice* slice) {
    auto desc = sized<moe_plan_desc>();
    desc.device = MOE_DEVICE_CPU;
    desc.checkpoint = checkpoint.get();
    desc.checkpoint_layer = layer;
    desc.x_type = MOE_TYPE_BF16;
    desc.max_tokens = 4;
    desc.slice = slice;
    desc.partial = slice != nullptr;
    moe_plan* plan = nullptr;
    EXPECT_MOE_OK(moe_plan_create(nullptr, &desc, &plan));
    return Plan(plan);
}

void load_packed(PackedWeights& packed, const test::Handle& checkpoint, int32_t layer) {
    packed.load(LoadRequest{}, true, [&](PackedLoader& loader) {
        pack_checkpoint_layer(loader, *checkpoint, layer, packed.handle);
    });
}

// The down matrix of a global expert as its tensor has it.
std::vector<float> down_of(const test::Handle& mapped, int32_t layer, int32_t expert) {
    for (const LayerTensor& one : mapped->tensors(layer)) {
        const bool stack = one.tensor.expert == MOE_ALL_EXPERTS;
        if (one.tensor.role != MOE_ROLE_DOWN || (!stack && one.tensor.expert != expert)) continue;
        const Matrix matrix = view_of(one.tensor, stack ? expert : 0, "down");
        return test::decode_all(matrix, *matrix.traits);
    }
    return {};
}

void expect_alike(const Model& model, int32_t layer, const moe_slice* slice = nullptr) {
    const Folder folder;
    const test::Handle mapped = test::open_model(folder, model);
    moe_checkpoint_options options{};
    options.io = MOE_IO_READ;
    const test::Handle read = test::open_path(folder.path(), options);
    const Plan plan = plan_of(mapped, layer, slice);
    ASSERT_TRUE(plan);
    PackedWeights a(*plan), b(*plan);
    ASSERT_NO_FATAL_FAILURE(load_packed(a, mapped, layer));
    ASSERT_NO_FATAL_FAILURE(load_packed(b, read, layer));
    EXPECT_EQ(std::memcmp(a.block.base(), b.block.base(), a.handle.placement.bytes), 0);
    EXPECT_GT(b.block.n_writes, a.block.n_writes) << "one expert at a time";
    for (int32_t place = 0; place < a.handle.layout.slice.n_local; ++place) {
        const int32_t expert = a.handle.layout.slice.global_of[static_cast<size_t>(place)];
        const auto got = a.values(MOE_ROLE_DOWN, place), wanted = down_of(mapped, layer, expert);
        ASSERT_EQ(got.size(), wanted.size());
        for (size_t i = 0; i < got.size(); ++i)
            ASSERT_TRUE(test::same_float(got[i], wanted[i]) ||
                        std::abs(got[i] - wanted[i]) <= std::abs(wanted[i]) * 0x1p-22f)
                << "expert " << expert << " [" << i << "]";
    }
}

Model gpt_oss_mxfp4() {
    Model model = test::gpt_oss(true);
    for (auto& [name, tensor] : model.tensors)
        if (name.ends_with("_scales"))
            for (char& byte : tensor.bytes) byte = static_cast<char>(112 + (byte & 15));
    return model;
}

TEST(DeviceCheckpoint, MappedAndReadAreAlike) {
    ASSERT_NO_FATAL_FAILURE(expect_alike(test::mixtral(), 0));
    ASSERT_NO_FATAL_FAILURE(expect_alike(test::deepseek("deepseek_v2", "", false), 1));
    ASSERT_NO_FATAL_FAILURE(expect_alike(test::gpt_oss(false), 0));
    ASSERT_NO_FATAL_FAILURE(expect_alike(gpt_oss_mxfp4(), 0));
}

TEST(DeviceCheckpoint, OnlyTheExpertsOfTheSlice) {
    auto slice = sized<moe_slice>();
    slice.has_expert_range = 1;
    slice.expert_begin = 1;
    slice.expert_count = 2;
    ASSERT_NO_FATAL_FAILURE(expect_alike(test::mixtral(), 0, &slice));
    ASSERT_NO_FATAL_FAILURE(expect_alike(gpt_oss_mxfp4(), 0, &slice));
}

}  // namespace
}  // namespace moe
