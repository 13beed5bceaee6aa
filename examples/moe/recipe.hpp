// recipe.hpp - a random checkpoint before it is written: the tensors that its files have
// ("pieces"), and the random matrices whose codes and scales fill them. Nothing here touches a
// file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models.hpp"

namespace moe::cli {

// One tensor as a file has it. Shapes are row-major; file and offset are set when the files are
// laid out.
struct Piece {
    std::string name;
    std::string dtype;       // safetensors
    uint32_t ggml_type = 0;  // GGUF
    std::vector<int64_t> shape;
    uint64_t bytes = 0;
    size_t file = 0;
    uint64_t offset = 0;
};

// A place inside a piece; piece < 0: nowhere.
struct Place {
    int32_t piece = -1;
    uint64_t offset = 0;
};

// One matrix of normally distributed weights, in a format, and where its parts go.
struct Matrix {
    uint64_t stream = 0;
    int64_t rows = 0;
    int64_t columns = 0;
    float mean = 0.0F;
    float sigma = 0.0F;
    moe_format format{};
    Place data;
    Place scales;
    Place global_scale;
};

struct Recipe {
    std::vector<Piece> pieces;
    std::vector<Matrix> matrices;

    uint64_t total_bytes() const;
};

struct RecipeOptions {
    std::string format;
    int32_t n_layers = 1;
    uint64_t seed = 0;
};

// Names and layouts of released safetensors folders, and of GGUF files as llama.cpp's converter
// writes them.
Recipe safetensors_recipe(const Model& model, const RecipeOptions& options);
Recipe gguf_recipe(const Model& model, const RecipeOptions& options);

// Adds pieces and the matrices that fill them; used by both.
class RecipeBuilder {
  public:
    RecipeBuilder(Recipe& recipe, uint64_t seed) : recipe_(recipe), seed_(seed) {}

    int32_t piece(const std::string& name, const std::string& dtype, std::vector<int64_t> shape,
                  uint64_t bytes);
    // A tensor of plain elements (type f32, f16 or bf16) of the given shape.
    void plain(const std::string& name, const std::string& type, const std::vector<int64_t>& shape,
               float mean, float sigma);
    // n matrices rows x columns, one behind the other in `data` and, if it is one, in `scales`.
    void stack(const std::string& stream_name, int64_t n, int64_t rows, int64_t columns,
               const moe_format& format, float sigma, int32_t data, int32_t scales,
               int32_t global_scale);

  private:
    Recipe& recipe_;
    uint64_t seed_;
};

// 1 / sqrt(fan_in): outputs of the order of one.
float weight_sigma(int64_t columns);
constexpr float bias_sigma = 0.1F;
constexpr float selection_bias_sigma = 0.05F;
// "F32" for f32 and the like.
std::string dtype_of(const std::string& type);
// Bytes of codes and of scales of one matrix.
struct FormatSize {
    uint64_t data = 0;
    uint64_t scales = 0;
};
FormatSize format_size(const moe_format& format, int64_t rows, int64_t columns);

}  // namespace moe::cli
