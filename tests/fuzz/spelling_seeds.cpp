// Seeds of quantised models whose configuration speaks of single modules, and of codes under grids
// of scales in the rarer spellings.
#include "tests/checkpoint/inkling_models.hpp"
#include "tests/checkpoint/quantised_models.hpp"
#include "tests/fuzz/seeds.hpp"

namespace moe_fuzz {
namespace {

using moe::test::Model;
using moe::test::raw;
using moe::test::SpelledMatrix;

constexpr int64_t hidden_size = 64, expert_width = 32, expert_count = 2;
const std::string block = "model.layers.0.mlp.";

Model small_model(const std::string& config) {
    Model model;
    model.config =
        "{\"model_type\":\"qwen3_moe\",\"hidden_size\":64,\"num_experts_per_tok\":1,"
        "\"num_experts\":2,\"moe_intermediate_size\":32,\"expert_dtype\":\"fp4\","
        "\"quantization_config\":{" +
        config + "}}";
    model.add(block + "gate.weight", "BF16", {expert_count, hidden_size});
    return model;
}

template <class Make>
Model of_experts(const std::string& config, Make make) {
    Model model = small_model(config);
    for (int e = 0; e < expert_count; ++e) {
        const std::string stem = block + "experts." + std::to_string(e) + ".";
        make(SpelledMatrix{model, stem + "gate_proj", expert_width, hidden_size});
        make(SpelledMatrix{model, stem + "up_proj", expert_width, hidden_size});
        make(SpelledMatrix{model, stem + "down_proj", hidden_size, expert_width});
    }
    return model;
}

// Two codes in a byte.
void add_nibbles(const SpelledMatrix& m, const char* scale_type, int64_t groups) {
    m.model.add(m.stem + ".weight", "I8", {m.rows, m.columns / 2});
    m.model.add(m.stem + ".weight_scale_inv", scale_type, {m.rows, groups});
}

Model merged_fp8(const char* model_type, bool transposed, const moe::test::Shape& scales) {
    Model model = small_model("\"weight_block_size\":[48,48]");
    const std::string key = "qwen3_moe";
    model.config.replace(model.config.find(key), key.size(), model_type);
    const std::string gate_up = block + "experts.gate_up_proj", down = block + "experts.down_proj";
    const int64_t rows = 2 * expert_width;
    if (transposed) {
        model.add(gate_up, "F8_E4M3", {expert_count, hidden_size, rows});
        model.add(down, "F8_E4M3", {expert_count, expert_width, hidden_size});
    } else {
        model.add(gate_up, "F8_E4M3", {expert_count, rows, hidden_size});
        model.add(down, "F8_E4M3", {expert_count, hidden_size, expert_width});
    }
    model.add(gate_up + "_scale", "F32", scales);
    model.add(down + "_scale", "F32", {});
    return model;
}

std::string input_of(const Model& model) {
    const std::string& config = model.config;
    return raw(static_cast<uint32_t>(config.size())) + config + model.file();
}

}  // namespace

void add_spellings(const Seeds& seeds) {
    const auto gptq = [](const SpelledMatrix& m) {
        m.gptq(m.stem.ends_with("up_proj") ? 8 : 4, false);
    };
    const std::string autoround =
        "\"quant_method\":\"auto-round\",\"bits\":4,\"packing_format\":\"auto_round";
    const std::pair<const char*, Model> models[] = {
        {"gptq_dynamic",
         of_experts(R"j("quant_method":"gptq","bits":4,"dynamic":{"-:^(?!.*experts)":{},)j"
                    R"j("+:.*\\.(up|x)_proj$":{"bits":8,"desc_act":false}})j",
                    gptq)},
        {"autoround_gptq",
         of_experts(autoround + R"(","extra_config":{".*[u]p_proj.{0,3}":{"bits":8},)"
                                R"("model.layers.0.mlp.experts.1.up_proj":{"bits":8}})",
                    gptq)},
        {"autoround_awq",
         of_experts(autoround + ":auto_awq\"", [](const SpelledMatrix& m) { m.awq(); })},
        {"packed_targets",
         of_experts(R"("config_groups":{"group_0":{"targets":["re:.*up_proj","Linear"],)"
                    R"("weights":{"num_bits":4,"group_size":16,"symmetric":true}}})",
                    [](const SpelledMatrix& m) { m.packed(4, false); })},
        {"w4afp8", of_experts("\"quant_method\":\"w4afp8\"",
                              [](const SpelledMatrix& m) { add_nibbles(m, "BF16", 2); })},
        {"fp4_groups", of_experts("", [](const SpelledMatrix& m) { add_nibbles(m, "F32", 4); })},
        {"fp4_wide_groups",
         of_experts("", [](const SpelledMatrix& m) { add_nibbles(m, "F8_E8M0", 1); })},
        {"e5m2", of_experts("",
                            [](const SpelledMatrix& m) {
                                m.model.add(m.stem + ".weight", "F8_E5M2", {m.rows, m.columns});
                                if (!m.stem.ends_with("up_proj")) return;
                                m.model.add(m.stem + ".weight_scale", "F32", {m.rows, 1});
                            })},
        {"inkling_nvfp4", moe::test::inkling_nvfp4()},
        {"fp8_pairs", merged_fp8("qwen3_moe", false, {expert_count, 2})},
        {"fp8_straddling", merged_fp8("qwen3_moe", false, {expert_count, 2, 2})},
        {"fp8_transposed", merged_fp8("qwen3_vl_moe", true, {expert_count, 1, 2 * expert_width})}};
    for (const auto& [name, model] : models) seeds.add("model", name, input_of(model));
}

}  // namespace moe_fuzz
