// Loading packed weights of columns that lie in an order of their own or under factors of their
// own.
#include <gtest/gtest.h>

#include "tests/formats/sources.hpp"
#include "tests/weights/packed_layers.hpp"

namespace moe {
namespace {

using moe_test::Plan;
using moe_test::sized;
using test::LayerTensors;
using test::make_plan;
using test::PackedWeights;
using test::plain_layer;

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

TEST(DeviceOrders, EveryExpertKeepsItsOrderOfColumns) {
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
TEST(DeviceOrders, OrdersOfGateAndUpThatDifferAreRefusedInTheSameTiles) {
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

TEST(DeviceOrders, OrdersOfGateAndUpMayDifferApart) {
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

TEST(DeviceOrders, FactorsOfColumnsAndTheGlobalScale) {
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

}  // namespace
}  // namespace moe
