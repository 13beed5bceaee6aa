// Names of kernels: <arch>_<weight>_<activation>_<family>_<stage>[_variant].
#include "libmoe/plan/kernel_names.hpp"

#include <set>

#include "libmoe/cuda/kernel_types.hpp"
#include "tests/formats/sources.hpp"
#include "tests/plan/fake_device.hpp"
#include "tests/plan/fake_processor.hpp"
#include "tests/plan/pattern.hpp"

namespace moe {
namespace {

using test::chosen_kernel;
using test::FakeLayer;

TEST(KernelNames, EveryPackedTypeHasAWordOfItsOwn) {
    const test::Pattern word("^[a-z0-9]+(_[a-z0-9]+)*$");
    std::set<std::string> words;
    for (auto type = static_cast<int32_t>(PackedType::f32);
         type <= static_cast<int32_t>(PackedType::grid_codebook); ++type) {
        const std::string name(weight_name(static_cast<PackedType>(type)));
        EXPECT_TRUE(word.is_in(name)) << name;
        EXPECT_NE(name, "any") << type;
        EXPECT_TRUE(words.insert(name).second) << name << " is there twice";
    }
    EXPECT_EQ(weight_name(PackedType::none), "any");
    EXPECT_EQ(weight_name(PackedType::q6_k), "q6_k");
}

TEST(KernelNames, AreMadeOfTheirWordsAndKept) {
    const KernelWords words{"sm90", "bf16", "gemv"};
    const cuda::KernelName name = kernel_name(words, "nvfp4", "down", "shared_codebook");
    EXPECT_EQ(name.view(), "sm90_nvfp4_bf16_gemv_down_shared_codebook");
    EXPECT_EQ(name.c_str(), kernel_name(words, "nvfp4", "down", "shared_codebook").c_str());
    EXPECT_EQ(kernel_name({"sm80", "f32", ""}, "bf16", "router").view(), "sm80_bf16_f32_router");
}

FakeLayer mixed_layer() {
    moe_layer_desc desc = test::plain_layer(2048, 768, 128, 8);
    desc.shared_intermediate = 768;
    desc.shared_activation = MOE_ACTIVATION_SILU;
    desc.shared_is_gated = 1;
    FakeLayer layer{desc, "q4_k"};
    layer.others = {{MOE_ROLE_UP, "q5_k"}, {MOE_ROLE_DOWN, "q6_k"}, {MOE_ROLE_SHARED_DOWN, "q8_0"}};
    return layer;
}

const Candidate& candidate(const moe_test::Plan& plan, moe_stage stage, cuda::Family family) {
    for (const Candidate& one : plan->candidates)
        if (one.stage == stage && one.family == family) return one;
    ADD_FAILURE() << "no such candidate";
    return plan->candidates.front();
}

TEST(KernelNames, SayTheWeightsOfTheirGemm) {
    const moe_test::Plan plan = cuda_plan(test::h200(), mixed_layer());
    const Candidate& experts = plan->chosen(MOE_STAGE_EXPERTS);
    EXPECT_EQ(experts.gate_up.view(), "sm90_q4_k+q5_k_bf16_grouped_gemm_gate_up");
    EXPECT_EQ(experts.down.view(), "sm90_q6_k_bf16_grouped_gemm_down");
    EXPECT_EQ(plan->launch_plan().gate_up.wide.view(),
              std::string(experts.gate_up.view()) + "_wide");
    EXPECT_EQ(plan->launch_plan().down.wide.view(), std::string(experts.down.view()) + "_wide");
    EXPECT_EQ(plan->launch_plan().down.narrow.view(), std::string(experts.down.view()) + "_narrow");
    const Candidate& gemv = candidate(plan, MOE_STAGE_EXPERTS, cuda::Family::sm90_gemv);
    EXPECT_EQ(gemv.gate_up.view(), "sm90_q4_k+q5_k_bf16_gemv_gate_up");
    EXPECT_TRUE(gemv.is_chosen);
    // The shared expert: gate and up of one type have one word.
    const Candidate& finish = plan->chosen(MOE_STAGE_FINISH);
    EXPECT_EQ(finish.gate_up.view(), "sm90_q4_k_bf16_grouped_gemm_gate_up");
    EXPECT_EQ(finish.down.view(), "sm90_q8_0_bf16_grouped_gemm_down");
    EXPECT_EQ(chosen_kernel(plan, MOE_STAGE_ROUTE), "sm80_bf16_f32_router");
    EXPECT_EQ(chosen_kernel(plan, MOE_STAGE_DISPATCH), "sm80_any_f32_dispatch");
    EXPECT_EQ(chosen_kernel(plan, MOE_STAGE_COMBINE), "sm80_any_f32_combine");
}

TEST(KernelNames, OfAGatelessLayerAreThoseOfUp) {
    FakeLayer layer{test::plain_layer(2048, 768, 128, 8), "nvfp4"};
    layer.desc.is_gated = 0;
    layer.desc.activation = MOE_ACTIVATION_RELU2;
    EXPECT_EQ(chosen_kernel(cuda_plan(test::h200(), layer), MOE_STAGE_EXPERTS),
              "sm90_nvfp4_bf16_grouped_gemm_gate_up");
}

// MLX's.
moe_format affine(int32_t bits) {
    return test::int_format(MOE_PACKING_BIT_STREAM, bits, 64, MOE_TYPE_BF16, MOE_ZERO_POINT_FLOAT);
}

TEST(KernelNames, OfPackedAffineCodesAreThoseOfBlocks) {
    FakeLayer layer{test::plain_layer(2048, 768, 128, 8), "bf16", 20000};
    layer.unnamed = {{MOE_ROLE_ROUTER, affine(8)},
                     {MOE_ROLE_GATE, affine(4)},
                     {MOE_ROLE_UP, affine(4)},
                     {MOE_ROLE_DOWN, affine(5)}};
    const moe_test::Plan plan = cuda_plan(test::h200(), layer);
    EXPECT_EQ(plan->chosen(MOE_STAGE_EXPERTS).gate_up.view(),
              "sm90_q4_1_bf16_grouped_gemm_gate_up");
    EXPECT_EQ(plan->chosen(MOE_STAGE_EXPERTS).down.view(), "sm90_q5_1_bf16_grouped_gemm_down");
}

TEST(KernelNames, OfAffineCodesOnTheCpuAreThoseOfIntegers) {
    SKIP_WITHOUT_X86();
    const auto plan = test::plan_on(
        test::with_avx512,
        {.layer = test::plain_layer(2048, 768, 8, 2), .gate_up = affine(6), .down = affine(8)});
    const Candidate& experts = plan->chosen(MOE_STAGE_EXPERTS, 1);
    EXPECT_EQ(experts.gate_up.view(), "avx512vnni_int6_int8x2_gemv_gate_up");
    EXPECT_EQ(experts.down.view(), "avx512vnni_int8_int8x2_gemv_down");
}

}  // namespace
}  // namespace moe
