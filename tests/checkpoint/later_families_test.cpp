// Model types that are rules of other families under names of their own, in the names of released
// files; what a model of them has that the family does not is refused.
#include "tests/checkpoint/family_models.hpp"

namespace moe::test {
namespace {

const std::string numbered = R"("moe_intermediate_size":32,"num_experts":4)";

Model sigmoid_block(const std::string& type, const std::string& keys, const std::string& bias,
                    const std::string& shared, const std::string& block = mlp0) {
    Model model = model_of(type, keys);
    model.add(block + "gate.weight", "BF16", {experts, hidden});
    if (!bias.empty()) model.add(block + bias, "F32", {experts});
    add_expert_names(model, block, "gate_proj", "up_proj", "down_proj");
    if (!shared.empty()) add_shared(model, block + shared);
    return model;
}

struct Known {
    const char* type;
    std::string keys;
    const char* bias;
    const char* shared;
    moe_score score;
    float scale;
};

TEST(LaterFamilies, HaveTheirScoresAndScales) {
    const Known cases[] = {
        {"sarvam_moe", numbered + R"(,"num_shared_experts":1,"score_function":"sigmoid")",
         "gate.expert_bias", "shared_experts.", MOE_SCORE_SIGMOID, 2.5f},
        {"sarvam_mla", numbered, "gate.e_score_correction_bias", "shared_experts.",
         MOE_SCORE_SIGMOID, 2.5f},
        {"param2moe", numbered + R"(,"routed_scaling_factor":1.5)", "gate.expert_bias",
         "shared_experts.", MOE_SCORE_SIGMOID, 1.5f},
        {"param2moe", numbered, "gate.expert_bias", "shared_experts.", MOE_SCORE_SIGMOID, 1.0f},
        {"dots3_note_text", routed, "gate.e_score_correction_bias", "shared_experts.",
         MOE_SCORE_SIGMOID, 1.0f},
        {"glm5_next_text", routed, "gate.e_score_correction_bias", "shared_experts.",
         MOE_SCORE_SIGMOID, 2.5f},
        {"hy_v4_vl_text", routed, "gate.e_score_correction_bias", "shared_experts.",
         MOE_SCORE_SIGMOID, 2.827f},
        {"mimo_v2", routed + R"(,"routed_scaling_factor":null)", "gate.e_score_correction_bias", "",
         MOE_SCORE_SIGMOID, 1.0f},
        {"unlimited_ocr_text", routed + R"(,"topk_method":"greedy")", "", "shared_experts.",
         MOE_SCORE_SOFTMAX, 1.0f},
        {"deepseek_ocr2_text", routed, "", "shared_experts.", MOE_SCORE_SOFTMAX, 1.0f},
    };
    for (const Known& c : cases) {
        SCOPED_TRACE(c.type);
        const Model model = sigmoid_block(c.type, c.keys, c.bias, c.shared);
        const size_t n = 13 + (*c.bias ? 1u : 0u) + (*c.shared ? 3u : 0u);
        const moe_layer_desc desc = desc_of(model, n);
        EXPECT_EQ(desc.score, c.score);
        EXPECT_EQ(desc.routed_scale, c.scale);
        EXPECT_EQ(desc.n_group, 0);
    }
}

TEST(LaterFamilies, ClampsAreTheirs) {
    const auto with = [](const char* type, const std::string& keys) {
        return desc_of(sigmoid_block(type, keys, "gate.e_score_correction_bias", "shared_experts."),
                       17);
    };
    const moe_layer_desc glm = with("glm5_next", routed + R"(,"swiglu_limit":6)");
    EXPECT_EQ(glm.gate_limit, 6.0f);
    EXPECT_EQ(glm.shared_up_limit, 6.0f);
    EXPECT_EQ(with("glm5_next", routed).gate_limit, 10.0f);
    const moe_layer_desc hunyuan = with("hy_v4", routed + R"(,"swiglu_limit":6)");
    EXPECT_EQ(hunyuan.up_limit, 6.0f);
    EXPECT_EQ(hunyuan.has_shared_gate_limit, 0);
    EXPECT_EQ(with("hy_v4", routed + R"(,"swiglu_limit":0)").has_gate_limit, 0);
    // Ling 3: lists, after the activation.
    const moe_layer_desc ling =
        desc_of(sigmoid_block("bailing_hybrid",
                              numbered + R"(,"n_group":1,"expert_swiglu_limit_list":[7,0],)"
                                         R"("share_expert_swiglu_limit_list":[9,0])",
                              "gate.expert_bias", "shared_experts."),
                17);
    EXPECT_EQ(ling.post_limit, 7.0f);
    EXPECT_EQ(ling.up_limit, 7.0f);
    EXPECT_EQ(ling.shared_post_limit, 9.0f);
    EXPECT_EQ(ling.has_gate_limit, 0);
}

// Names begin at the layer.
TEST(LaterFamilies, MistralLarge4AsReleased) {
    Model model = model_of("mistral_large4", "");
    model.config = R"({"model_type":"mistral_large4","text_config":{"hidden_size":64,)"
                   R"("model_type":"mistral_large4_text","num_experts_per_tok":2,)" +
                   routed + R"(,"n_shared_experts":1}})";
    model.add("layers.0.gate.weight", "F32", {experts, hidden});
    add_expert_names(model, "layers.0.", "w1", "w3", "w2");
    for (const auto& [name, shape] : {std::pair<const char*, Shape>{"w1", {48, hidden}},
                                      {"w3", {48, hidden}},
                                      {"w2", {hidden, 48}}})
        model.add(std::string("layers.0.shared_experts.") + name + ".weight", "BF16", shape);
    model.add("layers.0.attention.wo.weight", "BF16", {hidden, hidden});
    const moe_layer_desc desc = desc_of(model, 16);
    EXPECT_EQ(desc.score, MOE_SCORE_SOFTMAX);
    EXPECT_EQ(desc.renormalize, MOE_RENORMALIZE_SUM_ADD);
    EXPECT_EQ(desc.shared_intermediate, 48);
    model.add("layers.0.gate.bias", "F32", {experts});
    EXPECT_EQ(layer_failure(model).text,
              "model.safetensors: tensor 'layers.0.gate.bias': is a bias, which this family does "
              "not have");
}

TEST(LaterFamilies, IquestHasStacksOfItsOwn) {
    Model model = model_of("iquest_q1", R"("intermediate_size":32,"num_experts":4)");
    model.add(mlp0 + "router.weight", "F32", {experts, hidden});
    model.add(mlp0 + "experts.fc", "BF16", {experts, 2 * width, hidden});
    model.add(mlp0 + "experts.proj", "BF16", {experts, hidden, width});
    const moe_layer_desc desc = desc_of(model, 3);
    EXPECT_EQ(desc.score, MOE_SCORE_SOFTMAX);
    EXPECT_EQ(desc.renormalize, MOE_RENORMALIZE_SUM_ADD);
}

TEST(LaterFamilies, DiffusionGemmaLiesInItsDecoder) {
    Model model = model_of("diffusion_gemma",
                           R"("moe_intermediate_size":32,"num_experts":4,"top_k_experts":2,)"
                           R"("hidden_activation":"gelu_pytorch_tanh")");
    const std::string layer = "model.decoder.layers.0.";
    model.add(layer + "router.proj.weight", "BF16", {experts, hidden});
    model.add(layer + "router.scale", "BF16", {hidden});
    model.add(layer + "router.per_expert_scale", "BF16", {experts});
    add_merged(model, layer, false);
    const moe_layer_desc desc = desc_of(model, 5);
    EXPECT_EQ(desc.activation, MOE_ACTIVATION_GELU_TANH);
    EXPECT_EQ(desc.has_expert_scale, 1);
}

// Step-5 is Step-3.5's layer; one in a latent is not.
TEST(LaterFamilies, Step5WithALatentIsRefused) {
    const std::string keys =
        R"("moe_intermediate_size":32,"moe_num_experts":4,"moe_top_k":2,"norm_expert_weight":true)";
    Model model = model_of("step5", keys);
    model.add(layer0 + "moe.gate.weight", "BF16", {experts, hidden});
    model.add(layer0 + "moe.router_bias", "F32", {experts});
    model.add(layer0 + "moe.gate_proj.weight", "BF16", {experts, width, hidden});
    model.add(layer0 + "moe.up_proj.weight", "BF16", {experts, width, hidden});
    model.add(layer0 + "moe.down_proj.weight", "BF16", {experts, hidden, width});
    add_shared(model, layer0 + "share_expert.");
    EXPECT_EQ(desc_of(model, 8).score, MOE_SCORE_SIGMOID);
    model.config.insert(model.config.size() - 1, R"(,"latent_moe_enabled":true)");
    EXPECT_EQ(layer_failure(model).text,
              "config.json: 'latent_moe_enabled' is true, which family 'step3p5' neither reads nor "
              "has in layer 0; a key that changes nothing may be removed");
}

// block_sparse_moe.experts. is Mixtral's, too: the family says where its names begin.
TEST(LaterFamilies, GraniteOneByOne) {
    const std::string block = layer0 + "block_sparse_moe.";
    for (const char* type : {"granitemoe", "granitemoehybrid", "granitemoe_swa"}) {
        Model model = model_of(type, local + R"(,"shared_intermediate_size":48)");
        model.add(block + "router.layer.weight", "BF16", {experts, hidden});
        add_expert_names(model, block, "gate_proj", "up_proj", "down_proj");
        model.add(layer0 + "shared_mlp.input_linear.weight", "BF16", {96, hidden});
        model.add(layer0 + "shared_mlp.output_linear.weight", "BF16", {hidden, 48});
        const moe_layer_desc desc = desc_of(model, 15);
        EXPECT_EQ(desc.post_score, MOE_SCORE_SOFTMAX);
        EXPECT_EQ(desc.shared_intermediate, 48);
        model.tensors.erase(block + "router.layer.weight");
        const Failure failure = layer_failure(model);
        EXPECT_EQ(failure.status, MOE_ERROR_NOT_FOUND);
        EXPECT_EQ(failure.text,
                  "model.safetensors: there is no tensor '" + block + "router.layer.weight'");
    }
}

// A stack that is longer by the identity experts; of another length it is refused.
TEST(LaterFamilies, LongcatMerged) {
    Model model = model_of("longcat_flash",
                           R"("expert_ffn_hidden_size":32,"n_routed_experts":4,"moe_topk":2,)"
                           R"("zero_expert_num":2,"zero_expert_type":"identity")");
    model.add(mlp0 + "router.classifier.weight", "F32", {6, hidden});
    model.add(mlp0 + "router.e_score_correction_bias", "F32", {6});
    model.add(mlp0 + "experts.gate_up_proj", "BF16", {6, 2 * width, hidden});
    model.add(mlp0 + "experts.down_proj", "BF16", {experts, hidden, width});
    EXPECT_EQ(desc_of(model, 4).n_identity_experts, 2);
    const Folder folder;
    const Handle checkpoint = open_model(folder, model);
    const LayerTensor* stack = find_tensor(checkpoint, 0, MOE_ROLE_GATE_UP, MOE_ALL_EXPERTS);
    ASSERT_TRUE(stack);
    const std::string& bytes = model.tensors[mlp0 + "experts.gate_up_proj"].bytes;
    EXPECT_EQ(stack->tensor.data_bytes, bytes.size() / 6 * 4);
    EXPECT_EQ(read_range(checkpoint, stack->data), bytes.substr(0, bytes.size() / 6 * 4));
    // In other types the bytes of the experts that count would be taken for all of them.
    model.add(mlp0 + "experts.gate_up_proj", "F8_E4M3", {6, 2 * width, hidden});
    model.add(mlp0 + "experts.gate_up_proj_scale", "F32", {1});
    const Failure quantised = layer_failure(model);
    EXPECT_EQ(quantised.status, MOE_ERROR_UNSUPPORTED);
    EXPECT_NE(quantised.text.find("experts.gate_up_proj': has identity experts too"),
              std::string::npos)
        << quantised.text;
    model.tensors.erase(mlp0 + "experts.gate_up_proj_scale");
    model.add(mlp0 + "experts.gate_up_proj", "BF16", {5, 2 * width, hidden});
    const Failure failure = layer_failure(model);
    EXPECT_EQ(failure.status, MOE_ERROR_CORRUPT_FILE);
    EXPECT_NE(failure.text.find("experts.gate_up_proj': has shape [5, 64, 64], [4, 64, 64]"),
              std::string::npos)
        << failure.text;
}

// Rows of gate and up in turn cannot be told apart in GPTQ's words.
TEST(LaterFamilies, GptOssListsInGptqAreRefused) {
    Model model = gpt_oss(false);
    for (const char* name : {"gate_up_proj", "gate_up_proj_bias", "down_proj", "down_proj_bias"})
        model.tensors.erase(mlp0 + "experts." + name);
    model.config.insert(model.config.size() - 1,
                        R"(,"quantization_config":{"quant_method":"gptq","bits":4,)"
                        R"("group_size":32,"sym":true})");
    const std::string stem = mlp0 + "experts.gate_up_projs.0";
    model.add(stem + ".qweight", "I32", {hidden / 8, 2 * width});
    model.add(stem + ".qzeros", "I32", {hidden / 32, 2 * width / 8});
    model.add(stem + ".scales", "F16", {hidden / 32, 2 * width});
    model.add(stem + ".bias", "F16", {2 * width});
    const Failure failure = layer_failure(model);
    EXPECT_EQ(failure.status, MOE_ERROR_UNSUPPORTED);
    EXPECT_NE(failure.text.find(stem + ".qweight"), std::string::npos) << failure.text;
}

// InternVL, Ovis, DeepSeek-VL2 and Nemotron keep the language model's values under other names.
TEST(LaterFamilies, TheLanguageModelHasAPartOfItsOwn) {
    const std::tuple<const char*, const char*, const char*> cases[] = {
        {"text_config", "qwen3_moe", "model.language_model.layers.0.mlp."},
        {"llm_config", "qwen3_moe", "language_model.model.layers.0.mlp."},
        {"llm_config", "qwen3_moe", "llm.model.layers.0.mlp."},
        {"language_config", "deepseek_v2", "language.model.layers.0.mlp."},
    };
    for (const auto& [part, type, block] : cases) {
        SCOPED_TRACE(part);
        Model model = sigmoid_block(type, "", "", "", block);
        const std::string keys = std::string(type) == "qwen3_moe" ? numbered : routed;
        model.config = R"({"model_type":"one_that_sees","hidden_size":1,")" + std::string(part) +
                       R"(":{"model_type":")" + type +
                       R"(","hidden_size":64,"num_experts_per_tok":2,)" + keys + "}}";
        EXPECT_EQ(desc_of(model, 13).score, MOE_SCORE_SOFTMAX);
    }
    // The type of the whole where the part has none.
    Model vl2 = sigmoid_block("deepseek_v2", "", "", "", "language.model.layers.0.mlp.");
    vl2.config = R"({"model_type":"deepseek_vl_v2","language_config":{"hidden_size":64,)"
                 R"("num_experts_per_tok":2,)" +
                 routed + "}}";
    EXPECT_EQ(desc_of(vl2, 13).score, MOE_SCORE_SOFTMAX);
}

