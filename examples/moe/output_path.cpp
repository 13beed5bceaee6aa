// output_path.cpp - looks before it writes, and renames at the end.
#include "output_path.hpp"

#include <fmt/format.h>

#include "moe_cpp.hpp"

namespace moe::cli {
namespace {

namespace fs = std::filesystem;

bool is_checkpoint_folder(const fs::path& folder) {
    if (!fs::exists(folder / "config.json")) return false;
    for (const auto& entry : fs::directory_iterator(folder))
        if (entry.is_directory()) return false;
    return true;
}

void check_replaceable(const fs::path& path, const fs::path& source, bool is_folder) {
    std::error_code error;
    if (fs::equivalent(path, source, error)) refuse_file(path, "is the source itself");
    if (is_folder && !is_checkpoint_folder(path))
        refuse_file(path, "is no folder with a config.json and files alone, so it is not replaced");
    if (!is_folder && (!fs::is_regular_file(path) || path.extension() != ".gguf"))
        refuse_file(path, "is no .gguf file, so it is not replaced");
}

}  // namespace

OutputPath::OutputPath(const std::string& path, const fs::path& source, bool is_folder, bool force)
    : path_(fs::path(path).has_filename() ? fs::path(path) : fs::path(path).parent_path()),
      partial_(path_.string() + ".partial") {
    if (fs::exists(path_)) {
        if (!force) refuse_file(path_, "exists; --force replaces it");
        check_replaceable(path_, source, is_folder);
    }
    if (fs::exists(partial_)) {
        if (!force) refuse_file(partial_, "is left of a run that was stopped; --force removes it");
        fs::remove_all(partial_);
    }
    std::error_code error;
    if (is_folder) fs::create_directories(partial_, error);
    if (error) refuse_file(partial_, "cannot be created: " + error.message());
}

OutputPath::~OutputPath() {
    std::error_code ignored;
    if (!is_committed_) fs::remove_all(partial_, ignored);
}

void OutputPath::commit() {
    std::error_code error;
    fs::remove_all(path_, error);
    if (!error) fs::rename(partial_, path_, error);
    if (error) refuse_file(path_, "cannot take its name: " + error.message());
    is_committed_ = true;
}

}  // namespace moe::cli
