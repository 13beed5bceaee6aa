// safetensors_source.cpp - headers by nlohmann's parser, bytes by pread.
#include "safetensors_source.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>

#include "moe_cpp.hpp"

namespace moe::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr uint64_t largest_header = uint64_t{256} << 20;
constexpr const char* index_name = "model.safetensors.index.json";

Json read_json(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) refuse_file(path, std::strerror(errno));
    try {
        return Json::parse(file);
    } catch (const Json::exception& error) {
        refuse_file(path, error.what());
    }
}

std::vector<fs::path> shards_in(const fs::path& folder) {
    std::set<fs::path> paths;
    if (fs::exists(folder / index_name)) {
        const Json index = read_json(folder / index_name);
        for (const auto& [name, file] : index.at("weight_map").items())
            paths.insert(folder / file.get<std::string>());
    } else {
        for (const auto& entry : fs::directory_iterator(folder))
            if (entry.path().extension() == ".safetensors") paths.insert(entry.path());
    }
    return {paths.begin(), paths.end()};
}

void read_at(int descriptor, const fs::path& path, uint64_t offset, void* out, uint64_t bytes) {
    auto* next = static_cast<char*>(out);
    while (bytes > 0) {
        const ssize_t got = ::pread(descriptor, next, bytes, static_cast<off_t>(offset));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) refuse_file(path, fmt::format("cannot be read: {}", std::strerror(errno)));
        if (got == 0) refuse_file(path, "ends before its tensors do");
        next += got;
        offset += static_cast<uint64_t>(got);
        bytes -= static_cast<uint64_t>(got);
    }
}

SourceTensor tensor_of(const std::string& name, const Json& entry, uint64_t data_begin) {
    SourceTensor tensor;
    tensor.name = name;
    tensor.dtype = entry.at("dtype").get<std::string>();
    tensor.shape = entry.at("shape").get<std::vector<int64_t>>();
    const auto begin = entry.at("data_offsets").at(0).get<uint64_t>();
    tensor.offset = data_begin + begin;
    tensor.bytes = entry.at("data_offsets").at(1).get<uint64_t>() - begin;
    return tensor;
}

}  // namespace

SafetensorsSource::SafetensorsSource(const std::string& path) {
    is_one_file_ = !fs::is_directory(path);
    folder_ = is_one_file_ ? fs::path(path).parent_path() : fs::path(path);
    if (folder_.empty()) folder_ = ".";
    if (is_one_file_) {
        add_file(path);
    } else {
        for (const fs::path& shard : shards_in(folder_)) add_file(shard);
    }
}

SafetensorsSource::~SafetensorsSource() {
    for (const int descriptor : descriptors_) ::close(descriptor);
}

void SafetensorsSource::add_file(const fs::path& path) {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) refuse_file(path, std::strerror(errno));
    descriptors_.push_back(descriptor);
    unsigned char raw[8];
    read_at(descriptor, path, 0, raw, sizeof(raw));
    uint64_t length = 0;
    for (int i = 0; i < 8; ++i) length |= static_cast<uint64_t>(raw[i]) << 8 * i;
    if (length > largest_header) refuse_file(path, "its header is too long");
    std::string text(length, '\0');
    read_at(descriptor, path, sizeof(raw), text.data(), length);
    SourceFile file{path, nullptr};
    const size_t first = tensors_.size();
    try {
        const Json header = Json::parse(text);
        for (const auto& [name, entry] : header.items()) {
            if (name == "__metadata__") {
                file.metadata = entry;
                continue;
            }
            tensors_.push_back(tensor_of(name, entry, sizeof(raw) + length));
            tensors_.back().file = files_.size();
        }
    } catch (const Json::exception& error) {
        refuse_file(path, error.what());
    }
    std::sort(tensors_.begin() + static_cast<std::ptrdiff_t>(first), tensors_.end(),
              [](const SourceTensor& a, const SourceTensor& b) { return a.offset < b.offset; });
    files_.push_back(std::move(file));
}

Json SafetensorsSource::config() const {
    return read_json(folder_ / "config.json");
}

void SafetensorsSource::read(const SourceTensor& tensor, uint64_t within, void* out,
                             uint64_t bytes) const {
    read_at(descriptors_[tensor.file], files_[tensor.file].path, tensor.offset + within, out,
            bytes);
}

}  // namespace moe::cli