// The sentence says how to name a family.
TEST(LaterFamilies, AnUnknownTypeSaysHow) {
    const Failure failure = failure_of([] {
        const Folder folder;
        open_model(folder, model_of("interns2_mobius", numbered));
    });
    EXPECT_EQ(failure.status, MOE_ERROR_UNSUPPORTED);
    for (const char* part :
         {"'interns2_mobius'", "glm5_next", "moe_checkpoint_options.family", "--family"})
        EXPECT_NE(failure.text.find(part), std::string::npos) << failure.text;
}

// The code of DeepSeek-V3 takes null for false, where the absent key means true.
TEST(LaterFamilies, WeightsAreNotDividedBecauseOfANull) {
    const auto keys = [](const char* norm) { return routed + R"(,"n_group":1,)" + norm; };
    const auto model = [&](const std::string& type, const char* norm) {
        return sigmoid_block(type, keys(norm),
                             type == "glm4_moe" ? "gate.e_score_correction_bias" : "",
                             type == "glm4_moe" ? "shared_experts." : "");
    };
    for (const char* null : {R"("norm_topk_prob":null)",
                             R"("text_config":{"hidden_size":64,"norm_topk_prob":null})"}) {
        const Failure failure = layer_failure(model("glm4_moe", null));
        EXPECT_EQ(failure.status, MOE_ERROR_UNSUPPORTED);
        EXPECT_NE(failure.text.find("'norm_topk_prob' is null"), std::string::npos) << failure.text;
    }
    EXPECT_EQ(desc_of(model("glm4_moe", R"("norm_topk_prob":false)"), 17).renormalize,
              MOE_RENORMALIZE_NONE);
    EXPECT_EQ(desc_of(model("glm4_moe", R"("norm_topk_prob":true)"), 17).renormalize,
              MOE_RENORMALIZE_SUM_ADD);
    // Where the absent key means false, so does null.
    EXPECT_EQ(desc_of(model("qwen2_moe", R"("norm_topk_prob":null,"n_shared_experts":0)"), 13)
                  .renormalize,
              MOE_RENORMALIZE_NONE);
}

}  // namespace
}  // namespace moe::test
