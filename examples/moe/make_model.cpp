// make_model.cpp - `moe make-model`: a random checkpoint with a released model's names, sizes and
// formats.
#include <fmt/format.h>

#include <chrono>
#include <filesystem>

#include "commands.hpp"
#include "fill.hpp"
#include "output_path.hpp"
#include "text.hpp"

namespace moe::cli {
namespace {

namespace fs = std::filesystem;

const char* const formats[] = {"bf16", "f16",  "f32",  "fp8_128x128", "nvfp4",  "mxfp4",
                               "q8_0", "q4_k", "q4_0", "q4_1",        "q5_0",   "q5_1",
                               "q2_k", "q3_k", "q5_k", "q6_k",        "iq4_nl", "iq4_xs"};

void check_format(const std::string& format) {
    for (const char* known : formats) {
        if (format == known) return;
    }
    throw UsageFailure(
        fmt::format("--format must be one of {}, not {}", fmt::join(formats, ", "), format));
}

int list_models() {
    std::vector<std::vector<std::string>> rows = {
        {"model", "H", "I", "E", "top-k", "shared", "MoE layers", "format", "routing"}};
    for (const Model& model : all_models()) {
        rows.push_back(
            {model.name, std::to_string(model.hidden), std::to_string(model.intermediate),
             std::to_string(model.n_experts), std::to_string(model.top_k),
             model.shared_intermediate > 0 ? std::to_string(model.shared_intermediate) : "-",
             fmt::format("{}-{}", model.first_moe_layer, model.n_layers - 1), model.native_format,
             routing_words(layer_of(model))});
    }
    fmt::print("{}\nformats: {} (q8_0 and those after it make a GGUF file)\n", table_words(rows),
               fmt::join(formats, ", "));
    return 0;
}

std::string gguf_name(const Model& model, const RecipeOptions& recipe_options) {
    return fmt::format("{}-{}.gguf", model.name, recipe_options.format);
}

// The layout of the files, with nothing but headers written.
void lay_out(Recipe& recipe, const Model& model, const RecipeOptions& recipe_options,
             const fs::path& folder, int32_t n_shards, OutputFiles& files) {
    if (is_gguf_format(recipe_options.format)) {
        const fs::path path = folder / gguf_name(model, recipe_options);
        lay_out_gguf(recipe, model, recipe_options, path, files);
    } else {
        lay_out_safetensors(recipe, model, recipe_options, folder, n_shards, files);
    }
}

// The whole checkpoint, in a folder that takes its name at the end.
Recipe write_model(const Model& model, const RecipeOptions& recipe_options,
                   const MakeModelOptions& options) {
    Recipe recipe = is_gguf_format(recipe_options.format)
                        ? gguf_recipe(model, recipe_options)
                        : safetensors_recipe(model, recipe_options);
    OutputPath output = OutputPath::new_folder(options.folder);
    OutputFiles files;
    lay_out(recipe, model, recipe_options, output.partial(), options.shards, files);
    Progress progress("making " + model.name, options.progress);
    fill_files(recipe, files, options.threads, progress);
    files.close();
    output.commit();
    return recipe;
}

void check_usage(const MakeModelOptions& options) {
    if (options.model.empty() || options.folder.empty())
        throw UsageFailure("make-model needs a model and a folder; --list shows the models");
    if (options.layers < 1) throw UsageFailure("--layers must be at least 1");
}

void report(const Model& model, const RecipeOptions& recipe_options, const Recipe& recipe,
            const std::string& path, double seconds) {
    const int32_t first = model.first_moe_layer;
    std::vector<int32_t> layers;
    for (int32_t i = 0; i < recipe_options.n_layers; ++i) layers.push_back(first + i);
    fmt::print("{}: {} in {}, layer {}, {} tensors, {} in {}\n", path, model.name,
               recipe_options.format, range_words(layers), recipe.pieces.size(),
               byte_words(recipe.total_bytes()), time_words(seconds));
}

}  // namespace

int make_model(const MakeModelOptions& options) {
    if (options.list) return list_models();
    check_usage(options);
    const Model& released = model_by_name(options.model);
    RecipeOptions recipe_options{options.format.empty() ? released.native_format : options.format,
                                 options.layers, options.seed};
    check_format(recipe_options.format);
    const bool gguf = is_gguf_format(recipe_options.format);
    if (gguf && options.shards > 0)
        throw UsageFailure("--shards is for safetensors: " + recipe_options.format +
                           " makes one GGUF file");
    const Model model = options.reduced ? reduced(released, recipe_options.format) : released;
    const auto start = std::chrono::steady_clock::now();
    const Recipe recipe = write_model(model, recipe_options, options);
    const fs::path folder = options.folder;
    const fs::path path = gguf ? folder / gguf_name(model, recipe_options) : folder;
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    report(model, recipe_options, recipe, path.string(), elapsed.count());
    return 0;
}

}  // namespace moe::cli
