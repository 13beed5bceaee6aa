// Inkling, whose shared experts become the last of the routed ones, and Inkling 2.
#include <limits>

#include "tests/checkpoint/inkling_models.hpp"

namespace moe::test {
namespace {

void expect_inkling(const moe_layer_desc& desc) {
    EXPECT_EQ(moe_layer_validate(&desc), MOE_OK) << moe_last_error();
    EXPECT_EQ(desc.n_experts, experts + 2);
    EXPECT_EQ(desc.top_k, 4);
    EXPECT_EQ(desc.score, MOE_SCORE_SIGMOID);
    EXPECT_EQ(desc.renormalize, MOE_RENORMALIZE_SUM_ADD);
    EXPECT_EQ(desc.renormalize_eps, 0.0f);
    EXPECT_EQ(desc.routed_scale, 1.5f) << "route_scale times global_scale";
    EXPECT_EQ(desc.shared_intermediate, 0);
}

TEST(Inkling, SharedExpertsAreTheLastRoutedOnes) {
    for (const InklingNames names :
         {InklingNames::own, InklingNames::transformers, InklingNames::mlx}) {
        SCOPED_TRACE(static_cast<int>(names));
        const Folder folder;
        const Handle checkpoint = open_model(folder, inkling(names));
        expect_inkling(checkpoint->layer_desc(0));
        for (int32_t e = 0; e < experts + 2; ++e) {
            const LayerTensor* down = find_tensor(checkpoint, 0, MOE_ROLE_DOWN, e);
            ASSERT_NE(down, nullptr) << e;
            EXPECT_EQ(down->tensor.data_bytes, uint64_t{2} * hidden * width);
            const bool is_shared = down->name.find("shared") != down->name.npos;
            EXPECT_EQ(is_shared, e >= experts) << down->name;
            const LayerTensor* both = find_tensor(checkpoint, 0, MOE_ROLE_GATE_UP, e);
            if (names == InklingNames::own) {
                ASSERT_NE(both, nullptr) << e;
                EXPECT_EQ(both->tensor.gate_up_order, MOE_GATE_UP_INTERLEAVED);
            }
        }
        const LayerTensor* bias = find_tensor(checkpoint, 0, MOE_ROLE_SELECTION_BIAS, 0);
        ASSERT_NE(bias, nullptr);
        ASSERT_EQ(bias->tensor.columns, experts + 2);
        const auto* values = static_cast<const float*>(bias->tensor.data);
        for (int32_t e = 0; e < 2; ++e)
            EXPECT_EQ(values[experts + e], std::numeric_limits<float>::max());
    }
}

TEST(Inkling, RefusesOtherRules) {
    for (const char* more : {R"(,"use_gate_bias":false)", R"(,"norm_after_topk":false)",
                             R"(,"use_global_scale":false)", R"(,"shared_expert_sink":false)",
                             R"(,"gate_activation":"softmax")"}) {
        const Failure failure = layer_failure(inkling(InklingNames::own, more));
        EXPECT_EQ(failure.status, MOE_ERROR_UNSUPPORTED) << more;
        const std::string key = std::string(more).substr(2, std::string(more).find(':') - 3);
        EXPECT_NE(failure.text.find(key), std::string::npos) << failure.text;
    }
    const std::string block = "model.llm.layers.0.mlp.";
    for (const char* name : {"gate.global_scale", "gate.bias", "experts.w2_weight",
                             "shared_experts.shared_w13_weight"}) {
        Model model = inkling(InklingNames::own);
        model.tensors.erase(block + name);
        const Failure failure = layer_failure(model);
        EXPECT_EQ(failure.status, MOE_ERROR_NOT_FOUND) << name;
        EXPECT_NE(failure.text.find(block + name), std::string::npos) << failure.text;
    }
    // A stack of another number of experts, and a router without rows for the shared ones.
    Model model = inkling(InklingNames::own);
    model.add(block + "shared_experts.shared_w2_weight", "BF16", {1, hidden, width});
    EXPECT_EQ(layer_failure(model).status, MOE_ERROR_CORRUPT_FILE);
    model = inkling(InklingNames::own);
    model.add(block + "gate.weight", "BF16", {experts, hidden});
    EXPECT_EQ(layer_failure(model).status, MOE_ERROR_CORRUPT_FILE);
}

// Without a part of its quantisation NVFP4 is not taken for something else.
TEST(Inkling, Nvfp4NeedsBothScales) {
    const std::string block = "model.llm.layers.0.mlp.experts.";
    const Model model = inkling_nvfp4();
    {
        const Folder folder;
        const Handle checkpoint = open_model(folder, model);
        expect_inkling(checkpoint->layer_desc(0));
        const LayerTensor *first = find_tensor(checkpoint, 0, MOE_ROLE_DOWN, 0),
                          *third = find_tensor(checkpoint, 0, MOE_ROLE_DOWN, 2);
        ASSERT_TRUE(first && third);
        EXPECT_EQ(first->format.type, MOE_TYPE_E2M1);
        EXPECT_EQ(third->tensor.global_scale, first->tensor.global_scale + 2);
        EXPECT_EQ(third->tensor.n_global_scales, 1);
        EXPECT_EQ(third->scales.bytes, static_cast<uint64_t>(hidden * width / 16));
        EXPECT_EQ(third->scales.offset, first->scales.offset + 2 * first->scales.bytes);
    }
    for (const char* part : {"w13_weight.scale", "w2_weight.scale2"}) {
        Model without = model;
        without.tensors.erase(block + part);
        EXPECT_NE(layer_failure(without).status, MOE_OK) << part;
    }
}

// MLX quantises both kinds of experts: each one's codes, scales and biases are its part of a stack.
TEST(Inkling, ExpertsMayBeAffineCodes) {
    Model model = inkling(InklingNames::mlx, R"(,"quantization":{"bits":4,"group_size":32})");
    const auto replace = [&](const std::string& stem, int64_t n, int64_t rows, int64_t columns) {
        model.add(stem + ".weight", "U32", {n, rows, columns / 8});
        model.add(stem + ".scales", "BF16", {n, rows, columns / 32});
        model.add(stem + ".biases", "BF16", {n, rows, columns / 32});
    };
    for (const char* matrix : {"gate_proj", "up_proj"}) {
        replace(mlp0 + "switch_mlp." + matrix, experts, width, hidden);
        replace(mlp0 + "shared_experts." + matrix, 2, width, hidden);
    }
    replace(mlp0 + "switch_mlp.down_proj", experts, hidden, width);
    replace(mlp0 + "shared_experts.down_proj", 2, hidden, width);
    const Folder folder;
    const Handle checkpoint = open_model(folder, model);
    expect_inkling(checkpoint->layer_desc(0));
    for (const int32_t first : {0, static_cast<int32_t>(experts)}) {
        const LayerTensor *a = find_tensor(checkpoint, 0, MOE_ROLE_UP, first),
                          *b = find_tensor(checkpoint, 0, MOE_ROLE_UP, first + 1);
        ASSERT_TRUE(a && b) << first;
        EXPECT_EQ(a->format.zero_point, MOE_ZERO_POINT_FLOAT);
        EXPECT_EQ(a->data.bytes, uint64_t{width} * hidden / 2);
        EXPECT_EQ(b->data.offset, a->data.offset + a->data.bytes);
        EXPECT_EQ(b->scales.offset, a->scales.offset + uint64_t{width} * hidden / 32 * 2);
        EXPECT_EQ(b->zero_points.offset, a->zero_points.offset + a->zero_points.bytes);
        EXPECT_EQ(b->zero_points.bytes, b->scales.bytes);
    }
}

TEST(Inkling2, HasSoftCaps) {
    const auto model = [](const std::string& more) {
        Model made = model_of("inkling2", routed + more);
        const std::string block = "model.llm.layers.0.mlp.";
        made.add(block + "gate.weight", "F32", {experts, hidden});
        made.add(block + "gate.bias", "F32", {experts});
        made.add(block + "experts.w13_weight", "F8_E4M3", {experts, 2 * width, hidden});
        made.add(block + "experts.w13_weight_scale", "F8_E8M0", {experts, 2 * width, hidden / 32});
        made.add(block + "experts.w2_weight", "F8_E4M3", {experts, hidden, width});
        made.add(block + "experts.w2_weight_scale", "F8_E8M0", {experts, hidden, width / 32});
        return made;
    };
    const moe_layer_desc desc = desc_of(model(R"(,"mlp_up_softcap":20)"), 4);
    EXPECT_EQ(desc.activation, MOE_ACTIVATION_SITU);
    EXPECT_EQ(desc.situ_beta, 4.0f);
    EXPECT_EQ(desc.situ_beta_up, 20.0f);
    EXPECT_EQ(desc.routed_scale, 8.0f);
    EXPECT_EQ(desc.renormalize_eps, 1e-20f);
    for (const char* more : {R"(,"scoring_func":"softmax")", R"(,"hidden_act":"gelu")"})
        EXPECT_EQ(layer_failure(model(more)).status, MOE_ERROR_UNSUPPORTED) << more;
    // The looped model's NVFP4 has scales of another kind.
    Model loop = model("");
    loop.add("model.llm.layers.0.mlp.experts.w2_weight_outer_scale_denominator", "F32", {1});
    EXPECT_EQ(layer_failure(loop).status, MOE_ERROR_UNSUPPORTED);
}

}  // namespace
}  // namespace moe::test
