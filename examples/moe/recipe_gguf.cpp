// recipe_gguf.cpp - the tensor names and shapes of GGUF files: experts stacked, the router and all
// vectors in f32.
#include <fmt/format.h>

#include "recipe.hpp"

namespace moe::cli {
namespace {

class GgufRecipe {
  public:
    GgufRecipe(Recipe& recipe, const Model& model, const RecipeOptions& options)
        : recipe_(recipe),
          build_(recipe, options.seed),
          model_(model),
          format_name_(options.format) {}

    void layer(int32_t index) {
        block_ = fmt::format("blk.{}.", index);
        const int64_t hidden = model_.hidden;
        vector("ffn_gate_inp.weight", {model_.n_experts, hidden}, weight_sigma(hidden));
        experts("gate", model_.intermediate, hidden);
        experts("up", model_.intermediate, hidden);
        experts("down", hidden, model_.intermediate);
        if (model_.family == Family::GptOss) biases();
        if (model_.family == Family::DeepseekV3) {
            vector("exp_probs_b.bias", {model_.n_experts}, selection_bias_sigma);
        }
        if (model_.shared_intermediate > 0) shared();
    }

  private:
    void vector(const std::string& name, const std::vector<int64_t>& shape, float sigma) {
        build_.plain(block_ + name, "f32", shape, 0.0F, sigma);
    }

    void matrices(const std::string& name, const std::vector<int64_t>& shape, int64_t n) {
        const int64_t columns = shape.back();
        const int64_t rows = shape[shape.size() - 2];
        const moe_format format = format_by_name(gguf_format_for(format_name_, columns));
        const uint64_t bytes = static_cast<uint64_t>(n) * format_size(format, rows, columns).data;
        const int32_t piece = build_.piece(block_ + name, "", shape, bytes);
        recipe_.pieces.back().ggml_type = static_cast<uint32_t>(format.block_id);
        build_.stack(block_ + name, n, rows, columns, format, weight_sigma(columns), piece, -1, -1);
    }

    void experts(const std::string& which, int64_t rows, int64_t columns) {
        matrices("ffn_" + which + "_exps.weight", {model_.n_experts, rows, columns},
                 model_.n_experts);
    }

    void biases() {
        const int64_t n = model_.n_experts;
        vector("ffn_gate_inp.bias", {n}, bias_sigma);
        vector("ffn_gate_exps.bias", {n, model_.intermediate}, bias_sigma);
        vector("ffn_up_exps.bias", {n, model_.intermediate}, bias_sigma);
        vector("ffn_down_exps.bias", {n, model_.hidden}, bias_sigma);
    }

    void shared() {
        const int64_t hidden = model_.hidden;
        const int64_t width = model_.shared_intermediate;
        matrices("ffn_gate_shexp.weight", {width, hidden}, 1);
        matrices("ffn_up_shexp.weight", {width, hidden}, 1);
        matrices("ffn_down_shexp.weight", {hidden, width}, 1);
        if (model_.family == Family::Qwen2Moe || model_.family == Family::Qwen3Next) {
            vector("ffn_gate_inp_shexp.weight", {hidden}, weight_sigma(hidden));
        }
    }

    Recipe& recipe_;
    RecipeBuilder build_;
    const Model& model_;
    std::string format_name_;
    std::string block_;
};

}  // namespace

Recipe gguf_recipe(const Model& model, const RecipeOptions& options) {
    const int32_t block = block_columns(options.format);
    if (model.hidden % block != 0) {
        throw Failure(fmt::format("{} has {} columns, no multiple of {}'s {}; use q8_0", model.name,
                                  model.hidden, options.format, block),
                      MOE_ERROR_UNSUPPORTED);
    }
    Recipe recipe;
    GgufRecipe writer(recipe, model, options);
    for (int32_t i = 0; i < options.n_layers; ++i) writer.layer(model.first_moe_layer + i);
    return recipe;
}

}  // namespace moe::cli
