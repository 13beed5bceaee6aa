// Models with one thing missing or wrong: the error names it.
#include "tests/checkpoint/models.hpp"

namespace moe::test {
namespace {

struct Wrong {
    const char* name;
    std::function<Model()> model;
    moe_status status;
    const char* text;
};

Model without(Model model, const std::string& name) {
    if (!model.tensors.erase(name)) throw std::logic_error("no tensor " + name);
    return model;
}

Model with(Model model, const std::string& name, const std::string& type, const Shape& shape) {
    model.add(name, type, shape);
    return model;
}

Model configured(Model model, const std::string& from, const std::string& to) {
    const size_t at = model.config.find(from);
    if (at == std::string::npos) throw std::logic_error("no " + from);
    model.config.replace(at, from.size(), to);
    return model;
}

Model fp8_model() {
    Model model = qwen("qwen3_moe", "", false);
    make_fp8(model, qwen_expert, hidden, width);
    return model;
}

Model nvfp4_model() {
    Model model = qwen("qwen3_moe", "", false);
    make_nvfp4(model, qwen_expert, hidden, width);
    return model;
}

const std::string moe0 = "model.layers.0.block_sparse_moe.";
const std::string mlp1 = "model.layers.1.mlp.";
constexpr moe_status missing = MOE_ERROR_NOT_FOUND;

const std::vector<Wrong>& wrong_models() {
    static const std::vector<Wrong> cases = {
        {"no_router", [] { return without(mixtral(), moe0 + "gate.weight"); }, missing,
         "block_sparse_moe.gate.weight"},
        {"no_expert", [] { return without(mixtral(), moe0 + "experts.2.w3.weight"); }, missing,
         "experts.2.w3.weight"},
        {"strange_experts",
         [] {
             Model m;
             m.config = mixtral().config;
             m.add(moe0 + "experts.0.v1.weight", "BF16", {1});
             m.add(moe0 + "gate.weight", "BF16", {experts, hidden});
             return m;
         },
         missing,
         "the first of its experts is 'model.layers.0.block_sparse_moe.experts.0.v1.weight'"},
        {"one_expert_more",
         [] {
             return with(mixtral(), moe0 + "experts.4.w1.weight", "BF16", {width, hidden});
         },
         corrupt, "says 4 experts, but there is a tensor 'experts.4.w1.weight'"},
        {"gate_shape",
         [] {
             return with(mixtral(), moe0 + "experts.1.w1.weight", "BF16", {hidden, width});
         },
         corrupt, "experts.1.w1.weight': has shape [64, 32], [32, 64] is wanted"},
        {"gate_rank",
         [] {
             return with(mixtral(), moe0 + "experts.1.w1.weight", "BF16", {1, width, hidden});
         },
         corrupt, "has shape [1, 32, 64], [32, 64] is wanted"},
        {"router_shape",
         [] {
             return with(mixtral(), moe0 + "gate.weight", "BF16", {experts + 1, hidden});
         },
         corrupt, "gate.weight': has shape [5, 64], [4, 64] is wanted"},
        {"weight_type",
         [] {
             return with(mixtral(), moe0 + "experts.1.w1.weight", "I32", {width, hidden});
         },
         unsupported, "experts.1.w1.weight': type I32"},
        {"two_blocks", [] { return with(mixtral(), mlp0 + "experts.0.w1.weight", "BF16", {1}); },
         unsupported, "layer 0 has experts under"},
        {"no_hidden_size", [] { return configured(mixtral(), "\"hidden_size\":64,", ""); }, missing,
         "config.json: has no key 'hidden_size' nor 'd_model'"},
        {"no_experts_key", [] { return configured(mixtral(), "\"num_local_experts\":4,", ""); },
         missing, "'num_experts' nor 'num_local_experts' nor 'n_routed_experts'"},
        {"null_top_k",
         [] {
             return configured(mixtral(), "\"num_experts_per_tok\":2",
                               "\"num_experts_per_tok\":null");
         },
         missing, "'num_experts_per_tok'"},
        {"hidden_size_text", [] { return configured(mixtral(), ":64", ":\"64\""); }, corrupt,
         "'hidden_size' is a text, an integer is wanted"},
        {"hidden_size_fraction", [] { return configured(mixtral(), ":64", ":64.5"); }, corrupt,
         "'hidden_size' is a fraction"},
        {"hidden_size_negative", [] { return configured(mixtral(), ":64", ":-64"); }, corrupt,
         "'hidden_size' is -64, outside 1 to"},
        {"hidden_size_huge", [] { return configured(mixtral(), ":64", ":4294967360"); }, corrupt,
         "'hidden_size' is 4294967360"},
        {"many_experts", [] { return configured(mixtral(), "_experts\":4", "_experts\":4097"); },
         corrupt, "'num_local_experts' is 4097, outside 1 to 4096"},
        {"activation", [] { return configured(mixtral(), "\"silu\"", "\"snake\""); }, unsupported,
         "hidden_act 'snake'"},
        {"model_type", [] { return configured(mixtral(), "mixtral", "mixtape"); }, unsupported,
         "model_type 'mixtape' is no family that this version knows: mixtral qwen2_moe"},
        {"no_model_type", [] { return configured(mixtral(), "\"model_type\":\"mixtral\",", ""); },
         missing, "'model_type'"},
        {"config_not_json",
         [] {
             Model m = mixtral();
             m.config = "{";
             return m;
         },
         corrupt, "config.json: not valid JSON"},
        {"config_array",
         [] {
             Model m = mixtral();
             m.config = "[]";
             return m;
         },
         corrupt, "config.json: the JSON is not an object"},
        {"config_number",
         [] {
             Model m = mixtral();
             m.config = "1";
             return m;
         },
         corrupt, "config.json: the JSON is not an object"},
        {"config_deep",
         [] {
             Model m = mixtral();
             m.config = "{\"a\":" + std::string(40, '[');
             return m;
         },
         corrupt, "nested deeper than 32"},
        {"norm_flag_type", [] { return qwen("qwen3_moe", ",\"norm_topk_prob\":1", false); },
         corrupt, "'norm_topk_prob' is an integer, true or false is wanted"},
        {"no_shared_expert",
         [] { return qwen("qwen2_moe", ",\"shared_expert_intermediate_size\":48", false); },
         missing, "mlp.shared_expert.gate_proj.weight"},
        {"no_shared_gate",
         [] { return without(qwen("qwen2_moe", "", true), mlp0 + "shared_expert_gate.weight"); },
         missing, "shared_expert_gate.weight"},
        // Of no tool that is known, in a family that may have no shared expert.
        {"shared_expert_in_unknown_spelling",
         [] {
             Model model = qwen("hunyuan_v1_moe", R"(,"moe_topk":2)", false);
             const std::string stem = mlp0 + "shared_mlp.gate_proj.";
             model.add(stem + "codes", "I8", {shared_width, hidden});
             return with(model, stem + "code_scale", "F32", {shared_width, 1});
         },
         missing, "mlp.shared_mlp.gate_proj.weight"},
        {"shared_expert_of_a_width",
         [] {
             return qwen("hunyuan_v1_moe", R"(,"moe_topk":2,"shared_intermediate_size":48)", false);
         },
         missing, "mlp.shared_mlp.gate_proj.weight"},
        {"bias_of_an_expert",
         [] {
             return with(qwen("qwen3_moe", "", false), mlp0 + "experts.2.up_proj.bias", "BF16",
                         {width});
         },
         unsupported, "experts.2.up_proj.bias': is a bias"},
        {"bias_of_the_router",
         [] { return with(qwen("qwen3_moe", "", false), mlp0 + "gate.bias", "F32", {experts}); },
         unsupported, "mlp.gate.bias': is a bias"},
        {"transform",
         [] {
             return with(qwen("qwen3_moe", "", false), mlp0 + "experts.1.gate_proj.v_input.weight",
                         "BF16", {hidden, hidden});
         },
         unsupported, "experts.1.gate_proj.v_input.weight': is a transform"},
        {"scale_of_a_plain_weight",
         [] {
             return with(qwen("qwen3_moe", "", false), mlp0 + "experts.3.down_proj.weight_scale",
                         "F32", {1});
         },
         unsupported, "experts.3.down_proj.weight_scale': beside a weight in BF16"},
        {"shared_down_shape",
         [] {
             return with(qwen("qwen2_moe", "", true), mlp0 + "shared_expert.down_proj.weight",
                         "BF16", {hidden, shared_width - 1});
         },
         corrupt, "shared_expert.down_proj.weight': has shape [64, 47], [64, 48] is wanted"},
        {"topk_method", [] { return deepseek("deepseek_v2", ",\"topk_method\":\"best\"", false); },
         unsupported, "topk_method 'best'"},
        {"scoring_func", [] { return deepseek("deepseek_v3", ",\"scoring_func\":\"relu\"", true); },
         unsupported, "scoring_func 'relu'"},
        {"no_selection_bias", [] { return deepseek("deepseek_v3", "", false); }, missing,
         "mlp.gate.e_score_correction_bias"},
        {"selection_bias_shape",
         [] {
             return with(deepseek("deepseek_v3", "", true), mlp1 + "gate.e_score_correction_bias",
                         "F32", {5});
         },
         corrupt, "e_score_correction_bias': has shape [5], [4] is wanted"},
        {"selection_bias_type",
         [] {
             return with(deepseek("deepseek_v3", "", true), mlp1 + "gate.e_score_correction_bias",
                         "I32", {4});
         },
         unsupported, "a vector of type I32"},
        {"scale_text",
         [] { return deepseek("deepseek_v3", ",\"routed_scaling_factor\":\"x\"", true); }, corrupt,
         "'routed_scaling_factor' is a text"},
        {"scale_nan",
         [] { return deepseek("deepseek_v3", ",\"routed_scaling_factor\":NaN", true); }, corrupt,
         "config.json: 'routed_scaling_factor' is NaN, a number is wanted"},
        {"scale_infinite",
         [] { return deepseek("deepseek_v3", ",\"routed_scaling_factor\":1e200", true); }, corrupt,
         "not finite in float32"},
        {"fp8_without_scale",
         [] { return without(fp8_model(), qwen_expert + ".weight_scale_inv"); }, missing,
         "experts.1.down_proj.weight_scale_inv"},
        {"fp8_scale_type",
         [] {
             return with(fp8_model(), qwen_expert + ".weight_scale_inv", "I32", {1, 1});
         },
         unsupported, "weight_scale_inv': is I32, F32 or BF16 or F16 or F8_E8M0 or U8 is wanted"},
        {"fp8_scale_shape",
         [] {
             return with(fp8_model(), qwen_expert + ".weight_scale_inv", "F32", {2, 1});
         },
         corrupt, "weight_scale_inv': has shape [2, 1], [1, 1] is wanted"},
        {"nvfp4_without_scale",
         [] { return without(nvfp4_model(), qwen_expert + ".weight_scale"); }, missing,
         "experts.1.down_proj.weight_scale'"},
        {"nvfp4_without_global",
         [] { return without(nvfp4_model(), qwen_expert + ".weight_scale_2"); }, missing,
         "experts.1.down_proj.weight_scale_2"},
        {"nvfp4_scale_type",
         [] {
             return with(nvfp4_model(), qwen_expert + ".weight_scale", "I32", {hidden, width / 16});
         },
         unsupported, "weight_scale': is I32, F8_E4M3 or U8 or F8_E8M0 is wanted"},
        {"nvfp4_scale_shape",
         [] {
             return with(nvfp4_model(), qwen_expert + ".weight_scale", "F8_E4M3",
                         {hidden, width / 32});
         },
         corrupt, "weight_scale': has shape [64, 1], [64, 2] is wanted"},
        {"nvfp4_shape",
         [] {
             return with(nvfp4_model(), qwen_expert + ".weight", "U8", {hidden, width});
         },
         corrupt, "weight': has shape [64, 32], [64, 16] is wanted"},
        {"nvfp4_global_values",
         [] { return with(nvfp4_model(), qwen_expert + ".weight_scale_2", "F32", {2}); }, corrupt,
         "weight_scale_2': has shape [2], 1 values"},
        {"nvfp4_global_type",
         [] { return with(nvfp4_model(), qwen_expert + ".weight_scale_2", "I32", {1}); },
         unsupported, "weight_scale_2': is I32, F32 or BF16 or F16 is wanted"},
        {"nvfp4_zero_points",
         [] {
             return with(nvfp4_model(), qwen_expert + ".weight_zero_point", "U8", {hidden, 2});
         },
         unsupported, "weight_zero_point': beside a weight in nvfp4"},
        {"fp8_pre_quant_scale",
         [] { return with(fp8_model(), qwen_expert + ".pre_quant_scale", "BF16", {width}); },
         unsupported, "pre_quant_scale': beside a weight in f8_e4m3"},
        {"nvfp4_with_a_low_rank_part",
         [] {
             return with(nvfp4_model(), qwen_expert + ".svdquant_lora_a", "BF16", {8, width});
         },
         unsupported, "down_proj.svdquant_lora_a': beside a weight in nvfp4"},
        {"nvfp4_pre_quant_scale_shape",
         [] { return with(nvfp4_model(), qwen_expert + ".pre_quant_scale", "BF16", {hidden}); },
         corrupt, "pre_quant_scale': has shape [64], [32] is wanted"},
        {"mxfp4_shape",
         [] {
             return with(nvfp4_model(), qwen_expert + ".weight_scale", "U8", {hidden, width / 16});
         },
         corrupt, "weight_scale': has shape [64, 2], [64, 1] is wanted"},
        {"mxfp4_no_scales",
         [] { return without(gpt_oss(true), mlp0 + "experts.down_proj_scales"); }, missing,
         "experts.down_proj_scales"},
        {"mxfp4_blocks_shape",
         [] {
             return with(gpt_oss(true), mlp0 + "experts.down_proj_blocks", "U8",
                         {experts, hidden, 2, 16});
         },
         corrupt, "down_proj_blocks': has shape [4, 64, 2, 16], [4, 64, 1, 16] is wanted"},
        {"mxfp4_scales_type",
         [] {
             return with(gpt_oss(true), mlp0 + "experts.down_proj_scales", "I8",
                         {experts, hidden, 1});
         },
         unsupported, "down_proj_scales': is I8, U8 is wanted"},
        {"gpt_oss_no_bias", [] { return without(gpt_oss(true), mlp0 + "experts.down_proj_bias"); },
         missing, "experts.down_proj_bias"},
        {"gpt_oss_no_router_bias", [] { return without(gpt_oss(true), mlp0 + "router.bias"); },
         missing, "router.bias"},
        {"gpt_oss_bias_shape",
         [] {
             return with(gpt_oss(true), mlp0 + "experts.gate_up_proj_bias", "BF16",
                         {experts, width});
         },
         corrupt, "gate_up_proj_bias': has shape [4, 32], [4, 64] is wanted"},
        {"gpt_oss_no_experts",
         [] {
             return without(without(gpt_oss(false), mlp0 + "experts.gate_up_proj"),
                            mlp0 + "experts.down_proj");
         },
         missing, "experts.gate_up_proj_blocks or experts.gate_up_proj"},
    };
    return cases;
}

// The part of the configuration is named where there is one.
TEST(WrongKeys, NameThePartThatTheyWereLookedForIn) {
    EXPECT_EQ(layer_failure(configured(mixtral(), "\"hidden_size\":64,", "")).text,
              "config.json: has no key 'hidden_size' nor 'd_model'");
    const Model nested = configured(configured(mixtral(), "\"hidden_size\":64,", ""), "{",
                                    "{\"text_config\":{\"x\":1},");
    EXPECT_EQ(layer_failure(nested).text,
              "config.json: has no key 'hidden_size' nor 'd_model' (prefix 'text_config.')");
}

class WrongModel : public testing::TestWithParam<size_t> {};

TEST_P(WrongModel, IsNamed) {
    const Wrong& wrong = wrong_models()[GetParam()];
    const Model model = wrong.model();
    const int32_t layer = model.config.find("deepseek") != std::string::npos ? 1 : 0;
    const Failure failure = layer_failure(model, layer);
    EXPECT_EQ(failure.status, wrong.status) << failure.text;
    EXPECT_NE(failure.text.find(wrong.text), std::string::npos) << failure.text;
}

INSTANTIATE_TEST_SUITE_P(Families, WrongModel, testing::Range<size_t>(0, wrong_models().size()),
                         [](const auto& info) {
                             return std::string(wrong_models()[info.param].name);
                         });

}  // namespace
}  // namespace moe::test
