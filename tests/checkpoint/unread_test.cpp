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
    for (const char* name : {"self_attn.q_proj.bias", "self_attn.q_proj.weight_scale",
                             "self_attn.k_scale", "mlp.gate_proj.weight_scale_inv"})
        model.add(layer0 + name, "F32", {1});
    EXPECT_EQ(layer_failure(model).text, "");
    const std::string name = layer0 + "block_sparse_moe.router.layer.bias";
    expect_refused(failure_with(model, name, "F32", {experts}), name, bias);
}

TEST(Unread, WhatChangesNothingIsLeftAlone) {
    for (const char* end :
         {".input_scale", ".act_scale", ".weight_shape", ".weight_format", ".g_idx"})
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
