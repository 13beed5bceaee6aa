// Loading packed weights, with host memory in the place of a device's: whatever form the tensors
// come in, every expert unpacks to the source's values, and every vector and map is there.
#include <gtest/gtest.h>

#include <algorithm>

#include "libmoe/base/checked.hpp"
#include "tests/formats/sources.hpp"
#include "tests/weights/packed_layers.hpp"

namespace moe {
namespace {

using moe_test::Plan;
using moe_test::sized;
using test::expect_fails;
using test::expect_packed;
using test::LayerChoices;
using test::LayerTensors;
using test::make_plan;
using test::odd_experts;
using test::PackedWeights;
using test::padded_and_by_table;
using test::plain_layer;
using test::PlanChoices;
using test::rich_layer;
using test::singles_of;
using test::small_layer;
using test::three_rich_experts;

void expect_loads_packed(const LayerTensors& layer, const PlanChoices& choices = {}) {
    const Plan plan = make_plan(layer, choices);
    ASSERT_TRUE(plan);
    for (const bool batched : {true, false}) {
        PackedWeights packed(*plan);
        ASSERT_NO_FATAL_FAILURE(packed.load(layer.tensors, batched));
        ASSERT_NO_FATAL_FAILURE(expect_packed(packed, layer));
    }
}

TEST(DeviceLoad, StacksInEveryFormat) {
    for (const FormatTraits* format : test::packed_formats()) {
        const FormatTraits& traits = *format;
        SCOPED_TRACE(traits.name);
        const LayerChoices choices = padded_and_by_table(traits.name);
        ASSERT_NO_FATAL_FAILURE(expect_loads_packed(LayerTensors(three_rich_experts(), choices)));
    }
}

TEST(DeviceLoad, ExpertByExpertInAnyOrder) {
    const LayerTensors layer(rich_layer(), {.everywhere = "nvfp4"});
    const std::vector<moe_tensor> singles = singles_of(layer);
    std::vector<const moe_tensor*> tensors;
    for (const moe_tensor& tensor : singles) tensors.push_back(&tensor);
    std::rotate(tensors.begin(), tensors.begin() + 7, tensors.end());
    const Plan plan = make_plan(layer);
    PackedWeights packed(*plan);
    ASSERT_NO_FATAL_FAILURE(packed.load(tensors));
    expect_packed(packed, layer);
}

TEST(DeviceLoad, FusedInEveryOrderAndOrientation) {
    for (const auto order : {MOE_GATE_UP_GATE_FIRST, MOE_GATE_UP_UP_FIRST, MOE_GATE_UP_INTERLEAVED})
        for (const char* format :
             {"bf16", "f32", "mxfp4", "nvfp4", "q8_0", "q4_k", "kbit4", "fp8_128x128",
              "fp8_per_tensor", "fp8_per_32_columns", "int8_per_tensor", "int8_per_64_columns"})
            for (const bool transposed : {false, true}) {
                const FormatTraits& traits = test::format_named(format);
                if (transposed && !is_plain(traits.format)) continue;
                if (order == MOE_GATE_UP_INTERLEAVED && traits.format.group_rows > 1) continue;
                SCOPED_TRACE(std::string(format) + " order " + std::to_string(order));
                LayerChoices choices{.everywhere = format, .fused = order};
                choices.placings[MOE_ROLE_GATE_UP] = {.expert_padding = 32,
                                                      .transposed = transposed};
                choices.placings[MOE_ROLE_SHARED_GATE_UP] = {.transposed = transposed};
                ASSERT_NO_FATAL_FAILURE(
                    expect_loads_packed(LayerTensors(three_rich_experts(), choices)));
            }
}

// Gate and up of one type share their tiles, others do not; the router may be quantised.
TEST(DeviceLoad, EachMatrixMayHaveItsOwnFormat) {
    LayerChoices choices{.everywhere = "bf16"};
    choices.formats = {{MOE_ROLE_GATE, "f16"},
                       {MOE_ROLE_UP, "f32"},
                       {MOE_ROLE_ROUTER, "f32"},
                       {MOE_ROLE_DOWN_BIAS, "f16"},
                       {MOE_ROLE_ROUTER_NORM, "bf16"}};
    ASSERT_NO_FATAL_FAILURE(expect_loads_packed(LayerTensors(rich_layer(), choices)));
    choices.formats = {{MOE_ROLE_GATE, "kbit3"},
                       {MOE_ROLE_UP, "fp8_128x128"},
                       {MOE_ROLE_DOWN, "q4_k"},
                       {MOE_ROLE_ROUTER, "q8_0"},
                       {MOE_ROLE_SHARED_DOWN, "mxfp4"}};
    ASSERT_NO_FATAL_FAILURE(expect_loads_packed(LayerTensors(rich_layer(), choices)));
}

TEST(DeviceLoad, LayersWithoutGateAndWithALatent) {
    moe_layer_desc desc = plain_layer(64, 80, 3, 2);
    desc.is_gated = 0;
    desc.activation = MOE_ACTIVATION_GELU_TANH;
    ASSERT_NO_FATAL_FAILURE(expect_loads_packed(LayerTensors(desc, {.everywhere = "bf16"})));
    desc = plain_layer(64, 48, 4, 2);
    desc.latent = 32;
    desc.has_latent_norm = 1;
    desc.latent_norm_eps = 1e-5f;
    ASSERT_NO_FATAL_FAILURE(expect_loads_packed(LayerTensors(desc, {.everywhere = "f16"})));
}

TEST(DeviceLoad, SlicesOfExperts) {
    auto range = sized<moe_slice>();
    range.has_expert_range = 1;
    range.expert_begin = 2;
    range.expert_count = 2;
    const std::vector<int32_t> odd{-1, 0, -1, 1, -1}, turned{1, -1, 2, -1, 0};
    const moe_slice by_map = odd_experts(odd), by_turned_map = odd_experts(turned);
    for (const moe_slice* slice :
         std::initializer_list<const moe_slice*>{&range, &by_map, &by_turned_map})
        for (const auto order : {MOE_GATE_UP_NONE, MOE_GATE_UP_INTERLEAVED})
            for (const char* format : {"bf16", "mxfp4"}) {
                const LayerTensors layer(small_layer(), {.everywhere = format, .fused = order});
                ASSERT_NO_FATAL_FAILURE(expect_loads_packed(layer, {.slice = slice}));
            }
}

TEST(DeviceLoad, SlicesOfFeaturesInEveryFormat) {
    for (const FormatTraits* format : test::packed_formats()) {
        const FormatTraits& traits = *format;
        SCOPED_TRACE(traits.name);
        const int32_t step = std::max(32, traits.block_columns);
        auto slice = sized<moe_slice>();
        slice.has_intermediate_range = 1;
        slice.intermediate_begin = step;
        slice.intermediate_count = step == 32 ? 48 : 512 - step;
        if (traits.block_columns == 32) slice.intermediate_count = 96;
        for (const auto order : {MOE_GATE_UP_NONE, MOE_GATE_UP_UP_FIRST}) {
            const LayerTensors layer(three_rich_experts(),
                                     {.everywhere = traits.name, .fused = order});
            ASSERT_NO_FATAL_FAILURE(expect_loads_packed(layer, {.slice = &slice}));
        }
    }
}

TEST(DeviceLoad, StagesTakeTheirTensorsOnly) {
    const LayerTensors layer(rich_layer(), {.everywhere = "bf16"});
    for (const uint32_t stages : {1u, 4u, 16u, 5u, 20u}) {
        SCOPED_TRACE(stages);
        ASSERT_NO_FATAL_FAILURE(expect_loads_packed(layer, {.stages = stages}));
    }
}

TEST(DeviceLoad, TensorsInDeviceMemoryAreFetched) {
    for (const auto order : {MOE_GATE_UP_NONE, MOE_GATE_UP_INTERLEAVED})
        for (const char* format : {"bf16", "nvfp4"}) {
            const LayerTensors layer(rich_layer(), {.everywhere = format, .fused = order});
            std::vector<moe_tensor> copies;
            for (const moe_tensor* tensor : layer.tensors) copies.push_back(*tensor);
            std::vector<const moe_tensor*> tensors;
            for (moe_tensor& tensor : copies) {
                tensor.space = MOE_SPACE_DEVICE;
                tensors.push_back(&tensor);
            }
            const Plan plan = make_plan(layer);
            PackedWeights packed(*plan);
            ASSERT_NO_FATAL_FAILURE(packed.load(tensors));
            EXPECT_GT(packed.block.n_fetches, 0);
            ASSERT_NO_FATAL_FAILURE(expect_packed(packed, layer));
        }
}

// Reading a buffer of an unsliceable format in device memory directly would give wrong values.
TEST(DeviceLoad, EveryBufferInDeviceMemoryIsFetched) {
    for (const moe_format& format :
         {test::int_format(MOE_PACKING_GPTQ, 4, 128, MOE_TYPE_F16, MOE_ZERO_POINT_PACKED_MINUS_ONE),
          test::int_format(MOE_PACKING_AWQ, 4, 64, MOE_TYPE_F16, MOE_ZERO_POINT_PACKED),
          test::int_format(MOE_PACKING_BIT_STREAM, 3, 64, MOE_TYPE_BF16, MOE_ZERO_POINT_FLOAT),
          test::bnb_format(MOE_CODEBOOK_BNB_NF4, 64, true)}) {
        LayerTensors layer(plain_layer(256, 512, 3, 2), {.everywhere = "bf16"});
        const test::Source source = test::random_source(format, 256, 512);
        layer.formats[MOE_ROLE_DOWN] = &source.format;
        test::Source there = source;
        for (auto* bytes : {&there.data, &there.scales, &there.zero_points})
            for (std::byte& byte : *bytes) byte ^= std::byte{0xFF};
        std::vector<moe_tensor> downs(3, there.tensor());
        auto tensors = test::tensors_without(layer, {MOE_ROLE_DOWN});
        for (int32_t e = 0; e < 3; ++e) {
            downs[static_cast<size_t>(e)].expert = e;
            downs[static_cast<size_t>(e)].space = MOE_SPACE_DEVICE;
            tensors.push_back(&downs[static_cast<size_t>(e)]);
        }
        const Plan plan = make_plan(layer);
        PackedWeights packed(*plan);
        packed.block.fetches_as = std::byte{0xFF};
        ASSERT_NO_FATAL_FAILURE(packed.load(tensors));
        const auto values = packed.values(MOE_ROLE_DOWN, 2);
        for (int64_t i = 0; i < 256 * 512; ++i)
            ASSERT_TRUE(test::same_float(values[static_cast<size_t>(i)],
                                         static_cast<float>(source.value(i / 512, i % 512))))
                << format_name(format).text << ' ' << i;
    }
}

TEST(DeviceLoad, MissingAndDoubleTensorsAreNamed) {
    const LayerTensors layer(rich_layer(), {.everywhere = "bf16"});
    const Plan plan = make_plan(layer);
    for (size_t i = 0; i < layer.tensors.size(); ++i) {
        PackedWeights packed(*plan);
        auto tensors = layer.tensors;
        const std::string name = role_name(tensors[i]->role);
        tensors.push_back(tensors[i]);
        expect_fails([&] { packed.load(tensors); }, MOE_ERROR_INVALID_ARGUMENT, name);
        tensors.pop_back();
        tensors.erase(tensors.begin() + static_cast<int64_t>(i));
        expect_fails([&] { packed.load(tensors); }, MOE_ERROR_NOT_FOUND, "tensor " + name);
    }
}

// The thread that packs cannot throw; the caller is told all the same.
TEST(DeviceLoad, ASourceThatCannotBePackedIsNamed) {
    LayerTensors layer(plain_layer(64, 64, 4, 2), {.everywhere = "mxfp4"});
    const moe_tensor& down = layer.stack(MOE_ROLE_DOWN).tensor;
    auto* scales = const_cast<uint8_t*>(static_cast<const uint8_t*>(down.scales));
    scales[down.scale_bytes / 4 * 2 + 5] = 0xFF;  // NaN
    const Plan plan = make_plan(layer);
    PackedWeights packed(*plan);
    expect_fails([&] { packed.load(layer.tensors); }, MOE_ERROR_UNSUPPORTED,
                 "tensor down of expert 2");
}

struct Told {
    std::vector<uint64_t> done;
    uint64_t total = 0;
    size_t stop_after = SIZE_MAX;
};

TEST(DeviceLoad, ProgressEndsAtTheTotalAndMayCancel) {
    const LayerTensors layer(rich_layer(), {.everywhere = "bf16"});
    const Plan plan = make_plan(layer);
    Told told;
    LoadRequest request;
    request.progress_user_data = &told;
    request.progress = [](uint64_t done, uint64_t total, void* user_data) -> int32_t {
        auto& told = *static_cast<Told*>(user_data);
        told.done.push_back(done);
        told.total = total;
        return told.done.size() >= told.stop_after;
    };
    const auto feed = [&](PackedLoader& loader) {
        for (const moe_tensor* tensor : layer.tensors) loader.add(*tensor);
        loader.pack();
    };
    PackedWeights packed(*plan);
    packed.load(request, false, feed);
    EXPECT_EQ(told.total, packed.handle.layout.copy_bytes());
    EXPECT_EQ(told.done.back(), told.total);
    EXPECT_TRUE(std::is_sorted(told.done.begin(), told.done.end()));
    told = {{}, 0, 3};
    expect_fails([&] { packed.load(request, false, feed); }, MOE_ERROR_CANCELLED, "cancelled");
    EXPECT_EQ(told.done.size(), 3u);
}

TEST(DeviceLoad, MemoryReport) {
    const LayerTensors layer(rich_layer(), {.everywhere = "bf16"});
    const Plan plan = make_plan(layer);
    PackedWeights packed(*plan);
    packed.load(layer.tensors);
    const moe_memory_report report = packed.handle.memory_report();
    EXPECT_EQ(report.device_bytes, packed.handle.layout.copy_bytes());
    EXPECT_EQ(report.borrowed_bytes + report.pinned_bytes, 0u);
    EXPECT_EQ(report.role_bytes[MOE_ROLE_GATE], 5u * 512 * 256 * 2);
    EXPECT_EQ(report.role_bytes[MOE_ROLE_UP], 5u * 512 * 256 * 2);
    EXPECT_EQ(report.role_bytes[MOE_ROLE_DOWN], 5u * 512 * 256 * 2);
    EXPECT_EQ(report.role_bytes[MOE_ROLE_ROUTER], align_up(5u * 256 * 2, 128));
    EXPECT_EQ(report.role_bytes[MOE_ROLE_UP_BIAS], 5u * 512 * 4);
    uint64_t vectors = 0, sum = 0;
    for (int i = 0; i < MOE_ROLE_COUNT; ++i) {
        sum += report.role_bytes[i];
        if (!is_matrix_role(static_cast<moe_role>(i))) vectors += report.role_bytes[i];
    }
    EXPECT_EQ(report.host_bytes, vectors) << "vectors are kept for updates";
    EXPECT_LE(sum, report.device_bytes);
    EXPECT_GT(sum, report.device_bytes - 8192) << "what has no role is small";
}

}  // namespace
}  // namespace moe
