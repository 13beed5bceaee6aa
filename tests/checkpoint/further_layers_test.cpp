// Layers that predict further tokens: under "mtp." with numbers of their own, which follow those of
// the decoder, or with ordinary numbers.
#include "tests/checkpoint/family_models.hpp"
#include "tests/checkpoint/notes.hpp"

namespace moe::test {
namespace {

// The block at one place and again at another, with bytes of its own.
Model twice(const std::string& keys, const std::string& from, const std::string& to) {
    Model model = qwen("qwen3_5_moe", keys, true);
    Model both;
    both.config = model.config;
    for (const auto& [name, tensor] : model.tensors) {
        const std::string rest = name.substr(mlp0.size());
        both.add(from + rest, tensor.type, tensor.shape);
        both.add(to + rest, tensor.type, tensor.shape);
    }
    return both;
}

const std::string shared_key = R"(,"shared_expert_intermediate_size":48)";

void expect_layers(const Model& model, const std::vector<int32_t>& numbers,
                   const std::string& last_prefix) {
    const Folder folder;
    const Handle checkpoint = open_model(folder, model);
    ASSERT_EQ(checkpoint->n_layers(), static_cast<int32_t>(numbers.size()));
    for (int32_t i = 0; i < checkpoint->n_layers(); ++i)
        EXPECT_EQ(checkpoint->layer_at(i), numbers[static_cast<size_t>(i)]);
    const int32_t last = numbers.back();
    const moe_layer_desc& desc = checkpoint->layer_desc(last);
    EXPECT_EQ(moe_layer_validate(&desc), MOE_OK) << moe_last_error();
    const LayerTensor* down = find_tensor(checkpoint, last, MOE_ROLE_DOWN, 3);
    ASSERT_TRUE(down);
    const std::string name = last_prefix + "experts.3.down_proj.weight";
    EXPECT_EQ(down->name, name);
    EXPECT_EQ(read_range(checkpoint, down->data), model.tensors.at(name).bytes);
}

TEST(FurtherLayers, FollowTheDecoderLayers) {
    for (const char* prefix :
         {"mtp.layers.0.mlp.", "model.mtp.layers.0.mlp.", "language_model.mtp.layers.0.mlp."}) {
        SCOPED_TRACE(prefix);
        expect_layers(
            twice(shared_key + R"(,"num_hidden_layers":40)", "model.layers.39.mlp.", prefix),
            {39, 40}, prefix);
    }
    // The last decoder layers may be dense, and the key wrong or absent.
    expect_layers(
        twice(shared_key + R"(,"num_hidden_layers":8)", "model.layers.5.mlp.", "mtp.layers.1.mlp."),
        {5, 9}, "mtp.layers.1.mlp.");
    expect_layers(
        twice(shared_key + R"(,"num_hidden_layers":2)", "model.layers.5.mlp.", "mtp.layers.0.mlp."),
        {5, 6}, "mtp.layers.0.mlp.");
    expect_layers(twice(shared_key, "model.layers.5.mlp.", "mtp.layers.0.mlp."), {5, 6},
                  "mtp.layers.0.mlp.");
}

TEST(FurtherLayers, DeepseekV4HasNoListOfThem) {
    Model model = model_of("deepseek_v4", routed + R"(,"num_hidden_layers":43)");
    for (const std::string block : {"layers.42.ffn.", "mtp.0.ffn."}) {
        model.add(block + "gate.weight", "BF16", {experts, hidden});
        model.add(block + "gate.bias", "F32", {experts});
        add_expert_names(model, block, "w1", "w3", "w2");
    }
    const Folder folder;
    const Handle checkpoint = open_model(folder, model);
    ASSERT_EQ(checkpoint->n_layers(), 2);
    EXPECT_EQ(checkpoint->layer_at(1), 43);
    EXPECT_EQ(find_tensor(checkpoint, 43, MOE_ROLE_DOWN, 0)->name, "mtp.0.ffn.experts.0.w2.weight");
}

TEST(FurtherLayers, TheLogSaysWhichTheyAre) {
    const std::string counted = shared_key + R"(,"num_hidden_layers":40)";
    const auto notes = [](const Model& model) {
        const Folder folder;
        model.write(folder);
        return notes_of(folder.path());
    };
    const auto note = [](const std::string& prefix) {
        return std::vector<std::string>{
            "layer 40 is '" + prefix +
            "': past the last decoder layer, 39, it predicts further tokens"};
    };
    EXPECT_EQ(notes(twice(counted, "model.layers.39.mlp.", "mtp.layers.0.mlp.")),
              note("mtp.layers.0.mlp."));
    EXPECT_EQ(notes(twice(counted, "model.layers.39.mlp.", "model.layers.40.mlp.")),
              note("model.layers.40.mlp."));
    EXPECT_EQ(notes(twice(counted, "model.layers.38.mlp.", "model.layers.39.mlp.")),
              std::vector<std::string>());
}

}  // namespace
}  // namespace moe::test
