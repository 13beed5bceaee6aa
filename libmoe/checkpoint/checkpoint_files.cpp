// Finding out what a path is, and opening all that belongs to it.
#include "libmoe/checkpoint/checkpoint_files.hpp"

#include <dirent.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>

#include "libmoe/base/error.hpp"
#include "libmoe/checkpoint/gguf.hpp"
#include "libmoe/checkpoint/json.hpp"
#include "libmoe/checkpoint/printable.hpp"
#include "libmoe/checkpoint/safetensors.hpp"

namespace moe {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t largest_config = uint64_t{16} << 20;
constexpr uint64_t largest_index = uint64_t{256} << 20;
constexpr const char* config_name = "config.json";
constexpr const char* modelopt_name = "hf_quant_config.json";
constexpr const char* autogptq_name = "quantize_config.json";
constexpr std::string_view config_part = "quantization_config.";
constexpr std::string_view modelopt_part = "quantization.";
constexpr const char* whole_name = "model.safetensors";
constexpr const char* index_name = "model.safetensors.index.json";

std::string join(std::string_view folder, std::string_view name) {
    return (fs::path(folder) / name).string();
}

std::string folder_of(std::string_view path) {
    const std::string parent = fs::path(path).parent_path().string();
    return parent.empty() ? "." : parent;
}

bool exists(const std::string& path) {
    std::error_code ignored;
    return fs::exists(path, ignored);
}

std::pmr::string read_whole(std::pmr::memory_resource& memory, const std::string& path,
                            uint64_t limit) {
    const File file(memory, path, MOE_IO_READ);
    if (file.size() > limit) {
        fail(MOE_ERROR_CORRUPT_FILE, "{}: {} bytes are more than {}", file.name(), file.size(),
             limit);
    }
    std::pmr::string text(file.size(), ' ', &memory);
    file.read(0, file.size(), text.data());
    return text;
}

bool is_gguf_file(const File& file) {
    char magic[4] = {};
    if (file.size() >= sizeof magic) file.read(0, sizeof magic, magic);
    return std::string_view(magic, sizeof magic) == "GGUF" || file.path().ends_with(".gguf");
}

// A clone without Git LFS has a pointer in the place of a large file.
void refuse_lfs_pointer(const File& file) {
    constexpr std::string_view beginning = "version https://git-lfs";
    char text[beginning.size()] = {};
    if (file.size() >= sizeof text) file.read(0, sizeof text, text);
    if (std::string_view(text, sizeof text) == beginning)
        fail(MOE_ERROR_CORRUPT_FILE,
             "{}: is a pointer of Git LFS; the file itself has not been fetched", file.name());
}

constexpr std::string_view gguf_extension = ".gguf", safetensors_extension = ".safetensors";

// stem-00001-of-00003.gguf
struct SplitName {
    std::string stem;
    uint32_t part;  // from 0
    uint32_t n_parts;

    std::string part_path(uint32_t index) const {
        return fmt::format("{}-{:05}-of-{:05}.gguf", stem, index + 1, n_parts);
    }
};

std::optional<uint32_t> five_digits(std::string_view text) {
    uint32_t number = 0;
    for (const char c : text) {
        if (c < '0' || c > '9') return std::nullopt;
        number = number * 10 + static_cast<uint32_t>(c - '0');
    }
    return number;
}

std::optional<SplitName> parse_split_name(std::string_view path,
                                          std::string_view extension = gguf_extension) {
    const size_t tail = sizeof("-00001-of-00003") - 1 + extension.size();
    if (path.size() <= tail) return std::nullopt;
    const std::string_view end = path.substr(path.size() - tail);
    if (end[0] != '-' || end.substr(6, 4) != "-of-" || end.substr(15) != extension)
        return std::nullopt;
    const auto part = five_digits(end.substr(1, 5));
    const auto n_parts = five_digits(end.substr(10, 5));
    if (!part || !n_parts || *part < 1 || *part > *n_parts) return std::nullopt;
    return SplitName{std::string(path.substr(0, path.size() - tail)), *part - 1, *n_parts};
}

struct CloseFolder {
    void operator()(DIR* folder) const { ::closedir(folder); }
};

// Paths of the files in a folder whose names end so, in order, without hidden ones: macOS leaves a
// ._ file beside each on foreign disks. Not by std::filesystem: libstdc++
// ends the process when its iterator finds no memory.
std::vector<std::string> files_in(std::string_view folder, std::string_view extension) {
    std::vector<std::string> paths;
    const std::unique_ptr<DIR, CloseFolder> open(::opendir(std::string(folder).c_str()));
    errno = open ? 0 : errno;
    while (const dirent* entry = open ? ::readdir(open.get()) : nullptr) {
        const std::string_view name = entry->d_name;
        if (!name.starts_with('.') && name.ends_with(extension))
            paths.push_back(join(folder, name));
        errno = 0;
    }
    if (const int error = errno) {
        fail(MOE_ERROR_IO, "{}: {}", printable(folder).text,
             std::generic_category().message(error));
    }
    std::sort(paths.begin(), paths.end());
    return paths;
}

// The one GGUF model of a folder, by its first part; none if there is no GGUF.
std::optional<std::string> gguf_in(std::string_view folder) {
    const std::vector<std::string> paths = files_in(folder, gguf_extension);
    if (paths.empty()) return std::nullopt;
    const auto split = parse_split_name(paths.front());
    const bool one_model = paths.size() == 1 ||
                           (split && std::all_of(paths.begin(), paths.end(), [&](const auto& path) {
                                const auto part = parse_split_name(path);
                                return part && part->stem == split->stem;
                            }));
    if (!one_model) {
        fail(MOE_ERROR_INVALID_ARGUMENT, "{}: holds {} GGUF files, give one of them",
             printable(folder).text, paths.size());
    }
    return paths.front();
}

}  // namespace

