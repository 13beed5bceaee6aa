// Folders of MLX: which names hold the experts, what shapes and configuration say of codes, and
// what is refused. Values are in tests/oracle (mlx_cases.py).
#include "libmoe/base/half.hpp"
#include "libmoe/formats/format.hpp"
#include "tests/checkpoint/family_models.hpp"

namespace moe::test {
namespace {

constexpr const char* default_settings =
    R"("quantization":{"group_size":32,"bits":4,"mode":"affine"})";

void add_affine(Model& model, const std::string& stem, Shape shape, int64_t bits,
                int64_t group = 32, const std::string& type = "BF16") {
    const int64_t columns = shape.back();
    shape.back() = columns * bits / 32;
    model.add(stem + ".weight", "U32", shape);
    shape.back() = columns / group;
    model.add(stem + ".scales", type, shape);
    model.add(stem + ".biases", type, shape);
}

void add_bytes(Model& model, const std::string& stem, Shape shape, int64_t bits, int64_t group) {
    const int64_t columns = shape.back();
    shape.back() = columns * bits / 32;
    model.add(stem + ".weight", "U32", shape);
    shape.back() = columns / group;
    model.add(stem + ".scales", "U8", shape);
}

void add_stacks(Model& model, const std::string& stem, const std::string& type = "BF16") {
    model.add(stem + "gate_proj.weight", type, {experts, width, hidden});
    model.add(stem + "up_proj.weight", type, {experts, width, hidden});
    model.add(stem + "down_proj.weight", type, {experts, hidden, width});
}

const std::string switch_mlp = mlp0 + "switch_mlp.";
const std::string stacked_up = switch_mlp + "up_proj";

// qwen3_moe whose stacks and router have 4 bits in groups of 32.
Model mlx_qwen(const std::string& settings = default_settings) {
    Model model =
        model_of("qwen3_moe", R"("moe_intermediate_size":32,"num_experts":4,)" + settings);
    add_affine(model, mlp0 + "gate", {experts, hidden}, 4);
    add_affine(model, switch_mlp + "gate_proj", {experts, width, hidden}, 4);
    add_affine(model, stacked_up, {experts, width, hidden}, 4);
    add_affine(model, switch_mlp + "down_proj", {experts, hidden, width}, 4);
    return model;
}

std::string settings_with(const std::string& of_up) {
    return R"("quantization":{"group_size":32,"bits":4,")" + stacked_up + "\":" + of_up + "}";
}

std::string format_of_up(const Model& model) {
    const Folder folder;
    const Handle checkpoint = open_model(folder, model);
    return format_name(find_tensor(checkpoint, 0, MOE_ROLE_UP, MOE_ALL_EXPERTS)->format).text;
}

void refuses_mlx(const Model& model, moe_status status, const std::string& text) {
    const Failure failure = layer_failure(model);
    EXPECT_EQ(failure.status, status) << failure.text;
    EXPECT_NE(failure.text.find(text), std::string::npos) << failure.text << "\n  lacks: " << text;
}

TEST(Mlx, ShapesSayBitsAndGroups) {
    const struct {
        int64_t bits, group;
        const char* type;
        const char* text;
    } cases[] = {{2, 32, "BF16", "int2 bit_stream 1x32 bf16 biases (MLX affine)"},
                 {3, 64, "F16", "int3 bit_stream 1x64 f16 biases (MLX affine)"},
                 {5, 32, "F32", "int5 bit_stream 1x32 f32 biases (MLX affine)"},
                 {6, 64, "BF16", "int6 bit_stream 1x64 bf16 biases (MLX affine)"},
                 {8, 32, "BF16", "int8 bit_stream 1x32 bf16 biases (MLX affine)"}};
    for (const auto& c : cases) {
        SCOPED_TRACE(c.text);
        Model model = mlx_qwen();
        add_affine(model, stacked_up, {experts, width, hidden}, c.bits, c.group, c.type);
        EXPECT_EQ(format_of_up(model), c.text) << "the default of config.json is another";
        model = mlx_qwen(settings_with("{\"bits\":" + std::to_string(c.bits) +
                                       ",\"group_size\":" + std::to_string(c.group) + "}"));
        add_affine(model, stacked_up, {experts, width, hidden}, c.bits, c.group, c.type);
        EXPECT_EQ(format_of_up(model), c.text);
    }
}

TEST(Mlx, StacksAndTheirScalesAndBiasesAreWhereTheyLie) {
    const Model model = mlx_qwen();
    const Folder folder;
    const Handle checkpoint = open_model(folder, model);
    const LayerTensor* up = find_tensor(checkpoint, 0, MOE_ROLE_UP, MOE_ALL_EXPERTS);
    ASSERT_NE(up, nullptr);
    EXPECT_EQ(up->tensor.n_experts, experts);
    EXPECT_EQ(up->tensor.rows, width);
    EXPECT_EQ(up->tensor.columns, hidden);
    EXPECT_EQ(read_range(checkpoint, up->data), model.tensors.at(stacked_up + ".weight").bytes);
    EXPECT_EQ(read_range(checkpoint, up->scales), model.tensors.at(stacked_up + ".scales").bytes);
    EXPECT_EQ(read_range(checkpoint, up->zero_points),
              model.tensors.at(stacked_up + ".biases").bytes);
    EXPECT_EQ(up->tensor.zero_point_bytes, static_cast<uint64_t>(experts * width * 2 * 2));
}

// As mlx-lm reads them, too, which stacks them then.
TEST(Mlx, ExpertsMayLieApart) {
    Model model = qwen("qwen3_moe", std::string(",") + default_settings, false);
    const std::string stem = mlp0 + "experts.1.up_proj";
    add_affine(model, stem, {width, hidden}, 6);
    const Folder folder;
    const Handle checkpoint = open_model(folder, model);
    const LayerTensor* up = find_tensor(checkpoint, 0, MOE_ROLE_UP, 1);
    EXPECT_STREQ(format_name(up->format).text, "int6 bit_stream 1x32 bf16 biases (MLX affine)");
    EXPECT_EQ(read_range(checkpoint, up->zero_points), model.tensors.at(stem + ".biases").bytes);
}

TEST(Mlx, ScalesOfBytesSayTheMode) {
    const struct {
        int64_t bits, group;
        const char* text;
    } cases[] = {{4, 32, "mxfp4"}, {4, 16, "nvfp4"}, {8, 32, "f8_e4m3 1x32 f8_e8m0"}};
    for (const auto& c : cases) {
        SCOPED_TRACE(c.text);
        Model model = mlx_qwen();
        model.tensors.erase(stacked_up + ".biases");
        add_bytes(model, stacked_up, {experts, width, hidden}, c.bits, c.group);
        EXPECT_EQ(format_of_up(model), c.text);
    }
}

// MLX stores the largest weight; 448 * 6 of the code and scale are what it takes.
TEST(Mlx, GlobalScalesOfNvfp4AreOfEachExpert) {
    Model model = mlx_qwen();
    model.tensors.erase(stacked_up + ".biases");
    add_bytes(model, stacked_up, {experts, width, hidden}, 4, 16);
    std::string largest;
    for (int e = 0; e < experts; ++e) largest += raw(1344.0f * static_cast<float>(e + 1));
    model.tensors[stacked_up + ".global_scale"] = {"F32", {experts}, largest};
    const Folder folder;
    const Handle checkpoint = open_model(folder, model);
    const LayerTensor* up = find_tensor(checkpoint, 0, MOE_ROLE_UP, MOE_ALL_EXPERTS);
    EXPECT_EQ(up->format.global_scale, MOE_GLOBAL_SCALE_MULTIPLY);
    ASSERT_EQ(up->tensor.n_global_scales, experts);
    for (int e = 0; e < experts; ++e)
        EXPECT_EQ(up->tensor.global_scale[e], 0.5f * static_cast<float>(e + 1));
}

TEST(Mlx, NamesOfFamilies) {
    Model model = model_of("mixtral", local);
    model.add(layer0 + "block_sparse_moe.gate.weight", "BF16", {experts, hidden});
    add_stacks(model, layer0 + "block_sparse_moe.switch_mlp.");
    EXPECT_EQ(desc_of(model, 4).is_gated, 1);

    model = model_of("dots1", routed);
    model.add(mlp0 + "gate.weight", "BF16", {experts, hidden});
    model.add(mlp0 + "gate.e_score_correction_bias", "F32", {experts});
    add_stacks(model, mlp0 + "experts.");
    EXPECT_EQ(desc_of(model, 5).has_selection_bias, 1);

    model = model_of("bailing_moe", R"("moe_intermediate_size":32,"num_experts":4)");
    model.add(mlp0 + "gate.gate_proj.weight", "BF16", {experts, hidden});
    model.add(mlp0 + "gate.expert_bias", "F32", {experts});
    add_stacks(model, switch_mlp);
    EXPECT_EQ(desc_of(model, 5).score, MOE_SCORE_SIGMOID);

    model = model_of("step3p5", R"("moe_intermediate_size":32,"moe_num_experts":4,"moe_top_k":2)");
    model.add(mlp0 + "gate.gate.weight", "BF16", {experts, hidden});
    model.add(mlp0 + "gate.router_bias", "F32", {experts});
    add_stacks(model, switch_mlp);
    add_shared(model, mlp0 + "share_expert.");
    EXPECT_EQ(desc_of(model, 8).shared_intermediate, shared_width);
    model.tensors.erase(switch_mlp + "gate_proj.weight");
    refuses_mlx(model, MOE_ERROR_NOT_FOUND,
                "there is no tensor '" + mlp0 + "moe.gate_proj.weight'");

    model = model_of("qwen3_vl_moe", R"("text_config":{"model_type":"qwen3_vl_moe_text",)"
                                     R"("moe_intermediate_size":32,"num_experts":4})");
    const std::string vl = "language_model.model.layers.0.mlp.";
    add_affine(model, vl + "gate", {experts, hidden}, 8);
    add_stacks(model, vl + "switch_mlp.");
    EXPECT_EQ(desc_of(model, 4).renormalize, MOE_RENORMALIZE_SUM_ADD);

    model = model_of("llama4", local);
    const std::string llama4 = "language_model.model.layers.0.feed_forward.";
    model.add(llama4 + "router.weight", "BF16", {experts, hidden});
    add_stacks(model, llama4 + "experts.");
    add_shared(model, llama4 + "shared_expert.");
    EXPECT_EQ(desc_of(model, 7).weight_on, MOE_WEIGHT_ON_INPUT);

    model = model_of("gemma4", R"("moe_intermediate_size":32,"num_experts":4,)"
                               R"("hidden_activation":"gelu_pytorch_tanh")");
    const std::string gemma = "language_model.model.layers.0.";
    model.add(gemma + "router.proj.weight", "BF16", {experts, hidden});
    model.add(gemma + "router.scale", "BF16", {hidden});
    model.add(gemma + "router.per_expert_scale", "BF16", {experts});
    add_stacks(model, gemma + "experts.switch_glu.");
    EXPECT_EQ(desc_of(model, 6).has_expert_scale, 1);
}

TEST(Mlx, NemotronHasTwoStacks) {
    Model model = model_of("nemotron_h", routed);
    const std::string mixer = "backbone.layers.0.mixer.";
    model.add(mixer + "gate.weight", "BF16", {experts, hidden});
    model.add(mixer + "gate.e_score_correction_bias", "F32", {experts});
    add_affine(model, mixer + "switch_mlp.fc1", {experts, width, hidden}, 4);
    add_affine(model, mixer + "switch_mlp.fc2", {experts, hidden, width}, 6);
    add_affine(model, mixer + "shared_experts.up_proj", {shared_width, hidden}, 8);
    model.add(mixer + "shared_experts.down_proj.weight", "BF16", {hidden, shared_width});
    const moe_layer_desc desc = desc_of(model, 6);
    EXPECT_EQ(desc.is_gated, 0);
    EXPECT_EQ(desc.shared_intermediate, shared_width);
}

TEST(Mlx, GptOssHasBiasesOfItsOwnBesideThoseOfCodes) {
    Model model = model_of("gpt_oss", local);
    add_affine(model, mlp0 + "router", {experts, hidden}, 8);
    model.add(mlp0 + "router.bias", "BF16", {experts});
    for (const std::string name : {"gate_proj", "up_proj", "down_proj"}) {
        const bool is_down = name == "down_proj";
        const int64_t rows = is_down ? hidden : width;
        const std::string stem = mlp0 + "experts." + name;
        add_affine(model, stem, {experts, rows, is_down ? width : hidden}, 4);
        model.add(stem + ".bias", "BF16", {experts, rows});
    }
    EXPECT_EQ(desc_of(model, 8).has_gate_bias, 1);
    model.tensors.erase(mlp0 + "experts.up_proj.bias");
    refuses_mlx(model, MOE_ERROR_NOT_FOUND,
                "there is no tensor '" + mlp0 + "experts.up_proj.bias'");
}

TEST(MlxRefusals, ConfigurationAndShapesThatContradictEachOther) {
    const std::string tensor = "model.safetensors: tensor '" + stacked_up + ".weight': ";
    const std::string key = "'quantization." + stacked_up;
    refuses_mlx(mlx_qwen(settings_with(R"({"bits":8,"group_size":32})")), MOE_ERROR_CORRUPT_FILE,
                tensor + "is affine with 4 bits in groups of 32, but " + key +
                    ".bits' of config.json is 8");
    refuses_mlx(mlx_qwen(settings_with(R"({"bits":4,"group_size":64})")), MOE_ERROR_CORRUPT_FILE,
                key + ".group_size' of config.json is 64");
    refuses_mlx(mlx_qwen(settings_with(R"({"bits":4,"group_size":32,"mode":"mxfp4"})")),
                MOE_ERROR_CORRUPT_FILE, key + ".mode' of config.json is 'mxfp4'");
    refuses_mlx(mlx_qwen(settings_with("false")), MOE_ERROR_CORRUPT_FILE,
                key + "' of config.json is false");
    refuses_mlx(
        mlx_qwen(settings_with(R"({"mode":"trellis"})")), MOE_ERROR_UNSUPPORTED,
        key + ".mode' of config.json is 'trellis', which is not affine, mxfp4, nvfp4 or mxfp8");
    refuses_mlx(mlx_qwen(R"("quantization_config":{"mode":"rotated"})"), MOE_ERROR_UNSUPPORTED,
                "'quantization_config.mode' of config.json is 'rotated'");
}

TEST(MlxRefusals, Tensors) {
    const std::string tensor = "model.safetensors: tensor '" + stacked_up;
    Model model = mlx_qwen();
    model.tensors.erase(stacked_up + ".scales");
    refuses_mlx(model, MOE_ERROR_NOT_FOUND, "there is no tensor '" + stacked_up + ".scales'");
    model = mlx_qwen();
    model.tensors.erase(stacked_up + ".biases");
    refuses_mlx(model, MOE_ERROR_NOT_FOUND, "there is no tensor '" + stacked_up + ".biases'");
    model = mlx_qwen();
    model.add(stacked_up + ".biases", "F16", {experts, width, hidden / 32});
    refuses_mlx(model, MOE_ERROR_UNSUPPORTED, tensor + ".biases': is F16, BF16 is wanted");
    model = mlx_qwen();
    model.add(stacked_up + ".biases", "BF16", {experts, width, 1});
    refuses_mlx(model, MOE_ERROR_CORRUPT_FILE,
                tensor + ".biases': has shape [4, 32, 1], [4, 32, 2] is wanted");
    model = mlx_qwen();
    model.add(stacked_up + ".weight", "U32", {experts, width, 7});
    refuses_mlx(model, MOE_ERROR_CORRUPT_FILE,
                tensor +
                    ".weight': has shape [4, 32, 7] and scales [4, 32, 2]: 64 columns have no "
                    "whole bits and groups in it");
    model = mlx_qwen();
    model.add(stacked_up + ".scales", "BF16", {experts, width, 0});
    refuses_mlx(model, MOE_ERROR_CORRUPT_FILE,
                tensor + ".weight': has shape [4, 32, 8] and scales");
    model = mlx_qwen();
    model.add(stacked_up + ".weight", "U32", {experts, width, 18});
    refuses_mlx(model, MOE_ERROR_UNSUPPORTED, tensor + ".weight': codes of 9 bits are not read");
    model = mlx_qwen();
    model.add(stacked_up + ".scales", "U8", {experts, width, 1});
    refuses_mlx(
        model, MOE_ERROR_UNSUPPORTED,
        tensor + ".weight': 4 bits in groups of 64 under scales of bytes are no mode of MLX");
    model = mlx_qwen();
    model.add(stacked_up + ".scales", "U8", {experts, width, 2});
    refuses_mlx(model, MOE_ERROR_UNSUPPORTED, tensor + ".biases': beside a weight in mxfp4");
    model = mlx_qwen();
    model.add(stacked_up + ".weight", "BF16", {experts, width, hidden});
    refuses_mlx(model, MOE_ERROR_UNSUPPORTED, tensor + ".scales': beside a weight in BF16");
    model = mlx_qwen();
    model.add(stacked_up + ".bias", "BF16", {experts, width});
    refuses_mlx(model, MOE_ERROR_UNSUPPORTED, tensor + ".bias': is a bias, which this family");
    model = mlx_qwen();
    model.add(switch_mlp + "fc1.weight", "BF16", {1});
    refuses_mlx(model, MOE_ERROR_UNSUPPORTED,
                "fc1.weight': is not read, and would change the result");
}

// The shared expert of Granite lies beside the block, gate and up in one matrix.
Model granite() {
    Model model = model_of("granitemoehybrid", local + ",\"shared_intermediate_size\":48");
    const std::string block = layer0 + "block_sparse_moe.";
    add_affine(model, block + "router.layer", {experts, hidden}, 8);
    add_stacks(model, block + "switch_mlp.");
    add_affine(model, layer0 + "shared_mlp.input_linear", {2 * shared_width, hidden}, 4);
    model.add(layer0 + "shared_mlp.output_linear.weight", "BF16", {hidden, shared_width});
    return model;
}

TEST(Mlx, GateAndUpOfASharedExpertBecomeTwoMatrices) {
    const Model model = granite();
    EXPECT_EQ(desc_of(model, 7).shared_intermediate, shared_width);
    for (const moe_gate_up_order order : {MOE_GATE_UP_GATE_FIRST, MOE_GATE_UP_UP_FIRST}) {
        const Folder folder;
        moe_checkpoint_options options{};
        options.gate_up_order = order;
        const Handle checkpoint = open_model(folder, model, options);
        for (const auto& [role, place] :
             {std::pair{MOE_ROLE_SHARED_GATE, 0}, std::pair{MOE_ROLE_SHARED_UP, 1}}) {
            const LayerTensor* half = find_tensor(checkpoint, 0, role, 0);
            ASSERT_NE(half, nullptr);
            EXPECT_EQ(half->tensor.rows, shared_width);
            const bool is_second = (place == 1) == (order == MOE_GATE_UP_GATE_FIRST);
            const auto expect_half = [&](const FileRange& range, const char* end) {
                const std::string& whole =
                    model.tensors.at(layer0 + "shared_mlp.input_linear" + end).bytes;
                const size_t n = whole.size() / 2;
                EXPECT_EQ(read_range(checkpoint, range), whole.substr(is_second ? n : 0, n));
            };
            expect_half(half->data, ".weight");
            expect_half(half->scales, ".scales");
            expect_half(half->zero_points, ".biases");
            EXPECT_EQ(std::string(static_cast<const char*>(half->tensor.scales),
                                  half->tensor.scale_bytes),
                      read_range(checkpoint, half->scales));
        }
    }
    moe_checkpoint_options options{};
    options.gate_up_order = MOE_GATE_UP_INTERLEAVED;
    const Failure failure = layer_failure(model, 0, options);
    EXPECT_EQ(failure.status, MOE_ERROR_UNSUPPORTED);
    EXPECT_NE(failure.text.find("input_linear.weight': rows of gate and up in turns"),
              std::string::npos)
        << failure.text;
}

TEST(MlxRefusals, GateAndUpOfExpertsInOneMatrix) {
    Model model = granite();
    for (const char* name : {"gate_proj.weight", "up_proj.weight", "down_proj.weight"})
        model.tensors.erase(layer0 + "block_sparse_moe.switch_mlp." + name);
    add_affine(model, layer0 + "block_sparse_moe.input_linear", {experts, 2 * width, hidden}, 4);
    add_affine(model, layer0 + "block_sparse_moe.output_linear", {experts, hidden, width}, 4);
    refuses_mlx(model, MOE_ERROR_UNSUPPORTED,
                "input_linear.weight': gate and up in one matrix of affine codes");
}

}  // namespace
}  // namespace moe::test
