// output_path.hpp - a folder or file that appears under its name only when it is whole: it is
// written beside, as NAME.partial, which a failure removes again.
#pragma once

#include <filesystem>
#include <string>
#include <system_error>

namespace moe::cli {

class OutputPath {
  public:
    // A checkpoint made of `source`. Refuses a path that exists, unless forced; then the old one
    // goes when the new one is whole. Only what looks like a checkpoint is ever replaced, and never
    // `source`, a folder that it lies in, or anything in it.
    static OutputPath checkpoint(const std::string& path, const std::filesystem::path& source,
                                 bool is_folder, bool force);
    // A new folder. An empty one that is there stays the same folder: it may be the current one.
    static OutputPath new_folder(const std::string& path);
    // A file, in place of one that is there. What is neither file nor folder, as /dev/stdout, is
    // written itself.
    static OutputPath file(const std::string& path);
    ~OutputPath();
    OutputPath(const OutputPath&) = delete;
    OutputPath& operator=(const OutputPath&) = delete;

    // Where to write.
    const std::filesystem::path& partial() const { return partial_; }
    void commit();

  private:
    enum class Kind { Folder, FilledFolder, File, Itself };
    OutputPath(std::filesystem::path path, std::filesystem::path partial, Kind kind);
    std::error_code take_name() const;

    std::filesystem::path path_;
    std::filesystem::path partial_;
    Kind kind_;
    bool is_finished_ = false;
};

}  // namespace moe::cli
