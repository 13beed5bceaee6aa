// Families that score experts one by one, most with a selection bias: tensors and configurations as
// released files name them, and what of them is set by the family where names do not tell.
#include "tests/checkpoint/family_models.hpp"

namespace moe::test {
namespace {

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

Model axk2(const std::string& more) {
    Model model =
        model_of("axk2", routed + R"(,"n_shared_experts":1,"norm_topk_prob":true)" + more);
    model.add(layer0 + "mlp.gate.weight", "BF16", {experts, hidden});
    model.add(layer0 + "mlp.gate.e_score_correction_bias", "F32", {experts});
    add_expert_names(model, layer0 + "mlp.", "gate_proj", "up_proj", "down_proj");
    add_shared(model, layer0 + "mlp.shared_experts.");
    return model;
}

TEST(ScoredFamilies, AXK2MasksGroupsByZero) {
    const moe_layer_desc desc = desc_of(axk2(R"(,"n_group":2,"topk_group":1)"), 17);
    EXPECT_EQ(desc.score, MOE_SCORE_SIGMOID);
    EXPECT_EQ(desc.has_selection_bias, 1);
    EXPECT_EQ(desc.group_score, MOE_GROUP_SCORE_TOP2_SUM);
    EXPECT_EQ(desc.group_mask, MOE_GROUP_MASK_ZERO);
    EXPECT_EQ(desc.routed_scale, 2.5f);
    EXPECT_EQ(desc.renormalize_eps, 1e-20f);

    const moe_layer_desc light = desc_of(axk2(R"(,"n_group":null,"topk_group":null)"), 17);
    EXPECT_EQ(light.n_group, 0);
    EXPECT_EQ(light.group_mask, MOE_GROUP_MASK_INFINITY);
}

Model kolibri(const std::string& more) {
    Model model = model_of("kolibri1", R"("moe_intermediate_size":32,"num_experts":4,)"
                                       R"("shared_expert_intermediate_size":48)" +
                                           more);
    model.add(layer0 + "mlp.gate.weight", "BF16", {experts, hidden});
    model.add(layer0 + "moe.router.expert_bias", "BF16", {experts});
    add_expert_names(model, layer0 + "mlp.", "gate_proj", "up_proj", "down_proj");
    add_shared(model, layer0 + "mlp.shared_experts.");
    model.add(layer0 + "self_attn.q_proj.weight", "BF16", {hidden, hidden});
    return model;
}

TEST(ScoredFamilies, KolibriChoosesByLogits) {
    const moe_layer_desc desc = desc_of(kolibri(R"(,"norm_topk_prob":false)"), 17);
    EXPECT_EQ(desc.score, MOE_SCORE_NONE);
    EXPECT_EQ(desc.post_score, MOE_SCORE_SIGMOID);
    EXPECT_EQ(desc.has_selection_bias, 1);
    EXPECT_EQ(desc.renormalize, MOE_RENORMALIZE_NONE);
    EXPECT_EQ(desc.shared_intermediate, shared_width);
    EXPECT_EQ(desc.has_shared_expert_gate, 0);

    const moe_layer_desc normal = desc_of(kolibri(R"(,"norm_topk_prob":true)"), 17);
    EXPECT_EQ(normal.renormalize, MOE_RENORMALIZE_SUM_ADD);
    EXPECT_EQ(normal.renormalize_eps, 1e-20f);
}

// Names begin at the layer, whose other parts are not the block's.
TEST(ScoredFamilies, KolibriRefusesWhatItDoesNotRead) {
    Model model = kolibri("");
    model.tensors.erase(layer0 + "moe.router.expert_bias");
    EXPECT_NE(layer_failure(model).text.find("moe.router.expert_bias"), std::string::npos);
    for (const char* name : {"mlp.gate.bias", "mlp.experts.0.up_proj.bias",
                             "mlp.shared_experts.up_proj.bias", "moe.router.input_scale_bias"}) {
        model = kolibri("");
        model.add(layer0 + name, "F32", {experts});
        const Failure failure = layer_failure(model);
        EXPECT_EQ(failure.status, MOE_ERROR_UNSUPPORTED) << name;
        EXPECT_NE(failure.text.find(name), std::string::npos) << failure.text;
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

void add_step_layer(Model& model, const std::string& layer) {
    model.add(layer + "moe.gate.weight", "BF16", {experts, hidden});
    model.add(layer + "moe.router_bias", "F32", {experts});
    model.add(layer + "moe.gate_proj.weight", "BF16", {experts, width, hidden});
    model.add(layer + "moe.up_proj.weight", "BF16", {experts, width, hidden});
    model.add(layer + "moe.down_proj.weight", "BF16", {experts, hidden, width});
    add_shared(model, layer + "share_expert.");
}

TEST(ScoredFamilies, StepHasLimitsPerLayer) {
    Model model = model_of(
        "step3p5",
        R"("moe_intermediate_size":32,"moe_num_experts":4,"moe_top_k":2,"moe_router_scaling_factor":3,)"
        R"("swiglu_limits":[7,0],"swiglu_limits_shared":[16,0])");
    for (const std::string layer : {"model.layers.0.", "model.layers.1."})
        add_step_layer(model, layer);
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

Model routed_model(const std::string& type, const std::string& more) {
    Model model =
        model_of(type, R"("moe_intermediate_size":32,"num_experts":4,"n_routed_experts":4)" + more);
    if (type == "step3p5") {
        add_step_layer(model, layer0);
        return model;
    }
    const std::string block = layer0 + "mlp.";
    const bool is_deepseek = type == "deepseek_v2";
    model.add(block + (is_deepseek ? "gate.weight" : "router.gate.weight"), "BF16",
              {experts, hidden});
    if (!is_deepseek) model.add(block + "expert_bias", "F32", {experts});
    add_expert_names(model, block, "gate_proj", "up_proj", "down_proj");
    return model;
}

TEST(ScoredFamilies, FollowTheirOwnKeysOfTheRouting) {
    constexpr moe_renormalize sum = MOE_RENORMALIZE_SUM_ADD, none = MOE_RENORMALIZE_NONE;
    const struct {
        const char* type;
        const char* keys;
        moe_score score;
        moe_renormalize norm;
    } cases[] = {
        {"afmoe", R"("score_func":"sigmoid","route_norm":true)", MOE_SCORE_SIGMOID, sum},
        {"afmoe", R"("score_func":"sigmoid","route_norm":false)", MOE_SCORE_SIGMOID, none},
        {"afmoe", R"("score_func":"softmax","route_norm":true)", MOE_SCORE_SOFTMAX, none},
        {"step3p5", R"("moe_router_activation":"sigmoid","norm_expert_weight":true)",
         MOE_SCORE_SIGMOID, sum},
        {"step3p5", R"("norm_expert_weight":false)", MOE_SCORE_SIGMOID, none},
        {"step3p5", R"("moe_router_activation":"softmax")", MOE_SCORE_SOFTMAX, sum},
        {"hy_v3", R"("route_norm":true,"moe_router_use_sigmoid":true)", MOE_SCORE_SIGMOID, sum},
        {"deepseek_v2", R"("norm_topk_prob":false)", MOE_SCORE_SOFTMAX, none},
    };
    for (const auto& c : cases) {
        SCOPED_TRACE(std::string(c.type) + " " + c.keys);
        const Model model = routed_model(c.type, std::string(",") + c.keys);
        const size_t n_tensors = model.tensors.size();
        const moe_layer_desc desc = desc_of(model, n_tensors);
        EXPECT_EQ(desc.score, c.score);
        EXPECT_EQ(desc.renormalize, c.norm);
    }
}

// transformers reads none of these keys: a file that contradicts it is not guessed at.
TEST(ScoredFamilies, RefuseKeysThatContradictTheFamily) {
    const struct {
        const char* type;
        const char* key;
        const char* value;
    } cases[] = {
        {"hy_v3", "route_norm", "false"},
        {"hy_v3", "moe_router_use_sigmoid", "false"},
        {"deepseek_v2", "norm_topk_prob", "true"},
    };
    for (const auto& c : cases) {
        const Failure failure =
            layer_failure(routed_model(c.type, std::string(",\"") + c.key + "\":" + c.value));
        EXPECT_EQ(failure.status, MOE_ERROR_UNSUPPORTED);
        EXPECT_EQ(failure.text.find(std::string("config.json: '") + c.key + "' is " + c.value), 0u)
            << failure.text;
    }
    const Failure unknown =
        layer_failure(routed_model("step3p5", R"(,"moe_router_activation":"relu")"));
    EXPECT_NE(unknown.text.find("moe_router_activation 'relu' is not known"), std::string::npos)
        << unknown.text;
}

// The sentences of a plan would name neither the key nor the file.
TEST(ScoredFamilies, GroupsMustFitTheExperts) {
    Model model = deepseek("deepseek_v3", R"(,"n_group":null)", true);
    Failure failure = layer_failure(model, 1);
    EXPECT_EQ(failure.status, MOE_ERROR_CORRUPT_FILE);
    EXPECT_EQ(
        failure.text,
        "config.json: n_group is 8 where the key is absent, but 4 experts are not 8 groups of "
        "2 or more");
    failure = layer_failure(deepseek("deepseek_v3", R"(,"n_group":3,"topk_group":1)", true), 1);
    EXPECT_EQ(failure.text,
              "config.json: n_group is 3, but 4 experts are not 3 groups of 2 or more");
    for (const char* keys : {R"(,"topk_group":1)", R"(,"n_group":2)"}) {
        failure = layer_failure(
            deepseek("deepseek_v2", std::string(R"(,"topk_method":"group_limited_greedy")") + keys,
                     false),
            1);
        EXPECT_EQ(failure.status, MOE_ERROR_NOT_FOUND);
        EXPECT_NE(failure.text.find("config.json: has no key '"), std::string::npos)
            << failure.text;
    }
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

// DeepSeek-V4.1, its configuration in text_config.
Model deepseek_v41(const std::string& more) {
    Model model;
    model.config = R"({"model_type":"deepseek_v41","text_config":)" +
                   config_of("deepseek_v41_text",
                             routed +
                                 R"(,"n_shared_experts":1,"swiglu_limit":10,)"
                                 R"("scoring_func":"sqrtsoftplus","topk_method":"noaux_tc",)"
                                 R"("norm_topk_prob":true,"routed_scaling_factor":1.5)" +
                                 more) +
                   "}";
    model.add("layers.0.ffn.gate.weight", "BF16", {experts, hidden});
    model.add("layers.0.ffn.gate.bias", "F32", {experts});
    model.add("layers.0.ffn.gate.bias_vl", "F32", {experts});
    add_expert_names(model, "layers.0.ffn.", "w1", "w3", "w2");
    for (const auto& [name, rows, columns] : {std::tuple{"w1", shared_width, hidden},
                                              {"w3", shared_width, hidden},
                                              {"w2", hidden, shared_width}})
        model.add("layers.0.ffn.shared_experts." + std::string(name) + ".weight", "BF16",
                  {rows, columns});
    return model;
}

TEST(DeepseekV41, HasABiasForTheTokensOfImages) {
    Model model = deepseek_v41("");
    const moe_layer_desc desc = desc_of(model, 18);
    EXPECT_EQ(desc.score, MOE_SCORE_SQRT_SOFTPLUS);
    EXPECT_EQ(desc.has_selection_bias, 1);
    EXPECT_EQ(desc.has_second_selection_bias, 1);
    EXPECT_EQ(desc.renormalize_eps, 1e-20f);
    EXPECT_EQ(desc.routed_scale, 1.5f);
    EXPECT_EQ(desc.gate_limit, 10.0f);
    EXPECT_EQ(desc.shared_up_limit, 10.0f);
    EXPECT_EQ(desc.has_router_input_scale, 0);
    const Folder folder;
    const Handle checkpoint = open_model(folder, model);
    EXPECT_EQ(find_tensor(checkpoint, 0, MOE_ROLE_SECOND_SELECTION_BIAS, 0)->name,
              "layers.0.ffn.gate.bias_vl");

    model.tensors.erase("layers.0.ffn.gate.bias_vl");
    EXPECT_EQ(desc_of(model, 17).has_second_selection_bias, 0);
}

TEST(DeepseekV41, DividesItsLogits) {
    const moe_layer_desc desc = desc_of(deepseek_v41(R"(,"gate_temp":4.0)"), 18);
    EXPECT_EQ(desc.has_router_input_scale, 1);
    EXPECT_EQ(desc.router_input_scale, 0.25f);
    EXPECT_EQ(layer_failure(deepseek_v41(R"(,"gate_temp":0)")).status, MOE_ERROR_CORRUPT_FILE);
}

// The keys and the types of the released files: FP4 experts, FP8 in blocks of 32 x 32 elsewhere,
// and layers that draft tokens with fewer experts.
TEST(DeepseekV41, IsReadAsReleased) {
    Model model;
    model.config =
        R"({"model_type":"deepseek_v41","quantization_config":{"quant_method":"fp8",)"
        R"("activation_scheme":"dynamic","weight_block_size":[32,32],"scale_fmt":"ue8m0",)"
        R"("expert_dtype":"fp4"},"vision_config":{"hidden_size":1024,"num_hidden_layers":32},)"
        R"("text_config":)" +
        config_of("deepseek_v41_text",
                  routed + R"(,"num_hidden_layers":1,"n_shared_experts":1,"swiglu_limit":10.0,)"
                           R"("scoring_func":"sqrtsoftplus","topk_method":"noaux_tc",)"
                           R"("norm_topk_prob":true,"routed_scaling_factor":1.5,"index_topk":512,)"
                           R"("candidate_topk_blocks":2048,"candidate_block_size":8,"hc_mult":4,)"
                           R"("engram_layer_ids":[1,14],"engram_n_heads":8,)"
                           R"("num_nextn_predict_layers":1,"dspark_block_size":5,)"
                           R"("dspark_n_routed_experts":2,"dspark_num_experts_per_tok":1)") +
        "}";
    for (const auto& [block, n] : {std::pair{"layers.0.ffn.", experts}, {"mtp.0.ffn.", 2}}) {
        const std::string prefix = block;
        for (const char* bias : {"gate.bias", "gate.bias_vl"}) model.add(prefix + bias, "F32", {n});
        model.add(prefix + "gate.weight", "BF16", {n, hidden});
        for (const auto& [name, rows, columns] :
             {std::tuple{"w1", width, hidden}, {"w3", width, hidden}, {"w2", hidden, width}})
            for (int e = 0; e < n; ++e) {
                const std::string stem = prefix + "experts." + std::to_string(e) + "." + name;
                model.add(stem + ".weight", "I8", {rows, columns / 2});
                model.add(stem + ".scale", "F8_E8M0", {rows, columns / 32});
            }
        for (const auto& [name, rows, columns] : {std::tuple{"w1", shared_width, hidden},
                                                  {"w3", shared_width, hidden},
                                                  {"w2", hidden, shared_width}}) {
            const std::string stem = prefix + "shared_experts." + name;
            model.add(stem + ".weight", "F8_E4M3", {rows, columns});
            model.add(stem + ".scale", "F8_E8M0", {(rows + 31) / 32, (columns + 31) / 32});
        }
    }
    const Folder folder;
    const Handle checkpoint = open_model(folder, model);
    ASSERT_EQ(checkpoint->n_layers(), 2);
    const moe_layer_desc& desc = checkpoint->layer_desc(0);
    EXPECT_EQ(moe_layer_validate(&desc), MOE_OK) << moe_last_error();
    EXPECT_EQ(desc.n_experts, experts);
    EXPECT_EQ(desc.top_k, 2);
    EXPECT_EQ(desc.has_second_selection_bias, 1);
    EXPECT_EQ(find_tensor(checkpoint, 0, MOE_ROLE_UP, 2)->format.type, MOE_TYPE_E2M1);
    const moe_format& shared = find_tensor(checkpoint, 0, MOE_ROLE_SHARED_UP, 0)->format;
    EXPECT_EQ(shared.type, MOE_TYPE_F8_E4M3);
    EXPECT_EQ(shared.group_rows, 32);
    EXPECT_EQ(shared.group_columns, 32);
    const moe_layer_desc& draft = checkpoint->layer_desc(1);
    EXPECT_EQ(moe_layer_validate(&draft), MOE_OK) << moe_last_error();
    EXPECT_EQ(draft.n_experts, 2);
    EXPECT_EQ(draft.top_k, 1);
}

// A layer that takes its experts from a table has no use for the second bias.
TEST(DeepseekV41, IsRefusedWithHashLayers) {
    Model model = deepseek_v41("");
    model.tensors.erase("layers.0.ffn.gate.bias");
    model.add("layers.0.ffn.gate.tid2eid", "I64", {50, 2});
    const Failure failure = layer_failure(model);
    EXPECT_EQ(failure.status, MOE_ERROR_UNSUPPORTED);
    EXPECT_NE(failure.text.find("gate.bias_vl"), std::string::npos) << failure.text;
}

TEST(DeepseekV4, MayHaveNoSharedExpert) {
    Model model = model_of("deepseek_v4", routed);
    model.add("layers.0.ffn.gate.weight", "BF16", {experts, hidden});
    model.add("layers.0.ffn.gate.bias", "F32", {experts});
    add_expert_names(model, "layers.0.ffn.", "w1", "w3", "w2");
    EXPECT_EQ(desc_of(model, 14).has_shared_gate_limit, 0);
}

}  // namespace
}  // namespace moe::test
