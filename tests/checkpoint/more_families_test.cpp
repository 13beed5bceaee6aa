// Families beside those of families_test.cpp: tensors and configurations as released files name
// them, and what of them is set by the family where names do not tell.
#include "tests/checkpoint/models.hpp"

namespace moe::test {
namespace {

const std::string layer0 = "model.layers.0.";

Model model_of(const std::string& type, const std::string& more) {
    Model model;
    model.config = config_of(type, more);
    return model;
}

const std::string routed = R"("moe_intermediate_size":32,"n_routed_experts":4)";
const std::string local = R"("intermediate_size":32,"num_local_experts":4)";

// Opens the model and returns layer 0's description, which must be one that a plan takes.
moe_layer_desc desc_of(const Model& model, size_t n_tensors) {
    const Folder folder;
    const Handle checkpoint = open_model(folder, model);
    EXPECT_EQ(checkpoint->n_layers(), 1);
    EXPECT_EQ(checkpoint->tensors(0).size(), n_tensors);
    const moe_layer_desc desc = checkpoint->layer_desc(0);
    EXPECT_EQ(moe_layer_validate(&desc), MOE_OK) << moe_last_error();
    EXPECT_EQ(desc.hidden, hidden);
    EXPECT_EQ(desc.intermediate, width);
    EXPECT_EQ(desc.n_experts, experts);
    EXPECT_EQ(desc.has_router, 1);
    return desc;
}

struct Scored {
    const char* type;
    std::string config;
    const char* block;
    const char* router;
    const char* bias;
    const char* shared;  // stem; "" for none
    bool w_names;
    float scale;
    float eps;
};

TEST(ScoredFamilies, HaveTheirNamesAndScales) {
    const Scored cases[] = {
        {"glm4_moe", routed + R"(,"n_shared_experts":1,"routed_scaling_factor":2.5)", "mlp.",
         "gate.weight", "gate.e_score_correction_bias", "shared_experts.", false, 2.5f, 1e-20f},
        {"glm4_moe_lite", routed + R"(,"n_shared_experts":1)", "mlp.", "gate.weight",
         "gate.e_score_correction_bias", "shared_experts.", false, 1.8f, 1e-20f},
        {"glm_moe_dsa", routed + R"(,"n_shared_experts":1)", "mlp.", "gate.weight",
         "gate.e_score_correction_bias", "shared_experts.", false, 2.5f, 1e-20f},
        {"dots1",
         routed + R"(,"n_shared_experts":2,"norm_topk_prob":true,"scoring_func":"noaux_tc")",
         "mlp.", "gate.weight", "gate.e_score_correction_bias", "shared_experts.", false, 1.0f,
         1e-20f},
        {"exaone_moe", R"("moe_intermediate_size":32,"num_experts":4,"num_shared_experts":1)",
         "mlp.", "gate.weight", "e_score_correction_bias", "shared_experts.", false, 2.5f, 1e-20f},
        {"mimo_v2_flash", routed + R"(,"routed_scaling_factor":null)", "mlp.", "gate.weight",
         "gate.e_score_correction_bias", "", false, 1.0f, 1e-20f},
        {"kimi_linear",
         R"("moe_intermediate_size":32,"num_experts":4,"num_experts_per_token":2,)"
         R"("num_shared_experts":1,"moe_renormalize":true,"num_expert_group":1)",
         "block_sparse_moe.", "gate.weight", "gate.e_score_correction_bias", "shared_experts.",
         true, 2.446f, 1e-20f},
        {"minimax_m2", local, "block_sparse_moe.", "gate.weight", "e_score_correction_bias", "",
         true, 1.0f, 0.0f},
        {"hy_v3", R"("moe_intermediate_size":32,"num_experts":4,"num_shared_experts":1)", "mlp.",
         "router.gate.weight", "expert_bias", "shared_mlp.", false, 2.826f, 1e-20f},
        {"afmoe", R"("moe_intermediate_size":32,"num_experts":4,"route_scale":3)", "mlp.",
         "router.gate.weight", "expert_bias", "shared_experts.", false, 3.0f, 1e-20f},
        {"lfm2_moe", R"("moe_intermediate_size":32,"num_experts":4)", "feed_forward.",
         "gate.weight", "expert_bias", "", true, 1.0f, 1e-6f},
        {"bailing_moe_v2",
         R"("moe_intermediate_size":32,"num_experts":4,"num_shared_experts":1,)"
         R"("score_function":"sigmoid","routed_scaling_factor":2.5)",
         "mlp.", "gate.weight", "gate.expert_bias", "shared_experts.", false, 2.5f, 1e-20f},
    };
    for (const Scored& c : cases) {
        SCOPED_TRACE(c.type);
        Model model = model_of(c.type, c.config);
        const std::string block = layer0 + c.block;
        model.add(block + c.router, "BF16", {experts, hidden});
        model.add(block + c.bias, "F32", {experts});
        if (c.w_names) {
            add_expert_names(model, block, "w1", "w3", "w2");
        } else {
            add_expert_names(model, block, "gate_proj", "up_proj", "down_proj");
        }
        if (*c.shared) add_shared(model, block + c.shared);
        const moe_layer_desc desc = desc_of(model, *c.shared ? 17 : 14);
        EXPECT_EQ(desc.score, MOE_SCORE_SIGMOID);
        EXPECT_EQ(desc.has_selection_bias, 1);
        EXPECT_EQ(desc.routed_scale, c.scale);
        EXPECT_EQ(desc.renormalize, MOE_RENORMALIZE_SUM_ADD);
        EXPECT_EQ(desc.renormalize_eps, c.eps);
        EXPECT_EQ(desc.n_group, 0);
        EXPECT_EQ(desc.shared_intermediate, *c.shared ? shared_width : 0);

        model.tensors.erase(block + c.bias);
        const Failure failure = layer_failure(model);
        if (std::string(c.type) == "bailing_moe_v2") continue;  // then it is the first generation
        EXPECT_EQ(failure.status, MOE_ERROR_NOT_FOUND);
        EXPECT_NE(failure.text.find(block + c.bias), std::string::npos) << failure.text;
    }
}

TEST(ScoredFamilies, MinimaxM3ClampsBothKindsOfExperts) {
    // As released; transformers writes "silu".
    Model model =
        model_of("minimax_m3_vl", local + R"(,"swiglu_limit":6,"hidden_act":"swigluoai")");
    const std::string block = "language_model.model.layers.0.block_sparse_moe.";
    model.add(block + "gate.weight", "BF16", {experts, hidden});
    model.add(block + "e_score_correction_bias", "F32", {experts});
    add_expert_names(model, block, "w1", "w3", "w2");
    add_shared(model, block + "shared_experts.");
    const moe_layer_desc desc = desc_of(model, 17);
    EXPECT_EQ(desc.routed_scale, 2.0f);
    EXPECT_EQ(desc.activation_up_offset, 1.0f);
    EXPECT_EQ(desc.activation_alpha, 1.702f);
    EXPECT_EQ(desc.up_limit, 6.0f);
    EXPECT_EQ(desc.shared_gate_limit, 6.0f);
    EXPECT_EQ(desc.shared_activation_up_offset, 1.0f);
}

TEST(ScoredFamilies, StepHasLimitsPerLayer) {
    Model model = model_of(
        "step3p5",
        R"("moe_intermediate_size":32,"moe_num_experts":4,"moe_top_k":2,"moe_router_scaling_factor":3,)"
        R"("swiglu_limits":[7,0],"swiglu_limits_shared":[16,0])");
    for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
        model.add(layer + "moe.gate.weight", "BF16", {experts, hidden});
        model.add(layer + "moe.router_bias", "F32", {experts});
        model.add(layer + "moe.gate_proj.weight", "BF16", {experts, width, hidden});
        model.add(layer + "moe.up_proj.weight", "BF16", {experts, width, hidden});
        model.add(layer + "moe.down_proj.weight", "BF16", {experts, hidden, width});
        add_shared(model, layer + "share_expert.");
    }
    const Folder folder;
    const Handle checkpoint = open_model(folder, model);
    ASSERT_EQ(checkpoint->n_layers(), 2);
    EXPECT_EQ(checkpoint->tensors(1).size(), 8u);
    const moe_layer_desc& limited = checkpoint->layer_desc(0);
    EXPECT_EQ(moe_layer_validate(&limited), MOE_OK) << moe_last_error();
    EXPECT_EQ(limited.post_limit, 7.0f);
    EXPECT_EQ(limited.up_limit, 7.0f);
    EXPECT_EQ(limited.shared_post_limit, 16.0f);
    EXPECT_EQ(limited.routed_scale, 3.0f);
    EXPECT_EQ(checkpoint->layer_desc(1).has_post_limit, 0);
    EXPECT_EQ(checkpoint->layer_desc(1).has_shared_up_limit, 0);
}

TEST(ScoredFamilies, NemotronHasNoGateAndALatent) {
    Model model =
        model_of("nemotron_h", routed + R"(,"moe_latent_size":32,"mlp_hidden_act":"relu2",)"
                                        R"("routed_scaling_factor":5)");
    const std::string block = "backbone.layers.0.mixer.";
    model.add("backbone.layers.1.mixer.q_proj.weight", "BF16", {hidden, hidden});
    model.add(block + "gate.weight", "BF16", {experts, hidden});
    model.add(block + "gate.e_score_correction_bias", "F32", {experts});
    model.add(block + "fc1_latent_proj.weight", "BF16", {32, hidden});
    model.add(block + "fc2_latent_proj.weight", "BF16", {hidden, 32});
    for (int e = 0; e < experts; ++e) {
        const std::string stem = block + "experts." + std::to_string(e);
        model.add(stem + ".up_proj.weight", "BF16", {width, 32});
        model.add(stem + ".down_proj.weight", "BF16", {32, width});
    }
    model.add(block + "shared_experts.up_proj.weight", "BF16", {shared_width, hidden});
    model.add(block + "shared_experts.down_proj.weight", "BF16", {hidden, shared_width});
    const moe_layer_desc desc = desc_of(model, 14);
    EXPECT_EQ(desc.activation, MOE_ACTIVATION_RELU2);
    EXPECT_EQ(desc.is_gated, 0);
    EXPECT_EQ(desc.shared_is_gated, 0);
    EXPECT_EQ(desc.latent, 32);
    EXPECT_EQ(desc.shared_intermediate, shared_width);
}

// Experts in MXFP4 that work in a latent of 32, everything else in BF16.
Model kimi_k3() {
    Model model;
    model.config =
        R"({"model_type":"kimi_k3","text_config":{"model_type":"kimi_linear","hidden_size":64,)"
        R"("moe_intermediate_size":32,"num_experts":4,"num_experts_per_token":2,)"
        R"("num_shared_experts":2,"moe_renormalize":true,"moe_router_activation_func":"sigmoid",)"
        R"("num_expert_group":1,"topk_group":1,"routed_scaling_factor":1.0,)"
        R"("routed_expert_hidden_size":32,"latent_moe_use_norm":true,"rms_norm_eps":1e-05,)"
        R"("hidden_act":"situ","activation_situ_beta":4.0,"activation_situ_linear_beta":25.0,)"
        R"("quantization_config":{"quant_method":"compressed-tensors"}}})";
    const std::string block = "language_model.model.layers.1.block_sparse_moe.";
    model.add("language_model.model.layers.0.mlp.gate_proj.weight", "BF16", {8, hidden});
    model.add(block + "gate.weight", "BF16", {experts, hidden});
    model.add(block + "gate.e_score_correction_bias", "F32", {experts});
    model.add(block + "routed_expert_down_proj.weight", "BF16", {32, hidden});
    model.add(block + "routed_expert_norm.weight", "BF16", {32});
    model.add(block + "routed_expert_up_proj.weight", "BF16", {hidden, 32});
    for (int e = 0; e < experts; ++e)
        for (const char* name : {"w1", "w3", "w2"}) {
            const std::string stem = block + "experts." + std::to_string(e) + "." + name;
            model.add(stem + ".weight_packed", "U8", {32, 16});
            model.add(stem + ".weight_scale", "U8", {32, 1});
        }
    add_shared(model, block + "shared_experts.");
    return model;
}

TEST(KimiK3, HasALatentWithANormAndSitu) {
    const Folder folder;
    const Handle checkpoint = open_model(folder, kimi_k3());
    ASSERT_EQ(checkpoint->n_layers(), 1);
    EXPECT_STREQ(checkpoint->info().family, "kimi_linear");
    EXPECT_EQ(checkpoint->tensors(1).size(), 20u);
    const moe_layer_desc& desc = checkpoint->layer_desc(1);
    EXPECT_EQ(moe_layer_validate(&desc), MOE_OK) << moe_last_error();
    EXPECT_EQ(desc.hidden, hidden);
    EXPECT_EQ(desc.latent, 32);
    EXPECT_EQ(desc.has_latent_norm, 1);
    EXPECT_EQ(desc.latent_norm_eps, 1e-5f);
    EXPECT_EQ(desc.score, MOE_SCORE_SIGMOID);
    EXPECT_EQ(desc.routed_scale, 1.0f);
    EXPECT_EQ(desc.renormalize_eps, 1e-20f);
    for (const moe_activation activation : {desc.activation, desc.shared_activation})
        EXPECT_EQ(activation, MOE_ACTIVATION_SITU);
    for (const float beta : {desc.situ_beta, desc.shared_situ_beta}) EXPECT_EQ(beta, 4.0f);
    for (const float beta : {desc.situ_beta_up, desc.shared_situ_beta_up}) EXPECT_EQ(beta, 25.0f);
    EXPECT_EQ(desc.shared_intermediate, shared_width);
    EXPECT_EQ(find_tensor(checkpoint, 1, MOE_ROLE_DOWN, 3)->format.type, MOE_TYPE_E2M1);
    EXPECT_EQ(find_tensor(checkpoint, 1, MOE_ROLE_LATENT_NORM, 0)->tensor.columns, 32);
}

TEST(KimiK3, NothingOfItIsGuessed) {
    const std::string stem = "language_model.model.layers.1.block_sparse_moe.routed_expert_";
    for (const char* name : {"down_proj.weight", "norm.weight", "up_proj.weight"}) {
        Model model = kimi_k3();
        model.tensors.erase(stem + name);
        const Failure failure = layer_failure(model, 1);
        EXPECT_EQ(failure.status, MOE_ERROR_NOT_FOUND);
        EXPECT_NE(failure.text.find(stem + name), std::string::npos) << failure.text;
    }
    for (const std::string key :
         {"activation_situ_beta", "activation_situ_linear_beta", "rms_norm_eps"}) {
        Model model = kimi_k3();
        model.config.replace(model.config.find('"' + key), key.size() + 2, "\"x\"");
        const Failure failure = layer_failure(model, 1);
        EXPECT_EQ(failure.status, MOE_ERROR_NOT_FOUND);
        EXPECT_NE(failure.text.find("config.json: has no key '" + key), std::string::npos)
            << failure.text;
    }
    Model model = kimi_k3();
    model.config.replace(model.config.find("\"sigmoid\""), 9, "\"tanh\"");
    EXPECT_NE(layer_failure(model, 1).text.find("moe_router_activation_func 'tanh' is not known"),
              std::string::npos);
}

TEST(DeepseekV4, HasHashLayersAndOthers) {
    Model model = model_of("deepseek_v4",
                           routed + R"(,"n_shared_experts":1,"swiglu_limit":10,)"
                                    R"("scoring_func":"sqrtsoftplus","routed_scaling_factor":1.5)");
    for (const std::string block : {"layers.0.ffn.", "layers.1.ffn."}) {
        model.add(block + "gate.weight", "BF16", {experts, hidden});
        for (int e = 0; e < experts; ++e) {
            const std::string stem = block + "experts." + std::to_string(e) + ".";
            for (const auto& [name, rows, columns] :
                 {std::tuple{"w1", width, hidden}, {"w3", width, hidden}, {"w2", hidden, width}}) {
                model.add(stem + name + ".weight", "I8", {rows, columns / 2});
                model.add(stem + name + ".scale", "F8_E8M0", {rows, columns / 32});
            }
        }
        for (const auto& [name, rows, columns] : {std::tuple{"w1", shared_width, hidden},
                                                  {"w3", shared_width, hidden},
                                                  {"w2", hidden, shared_width}}) {
            model.add(block + "shared_experts." + name + ".weight", "F8_E4M3", {rows, columns});
            model.add(block + "shared_experts." + name + ".scale", "F8_E8M0", {1, 1});
        }
    }
    model.add("layers.0.ffn.gate.tid2eid", "I64", {50, 2});
    model.add("layers.1.ffn.gate.bias", "F32", {experts});
    const Folder folder;
    const Handle checkpoint = open_model(folder, model);
    ASSERT_EQ(checkpoint->n_layers(), 2);
    const moe_layer_desc& hash = checkpoint->layer_desc(0);
    EXPECT_EQ(moe_layer_validate(&hash), MOE_OK) << moe_last_error();
    EXPECT_EQ(hash.selection, MOE_SELECT_HASH);
    EXPECT_EQ(hash.hash_vocabulary, 50);
    EXPECT_EQ(hash.has_selection_bias, 0);
    EXPECT_EQ(find_tensor(checkpoint, 0, MOE_ROLE_HASH_TABLE, 0)->format.type, MOE_TYPE_I64);
    const moe_layer_desc& desc = checkpoint->layer_desc(1);
    EXPECT_EQ(moe_layer_validate(&desc), MOE_OK) << moe_last_error();
    EXPECT_EQ(desc.score, MOE_SCORE_SQRT_SOFTPLUS);
    EXPECT_EQ(desc.selection, MOE_SELECT_TOP_K);
    EXPECT_EQ(desc.has_selection_bias, 1);
    EXPECT_EQ(desc.gate_limit, 10.0f);
    EXPECT_EQ(desc.shared_up_limit, 10.0f);
    EXPECT_EQ(desc.routed_scale, 1.5f);
    EXPECT_EQ(find_tensor(checkpoint, 1, MOE_ROLE_UP, 2)->format.type, MOE_TYPE_E2M1);
    EXPECT_EQ(find_tensor(checkpoint, 1, MOE_ROLE_SHARED_UP, 0)->format.type, MOE_TYPE_F8_E4M3);
}

TEST(DeepseekV4, MayHaveNoSharedExpert) {
    Model model = model_of("deepseek_v4", routed);
    model.add("layers.0.ffn.gate.weight", "BF16", {experts, hidden});
    model.add("layers.0.ffn.gate.bias", "F32", {experts});
    add_expert_names(model, "layers.0.ffn.", "w1", "w3", "w2");
    EXPECT_EQ(desc_of(model, 14).has_shared_gate_limit, 0);
}

TEST(SoftmaxFamilies, HaveTheirNames) {
    const struct {
        const char* type;
        std::string config;
        const char* block;
        const char* router;
        bool w_names;
        moe_renormalize norm;
    } cases[] = {
        {"minimax", local, "block_sparse_moe.", "gate.weight", true, MOE_RENORMALIZE_SUM_ADD},
        {"arctic", local, "block_sparse_moe.", "gate.weight", true, MOE_RENORMALIZE_SUM_ADD},
        {"olmoe", R"("intermediate_size":32,"num_experts":4,"norm_topk_prob":false)", "mlp.",
         "gate.weight", false, MOE_RENORMALIZE_NONE},
        {"flex_olmo", R"("intermediate_size":32,"num_experts":4)", "mlp.", "gate.weight", false,
         MOE_RENORMALIZE_NONE},
        {"jamba", R"("intermediate_size":32,"num_experts":4)", "feed_forward.", "router.weight",
         false, MOE_RENORMALIZE_NONE},
        {"qwen3_5_moe", R"("moe_intermediate_size":32,"num_experts":4)", "mlp.", "gate.weight",
         false, MOE_RENORMALIZE_SUM_ADD},
        {"bailing_moe", R"("moe_intermediate_size":32,"num_experts":4,"norm_topk_prob":true)",
         "mlp.", "gate.weight", false, MOE_RENORMALIZE_SUM_ADD},
        {"mistral4", routed, "mlp.", "gate.weight", false, MOE_RENORMALIZE_SUM_ADD},
    };
    for (const auto& c : cases) {
        SCOPED_TRACE(c.type);
        Model model = model_of(c.type, c.config);
        const std::string block = layer0 + c.block;
        model.add(block + c.router, "BF16", {experts, hidden});
        if (c.w_names) {
            add_expert_names(model, block, "w1", "w3", "w2");
        } else {
            add_expert_names(model, block, "gate_proj", "up_proj", "down_proj");
        }
        const moe_layer_desc desc = desc_of(model, 13);
        EXPECT_EQ(desc.score, MOE_SCORE_SOFTMAX);
        EXPECT_EQ(desc.renormalize, c.norm);
        EXPECT_EQ(desc.has_selection_bias, 0);
    }
}

// The Talker's layers have the same numbers and are not read.
TEST(SoftmaxFamilies, Qwen3OmniIsItsThinker) {
    const std::string text =
        R"("text_config":{"model_type":"qwen3_omni_moe_text","hidden_size":64,"num_experts":4,)"
        R"("num_experts_per_tok":2,"moe_intermediate_size":32,"shared_expert_intermediate_size":0})";
    const std::pair<std::string, std::string> forms[] = {
        {R"({"model_type":"qwen3_omni_moe","talker_config":{"text_config":{"hidden_size":32}},)"
         R"("thinker_config":{)" +
             text + "}}",
         "thinker.model.layers.0.mlp."},
        {R"({"model_type":"qwen3_omni_moe_thinker",)" + text + "}", "model.layers.0.mlp."},
    };
    for (const auto& [config, block] : forms) {
        Model model;
        model.config = config;
        model.add(block + "gate.weight", "BF16", {experts, hidden});
        add_expert_names(model, block, "gate_proj", "up_proj", "down_proj");
        model.add("talker.model.layers.0.mlp.experts.0.up_proj.weight", "BF16", {width, 32});
        const moe_layer_desc desc = desc_of(model, 13);
        EXPECT_EQ(desc.score, MOE_SCORE_SOFTMAX);
        EXPECT_EQ(desc.renormalize, MOE_RENORMALIZE_SUM_ADD);
        EXPECT_EQ(desc.shared_intermediate, 0);
    }
}

TEST(SoftmaxFamilies, PhiMoeIsASparsemixer) {
    Model model = model_of("phimoe", local + R"(,"router_jitter_noise":0.02)");
    model.add(layer0 + "block_sparse_moe.gate.weight", "BF16", {experts, hidden});
    add_expert_names(model, layer0 + "block_sparse_moe.", "w1", "w3", "w2");
    const moe_layer_desc desc = desc_of(model, 13);
    EXPECT_EQ(desc.selection, MOE_SELECT_SPARSEMIXER);
    EXPECT_EQ(desc.sparsemixer_jitter, 0.02f);
}

TEST(SoftmaxFamilies, ErnieHasABiasOfTwoDimensions) {
    Model model =
        model_of("ernie4_5_moe", R"("moe_intermediate_size":32,"moe_num_experts":4,"moe_k":2,)"
                                 R"("moe_num_shared_experts":2)");
    const std::string block = layer0 + "mlp.";
    model.add(block + "gate.weight", "F32", {experts, hidden});
    model.add(block + "moe_statics.e_score_correction_bias", "F32", {1, experts});
    add_expert_names(model, block, "gate_proj", "up_proj", "down_proj");
    add_shared(model, block + "shared_experts.");
    const moe_layer_desc desc = desc_of(model, 17);
    EXPECT_EQ(desc.score, MOE_SCORE_SOFTMAX);
    EXPECT_EQ(desc.has_selection_bias, 1);
    EXPECT_EQ(desc.renormalize, MOE_RENORMALIZE_SUM_CLAMP);
    EXPECT_EQ(desc.renormalize_eps, 1e-12f);
}

TEST(SoftmaxFamilies, LongcatCountsIdentityExperts) {
    Model model = model_of("longcat_flash",
                           R"("expert_ffn_hidden_size":32,"ffn_hidden_size":96,"moe_topk":2,)"
                           R"("n_routed_experts":4,"zero_expert_num":2)");
    const std::string block = layer0 + "mlp.";
    model.add(block + "router.classifier.weight", "BF16", {experts + 2, hidden});
    model.add(block + "router.e_score_correction_bias", "F32", {experts + 2});
    model.add(layer0 + "mlps.0.gate_proj.weight", "BF16", {96, hidden});
    add_expert_names(model, block, "gate_proj", "up_proj", "down_proj");
    const moe_layer_desc desc = desc_of(model, 14);
    EXPECT_EQ(desc.n_identity_experts, 2);
    EXPECT_EQ(desc.routed_scale, 6.0f);
    EXPECT_EQ(desc.renormalize, MOE_RENORMALIZE_NONE);
}

TEST(SoftmaxFamilies, HunyuanHasListsAndUpFirst) {
    const std::string block = layer0 + "mlp.";
    Model model = model_of("hunyuan_v1_moe",
                           R"("intermediate_size":32,"num_experts":[4,9],"moe_topk":[2,1])");
    model.config.replace(model.config.find("\"num_experts_per_tok\":2,"), 24, "");
    model.add(block + "gate.wg.weight", "F32", {experts, hidden});
    add_expert_names(model, block, "gate_proj", "up_proj", "down_proj");
    add_shared(model, block + "shared_mlp.");
    EXPECT_EQ(desc_of(model, 16).top_k, 2);

    Model fused = model_of("hunyuan", R"("intermediate_size":32,"num_experts":4,"moe_topk":2)");
    fused.add(block + "gate.wg.weight", "F32", {experts, hidden});
    for (int e = 0; e < experts; ++e) {
        const std::string stem = block + "experts." + std::to_string(e) + ".";
        fused.add(stem + "gate_and_up_proj.weight", "BF16", {2 * width, hidden});
        fused.add(stem + "down_proj.weight", "BF16", {hidden, width});
    }
    fused.add(block + "shared_mlp.gate_and_up_proj.weight", "BF16", {2 * shared_width, hidden});
    fused.add(block + "shared_mlp.down_proj.weight", "BF16", {hidden, shared_width});
    const Folder folder;
    const Handle checkpoint = open_model(folder, fused);
    const LayerTensor* gate_up = find_tensor(checkpoint, 0, MOE_ROLE_GATE_UP, 1);
    ASSERT_TRUE(gate_up);
    EXPECT_EQ(gate_up->tensor.gate_up_order, MOE_GATE_UP_UP_FIRST);
    const LayerTensor* shared = find_tensor(checkpoint, 0, MOE_ROLE_SHARED_GATE_UP, 0);
    ASSERT_TRUE(shared);
    EXPECT_EQ(shared->tensor.gate_up_order, MOE_GATE_UP_UP_FIRST);
    EXPECT_EQ(checkpoint->layer_desc(0).shared_intermediate, shared_width);
    moe_format gate{};
    moe_format* out[MOE_ROLE_COUNT] = {};
    out[MOE_ROLE_SHARED_UP] = &gate;
    checkpoint->formats(0, out, MOE_ROLE_COUNT);
    EXPECT_EQ(gate.type, MOE_TYPE_BF16);
}

TEST(SoftmaxFamilies, GraniteIsConcatenatedWithItsSharedExpertBeside) {
    for (const char* type : {"granitemoe", "granitemoeshared", "granitemoehybrid"}) {
        SCOPED_TRACE(type);
        const bool shared = std::string(type) != "granitemoe";
        Model model = model_of(type, local + (shared ? R"(,"shared_intermediate_size":48)" : ""));
        model.add(layer0 + "block_sparse_moe.router.layer.weight", "BF16", {experts, hidden});
        model.add(layer0 + "block_sparse_moe.input_linear.weight", "BF16",
                  {experts, 2 * width, hidden});
        model.add(layer0 + "block_sparse_moe.output_linear.weight", "BF16",
                  {experts, hidden, width});
        if (shared) {
            model.add(layer0 + "shared_mlp.input_linear.weight", "BF16",
                      {2 * shared_width, hidden});
            model.add(layer0 + "shared_mlp.output_linear.weight", "BF16", {hidden, shared_width});
        }
        const moe_layer_desc desc = desc_of(model, shared ? 5 : 3);
        EXPECT_EQ(desc.score, MOE_SCORE_NONE);
        EXPECT_EQ(desc.post_score, MOE_SCORE_SOFTMAX);
        EXPECT_EQ(desc.shared_intermediate, shared ? shared_width : 0);
    }
}

TEST(SoftmaxFamilies, DbrxStacksExpertsInTwoDimensions) {
    Model model =
        model_of("dbrx", R"("d_model":64,"ffn_config":{"ffn_hidden_size":32,"moe_num_experts":4,)"
                         R"("moe_top_k":2,"moe_normalize_expert_weights":1.0,)"
                         R"("ffn_act_fn":{"name":"silu"}})");
    const std::string block = "transformer.blocks.0.ffn.";
    model.add(block + "router.layer.weight", "BF16", {experts, hidden});
    for (const char* name : {"w1", "v1", "w2"})
        model.add(block + "experts.mlp." + name, "BF16", {experts * width, hidden});
    const moe_layer_desc desc = desc_of(model, 4);
    EXPECT_EQ(desc.renormalize, MOE_RENORMALIZE_SUM_ADD);
    const Folder folder;
    const Handle checkpoint = open_model(folder, model);
    const LayerTensor* down = find_tensor(checkpoint, 0, MOE_ROLE_DOWN, MOE_ALL_EXPERTS);
    EXPECT_EQ(down->tensor.orientation, MOE_ORIENTATION_IN_OUT);
    EXPECT_EQ(down->tensor.rows, hidden);
    const LayerTensor* up = find_tensor(checkpoint, 0, MOE_ROLE_UP, MOE_ALL_EXPERTS);
    EXPECT_EQ(up->name, block + "experts.mlp.v1");
    EXPECT_EQ(up->tensor.orientation, MOE_ORIENTATION_OUT_IN);

    model.config.replace(model.config.find("weights\":1.0"), 12, "weights\":2.0");
    const Failure failure = layer_failure(model);
    EXPECT_EQ(failure.status, MOE_ERROR_UNSUPPORTED);
    EXPECT_NE(failure.text.find("moe_normalize_expert_weights is 2"), std::string::npos)
        << failure.text;
    model.config.replace(model.config.find("weights\":2.0"), 12, "weights\":1.0");
    model.add(block + "experts.mlp.v1", "BF16", {experts * width + 1, hidden});
    EXPECT_NE(layer_failure(model).text.find("v1': has shape [129, 64], [128, 64] is wanted"),
              std::string::npos)
        << layer_failure(model).text;
}

TEST(SoftmaxFamilies, CohereTakesTheMean) {
    Model model =
        model_of("cohere2_moe", R"("intermediate_size":32,"num_experts":4,"num_shared_experts":1,)"
                                R"("expert_selection_fn":"sigmoid","norm_topk_prob":true)");
    const std::string block = layer0 + "mlp.";
    model.add(block + "gate.weight", "BF16", {experts, hidden});
    add_expert_names(model, block, "gate_proj", "up_proj", "down_proj");
    add_shared(model, block + "shared_experts.");
    const moe_layer_desc desc = desc_of(model, 16);
    EXPECT_EQ(desc.post_score, MOE_SCORE_SIGMOID);
    EXPECT_EQ(desc.combine, MOE_COMBINE_MEAN);
}

// Where I = H the shape of down tells nothing, and that of gate and up does.
TEST(MergedFamilies, GateAndUpTellWhereDownIsSquare) {
    for (const bool transposed : {false, true}) {
        Model model = model_of("qwen3_vl_moe", R"("moe_intermediate_size":64,"num_experts":4)");
        const std::string block = "model.language_model.layers.0.mlp.";
        model.add(block + "gate.weight", "BF16", {experts, hidden});
        model.add(
            block + "experts.gate_up_proj", "BF16",
            transposed ? Shape{experts, hidden, 2 * hidden} : Shape{experts, 2 * hidden, hidden});
        model.add(block + "experts.down_proj", "BF16", {experts, hidden, hidden});
        const Folder folder;
        const Handle checkpoint = open_model(folder, model);
        for (const moe_role role : {MOE_ROLE_GATE_UP, MOE_ROLE_DOWN})
            EXPECT_EQ(find_tensor(checkpoint, 0, role, MOE_ALL_EXPERTS)->tensor.orientation,
                      transposed ? MOE_ORIENTATION_IN_OUT : MOE_ORIENTATION_OUT_IN);
    }
}

// The same names in opposite orientations, of one shape where 2I = H: the family says which.
TEST(MergedFamilies, HaveTheOrientationOfTheirReleasedFiles) {
    const struct {
        const char* type;
        std::string config;
        const char* block;
        const char* router;
        bool transposed;
    } cases[] = {
        {"qwen3_vl_moe", R"("moe_intermediate_size":32,"num_experts":4,"norm_topk_prob":true)",
         "model.language_model.layers.0.mlp.", "gate.weight", true},
        // As transformers 5 saves it.
        {"qwen3_vl_moe", R"("moe_intermediate_size":32,"num_experts":4,"norm_topk_prob":true)",
         "model.language_model.layers.0.mlp.", "gate.weight", false},
        {"qwen3_5_moe", R"("moe_intermediate_size":32,"num_experts":4)",
         "model.language_model.layers.0.mlp.", "gate.weight", false},
        {"llama4", local, "language_model.model.layers.0.feed_forward.", "router.weight", true},
        {"gemma4",
         R"("moe_intermediate_size":32,"num_experts":4,"top_k_experts":2,)"
         R"("hidden_activation":"gelu_pytorch_tanh","rms_norm_eps":1e-6)",
         "model.language_model.layers.0.", "router.proj.weight", false},
    };
    for (const auto& c : cases) {
        SCOPED_TRACE(c.type);
        const std::string block = c.block, type = c.type;
        Model model = model_of(c.type, c.config);
        model.add(block + c.router, "BF16", {experts, hidden});
        add_merged(model, block, c.transposed);
        if (type == "llama4") add_shared(model, block + "shared_expert.");
        if (type == "gemma4") {
            model.add(block + "router.scale", "BF16", {hidden});
            model.add(block + "router.per_expert_scale", "BF16", {experts});
        }
        const size_t n_tensors = type == "llama4" ? 6 : type == "gemma4" ? 5 : 3;
        const moe_layer_desc desc = desc_of(model, n_tensors);
        const Folder folder;
        const Handle checkpoint = open_model(folder, model);
        const LayerTensor* gate_up = find_tensor(checkpoint, 0, MOE_ROLE_GATE_UP, MOE_ALL_EXPERTS);
        ASSERT_TRUE(gate_up);
        EXPECT_EQ(gate_up->tensor.orientation,
                  c.transposed ? MOE_ORIENTATION_IN_OUT : MOE_ORIENTATION_OUT_IN);
        EXPECT_EQ(gate_up->tensor.gate_up_order, MOE_GATE_UP_GATE_FIRST);
        if (type == "llama4") {
            EXPECT_EQ(desc.weight_on, MOE_WEIGHT_ON_INPUT);
            EXPECT_EQ(desc.post_score, MOE_SCORE_SIGMOID);
        } else if (type == "gemma4") {
            EXPECT_EQ(desc.activation, MOE_ACTIVATION_GELU_TANH);
            EXPECT_EQ(desc.has_expert_scale, 1);
            EXPECT_EQ(desc.router_input_scale, 0.125f);
        }
    }
}

TEST(MergedFamilies, GptOssHasOpenAisNames) {
    Model model;
    model.config = R"({"num_experts":4,"experts_per_token":2,"hidden_size":64,)"
                   R"("intermediate_size":32,"swiglu_limit":7.0})";
    const std::string block = "block.0.mlp.";
    model.add(block + "gate.weight", "BF16", {experts, hidden});
    model.add(block + "gate.bias", "BF16", {experts});
    model.add(block + "mlp1_weight.blocks", "U8", {experts, 2 * width, hidden / 32, 16});
    model.add(block + "mlp1_weight.scales", "U8", {experts, 2 * width, hidden / 32});
    model.add(block + "mlp1_bias", "BF16", {experts, 2 * width});
    model.add(block + "mlp2_weight.blocks", "U8", {experts, hidden, width / 32, 16});
    model.add(block + "mlp2_weight.scales", "U8", {experts, hidden, width / 32});
    model.add(block + "mlp2_bias", "BF16", {experts, hidden});
    const Folder folder;
    moe_checkpoint_options options{};
    options.family = "gpt_oss";
    const Handle checkpoint = open_model(folder, model, options);
    ASSERT_EQ(checkpoint->n_layers(), 1);
    EXPECT_EQ(checkpoint->tensors(0).size(), 6u);
    const moe_layer_desc& desc = checkpoint->layer_desc(0);
    EXPECT_EQ(moe_layer_validate(&desc), MOE_OK) << moe_last_error();
    const LayerTensor* gate_up = find_tensor(checkpoint, 0, MOE_ROLE_GATE_UP, MOE_ALL_EXPERTS);
    ASSERT_TRUE(gate_up);
    EXPECT_EQ(gate_up->tensor.gate_up_order, MOE_GATE_UP_INTERLEAVED);
    EXPECT_EQ(gate_up->format.type, MOE_TYPE_E2M1);
    EXPECT_EQ(failure_of([&] { open_path(folder.path()); }).status, MOE_ERROR_NOT_FOUND);
}

}  // namespace
}  // namespace moe::test
