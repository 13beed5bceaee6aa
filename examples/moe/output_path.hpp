// output_path.hpp - a folder or file that appears under its name only when it is whole: it is
// written as NAME.partial, which a failure removes again.
#pragma once

#include <filesystem>
#include <string>

namespace moe::cli {

class OutputPath {
  public:
    // Refuses a path that exists, unless forced; then the old one goes when the new one is whole.
    // Only what looks like a checkpoint is ever replaced, and never `source`.
    OutputPath(const std::string& path, const std::filesystem::path& source, bool is_folder,
               bool force);
    ~OutputPath();
    OutputPath(const OutputPath&) = delete;
    OutputPath& operator=(const OutputPath&) = delete;

    // Where to write.
    const std::filesystem::path& partial() const { return partial_; }
    void commit();

  private:
    std::filesystem::path path_;
    std::filesystem::path partial_;
    bool is_committed_ = false;
};

}  // namespace moe::cli
