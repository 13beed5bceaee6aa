// The arithmetic of a block of packed weights: nothing overlaps, everything is aligned, the sizes
// are what the formats promise, and ids tell layouts apart.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/packed/packing.hpp"
#include "tests/weights/host_block.hpp"
#include "tests/weights/layers.hpp"

namespace moe {
namespace {

using moe_test::Plan;
using moe_test::sized;
using test::LayerChoices;
using test::LayerTensors;
using test::make_plan;
using test::packed_layout;
using test::plain_layer;
using test::PlanChoices;
using test::rich_layer;

struct ByteRange {
    uint64_t begin, bytes;
};

// Everything that a placement places.
std::vector<ByteRange> ranges_of(const WeightsLayout& layout, const DevicePlacement& placement) {
    std::vector<ByteRange> ranges;
    for (const auto& place : placement.matrices) {
        const auto count = static_cast<uint64_t>(place.count);
        if (place.type == PackedType::none) continue;
        for (uint64_t e = 0; e < count; ++e)
            ranges.push_back(
                {place.offset + e * place.expert_stride,
                 static_cast<uint64_t>(place.n_tiles * tile_bytes(place.type, place.k))});
        if (place.globals) ranges.push_back({place.globals, count * 8});
        if (place.codebooks) ranges.push_back({place.codebooks, count * 256});
        if (place.columns)
            ranges.push_back({place.columns, count * 8 * static_cast<uint64_t>(place.k)});
    }
    if (placement.router_type != MOE_TYPE_NONE)
        ranges.push_back({placement.router, placement.router_bytes});
    for (int i = 1; i < MOE_ROLE_COUNT; ++i) {
        const auto role = static_cast<moe_role>(i);
        if (is_matrix_role(role) || role == MOE_ROLE_HASH_TABLE || !layout.needs(role)) continue;
        ranges.push_back(
            {placement.vectors[i], static_cast<uint64_t>(layout.count(role)) * 4 *
                                       static_cast<uint64_t>(layout.part(role).columns)});
    }
    return ranges;
}

void expect_apart(const WeightsLayout& layout) {
    const DevicePlacement placement = lay_out_on_device(layout);
    auto ranges = ranges_of(layout, placement);
    std::sort(ranges.begin(), ranges.end(),
              [](const ByteRange& a, const ByteRange& b) { return a.begin < b.begin; });
    uint64_t end = 0;
    for (const ByteRange& range : ranges) {
        EXPECT_TRUE(range.begin % 128 == 0 || range.begin == end) << "the shared expert's tables";
        EXPECT_GE(range.begin, end);
        EXPECT_LT(range.begin - end, 128u) << "bytes that are nobody's";
        EXPECT_GT(range.bytes, 0u);
        end = range.begin + range.bytes;
    }
    EXPECT_LE(end, placement.bytes);
    EXPECT_LT(placement.bytes - end, 128u);
    EXPECT_EQ(layout.copy_bytes(), placement.bytes);
}

TEST(DevicePlacement, NothingOverlapsInAnyFormat) {
    for (const FormatTraits* format : test::packed_formats())
        for (const bool gated : {true, false}) {
            const FormatTraits& traits = *format;
            SCOPED_TRACE(traits.name);
            moe_layer_desc desc = rich_layer(256, 256);
            desc.is_gated = gated;
            desc.has_gate_bias = gated;
            if (!gated) desc.activation = MOE_ACTIVATION_RELU2;
            const LayerTensors layer(desc, {.everywhere = traits.name});
            const Plan plan = make_plan(layer);
            ASSERT_TRUE(plan);
            const WeightsLayout layout = packed_layout(*plan);
            expect_apart(layout);
            const DevicePlacement placement = lay_out_on_device(layout);
            EXPECT_EQ(placement.is_gate_up_fused, gated);
            EXPECT_TRUE(placement.is_shared_gate_up_fused);
            const auto& tiles = placement.matrices[gated ? MOE_ROLE_GATE : MOE_ROLE_UP];
            EXPECT_EQ(tiles.n_tiles, gated ? 32 : 16);
            EXPECT_EQ(tiles.k, 256);
            EXPECT_EQ(placement.matrices[MOE_ROLE_DOWN].n_tiles, 16);
            EXPECT_EQ(placement.matrices[MOE_ROLE_SHARED_GATE].count, 1);
        }
}

moe_format in_any_order() {
    moe_format format = gptq_format.format;
    format.act_order = 1;
    return format;
}

// Every expert, the shared one that follows included, has a table of its columns for either half of
// its tiles.
TEST(DevicePlacement, TablesOfColumnsLieLikeOtherTables) {
    moe_layer_desc desc = rich_layer(256, 256);
    desc.shared_intermediate = 256;
    const LayerTensors layer(desc, {.everywhere = "bf16"});
    const Plan plan = make_plan(layer);
    WeightsLayout layout = packed_layout(*plan);
    for (int i = 0; i < MOE_ROLE_COUNT; ++i)
        if (is_matrix_role(static_cast<moe_role>(i)) && i != MOE_ROLE_ROUTER &&
            layout.needs(static_cast<moe_role>(i)))
            layout.formats[i] = in_any_order();
    expect_apart(layout);
    const DevicePlacement placement = lay_out_on_device(layout);
    ASSERT_TRUE(placement.shared_follows);
    for (const auto& [shared, role] :
         {std::pair{MOE_ROLE_SHARED_GATE, MOE_ROLE_GATE}, {MOE_ROLE_SHARED_DOWN, MOE_ROLE_DOWN}}) {
        const DevicePlacement::Region& routed = placement.matrices[role];
        EXPECT_EQ(routed.table, ColumnTable::order);
        EXPECT_EQ(placement.matrices[shared].columns,
                  routed.columns + static_cast<uint64_t>(routed.count) * routed.column_bytes());
    }
}

// The rows of gate and up lie by the tables of down, so that kernels take those of gate and up
// alone.
TEST(DevicePlacement, KernelsGatherByTheTablesThatRowsDoNotFollow) {
    const LayerTensors layer(plain_layer(256, 256, 4, 2), {.everywhere = "bf16"});
    const Plan plan = make_plan(layer);
    alignas(4) std::byte base[1];
    for (const bool keeps_apart : {false, true}) {
        WeightsLayout layout = packed_layout(*plan);
        layout.keeps_tables_apart = keeps_apart;
        for (const moe_role role : {MOE_ROLE_GATE, MOE_ROLE_UP, MOE_ROLE_DOWN})
            layout.formats[role] = in_any_order();
        const DeviceWeights weights = lay_out_on_device(layout).resolve(layout, base);
        const PackedMatrix& down = weights.matrices[MOE_ROLE_DOWN];
        EXPECT_EQ(weights.matrices[MOE_ROLE_GATE].table, ColumnTable::order);
        EXPECT_NE(weights.matrices[MOE_ROLE_GATE].columns, nullptr);
        EXPECT_EQ(down.table, keeps_apart ? ColumnTable::order : ColumnTable::none);
        EXPECT_EQ(down.columns != nullptr, keeps_apart);
        // A scale of FP8 in blocks serves several rows, which must stay together.
        layout.formats[MOE_ROLE_UP] = test::format_named("fp8_128x128").format;
        EXPECT_EQ(lay_out_on_device(layout).matrices[MOE_ROLE_DOWN].is_folded, false);
    }
}

TEST(DevicePlacement, SlicesOfColumnsInAnyOrderAreRefused) {
    const LayerTensors layer(plain_layer(256, 512, 4, 2), {.everywhere = "bf16"});
    auto slice = sized<moe_slice>();
    slice.has_intermediate_range = 1;
    slice.intermediate_count = 256;
    const Plan plan = make_plan(layer, {.slice = &slice});
    WeightsLayout layout = packed_layout(*plan);
    layout.formats[MOE_ROLE_GATE] = layout.formats[MOE_ROLE_UP] = in_any_order();
    expect_apart(layout);  // rows may be cut
    layout.formats[MOE_ROLE_DOWN] = in_any_order();
    try {
        lay_out_on_device(layout);
        FAIL();
    } catch (const Error& error) {
        EXPECT_EQ(error.status(), MOE_ERROR_UNSUPPORTED);
        EXPECT_NE(
            std::string(error.what()).find("down: a slice of 256 of 512 columns of int4 gptq"),
            std::string::npos)
            << error.what();
    }
}

TEST(DevicePlacement, GateAndUpAreApartWhereTheirTypesDiffer) {
    const LayerTensors layer(rich_layer(256, 256),
                             {.everywhere = "bf16", .formats = {{MOE_ROLE_GATE, "mxfp4"}}});
    const Plan plan = make_plan(layer);
    const WeightsLayout layout = packed_layout(*plan);
    expect_apart(layout);
    const DevicePlacement placement = lay_out_on_device(layout);
    EXPECT_FALSE(placement.is_gate_up_fused);
    EXPECT_TRUE(placement.is_shared_gate_up_fused);
    for (const auto role : {MOE_ROLE_GATE, MOE_ROLE_UP})
        EXPECT_EQ(placement.matrices[role].n_tiles, 16);
    std::byte base[1];
    const DeviceWeights weights = placement.resolve(layout, base);
    EXPECT_NE(weights.matrices[MOE_ROLE_GATE].global_scale, nullptr);
    EXPECT_EQ(weights.matrices[MOE_ROLE_UP].global_scale, nullptr);
    EXPECT_NE(weights.matrices[MOE_ROLE_UP].data, nullptr);
    EXPECT_EQ(weights.matrices[MOE_ROLE_SHARED_UP].data, nullptr);
}

// Is everything of the shared expert where a local expert more would have it?
bool is_one_expert_more(const DeviceWeights& weights, moe_role shared_role, moe_role role,
                        int64_t n_local) {
    const PackedMatrix& shared = weights.matrices[shared_role];
    const PackedMatrix& routed = weights.matrices[role];
    const auto follows = [&](const float* table, const float* first, int64_t each) {
        return first ? table == first + n_local * each : table == nullptr;
    };
    return shared.data == routed.data + n_local * routed.expert_stride &&
           follows(shared.global_scale, routed.global_scale, 2) &&
           follows(shared.codebook, routed.codebook, 64) && shared.n_tiles == routed.n_tiles &&
           shared.k == routed.k && shared.type == routed.type;
}

TEST(DevicePlacement, ASharedExpertOfTheSameShapeAndTypesFollowsTheOthers) {
    for (const char* format : {"bf16", "nvfp4", "kbit3", "q4_k"})
        for (const int64_t shared_intermediate : {256, 512})
            for (const char* shared_down : {format, "f16"}) {
                SCOPED_TRACE(format);
                moe_layer_desc desc = rich_layer(256, 256);
                desc.shared_intermediate = shared_intermediate;
                const LayerTensors layer(
                    desc, {.everywhere = format, .formats = {{MOE_ROLE_SHARED_DOWN, shared_down}}});
                const Plan plan = make_plan(layer);
                ASSERT_TRUE(plan);
                const WeightsLayout layout = packed_layout(*plan);
                expect_apart(layout);
                const DevicePlacement placement = lay_out_on_device(layout);
                const bool same = shared_intermediate == 256 && shared_down == format;
                EXPECT_EQ(placement.shared_follows, same);
                alignas(4) std::byte base[1];
                const DeviceWeights weights = placement.resolve(layout, base);
                for (const auto& [shared, role] : {std::pair{MOE_ROLE_SHARED_GATE, MOE_ROLE_GATE},
                                                   {MOE_ROLE_SHARED_DOWN, MOE_ROLE_DOWN}})
                    EXPECT_EQ(
                        is_one_expert_more(weights, shared, role, placement.matrices[role].count),
                        same);
            }
}

TEST(DevicePlacement, SlicesTakeTheirPart) {
    const LayerTensors layer(rich_layer(256, 512), {.everywhere = "bf16"});
    auto slice = sized<moe_slice>();
    slice.has_expert_range = slice.has_intermediate_range = 1;
    slice.expert_begin = 1;
    slice.expert_count = 3;
    slice.intermediate_begin = 48;
    slice.intermediate_count = 80;
    const Plan plan = make_plan(layer, {.slice = &slice});
    const WeightsLayout layout = packed_layout(*plan);
    expect_apart(layout);
    const DevicePlacement placement = lay_out_on_device(layout);
    const auto &up = placement.matrices[MOE_ROLE_GATE], &down = placement.matrices[MOE_ROLE_DOWN];
    EXPECT_EQ(up.count, 3);
    EXPECT_EQ(up.n_tiles, 10);
    EXPECT_EQ(down.k, 128);  // with the padding
    EXPECT_EQ(up.expert_stride, 2u * 80 * 256 * 2);
    EXPECT_EQ(down.expert_stride, 128u * 256 * 2);
}

// Scales of fp8 are packed for 32 columns; a view may begin anywhere, packed weights may not.
TEST(DevicePlacement, SlicesOffTheGridNameTheNearest) {
    const LayerTensors layer(plain_layer(256, 512, 4, 2), {.everywhere = "fp8_128x128"});
    auto slice = sized<moe_slice>();
    slice.has_intermediate_range = 1;
    slice.intermediate_begin = 48;
    slice.intermediate_count = 64;
    const Plan plan = make_plan(layer, {.slice = &slice});
    ASSERT_TRUE(plan);
    try {
        lay_out_on_device(packed_layout(*plan));
        FAIL();
    } catch (const Error& error) {
        EXPECT_EQ(error.status(), MOE_ERROR_INVALID_ARGUMENT);
        EXPECT_NE(std::string(error.what()).find("48"), std::string::npos) << error.what();
        EXPECT_NE(std::string(error.what()).find("32 and 64"), std::string::npos) << error.what();
    }
}

void expect_not_placed(const moe_format& down, const std::string& name) {
    const LayerTensors layer(plain_layer(256, 256, 4, 2), {.everywhere = "bf16"});
    const Plan plan = make_plan(layer);
    WeightsLayout layout = packed_layout(*plan);
    layout.formats[MOE_ROLE_DOWN] = down;
    try {
        lay_out_on_device(layout);
        ADD_FAILURE() << name;
    } catch (const Error& error) {
        EXPECT_EQ(error.status(), MOE_ERROR_UNSUPPORTED);
        EXPECT_NE(std::string(error.what()).find("down of " + name), std::string::npos)
            << error.what();
    }
}

TEST(DevicePlacement, AFormatThatCannotBePackedIsNamed) {
    moe_format format = test::format_named("bf16").format;
    format.type = MOE_TYPE_F8_E5M2;
    expect_not_placed(format, "f8_e5m2");
    moe_format between_steps = pack_quantized_formats[0].format;
    between_steps.group_columns = 24;
    expect_not_placed(between_steps, format_name(between_steps).text);
}

// At most 1.02 times the bytes of the source and a megabyte, in every format.
TEST(DevicePlacement, PackedWeightsAreNoLargerThanTheirSource) {
    for (const FormatTraits* format : test::packed_formats()) {
        const FormatTraits& traits = *format;
        SCOPED_TRACE(traits.name);
        // Sizes alone: a layer of this size has no tensors here.
        Layer big = make_layer(plain_layer(4096, 2048, 64, 2));
        WeightsLayout layout(*std::pmr::new_delete_resource());
        layout.layer = big;
        layout.slice = make_slice(*std::pmr::new_delete_resource(), big, nullptr, {});
        layout.stages = 31;
        for (const auto role : {MOE_ROLE_ROUTER, MOE_ROLE_GATE, MOE_ROLE_UP, MOE_ROLE_DOWN})
            layout.formats[role] =
                role == MOE_ROLE_ROUTER ? test::format_named("bf16").format : traits.format;
        const uint64_t source = layout.copy_bytes();
        layout.residency = MOE_RESIDENCY_PACKED;
        layout.device = MOE_DEVICE_CUDA;
        const uint64_t packed = layout.copy_bytes();
        EXPECT_LE(static_cast<double>(packed), 1.02 * static_cast<double>(source) + (1 << 20));
        EXPECT_GT(static_cast<double>(packed), 0.95 * static_cast<double>(source));
    }
}

TEST(DevicePlacement, IdsTellLayoutsApart) {
    const LayerTensors layer(plain_layer(256, 256, 4, 2), {.everywhere = "bf16"});
    const Plan plan = make_plan(layer);
    WeightsLayout layout = packed_layout(*plan);
    EXPECT_NE(layout.id, plan->layout.id);
    layout.device_index = 3;
    EXPECT_EQ(layout.make_id(), layout.id) << "any device of a kind takes the same bytes";
    const LayerTensors other(plain_layer(256, 256, 4, 2), {.everywhere = "f16"});
    EXPECT_NE(packed_layout(*make_plan(other)).id, layout.id);
}

// The revision of a type is part of the ids of its own layouts and of no others.
TEST(DevicePlacement, IdsTellRevisionsOfTheirTypesApart) {
    const auto nvfp4_has_two = [](PackedType type) {
        return type == PackedType::nvfp4 ? 2 : packed_revision(type);
    };
    const LayerTensors nvfp4_layer(plain_layer(256, 256, 4, 2), {.everywhere = "nvfp4"});
    const LayerTensors mxfp4_layer(plain_layer(256, 256, 4, 2), {.everywhere = "mxfp4"});
    const Plan plans[] = {make_plan(nvfp4_layer), make_plan(mxfp4_layer)};
    const WeightsLayout nvfp4 = packed_layout(*plans[0]), mxfp4 = packed_layout(*plans[1]);
    EXPECT_EQ(nvfp4.make_id(), nvfp4.id);
    EXPECT_NE(nvfp4.make_id(nvfp4_has_two), nvfp4.id);
    EXPECT_EQ(mxfp4.make_id(nvfp4_has_two), mxfp4.id);
}

}  // namespace
}  // namespace moe
