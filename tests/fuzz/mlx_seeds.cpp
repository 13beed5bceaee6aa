// Folders of MLX: stacks of experts under affine codes, and under scales of bytes. And tensors that
// torchao took apart.
#include "tests/checkpoint/models.hpp"
#include "tests/fuzz/seeds.hpp"

namespace moe_fuzz {
namespace {

using moe::test::Model;
using moe::test::raw;
using moe::test::Shape;

constexpr int64_t n_features = 32, stack_width = 16, n_stacked = 2;
const std::string mlp = "model.layers.0.mlp.";

Model sized_model(const std::string& type, const std::string& more) {
    Model model;
    model.config = "{\"model_type\":\"" + type +
                   "\",\"hidden_size\":32,\"num_experts_per_tok\":1,\"num_local_experts\":2," +
                   "\"moe_intermediate_size\":16,\"intermediate_size\":16," + more + "}";
    return model;
}

void add_codes(Model& model, const std::string& stem, Shape shape, int64_t bits, int64_t group,
               const std::string& scale_type) {
    const int64_t columns = shape.back();
    shape.back() = columns * bits / 32;
    model.add(stem + ".weight", "U32", shape);
    shape.back() = columns / group;
    model.add(stem + ".scales", scale_type, shape);
    if (scale_type != "U8") model.add(stem + ".biases", scale_type, shape);
}

// A router of 8 bits; down has few columns.
Model qwen_stacks(int64_t bits, int64_t group, const std::string& scale_type) {
    const std::string settings = "\"quantization\":{\"group_size\":16,\"bits\":4,\"" + mlp +
                                 "gate\":{\"group_size\":32,\"bits\":8,\"mode\":\"affine\"}}";
    Model model = sized_model("qwen3_moe", settings);
    const std::string stem = mlp + "switch_mlp.";
    add_codes(model, mlp + "gate", {n_stacked, n_features}, 8, 32, "BF16");
    add_codes(model, stem + "gate_proj", {n_stacked, stack_width, n_features}, bits, group,
              scale_type);
    add_codes(model, stem + "up_proj", {n_stacked, stack_width, n_features}, bits, group,
              scale_type);
    add_codes(model, stem + "down_proj", {n_stacked, n_features, stack_width}, 4, 16, "F16");
    return model;
}

// Each stack has a bias of its own.
Model gpt_oss_stacks() {
    Model model = sized_model("gpt_oss", "\"swiglu_limit\":7");
    const std::string stem = mlp + "experts.";
    model.add(mlp + "router.weight", "BF16", {n_stacked, n_features});
    model.add(mlp + "router.bias", "BF16", {n_stacked});
    add_codes(model, stem + "gate_proj", {n_stacked, stack_width, n_features}, 4, 32, "U8");
    add_codes(model, stem + "up_proj", {n_stacked, stack_width, n_features}, 4, 32, "U8");
    model.add(stem + "down_proj.weight", "BF16", {n_stacked, n_features, stack_width});
    model.add(stem + "gate_proj.bias", "BF16", {n_stacked, stack_width});
    model.add(stem + "up_proj.bias", "BF16", {n_stacked, stack_width});
    model.add(stem + "down_proj.bias", "BF16", {n_stacked, n_features});
    return model;
}

// FP8 of all experts in one tensor, and an int8 router.
Model torchao_model() {
    Model model = sized_model("mixtral", "\"quantization_config\":{\"quant_method\":\"torchao\"}");
    const std::string stem = mlp + "experts.";
    model.add(mlp + "gate._weight_qdata", "I8", {n_stacked, n_features});
    model.add(mlp + "gate._weight_scale", "F32", {n_stacked, 1});
    model.tensors[mlp + "gate._weight_zero_point"] = {"I8", {n_stacked, 1}, std::string(2, '\0')};
    model.add(stem + "_gate_up_proj_qdata", "F8_E4M3", {n_stacked, 2 * stack_width, n_features});
    model.add(stem + "_gate_up_proj_scale", "F32", {n_stacked, 2 * stack_width, 1});
    model.add(stem + "_down_proj_qdata", "F8_E4M3", {n_stacked, n_features, stack_width});
    model.add(stem + "_down_proj_scale", "BF16", {n_stacked, n_features, 1});
    return model;
}

}  // namespace

void add_mlx_and_torchao(const Seeds& seeds) {
    const std::pair<const char*, Model> models[] = {{"mlx_affine", qwen_stacks(4, 32, "BF16")},
                                                    {"mlx_affine_3bit", qwen_stacks(3, 16, "F32")},
                                                    {"mlx_mxfp4", qwen_stacks(4, 32, "U8")},
                                                    {"mlx_nvfp4", qwen_stacks(4, 16, "U8")},
                                                    {"mlx_mxfp8", qwen_stacks(8, 32, "U8")},
                                                    {"mlx_gpt_oss", gpt_oss_stacks()},
                                                    {"torchao", torchao_model()}};
    for (const auto& [name, model] : models)
        seeds.add("model", name,
                  raw(static_cast<uint32_t>(model.config.size())) + model.config + model.file());
}

}  // namespace moe_fuzz
