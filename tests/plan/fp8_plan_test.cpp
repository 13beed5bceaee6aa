// Plans that may quantize activations to E4M3: which stages take the kernels that do, and why
// others do not.
#include "libmoe/api/arguments.hpp"
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
    const cuda::MlpTiles tiles = plan->launch_plan().range(8192).tiles;
    EXPECT_EQ(tiles, (cuda::MlpTiles{cuda::TileWidths::middle, cuda::TileWidths::middle}));
    EXPECT_EQ(plan->launch_plan().down.middle.view(), "sm90_e4m3_fp8_grouped_gemm_down_middle");
}

// A layer in which one matrix has another grid of scales.
test::FakeLayer layer_with_scales_of(int32_t group_rows, moe_role role) {
    test::FakeLayer layer = layer_of("fp8_128x128");
    layer.desc.shared_intermediate = 768;
    layer.desc.shared_activation = layer.desc.activation;
    moe_format format = test::format_named("fp8_128x128").format;
    format.group_rows = group_rows;
    layer.unnamed[role] = format;
    return layer;
}

// Middle tiles have one scale for 128 weight rows.
TEST(Fp8Plan, WeightsWithMoreScalesTakeWideTiles) {
    const auto tiles_of = [](int32_t group_rows, moe_role role) {
        const auto plan = cuda_plan(test::h200(), layer_with_scales_of(group_rows, role));
        EXPECT_EQ(test::chosen_kernel(plan, MOE_STAGE_EXPERTS),
                  "sm90_e4m3_fp8_grouped_gemm_gate_up");
        return plan->launch_plan().range(8192).tiles;
    };
    using cuda::TileWidths;
    EXPECT_EQ(tiles_of(64, MOE_ROLE_UP), (cuda::MlpTiles{TileWidths::wide, TileWidths::middle}));
    EXPECT_EQ(tiles_of(64, MOE_ROLE_DOWN), (cuda::MlpTiles{TileWidths::middle, TileWidths::wide}));
    EXPECT_EQ(tiles_of(256, MOE_ROLE_DOWN),
              (cuda::MlpTiles{TileWidths::middle, TileWidths::middle}));
}

// The up half of a fused tensor, or a slice, may begin inside of a group.
TEST(Fp8Plan, MiddleTilesBeginWithAScale) {
    const auto tiles_of = [](int32_t intermediate) {
        test::FakeLayer layer = layer_of("fp8_128x128");
        layer.desc.intermediate = intermediate;
        return cuda_plan(test::h200(), layer)->launch_plan().range(8192).tiles;
    };
    using cuda::TileWidths;
    const cuda::MlpTiles wide_and_middle{TileWidths::wide, TileWidths::middle};
    const cuda::MlpTiles middle{TileWidths::middle, TileWidths::middle};
    EXPECT_EQ(tiles_of(96), wide_and_middle);
    EXPECT_EQ(tiles_of(352), wide_and_middle);
    EXPECT_EQ(tiles_of(192), middle);
    EXPECT_EQ(tiles_of(1408), middle);
}

TEST(Fp8Plan, MiddleTilesOfGateAndUpHaveSilu) {
    test::FakeLayer layer = layer_of("fp8_128x128");
    layer.desc.activation = MOE_ACTIVATION_GELU_TANH;
    EXPECT_EQ(cuda_plan(test::h200(), layer)->launch_plan().range(8192).tiles,
              (cuda::MlpTiles{cuda::TileWidths::wide, cuda::TileWidths::middle}));
}

