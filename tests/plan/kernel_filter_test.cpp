// kernel_filter on the kernels of CUDA: globs, stages, old names, contradictions. The plans are of
// devices that are not there.
#include "libmoe/plan/kernel_filter.hpp"

#include "tests/plan/fake_device.hpp"

namespace moe {
namespace {

using test::chosen_kernel;
using test::FakeLayer;
using test::h200;
using test::sm80;

// NVFP4 experts, which gemv and the grouped GEMM read, with a shared expert of `shared`.
FakeLayer layer_with(const char* shared = "nvfp4") {
    moe_layer_desc desc = test::plain_layer(2048, 768, 128, 8);
    desc.shared_intermediate = 768;
    desc.shared_activation = MOE_ACTIVATION_SILU;
    desc.shared_is_gated = 1;
    FakeLayer layer{desc, "nvfp4"};
    for (const moe_role role : {MOE_ROLE_SHARED_GATE, MOE_ROLE_SHARED_UP, MOE_ROLE_SHARED_DOWN})
        layer.others[role] = shared;
    return layer;
}

std::string experts(const char* filter, int64_t n_tokens, const FakeLayer& layer = layer_with()) {
    return chosen_kernel(cuda_plan(h200(), layer, filter), MOE_STAGE_EXPERTS, n_tokens);
}

std::string finish(const char* filter, int64_t n_tokens, const FakeLayer& layer = layer_with()) {
    return chosen_kernel(cuda_plan(h200(), layer, filter), MOE_STAGE_FINISH, n_tokens);
}

TEST(MatchesGlob, StarsStandForAnyCharacters) {
    EXPECT_TRUE(matches_glob("sm90_bf16_bf16_gemv_down", "sm90_bf16_bf16_gemv_down"));
    EXPECT_TRUE(matches_glob("sm90_bf16_bf16_gemv_down", "*"));
    EXPECT_TRUE(matches_glob("sm90_bf16_bf16_gemv_down", "sm90_*_down"));
    EXPECT_TRUE(matches_glob("sm90_bf16_bf16_gemv_down", "*gemv*"));
    EXPECT_TRUE(matches_glob("sm90_bf16_bf16_gemv_down", "sm90_bf16_bf16_gemv_down*"));
    EXPECT_TRUE(matches_glob("a_b_a_b_c", "a*b_c"));
    EXPECT_FALSE(matches_glob("sm90_bf16_bf16_gemv_down", "gemv"));
    EXPECT_FALSE(matches_glob("sm90_bf16_bf16_gemv_down", "sm80_*"));
    EXPECT_FALSE(matches_glob("sm90_bf16_bf16_gemv_down", "*_up"));
    EXPECT_FALSE(matches_glob("down", ""));
    EXPECT_TRUE(matches_glob("down", "***"));
    EXPECT_TRUE(matches_glob("", "*"));
    EXPECT_FALSE(matches_glob("down", "*down*n"));
}

// A caller's text cannot make the comparison take for ever.
TEST(MatchesGlob, ManyStarsTakeNoLongerThanTheirNumber) {
    std::string stars;
    for (int i = 0; i < 1000; ++i) stars += "*_";
    EXPECT_FALSE(matches_glob("sm90_q4_k+q5_k_bf16_gemv_gate_up_split_k_shared_codebook", stars));
    EXPECT_FALSE(matches_glob(std::string(100, 'a'), "*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b"));
}

TEST(CudaFilter, WithoutOneTheBestAreTaken) {
    EXPECT_EQ(experts(nullptr, 1), "sm90_nvfp4_bf16_gemv_gate_up");
    EXPECT_EQ(experts(nullptr, 512), "sm90_nvfp4_bf16_grouped_gemm_gate_up");
    EXPECT_EQ(finish(nullptr, 1), "sm90_nvfp4_bf16_gemv_gate_up");
    EXPECT_EQ(finish(nullptr, 512), "sm90_nvfp4_bf16_grouped_gemm_gate_up");
}

TEST(CudaFilter, AGlobForcesInEveryStageThatItMatches) {
    for (const char* filter : {"sm80_*_grouped_gemm_*", "+sm80_*_bf16_grouped_gemm_*",
                               "sm80_nvfp4_bf16_grouped_gemm_down"})
        for (const int64_t n_tokens : {1, 512}) {
            EXPECT_EQ(experts(filter, n_tokens), "sm80_nvfp4_bf16_grouped_gemm_gate_up") << filter;
            EXPECT_EQ(finish(filter, n_tokens), "sm80_nvfp4_bf16_grouped_gemm_gate_up") << filter;
        }
    EXPECT_EQ(experts("*_exact_*", 1), "sm80_nvfp4_f32_exact_gate_up");
    EXPECT_EQ(finish("*_exact_*", 512), "sm80_nvfp4_f32_exact_gate_up");
}

TEST(CudaFilter, AGlobForbids) {
    EXPECT_EQ(experts("-sm90_*_gemv_*", 1), "sm80_nvfp4_bf16_gemv_gate_up");
    EXPECT_EQ(experts("-*_gemv_*", 1), "sm90_nvfp4_bf16_grouped_gemm_gate_up");
    EXPECT_EQ(experts("-sm90_*", 512), "sm80_nvfp4_bf16_grouped_gemm_gate_up");
    EXPECT_EQ(experts("-*_grouped_gemm_*", 512), "sm80_nvfp4_f32_exact_gate_up");
}

// The plan takes the best applicable kernel of those that a glob forces.
TEST(CudaFilter, AForcedGlobTakesTheBestOfItsMatches) {
    EXPECT_EQ(experts("sm90_*", 1), "sm90_nvfp4_bf16_gemv_gate_up");
    EXPECT_EQ(experts("sm90_*", 512), "sm90_nvfp4_bf16_grouped_gemm_gate_up");
    EXPECT_EQ(experts("sm80_*", 1), "sm80_nvfp4_bf16_gemv_gate_up");
    EXPECT_EQ(experts("sm80_*", 512), "sm80_nvfp4_bf16_grouped_gemm_gate_up");
}

TEST(CudaFilter, AForcedGemvTakesAllTokensThatItCan) {
    const auto max_tokens = [](const char* filter) {
        return cuda_plan(h200(), layer_with(), filter)->chosen(MOE_STAGE_EXPERTS, 1).most_tokens;
    };
    EXPECT_LT(max_tokens(nullptr), 16);
    EXPECT_EQ(max_tokens("sm90_*_gemv_*"), 32);
    EXPECT_EQ(max_tokens("sm80_*_gemv_*,sm80_*_grouped_gemm_*"), 32);
}

TEST(CudaFilter, AStageBindsAGlob) {
    const char* filter = "experts:sm80_*_grouped_gemm_*";
    EXPECT_EQ(experts(filter, 1), "sm80_nvfp4_bf16_grouped_gemm_gate_up");
    EXPECT_EQ(finish(filter, 512), "sm90_nvfp4_bf16_grouped_gemm_gate_up");
    filter = "-finish:*_gemv_*";
    EXPECT_EQ(experts(filter, 1), "sm90_nvfp4_bf16_gemv_gate_up");
    EXPECT_EQ(finish(filter, 1), "sm90_nvfp4_bf16_grouped_gemm_gate_up");
    for (const char* wrong : {"combine:*_gemv_*", "nothing:*", "-nothing:*"}) {
        const auto [status, text] = refusal(h200(), layer_with(), wrong);
        EXPECT_EQ(status, MOE_ERROR_INVALID_ARGUMENT) << wrong;
        EXPECT_NE(text.find("not a candidate"), std::string::npos) << text;
    }
}

// The gemv family does not read the float32 of the shared expert: finish takes the best that
// applies.
TEST(CudaFilter, AForcedGlobMayApplyInOneStageOnly) {
    const FakeLayer layer = layer_with("f32");
    EXPECT_EQ(experts("sm90_*_gemv_*,sm90_*_grouped_gemm_*", 512, layer),
              "sm90_nvfp4_bf16_grouped_gemm_gate_up");
    EXPECT_EQ(finish("sm90_*_gemv_*,sm90_*_grouped_gemm_*", 512, layer),
              "sm80_f32_f32_exact_gate_up");
    const auto [status, text] = refusal(h200(), layer, "finish:sm90_*");
    EXPECT_EQ(status, MOE_ERROR_UNSUPPORTED);
    EXPECT_EQ(text,
              "kernel_filter forces sm90_f32_bf16_gemv_gate_up, which does not apply: it does not "
              "read weights of these formats");
}

TEST(CudaFilter, AForcedGlobMustApplySomewhere) {
    const auto [status, text] = refusal(sm80(), layer_with(), "sm90_*");
    EXPECT_EQ(status, MOE_ERROR_UNSUPPORTED);
    EXPECT_EQ(text,
              "kernel_filter forces sm90_nvfp4_bf16_gemv_gate_up, which does not apply: it is made "
              "for another architecture");
    EXPECT_EQ(refusal(sm80(), layer_with(), "-sm90_*").first, MOE_OK);
}

TEST(CudaFilter, ContradictionsAreRefused) {
    const auto sentence = [](const char* filter) {
        const auto [status, text] = refusal(h200(), layer_with(), filter);
        EXPECT_EQ(status, MOE_ERROR_INVALID_ARGUMENT) << filter;
        return text;
    };
    EXPECT_EQ(sentence("sm90_*_gemv_*,-*_gemv_down"),
              "kernel_filter forces sm90_nvfp4_bf16_gemv_gate_up and forbids it");
    EXPECT_EQ(sentence("-experts:*,experts:*"),
              "kernel_filter forces sm90_nvfp4_bf16_gemv_gate_up and forbids it");
    EXPECT_EQ(sentence("sm90_nvfp4_bf16_gemv_gate_up,sm80_nvfp4_bf16_gemv_gate_up"),
              "kernel_filter forces sm90_nvfp4_bf16_gemv_gate_up and "
              "sm80_nvfp4_bf16_gemv_gate_up, of which the stage experts can have but one");
    for (const char* fine :
         {"sm90_nvfp4_bf16_gemv_gate_up,sm90_nvfp4_bf16_gemv_down",  // one candidate
          "sm90_nvfp4_bf16_gemv_gate_up,sm90_nvfp4_bf16_grouped_gemm_down",
          "experts:sm90_*,-finish:sm90_*", "sm90_*_gemv_*,sm80_*_gemv_*"})
        EXPECT_EQ(refusal(h200(), layer_with(), fine).second, "") << fine;
}

TEST(CudaFilter, NothingLeftForAStageIsRefused) {
    const auto [status, text] = refusal(h200(), layer_with(), "-*_router");
    EXPECT_EQ(status, MOE_ERROR_UNSUPPORTED);
    EXPECT_EQ(text, "kernel_filter leaves no candidate for stage route");
}

// Every old name is refused with a glob that the same plan knows.
TEST(CudaFilter, OldNamesAreRefusedWithTheNewOne) {
    const char* const old_names[] = {"cuda_any_f32_route",
                                     "cuda_any_f32_dispatch",
                                     "sm90_any_bf16_experts_one_token",
                                     "cuda_any_bf16_experts_one_token",
                                     "sm90_any_bf16_experts_grouped",
                                     "cuda_any_f16_experts_generic",
                                     "cuda_any_bf16_experts_generic",
                                     "cuda_any_f32_experts_exact",
                                     "cuda_any_f32_combine",
                                     "sm90_any_bf16_finish_one_token",
                                     "cuda_any_bf16_finish_one_token",
                                     "sm90_any_bf16_finish_grouped",
                                     "cuda_any_f16_finish_generic",
                                     "cuda_any_bf16_finish_generic",
                                     "cuda_any_f32_finish_exact"};
    for (const std::string old_name : old_names)
        for (const char* sign : {"", "+", "-"}) {
            const auto [status, text] = refusal(h200(), layer_with(), (sign + old_name).c_str());
            EXPECT_EQ(status, MOE_ERROR_INVALID_ARGUMENT) << old_name;
            const std::string begin = "kernel_filter names " + old_name + ", which is called ",
                              end = " now";
            ASSERT_EQ(text.substr(0, begin.size()), begin);
            ASSERT_EQ(text.substr(text.size() - end.size()), end);
            const std::string glob =
                text.substr(begin.size(), text.size() - begin.size() - end.size());
            const auto [again, why] = refusal(h200(), layer_with(), glob.c_str());
            EXPECT_NE(again, MOE_ERROR_INVALID_ARGUMENT) << glob << ": " << why;
        }
    EXPECT_EQ(refusal(h200(), layer_with(), "sm90_any_bf16_experts_one_token").second,
              "kernel_filter names sm90_any_bf16_experts_one_token, which is called "
              "experts:sm90_*_bf16_gemv_* now");
}

TEST(CudaFilter, AVariantIsRefusedWithItsKernel) {
    EXPECT_EQ(refusal(h200(), layer_with(), "sm90_nvfp4_bf16_grouped_gemm_down_wide").second,
              "kernel_filter names sm90_nvfp4_bf16_grouped_gemm_down_wide, a variant that the plan "
              "chooses of sm90_nvfp4_bf16_grouped_gemm_down");
}

}  // namespace
}  // namespace moe
