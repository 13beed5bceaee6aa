// Tensors of torchao, taken apart as its safetensors support does it: `module._weight_qdata` and so
// on. The layouts are those of torchao 0.18.
#include "libmoe/formats/format.hpp"
#include "tests/checkpoint/family_models.hpp"

namespace moe::test {
namespace {

const std::string torchao_up = mlp0 + "experts.1.up_proj";

// The up matrix of an expert, [width, hidden].
Model with_torchao(const std::string& type, const std::string& scale_type, const Shape& scale) {
    Model model = qwen("qwen3_moe", R"(,"quantization_config":{"quant_method":"torchao"})", false);
    model.tensors.erase(torchao_up + ".weight");
    model.add(torchao_up + "._weight_qdata", type, {width, hidden});
    model.add(torchao_up + "._weight_scale", scale_type, scale);
    return model;
}

std::string torchao_format(const Model& model) {
    const Folder folder;
    const Handle checkpoint = open_model(folder, model);
    return format_name(find_tensor(checkpoint, 0, MOE_ROLE_UP, 1)->format).text;
}

void refuses_torchao(const Model& model, moe_status status, const std::string& text) {
    const Failure failure = layer_failure(model);
    EXPECT_EQ(failure.status, status) << failure.text;
    EXPECT_NE(failure.text.find(text), std::string::npos) << failure.text << "\n  lacks: " << text;
}

TEST(Torchao, ScalesCountTheBlocksOfEachDimension) {
    const struct {
        const char* type;
        const char* scale_type;
        Shape scale;
        const char* text;
    } cases[] = {{"F8_E4M3", "F32", {width, 1}, "f8_e4m3 1xall f32"},
                 {"F8_E4M3", "F32", {1, 1}, "f8_e4m3 allxall f32"},
                 {"F8_E4M3", "BF16", {2, 4}, "f8_e4m3 16x16 bf16"},
                 {"I8", "F32", {width, 1}, "i8 1xall f32"},
                 {"I8", "BF16", {width, 2}, "i8 1x32 f32"},
                 {"I8", "F32", {1, 1}, "i8 allxall f32"}};
    for (const auto& c : cases)
        EXPECT_EQ(torchao_format(with_torchao(c.type, c.scale_type, c.scale)), c.text);
}

TEST(Torchao, CodesAndScalesAreThoseOfTheFile) {
    Model model = with_torchao("I8", "F32", {width, 1});
    std::string scales;
    for (int n = 0; n < width; ++n) scales += raw(0.25f * static_cast<float>(n + 1));
    model.tensors[torchao_up + "._weight_scale"].bytes = scales;
    // Symmetric quantisation writes zeros.
    model.tensors[torchao_up + "._weight_zero_point"] = {
        "I8", {width, 1}, std::string(width, '\0')};
    model.add(torchao_up + "._weight_act_quant_scale", "F32", {1});
    const Folder folder;
    const Handle checkpoint = open_model(folder, model);
    const LayerTensor* up = find_tensor(checkpoint, 0, MOE_ROLE_UP, 1);
    EXPECT_EQ(read_range(checkpoint, up->data),
              model.tensors.at(torchao_up + "._weight_qdata").bytes);
    ASSERT_EQ(up->tensor.scale_bytes, scales.size());
    EXPECT_EQ(std::string(static_cast<const char*>(up->tensor.scales), scales.size()), scales);
}

TEST(Torchao, MergedExpertsAndSharedOnes) {
    Model model = model_of("qwen2_moe", R"("moe_intermediate_size":32,"num_experts":4,)"
                                        R"("shared_expert_intermediate_size":48)");
    model.add(mlp0 + "gate.weight", "BF16", {experts, hidden});
    model.add(mlp0 + "experts._gate_up_proj_qdata", "F8_E4M3", {experts, 2 * width, hidden});
    model.add(mlp0 + "experts._gate_up_proj_scale", "F32", {experts, 2 * width, 1});
    model.add(mlp0 + "experts._down_proj_qdata", "F8_E4M3", {experts, hidden, width});
    model.add(mlp0 + "experts._down_proj_scale", "F32", {experts, hidden, 1});
    add_shared(model, mlp0 + "shared_expert.");
    model.tensors.erase(mlp0 + "shared_expert.gate_proj.weight");
    model.add(mlp0 + "shared_expert.gate_proj._weight_qdata", "I8", {shared_width, hidden});
    model.add(mlp0 + "shared_expert.gate_proj._weight_scale", "F32", {shared_width, 1});
    model.add(mlp0 + "shared_expert_gate._weight_qdata", "I8", {1, hidden});
    model.add(mlp0 + "shared_expert_gate._weight_scale", "F32", {1, 1});
    EXPECT_EQ(desc_of(model, 7).shared_intermediate, shared_width);
    model.add(mlp0 + "experts._gate_up_proj_scale", "F32", {1, 1, 1});
    refuses_torchao(model, MOE_ERROR_CORRUPT_FILE,
                    "_gate_up_proj_scale': has shape [1, 1, 1], [4, 1, 1] is wanted");
    model.add(mlp0 + "experts._gate_up_proj_scale", "F32", {experts, 1, 2});
    const Folder folder;
    EXPECT_EQ(open_model(folder, model)->tensors(0).size(), 7u);
    model.tensors.erase(mlp0 + "experts._gate_up_proj_scale");
    refuses_torchao(model, MOE_ERROR_NOT_FOUND,
                    "there is no tensor '" + mlp0 + "experts._gate_up_proj_scale'");
}

TEST(TorchaoRefusals, NameTheTensor) {
    const std::string tensor = "model.safetensors: tensor '" + torchao_up + "._weight_";
    refuses_torchao(with_torchao("U8", "F32", {width, 1}), MOE_ERROR_UNSUPPORTED,
                    tensor + "qdata': torchao's codes of type U8 are not read");
    refuses_torchao(with_torchao("I32", "BF16", {width, 1}), MOE_ERROR_UNSUPPORTED,
                    tensor + "qdata': torchao's codes of type I32 are not read");
    refuses_torchao(with_torchao("F8_E4M3", "F8_E8M0", {width, 2}), MOE_ERROR_UNSUPPORTED,
                    tensor + "scale': torchao's scales of type F8_E8M0 are not read: they may lie");
    for (const Shape& shape : {Shape{width}, Shape{3, 1}, Shape{width, 7}, Shape{}, Shape{0, 1}})
        refuses_torchao(with_torchao("I8", "F32", shape), MOE_ERROR_CORRUPT_FILE,
                        "which divides [32, 64] into no blocks");
    Model model = with_torchao("I8", "F32", {width, 1});
    std::string zeros(width, '\0');
    zeros[5] = 1;
    model.tensors[torchao_up + "._weight_zero_point"] = {"I8", {width, 1}, zeros};
    refuses_torchao(model, MOE_ERROR_UNSUPPORTED,
                    tensor + "zero_point': zero points of torchao other than zero are not read");
    model = with_torchao("I8", "F32", {width, 1});
    model.add(torchao_up + "._weight_act_pre_scale", "F32", {1});
    refuses_torchao(model, MOE_ERROR_UNSUPPORTED,
                    tensor + "act_pre_scale': beside a weight in torchao's codes");
    model = with_torchao("F8_E4M3", "F32", {width, 1});
    model.add(torchao_up + "._weight_per_tensor_scale", "F32", {1});
    refuses_torchao(model, MOE_ERROR_UNSUPPORTED,
                    tensor + "per_tensor_scale': is not read, and would change the result");
}

}  // namespace
}  // namespace moe::test