// A shared expert that joins the routed ones is one of them.
TEST(Fp8Plan, ASharedExpertWithMoreScalesTakesWideTilesWhereItJoins) {
    const auto plan = cuda_plan(test::h200(), layer_with_scales_of(64, MOE_ROLE_SHARED_UP));
    cuda::Setup setup = plan->cuda;
    for (const bool joins : {false, true}) {
        setup.shared_joins = joins;
        const cuda::MlpTraits traits = cuda::mlp_traits(setup, plan->launch_plan().tiles);
        EXPECT_EQ(traits.gate_up.has_fp8_middle, !joins);
        EXPECT_TRUE(traits.down.has_fp8_middle);
    }
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

moe_test::Plan plan_of_e4m3_x(const test::FakeLayer& layer) {
    moe_test::Plan plan = test::cpu_plan(layer);
    plan->quantizes_to_fp8 = true;
    plan->x_type = MOE_TYPE_F8_E4M3;
    return test::moved_to(test::h200(), std::move(plan));
}

// Kernels read the values of E4M3 x as bfloat16, or its codes.
TEST(Fp8Plan, E4m3XHasTheKernelsOfBf16) {
    const test::FakeLayer layer = layer_of("fp8_128x128");
    const auto of_bf16 = cuda_plan(test::h200(), layer);
    const moe_test::Plan plan = plan_of_e4m3_x(layer);
    EXPECT_TRUE(plan->cuda.x_is_fp8);
    EXPECT_EQ(plan->cuda.x_type, MOE_TYPE_BF16);
    EXPECT_FALSE(of_bf16->cuda.x_is_fp8);
    for (const moe_stage stage : all_stages)
        for (const int64_t n : {int64_t{1}, INT64_MAX})
            EXPECT_EQ(test::chosen_kernel(plan, stage, n), test::chosen_kernel(of_bf16, stage, n));
}

TEST(Fp8Plan, TheCpuRefusesE4m3X) {
    const test::FakeLayer layer = layer_of("bf16");
    moe_format bf16 = test::format_named("bf16").format;
    bf16.struct_size = sizeof bf16;
    const std::vector<const moe_format*> formats(MOE_ROLE_COUNT, &bf16);
    auto desc = moe_test::sized<moe_plan_desc>();
    desc.layer = &layer.desc;
    desc.x_type = MOE_TYPE_F8_E4M3;
    desc.out_type = MOE_TYPE_BF16;
    desc.formats = formats.data();
    desc.n_formats = MOE_ROLE_COUNT;
    desc.max_tokens = 4;
    desc.device = MOE_DEVICE_CPU;
    moe_plan* plan = nullptr;
    EXPECT_MOE_ERROR(moe_plan_create(nullptr, &desc, &plan), MOE_ERROR_UNSUPPORTED, "F8_E4M3");
}

// ---- arguments of moe_experts with such x

constexpr int64_t T = 5, n_rows = 17, capacity = 3;

// A call of an input layout, to rows. Nothing is read by the checks.
moe_experts_args experts_args(moe_in_layout in) {
    alignas(16) static std::byte memory[16];
    auto args = moe_test::sized<moe_experts_args>();
    args.in_layout = in;
    args.out_layout = MOE_OUT_ROWS;
    args.n_tokens = T;
    args.n_rows = in == MOE_IN_BATCHED ? 0 : n_rows;
    args.batch_capacity = capacity;
    args.x = args.x_scales = memory;
    // Past any x, so that they do not overlap.
    args.out = reinterpret_cast<void*>(uintptr_t{1} << 60);
    args.offsets = args.counts = reinterpret_cast<const int64_t*>(memory);
    if (in == MOE_IN_TOKENS) args.row_ids = reinterpret_cast<const int32_t*>(memory);
    return args;
}

std::pair<moe_status, std::string> refusal_of(const moe_test::Plan& plan,
                                              const moe_experts_args& args) {
    try {
        experts_arguments(*plan, &args);
    } catch (const Error& error) {
        return {error.status(), error.what()};
    }
    return {MOE_OK, ""};
}

void expect_bad(const moe_test::Plan& plan, const moe_experts_args& args, const char* named) {
    const auto [status, sentence] = refusal_of(plan, args);
    EXPECT_EQ(status, MOE_ERROR_INVALID_ARGUMENT);
    EXPECT_NE(sentence.find(named), std::string::npos) << sentence;
}

test::FakeLayer layer_of_odd_width() {
    test::FakeLayer layer = layer_of("fp8_128x128");
    layer.desc.hidden = 2112;  // sixteen blocks of 128 columns, and 64
    return layer;
}

TEST(Fp8Arguments, ExpertsTakeAScaleFor128ColumnsInEveryLayout) {
    const moe_test::Plan plan = plan_of_e4m3_x(layer_of_odd_width());
    for (const auto in : {MOE_IN_TOKENS, MOE_IN_SORTED, MOE_IN_BATCHED}) {
        moe_experts_args args = experts_args(in);
        const moe_experts_args checked = experts_arguments(*plan, &args);
        EXPECT_EQ(checked.x_scales, args.x_scales);
        EXPECT_EQ(checked.x_row_stride, 2112);
        EXPECT_EQ(checked.x_scale_row_stride, 17);
        args.x_scale_row_stride = 20;
        EXPECT_EQ(experts_arguments(*plan, &args).x_scale_row_stride, 20);
        args.x_scale_row_stride = 16;
        expect_bad(plan, args, "x_scale_row_stride is 16, a row has 17 elements");
    }
}

TEST(Fp8Arguments, ExpertsNeedScalesOfE4m3XAndOfNoOther) {
    const moe_test::Plan plan = plan_of_e4m3_x(layer_of_odd_width());
    const auto of_bf16 = cuda_plan(test::h200(), layer_of_odd_width());
    for (const auto in : {MOE_IN_TOKENS, MOE_IN_SORTED, MOE_IN_BATCHED}) {
        moe_experts_args args = experts_args(in);
        expect_bad(of_bf16, args, "x_scales are given, but the plan's x_type is bf16");
        args.x_scales = static_cast<const std::byte*>(args.x_scales) + 2;
        expect_bad(plan, args, "x_scales is at");
        args.x_scales = nullptr;
        expect_bad(plan, args, "x_scales is NULL");
        EXPECT_EQ(refusal_of(of_bf16, args).first, MOE_OK);
    }
}

// A caller that was compiled before x_scales.
TEST(Fp8Arguments, AStructWithoutScalesHasNone) {
    moe_experts_args args = experts_args(MOE_IN_SORTED);
    args.struct_size = offsetof(moe_experts_args, x_scales);
    args.x_scale_row_stride = -1;
    expect_bad(plan_of_e4m3_x(layer_of_odd_width()), args, "x_scales is NULL");
    EXPECT_EQ(refusal_of(cuda_plan(test::h200(), layer_of_odd_width()), args).first, MOE_OK);
}

TEST(Fp8Arguments, WithoutWorkThereNeedBeNoScales) {
    moe_experts_args args = experts_args(MOE_IN_SORTED);
    args.n_rows = 0;
    args.x_scales = nullptr;
    EXPECT_EQ(refusal_of(plan_of_e4m3_x(layer_of_odd_width()), args).first, MOE_OK);
}

TEST(Fp8Arguments, GatherRefusesE4m3X) {
    const auto args = moe_test::sized<moe_gather_args>();
    const moe_test::Plan plan = plan_of_e4m3_x(layer_of("bf16"));
    try {
        gather_arguments(*plan, &args);
        FAIL();
    } catch (const Error& error) {
        EXPECT_EQ(error.status(), MOE_ERROR_UNSUPPORTED);
        EXPECT_NE(std::string(error.what()).find("F8_E4M3"), std::string::npos);
    }
}

}  // namespace
}  // namespace moe
