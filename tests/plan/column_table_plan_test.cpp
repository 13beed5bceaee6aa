// Plans of matrices with a table of columns: which kernels they take, what they gather, and where
// gate and up may have tables that differ.
#include "libmoe/formats/entries.hpp"
#include "tests/formats/sources.hpp"
#include "tests/plan/fake_device.hpp"

namespace moe {
namespace {

constexpr moe_role experts[] = {MOE_ROLE_GATE, MOE_ROLE_UP, MOE_ROLE_DOWN};

moe_format gptq(int32_t bits, bool act_order) {
    return test::int_format(MOE_PACKING_GPTQ, bits, 128, MOE_TYPE_F16,
                            MOE_ZERO_POINT_PACKED_MINUS_ONE, act_order);
}

test::FakeLayer layer_of(const moe_format& format, std::initializer_list<moe_role> roles = {}) {
    test::FakeLayer layer{test::plain_layer(2048, 768, 128, 8), "bf16", 20000};
    for (const moe_role role : experts) layer.unnamed[role] = format;
    if (roles.size() > 0) layer.unnamed.clear();
    for (const moe_role role : roles) layer.unnamed[role] = format;
    return layer;
}

const Reason* reason_of(const moe_test::Plan& plan, std::string_view kernel) {
    for (const Candidate& one : plan->candidates)
        if (one.stage == MOE_STAGE_EXPERTS && one.gate_up.view() == kernel) return one.reason;
    ADD_FAILURE() << "no candidate " << kernel;
    return nullptr;
}

// The same kernels as those of columns in order.
TEST(ColumnTables, TakeTheKernelsOfTheirTypes) {
    const struct {
        const test::FakeDevice device;
        int32_t bits;
        const char* kernel;
        const char* of_one_token;
    } cases[] = {
        {test::h200(), 4, "sm90_int4_bf16_grouped_gemm_gate_up", "sm90_int4_bf16_gemv_gate_up"},
        {test::h200(), 8, "sm90_int8_bf16_grouped_gemm_gate_up", "sm90_int8_bf16_gemv_gate_up"},
        {test::h200(), 3, "sm90_int3_bf16_grouped_gemm_gate_up", "sm90_int3_bf16_gemv_gate_up"},
        {test::sm80(), 4, "sm80_int4_bf16_grouped_gemm_gate_up", "sm80_int4_bf16_gemv_gate_up"},
        {test::sm80(), 2, "sm80_int2_bf16_grouped_gemm_gate_up", "sm80_int2_bf16_gemv_gate_up"}};
    for (const auto& one : cases)
        for (const bool act_order : {false, true}) {
            const auto plan = cuda_plan(one.device, layer_of(gptq(one.bits, act_order)));
            EXPECT_EQ(test::chosen_kernel(plan, MOE_STAGE_EXPERTS), one.kernel) << act_order;
            EXPECT_EQ(test::chosen_kernel(plan, MOE_STAGE_EXPERTS, 1), one.of_one_token)
                << act_order;
        }
}

TEST(ColumnTables, OfPreQuantScaleAreNvfp4) {
    for (const FormatTraits& traits : nvfp4_pre_quant_formats) {
        const auto plan = cuda_plan(test::h200(), layer_of(traits.format));
        EXPECT_EQ(test::chosen_kernel(plan, MOE_STAGE_EXPERTS),
                  "sm90_nvfp4_bf16_grouped_gemm_gate_up");
        EXPECT_EQ(test::chosen_kernel(plan, MOE_STAGE_EXPERTS, 1), "sm90_nvfp4_bf16_gemv_gate_up");
        EXPECT_EQ(test::chosen_kernel(cuda_plan(test::sm80(), layer_of(traits.format)),
                                      MOE_STAGE_EXPERTS),
                  "sm80_nvfp4_bf16_grouped_gemm_gate_up");
    }
}

// Slots are tokens of one slot for gate and up, and the SMs are theirs.
TEST(ColumnTables, DivideTheGpuByTheSlots) {
    const auto launch_of = [](bool act_order, int32_t n_tokens) {
        const auto plan = cuda_plan(test::h200(), layer_of(gptq(4, act_order)));
        return plan->launch_plan().experts_gemv.at(n_tokens, false, false);
    };
    const cuda::GemvLaunch in_order = launch_of(false, 2), gathered = launch_of(true, 2);
    EXPECT_FALSE(in_order.gathers_x);
    EXPECT_TRUE(gathered.gathers_x);
    EXPECT_EQ(in_order.gate_up.n_blocks, 132 / 2);
    EXPECT_EQ(gathered.gate_up.n_blocks, 132 / (2 * 8));
    EXPECT_EQ(in_order.down.n_blocks, gathered.down.n_blocks);
}

// A pass over h multiplies it by down's factors. By down's order it is permuted only where the
// stages are apart: elsewhere the rows of gate and up lie in it.
TEST(ColumnTables, OfDownCostAPassOverHUnlessRowsLieByThem) {
    test::FakeLayer layer = layer_of(nvfp4_pre_quant_formats[0].format, {MOE_ROLE_DOWN});
    const auto plan = cuda_plan(test::h200(), layer);
    const cuda::GemvLaunch& launch = plan->launch_plan().experts_gemv.at(1, false, false);
    EXPECT_FALSE(launch.gathers_x);
    EXPECT_TRUE(launch.gathers_h);
    test::FakeLayer ordered = layer_of(gptq(4, true), {MOE_ROLE_DOWN});
    const auto in_rows = cuda_plan(test::h200(), ordered);
    EXPECT_FALSE(in_rows->cuda.has_down_tables);
    EXPECT_FALSE(in_rows->launch_plan().experts_gemv.at(1, false, false).gathers_h);
    ordered.unfused = true;
    EXPECT_TRUE(cuda_plan(test::h200(), ordered)->cuda.has_down_tables);
}

// Gate and up of different types are two launches, and each could want other rows of x.
TEST(ColumnTables, OfGateOrUpAloneKeepGemvAwayAndSayWhy) {
    for (const moe_role role : {MOE_ROLE_GATE, MOE_ROLE_UP}) {
        const auto plan =
            cuda_plan(test::h200(), layer_of(nvfp4_pre_quant_formats[0].format, {role}));
        EXPECT_EQ(
            reason_of(plan, "sm90_" +
                                std::string(role == MOE_ROLE_GATE ? "nvfp4+bf16" : "bf16+nvfp4") +
                                "_bf16_gemv_gate_up"),
            &reasons::column_table);
    }
}

// Rows that are indexed in place would all have the columns of x.
TEST(ColumnTables, OfGateAndUpWantRowsGathered) {
    const auto indexes = [](const test::FakeLayer& layer) {
        return cuda_plan(test::h200(), layer)->launch_plan().range(20000).indexes_rows;
    };
    EXPECT_TRUE(indexes(layer_of(gptq(4, false))));
    EXPECT_FALSE(indexes(layer_of(gptq(4, true))));
    test::FakeLayer down = layer_of(gptq(4, false));
    down.unnamed[MOE_ROLE_DOWN] = gptq(4, true);
    EXPECT_TRUE(indexes(down));
}

TEST(ColumnTables, GateAndUpAreFusedUnlessThePlanIsNot) {
    test::FakeLayer layer = layer_of(gptq(4, true));
    const auto fused = cuda_plan(test::h200(), layer);
    EXPECT_TRUE(fused->cuda.is_gate_up_fused);
    layer.unfused = true;
    const auto apart = cuda_plan(test::h200(), layer);
    EXPECT_FALSE(apart->cuda.is_gate_up_fused);
    EXPECT_EQ(test::chosen_kernel(apart, MOE_STAGE_EXPERTS), "sm80_int4_bf16_grouped_gemm_gate_up");
    EXPECT_NE(fused->layout.make_id(), apart->layout.make_id());
    // Without a table the weights are the same.
    test::FakeLayer plain = layer_of(gptq(4, false));
    const auto one = cuda_plan(test::h200(), plain);
    plain.unfused = true;
    const auto other = cuda_plan(test::h200(), plain);
    EXPECT_TRUE(other->cuda.is_gate_up_fused);
    EXPECT_EQ(one->layout.make_id(), other->layout.make_id());
    // One of the two with a table: neither tiles nor activations are the same.
    layer.unfused = false;
    layer.unnamed[MOE_ROLE_UP] = gptq(4, false);
    EXPECT_FALSE(cuda_plan(test::h200(), layer)->cuda.is_gate_up_fused);
}

// Weights with few bits beside biases are packed in two ways, by the type of x.
TEST(MovedCodes, AreAnotherLayoutThanKeptBiases) {
    for (const int32_t bits : {2, 3, 4}) {
        test::FakeLayer layer = layer_of(
            test::int_format(MOE_PACKING_BIT_STREAM, bits, 64, MOE_TYPE_F16, MOE_ZERO_POINT_FLOAT));
        const auto moved = cuda_plan(test::h200(), layer), kept = cuda_plan(test::h200(), layer);
        kept->layout.keeps_biases = true;
        EXPECT_EQ(moved->layout.make_id() == kept->layout.make_id(), bits == 4) << bits;
    }
}

// Wider rows fit no shared memory.
TEST(ColumnTables, OfMoreColumnsThanARowMayHaveAreRefused) {
    test::FakeLayer layer = layer_of(nvfp4_pre_quant_formats[0].format);
    layer.desc.hidden = static_cast<int32_t>(most_table_columns);
    EXPECT_EQ(test::refusal(test::h200(), layer, nullptr).second, "");
    layer.desc.hidden += 64;
    EXPECT_NE(test::refusal(test::h200(), layer, nullptr).second.find("24640 columns of"),
              std::string::npos);
}

}  // namespace
}  // namespace moe
