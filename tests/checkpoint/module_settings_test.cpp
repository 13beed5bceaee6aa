// What a configuration says of single modules, and AutoRound's packings: which settings count for
// which matrix.
#include "libmoe/formats/format.hpp"
#include "tests/checkpoint/quantised_models.hpp"

namespace moe::test {
namespace {

const std::string gate = mlp0 + "experts.1.gate_proj";

// Gate and up of expert 1 in GPTQ of `gate_bits` and `up_bits`.
Model mixed(const std::string& config, int64_t gate_bits = 4, int64_t up_bits = 8) {
    Model model = qwen("qwen3_moe", ",\"quantization_config\":{" + config + "}", false);
    SpelledMatrix{model, gate, width, hidden}.gptq(gate_bits, false);
    SpelledMatrix{model, up, width, hidden}.gptq(up_bits, false);
    return model;
}

std::string format_of_role(const Model& model, moe_role role) {
    const Folder folder;
    const Handle checkpoint = open_model(folder, model);
    return format_name(find_tensor(checkpoint, 0, role, 1)->format).text;
}

void expect_formats(const Model& model, const std::string& of_gate, const std::string& of_up) {
    EXPECT_EQ(format_of_role(model, MOE_ROLE_GATE), of_gate) << model.config;
    EXPECT_EQ(format_of_role(model, MOE_ROLE_UP), of_up) << model.config;
}

void expect_refusal(const Model& model, moe_status status, const std::string& text) {
    const Failure failure = layer_failure(model);
    EXPECT_EQ(failure.status, status) << failure.text;
    EXPECT_NE(failure.text.find(text), std::string::npos) << failure.text << "\n  lacks: " << text;
}

std::string dynamic(const std::string& rules) {
    return "\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":16,\"dynamic\":{" + rules + "}";
}

constexpr const char *int4 = "int4 gptq 1x16 f16 zeros-1", *int8 = "int8 gptq 1x16 f16 zeros-1";

TEST(Dynamic, TheFirstPatternThatMatchesCounts) {
    for (
        const char* rules : {
            R"("+:.*\\.experts\\..*up_proj":{"bits":8})",
            R"(".*up_proj$":{"bits":8,"group_size":16,"desc_act":false,"sym":false})",
            R"("model\\.layers\\.0\\.mlp\\.experts\\.(1|2)\\.up":{"bits":8},".*up_proj":{"bits":2})",
            R"("-:.*down_proj":{},"+:.*up_proj":{"bits":8})",
            R"("+:.*gate_proj":{},"+:.*experts.*":{"bits":8})",
            R"("-:^(?!.*experts).*":{},"+:.*up_proj":{"bits":8})",
            R"("layers\\.0\\..*gate":{"bits":3},"+:.*up_proj":{"bits":8})",  // from the start only
        })
        expect_formats(mixed(dynamic(rules)), int4, int8);
    // Another version of the zero points, and another order of the columns, for one matrix.
    Model model = mixed(dynamic(R"(".*up_proj":{"bits":8,"desc_act":true})"));
    add_ints(model, up + ".g_idx", small_groups(hidden, true));
    EXPECT_EQ(format_of_role(model, MOE_ROLE_UP), std::string(int8) + " act_order");
    // Values of the configuration in text_config, too.
    model = mixed("");
    const std::string outer = "\"quantization_config\":{}";
    model.config.replace(
        model.config.find(outer), outer.size(),
        "\"text_config\":{\"quantization_config\":{" + dynamic(R"(".*up_proj":{"bits":8})") + "}}");
    expect_formats(model, int4, int8);
}

TEST(Dynamic, WhatContradictsTheFileIsRefused) {
    expect_refusal(mixed(dynamic("")), corrupt,
                   "up_proj.qweight': has shape [16, 32], [8, 32] is wanted for the 4 bits of the "
                   "configuration");
    expect_refusal(mixed(dynamic(R"("-:.*up_proj":{},".*up_proj":{"bits":8})")), corrupt,
                   "experts.1.up_proj.qweight': is quantised, but '-:.*up_proj' of 'dynamic' in "
                   "config.json excepts it");
    expect_refusal(
        mixed(dynamic(R"(".*up_proj":{"bits":9})")), corrupt,
        "config.json: 'quantization_config.dynamic..*up_proj.bits' is 9, outside 1 to 8");
    expect_refusal(mixed(dynamic(R"("(?<=x)y":{"bits":8})")), unsupported,
                   "config.json: the pattern '(?<=x)y' of 'dynamic' is not understood");
    Model model = mixed(dynamic(R"(".*up_proj":{"bits":8,"sym":true})"));
    expect_refusal(model, corrupt, "experts.1.up_proj.qzeros': word 0 is");
    expect_refusal(mixed(dynamic("") + ",\"rotation\":\"hadamard\""), unsupported,
                   "gate_proj.qweight': rotation 'hadamard' is not read");
    // A pattern after the one that counts does no harm.
    expect_formats(mixed(dynamic(R"(".*gate":{},".*up":{"bits":8},"\\bx":{})")), int4, int8);
}

// GPTQModel writes `format` beside checkpoint_format, in some versions alone.
TEST(Dynamic, TheVersionIsAlsoCalledFormat) {
    expect_formats(mixed("\"quant_method\":\"gptq\",\"bits\":4,\"format\":\"gptq_v2\"", 4, 4),
                   "int4 gptq 1x16 f16 zeros", "int4 gptq 1x16 f16 zeros");
    expect_refusal(mixed("\"quant_method\":\"gptq\",\"bits\":4,\"format\":\"gptq_p\"", 4, 4),
                   unsupported, "gate_proj.qweight': checkpoint_format 'gptq_p' is not read");
}

std::string autoround(const std::string& packing, const std::string& more = "") {
    return "\"quant_method\":\"auto-round\",\"bits\":4,\"group_size\":16,\"data_type\":\"int\","
           "\"block_name_to_quantize\":\"model.layers\"," +
           packing + more;
}

// Zero points of all bits set mean that they are one less in the packings of AutoGPTQ.
TEST(AutoRound, PackingsOfGptq) {
    for (const char* packing :
         {R"("packing_format":"auto_round:auto_gptq")", R"("packing_format":"auto_round:gptq")",
          R"("packing_format":"auto_gptq")", R"("packing_format":"auto_round:gptq:exllamav2")",
          R"("backend":"auto_round:gptq:exllamav2")"})
        expect_formats(mixed(autoround(packing), 4, 4), int4, int4);
    constexpr const char* as_they_are = "int4 gptq 1x16 f16 zeros";
    for (const char* packing :
         {R"("packing_format":"auto_round:gptqmodel")", R"("packing_format":"auto_round")",
          R"("packing_format":"auto_round:tritonv2")", R"("backend":"auto_round:exllamav2")"})
        expect_formats(mixed(autoround(packing), 4, 4), as_they_are, as_they_are);
    Model old = mixed(autoround(R"("backend":"auto_round:exllamav2")"), 4, 4);
    old.config.replace(old.config.find("auto-round"), 10, "intel/auto-round");
    expect_formats(old, as_they_are, as_they_are);
}

TEST(AutoRound, PackingsOfAwq) {
    for (const char* packing : {"auto_round:auto_awq", "auto_round:awq"}) {
        const std::string key = std::string("\"packing_format\":\"") + packing + "\"";
        Model model = qwen("qwen3_moe", ",\"quantization_config\":{" + autoround(key) + "}", false);
        SpelledMatrix{model, up, width, hidden}.awq();
        EXPECT_EQ(format_of_role(model, MOE_ROLE_UP), "int4 awq 1x16 f16 zeros");
    }
}

TEST(AutoRound, SettingsOfLayers) {
    const std::string packing = R"("packing_format":"auto_round:auto_gptq")";
    for (const char* extra : {
             R"("model.layers.0.mlp.experts.1.up_proj":{"bits":8})",
             R"(".*mlp\\.experts.*up_proj.*":{"bits":8},"lm_head":{"bits":3})",
             R"("experts\\.1\\.up_":{"bits":8})",  // anywhere in the name
             R"("experts.1.up_proj":{"bits":8})",
             // The name itself counts before patterns.
             R"(".*up_proj":{"bits":2},"model.layers.0.mlp.experts.1.up_proj":{"bits":8})",
         })
        expect_formats(mixed(autoround(packing, std::string(",\"extra_config\":{") + extra + "}")),
                       int4, int8);
    expect_refusal(
        mixed(autoround(packing, ",\"extra_config\":{\"" + up + "\":{\"bits\":16}}")), corrupt,
        "config.json: 'quantization_config.extra_config." + up + ".bits' is 16, outside 1 to 8");
}

TEST(AutoRound, WhatIsNotUnderstoodIsRefused) {
    const auto refused = [](const std::string& config, moe_status status, const char* text) {
        expect_refusal(mixed(config, 4, 4), status,
                       "experts.1.gate_proj.qweight': " + std::string(text));
    };
    refused(autoround(R"("packing_format":"auto_round:mlx")"), unsupported,
            "packing_format 'auto_round:mlx' of AutoRound is not read");
    refused(autoround(R"("backend":"marlin")"), unsupported,
            "backend 'marlin' of AutoRound is not read");
    refused(autoround(R"("sym":true)"), MOE_ERROR_NOT_FOUND,
            "config.json has no packing_format, which says how it is packed");
    const std::string packing = R"("packing_format":"auto_round:auto_gptq")";
    refused(autoround(packing, ",\"act_bits\":8"), unsupported,
            "act_bits '8' of AutoRound is not read");
    refused(autoround(packing, ",\"data_type\":\"mx_int\""), unsupported,
            "data_type 'mx_int' of AutoRound is not read");
    expect_refusal(mixed(autoround(packing, ",\"sym\":true"), 4, 4), corrupt,
                   "not all zero points are 8, as sym says in packing_format auto_round:auto_gptq");
}

// Two groups that only the configuration tells apart: 96 columns are two groups of 48 or of 64.
TEST(ConfigGroups, TheTargetsSayWhichGroup) {
    const auto packed = [](const std::string& targets_of_48, const std::string& targets_of_64) {
        const auto group = [](const char* name, int size, const std::string& targets) {
            return std::string("\"") + name + "\":{\"targets\":[" + targets +
                   "],\"weights\":{\"num_bits\":4,\"group_size\":" + std::to_string(size) +
                   ",\"symmetric\":true}}";
        };
        Model model = qwen("qwen3_moe",
                           ",\"quantization_config\":{\"config_groups\":{" +
                               group("group_0", 48, targets_of_48) + "," +
                               group("group_1", 64, targets_of_64) + "},\"ignore\":[\"lm_head\"]}",
                           false);
        const std::string key = "\"moe_intermediate_size\":32";
        model.config.replace(model.config.find(key), key.size(), "\"moe_intermediate_size\":96");
        for (int e = 0; e < experts; ++e) {
            const std::string stem = mlp0 + "experts." + std::to_string(e) + ".";
            model.add(stem + "gate_proj.weight", "BF16", {96, hidden});
            model.add(stem + "up_proj.weight", "BF16", {96, hidden});
            model.tensors.erase(stem + "down_proj.weight");
            model.add(stem + "down_proj.weight_packed", "I32", {hidden, 12});
            model.add(stem + "down_proj.weight_scale", "BF16", {hidden, 2});
        }
        return format_of_role(model, MOE_ROLE_DOWN);
    };
    constexpr const char *of_48 = "int4 bit_stream 1x48 bf16", *of_64 = "int4 bit_stream 1x64 bf16";
    const std::string down = "\"" + mlp0 + "experts.1.down_proj\"";
    EXPECT_EQ(packed("\"Linear\"", ""), of_48);
    EXPECT_EQ(packed("\"Linear\"", "\"re:.*down_proj$\""), of_64);
    EXPECT_EQ(packed("\"Linear\"", "\"re:down_proj$\""), of_48) << "from the start";
    EXPECT_EQ(packed("\"re:.*down_proj$\"", down), of_64) << "names before patterns";
    EXPECT_EQ(packed("\"re:.*proj$\"", "\"re:.*down_proj$\""), of_64) << "in the order of texts";
    EXPECT_EQ(packed("\"re:.*up_proj$\"", "\"re:.*down_proj$\",\"Linear\""), of_64);
}

// Transforms of weights alone are in the file's values. The configurations are like those of QuIP
// (R1, R2 in the weights) and SpinQuant's R4.
TEST(Transforms, OfActivationsAreRefusedForTheModulesTheyName) {
    const auto failure = [](const std::string& apply, const std::string& layers = "") {
        return layer_failure(qwen(
            "qwen3_moe",
            layers +
                R"(,"quantization_config":{"quant_method":"compressed-tensors",)"
                R"("transform_config":{"config_groups":{"R1":{"apply":[{"location":)"
                R"("weight_output","targets":["Linear"]}]},"R4":{"type":"hadamard","apply":[)" +
                apply + "]}}}}",
            false));
    };
    const std::string weights = R"({"targets":["re:.*down_proj$"],"location":"weight_input"})";
    EXPECT_EQ(failure(weights).text, "");
    const auto refused = [](int entry, const std::string& module) {
        return "config.json: 'quantization_config.transform_config.config_groups.R4.apply." +
               std::to_string(entry) + "' transforms what '" + mlp0 + module +
               "' takes or gives, which is not read";
    };
    const Failure down =
        failure(weights + R"(,{"targets":["re:.*down_proj$"],"location":"input","ignore":[]})");
    EXPECT_EQ(down.status, MOE_ERROR_UNSUPPORTED);
    EXPECT_EQ(down.text, refused(1, "experts.0.down_proj"));
    EXPECT_EQ(failure(R"({"location":"output","targets":["Linear"],"ignore":["lm_head",)"
                      R"("re:.*mlp[.]gate$"]})")
                  .text,
              refused(0, "experts.0.gate_proj"));
    EXPECT_EQ(
        failure(R"({"location":"input","targets":[")" + mlp0 + R"(experts.2.up_proj"]})").text,
        refused(0, "experts.2.up_proj"));
    // These name other modules, what attention takes, and all but those of this block.
    for (const char* other :
         {R"({"location":"input","targets":["re:.*self_attn[.]o_proj$"]})",
          R"({"location":"q_attn","targets":["self_attn"]})",
          R"({"location":"input","targets":["Linear"],"ignore":["re:.*mlp.*"]})"})
        EXPECT_EQ(failure(other).text, "") << other;
    // An exception is that of its own entry.
    EXPECT_EQ(failure(R"({"location":"input","targets":["Linear"],"ignore":["re:.*mlp.*"]},)"
                      R"({"location":"output","targets":["re:.*up_proj"]})")
                  .text,
              refused(1, "experts.0.up_proj"));
}

// AutoRound's and Quark's. Those in the values alone, and those of the attention, change nothing.
TEST(Transforms, RotationsOfWhatExpertsTakeAreRefused) {
    const auto failure = [](const std::string& part) {
        return layer_failure(qwen("qwen3_moe", ",\"quantization_config\":{" + part + "}", false));
    };
    struct Case {
        const char* text;
        const char* refused;  // what the sentence names; null: it loads
    };
    constexpr const char* autoround_of = "quantization_config.rotation_config";
    constexpr const char* second_of_quark = "quantization_config.algo_config.1";
    for (const auto& [text, named] : {
             Case{R"("rotation_config":{"algorithm":"hadamard","block_size":32})", autoround_of},
             Case{R"("rotation_config":"quarot")", autoround_of},
             Case{R"("rotation_config":{"r1":true,"online_r1_rotation":true})", autoround_of},
             Case{R"("rotation_config":{"r1":true})", autoround_of},
             Case{R"("rotation_config":{"r1":false,"r4":true})", autoround_of},
             Case{R"("spinquant_config":{"r1":true,"online_r1_rotation":true})",
                  "quantization_config.spinquant_config"},
             Case{R"("rotation_config":{"r1":true,"r2":true,"online_r1_rotation":false})", nullptr},
             Case{R"("rotation_config":{"r1":false,"r3":true,"r4":false})", nullptr},
             Case{R"("rotation_config":null)", nullptr},
             Case{R"("algo_config":[{"name":"smooth"},{"name":"rotation","r4":true}])",
                  second_of_quark},
             Case{R"("algo_config":[{"name":"awq"},{"name":"quarot"}])", second_of_quark},
             Case{R"("algo_config":[{"name":"gptq"},)"
                  R"({"name":"rotation","r1":true,"online_r1_rotation":true}])",
                  second_of_quark},
             Case{R"("algo_config":[{"name":"rotation","r1":true},{"name":"quarot","r4":false}])",
                  nullptr},
             Case{R"("algo_config":[{"name":"autosmoothquant"}])", nullptr},
         }) {
        const Failure found = failure(text);
        if (!named) {
            EXPECT_EQ(found.text, "") << text;
            continue;
        }
        EXPECT_EQ(found.status, MOE_ERROR_UNSUPPORTED) << text;
        EXPECT_EQ(found.text, "config.json: '" + std::string(named) + "' transforms what '" + mlp0 +
                                  "experts.0.gate_proj' takes or gives, which is not read");
    }
}

// AutoGPTQ wrote its settings to a file of their own before config.json had them.
TEST(AutoGptqFile, CountsWhereTheConfigurationSaysNothing) {
    const auto opened = [](const Model& model, const std::string& text, moe_role role) {
        const Folder folder;
        model.write(folder);
        folder.write("quantize_config.json", text);
        const Handle checkpoint = open_path(folder.path());
        return std::string(format_name(find_tensor(checkpoint, 0, role, 1)->format).text);
    };
    Model model = qwen("qwen3_moe", "", false);
    SpelledMatrix{model, up, width, hidden}.gptq(4, true);
    const std::string old = R"({"bits":4,"group_size":16,"damp_percent":0.1,"desc_act":true,)"
                            R"("static_groups":false,"sym":false,"true_sequential":true})";
    EXPECT_EQ(opened(model, old, MOE_ROLE_UP), std::string(int4) + " act_order");
    EXPECT_EQ(
        opened(model, R"({"bits":4,"desc_act":true,"checkpoint_format":"gptq_v2"})", MOE_ROLE_UP),
        "int4 gptq 1x16 f16 zeros act_order");
    // A refusal names the file, or the method that the file has.
    EXPECT_NE(failure_of([&] {
                  opened(model, R"({"group_size":16})", MOE_ROLE_UP);
              }).text.find("quantize_config.json: has no key 'bits'"),
              std::string::npos);
    EXPECT_NE(failure_of([&] {
                  opened(model, R"({"bits":4,"quant_method":"marlin"})", MOE_ROLE_UP);
              }).text.find("quant_method 'marlin', neither gptq nor awq, is not read"),
              std::string::npos);
    // config.json goes first.
    EXPECT_EQ(
        opened(mixed(R"("quant_method":"gptq","bits":4)", 4, 4), R"({"bits":3})", MOE_ROLE_UP),
        int4);
}

}  // namespace
}  // namespace moe::test
