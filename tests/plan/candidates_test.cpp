// The candidate table and the choice from it: names, order, reasons, filter.
#include "libmoe/plan/candidates.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <set>

#include "libmoe/cpu/features.hpp"
#include "libmoe/formats/entries.hpp"
#include "libmoe/formats/format.hpp"
#include "libmoe/plan/plan.hpp"
#include "tests/plan/pattern.hpp"
#include "tests/plan/schema.hpp"
#include "tests/support/instruction_set.hpp"
#include "tests/support/matrices.hpp"

namespace moe {
namespace {

using moe_test::Plan;
using moe_test::sized;

moe_status try_plan(const char* format, moe_type intermediate, const char* filter, Plan& out,
                    uint32_t stages = 0) {
    const moe_layer_desc layer = test::plain_layer(64, 64, 4, 2);
    moe_format one = test::format_named(format).format;
    one.struct_size = sizeof one;
    const moe_format* formats[MOE_ROLE_COUNT];
    std::fill(std::begin(formats), std::end(formats), &one);
    auto desc = sized<moe_plan_desc>();
    desc.device = MOE_DEVICE_CPU;
    desc.layer = &layer;
    desc.x_type = MOE_TYPE_F32;
    desc.intermediate_type = intermediate;
    desc.formats = formats;
    desc.n_formats = MOE_ROLE_COUNT;
    desc.max_tokens = 8;
    desc.kernel_filter = filter;
    desc.stages = stages;
    moe_plan* plan = nullptr;
    const moe_status status = moe_plan_create(nullptr, &desc, &plan);
    out.reset(plan);
    return status;
}

std::vector<moe_candidate> candidates_of(const Plan& plan) {
    std::vector<moe_candidate> all;
    auto candidate = sized<moe_candidate>();
    for (uint32_t i = 0; moe_candidates(plan.get(), i, &candidate) == MOE_OK; ++i)
        all.push_back(candidate);
    return all;
}

std::vector<moe_candidate> candidates_of(const char* format, moe_type intermediate,
                                         const char* filter = nullptr) {
    Plan plan;
    EXPECT_MOE_OK(try_plan(format, intermediate, filter, plan));
    return plan ? candidates_of(plan) : std::vector<moe_candidate>{};
}

const moe_candidate& named(const std::vector<moe_candidate>& all, const std::string& name) {
    for (const moe_candidate& one : all)
        if (one.kernel == name) return one;
    ADD_FAILURE() << "no candidate " << name;
    return all.front();
}

std::string chosen(const std::vector<moe_candidate>& all, moe_stage stage) {
    for (const moe_candidate& one : all)
        if (one.stage == stage && one.chosen) return one.kernel;
    return "none";
}

TEST(Candidates, NamesAreUniqueAndSayWhatTheyAre) {
    const auto all = candidates_of("f32", MOE_TYPE_F32);
    std::set<std::string> names;
    for (const moe_candidate& one : all) {
        const test::Pattern pattern(std::string("^(cpu|avx2|avx512)_[a-z0-9]+_(f32|f64)_") +
                                    stage_name(one.stage) + "(_[a-z0-9]+)?$");
        const test::Pattern gemv(
            "^(avx2|avx512vnni|amx|neon|i8mm)_[a-z0-9_+]+_(f32|bf16(x2)?|int8(x[23])?)_gem[vm]_"
            "gate_"
            "up$");
        EXPECT_TRUE(pattern.is_in(one.kernel) || gemv.is_in(one.kernel)) << one.kernel;
        const std::string in_stage = std::string(stage_name(one.stage)) + ":" + one.kernel;
        EXPECT_TRUE(names.insert(in_stage).second) << in_stage << " is there twice";
    }
    EXPECT_GE(names.size(), 10u);
}

TEST(Candidates, ReferencesAreLastOfTheirStage) {
    const auto all = candidates_of("f32", MOE_TYPE_F32);
    std::map<moe_stage, bool> reference_seen;
    std::map<moe_stage, std::set<std::string>> references;
    moe_stage stage = MOE_STAGE_ROUTE;
    for (const moe_candidate& one : all) {
        EXPECT_GE(one.stage, stage) << "stages are in order";
        stage = one.stage;
        const std::string name = one.kernel;
        const bool reference = name.size() > 4 && name.compare(name.size() - 4, 4, "_ref") == 0;
        EXPECT_TRUE(reference || !reference_seen[stage]) << name << " comes after a reference";
        reference_seen[stage] |= reference;
        EXPECT_TRUE(!reference || references[stage].insert(name.substr(0, 11)).second)
            << name << ": one reference for each arithmetic";
    }
    for (const moe_stage one : all_stages) EXPECT_TRUE(reference_seen[one]) << stage_name(one);
}

TEST(Candidates, ExactlyOneIsChosenForEachStage) {
    for (const char* format : {"f32", "bf16", "nvfp4", "q8_0"})
        for (const moe_type type : {MOE_TYPE_F32, MOE_TYPE_BF16, MOE_TYPE_F16, MOE_TYPE_F64}) {
            const auto all = candidates_of(format, type);
            for (const moe_stage stage : all_stages)
                EXPECT_EQ(std::count_if(all.begin(), all.end(),
                                        [&](const moe_candidate& one) {
                                            return one.stage == stage && one.chosen;
                                        }),
                          1)
                    << format << " " << stage_name(stage);
            for (const moe_candidate& one : all) {
                EXPECT_TRUE(one.applicable || !one.chosen) << one.kernel;
                EXPECT_GT(std::strlen(one.reason), 10u) << one.kernel;
            }
        }
}

// Names say how the kernel takes the activations of each GEMM: x is float32 here.
TEST(Candidates, GemvKernelsAreNamedByWeightsAndActivations) {
    if (!cpu::has_avx512vnni() && !cpu::has_neon())
        GTEST_SKIP() << "neither AVX-512 with VNNI and VBMI nor NEON with dot products";
    const std::string q8_0 = cpu::has_i8mm()   ? "i8mm_q8_0_"
                             : cpu::has_neon() ? "neon_q8_0_"
                                               : "avx512vnni_q8_0_";
    const auto all = candidates_of("q8_0", MOE_TYPE_BF16);
    const moe_candidate& gemv = named(all, q8_0 + "int8x3_gemv_gate_up");
    EXPECT_EQ(gemv.chosen, 1);
    EXPECT_EQ(gemv.stage, MOE_STAGE_EXPERTS);
    const auto filtered = candidates_of("q8_0", MOE_TYPE_BF16, (q8_0 + "int8x2_gemv_down").c_str());
    EXPECT_STREQ(named(filtered, gemv.kernel).reason_code, "forced");
}

// MOE_CPU_ISA names the largest set that may be used.
TEST(Candidates, TheEnvironmentForbidsInstructionSets) {
    const std::pair<const char*, const char*> cases[] = {
        {"scalar", "cpu_any_f32_experts_ref"},
#if defined(__x86_64__)
        {"avx2", cpu::has_avx2() ? "avx2_f32_f32_gemv_gate_up" : "cpu_any_f32_experts_ref"},
        {"avx512", cpu::has_avx512() ? "avx512_dense_f32_experts"
                   : cpu::has_avx2() ? "avx2_f32_f32_gemv_gate_up"
                                     : "cpu_any_f32_experts_ref"},
#else
        {"neon", cpu::has_neon() ? "neon_f32_f32_gemv_gate_up" : "cpu_any_f32_experts_ref"},
#endif
    };
    const std::string best = chosen(candidates_of("f32", MOE_TYPE_F32), MOE_STAGE_EXPERTS);
    for (const auto& [set, kernel] : cases) {
        const test::InstructionSet most(set);
        EXPECT_EQ(chosen(candidates_of("f32", MOE_TYPE_F32), MOE_STAGE_EXPERTS), kernel) << set;
    }
    const test::InstructionSet unknown("no_such_set");
    EXPECT_EQ(chosen(candidates_of("f32", MOE_TYPE_F32), MOE_STAGE_EXPERTS), best);
}

TEST(Candidates, TheBestThatAppliesIsChosen) {
    for (const char* format : {"bf16", "kbit4"}) {
        const std::string gemv = std::string(format) + "_f32_gemv_gate_up";
        const bool dense = is_plain(test::format_named(format).format);
        const std::string wanted = cpu::has_avx512vnni()        ? "avx512vnni_" + gemv
                                   : cpu::has_avx512() && dense ? "avx512_dense_f32_experts"
                                   : cpu::has_neon()            ? "neon_" + gemv
                                   : cpu::has_avx2()            ? "avx2_" + gemv
                                                                : "cpu_any_f32_experts_ref";
        EXPECT_EQ(chosen(candidates_of(format, MOE_TYPE_BF16), MOE_STAGE_EXPERTS), wanted);
    }
    for (const char* format : {"f32", "kbit4"})
        for (const char* stage : {"experts", "combine", "finish"}) {
            const std::string name = std::string("cpu_any_f64_") + stage + "_ref";
            EXPECT_EQ(named(candidates_of(format, MOE_TYPE_F64), name).chosen, 1) << format;
        }
}

TEST(Candidates, TheFilterForcesAndForbids) {
    const std::string reference = "cpu_any_f32_experts_ref";
    for (const char* filter :
         {"cpu_any_f32_experts_ref", "+cpu_any_f32_experts_ref", " +cpu_any_f32_experts_ref , ,"}) {
        const auto all = candidates_of("f32", MOE_TYPE_F32, filter);
        EXPECT_STREQ(named(all, reference).reason_code, "forced") << filter;
        EXPECT_EQ(chosen(all, MOE_STAGE_EXPERTS), reference);
    }
    const auto without =
        candidates_of("f32", MOE_TYPE_F32, "-avx512_dense_f32_experts,-avx2_*,-*_gemv_*");
    EXPECT_EQ(chosen(without, MOE_STAGE_EXPERTS), reference);
    Plan plan;
    EXPECT_MOE_ERROR(try_plan("f32", MOE_TYPE_F32, "no_such_kernel", plan),
                     MOE_ERROR_INVALID_ARGUMENT, "no_such_kernel");
    EXPECT_MOE_ERROR(try_plan("f32", MOE_TYPE_F32, "cpu_any_f64_experts_ref", plan),
                     MOE_ERROR_UNSUPPORTED, "cpu_any_f64_experts_ref");
    EXPECT_MOE_ERROR(try_plan("f32", MOE_TYPE_F32, "-cpu_any_f32_route_ref", plan),
                     MOE_ERROR_UNSUPPORTED, "route");
}

// Codes of the CUDA table, which is asked without a device.
std::set<std::string> cuda_codes() {
    Plan plan;
    EXPECT_MOE_OK(try_plan("bf16", MOE_TYPE_BF16, nullptr, plan));
    WeightsLayout layout(plan->runtime->memory, plan->layout);
    std::set<std::string> codes;
    const auto ask = [&](int32_t major, bool unfused, bool fused, moe_type x, moe_type intermediate,
                         bool batch_invariant = false, const GemvRange& gemv = {},
                         bool quantizes_to_fp8 = false) {
        cuda::Setup setup;
        setup.batch_invariant = batch_invariant;
        setup.device.major = major;
        setup.is_gate_up_fused = fused;
        Problem problem{&layout, x, intermediate, unfused, &setup, gemv, {}};
        problem.quantizes_to_fp8 = quantizes_to_fp8;
        for (const Candidate& one : choose_candidates(plan->runtime->memory, problem, nullptr))
            codes.insert(one.reason->code);
    };
    ask(8, false, true, MOE_TYPE_BF16, MOE_TYPE_BF16);
    ask(9, true, true, MOE_TYPE_BF16, MOE_TYPE_BF16);
    ask(9, false, false, MOE_TYPE_BF16, MOE_TYPE_BF16);
    ask(9, false, true, MOE_TYPE_F32, MOE_TYPE_F32);
    ask(9, false, true, MOE_TYPE_BF16, MOE_TYPE_F16);
    ask(9, false, true, MOE_TYPE_BF16, MOE_TYPE_BF16, true);
    ask(9, false, true, MOE_TYPE_BF16, MOE_TYPE_BF16);  // gemv_experts is 0
    ask(9, false, true, MOE_TYPE_BF16, MOE_TYPE_BF16, false, {.lacks_rows = true});
    for (const moe_role role : {MOE_ROLE_GATE, MOE_ROLE_UP, MOE_ROLE_DOWN}) {
        layout.formats[role] = test::format_named("fp8_128x128").format;
        layout.formats[role].group_columns = 64;
    }
    ask(9, false, true, MOE_TYPE_BF16, MOE_TYPE_BF16, false, {}, true);
    layout.formats[MOE_ROLE_UP] = nvfp4_pre_quant_formats[0].format;
    layout.formats[MOE_ROLE_GATE] = layout.formats[MOE_ROLE_UP];
    ask(9, false, false, MOE_TYPE_BF16, MOE_TYPE_BF16);
    layout.layer.latent = 64;
    ask(9, false, true, MOE_TYPE_BF16, MOE_TYPE_BF16);
    return codes;
}

// The candidate for small batches, where it can take 16 tokens and is worth it for 4.
std::optional<Candidate> small_batch_candidate(int32_t major, const char* filter) {
    Plan plan;
    EXPECT_MOE_OK(try_plan("bf16", MOE_TYPE_BF16, nullptr, plan));
    const WeightsLayout layout(plan->runtime->memory, plan->layout);
    cuda::Setup setup;
    setup.device.major = major;
    setup.is_gate_up_fused = true;
    const Problem problem{&layout, MOE_TYPE_BF16, MOE_TYPE_BF16, false, &setup, {16, 4}, {}};
    for (const Candidate& one : choose_candidates(plan->runtime->memory, problem, filter))
        if (one.stage == MOE_STAGE_EXPERTS && one.tokens == Tokens::small_batch && one.is_chosen)
            return one;
    return std::nullopt;
}

std::string small_batch_kernel(int32_t major, const char* filter) {
    const auto found = small_batch_candidate(major, filter);
    return found ? found->name() : "none";
}

int32_t small_batch_tokens(int32_t major, const char* filter) {
    const auto found = small_batch_candidate(major, filter);
    return found ? found->most_tokens : 0;
}

TEST(Candidates, SmallBatchesHaveKernelsOnEveryArchitecture) {
    const std::string hopper = "sm90_bf16_bf16_gemv_gate_up",
                      portable = "sm80_bf16_bf16_gemv_gate_up";
    EXPECT_EQ(small_batch_kernel(9, nullptr), hopper);
    EXPECT_EQ(small_batch_kernel(9, "-sm90_bf16_bf16_gemv_down"), portable);
    EXPECT_EQ(small_batch_kernel(9, portable.c_str()), portable);
    for (const int32_t major : {8, 10, 12})
        EXPECT_EQ(small_batch_kernel(major, nullptr), portable) << major;
}

TEST(Candidates, AForcedKernelForSmallBatchesTakesAllThatItCan) {
    EXPECT_EQ(small_batch_tokens(9, nullptr), 4);
    EXPECT_EQ(small_batch_tokens(9, "sm90_bf16_bf16_gemv_gate_up"), 16);
    EXPECT_EQ(small_batch_tokens(9, "sm80_bf16_bf16_gemv_down"), 16);
    EXPECT_EQ(small_batch_kernel(9, "sm90_bf16_bf16_grouped_gemm_gate_up"), "none");
    EXPECT_EQ(
        small_batch_tokens(9, "sm90_bf16_bf16_grouped_gemm_gate_up,sm90_bf16_bf16_gemv_gate_up"),
        16);
}

TEST(Candidates, WishesThatContradictEachOtherAreRefused) {
    const auto refusal = [](const char* filter) {
        Plan plan;
        EXPECT_EQ(try_plan("bf16", MOE_TYPE_F32, filter, plan), MOE_ERROR_INVALID_ARGUMENT);
        return std::string(moe_last_error());
    };
    EXPECT_EQ(refusal("+cpu_any_f32_experts_ref,-cpu_any_f32_experts_ref"),
              "kernel_filter forces cpu_any_f32_experts_ref and forbids it");
    EXPECT_EQ(refusal("cpu_any_f32_experts_ref,cpu_any_f64_experts_ref"),
              "kernel_filter forces cpu_any_f32_experts_ref and cpu_any_f64_experts_ref, of which "
              "the stage experts can have but one");
    Plan plan;  // once more is no contradiction, nor another stage
    EXPECT_MOE_OK(try_plan("bf16", MOE_TYPE_F32,
                           "cpu_any_f32_experts_ref,+cpu_any_f32_experts_ref,"
                           "cpu_any_f32_combine_ref",
                           plan));
}

// Codes that plans give on this machine, and the sentence of each.
std::map<std::string, std::string> reachable_codes() {
    std::map<std::string, std::string> codes;
    for (const char* format : {"f32", "nvfp4"})
        for (const moe_type type : {MOE_TYPE_F32, MOE_TYPE_F64})
            for (const char* filter : {"", "cpu_any_f32_experts_ref", "-cpu_any_f32_experts_ref"}) {
                Plan plan;
                if (try_plan(format, type, filter, plan) != MOE_OK) continue;
                for (const moe_candidate& one : candidates_of(plan)) {
                    const auto [known, is_new] = codes.emplace(one.reason_code, one.reason);
                    EXPECT_TRUE(is_new || known->second == one.reason)
                        << "two sentences for " << known->first;
                }
            }
    return codes;
}

// Why the gemm kernels of the CPU are not used beside the gemv kernels.
std::set<std::string> codes_of_panels() {
    if (!cpu::has_avx512vnni()) return {"many_rows", "few_tokens", "workspace"};
    const test::InstructionSet without_amx("avx512bf16");
    std::set<std::string> codes;
    const auto ask = [&](int64_t max_tokens, bool has_room, bool batch_invariant) {
        Plan plan;
        EXPECT_MOE_OK(try_plan("q8_0", MOE_TYPE_BF16, nullptr, plan));
        Problem problem{&plan->layout, MOE_TYPE_BF16, MOE_TYPE_BF16, false, nullptr, {}, {}};
        problem.max_tokens = max_tokens;
        problem.has_room_for_panels = has_room;
        problem.batch_invariant = batch_invariant;
        for (const Candidate& one : choose_candidates(plan->runtime->memory, problem, nullptr))
            if (one.tokens == Tokens::many_rows && one.stage == MOE_STAGE_EXPERTS &&
                one.arithmetic == cpu::Arithmetic::gemv_avx512vnni)
                codes.insert(one.reason->code);
    };
    ask(64, true, false);
    EXPECT_EQ(codes, std::set<std::string>{"many_rows"});
    ask(64, true, true);
    ask(64, false, false);
    ask(7, true, false);
    EXPECT_EQ(codes,
              (std::set<std::string>{"many_rows", "batch_invariant", "workspace", "few_tokens"}));
    return codes;
}

// Panels of words pay from fewer rows than those of float32, and looked up codes from the fewest.
TEST(Candidates, PanelsOfAvx2TakeTheRowsFromWhichOnTheyPay) {
    if (!cpu::has_avx2()) GTEST_SKIP() << "no AVX2";
    const test::InstructionSet avx2("avx2");
    for (const auto& [format, rows] :
         {std::pair{"q8_0", 5}, std::pair{"mxfp4", 5}, std::pair{"iq4_nl", 3},
          std::pair{"bf16", 16}, std::pair{"kbit4", 12}}) {
        Plan plan;
        ASSERT_MOE_OK(try_plan(format, MOE_TYPE_BF16, nullptr, plan));
        Problem problem{&plan->layout, MOE_TYPE_BF16, MOE_TYPE_BF16, false, nullptr, {}, {}};
        problem.max_tokens = 64;
        int found = 0;
        for (const Candidate& one : choose_candidates(plan->runtime->memory, problem, nullptr)) {
            if (one.tokens != Tokens::many_rows || !one.is_chosen) continue;
            EXPECT_EQ(one.arithmetic, cpu::Arithmetic::gemv_avx2);
            EXPECT_EQ(one.min_rows.gate_up, rows) << format;
            EXPECT_EQ(one.min_rows.down, rows) << format;
            ++found;
        }
        EXPECT_EQ(found, 1) << format;
    }
}

// A pattern may force the gemm kernels of families that were not chosen beside those of one that
// was, but not them alone.
TEST(Candidates, PatternsMayForceTheGemmKernelsOfSeveralFamilies) {
    if (!cpu::has_avx512vnni()) GTEST_SKIP() << "no AVX-512 with VNNI and VBMI";
    Plan plan;
    EXPECT_MOE_OK(try_plan("q8_0", MOE_TYPE_BF16, "experts:*_gemm_*", plan));
    EXPECT_MOE_OK(try_plan("q8_0", MOE_TYPE_BF16, "experts:avx2_*,experts:*_gemm_*", plan));
    // The gemv beside them comes along, unless it is forbidden.
    EXPECT_MOE_OK(try_plan("q8_0", MOE_TYPE_BF16, "experts:avx2_*_gemm_*", plan));
    const char* name = nullptr;
    EXPECT_MOE_OK(moe_plan_kernel(plan.get(), MOE_STAGE_EXPERTS, 1, &name));
    EXPECT_EQ(std::string(name).find("avx2_"), 0u) << name;
    EXPECT_MOE_ERROR(try_plan("q8_0", MOE_TYPE_BF16, "experts:avx2_*_gemm_*,-avx2_*_gemv_*", plan),
                     MOE_ERROR_UNSUPPORTED, "beside it");
}

TEST(Candidates, EveryReasonIsReachableAndInTheSchema) {
    const auto listed =
        test::explain_schema()["$defs"]["candidate"]["properties"]["reason_code"]["enum"];
    std::set<std::string> in_schema(listed.begin(), listed.end()), reached;
    EXPECT_EQ(in_schema.size(), listed.size());
    for (const auto& [code, sentence] : reachable_codes()) {
        EXPECT_TRUE(in_schema.count(code)) << code;
        reached.insert(code);
    }
    reached.merge(cuda_codes());
    if (cpu::has_avx512()) reached.insert("isa");  // this machine lacks nothing
    reached.merge(codes_of_panels());
    if (!cpu::has_avx2()) reached.insert({"weight_type", "slower", "not_forced", "forbidden"});
    reached.insert({"shape", "gate_up_types"});  // of earlier versions: a schema only grows
    EXPECT_EQ(reached, in_schema);
}

TEST(Candidates, InstructionSetsAreAskedBeforeAnythingElse) {
    const auto all = candidates_of("nvfp4", MOE_TYPE_F64);
    EXPECT_STREQ(named(all, "avx512_dense_f32_experts").reason_code,
                 cpu::has_avx512() ? "weight_type" : "isa");
    EXPECT_STREQ(named(all, "avx2_dense_f32_experts").reason_code,
                 cpu::has_avx2() ? "weight_type" : "isa");
}

TEST(Candidates, PlanKernelAgreesWithTheList) {
    Plan plan;
    ASSERT_MOE_OK(try_plan("bf16", MOE_TYPE_BF16, nullptr, plan));
    for (const moe_stage stage : all_stages) {
        const char* name = nullptr;
        ASSERT_MOE_OK(moe_plan_kernel(plan.get(), stage, 3, &name));
        EXPECT_EQ(name, chosen(candidates_of(plan), stage));
    }
    const char* name = nullptr;
    EXPECT_MOE_ERROR(moe_plan_kernel(plan.get(), static_cast<moe_stage>(3), 1, &name),
                     MOE_ERROR_INVALID_ARGUMENT, "stage is 3");
}

}  // namespace
}  // namespace moe
