// checkpoint_files.hpp - lays the pieces of a recipe out in files, writes the headers, and takes
// bytes at any place from any thread. What is around the tensors (config, index, metadata) is
// written here too.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "recipe.hpp"

namespace moe::cli {

// Files of known size, written by position.
class OutputFiles {
  public:
    OutputFiles() = default;
    ~OutputFiles();
    OutputFiles(const OutputFiles&) = delete;
    OutputFiles& operator=(const OutputFiles&) = delete;

    // Creates the file; its bytes are zero until written.
    size_t add(const std::filesystem::path& path, uint64_t bytes);
    void write(size_t file, uint64_t offset, const void* data, uint64_t bytes);
    void close();

  private:
    std::vector<int> descriptors_;
    std::vector<std::string> paths_;
};

// The header of a safetensors file with these pieces (largest elements first, so that every tensor
// is aligned) and room for their bytes; sets file and offset of each. metadata: a JSON object.
void lay_out_shard(std::vector<Piece*> pieces, const std::string& metadata,
                   const std::filesystem::path& path, OutputFiles& files);
// The text and a line break.
void write_text(const std::filesystem::path& path, const std::string& text);

// Folder with config.json and one or more .safetensors; n_shards 0: as many as 4 GB each need.
void lay_out_safetensors(Recipe& recipe, const Model& model, const RecipeOptions& options,
                         const std::filesystem::path& folder, int32_t n_shards, OutputFiles& files);
// One .gguf file.
void lay_out_gguf(Recipe& recipe, const Model& model, const RecipeOptions& options,
                  const std::filesystem::path& path, OutputFiles& files);

// config.json of the released model, for so many layers and this format.
std::string config_text(const Model& model, const RecipeOptions& options);
// hf_quant_config.json, "" unless the format has one.
std::string quantization_config_text(const Model& model, const RecipeOptions& options);

}  // namespace moe::cli