CheckpointFiles::CheckpointFiles(std::pmr::memory_resource& memory, std::string_view path,
                                 moe_io io)
    : memory(memory),
      io(io),
      files(&memory),
      index(memory),
      settings(memory, config_name),
      quantization_file(memory, modelopt_name),
      rules(memory) {
    std::error_code error;
    if (fs::is_directory(fs::path(path), error)) {
        open_folder(path);
    } else {
        open_one(path);
    }
}

uint64_t CheckpointFiles::total_bytes() const {
    uint64_t sum = 0;
    for (const File& file : files) sum += file.size();
    return sum;
}

SettingsPart CheckpointFiles::quantization() const {
    if (is_autogptq_file) return {quantization_file, ""};
    if (quantization_file.has_part(modelopt_part)) return {quantization_file, modelopt_part};
    return {settings, config_part};
}

SettingsPart CheckpointFiles::quantization_of(const ModuleRule* rule) const {
    return rule ? SettingsPart(settings, config_part, rule->stem) : quantization();
}

std::string CheckpointFiles::name() const {
    if (files.size() == 1) return std::string(files.front().name());
    const fs::path folder = folder_of(files.front().path());
    return fmt::format("{} ({} files)", printable(folder.filename().string()).text, files.size());
}

std::string CheckpointFiles::absent_parts() const {
    const auto first = parse_split_name(files.front().path(), safetensors_extension);
    if (!first) return {};
    std::vector<bool> present(first->n_parts);
    for (const File& file : files) {
        const auto part = parse_split_name(file.path(), safetensors_extension);
        if (part && part->n_parts == first->n_parts) present[part->part] = true;
    }
    const auto absent = std::find(present.begin(), present.end(), false);
    if (absent == present.end()) return {};
    return fmt::format("; {} of {} parts were not read, the first of them -{:05}-of-{:05}",
                       std::count(present.begin(), present.end(), false), first->n_parts,
                       absent - present.begin() + 1, first->n_parts);
}

// A GGUF may have a config.json beside it; safetensors cannot do without.
void CheckpointFiles::open_folder(std::string_view folder) {
    const std::string index_path = join(folder, index_name);
    const bool has_index = exists(index_path);
    std::vector<std::string> paths = files_in(folder, safetensors_extension);
    if (!exists(join(folder, config_name)) || (!has_index && paths.empty())) {
        if (const auto gguf = gguf_in(folder)) return open_one(*gguf);
    }
    read_config(folder);
    const std::string whole = join(folder, whole_name);
    if (has_index) {
        const ShardIndex shards = read_index(index_path);
        if (!exists(whole) || has_any_shard(folder, shards)) return open_shards(folder, shards);
        note = fmt::format("{} is read: none of the files that {} names is there", whole_name,
                           index_name);
    }
    if (paths.empty()) {
        fail(MOE_ERROR_NOT_FOUND, "{}: has neither {} nor a .safetensors file",
             printable(folder).text, index_name);
    }
    // What lies beside a whole model, as Mistral's consolidated.safetensors does, is no part of it.
    if (exists(whole)) paths = {whole};
    open_all(paths);
}

bool CheckpointFiles::has_any_shard(std::string_view folder, const ShardIndex& shards) {
    return std::any_of(shards.shards.begin(), shards.shards.end(),
                       [&](const std::pmr::string& name) { return exists(join(folder, name)); });
}

ShardIndex CheckpointFiles::read_index(const std::string& path) const {
    return read_shard_index(memory, read_whole(memory, path, largest_index), index_name);
}

