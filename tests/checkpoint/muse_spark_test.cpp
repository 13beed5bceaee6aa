// Muse-Spark by its names: the description, weights of norms that are stored less one, and what is
// refused.
#include <gtest/gtest.h>

#include "libmoe/base/half.hpp"
#include "tests/checkpoint/family_models.hpp"

namespace moe::test {
namespace {

constexpr int64_t latent = 32;
const std::string block = "model.language_model.layers.0.mlp.";

std::string bf16_bytes(std::initializer_list<float> first, int64_t n) {
    std::string bytes;
    for (int64_t i = 0; i < n; ++i) {
        const bool is_given = i < static_cast<int64_t>(first.size());
        const float value = is_given ? first.begin()[i] : 0.125f * static_cast<float>(i % 5 - 2);
        const uint16_t half = float_to_bf16(value);
        bytes += std::string(reinterpret_cast<const char*>(&half), 2);
    }
    return bytes;
}

Model muse_spark(const std::string& more = "") {
    Model model;
    model.config =
        R"({"model_type":"muse_spark","text_config":)" +
        config_of("muse_spark_text",
                  R"("moe_hidden_size":32,"moe_intermediate_size":32,"intermediate_size":128,)"
                  R"("num_local_experts":4,"num_shared_experts":0,"rms_norm_eps":1e-6,)"
                  R"("post_norm_eps":1e-5,"output_multiplier":0.1768,)"
                  R"("routed_scaling_factor":2.5,"hidden_act":"silu")" +
                      more) +
        "}";
    model.add(block + "gate.weight", "F32", {experts, hidden});
    model.add(block + "gate.e_score_correction_bias", "F32", {experts});
    model.add(block + "pre_expert_proj.weight", "BF16", {latent, hidden});
    model.add(block + "post_expert_proj.weight", "BF16", {hidden, latent});
    model.add(block + "experts.gate_up_proj", "BF16", {experts, 2 * width, latent});
    model.add(block + "experts.down_proj", "BF16", {experts, latent, width});
    for (const char* name : {"pre_expert_norm.weight", "experts.post_expert_norm.weight"}) {
        model.add(block + name, "BF16", {latent});
        model.tensors[block + name].bytes = bf16_bytes({0.0f, -1.0f, 0x1.02p-7f, 3.0f}, latent);
    }
    return model;
}

TEST(MuseSpark, HasTheRuleOfItsConfiguration) {
    const moe_layer_desc desc = desc_of(muse_spark(), 8);
    EXPECT_EQ(desc.top_k, 2);
    EXPECT_EQ(desc.latent, latent);
    EXPECT_EQ(desc.has_router_input_scale, 1);
    EXPECT_EQ(desc.router_input_scale, 0.1768f);
    EXPECT_EQ(desc.score, MOE_SCORE_SIGMOID);
    EXPECT_EQ(desc.has_selection_bias, 1);
    EXPECT_EQ(desc.renormalize, MOE_RENORMALIZE_SUM_ADD);
    EXPECT_EQ(desc.renormalize_eps, 1e-15f);
    EXPECT_EQ(desc.routed_scale, 2.5f);
    EXPECT_EQ(desc.has_latent_in_norm, 1);
    EXPECT_EQ(desc.latent_in_norm_eps, 1e-6f);
    EXPECT_EQ(desc.has_expert_norm, 1);
    EXPECT_EQ(desc.expert_norm_eps, 1e-5f);
    EXPECT_EQ(desc.expert_norm_weight_first, 1);
    EXPECT_EQ(desc.has_latent_norm, 0);
    EXPECT_EQ(desc.shared_intermediate, 0);
    EXPECT_EQ(desc.activation, MOE_ACTIVATION_SILU);
}

TEST(MuseSpark, IsReadByItsNames) {
    const Folder folder;
    const Handle checkpoint = open_model(folder, muse_spark());
    const auto name = [&](moe_role role, int32_t expert) {
        const LayerTensor* tensor = find_tensor(checkpoint, 0, role, expert);
        return tensor ? std::string(tensor->name) : std::string("none");
    };
    EXPECT_EQ(name(MOE_ROLE_ROUTER, 0), block + "gate.weight");
    EXPECT_EQ(name(MOE_ROLE_LATENT_IN, 0), block + "pre_expert_proj.weight");
    EXPECT_EQ(name(MOE_ROLE_LATENT_OUT, 0), block + "post_expert_proj.weight");
    EXPECT_EQ(name(MOE_ROLE_LATENT_IN_NORM, 0), block + "pre_expert_norm.weight");
    EXPECT_EQ(name(MOE_ROLE_EXPERT_NORM, 0), block + "experts.post_expert_norm.weight");
    EXPECT_EQ(name(MOE_ROLE_GATE_UP, MOE_ALL_EXPERTS), block + "experts.gate_up_proj");
    EXPECT_EQ(name(MOE_ROLE_DOWN, MOE_ALL_EXPERTS), block + "experts.down_proj");
    const moe_tensor& both = find_tensor(checkpoint, 0, MOE_ROLE_GATE_UP, MOE_ALL_EXPERTS)->tensor;
    EXPECT_EQ(both.gate_up_order, MOE_GATE_UP_GATE_FIRST);
    EXPECT_EQ(both.rows, 2 * width);
    EXPECT_EQ(both.columns, latent);
}

// 1 + 2^-7 (1 + 2^-7) lies just above 1 + 2^-7, which is what bfloat16 has of it.
TEST(MuseSpark, WeightsOfNormsAreStoredLessOne) {
    for (const moe_io io : {MOE_IO_MMAP, MOE_IO_READ}) {
        const Folder folder;
        moe_checkpoint_options options{};
        options.struct_size = sizeof options;
        options.io = io;
        const Handle checkpoint = open_model(folder, muse_spark(), options);
        for (const moe_role role : {MOE_ROLE_LATENT_IN_NORM, MOE_ROLE_EXPERT_NORM}) {
            const LayerTensor* tensor = find_tensor(checkpoint, 0, role, 0);
            ASSERT_TRUE(tensor && tensor->tensor.data);
            EXPECT_EQ(tensor->format.type, MOE_TYPE_F32);
            EXPECT_EQ(tensor->tensor.data_bytes, latent * sizeof(float));
            const auto* values = static_cast<const float*>(tensor->tensor.data);
            EXPECT_EQ(values[0], 1.0f);
            EXPECT_EQ(values[1], 0.0f);
            EXPECT_EQ(values[2], 1.0078125f);
            EXPECT_EQ(values[3], 4.0f);
            EXPECT_EQ(values[4], 1.25f);
        }
    }
}

TEST(MuseSpark, RefusesSharedExperts) {
    Model model = muse_spark();
    const std::string none = R"("num_shared_experts":0)";
    model.config.replace(model.config.find(none), none.size(), R"("num_shared_experts":1)");
    const Failure failure = layer_failure(model);
    EXPECT_EQ(failure.status, MOE_ERROR_UNSUPPORTED);
    EXPECT_NE(failure.text.find("'num_shared_experts' is 1, but models of this family have none"),
              std::string::npos)
        << failure.text;
}

TEST(MuseSpark, EveryTensorIsRequired) {
    for (const char* name :
         {"gate.weight", "gate.e_score_correction_bias", "pre_expert_proj.weight",
          "pre_expert_norm.weight", "experts.gate_up_proj", "experts.down_proj",
          "experts.post_expert_norm.weight", "post_expert_proj.weight"}) {
        Model model = muse_spark();
        model.tensors.erase(block + name);
        const Failure failure = layer_failure(model);
        EXPECT_EQ(failure.status, MOE_ERROR_NOT_FOUND) << name;
        EXPECT_NE(failure.text.find(name), std::string::npos) << failure.text;
    }
}

Model without(const char* key) {
    Model model = muse_spark();
    const size_t at = model.config.find('"' + std::string(key) + '"');
    EXPECT_NE(at, std::string::npos) << key;
    model.config[at + 1] = 'X';
    return model;
}

TEST(MuseSpark, SizesAreRequired) {
    for (const char* key : {"moe_hidden_size", "moe_intermediate_size", "num_local_experts"}) {
        const Failure failure = layer_failure(without(key));
        EXPECT_EQ(failure.status, MOE_ERROR_NOT_FOUND) << key;
        EXPECT_NE(failure.text.find(key), std::string::npos) << failure.text;
    }
}

TEST(MuseSpark, OtherKeysHaveTheValuesOfTheirClass) {
    EXPECT_EQ(desc_of(without("rms_norm_eps"), 8).latent_in_norm_eps, 1e-5f);
    EXPECT_EQ(desc_of(without("post_norm_eps"), 8).expert_norm_eps, 1e-8f);
    EXPECT_EQ(desc_of(without("output_multiplier"), 8).router_input_scale, 0.1767766952966369f);
}

TEST(MuseSpark, RefusesOtherShapesAndWhatItDoesNotRead) {
    Model model = muse_spark();
    model.add(block + "experts.post_expert_norm.weight", "BF16", {hidden});
    Failure failure = layer_failure(model);
    EXPECT_EQ(failure.status, MOE_ERROR_CORRUPT_FILE);
    EXPECT_NE(failure.text.find("experts.post_expert_norm.weight"), std::string::npos);

    model = muse_spark();
    model.add(block + "pre_expert_norm.weight", "F8_E4M3", {latent});
    failure = layer_failure(model);
    EXPECT_EQ(failure.status, MOE_ERROR_UNSUPPORTED);
    EXPECT_NE(failure.text.find("pre_expert_norm.weight"), std::string::npos) << failure.text;

    for (const char* name : {"gate.bias", "experts.pre_expert_norm.weight",
                             "shared_experts.up_proj.weight", "pre_expert_proj.bias"}) {
        model = muse_spark();
        model.add(block + name, "BF16", {latent});
        failure = layer_failure(model);
        EXPECT_EQ(failure.status, MOE_ERROR_UNSUPPORTED) << name;
        EXPECT_NE(failure.text.find(name), std::string::npos) << failure.text;
    }
}

}  // namespace
}  // namespace moe::test
