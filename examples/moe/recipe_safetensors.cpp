// recipe_safetensors.cpp - the tensor names and shapes of released safetensors folders, family by
// family.
#include <fmt/format.h>

#include "recipe.hpp"

namespace moe::cli {
namespace {

// Scale of quantised activations whose largest value is 6 in units of NVFP4's largest, 6 * 448.
constexpr float nvfp4_input_scale = 1.0F / 448.0F;

class SafetensorsRecipe {
  public:
    SafetensorsRecipe(Recipe& recipe, const Model& model, const RecipeOptions& options)
        : build_(recipe, options.seed),
          model_(model),
          format_name_(options.format),
          format_(format_by_name(options.format)),
          plain_type_(is_plain() ? options.format : "bf16") {}

    void layer(int32_t index) {
        const std::string prefix = fmt::format("model.layers.{}.", index);
        if (model_.family == Family::GptOss) {
            gpt_oss(prefix + "mlp.");
        } else if (model_.family == Family::Mixtral) {
            mixtral(prefix + "block_sparse_moe.");
        } else {
            per_expert(prefix + "mlp.");
        }
    }

  private:
    bool is_plain() const {
        return format_name_ == "bf16" || format_name_ == "f16" || format_name_ == "f32";
    }

    // A torch Linear [rows, columns] with the tensors its quantiser would write.
    void linear(const std::string& name, int64_t rows, int64_t columns) {
        if (is_plain()) {
            build_.plain(name + ".weight", plain_type_, {rows, columns}, 0.0F,
                         weight_sigma(columns));
        } else if (format_name_ == "fp8_128x128") {
            const std::vector<int64_t> grid = {(rows + 127) / 128, (columns + 127) / 128};
            coded(name, ".weight", "F8_E4M3", {rows, columns}, ".weight_scale_inv", "F32", grid);
        } else {
            coded(name, ".weight", "U8", {rows, columns / 2}, ".weight_scale", "F8_E4M3",
                  {rows, columns / 16});
            build_.plain(name + ".input_scale", "f32", {}, nvfp4_input_scale, 0.0F);
        }
    }

    void coded(const std::string& name, const char* data_suffix, const char* data_dtype,
               std::vector<int64_t> data_shape, const char* scale_suffix, const char* scale_dtype,
               std::vector<int64_t> scale_shape) {
        const int64_t rows = data_shape[0];
        const int64_t columns = format_name_ == "fp8_128x128" ? data_shape[1] : 2 * data_shape[1];
        const FormatSize size = format_size(format_, rows, columns);
        const int32_t data =
            build_.piece(name + data_suffix, data_dtype, std::move(data_shape), size.data);
        const int32_t scales =
            build_.piece(name + scale_suffix, scale_dtype, std::move(scale_shape), size.scales);
        int32_t global_scale = -1;
        if (format_.global_scale != MOE_GLOBAL_SCALE_NONE) {
            global_scale = build_.piece(name + ".weight_scale_2", "F32", {}, sizeof(float));
        }
        build_.stack(name, 1, rows, columns, format_, weight_sigma(columns), data, scales,
                     global_scale);
    }

    void router(const std::string& name) {
        build_.plain(name, plain_type_, {model_.n_experts, model_.hidden}, 0.0F,
                     weight_sigma(model_.hidden));
    }

    void glu(const std::string& name, const char* gate, const char* up, const char* down,
             int64_t intermediate) {
        linear(name + gate, intermediate, model_.hidden);
        linear(name + up, intermediate, model_.hidden);
        linear(name + down, model_.hidden, intermediate);
    }

    void mixtral(const std::string& block) {
        router(block + "gate.weight");
        for (int32_t e = 0; e < model_.n_experts; ++e) {
            glu(fmt::format("{}experts.{}.", block, e), "w1", "w3", "w2", model_.intermediate);
        }
    }

    void per_expert(const std::string& block) {
        router(block + "gate.weight");
        if (model_.family == Family::DeepseekV3) {
            build_.plain(block + "gate.e_score_correction_bias", "f32", {model_.n_experts}, 0.0F,
                         selection_bias_sigma);
        }
        for (int32_t e = 0; e < model_.n_experts; ++e) {
            glu(fmt::format("{}experts.{}.", block, e), "gate_proj", "up_proj", "down_proj",
                model_.intermediate);
        }
        if (model_.shared_intermediate > 0) shared(block);
    }

    void shared(const std::string& block) {
        const bool qwen = model_.family == Family::Qwen2Moe || model_.family == Family::Qwen3Next;
        glu(block + (qwen ? "shared_expert." : "shared_experts."), "gate_proj", "up_proj",
            "down_proj", model_.shared_intermediate);
        if (qwen) {
            build_.plain(block + "shared_expert_gate.weight", plain_type_, {1, model_.hidden}, 0.0F,
                         weight_sigma(model_.hidden));
        }
    }

    // Experts fused and stacked; in MXFP4 as [E, rows, blocks, 16], otherwise transposed [E, in,
    // out].
    void fused(const std::string& name, int64_t rows, int64_t columns) {
        const int64_t n = model_.n_experts;
        if (is_plain()) {
            build_.plain(name, plain_type_, {n, columns, rows}, 0.0F, weight_sigma(columns));
        } else {
            const FormatSize size = format_size(format_, rows, columns);
            const auto count = static_cast<uint64_t>(n);
            const int32_t data = build_.piece(name + "_blocks", "U8", {n, rows, columns / 32, 16},
                                              count * size.data);
            const int32_t scales =
                build_.piece(name + "_scales", "U8", {n, rows, columns / 32}, count * size.scales);
            build_.stack(name, n, rows, columns, format_, weight_sigma(columns), data, scales, -1);
        }
        build_.plain(name + "_bias", plain_type_, {n, rows}, 0.0F, bias_sigma);
    }

    void gpt_oss(const std::string& block) {
        router(block + "router.weight");
        build_.plain(block + "router.bias", plain_type_, {model_.n_experts}, 0.0F, bias_sigma);
        fused(block + "experts.gate_up_proj", int64_t{2} * model_.intermediate, model_.hidden);
        fused(block + "experts.down_proj", model_.hidden, model_.intermediate);
    }

    RecipeBuilder build_;
    const Model& model_;
    std::string format_name_;
    moe_format format_;
    std::string plain_type_;
};

// Released files keep MXFP4 experts fused and everything else one by one.
void check_format(const Model& model, const std::string& format) {
    const bool fused = model.family == Family::GptOss;
    const bool per_matrix = format == "fp8_128x128" || format == "nvfp4";
    if (fused && per_matrix) {
        throw Failure(model.name + " keeps its experts fused, which " + format +
                          " has no file layout for; use mxfp4, bf16, f16, f32 or q8_0",
                      MOE_ERROR_UNSUPPORTED);
    }
    if (!fused && format == "mxfp4") {
        throw Failure("mxfp4 is the format of gpt-oss files; use another one for " + model.name,
                      MOE_ERROR_UNSUPPORTED);
    }
}

}  // namespace

Recipe safetensors_recipe(const Model& model, const RecipeOptions& options) {
    check_format(model, options.format);
    Recipe recipe;
    SafetensorsRecipe writer(recipe, model, options);
    for (int32_t i = 0; i < options.n_layers; ++i) writer.layer(model.first_moe_layer + i);
    return recipe;
}

}  // namespace moe::cli
