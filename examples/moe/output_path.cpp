// output_path.cpp - looks before it writes, and renames at the end.
#include "output_path.hpp"

#include <fmt/format.h>

#include <vector>

#include "moe_cpp.hpp"

namespace moe::cli {
namespace {

namespace fs = std::filesystem;

// Without a slash at its end, and with a name: "." has none to which .partial could be added.
fs::path named_path(const fs::path& path) {
    const fs::path named = path.has_filename() ? path : path.parent_path();
    const bool has_name = named.filename() != "." && named.filename() != "..";
    return has_name ? named : fs::weakly_canonical(fs::absolute(named));
}

fs::path partial_of(const fs::path& path) {
    return path.string() + ".partial";
}

// Whether `path` is `top` or lies below it, however the two are spelt and linked.
bool lies_in(const fs::path& path, const fs::path& top) {
    std::error_code ignored;
    fs::path at = fs::weakly_canonical(fs::absolute(path));
    while (!fs::equivalent(at, top, ignored)) {
        if (!at.has_relative_path()) return false;
        at = at.parent_path();
    }
    return true;
}

// A checkpoint may be a folder of links to files that lie elsewhere.
bool holds_linked_file(const fs::path& path, const fs::path& folder) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(folder, ignored))
        if (entry.is_symlink() && entry.is_regular_file() && lies_in(entry.path(), path))
            return true;
    return false;
}

// `path` may be removed and replaced without a loss for the source.
void check_apart(const fs::path& path, const fs::path& source) {
    std::error_code ignored;
    if (fs::equivalent(path, source, ignored)) refuse_file(path, "is the source itself");
    const bool is_folder = fs::is_directory(source);
    const fs::path folder = is_folder ? source : fs::absolute(source).parent_path();
    if (lies_in(source, path) || lies_in(folder, path) || holds_linked_file(path, folder))
        refuse_file(path, "holds the source " + source.string());
    if (is_folder && lies_in(path, source))
        refuse_file(path, "lies in the source " + source.string());
}

bool is_checkpoint_folder(const fs::path& folder) {
    if (!fs::exists(folder / "config.json")) return false;
    for (const auto& entry : fs::directory_iterator(folder))
        if (entry.is_directory()) return false;
    return true;
}

void check_replaceable(const fs::path& path, bool is_folder) {
    if (is_folder && !is_checkpoint_folder(path))
        refuse_file(path, "is no folder with a config.json and files alone, so it is not replaced");
    if (!is_folder && !fs::is_regular_file(path))
        refuse_file(path, "is no file, so it is not replaced");
}

// What a run that was stopped has left: config.json is the first file of a folder.
void remove_partial(const fs::path& partial) {
    const bool is_left = fs::is_directory(partial)
                             ? fs::is_empty(partial) || is_checkpoint_folder(partial)
                             : fs::is_regular_file(partial);
    if (!is_left) refuse_file(partial, "is not what a run leaves, so it is not removed");
    fs::remove_all(partial);
}

void make_folder(const fs::path& folder) {
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) refuse_file(folder, "cannot be created: " + error.message());
}

std::error_code move_up(const fs::path& from, const fs::path& to) {
    std::error_code error;
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(from, error)) files.push_back(entry.path());
    for (const fs::path& file : files)
        if (!error) fs::rename(file, to / file.filename(), error);
    if (!error) fs::remove(from, error);
    return error;
}

}  // namespace

OutputPath::OutputPath(fs::path path, fs::path partial, Kind kind)
    : path_(std::move(path)), partial_(std::move(partial)), kind_(kind) {
    if (kind_ == Kind::Folder || kind_ == Kind::FilledFolder) make_folder(partial_);
}

OutputPath OutputPath::checkpoint(const std::string& name, const fs::path& source, bool is_folder,
                                  bool force) {
    const fs::path path = named_path(name);
    const fs::path partial = partial_of(path);
    check_apart(path, source);
    check_apart(partial, source);
    if (fs::exists(path)) {
        if (!force) refuse_file(path, "exists; --force replaces it");
        check_replaceable(path, is_folder);
    }
    if (fs::exists(partial)) {
        if (!force) refuse_file(partial, "is left of a run that was stopped; --force removes it");
        remove_partial(partial);
    }
    return OutputPath(path, partial, is_folder ? Kind::Folder : Kind::File);
}

OutputPath OutputPath::new_folder(const std::string& name) {
    const fs::path path = named_path(name);
    std::error_code error;
    if (fs::exists(path, error)) {
        if (!fs::is_directory(path) || !fs::is_empty(path, error) || error)
            refuse_file(path, "is not an empty folder");
        return OutputPath(path, path / ".partial", Kind::FilledFolder);
    }
    const fs::path partial = partial_of(path);
    if (fs::exists(partial, error))
        refuse_file(partial, "is left of a run that was stopped: remove it");
    return OutputPath(path, partial, Kind::Folder);
}

OutputPath OutputPath::file(const std::string& name) {
    std::error_code error;
    fs::path path = name;
    if (fs::is_directory(path, error)) refuse_file(path, "is a folder");
    if (fs::exists(path, error)) {
        if (!fs::is_regular_file(path)) return OutputPath(path, path, Kind::Itself);
        path = fs::canonical(path);  // a link stays, and what it names is replaced
    }
    return OutputPath(path, partial_of(path), Kind::File);
}

OutputPath::~OutputPath() {
    if (is_finished_ || kind_ == Kind::Itself) return;
    std::error_code ignored;
    if (kind_ == Kind::File) {
        if (fs::is_regular_file(partial_, ignored)) fs::remove(partial_, ignored);
    } else {
        fs::remove_all(partial_, ignored);
    }
}

std::error_code OutputPath::take_name() const {
    std::error_code error;
    if (kind_ == Kind::FilledFolder) return move_up(partial_, path_);
    if (kind_ == Kind::Folder) fs::remove_all(path_, error);
    if (!error) fs::rename(partial_, path_, error);
    return error;
}

// What could not take its name is whole all the same, and the old one may be gone: it is kept.
void OutputPath::commit() {
    is_finished_ = true;
    if (kind_ == Kind::Itself) return;
    const std::error_code error = take_name();
    if (error)
        refuse_file(path_, fmt::format("cannot take its name, and is left as {}: {}",
                                       partial_.string(), error.message()));
}

}  // namespace moe::cli
