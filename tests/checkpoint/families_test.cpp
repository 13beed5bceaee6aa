// Families as safetensors: descriptions, tensors, formats, and what is said when something is
// missing or misshapen.
#include "tests/checkpoint/models.hpp"

namespace moe::test {
namespace {

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
        EXPECT_EQ(std::string(static_cast<const char*>(a.tensor.data), a.tensor.data_bytes), wanted)
            << name;
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
    std::erase_if(renamed.tensors,
                  [](const auto& t) { return t.first.find("experts.") != t.first.npos; });
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
    EXPECT_NE(failure.text.find("down_proj': has shape [4, 32, 64], [4, 64, 32] is wanted"),
              std::string::npos)
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
    // Attention may have experts, too.
    nested.add("model.layers.7.self_attention.experts.0.weight", "BF16", {1});
    const Folder folder;
    const Handle checkpoint = open_model(folder, nested);
    EXPECT_EQ(checkpoint->n_layers(), 1);
    expect_sizes(checkpoint->layer_desc(0));
    EXPECT_STREQ(checkpoint->info().model_type, "qwen3_moe");
}

TEST(DeepseekV2, HasGroupsByTheirBest) {
    const Folder folder;
    const Handle checkpoint = open_model(
        folder,
        deepseek(
            "deepseek_v2",
            R"(,"norm_topk_prob":false,"routed_scaling_factor":16,"topk_method":"group_limited_greedy",)"
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
    const std::string more =
        R"(,"norm_topk_prob":true,"routed_scaling_factor":2.5,"n_group":2,"topk_group":1)";
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
    const Handle other =
        open_model(kimi, deepseek("kimi_k2", R"(,"n_group":1,"topk_group":1)", true));
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
        EXPECT_TRUE(desc.has_router_bias && desc.has_gate_bias && desc.has_up_bias &&
                    desc.has_down_bias);
        const LayerTensor* gate_up = find_tensor(checkpoint, 0, MOE_ROLE_GATE_UP, MOE_ALL_EXPERTS);
        ASSERT_TRUE(gate_up);
        EXPECT_EQ(gate_up->tensor.gate_up_order, MOE_GATE_UP_INTERLEAVED);
        EXPECT_EQ(gate_up->tensor.rows, 2 * width);
        EXPECT_EQ(gate_up->tensor.columns, hidden);
        EXPECT_EQ(gate_up->tensor.orientation,
                  mxfp4 ? MOE_ORIENTATION_OUT_IN : MOE_ORIENTATION_IN_OUT);
        EXPECT_EQ(gate_up->format.type, mxfp4 ? MOE_TYPE_E2M1 : MOE_TYPE_BF16);
        EXPECT_EQ(gate_up->format.scale_type, mxfp4 ? MOE_TYPE_F8_E8M0 : MOE_TYPE_NONE);
        EXPECT_EQ(gate_up->tensor.scale_bytes, mxfp4 ? 4u * 64 * 2 : 0u);
        const LayerTensor* bias =
            find_tensor(checkpoint, 0, MOE_ROLE_GATE_UP_BIAS, MOE_ALL_EXPERTS);
        ASSERT_TRUE(bias);
        EXPECT_EQ(bias->tensor.gate_up_order, MOE_GATE_UP_INTERLEAVED);
        EXPECT_EQ(bias->tensor.columns, 2 * width);
        EXPECT_TRUE(find_tensor(checkpoint, 0, MOE_ROLE_DOWN_BIAS, MOE_ALL_EXPERTS));
        EXPECT_TRUE(find_tensor(checkpoint, 0, MOE_ROLE_ROUTER_BIAS, 0));
        expect_bytes(folder, 0);
    }
}

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

}  // namespace
}  // namespace moe::test
