// Families as safetensors: descriptions, tensors, formats, and what is said when something is missing or misshapen.
#include "tests/checkpoint/models.hpp"

namespace moe::test {
namespace {

void add_expert_names(Model& model, const std::string& block, const char* gate, const char* up, const char* down) {
    for (int e = 0; e < experts; ++e) {
        const std::string stem = block + "experts." + std::to_string(e) + ".";
        model.add(stem + gate + ".weight", "BF16", {width, hidden});
        model.add(stem + up + ".weight", "BF16", {width, hidden});
        model.add(stem + down + ".weight", "BF16", {hidden, width});
    }
}

void add_shared(Model& model, const std::string& stem) {
    model.add(stem + "gate_proj.weight", "BF16", {shared_width, hidden});
    model.add(stem + "up_proj.weight", "BF16", {shared_width, hidden});
    model.add(stem + "down_proj.weight", "BF16", {hidden, shared_width});
}

void add_merged(Model& model, const std::string& block, bool transposed) {
    const Shape gate_up = transposed ? Shape{experts, hidden, 2 * width} : Shape{experts, 2 * width, hidden};
    const Shape down = transposed ? Shape{experts, width, hidden} : Shape{experts, hidden, width};
    model.add(block + "experts.gate_up_proj", "BF16", gate_up);
    model.add(block + "experts.down_proj", "BF16", down);
}

Model mixtral() {
    Model model;
    model.config = config_of("mixtral", R"("intermediate_size":32,"num_local_experts":4,"hidden_act":"silu")");
    const std::string block = "model.layers.0.block_sparse_moe.";
    model.add(block + "gate.weight", "BF16", {experts, hidden});
    add_expert_names(model, block, "w1", "w3", "w2");
    model.add("model.layers.0.self_attn.q_proj.weight", "F64", {3});
    model.add("lm_head.weight", "I64", {2});
    return model;
}

Model qwen(const std::string& type, const std::string& more, bool shared) {
    Model model;
    model.config = config_of(type, R"("moe_intermediate_size":32,"num_experts":4)" + more);
    const std::string block = "model.layers.0.mlp.";
    model.add(block + "gate.weight", "BF16", {experts, hidden});
    add_expert_names(model, block, "gate_proj", "up_proj", "down_proj");
    if (shared) {
        add_shared(model, block + "shared_expert.");
        model.add(block + "shared_expert_gate.weight", "BF16", {1, hidden});
    }
    return model;
}

Model deepseek(const std::string& type, const std::string& more, bool bias) {
    Model model;
    model.config =
        config_of(type, R"("moe_intermediate_size":32,"n_routed_experts":4,"n_shared_experts":2)" + more);
    const std::string block = "model.layers.1.mlp.";
    model.add("model.layers.0.mlp.gate_proj.weight", "BF16", {8, hidden});
    model.add(block + "gate.weight", "BF16", {experts, hidden});
    if (bias) model.add(block + "gate.e_score_correction_bias", "F32", {experts});
    add_expert_names(model, block, "gate_proj", "up_proj", "down_proj");
    add_shared(model, block + "shared_experts.");
    return model;
}

Model gpt_oss(bool mxfp4) {
    Model model;
    model.config = config_of("gpt_oss", R"("intermediate_size":32,"num_local_experts":4,"swiglu_limit":7.0)");
    const std::string block = "model.layers.0.mlp.";
    model.add(block + "router.weight", "BF16", {experts, hidden});
    model.add(block + "router.bias", "BF16", {experts});
    model.add(block + "experts.gate_up_proj_bias", "BF16", {experts, 2 * width});
    model.add(block + "experts.down_proj_bias", "BF16", {experts, hidden});
    if (mxfp4) {
        model.add(block + "experts.gate_up_proj_blocks", "U8", {experts, 2 * width, hidden / 32, 16});
        model.add(block + "experts.gate_up_proj_scales", "U8", {experts, 2 * width, hidden / 32});
        model.add(block + "experts.down_proj_blocks", "U8", {experts, hidden, width / 32, 16});
        model.add(block + "experts.down_proj_scales", "U8", {experts, hidden, width / 32});
    } else {
        add_merged(model, block, true);
    }
    return model;
}

void expect_sizes(const moe_layer_desc& desc) {
    EXPECT_EQ(desc.struct_size, sizeof desc);
    EXPECT_EQ(desc.hidden, hidden);
    EXPECT_EQ(desc.intermediate, width);
    EXPECT_EQ(desc.n_experts, experts);
    EXPECT_EQ(desc.top_k, 2);
    EXPECT_EQ(desc.has_router, 1);
    EXPECT_EQ(desc.activation, MOE_ACTIVATION_SILU);
    EXPECT_EQ(desc.is_gated, 1);
}

// Every tensor of the layer has the bytes that its name gives, mapped and read alike.
void expect_bytes(const Folder& folder, int32_t layer) {
    const Handle mapped = open_path(folder.path());
    moe_checkpoint_options options{};
    options.io = MOE_IO_READ;
    const Handle read = open_path(folder.path(), options);
    ASSERT_EQ(mapped->tensors(layer).size(), read->tensors(layer).size());
    for (size_t i = 0; i < mapped->tensors(layer).size(); ++i) {
        const LayerTensor& a = mapped->tensors(layer)[i];
        const LayerTensor& b = read->tensors(layer)[i];
        const std::string name(a.name);
        ASSERT_EQ(name, b.name);
        const std::string wanted = noise(a.data.bytes, seed_of(name));
        ASSERT_TRUE(a.tensor.data);
        EXPECT_EQ(b.tensor.data, nullptr);
        EXPECT_EQ(a.tensor.data_bytes, a.data.bytes);
        EXPECT_EQ(a.tensor.format, &a.format);
        EXPECT_EQ(std::string(static_cast<const char*>(a.tensor.data), a.tensor.data_bytes), wanted) << name;
        EXPECT_EQ(read_range(mapped, a.data), wanted) << name;
        EXPECT_EQ(read_range(read, b.data), wanted) << name;
        EXPECT_EQ(read_range(mapped, a.scales), read_range(read, b.scales)) << name;
    }
}

TEST(Mixtral, HasItsLayerAndTensors) {
    const Folder folder;
    const Handle checkpoint = open_model(folder, mixtral());
    ASSERT_EQ(checkpoint->n_layers(), 1);
    EXPECT_EQ(checkpoint->layer_at(0), 0);
    const moe_checkpoint_info info = checkpoint->info();
    EXPECT_STREQ(info.family, "mixtral");
    EXPECT_STREQ(info.model_type, "mixtral");
    EXPECT_EQ(info.n_tensors, 15u);
    EXPECT_EQ(info.n_files, 1);
    EXPECT_EQ(info.is_gguf, 0);
    EXPECT_EQ(info.file_bytes, std::filesystem::file_size(folder.path("model.safetensors")));
    const moe_layer_desc& desc = checkpoint->layer_desc(0);
    expect_sizes(desc);
    EXPECT_EQ(desc.score, MOE_SCORE_SOFTMAX);
    EXPECT_EQ(desc.renormalize, MOE_RENORMALIZE_SUM_ADD);
    EXPECT_EQ(desc.renormalize_eps, 0.0f);
    EXPECT_EQ(desc.shared_intermediate, 0);
    ASSERT_EQ(checkpoint->tensors(0).size(), 13u);
    const LayerTensor* up = find_tensor(checkpoint, 0, MOE_ROLE_UP, 3);
    ASSERT_TRUE(up);
    EXPECT_EQ(up->name, "model.layers.0.block_sparse_moe.experts.3.w3.weight");
    EXPECT_EQ(up->tensor.rows, width);
    EXPECT_EQ(up->tensor.columns, hidden);
    EXPECT_EQ(up->format.type, MOE_TYPE_BF16);
    EXPECT_EQ(find_tensor(checkpoint, 0, MOE_ROLE_GATE, 2)->name,
              "model.layers.0.block_sparse_moe.experts.2.w1.weight");
    EXPECT_EQ(find_tensor(checkpoint, 0, MOE_ROLE_DOWN, 0)->tensor.rows, hidden);
    expect_bytes(folder, 0);
}

TEST(Mixtral, TakesOtherSpellings) {
    // As llm-compressor names them.
    Model renamed = mixtral();
    const std::string block = "model.layers.0.block_sparse_moe.";
    std::erase_if(renamed.tensors, [](const auto& t) { return t.first.find("experts.") != t.first.npos; });
    add_expert_names(renamed, block, "gate_proj", "up_proj", "down_proj");
    const Folder folder;
    EXPECT_EQ(open_model(folder, renamed)->tensors(0).size(), 13u);
    // Merged, under mlp.
    Model merged;
    merged.config = renamed.config;
    merged.add("model.layers.0.mlp.gate.weight", "F32", {experts, hidden});
    add_merged(merged, "model.layers.0.mlp.", false);
    const Handle checkpoint = open_model(folder, merged);
    const LayerTensor* gate_up = find_tensor(checkpoint, 0, MOE_ROLE_GATE_UP, MOE_ALL_EXPERTS);
    ASSERT_TRUE(gate_up);
    EXPECT_EQ(gate_up->tensor.n_experts, experts);
    EXPECT_EQ(gate_up->tensor.rows, 2 * width);
    EXPECT_EQ(gate_up->tensor.gate_up_order, MOE_GATE_UP_GATE_FIRST);
    EXPECT_EQ(gate_up->tensor.orientation, MOE_ORIENTATION_OUT_IN);
    expect_bytes(folder, 0);
}

TEST(Fused, FollowsTheOptions) {
    Model model;
    model.config = mixtral().config;
    model.add("model.layers.0.mlp.gate.weight", "F32", {experts, hidden});
    model.add("model.layers.0.mlp.experts.gate_up_proj", "BF16", {experts, hidden, 2 * width});
    model.add("model.layers.0.mlp.experts.down_proj", "BF16", {experts, width, hidden});
    const Failure failure = layer_failure(model);  // gate_up is square, down is not
    EXPECT_EQ(failure.status, MOE_ERROR_CORRUPT_FILE);
    EXPECT_NE(failure.text.find("down_proj': has shape [4, 32, 64], [4, 64, 32] is wanted"), std::string::npos)
        << failure.text;
    moe_checkpoint_options options{};
    options.has_orientation = 1;
    options.orientation = MOE_ORIENTATION_IN_OUT;
    options.gate_up_order = MOE_GATE_UP_UP_FIRST;
    const Folder folder;
    const Handle checkpoint = open_model(folder, model, options);
    const LayerTensor* gate_up = find_tensor(checkpoint, 0, MOE_ROLE_GATE_UP, MOE_ALL_EXPERTS);
    ASSERT_TRUE(gate_up);
    EXPECT_EQ(gate_up->tensor.orientation, MOE_ORIENTATION_IN_OUT);
    EXPECT_EQ(gate_up->tensor.gate_up_order, MOE_GATE_UP_UP_FIRST);
    EXPECT_EQ(gate_up->tensor.rows, 2 * width);
    EXPECT_EQ(find_tensor(checkpoint, 0, MOE_ROLE_DOWN, MOE_ALL_EXPERTS)->tensor.rows, hidden);
}

TEST(Qwen, RoutingFollowsTypeAndFlag) {
    const struct {
        const char* type;
        const char* more;
        moe_renormalize norm;
        bool shared;
    } cases[] = {
        {"qwen2_moe", "", MOE_RENORMALIZE_NONE, true},
        {"qwen2_moe", ",\"norm_topk_prob\":true", MOE_RENORMALIZE_SUM_ADD, true},
        {"qwen3_moe", ",\"norm_topk_prob\":true", MOE_RENORMALIZE_SUM_ADD, false},
        {"qwen3_moe", ",\"norm_topk_prob\":false", MOE_RENORMALIZE_NONE, false},
        {"qwen3_next", ",\"shared_expert_intermediate_size\":48", MOE_RENORMALIZE_SUM_ADD, true},
        {"qwen3_next", "", MOE_RENORMALIZE_SUM_ADD, false},
    };
    for (const auto& c : cases) {
        SCOPED_TRACE(std::string(c.type) + c.more);
        const Folder folder;
        const Handle checkpoint = open_model(folder, qwen(c.type, c.more, c.shared));
        const moe_layer_desc& desc = checkpoint->layer_desc(0);
        expect_sizes(desc);
        EXPECT_EQ(desc.score, MOE_SCORE_SOFTMAX);
        EXPECT_EQ(desc.renormalize, c.norm);
        EXPECT_EQ(desc.shared_intermediate, c.shared ? shared_width : 0);
        EXPECT_EQ(desc.has_shared_expert_gate, c.shared ? 1 : 0);
        EXPECT_EQ(desc.shared_activation, c.shared ? MOE_ACTIVATION_SILU : MOE_ACTIVATION_NONE);
        EXPECT_EQ(checkpoint->tensors(0).size(), c.shared ? 17u : 13u);
        expect_bytes(folder, 0);
    }
}

TEST(Qwen, ReadsNewerKeysNestedConfigsAndPrefixes) {
    Model model = qwen("qwen3_moe", "", false);
    model.config =
        R"({"model_type":"qwen_sees","hidden_size":1,"text_config":{"model_type":"qwen3_moe","hidden_size":64,)"
        R"("moe_intermediate_size":32,"num_local_experts":4,"num_experts_per_tok":2,"norm_topk_prob":true}})";
    Model nested;
    nested.config = model.config;
    for (const auto& [name, tensor] : model.tensors) {
        nested.tensors["model.language_model" + name.substr(5)] = tensor;
    }
    // A multi-token head counts its layers from 0 again; attention may have experts, too.
    nested.add("mtp.layers.0.mlp.experts.0.gate_proj.weight", "BF16", {1});
    nested.add("model.layers.7.self_attention.experts.0.weight", "BF16", {1});
    const Folder folder;
    const Handle checkpoint = open_model(folder, nested);
    EXPECT_EQ(checkpoint->n_layers(), 1);
    expect_sizes(checkpoint->layer_desc(0));
    EXPECT_STREQ(checkpoint->info().model_type, "qwen3_moe");
}

TEST(DeepseekV2, IgnoresTheNormFlag) {
    const Folder folder;
    const Handle checkpoint = open_model(
        folder, deepseek("deepseek_v2",
                         R"(,"norm_topk_prob":true,"routed_scaling_factor":16,"topk_method":"group_limited_greedy",)"
                         R"("n_group":2,"topk_group":1)",
                         false));
    ASSERT_EQ(checkpoint->n_layers(), 1);
    EXPECT_EQ(checkpoint->layer_at(0), 1);
    const moe_layer_desc& desc = checkpoint->layer_desc(1);
    expect_sizes(desc);
    EXPECT_EQ(desc.score, MOE_SCORE_SOFTMAX);
    EXPECT_EQ(desc.renormalize, MOE_RENORMALIZE_NONE);
    EXPECT_EQ(desc.has_routed_scale, 1);
    EXPECT_EQ(desc.routed_scale, 16.0f);
    EXPECT_EQ(desc.n_group, 2);
    EXPECT_EQ(desc.topk_group, 1);
    EXPECT_EQ(desc.group_score, MOE_GROUP_SCORE_MAX);
    EXPECT_EQ(desc.shared_intermediate, shared_width);
    EXPECT_EQ(desc.has_shared_expert_gate, 0);
    expect_bytes(folder, 1);
}

TEST(DeepseekV3, ImpliesSigmoidAndBias) {
    const std::string more = R"(,"norm_topk_prob":true,"routed_scaling_factor":2.5,"n_group":2,"topk_group":1)";
    const Folder folder;
    const Handle checkpoint = open_model(folder, deepseek("deepseek_v3", more, true));
    const moe_layer_desc& desc = checkpoint->layer_desc(1);
    expect_sizes(desc);
    EXPECT_EQ(desc.score, MOE_SCORE_SIGMOID);
    EXPECT_EQ(desc.has_selection_bias, 1);
    EXPECT_EQ(desc.renormalize, MOE_RENORMALIZE_SUM_ADD);
    EXPECT_EQ(desc.renormalize_eps, 1e-20f);
    EXPECT_EQ(desc.routed_scale, 2.5f);
    EXPECT_EQ(desc.n_group, 2);
    EXPECT_EQ(desc.group_score, MOE_GROUP_SCORE_TOP2_SUM);
    const LayerTensor* bias = find_tensor(checkpoint, 1, MOE_ROLE_SELECTION_BIAS, 0);
    ASSERT_TRUE(bias);
    EXPECT_EQ(bias->format.type, MOE_TYPE_F32);
    EXPECT_EQ(bias->tensor.rows, 1);
    EXPECT_EQ(bias->tensor.columns, experts);
    expect_bytes(folder, 1);
    const Folder kimi;
    const Handle other = open_model(kimi, deepseek("kimi_k2", R"(,"n_group":1,"topk_group":1)", true));
    EXPECT_STREQ(other->info().family, "deepseek_v3");
    EXPECT_STREQ(other->info().model_type, "kimi_k2");
    EXPECT_EQ(other->layer_desc(1).n_group, 0);
    EXPECT_EQ(other->layer_desc(1).group_score, MOE_GROUP_SCORE_NONE);
}

TEST(GptOss, IsInterleavedInBothForms) {
    for (const bool mxfp4 : {true, false}) {
        SCOPED_TRACE(mxfp4);
        const Folder folder;
        const Handle checkpoint = open_model(folder, gpt_oss(mxfp4));
        const moe_layer_desc& desc = checkpoint->layer_desc(0);
        expect_sizes(desc);
        EXPECT_EQ(desc.score, MOE_SCORE_NONE);
        EXPECT_EQ(desc.post_score, MOE_SCORE_SOFTMAX);
        EXPECT_EQ(desc.activation_alpha, 1.702f);
        EXPECT_EQ(desc.activation_up_offset, 1.0f);
        EXPECT_EQ(desc.gate_limit, 7.0f);
        EXPECT_EQ(desc.up_limit, 7.0f);
        EXPECT_TRUE(desc.has_activation_alpha && desc.has_gate_limit && desc.has_up_limit);
        EXPECT_TRUE(desc.has_router_bias && desc.has_gate_bias && desc.has_up_bias && desc.has_down_bias);
        const LayerTensor* gate_up = find_tensor(checkpoint, 0, MOE_ROLE_GATE_UP, MOE_ALL_EXPERTS);
        ASSERT_TRUE(gate_up);
        EXPECT_EQ(gate_up->tensor.gate_up_order, MOE_GATE_UP_INTERLEAVED);
        EXPECT_EQ(gate_up->tensor.rows, 2 * width);
        EXPECT_EQ(gate_up->tensor.columns, hidden);
        EXPECT_EQ(gate_up->tensor.orientation, mxfp4 ? MOE_ORIENTATION_OUT_IN : MOE_ORIENTATION_IN_OUT);
        EXPECT_EQ(gate_up->format.type, mxfp4 ? MOE_TYPE_E2M1 : MOE_TYPE_BF16);
        EXPECT_EQ(gate_up->format.scale_type, mxfp4 ? MOE_TYPE_F8_E8M0 : MOE_TYPE_NONE);
        EXPECT_EQ(gate_up->tensor.scale_bytes, mxfp4 ? 4u * 64 * 2 : 0u);
        const LayerTensor* bias = find_tensor(checkpoint, 0, MOE_ROLE_GATE_UP_BIAS, MOE_ALL_EXPERTS);
        ASSERT_TRUE(bias);
        EXPECT_EQ(bias->tensor.gate_up_order, MOE_GATE_UP_INTERLEAVED);
        EXPECT_EQ(bias->tensor.columns, 2 * width);
        EXPECT_TRUE(find_tensor(checkpoint, 0, MOE_ROLE_DOWN_BIAS, MOE_ALL_EXPERTS));
        EXPECT_TRUE(find_tensor(checkpoint, 0, MOE_ROLE_ROUTER_BIAS, 0));
        expect_bytes(folder, 0);
    }
}

// One expert's matrix in another format: the scale tensors decide.
void make_fp8(Model& model, const std::string& stem, int64_t rows, int64_t columns) {
    model.add(stem + ".weight", "F8_E4M3", {rows, columns});
    model.add(stem + ".weight_scale_inv", "F32", {(rows + 127) / 128, (columns + 127) / 128});
}

void make_nvfp4(Model& model, const std::string& stem, int64_t rows, int64_t columns) {
    model.add(stem + ".weight", "U8", {rows, columns / 2});
    model.add(stem + ".weight_scale", "F8_E4M3", {rows, columns / 16});
    model.add_scalar(stem + ".weight_scale_2", 0.25f);
    model.add_scalar(stem + ".input_scale", 3.0f);
}

const std::string qwen_expert = "model.layers.0.mlp.experts.1.down_proj";

TEST(Formats, FollowTheScaleTensors) {
    Model model = qwen("qwen3_moe", "", false);
    make_fp8(model, "model.layers.0.mlp.experts.0.down_proj", hidden, width);
    make_nvfp4(model, qwen_expert, hidden, width);
    model.add("model.layers.0.mlp.experts.2.down_proj.weight", "F16", {hidden, width});
    const Folder folder;
    const Handle checkpoint = open_model(folder, model);
    const LayerTensor* fp8 = find_tensor(checkpoint, 0, MOE_ROLE_DOWN, 0);
    EXPECT_EQ(fp8->format.type, MOE_TYPE_F8_E4M3);
    EXPECT_EQ(fp8->format.group_rows, 128);
    EXPECT_EQ(fp8->format.group_columns, 128);
    EXPECT_EQ(fp8->format.scale_type, MOE_TYPE_F32);
    EXPECT_EQ(fp8->tensor.scale_bytes, 4u);
    const LayerTensor* nvfp4 = find_tensor(checkpoint, 0, MOE_ROLE_DOWN, 1);
    EXPECT_EQ(nvfp4->format.type, MOE_TYPE_E2M1);
    EXPECT_EQ(nvfp4->format.group_columns, 16);
    EXPECT_EQ(nvfp4->format.scale_type, MOE_TYPE_F8_E4M3);
    EXPECT_EQ(nvfp4->format.global_scale, MOE_GLOBAL_SCALE_MULTIPLY);
    EXPECT_EQ(nvfp4->format.packing, MOE_PACKING_NIBBLE_LOW_FIRST);
    ASSERT_EQ(nvfp4->tensor.n_global_scales, 1);
    EXPECT_EQ(*nvfp4->tensor.global_scale, 0.25f);
    ASSERT_EQ(nvfp4->tensor.n_input_scales, 1);
    EXPECT_EQ(*nvfp4->tensor.input_scale, 3.0f);
    expect_bytes(folder, 0);

    moe_format gate{}, down{}, shared{};
    moe_format* out[MOE_ROLE_COUNT] = {};
    out[MOE_ROLE_GATE] = &gate;
    out[MOE_ROLE_SHARED_UP] = &shared;
    checkpoint->formats(0, out, MOE_ROLE_COUNT);
    EXPECT_EQ(gate.type, MOE_TYPE_BF16);
    EXPECT_EQ(shared.type, MOE_TYPE_NONE);
    out[MOE_ROLE_DOWN] = &down;
    const Failure failure = failure_of([&] { checkpoint->formats(0, out, MOE_ROLE_COUNT); });
    EXPECT_EQ(failure.status, MOE_ERROR_UNSUPPORTED);
    EXPECT_NE(failure.text.find("experts.0.down_proj"), std::string::npos) << failure.text;
    EXPECT_NE(failure.text.find("experts.1.down_proj"), std::string::npos) << failure.text;
}

TEST(Formats, OfAFusedTensorAreThoseOfGateAndUp) {
    const Folder folder;
    const Handle checkpoint = open_model(folder, gpt_oss(true));
    moe_format gate{}, up{}, bias{};
    moe_format* out[MOE_ROLE_COUNT] = {};
    out[MOE_ROLE_GATE] = &gate;
    out[MOE_ROLE_UP] = &up;
    out[MOE_ROLE_UP_BIAS] = &bias;
    checkpoint->formats(0, out, MOE_ROLE_COUNT);
    EXPECT_EQ(gate.type, MOE_TYPE_E2M1);
    EXPECT_EQ(up.type, MOE_TYPE_E2M1);
    EXPECT_EQ(bias.type, MOE_TYPE_BF16);
}

struct Wrong {
    const char* name;
    std::function<Model()> model;
    moe_status status;
    const char* text;
};

Model without(Model model, const std::string& name) {
    if (!model.tensors.erase(name)) throw std::logic_error("no tensor " + name);
    return model;
}

Model with(Model model, const std::string& name, const std::string& type, const Shape& shape) {
    model.add(name, type, shape);
    return model;
}

Model configured(Model model, const std::string& from, const std::string& to) {
    const size_t at = model.config.find(from);
    if (at == std::string::npos) throw std::logic_error("no " + from);
    model.config.replace(at, from.size(), to);
    return model;
}

Model fp8_model() {
    Model model = qwen("qwen3_moe", "", false);
    make_fp8(model, qwen_expert, hidden, width);
    return model;
}

Model nvfp4_model() {
    Model model = qwen("qwen3_moe", "", false);
    make_nvfp4(model, qwen_expert, hidden, width);
    return model;
}

const std::string moe0 = "model.layers.0.block_sparse_moe.";
const std::string mlp0 = "model.layers.0.mlp.";
const std::string mlp1 = "model.layers.1.mlp.";
constexpr moe_status corrupt = MOE_ERROR_CORRUPT_FILE, missing = MOE_ERROR_NOT_FOUND,
                     unsupported = MOE_ERROR_UNSUPPORTED;

const std::vector<Wrong>& wrong_models() {
    static const std::vector<Wrong> cases = {
        {"no_router", [] { return without(mixtral(), moe0 + "gate.weight"); }, missing, "block_sparse_moe.gate.weight"},
        {"no_expert", [] { return without(mixtral(), moe0 + "experts.2.w3.weight"); }, missing, "experts.2.w3.weight"},
        {"strange_experts", [] { Model m; m.config = mixtral().config; m.add(moe0 + "experts.0.v1.weight", "BF16", {1}); m.add(moe0 + "gate.weight", "BF16", {experts, hidden}); return m; }, missing, "the first of its experts is 'model.layers.0.block_sparse_moe.experts.0.v1.weight'"},
        {"one_expert_more", [] { return with(mixtral(), moe0 + "experts.4.w1.weight", "BF16", {width, hidden}); }, corrupt, "says 4 experts, but there is a tensor 'experts.4.w1.weight'"},
        {"gate_shape", [] { return with(mixtral(), moe0 + "experts.1.w1.weight", "BF16", {hidden, width}); }, corrupt, "experts.1.w1.weight': has shape [64, 32], [32, 64] is wanted"},
        {"gate_rank", [] { return with(mixtral(), moe0 + "experts.1.w1.weight", "BF16", {1, width, hidden}); }, corrupt, "has shape [1, 32, 64], [32, 64] is wanted"},
        {"router_shape", [] { return with(mixtral(), moe0 + "gate.weight", "BF16", {experts + 1, hidden}); }, corrupt, "gate.weight': has shape [5, 64], [4, 64] is wanted"},
        {"weight_type", [] { return with(mixtral(), moe0 + "experts.1.w1.weight", "I32", {width, hidden}); }, unsupported, "experts.1.w1.weight': type I32"},
        {"two_blocks", [] { return with(mixtral(), mlp0 + "experts.0.w1.weight", "BF16", {1}); }, unsupported, "layer 0 has experts under"},
        {"no_hidden_size", [] { return configured(mixtral(), "\"hidden_size\":64,", ""); }, missing, "'hidden_size'"},
        {"no_experts_key", [] { return configured(mixtral(), "\"num_local_experts\":4,", ""); }, missing, "'num_experts' nor 'num_local_experts' nor 'n_routed_experts'"},
        {"null_top_k", [] { return configured(mixtral(), "\"num_experts_per_tok\":2", "\"num_experts_per_tok\":null"); }, missing, "'num_experts_per_tok'"},
        {"hidden_size_text", [] { return configured(mixtral(), ":64", ":\"64\""); }, corrupt, "'hidden_size' is a text, an integer is wanted"},
        {"hidden_size_fraction", [] { return configured(mixtral(), ":64", ":64.5"); }, corrupt, "'hidden_size' is a fraction"},
        {"hidden_size_negative", [] { return configured(mixtral(), ":64", ":-64"); }, corrupt, "'hidden_size' is -64, outside 1 to"},
        {"hidden_size_huge", [] { return configured(mixtral(), ":64", ":4294967360"); }, corrupt, "'hidden_size' is 4294967360"},
        {"many_experts", [] { return configured(mixtral(), "_experts\":4", "_experts\":4097"); }, corrupt, "'num_local_experts' is 4097, outside 1 to 4096"},
        {"activation", [] { return configured(mixtral(), "\"silu\"", "\"snake\""); }, unsupported, "hidden_act 'snake'"},
        {"model_type", [] { return configured(mixtral(), "mixtral", "mixtape"); }, unsupported, "model_type 'mixtape' is no family that this version knows: mixtral qwen2_moe"},
        {"no_model_type", [] { return configured(mixtral(), "\"model_type\":\"mixtral\",", ""); }, missing, "'model_type'"},
        {"config_not_json", [] { Model m = mixtral(); m.config = "{"; return m; }, corrupt, "config.json: not valid JSON"},
        {"config_array", [] { Model m = mixtral(); m.config = "[]"; return m; }, corrupt, "config.json: the JSON is not an object"},
        {"config_number", [] { Model m = mixtral(); m.config = "1"; return m; }, corrupt, "config.json: the JSON is not an object"},
        {"config_deep", [] { Model m = mixtral(); m.config = "{\"a\":" + std::string(40, '['); return m; }, corrupt, "nested deeper than 32"},
        {"norm_flag_type", [] { return qwen("qwen3_moe", ",\"norm_topk_prob\":1", false); }, corrupt, "'norm_topk_prob' is an integer, true or false is wanted"},
        {"no_shared_expert", [] { return qwen("qwen2_moe", ",\"shared_expert_intermediate_size\":48", false); }, missing, "mlp.shared_expert.gate_proj.weight"},
        {"no_shared_gate", [] { return without(qwen("qwen2_moe", "", true), mlp0 + "shared_expert_gate.weight"); }, missing, "shared_expert_gate.weight"},
        {"shared_down_shape", [] { return with(qwen("qwen2_moe", "", true), mlp0 + "shared_expert.down_proj.weight", "BF16", {hidden, shared_width - 1}); }, corrupt, "shared_expert.down_proj.weight': has shape [64, 47], [64, 48] is wanted"},
        {"topk_method", [] { return deepseek("deepseek_v2", ",\"topk_method\":\"best\"", false); }, unsupported, "topk_method 'best'"},
        {"scoring_func", [] { return deepseek("deepseek_v3", ",\"scoring_func\":\"relu\"", true); }, unsupported, "scoring_func 'relu'"},
        {"no_selection_bias", [] { return deepseek("deepseek_v3", "", false); }, missing, "mlp.gate.e_score_correction_bias"},
        {"selection_bias_shape", [] { return with(deepseek("deepseek_v3", "", true), mlp1 + "gate.e_score_correction_bias", "F32", {5}); }, corrupt, "e_score_correction_bias': has shape [5], [4] is wanted"},
        {"selection_bias_type", [] { return with(deepseek("deepseek_v3", "", true), mlp1 + "gate.e_score_correction_bias", "I32", {4}); }, unsupported, "a vector of type I32"},
        {"scale_text", [] { return deepseek("deepseek_v3", ",\"routed_scaling_factor\":\"x\"", true); }, corrupt, "'routed_scaling_factor' is a text"},
        {"scale_infinite", [] { return deepseek("deepseek_v3", ",\"routed_scaling_factor\":1e200", true); }, corrupt, "not finite in float32"},
        {"fp8_without_scale", [] { return without(fp8_model(), qwen_expert + ".weight_scale_inv"); }, missing, "experts.1.down_proj.weight_scale_inv"},
        {"fp8_scale_type", [] { return with(fp8_model(), qwen_expert + ".weight_scale_inv", "I32", {1, 1}); }, unsupported, "scales of type I32"},
        {"fp8_scale_shape", [] { return with(fp8_model(), qwen_expert + ".weight_scale_inv", "F32", {2, 1}); }, corrupt, "weight_scale_inv': has shape [2, 1], [1, 1] is wanted"},
        {"nvfp4_without_scale", [] { return without(nvfp4_model(), qwen_expert + ".weight_scale"); }, missing, "experts.1.down_proj.weight_scale'"},
        {"nvfp4_without_global", [] { return without(nvfp4_model(), qwen_expert + ".weight_scale_2"); }, missing, "experts.1.down_proj.weight_scale_2"},
        {"nvfp4_scale_type", [] { return with(nvfp4_model(), qwen_expert + ".weight_scale", "U8", {hidden, width / 16}); }, unsupported, "scales of type U8"},
        {"nvfp4_scale_shape", [] { return with(nvfp4_model(), qwen_expert + ".weight_scale", "F8_E4M3", {hidden, width / 32}); }, corrupt, "weight_scale': has shape [64, 1], [64, 2] is wanted"},
        {"nvfp4_shape", [] { return with(nvfp4_model(), qwen_expert + ".weight", "U8", {hidden, width}); }, corrupt, "weight': has shape [64, 32], [64, 16] is wanted"},
        {"nvfp4_global_values", [] { return with(nvfp4_model(), qwen_expert + ".weight_scale_2", "F32", {2}); }, corrupt, "weight_scale_2': has shape [2], 1 values"},
        {"nvfp4_global_type", [] { return with(nvfp4_model(), qwen_expert + ".weight_scale_2", "BF16", {1}); }, unsupported, "weight_scale_2': is BF16, F32 is wanted"},
        {"mxfp4_no_scales", [] { return without(gpt_oss(true), mlp0 + "experts.down_proj_scales"); }, missing, "experts.down_proj_scales"},
        {"mxfp4_blocks_shape", [] { return with(gpt_oss(true), mlp0 + "experts.down_proj_blocks", "U8", {experts, hidden, 2, 16}); }, corrupt, "down_proj_blocks': has shape [4, 64, 2, 16], [4, 64, 1, 16] is wanted"},
        {"mxfp4_scales_type", [] { return with(gpt_oss(true), mlp0 + "experts.down_proj_scales", "I8", {experts, hidden, 1}); }, unsupported, "down_proj_scales': is I8, U8 is wanted"},
        {"gpt_oss_no_bias", [] { return without(gpt_oss(true), mlp0 + "experts.down_proj_bias"); }, missing, "experts.down_proj_bias"},
        {"gpt_oss_no_router_bias", [] { return without(gpt_oss(true), mlp0 + "router.bias"); }, missing, "router.bias"},
        {"gpt_oss_bias_shape", [] { return with(gpt_oss(true), mlp0 + "experts.gate_up_proj_bias", "BF16", {experts, width}); }, corrupt, "gate_up_proj_bias': has shape [4, 32], [4, 64] is wanted"},
        {"gpt_oss_no_experts", [] { return without(without(gpt_oss(false), mlp0 + "experts.gate_up_proj"), mlp0 + "experts.down_proj"); }, missing, "experts.gate_up_proj_blocks or experts.gate_up_proj"},
    };
    return cases;
}

class WrongModel : public testing::TestWithParam<size_t> {};

TEST_P(WrongModel, IsNamed) {
    const Wrong& wrong = wrong_models()[GetParam()];
    const Model model = wrong.model();
    const int32_t layer = model.config.find("deepseek") != std::string::npos ? 1 : 0;
    const Failure failure = layer_failure(model, layer);
    EXPECT_EQ(failure.status, wrong.status) << failure.text;
    EXPECT_NE(failure.text.find(wrong.text), std::string::npos) << failure.text;
}

INSTANTIATE_TEST_SUITE_P(Families, WrongModel, testing::Range<size_t>(0, wrong_models().size()),
                         [](const auto& info) { return std::string(wrong_models()[info.param].name); });

}  // namespace
}  // namespace moe::test