void CheckpointFiles::open_shards(std::string_view folder, const ShardIndex& shards) {
    std::vector<std::string> paths;
    for (const std::pmr::string& name : shards.shards) paths.push_back(join(folder, name));
    open_all(paths);
    check_shard_index(shards, index, index_name);
}

void CheckpointFiles::add_file(std::string_view path) {
    refuse_lfs_pointer(files.emplace_back(memory, path, io));
}

void CheckpointFiles::open_all(const std::vector<std::string>& paths) {
    files.reserve(paths.size());
    for (const std::string& path : paths) {
        add_file(path);
        read_safetensors(memory, files.back(), static_cast<uint32_t>(files.size() - 1), index);
    }
    index.finish(files);
}

// A shard stands for its whole model.
bool CheckpointFiles::open_shards_with(std::string_view path) {
    const std::string folder = folder_of(path);
    const std::string index_path = join(folder, index_name);
    if (!exists(index_path)) return false;
    const ShardIndex shards = read_index(index_path);
    const std::string name = fs::path(path).filename().string();
    const auto& names = shards.shards;
    if (std::find(names.begin(), names.end(), std::string_view(name)) == names.end()) return false;
    files.clear();
    open_shards(folder, shards);
    return true;
}

void CheckpointFiles::open_one(std::string_view path) {
    add_file(path);
    is_gguf = is_gguf_file(files.front());
    if (is_gguf) {
        open_gguf(path);
        return index.finish(files);
    }
    if (!open_shards_with(path)) {
        read_safetensors(memory, files.front(), 0, index);
        index.finish(files);
    }
    read_config(folder_of(path));
}

void CheckpointFiles::read_config(std::string_view folder) {
    const std::string path = join(folder, config_name);
    if (!exists(path)) {
        fail(MOE_ERROR_NOT_FOUND, "{}: there is no {}, which safetensors need",
             printable(folder).text, config_name);
    }
    const std::pmr::string text = read_whole(memory, path, largest_config);
    rules.read(text, config_name, settings);
    for (const std::string_view part : language_parts) {
        const std::string members = std::string(part) + ".";
        if (!settings.has_part(members)) continue;
        settings.set_prefix(members);
        break;
    }
    if (settings.has_part(config_part)) return;
    for (const char* name : {modelopt_name, autogptq_name}) {
        const std::string beside = join(folder, name);
        if (!exists(beside)) continue;
        quantization_file.set_file(name);
        read_settings_json(read_whole(memory, beside, largest_config), name, quantization_file);
        is_autogptq_file = name == autogptq_name;
        break;
    }
}

void CheckpointFiles::open_gguf(std::string_view path) {
    const auto split = parse_split_name(path);
    const uint32_t n_parts = split ? split->n_parts : 1;
    if (split) {
        files.clear();
        for (uint32_t part = 0; part < n_parts; ++part) {
            add_file(split->part_path(part));
        }
    }
    settings.set_file(files.front().name());
    read_gguf_part(0, n_parts, settings);
    for (uint32_t part = 1; part < n_parts; ++part) {
        Settings part_settings(memory, files[part].name());
        read_gguf_part(part, n_parts, part_settings);
    }
    const auto wanted = settings.find_integer({"split.tensors.count"}, 0, TensorIndex::max_tensors);
    if (n_parts > 1 && wanted && static_cast<uint64_t>(*wanted) != index.entries().size()) {
        fail(MOE_ERROR_CORRUPT_FILE, "{}: split.tensors.count is {}, but the {} parts have {}",
             files.front().name(), *wanted, n_parts, index.entries().size());
    }
}

void CheckpointFiles::read_gguf_part(uint32_t part, uint32_t n_parts, Settings& part_settings) {
    const File& file = files[part];
    read_gguf(memory, file, part, part_settings, index);
    const int64_t count =
        part_settings.find_integer({"split.count"}, 0, 99999).value_or(n_parts > 1 ? -1 : 1);
    if (count > 1 && n_parts == 1) {
        fail(MOE_ERROR_CORRUPT_FILE,
             "{}: split.count is {}, but the name does not end in -00001-of-{:05}.gguf, so the "
             "other parts "
             "cannot be found",
             file.name(), count, count);
    }
    if (n_parts == 1) return;
    if (count != static_cast<int64_t>(n_parts)) {
        fail(MOE_ERROR_CORRUPT_FILE, "{}: split.count is {}, the name says {}", file.name(), count,
             n_parts);
    }
    const int64_t number = part_settings.integer({"split.no"}, 0, 99999);
    if (number != static_cast<int64_t>(part)) {
        fail(MOE_ERROR_CORRUPT_FILE, "{}: split.no is {}, the name says part {} of {}", file.name(),
             number, part + 1, n_parts);
    }
}

}  // namespace moe
