// Plans that may quantize activations to E4M3: which stages take the kernels that do, and why
// others do not.
#include "tests/formats/sources.hpp"
#include "tests/plan/fake_device.hpp"

namespace moe {
namespace {

test::FakeLayer layer_of(const char* format) {
    test::FakeLayer layer{test::plain_layer(2048, 768, 128, 8), format, 20000};
    layer.quantizes_to_fp8 = true;
    return layer;
}

const Candidate* candidate(const moe_test::Plan& plan, moe_stage stage) {
    for (const Candidate& one : plan->candidates)
        if (one.stage == stage && one.family == cuda::Family::grouped_fp8) return &one;
    return nullptr;
}

const Reason* reason_of(const test::FakeDevice& device, const test::FakeLayer& layer) {
    const auto plan = cuda_plan(device, layer);
    const Candidate* one = candidate(plan, MOE_STAGE_EXPERTS);
    if (!one) return nullptr;
    EXPECT_FALSE(one->is_chosen);
    EXPECT_EQ(test::chosen_kernel(plan, MOE_STAGE_EXPERTS).find("_fp8_grouped"), std::string::npos);
    return one->reason;
}

TEST(Fp8Plan, ManyTokensTakeTheKernelsOfE4m3) {
    const auto plan = cuda_plan(test::h200(), layer_of("fp8_128x128"));
    EXPECT_EQ(test::chosen_kernel(plan, MOE_STAGE_EXPERTS), "sm90_e4m3_fp8_grouped_gemm_gate_up");
    EXPECT_EQ(test::chosen_kernel(plan, MOE_STAGE_EXPERTS, 1), "sm90_e4m3_bf16_gemv_gate_up");
    EXPECT_EQ(plan->launch_plan().down.wide.view(), "sm90_e4m3_fp8_grouped_gemm_down_wide");
    EXPECT_EQ(plan->launch_plan().range(64).tiles.gate_up, cuda::TileWidths::narrow);
    EXPECT_EQ(plan->launch_plan().range(8192).tiles.gate_up, cuda::TileWidths::wide);
}

// For those of four bits they are slower, and chosen where they are forced.
TEST(Fp8Plan, WeightsOfFourBitsTakeThemWhereForced) {
    const char* const forced = "experts:*_fp8_grouped_gemm*";
    for (const char* format : {"nvfp4", "mxfp4"}) {
        const std::string kernel = std::string("sm90_") + format;
        const auto plan = cuda_plan(test::h200(), layer_of(format));
        EXPECT_EQ(test::chosen_kernel(plan, MOE_STAGE_EXPERTS),
                  kernel + "_bf16_grouped_gemm_gate_up");
        EXPECT_EQ(candidate(plan, MOE_STAGE_EXPERTS)->reason, &reasons::slower);
        EXPECT_EQ(test::chosen_kernel(cuda_plan(test::h200(), layer_of(format), forced),
                                      MOE_STAGE_EXPERTS),
                  kernel + "_fp8_grouped_gemm_gate_up");
    }
    test::FakeLayer layer = layer_of("bf16");
    for (const bool act_order : {false, true}) {
        const moe_format awq = test::int_format(MOE_PACKING_GPTQ, 4, 128, MOE_TYPE_F16,
                                                MOE_ZERO_POINT_PACKED, act_order);
        for (const moe_role role : {MOE_ROLE_GATE, MOE_ROLE_UP, MOE_ROLE_DOWN})
            layer.unnamed[role] = awq;
        EXPECT_EQ(test::refusal(test::h200(), layer, forced).first,
                  act_order ? MOE_ERROR_UNSUPPORTED : MOE_OK);
    }
}

TEST(Fp8Plan, OnlyPlansThatAskForItHaveThem) {
    test::FakeLayer layer = layer_of("fp8_128x128");
    layer.quantizes_to_fp8 = false;
    EXPECT_EQ(candidate(cuda_plan(test::h200(), layer), MOE_STAGE_EXPERTS), nullptr);
    EXPECT_EQ(test::refusal(test::h200(), layer, "*_fp8_grouped_gemm*").first,
              MOE_ERROR_INVALID_ARGUMENT);
    layer.quantizes_to_fp8 = true;
    EXPECT_EQ(test::refusal(test::h200(), layer, "*_fp8_grouped_gemm*").first, MOE_OK);
}

TEST(Fp8Plan, OthersTakeTheValuesAsGiven) {
    const auto of = [](const char* format, auto change) {
        test::FakeLayer layer = layer_of(format);
        change(layer);
        return layer;
    };
    const auto as_it_is = [](test::FakeLayer&) {};
    EXPECT_EQ(reason_of(test::sm80(), layer_of("fp8_128x128")), &reasons::architecture);
    EXPECT_EQ(reason_of(test::h200(), of("bf16", as_it_is)), &reasons::weight_type);
    EXPECT_EQ(
        reason_of(test::h200(),
                  of("fp8_128x128", [](auto& layer) { layer.others[MOE_ROLE_DOWN] = "bf16"; })),
        &reasons::weight_type);
    EXPECT_EQ(reason_of(test::h200(),
                        of("fp8_128x128", [](auto& layer) { layer.x_type = MOE_TYPE_F32; })),
              &reasons::intermediate_type);
    EXPECT_EQ(
        reason_of(test::h200(),
                  of("fp8_128x128", [](auto& layer) { layer.intermediate_type = MOE_TYPE_F16; })),
        &reasons::intermediate_type);
    EXPECT_EQ(
        reason_of(test::h200(), of("fp8_128x128", [](auto& layer) { layer.desc.latent = 512; })),
        &reasons::latent);
    EXPECT_EQ(reason_of(test::h200(), of("fp8_128x128", [](auto& layer) { layer.unfused = true; })),
              &reasons::unfused);
    EXPECT_EQ(reason_of(test::h200(), of("fp8_128x128",
                                         [](auto& layer) {
                                             moe_format format =
                                                 test::format_named("fp8_128x128").format;
                                             format.group_columns = 64;
                                             layer.unnamed[MOE_ROLE_UP] = format;
                                         })),
              &reasons::scale_grid);
}

}  // namespace
}  // namespace moe
