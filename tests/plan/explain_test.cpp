// What a plan says of itself: golden text for three models, JSON by the schema, chunks, and layout
// ids.
#include <gtest/gtest.h>

#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "libmoe/cpu/features.hpp"
#include "libmoe/plan/plan.hpp"
#include "tests/plan/pattern.hpp"
#include "tests/plan/schema.hpp"
#include "tests/support/instruction_set.hpp"
#include "tests/support/matrices.hpp"

namespace moe {
namespace {

using moe_test::Plan;
using moe_test::Runtime;
using moe_test::sized;

moe_layer_desc qwen3_30b() {
    return test::plain_layer(2048, 768, 128, 8);
}

moe_layer_desc mixtral() {
    return test::plain_layer(4096, 14336, 8, 2);
}

moe_layer_desc deepseek_v3() {
    moe_layer_desc desc = test::plain_layer(7168, 2048, 256, 8);
    desc.score = MOE_SCORE_SIGMOID;
    desc.has_selection_bias = 1;
    desc.n_group = 8;
    desc.topk_group = 4;
    desc.group_score = MOE_GROUP_SCORE_TOP2_SUM;
    desc.has_routed_scale = 1;
    desc.routed_scale = 2.5f;
    desc.shared_intermediate = 2048;
    desc.shared_activation = MOE_ACTIVATION_SILU;
    desc.shared_is_gated = 1;
    return desc;
}

struct Question {
    moe_layer_desc layer;
    const char* format;
    int64_t max_tokens = 512;
    moe_type x_type = MOE_TYPE_BF16;
    uint64_t max_workspace_bytes = 0;
    const moe_slice* slice = nullptr;
    uint32_t stages = 0;
    const char* filter = nullptr;
    const char* down = nullptr;  // format of down, where it differs
};

// Four threads, whatever the machine has: scratch grows with them.
Runtime four_threads() {
    auto desc = sized<moe_runtime_desc>();
    desc.n_threads = 4;
    moe_runtime* runtime = nullptr;
    EXPECT_MOE_OK(moe_runtime_create(&desc, &runtime));
    return Runtime(runtime);
}

moe_status try_plan(const Question& question, Plan& out) {
    const Runtime runtime = four_threads();
    moe_format format = test::format_named(question.format).format,
               router = test::format_named("bf16").format;
    format.struct_size = router.struct_size = sizeof format;
    const moe_format* formats[MOE_ROLE_COUNT];
    std::fill(std::begin(formats), std::end(formats), &format);
    formats[MOE_ROLE_ROUTER] = &router;
    moe_format down = test::format_named(question.down ? question.down : question.format).format;
    down.struct_size = sizeof down;
    formats[MOE_ROLE_DOWN] = &down;
    auto desc = sized<moe_plan_desc>();
    desc.device = MOE_DEVICE_CPU;
    desc.layer = &question.layer;
    desc.x_type = question.x_type;
    desc.formats = formats;
    desc.n_formats = MOE_ROLE_COUNT;
    desc.max_tokens = question.max_tokens;
    desc.max_workspace_bytes = question.max_workspace_bytes;
    desc.slice = question.slice;
    desc.partial = question.slice != nullptr;
    desc.stages = question.stages;
    desc.kernel_filter = question.filter;
    moe_plan* plan = nullptr;
    const moe_status status = moe_plan_create(runtime.get(), &desc, &plan);
    out.reset(plan);
    return status;
}

Plan plan_for(const Question& question) {
    Plan plan;
    EXPECT_MOE_OK(try_plan(question, plan));
    return plan;
}

std::string explain(const Plan& plan, moe_explain_form form) {
    uint64_t size = 0;
    EXPECT_MOE_OK(moe_plan_explain(plan.get(), form, nullptr, 0, &size));
    std::string text(size, '#');
    EXPECT_MOE_OK(moe_plan_explain(plan.get(), form, text.data(), size, &size));
    EXPECT_EQ(text.back(), '\0');
    text.pop_back();
    return text;
}

// What differs between machines or with every layout version becomes a placeholder: `by_machine` is
// a pattern of the stages whose kernel depends on the instruction set. Candidates of instruction
// sets are left out, and those by matrix (golden_explain_test.cpp).
std::string normalised(const std::string& text, const std::string& by_machine) {
    std::string out;
    std::istringstream lines(text);
    const std::pair<std::string, std::string> rules[] = {
        {"device cpu 0, 4 threads: .*", "device cpu 0, 4 threads: <reason>"},
        {"layout [0-9a-f]{32}", "layout <id>"},
        {"stage (" + by_machine + "): (avx512_dense|avx2_dense|cpu_any)_f32_[a-z_]+",
         "stage $1: <by machine>"},
        {"  [-*] cpu_any_f32_(" + by_machine + ")_ref: .*", "  ? cpu_any_f32_$1_ref: <by machine>"},
    };
    for (std::string line; std::getline(lines, line);) {
        if (test::Pattern("^  [-*] (avx|amx|neon|i8mm)").is_in(line)) continue;
        if (test::Pattern("^    |^  [a-z_, ]+ of [a-z0-9_]+$").is_in(line)) continue;
        for (const auto& [pattern, with] : rules)
            line = test::Pattern(pattern).replaced(line, with);
        out += line + "\n";
    }
    return out;
}

std::string stage_text(const std::string& stage, bool by_machine) {
    const std::string f32 = "cpu_any_f32_" + stage + "_ref", f64 = "cpu_any_f64_" + stage + "_ref";
    return "stage " + stage + ": " + (by_machine ? "<by machine>" : f32) + "\n" +
           (by_machine ? "  ? " + f32 + ": <by machine>\n"
                       : "  * " + f32 + ": the first of the list that applies\n") +
           "  - " + f64 +
           ": its arithmetic does not match the intermediate type: F64 asks for float64, "
           "F32 for float32, F16 for float16\n";
}

struct Golden {
    std::string head;
    bool experts_by_machine, finish_by_machine;
    std::string tail;
};

std::string text_of(const Golden& golden) {
    return "device cpu 0, 4 threads: <reason>\n" + golden.head +
           "types x bf16 out bf16 intermediate bf16\n"
           "stage route: cpu_any_f32_route_ref\n"
           "  * cpu_any_f32_route_ref: the first of the list that applies\n"
           "stage dispatch: cpu_any_f32_dispatch_ref\n"
           "  * cpu_any_f32_dispatch_ref: the first of the list that applies\n" +
           stage_text("experts", golden.experts_by_machine) + stage_text("combine", false) +
           stage_text("finish", golden.finish_by_machine) + golden.tail +
           "predicted time: unknown: no machine with its instruction sets was measured\n";
}

TEST(Explain, Qwen3InBf16) {
    const test::InstructionSet most("scalar");
    EXPECT_EQ(normalised(explain(plan_for({qwen3_30b(), "bf16"}), MOE_EXPLAIN_TEXT), "none"),
              text_of({"layer hidden 2048 intermediate 768 experts 128 top_k 8 latent 0 shared 0\n"
                       "slice 128 local experts, intermediate [0, +768)\n",
                       false, false,
                       "weights 1208483840 bytes, layout <id>\n"
                       "  router bf16 x1: 524288 bytes\n"
                       "  gate bf16 x128: 402653184 bytes\n"
                       "  up bf16 x128: 402653184 bytes\n"
                       "  down bf16 x128: 402653184 bytes\n"
                       "workspace 71760704 bytes for 512 tokens, 512 at a time\n"}));
}

TEST(Explain, MixtralInNvfp4) {
    const test::InstructionSet most("scalar");
    EXPECT_EQ(normalised(explain(plan_for({mixtral(), "nvfp4", 64}), MOE_EXPLAIN_TEXT), "none"),
              text_of({"layer hidden 4096 intermediate 14336 experts 8 top_k 2 latent 0 shared 0\n"
                       "slice 8 local experts, intermediate [0, +14336)\n",
                       false, false,
                       "weights 792788992 bytes, layout <id>\n"
                       "  router bf16 x1: 65536 bytes\n"
                       "  gate nvfp4 x8: 264241152 bytes\n"
                       "  up nvfp4 x8: 264241152 bytes\n"
                       "  down nvfp4 x8: 264241152 bytes\n"
                       "workspace 20404992 bytes for 64 tokens, 64 at a time\n"}));
}

TEST(Explain, DeepSeekV3InFp8) {
    const test::InstructionSet most("scalar");
    EXPECT_EQ(
        normalised(explain(plan_for({deepseek_v3(), "fp8_128x128", 4096}), MOE_EXPLAIN_TEXT),
                   "none"),
        text_of({"layer hidden 7168 intermediate 2048 experts 256 top_k 8 latent 0 shared 2048\n"
                 "slice 256 local experts, intermediate [0, +2048)\n",
                 false, false,
                 "weights 11324762624 bytes, layout <id>\n"
                 "  router bf16 x1: 3670016 bytes\n"
                 "  gate fp8_128x128 x256: 3759013888 bytes\n"
                 "  up fp8_128x128 x256: 3759013888 bytes\n"
                 "  down fp8_128x128 x256: 3759013888 bytes\n"
                 "  shared_gate fp8_128x128 x1: 14683648 bytes\n"
                 "  shared_up fp8_128x128 x1: 14683648 bytes\n"
                 "  shared_down fp8_128x128 x1: 14683648 bytes\n"
                 "workspace 134015360 bytes for 4096 tokens, 276 at a time\n"}));
}

// A layer as Q4_K_M files have it: the text of its experts where the gemv kernels run.
TEST(Explain, Qwen3InQ4KWithDownInQ6K) {
    if (!cpu::has_avx512vnni()) GTEST_SKIP() << "no AVX-512 with VNNI and VBMI";
    const test::InstructionSet without_amx("avx512bf16");
    const std::string text = explain(
        plan_for({.layer = qwen3_30b(), .format = "q4_k", .down = "q6_k"}), MOE_EXPLAIN_TEXT);
    const std::string experts =
        "stage experts: avx512vnni_q4_k_int8x2_gemv_gate_up\n"
        "  * avx512vnni_q4_k_int8x2_gemv_gate_up, avx512vnni_q6_k_int8x2_gemv_down: the first of "
        "the "
        "list that applies\n"
        "  - amx_q4_k_bf16_gemm_gate_up, amx_q6_k_bf16_gemm_down: this machine or build lacks its "
        "instruction set\n"
        "  + avx512vnni_q4_k_int8x2_gemm_gate_up, avx512vnni_q6_k_int8x2_gemm_down (from 10 rows "
        "of a matrix): taken beside the one above for matrices with many rows\n"
        "  - avx512_dense_f32_experts: it does not read weights of these formats\n";
    EXPECT_NE(text.find(experts), std::string::npos) << text;
}

// Names say in which form the kernels of bf16 and fp8 read activations: in bfloat16, or in pairs of
// it where it would not be exact, where the processor multiplies it.
TEST(Explain, GemvKernelsOfBfloat16AreNamedByTheirRows) {
    if (!cpu::has_avx512bf16()) GTEST_SKIP() << "no AVX-512 with BF16";
    moe_layer_desc latent = qwen3_30b();
    latent.latent = 256;
    const auto has = [](const Question& question, const char* name) {
        const std::string text = explain(plan_for(question), MOE_EXPLAIN_TEXT);
        EXPECT_NE(text.find(name), std::string::npos) << text;
    };
    {
        const test::InstructionSet most("avx512bf16");
        has({qwen3_30b(), "bf16"},
            "* avx512vnni_bf16_bf16_gemv_gate_up, avx512vnni_bf16_bf16_gemv_down");
        has({qwen3_30b(), "fp8_128x128", 1, MOE_TYPE_F16},
            "* avx512vnni_e4m3_bf16x2_gemv_gate_up, avx512vnni_e4m3_bf16_gemv_down");
        has({qwen3_30b(), "bf16", 1, MOE_TYPE_F32},
            "* avx512vnni_bf16_f32_gemv_gate_up, avx512vnni_bf16_f32_gemv_down");
        has({latent, "bf16"},
            "* avx512vnni_bf16_bf16x2_gemv_gate_up, avx512vnni_bf16_bf16_gemv_down");
    }
    const test::InstructionSet without("avx512vnni");
    has({qwen3_30b(), "bf16"}, "* avx512vnni_bf16_f32_gemv_gate_up, avx512vnni_bf16_f32_gemv_down");
}

TEST(Explain, JsonFollowsTheSchema) {
    const auto rules = test::explain_schema();
    auto slice = sized<moe_slice>();
    slice.has_expert_range = 1;
    slice.expert_begin = 3;
    slice.expert_count = 5;
    moe_layer_desc latent = test::plain_layer(64, 48, 8, 2);
    latent.latent = 32;
    const Question questions[] = {
        {qwen3_30b(), "bf16"},
        {deepseek_v3(), "fp8_128x128", 17},
        {mixtral(), "q4_k", 3, MOE_TYPE_F16, 0, &slice},
        {latent, "f32", 9, MOE_TYPE_F32, 0, nullptr, MOE_STAGE_EXPERTS, "cpu_any_f32_experts_ref"}};
    for (const Question& question : questions) {
        const auto json = nlohmann::json::parse(explain(plan_for(question), MOE_EXPLAIN_JSON));
        test::Validator(rules).check(json, rules, "explain");
        EXPECT_EQ(json["layer"]["hidden"], question.layer.hidden);
        EXPECT_EQ(json["workspace"]["max_tokens"], question.max_tokens);
        EXPECT_EQ(json["device"]["n_threads"], 4);
        // The validator itself can say no.
        auto broken = json;
        broken["stages"][2]["candidates"][0]["reason_code"] = "a guess";
        EXPECT_FALSE(test::Validator(rules).holds(broken, rules));
        broken = json;
        broken["surprise"] = 1;
        EXPECT_FALSE(test::Validator(rules).holds(broken, rules));
    }
}

TEST(Explain, JsonAndQueriesAgree) {
    const Plan plan = plan_for({deepseek_v3(), "fp8_128x128", 100});
    const auto json = nlohmann::json::parse(explain(plan, MOE_EXPLAIN_JSON));
    auto need = sized<moe_workspace_need>();
    ASSERT_MOE_OK(moe_plan_workspace_size(plan.get(), 100, &need));
    EXPECT_EQ(json["workspace"]["host_bytes"], need.host_bytes);
    uint64_t bytes = 0, sum = 0;
    const auto weights = sized<moe_weights_desc>();
    ASSERT_MOE_OK(moe_weights_size(plan.get(), &weights, &bytes));
    EXPECT_EQ(json["weights"]["bytes"], bytes);
    for (const auto& matrix : json["weights"]["matrices"]) sum += matrix["bytes"].get<uint64_t>();
    EXPECT_EQ(sum, bytes);
    const std::string kernel = json["stages"][2]["kernel"];
    EXPECT_EQ(kernel, plan.get()->chosen(MOE_STAGE_EXPERTS).name());
    EXPECT_EQ(json["predicted_us"], nullptr);
}

// Rates were measured on two threads, not on four.
TEST(Explain, TellsWhatIsPredicted) {
    if (!cpu::has_avx2()) GTEST_SKIP() << "no processor like it was measured";
    const test::InstructionSet most("avx2");
    const Plan on_four = plan_for({qwen3_30b(), "q4_k"});
    EXPECT_NE(explain(on_four, MOE_EXPLAIN_TEXT).find("predicted time: unknown: an AMD EPYC"),
              std::string::npos);
    EXPECT_EQ(nlohmann::json::parse(explain(on_four, MOE_EXPLAIN_JSON))["prediction"], nullptr);
    moe_plan& plan = *on_four.get();
    plan.setup.n_workers = 2;
    const auto json = nlohmann::json::parse(explain(on_four, MOE_EXPLAIN_JSON))["prediction"];
    ASSERT_EQ(json["calls"].size(), 2u);
    EXPECT_EQ(json["calls"][0]["tokens"], 1);
    EXPECT_EQ(json["calls"][0]["bound"], "reading");
    EXPECT_EQ(json["calls"][1]["tokens"], 512);
    EXPECT_EQ(json["calls"][1]["bound"], "multiplying");
    EXPECT_NE(explain(on_four, MOE_EXPLAIN_TEXT).find("us for the experts of 512 tokens, bound by"),
              std::string::npos);
}

uint64_t bytes_for(const Plan& plan, int64_t tokens) {
    auto need = sized<moe_workspace_need>();
    EXPECT_MOE_OK(moe_plan_workspace_size(plan.get(), tokens, &need));
    return need.host_bytes;
}

TEST(Chunks, FitTheBudgetAndAreTheLargestThatDo) {
    const moe_layer_desc layer = test::plain_layer(256, 128, 16, 4);
    const uint64_t one = bytes_for(plan_for({layer, "bf16", 1}), 1);
    int64_t before = 0;
    for (const uint64_t budget : {one, one + 1, 2 * one, 5 * one, 1000 * one}) {
        const Plan plan = plan_for({layer, "bf16", 2000, MOE_TYPE_BF16, budget});
        const int64_t chunk = plan->setup.chunk_tokens;
        EXPECT_LE(bytes_for(plan, 2000), budget);
        EXPECT_GE(chunk, std::max<int64_t>(before, 1));
        before = chunk;
        const Plan larger = plan_for({layer, "bf16", chunk + 1, MOE_TYPE_BF16, UINT64_MAX});
        EXPECT_EQ(larger->setup.chunk_tokens, std::min<int64_t>(chunk + 1, 1024));
        if (chunk < 1024) {
            EXPECT_GT(bytes_for(larger, chunk + 1), budget);
        }
    }
    EXPECT_EQ(before, 1024) << "the last budget is enough for a full chunk";
    Plan none;
    EXPECT_MOE_ERROR(try_plan({layer, "bf16", 8, MOE_TYPE_BF16, one - 1}, none),
                     MOE_ERROR_INVALID_ARGUMENT,
                     "one token at a time needs " + std::to_string(one));
}

TEST(Chunks, WorkspaceIsMonotoneInTokens) {
    const Plan plan =
        plan_for({test::plain_layer(64, 48, 16, 4), "f32", 300, MOE_TYPE_F32, 200000});
    uint64_t before = 0;
    for (int64_t tokens = 0; tokens <= 300; ++tokens) {
        const uint64_t bytes = bytes_for(plan, tokens);
        EXPECT_GE(bytes, before);
        EXPECT_LE(bytes, 200000u);
        before = bytes;
    }
    EXPECT_GT(bytes_for(plan, 300), bytes_for(plan, 0));
}

std::array<uint8_t, 16> layout_of(const Question& question) {
    std::array<uint8_t, 16> id{};
    EXPECT_MOE_OK(moe_plan_layout_id(plan_for(question).get(), id.data()));
    return id;
}

TEST(Layout, IdDependsOnWhatWeightsHoldAndOnNothingElse) {
    const moe_layer_desc layer = test::plain_layer(64, 64, 4, 2);
    const auto id = layout_of({layer, "f32"});
    EXPECT_EQ(layout_of({layer, "f32", 7}), id) << "max_tokens";
    EXPECT_EQ(layout_of({layer, "f32", 512, MOE_TYPE_F16}), id) << "types of activations";
    EXPECT_EQ(layout_of({layer, "f32", 512, MOE_TYPE_BF16, 1 << 20}), id) << "workspace";
    EXPECT_EQ(
        layout_of({layer, "f32", 512, MOE_TYPE_BF16, 0, nullptr, 0, "cpu_any_f32_experts_ref"}), id)
        << "kernels";
    moe_layer_desc routed = layer;
    routed.score = MOE_SCORE_SIGMOID;
    routed.top_k = 3;
    EXPECT_EQ(layout_of({routed, "f32"}), id) << "mathematics";

    std::set<std::array<uint8_t, 16>> others{id};
    const auto differs = [&](const Question& question, const char* what) {
        EXPECT_TRUE(others.insert(layout_of(question)).second) << what;
    };
    differs({layer, "bf16"}, "format");
    differs({layer, "f32", 512, MOE_TYPE_BF16, 0, nullptr, MOE_STAGE_EXPERTS}, "stages");
    differs({test::plain_layer(96, 64, 4, 2), "f32"}, "hidden");
    differs({test::plain_layer(64, 80, 4, 2), "f32"}, "intermediate");
    differs({test::plain_layer(64, 64, 5, 2), "f32"}, "experts");
    moe_layer_desc biased = layer;
    biased.has_router_bias = 1;
    differs({biased, "f32"}, "a bias");
    auto slice = sized<moe_slice>();
    slice.has_expert_range = 1;
    slice.expert_count = 2;
    differs({layer, "f32", 512, MOE_TYPE_BF16, 0, &slice}, "experts 0 and 1");
    slice.expert_begin = 2;
    differs({layer, "f32", 512, MOE_TYPE_BF16, 0, &slice}, "experts 2 and 3");
    slice = sized<moe_slice>();
    slice.has_intermediate_range = 1;
    slice.intermediate_count = 32;
    differs({layer, "f32", 512, MOE_TYPE_BF16, 0, &slice}, "the first half");
    slice.intermediate_begin = 32;
    differs({layer, "f32", 512, MOE_TYPE_BF16, 0, &slice}, "the second half");
}

}  // namespace
}  // namespace moe
