// Loading packed weights, with host memory in the place of a device's: whatever form the tensors
// come in, every expert unpacks to the source's values, and every vector and map is there.
#include <gtest/gtest.h>

#include <algorithm>

#include "libmoe/base/checked.hpp"
#include "libmoe/weights/packed_checkpoint.hpp"
#include "tests/formats/sources.hpp"
#include "tests/packed/packing.hpp"
#include "tests/weights/host_block.hpp"
#include "tests/weights/layers.hpp"

namespace moe {
namespace {

using moe_test::Plan;
using moe_test::sized;
using test::expert_at;
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
using test::three_rich_experts;

// One rounding where a global scale divides; nothing else may differ.
bool is_close(float got, float wanted) {
    return std::abs(got - wanted) <= std::abs(wanted) * 0x1p-22f;
}

void expect_packed_matrix(const PackedWeights& packed, const LayerTensors& layer, moe_role role,
                          int64_t place) {
    const WeightsLayout::Part part = packed.handle.layout.part(role);
    const int64_t expert = expert_at(packed.handle.layout, role, place);
    const auto got = packed.values(role, place);
    const auto source = layer.values(role);
    double norm = 0;
    for (int64_t r = 0; r < part.rows; ++r)
        for (int64_t k = 0; k < part.columns; ++k) {
            const float wanted = source.at(expert, part.row + r, part.column + k);
            norm += std::abs(wanted);
            const float found = got[static_cast<size_t>(r * part.columns + k)];
            ASSERT_TRUE(is_close(found, wanted))
                << role_name(role) << " of expert " << expert << " [" << r << ", " << k << "] is "
                << found << ", not " << wanted;
        }
    ASSERT_GT(norm, 0) << "a source of zeros proves nothing";
}

void expect_packed_vector(const PackedWeights& packed, const LayerTensors& layer, moe_role role) {
    const WeightsLayout::Part part = packed.handle.layout.part(role);
    const float* vector = packed.handle.device.vectors[role];
    ASSERT_NE(vector, nullptr) << role_name(role);
    const auto source = layer.values(role);
    for (int64_t i = 0; i < packed.handle.layout.count(role) * part.columns; ++i)
        ASSERT_EQ(vector[i], source.at(expert_at(packed.handle.layout, role, i / part.columns), 0,
                                       part.column + i % part.columns))
            << role_name(role) << " [" << i << "]";
}

void expect_packed(const PackedWeights& packed, const LayerTensors& layer) {
    const WeightsLayout& layout = packed.handle.layout;
    int n_matrices = 0;
    for (int i = 1; i < MOE_ROLE_COUNT; ++i) {
        const auto role = static_cast<moe_role>(i);
        if (role == MOE_ROLE_HASH_TABLE) continue;
        if (!layout.needs(role)) {
            EXPECT_EQ(packed.handle.device.vectors[i], nullptr) << role_name(role);
            EXPECT_EQ(packed.handle.device.matrices[i].data, nullptr) << role_name(role);
        } else if (is_matrix_role(role)) {
            for (int64_t place = 0; place < layout.count(role); ++place, ++n_matrices)
                ASSERT_NO_FATAL_FAILURE(expect_packed_matrix(packed, layer, role, place));
        } else {
            ASSERT_NO_FATAL_FAILURE(expect_packed_vector(packed, layer, role));
        }
    }
    EXPECT_GT(n_matrices, 0);
}

void expect_loads_packed(const LayerTensors& layer, const PlanChoices& choices = {}) {
    const Plan plan = make_plan(layer, choices);
    ASSERT_TRUE(plan);
    for (const bool batched : {true, false}) {
        PackedWeights packed(*plan);
        ASSERT_NO_FATAL_FAILURE(packed.load(layer.tensors, batched));
        ASSERT_NO_FATAL_FAILURE(expect_packed(packed, layer));
    }
}

moe_layer_desc small_layer() {
    moe_layer_desc desc = rich_layer(64, 96);
    desc.shared_intermediate = 32;
    return desc;
}

template <class F>
void expect_fails(F f, moe_status status, const std::string& text) {
    try {
        f();
        FAIL() << "no error with " << text;
    } catch (const Error& error) {
        EXPECT_EQ(error.status(), status) << error.what();
        EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
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

void expect_source(const PackedWeights& packed, moe_role role, int64_t place,
                   const test::Source& source, int64_t columns) {
    const auto values = packed.values(role, place);
    for (size_t i = 0; i < values.size(); ++i) {
        const auto at = static_cast<int64_t>(i);
        ASSERT_TRUE(test::same_float(values[i],
                                     static_cast<float>(source.value(at / columns, at % columns))))
            << role_name(role) << " of expert " << place << ": " << i;
    }
}

// Gate and up of three experts with act-order, and another up of expert 1: each expert has its
// columns in an order of its own.
struct InAnyOrder {
    static constexpr int64_t rows = 96, columns = 128;

    // own_orders: every matrix has its own, too.
    explicit InAnyOrder(bool own_orders)
        : format(test::int_format(MOE_PACKING_GPTQ, 4, 32, MOE_TYPE_F16,
                                  MOE_ZERO_POINT_PACKED_MINUS_ONE, true)),
          layer(plain_layer(columns, rows, 3, 2), {.everywhere = "bf16"}) {
        layer.formats[MOE_ROLE_GATE] = layer.formats[MOE_ROLE_UP] = &format;
        for (uint64_t i = 0; i < 7; ++i) {  // gate, up, gate, ...
            sources.push_back(test::random_source(format, rows, columns, 40 + i));
            const size_t gate = i == 6 ? 2 : i / 2 * 2;
            if (!own_orders) sources[i].permutation = sources[gate].permutation;
        }
        for (int32_t i = 0; i < 7; ++i) {
            halves.push_back(sources[static_cast<size_t>(i)].tensor());
            halves.back().role = i % 2 || i == 6 ? MOE_ROLE_UP : MOE_ROLE_GATE;
            halves.back().expert = i < 6 ? i / 2 : 1;
        }
        tensors = test::tensors_without(layer, {MOE_ROLE_GATE, MOE_ROLE_UP});
        for (size_t i = 0; i < 6; ++i) tensors.push_back(&halves[i]);
    }

    void expect_in(const PackedWeights& packed, size_t up_of_1) const {
        for (size_t e = 0; e < 3; ++e) {
            const auto place = static_cast<int64_t>(e);
            expect_source(packed, MOE_ROLE_GATE, place, sources[2 * e], columns);
            expect_source(packed, MOE_ROLE_UP, place, sources[e == 1 ? up_of_1 : 2 * e + 1],
                          columns);
        }
    }

    moe_format format;
    LayerTensors layer;
    std::vector<test::Source> sources;
    std::vector<moe_tensor> halves;
    std::vector<const moe_tensor*> tensors;
};

TEST(DeviceLoad, EveryExpertKeepsItsOrderOfColumns) {
    const InAnyOrder any(false);
    ASSERT_NE(any.sources[0].permutation, any.sources[2].permutation);
    const Plan plan = make_plan(any.layer);
    PackedWeights packed(*plan);
    ASSERT_TRUE(packed.handle.placement.is_gate_up_fused);
    ASSERT_NO_FATAL_FAILURE(packed.load(any.tensors));
    ASSERT_NO_FATAL_FAILURE(any.expect_in(packed, 3));
    ASSERT_NO_FATAL_FAILURE(packed.update(any.halves[6]));
    ASSERT_NO_FATAL_FAILURE(any.expect_in(packed, 6));
}

void expect_order_refused(const Error& error, const char* what) {
    EXPECT_EQ(error.status(), MOE_ERROR_UNSUPPORTED);
    const std::string words = std::string(what) + ": permutation differs from that of up";
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
}

// Both halves of a tile meet the same activations.
TEST(DeviceLoad, OrdersOfGateAndUpThatDifferAreRefusedInTheSameTiles) {
    const InAnyOrder differ(true), agree(false);
    const Plan plan = make_plan(differ.layer);
    PackedWeights packed(*plan);
    try {
        packed.load(differ.tensors);
        FAIL();
    } catch (const Error& error) {
        expect_order_refused(error, "gate of expert 0");
    }
    ASSERT_NO_FATAL_FAILURE(packed.load(agree.tensors));
    moe_tensor other = agree.halves[6];
    other.permutation = agree.sources[0].permutation.data();
    try {
        packed.update(other);
        FAIL();
    } catch (const Error& error) {
        expect_order_refused(error, "gate of expert 1");
    }
    ASSERT_NO_FATAL_FAILURE(agree.expect_in(packed, 3));
}

TEST(DeviceLoad, OrdersOfGateAndUpMayDifferApart) {
    const InAnyOrder differ(true);
    const Plan plan = make_plan(differ.layer);
    plan->layout.keeps_tables_apart = true;
    PackedWeights packed(*plan);
    ASSERT_FALSE(packed.handle.placement.is_gate_up_fused);
    ASSERT_NO_FATAL_FAILURE(packed.load(differ.tensors));
    ASSERT_NO_FATAL_FAILURE(differ.expect_in(packed, 3));
    ASSERT_NO_FATAL_FAILURE(packed.update(differ.halves[6]));
    ASSERT_NO_FATAL_FAILURE(differ.expect_in(packed, 6));
}

TEST(DeviceLoad, FactorsOfColumnsAndTheGlobalScale) {
    for (const auto rule : {MOE_GLOBAL_SCALE_MULTIPLY, MOE_GLOBAL_SCALE_DIVIDE}) {
        const FormatTraits& traits = nvfp4_pre_quant_formats[rule == MOE_GLOBAL_SCALE_DIVIDE];
        ASSERT_EQ(traits.format.global_scale, rule);
        constexpr int64_t rows = 64, columns = 160;
        LayerTensors layer(plain_layer(rows, columns, 2, 1), {.everywhere = "bf16"});
        layer.formats[MOE_ROLE_DOWN] = &traits.format;
        const auto pre = test::gaussian(columns, 8);
        std::vector<test::Stored> stored;
        std::vector<moe_tensor> downs;
        for (uint64_t e = 0; e < 2; ++e) {
            stored.push_back(test::make(traits, rows, columns, 3 + e));
            stored.back().global_scale = 0.3f + static_cast<float>(e);
        }
        for (size_t e = 0; e < 2; ++e) {
            auto tensor = sized<moe_tensor>();
            tensor.role = MOE_ROLE_DOWN;
            tensor.expert = static_cast<int32_t>(e);
            tensor.format = &traits.format;
            tensor.rows = rows;
            tensor.columns = columns;
            tensor.data = stored[e].data.data();
            tensor.data_bytes = stored[e].data.size();
            tensor.scales = stored[e].scales.data();
            tensor.scale_bytes = stored[e].scales.size();
            tensor.global_scale = &stored[e].global_scale;
            tensor.n_global_scales = 1;
            tensor.pre_quant_scale = pre.data();
            tensor.pre_quant_scale_bytes = 4 * columns;
            downs.push_back(tensor);
        }
        auto tensors = test::tensors_without(layer, {MOE_ROLE_DOWN});
        for (const moe_tensor& down : downs) tensors.push_back(&down);
        const Plan plan = make_plan(layer);
        PackedWeights packed(*plan);
        ASSERT_NO_FATAL_FAILURE(packed.load(tensors));
        for (size_t e = 0; e < 2; ++e) {
            Matrix matrix = test::view(stored[e]);
            matrix.pre_quant_scale = pre.data();
            const auto wanted = test::decode_all(matrix, traits);
            const auto got = packed.values(MOE_ROLE_DOWN, static_cast<int64_t>(e));
            for (size_t i = 0; i < wanted.size(); ++i)
                ASSERT_NEAR(got[i], wanted[i], std::abs(wanted[i]) * 0x1p-22f) << e << ' ' << i;
        }
    }
}

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

TEST(DeviceLoad, UpdatesOfOneExpertAndOfOneHalf) {
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

// Kernels take another way where all experts have one codebook, a shared one that follows them
// among these.
TEST(DeviceLoad, NotesWhereAllCodebooksAreTheSame) {
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
TEST(DeviceLoad, NotesCodebooksThatAreBytesOrMirrored) {
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

TEST(DeviceLoad, UpdatesOfOneVectorOfAnExpert) {
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

TEST(DeviceLoad, UpdatesOfWhatIsNotHeldAreRefused) {
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
