// The lists of moe-bench: every case has a plan on a Hopper GPU, with the kernels that its list is
// about, and what it is compared with is in the same list.
#include "bench/named_lists.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <stdexcept>

#include "bench/formats.hpp"
#include "bench/plan_request.hpp"
#include "tests/plan/fake_device.hpp"

namespace moe::bench {
namespace {

std::set<std::string> names_of(const std::vector<Case>& cases) {
    std::set<std::string> names;
    for (const Case& one : cases) names.insert(one.name());
    return names;
}

// The kernel of gate and up that a plan on an H200 takes for a case.
std::string kernel_of(const Case& one) {
    const PlanRequest request(one, one.n_tokens, MOE_DEVICE_CPU);
    moe_plan_desc desc = request.desc;
    desc.kernel_filter = nullptr;
    desc.activation_quantization = MOE_ACTIVATION_QUANTIZATION_NONE;  // FP8 is not for the CPU
    moe_plan* plan = nullptr;
    if (moe_plan_create(nullptr, &desc, &plan) != MOE_OK) return moe_last_error();
    plan->quantizes_to_fp8 = one.fp8_activations;
    try {
        const auto moved =
            test::moved_to(test::h200(), moe_test::Plan(plan), request.desc.kernel_filter);
        return test::chosen_kernel(moved, MOE_STAGE_EXPERTS, one.n_tokens);
    } catch (const std::exception& error) {
        return error.what();
    }
}

bool is_of(const std::string& kernel, const std::string& begin, const std::string& part) {
    return kernel.starts_with(begin) && kernel.find(part) != kernel.npos;
}

TEST(NamedLists, NoCaseIsThereTwiceAndNoListTakesTooLong) {
    for (const std::string& list : list_names()) {
        const std::vector<Case> cases = named_list(list);
        EXPECT_EQ(names_of(cases).size(), cases.size()) << list;
        EXPECT_LE(cases.size(), list == "hopper" ? 1100u : list == "short" ? 170u : 900u) << list;
        EXPECT_GT(cases.size(), 100u) << list;
    }
    EXPECT_THROW(named_list("long"), std::runtime_error);
}

TEST(NamedLists, TheFirstIsTheListOfEarlierResults) {
    EXPECT_EQ(list_names().front(), "hopper");
    EXPECT_EQ(named_list("hopper").size(), 1029u);
}

// Kernels that multiply value by value are none of those that a list is to measure.
TEST(NamedLists, EveryCaseHasAPlan) {
    std::map<std::string, std::string> kernels;
    for (const std::string& list : list_names())
        for (const Case& one : named_list(list)) {
            auto& kernel = kernels[one.name()];
            if (kernel.empty()) kernel = kernel_of(one);
            EXPECT_TRUE(is_of(kernel, "sm", "_gemv_") || is_of(kernel, "sm", "_grouped_gemm_"))
                << one.name() << ": " << kernel;
        }
}

TEST(NamedLists, PortableCasesHaveNoKernelOfHopper) {
    int n_portable = 0;
    for (const Case& one : named_list("portable")) {
        const std::string kernel = kernel_of(one);
        EXPECT_TRUE(kernel.starts_with(one.kernels.empty() ? "sm90_" : "sm80_"))
            << one.name() << ": " << kernel;
        n_portable += !one.kernels.empty();
    }
    EXPECT_EQ(2u * n_portable, named_list("portable").size());
}

TEST(NamedLists, Fp16CasesStandBesideOnesInBfloat16) {
    const auto names = names_of(named_list("fp16"));
    int n_f16 = 0;
    for (Case one : named_list("fp16")) {
        if (one.x_type == MOE_TYPE_BF16) continue;
        n_f16 += one.intermediate_type == MOE_TYPE_F16;
        one.x_type = one.intermediate_type = MOE_TYPE_BF16;
        EXPECT_TRUE(names.count(one.name())) << one.name();
    }
    EXPECT_EQ(3u * n_f16, names.size());
}

TEST(NamedLists, GateAndUpThatDifferStandBesideOnesThatDoNot) {
    const auto names = names_of(named_list("formats"));
    int n_mixed = 0;
    for (Case one : named_list("formats")) {
        const ExpertFormats of = expert_formats(one.format);
        if (of.gate == of.up) continue;
        ++n_mixed;
        for (const std::string& both : {of.gate, of.up}) {
            one.format = both == of.down ? both : both + "+" + of.down;
            EXPECT_TRUE(names.count(one.name())) << one.name();
        }
    }
    EXPECT_EQ(n_mixed, 3 * 8);
}

TEST(NamedLists, NamesSayWhatDiffers) {
    Case one{find_model("mixtral"), "q4_k+q6_k", Mode::ids, 8, 0};
    EXPECT_EQ(one.name(), "mixtral/q4_k+q6_k/ids/T8/uniform");
    one.x_type = MOE_TYPE_F16;
    EXPECT_EQ(one.name(), "mixtral/q4_k+q6_k/ids/T8/uniform/x_f16");
    one.intermediate_type = MOE_TYPE_F16;
    one.kernels = "-experts:sm90_*";
    EXPECT_EQ(one.name(),
              "mixtral/q4_k+q6_k/ids/T8/uniform/x_f16/intermediate_f16/-experts:sm90_*");
}

TEST(ExpertFormats, OneTwoOrThree) {
    const auto joined = [](const char* name) {
        const ExpertFormats of = expert_formats(name);
        return of.gate + " " + of.up + " " + of.down;
    };
    EXPECT_EQ(joined("bf16"), "bf16 bf16 bf16");
    EXPECT_EQ(joined("q4_k+q6_k"), "q4_k q4_k q6_k");
    EXPECT_EQ(joined("q4_k+q5_k+q6_k"), "q4_k q5_k q6_k");
}

}  // namespace
}  // namespace moe::bench
