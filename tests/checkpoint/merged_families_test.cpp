// Families whose experts lie in one tensor: the same names in opposite orientations.
#include "tests/checkpoint/family_models.hpp"

namespace moe::test {
namespace {

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
