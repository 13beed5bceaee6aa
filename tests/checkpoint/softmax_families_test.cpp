// Families with a softmax: tensors and configurations as released files name them, and what of them
// is set by the family where names do not tell.
#include "tests/checkpoint/family_models.hpp"

namespace moe::test {
namespace {

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

}  // namespace
}  // namespace moe::test
