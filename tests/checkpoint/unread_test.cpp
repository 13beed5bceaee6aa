// What lies in a block and is not read: refused by name where it would change the result, left
// alone where it would not.
#include "tests/checkpoint/family_models.hpp"
#include "tests/checkpoint/quantised_models.hpp"

namespace moe::test {
namespace {

const std::string expert = mlp0 + "experts.1.gate_proj";

Failure failure_with(Model model, const std::string& name, const char* type, const Shape& shape) {
    model.add(name, type, shape);
    return layer_failure(model);
}

Model qwen3() {
    return qwen("qwen3_moe", "", false);
}

void expect_refused(const Failure& failure, const std::string& name, const std::string& why) {
    EXPECT_EQ(failure.status, MOE_ERROR_UNSUPPORTED) << failure.text;
    EXPECT_EQ(failure.text, "model.safetensors: tensor '" + name + "': " + why);
}

const std::string unread = "is not read, and would change the result";
const std::string of_router = "is of the router and not read, and would change the result";
const std::string bias = "is a bias, which this family does not have";

TEST(Unread, TensorsOfABlockAreRefused) {
    const std::tuple<std::string, Shape, std::string> cases[] = {
        {expert + ".weight_scale", {1}, "beside a weight in BF16"},
        {expert + ".weight_scale_inv", {1, 1}, "beside a weight in BF16"},
        {expert + ".scale", {1}, "beside a weight in BF16"},
        {expert + ".lora_A.weight", {4, hidden}, unread},
        {expert + ".bias", {width}, bias},
        {mlp0 + "experts.0.w1.weight", {width, hidden}, unread},
        {mlp0 + "experts.gate_up_proj", {experts, 2 * width, hidden}, unread},
        {mlp0 + "shared_expert.up_proj.weight", {width, hidden}, unread},
        {mlp0 + "shared_experts.up_proj.weight", {width, hidden}, unread},
        {mlp0 + "gate.e_score_correction_bias", {experts}, bias},
        {mlp0 + "expert_bias", {experts}, bias},
        {mlp0 + "gate.output_multiplier_scale", {1}, "is a scale, which is not read"},
    };
    for (const auto& [name, shape, why] : cases)
        expect_refused(failure_with(qwen3(), name, "BF16", shape), name, why);
}

// A norm, a second matrix or an adapter of the router, under every name that families give it.
TEST(Unread, TensorsOfTheRouterAreRefused) {
    const auto merged = [](const std::string& type, const std::string& more,
                           const std::string& router, const Shape& shape) {
        Model model = model_of(type, more);
        model.add(layer0 + router, "BF16", shape);
        return model;
    };
    const Shape router = {experts, hidden};
    Model granite = merged("granitemoe", local, "block_sparse_moe.router.layer.weight", router);
    granite.add(layer0 + "block_sparse_moe.input_linear.weight", "BF16",
                {experts, 2 * width, hidden});
    granite.add(layer0 + "block_sparse_moe.output_linear.weight", "BF16", {experts, hidden, width});
    Model hunyuan = merged("hunyuan_v1_moe", R"("intermediate_size":32,"num_experts":4)",
                           "mlp.gate.wg.weight", router);
    add_expert_names(hunyuan, mlp0, "gate_proj", "up_proj", "down_proj");
    Model llama = merged("llama4", local, "feed_forward.router.weight", router);
    add_merged(llama, layer0 + "feed_forward.", true);
    add_shared(llama, layer0 + "feed_forward.shared_expert.");
    Model longcat = merged("longcat_flash", R"("expert_ffn_hidden_size":32,"n_routed_experts":4)",
                           "mlp.router.classifier.weight", router);
    longcat.add(mlp0 + "router.e_score_correction_bias", "F32", {experts});
    add_expert_names(longcat, mlp0, "gate_proj", "up_proj", "down_proj");
    Model gemma =
        merged("gemma4", R"("moe_intermediate_size":32,"num_experts":4,"top_k_experts":2)",
               "router.proj.weight", router);
    gemma.add(layer0 + "router.scale", "BF16", {hidden});
    gemma.add(layer0 + "router.per_expert_scale", "BF16", {experts});
    add_merged(gemma, layer0, false);
    Model step = merged("step3p5", R"("moe_intermediate_size":32,"moe_num_experts":4)",
                        "moe.gate.weight", router);
    step.add(layer0 + "moe.router_bias", "F32", {experts});
    step.add(layer0 + "moe.gate_proj.weight", "BF16", {experts, width, hidden});
    step.add(layer0 + "moe.up_proj.weight", "BF16", {experts, width, hidden});
    step.add(layer0 + "moe.down_proj.weight", "BF16", {experts, hidden, width});
    add_shared(step, layer0 + "share_expert.");
    const std::tuple<Model, const char*> cases[] = {
        {qwen3(), "mlp.gate."},
        {qwen("qwen2_moe", "", true), "mlp.image_gate."},
        {mixtral(), "block_sparse_moe.gate."},
        {gpt_oss(true), "mlp.router."},
        {granite, "block_sparse_moe.router."},
        {hunyuan, "mlp.gate.wg."},
        {llama, "feed_forward.router."},
        {longcat, "mlp.router.classifier."},
        {gemma, "router."},
        {step, "moe.gate."}};
    for (const auto& [model, module] : cases) {
        EXPECT_EQ(layer_failure(model).text, "") << module;
        for (const char* name : {"weight_1", "norm.weight", "lora_A.weight", "temperature"}) {
            const std::string whole = layer0 + module + name;
            expect_refused(failure_with(model, whole, "BF16", {1}), whole, of_router);
        }
        // Counters of training.
        const std::string counted = layer0 + module + "tokens_per_expert";
        EXPECT_EQ(failure_with(model, counted, "F32", {experts}).text, "");
    }
    const std::string deepseek_gate = "model.layers.1.mlp.gate.norm.weight";
    Model deepseek_v3 = deepseek("deepseek_v3", "", true);
    deepseek_v3.add(deepseek_gate, "BF16", {hidden});
    expect_refused(layer_failure(deepseek_v3, 1), deepseek_gate, of_router);
}

TEST(Unread, SharedExpertsOfFamiliesWithoutAreRefused) {
    Model mimo = model_of("mimo_v2_flash", routed);
    mimo.add(mlp0 + "gate.weight", "BF16", {experts, hidden});
    mimo.add(mlp0 + "gate.e_score_correction_bias", "F32", {experts});
    add_expert_names(mimo, mlp0, "gate_proj", "up_proj", "down_proj");
    Model minimax = model_of("minimax_m2", local);
    const std::string sparse = layer0 + "block_sparse_moe.";
    minimax.add(sparse + "gate.weight", "BF16", {experts, hidden});
    minimax.add(sparse + "e_score_correction_bias", "F32", {experts});
    add_expert_names(minimax, sparse, "w1", "w3", "w2");
    for (const auto& [model, stem] :
         {std::pair{mimo, mlp0}, {minimax, sparse}, {mixtral(), sparse}}) {
        EXPECT_EQ(layer_failure(model).text, "");
        const std::string name = stem + "shared_experts.down_proj.weight";
        expect_refused(failure_with(model, name, "BF16", {hidden, width}), name, unread);
    }
    const std::string name = mlp0 + "shared_expert_gate.bias";
    expect_refused(failure_with(qwen("qwen2_moe", "", true), name, "BF16", {1}), name, bias);
}

TEST(Unread, BiasesAndScalesOfMergedExpertsAreRefused) {
    Model model = model_of("qwen3_5_moe", R"("moe_intermediate_size":32,"num_experts":4)");
    model.add(mlp0 + "gate.weight", "BF16", {experts, hidden});
    add_merged(model, mlp0, false);
    EXPECT_EQ(layer_failure(model).text, "");
    for (const char* name : {"experts.gate_up_proj_bias", "experts.down_proj_bias"})
        expect_refused(failure_with(model, mlp0 + name, "BF16", {experts, hidden}), mlp0 + name,
                       bias);
    expect_refused(
        failure_with(model, mlp0 + "experts.gate_up_proj_scale_inv", "F32", {experts, 1, 1}),
        mlp0 + "experts.gate_up_proj_scale_inv", "beside a weight in BF16");
}

// Not those right after the last alone: a gap must not hide them.
TEST(Unread, ExpertsBeyondTheNumberAreRefused) {
    const Failure failure =
        failure_with(qwen3(), mlp0 + "experts.9.up_proj.weight", "BF16", {width, hidden});
    EXPECT_EQ(failure.status, MOE_ERROR_CORRUPT_FILE);
    EXPECT_EQ(failure.text,
              "config.json: says 4 experts, but there is a tensor 'experts.9.up_proj.weight'");
}

// Under the prefix of a whole layer, but not of the block.
TEST(Unread, TheRestOfALayerIsLeftAlone) {
    Model model = model_of("granitemoe", local);
    model.add(layer0 + "block_sparse_moe.router.layer.weight", "BF16", {experts, hidden});
    model.add(layer0 + "block_sparse_moe.input_linear.weight", "BF16",
              {experts, 2 * width, hidden});
    model.add(layer0 + "block_sparse_moe.output_linear.weight", "BF16", {experts, hidden, width});
    for (const char* name :
         {"self_attn.q_proj.bias", "self_attn.q_proj.weight_scale", "self_attn.k_scale",
          "self_attn.gate.weight", "mlp.gate_proj.weight_scale_inv", "mlp.gate_proj.weight"})
        model.add(layer0 + name, "F32", {1});
    EXPECT_EQ(layer_failure(model).text, "");
    const std::string name = layer0 + "block_sparse_moe.router.layer.bias";
    expect_refused(failure_with(model, name, "F32", {experts}), name, bias);
}

TEST(Unread, WhatChangesNothingIsLeftAlone) {
    for (const char* end : {".input_scale", ".input_scale_ub", ".act_scale", ".weight_shape",
                            ".weight_format", ".g_idx"})
        EXPECT_EQ(failure_with(qwen3(), expert + end, "F32", {1}).text, "") << end;
}

// As AutoGPTQ wrote them in its first years.
TEST(Unread, ABiasOfZerosBesideGptqIsNone) {
    Model model =
        qwen("qwen3_moe",
             R"(,"quantization_config":{"quant_method":"gptq","bits":4,"group_size":16})", false);
    SpelledMatrix{model, expert, width, hidden}.gptq(4, false);
    model.tensors[expert + ".bias"] = {"F16", {width}, std::string(2 * width, '\0')};
    EXPECT_EQ(layer_failure(model).text, "");
    model.tensors[expert + ".bias"].bytes.back() = 1;
    expect_refused(layer_failure(model), expert + ".bias", bias);
    Model plain = qwen3();
    plain.tensors[expert + ".bias"] = {"F16", {width}, std::string(2 * width, '\0')};
    expect_refused(layer_failure(plain), expert + ".bias", bias);
}

}  // namespace
}  // namespace moe::test
