// safetensors_source.hpp - the tensors of a safetensors checkpoint by name, with their bytes: what
// a program needs that copies some of them as they are. libmoe has opened the same files before,
// and has checked them more closely.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace moe::cli {

struct SourceTensor {
    std::string name;
    std::string dtype;
    std::vector<int64_t> shape;
    size_t file = 0;
    uint64_t offset = 0;  // in the file
    uint64_t bytes = 0;
};

struct SourceFile {
    std::filesystem::path path;
    nlohmann::ordered_json metadata;  // null: none
};

class SafetensorsSource {
  public:
    // A folder with its config.json, or one file beside it.
    explicit SafetensorsSource(const std::string& path);
    ~SafetensorsSource();
    SafetensorsSource(const SafetensorsSource&) = delete;
    SafetensorsSource& operator=(const SafetensorsSource&) = delete;

    const std::filesystem::path& folder() const { return folder_; }
    // A single file was named: the rest of its folder is not the checkpoint's.
    bool is_one_file() const { return is_one_file_; }
    const std::vector<SourceFile>& files() const { return files_; }
    // File by file, in the order of their bytes.
    const std::vector<SourceTensor>& tensors() const { return tensors_; }
    nlohmann::ordered_json config() const;
    // From any thread.
    void read(const SourceTensor& tensor, uint64_t within, void* out, uint64_t bytes) const;

  private:
    void add_file(const std::filesystem::path& path);

    std::filesystem::path folder_;
    bool is_one_file_ = false;
    std::vector<SourceFile> files_;
    std::vector<int> descriptors_;
    std::vector<SourceTensor> tensors_;
};

}  // namespace moe::cli
