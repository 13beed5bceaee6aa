// Holds what a CPU plan says of itself, word by word: ten models, each on processors with AVX2,
// with AVX-512 (VNNI and BF16) and with AMX, which need not be there. tests/plan/golden/<model>.txt
// has the three texts. MOE_WRITE_GOLDEN=1 in the environment writes these files instead of
// comparing: read the difference before committing it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <ostream>
#include <sstream>

#include "libmoe/plan/plan.hpp"
#include "tests/formats/sources.hpp"
#include "tests/plan/fake_processor.hpp"
#include "tests/plan/pattern.hpp"
#include "tests/plan/schema.hpp"

namespace moe {
namespace {

constexpr test::Processor processors[] = {test::with_avx2, test::with_avx512, test::with_amx};

struct GoldenModel {
    const char* name;
    moe_layer_desc layer;
    const char* format = nullptr;  // of all matrices but the router, and but down
    const char* down = nullptr;    // where it differs
    moe_format unnamed{};          // instead of format
    moe_residency residency = MOE_RESIDENCY_SOURCE;
};

// Else gtest prints its bytes, addresses among them, into the names of the tests.
void PrintTo(const GoldenModel& model, std::ostream* out) {
    *out << model.name;
}

moe_layer_desc with_shared(moe_layer_desc layer, int32_t intermediate) {
    layer.shared_intermediate = intermediate;
    layer.shared_activation = MOE_ACTIVATION_SILU;
    layer.shared_is_gated = 1;
    return layer;
}

// FP8 and sigmoid scores, as DeepSeek-V3 and its descendants have them.
moe_layer_desc with_sigmoid(moe_layer_desc layer) {
    layer.score = MOE_SCORE_SIGMOID;
    layer.has_selection_bias = 1;
    return layer;
}

moe_layer_desc gpt_oss() {
    moe_layer_desc layer = test::plain_layer(2880, 2880, 128, 4);
    layer.has_router_bias = layer.has_gate_bias = layer.has_up_bias = layer.has_down_bias = 1;
    layer.has_activation_alpha = layer.has_gate_limit = layer.has_up_limit = 1;
    layer.activation_alpha = 1.702f;
    layer.activation_up_offset = 1.0f;
    layer.gate_limit = layer.up_limit = 7.0f;
    return layer;
}

moe_format packed_ints(moe_packing packing, moe_zero_point zero_point, bool act_order) {
    return test::int_format(packing, 4, 128, MOE_TYPE_F16, zero_point, act_order);
}

std::vector<GoldenModel> models() {
    using test::plain_layer;
    return {
        {"qwen3-30b-q4_k_m", plain_layer(2048, 768, 128, 8), "q4_k", "q6_k"},
        {"qwen3-30b-q4_k_m-packed",
         plain_layer(2048, 768, 128, 8),
         "q4_k",
         "q6_k",
         {},
         MOE_RESIDENCY_PACKED},
        {"qwen3next-q8_0", with_shared(plain_layer(2048, 512, 512, 10), 512), "q8_0"},
        {"mixtral-q4_0", plain_layer(4096, 14336, 8, 2), "q4_0"},
        {"gpt-oss-120b-mxfp4", gpt_oss(), "mxfp4"},
        {"dsv3-fp8", with_shared(with_sigmoid(plain_layer(7168, 2048, 256, 8)), 2048),
         "fp8_128x128"},
        {"kimi-k2-nvfp4", with_shared(with_sigmoid(plain_layer(7168, 2048, 384, 8)), 2048),
         "nvfp4"},
        {"glm-4.5-air-awq", with_shared(with_sigmoid(plain_layer(4096, 1408, 128, 8)), 1408),
         nullptr, nullptr, packed_ints(MOE_PACKING_AWQ, MOE_ZERO_POINT_PACKED, false)},
        {"qwen3-30b-gptq-act-order", plain_layer(2048, 768, 128, 8), nullptr, nullptr,
         packed_ints(MOE_PACKING_GPTQ, MOE_ZERO_POINT_PACKED_MINUS_ONE, true)},
        {"llama4-scout-iq2_xs", with_shared(plain_layer(5120, 8192, 16, 1), 8192), "iq2_xs",
         "q2_k"},
        {"olmoe-bf16", plain_layer(2048, 1024, 64, 8), "bf16"},
    };
}

std::unique_ptr<moe_plan> plan_of(const GoldenModel& model, const test::Processor& processor) {
    const auto named = [](const char* name) { return test::format_named(name).format; };
    const moe_format format = model.format ? named(model.format) : model.unnamed;
    return test::plan_on(processor, {.layer = model.layer,
                                     .gate_up = format,
                                     .down = model.down ? named(model.down) : format,
                                     .residency = model.residency});
}

// The id of a layout follows its version.
std::string text_of(const GoldenModel& model) {
    std::string all;
    for (const test::Processor& processor : processors)
        all += std::string("== ") + processor.name + " ==\n" +
               explain_text(*plan_of(model, processor)) + "\n";
    std::istringstream lines(all);
    std::string text;
    for (std::string line; std::getline(lines, line);)
        text += test::Pattern("layout [0-9a-f]{32}").replaced(line, "layout <id>") + "\n";
    return text;
}

std::string read(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
}

// Lines from the first one that differs on.
std::string difference(const std::string& wanted, const std::string& found) {
    std::istringstream a(wanted), b(found);
    for (std::string line, other; std::getline(a, line), std::getline(b, other), a || b;) {
        if (!a) line = "(end)";
        if (!b) other = "(end)";
        if (line != other) return "-" + line + "\n+" + other + "\n";
    }
    return "";
}

class GoldenExplain : public testing::TestWithParam<GoldenModel> {};

TEST_P(GoldenExplain, SaysWhatItSaid) {
    SKIP_WITHOUT_X86();
    const std::string path = std::string("tests/plan/golden/") + GetParam().name + ".txt";
    const std::string text = text_of(GetParam());
    if (std::getenv("MOE_WRITE_GOLDEN")) {
        std::ofstream(path) << text;
        return;
    }
    const std::string wanted = read(path);
    EXPECT_TRUE(wanted == text) << path << ": first difference\n" << difference(wanted, text);
}

TEST_P(GoldenExplain, JsonFollowsTheSchema) {
    SKIP_WITHOUT_X86();
    const auto rules = test::explain_schema();
    for (const test::Processor& processor : processors) {
        const auto json = nlohmann::json::parse(explain_json(*plan_of(GetParam(), processor)));
        test::Validator(rules).check(json, rules, processor.name);
        EXPECT_GE(json["stages"][2]["matrices"].size(), 3u);
    }
}

// Each matrix has the kernels that are best for its own format.
TEST(MixedLayers, HaveTheKernelsOfEachMatrix) {
    SKIP_WITHOUT_X86();
    const auto down_of = [](const test::Processor& processor, const char* gate_up,
                            const moe_format& down) {
        const auto plan = test::plan_on(processor, {.layer = test::plain_layer(2048, 768, 128, 8),
                                                    .gate_up = test::format_named(gate_up).format,
                                                    .down = down});
        const auto text = explain_text(*plan);
        const size_t begin = text.find("\n  down of ");
        return text.substr(begin, text.find("\nstage combine") - begin);
    };
    const auto expect = [](const std::string& text, const char* line) {
        EXPECT_NE(text.find(line), std::string::npos) << line << text;
    };
    expect(down_of(test::with_amx, "q3_k", test::format_named("q5_k").format),
           "* from 10 rows (T >= 160): amx_q5_k_bf16_gemm: taken");
    // Rows of down from which on panels of AVX2 pay, and not those of gate and up.
    expect(down_of(test::with_avx2, "iq4_xs", test::format_named("bf16").format),
           "* from 16 rows (T >= 256): avx2_bf16_f32_gemm: taken");
    // A matrix that no kernel reads leaves the others alone.
    moe_format unread = packed_ints(MOE_PACKING_BIT_STREAM, MOE_ZERO_POINT_PACKED, true);
    unread.bits = 5;
    const std::string decoded = down_of(test::with_avx512, "q4_k", unread);
    expect(decoded, "* any number of rows: avx512vnni_int5_f32_gemv: taken, but");
    expect(decoded, "- avx512vnni_int5_f32_gemm: it has no panels of this matrix");
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenExplain, testing::ValuesIn(models()), [](const auto& info) {
    std::string name = info.param.name;
    std::replace_if(
        name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
    return name;
});

}  // namespace
}  // namespace moe
