// What the checkpoint tests share: temporary folders, writers of small valid files, and a way to
// look at errors.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "libmoe/base/error.hpp"

namespace moe::test {

class Folder {
  public:
    Folder() {
        std::string path = testing::TempDir() + "moe_checkpoint_XXXXXX";
        if (!::mkdtemp(path.data())) throw std::runtime_error("mkdtemp");
        path_ = path;
    }
    ~Folder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    std::string path() const { return path_; }
    std::string path(std::string_view name) const { return path_ + "/" + std::string(name); }
    std::string write(std::string_view name, std::string_view bytes) const {
        std::ofstream(path(name), std::ios::binary) << bytes;
        return path(name);
    }

  private:
    std::string path_;
};

constexpr moe_status corrupt = MOE_ERROR_CORRUPT_FILE, unsupported = MOE_ERROR_UNSUPPORTED;

struct Failure {
    moe_status status = MOE_OK;
    std::string text;
};

// What a call failed with; status OK when it did not.
template <class Call>
Failure failure_of(Call call) {
    try {
        call();
        return {};
    } catch (const Error& error) {
        return {error.status(), error.what()};
    }
}

template <class T>
std::string raw(T value) {
    std::string out(sizeof value, '\0');
    std::memcpy(out.data(), &value, sizeof value);
    return out;
}

// `count` bytes that differ from each other and between seeds.
inline std::string noise(uint64_t count, uint32_t seed) {
    std::string out(count, '\0');
    uint32_t state = seed * 2654435761u + 12345u;
    for (char& byte : out) {
        state = state * 1664525u + 1013904223u;
        byte = static_cast<char>(state >> 24);
    }
    return out;
}

inline std::string safetensors_file(std::string_view header, std::string_view data) {
    return raw<uint64_t>(header.size()) + std::string(header) + std::string(data);
}

using Shape = std::vector<int64_t>;

class SafetensorsWriter {
  public:
    void add(const std::string& name, const std::string& type, const Shape& shape,
             std::string_view bytes) {
        header_ += header_.empty() ? "{" : ",";
        header_ += "\"" + name + "\":{\"dtype\":\"" + type + "\",\"shape\":[";
        for (size_t i = 0; i < shape.size(); ++i)
            header_ += (i ? "," : "") + std::to_string(shape[i]);
        header_ += "],\"data_offsets\":[" + std::to_string(data_.size()) + ",";
        data_ += bytes;
        header_ += std::to_string(data_.size()) + "]}";
    }
    std::string file() const {
        std::string header = header_.empty() ? "{}" : header_ + "}";
        header.resize((header.size() + 7) / 8 * 8, ' ');
        return safetensors_file(header, data_);
    }

  private:
    std::string header_;
    std::string data_;
};

inline std::string gguf_string(std::string_view text) {
    return raw<uint64_t>(text.size()) + std::string(text);
}

// Fields are public so that tests can break them.
struct GgufWriter {
    uint32_t version = 3;
    uint64_t alignment = 32;
    std::vector<std::string> pairs;
    std::vector<std::string> infos;
    std::string data;

    void pair(std::string_view key, uint32_t type, std::string_view value) {
        pairs.push_back(gguf_string(key) + raw(type) + std::string(value));
    }
    void text(std::string_view key, std::string_view value) { pair(key, 8, gguf_string(value)); }
    void integer(std::string_view key, uint32_t value) { pair(key, 4, raw(value)); }
    void real(std::string_view key, float value) { pair(key, 6, raw(value)); }
    void flag(std::string_view key, bool value) { pair(key, 7, raw<uint8_t>(value)); }
    // type is that of the elements, which are in bytes as the file has them.
    void array(std::string_view key, uint32_t type, uint64_t count, std::string_view bytes) {
        pair(key, 9, raw(type) + raw(count) + std::string(bytes));
    }
    // ne: fastest first.
    void tensor(std::string_view name, const Shape& ne, uint32_t type, std::string_view bytes) {
        data.resize((data.size() + alignment - 1) / alignment * alignment, '\0');
        infos.push_back(info(name, ne, type, data.size()));
        data += bytes;
    }
    static std::string info(std::string_view name, const Shape& ne, uint32_t type,
                            uint64_t offset) {
        std::string out = gguf_string(name) + raw(static_cast<uint32_t>(ne.size()));
        for (const int64_t n : ne) out += raw<uint64_t>(static_cast<uint64_t>(n));
        return out + raw(type) + raw(offset);
    }
    std::string file() const {
        std::string out =
            "GGUF" + raw(version) + raw<uint64_t>(infos.size()) + raw<uint64_t>(pairs.size());
        for (const std::string& pair : pairs) out += pair;
        for (const std::string& info : infos) out += info;
        out.resize((out.size() + alignment - 1) / alignment * alignment, '\0');
        return out + data;
    }
};

}  // namespace moe::test
