// make_model.cpp - `moe make-model`: a random checkpoint with a released model's names, sizes and
// formats.
#include <fmt/format.h>

#include <chrono>
#include <filesystem>

#include "commands.hpp"
#include "fill.hpp"
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

// Only an empty or a new folder is written to.
void prepare_folder(const fs::path& folder) {
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) throw Failure(fmt::format("{}: {}", folder.string(), error.message()), MOE_ERROR_IO);
    if (!fs::is_empty(folder, error) || error) {
        throw Failure(folder.string() + ": is not an empty folder", MOE_ERROR_IO);
    }
}

// The layout of the files, with nothing but headers written.
Recipe lay_out(const Model& model, const RecipeOptions& recipe_options,
               const MakeModelOptions& options, OutputFiles& files) {
    const fs::path folder = options.folder;
    const bool gguf = is_gguf_format(recipe_options.format);
    Recipe recipe =
        gguf ? gguf_recipe(model, recipe_options) : safetensors_recipe(model, recipe_options);
    prepare_folder(folder);
    if (gguf) {
        const std::string name = fmt::format("{}-{}.gguf", model.name, recipe_options.format);
        lay_out_gguf(recipe, model, recipe_options, folder / name, files);
    } else {
        lay_out_safetensors(recipe, model, recipe_options, folder, options.shards, files);
    }
    return recipe;
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
    if (options.model.empty() || options.folder.empty()) {
        throw UsageFailure("make-model needs a model and a folder; --list shows the models");
    }
    if (options.layers < 1) throw UsageFailure("--layers must be at least 1");
    const Model& released = model_by_name(options.model);
    RecipeOptions recipe_options{options.format.empty() ? released.native_format : options.format,
                                 options.layers, options.seed};
    check_format(recipe_options.format);
    const Model model = options.reduced ? reduced(released, recipe_options.format) : released;
    const auto start = std::chrono::steady_clock::now();
    OutputFiles files;
    const Recipe recipe = lay_out(model, recipe_options, options, files);
    Progress progress("making " + model.name, options.progress);
    fill_files(recipe, files, options.threads, progress);
    const bool gguf = is_gguf_format(recipe_options.format);
    const std::string path = gguf ? files.paths().front() : options.folder;
    files.close();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    report(model, recipe_options, recipe, path, elapsed.count());
    return 0;
}

}  // namespace moe::cli
