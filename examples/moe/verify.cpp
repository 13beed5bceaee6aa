// verify.cpp - reads a file of packed weights as docs/layout.md describes it, and nothing of the
// library: what one wrote, the other checks.
#include "verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "moe_cpp.hpp"
#include "text.hpp"

namespace moe::cli {
namespace {

using Bytes = std::vector<char>;

template <class Number>
Number number_at(const Bytes& bytes, size_t offset) {
    Number number;
    std::memcpy(&number, bytes.data() + offset, sizeof number);
    return number;
}

// The 64-bit checksum of docs/layout.md.
uint64_t checksum_of(const Bytes& bytes) {
    constexpr uint64_t multiplier = 0x9E3779B97F4A7C15;
    const auto mix = [](uint64_t state, uint64_t word) {
        return std::rotl((state ^ word) * multiplier, 29);
    };
    uint64_t lanes[4] = {1, 2, 3, 4};
    for (size_t at = 0, word = 0; at < bytes.size(); at += 8, ++word) {
        uint64_t value = 0;
        std::memcpy(&value, bytes.data() + at, std::min<size_t>(8, bytes.size() - at));
        lanes[word % 4] = mix(lanes[word % 4], value);
    }
    uint64_t sum = bytes.size();
    for (const uint64_t lane : lanes) sum = mix(sum, lane);
    return sum ^ sum >> 32;
}

class PackedFile {
  public:
    explicit PackedFile(const std::string& path) : path_(path), file_(path, std::ios::binary) {
        if (!file_) throw Failure(fmt::format("{}: cannot be opened", path));
        file_.seekg(0, std::ios::end);
        size_ = static_cast<uint64_t>(file_.tellg());
        constexpr uint64_t fields = 512;
        if (size_ < fields) refuse("is no file of packed weights");
        Bytes head = read(0, fields);
        if (std::memcmp(head.data(), "moepack\n", 8) != 0) refuse("is no file of packed weights");
        version_ = number_at<uint32_t>(head, 8);
        if (version_ != 3 && version_ != 4)
            refuse(fmt::format("version {} of packed files, this program knows 3 and 4", version_));
        block_bytes_ = number_at<uint64_t>(head, 32);
        chunk_bytes_ = number_at<uint64_t>(head, 40);
        block_offset_ = number_at<uint64_t>(head, 48);
        if (!chunk_bytes_ || block_bytes_ > size_ || block_offset_ > size_ - block_bytes_ ||
            block_offset_ + block_bytes_ != size_ ||
            n_chunks() > (block_offset_ - std::min(block_offset_, fields)) / 8)
            refuse("the sizes in the header are not those of the file");
        const size_t words = version_ == 3 ? 448 : 288;
        layout_ = std::string(head.data() + 64, strnlen(head.data() + 64, words));
        head = read(0, block_offset_);
        const auto checksum = number_at<uint64_t>(head, 56);
        std::fill_n(head.begin() + 56, 8, '\0');
        if (checksum_of(head) != checksum) refuse("the checksum of the header does not fit");
        checksums_.resize(n_chunks());
        std::memcpy(checksums_.data(), head.data() + fields, 8 * checksums_.size());
    }

    uint64_t n_chunks() const {
        return block_bytes_ / chunk_bytes_ + (block_bytes_ % chunk_bytes_ != 0);
    }
    uint64_t block_bytes() const { return block_bytes_; }
    uint32_t version() const { return version_; }
    const std::string& layout() const { return layout_; }

    std::vector<uint64_t> damaged_chunks() {
        std::vector<uint64_t> damaged;
        for (uint64_t i = 0; i < n_chunks(); ++i) {
            const uint64_t begin = i * chunk_bytes_;
            const Bytes chunk =
                read(block_offset_ + begin, std::min(chunk_bytes_, block_bytes_ - begin));
            if (checksum_of(chunk) != checksums_[i]) damaged.push_back(i);
        }
        return damaged;
    }

  private:
    [[noreturn]] void refuse(const std::string& what) const {
        throw Failure(fmt::format("{}: {}", path_, what));
    }
    Bytes read(uint64_t offset, uint64_t n) {
        Bytes bytes(n);
        file_.seekg(static_cast<std::streamoff>(offset));
        if (!file_.read(bytes.data(), static_cast<std::streamsize>(n)))
            refuse(fmt::format("{} bytes at {} cannot be read", n, offset));
        return bytes;
    }

    std::string path_;
    std::ifstream file_;
    uint64_t size_ = 0, block_bytes_ = 0, chunk_bytes_ = 0, block_offset_ = 0;
    uint32_t version_ = 0;
    std::string layout_;
    std::vector<uint64_t> checksums_;
};

}  // namespace

void verify_packed_file(const InspectOptions& options) {
    PackedFile file(options.checkpoint);
    const std::vector<uint64_t> damaged = file.damaged_chunks();
    if (options.json) {
        nlohmann::ordered_json json;
        json["schema"] = "libmoe.verify.1";
        json["file"] = options.checkpoint;
        json["version"] = file.version();
        json["layout"] = file.layout();
        json["block_bytes"] = file.block_bytes();
        json["n_chunks"] = file.n_chunks();
        json["damaged_chunks"] = damaged;
        fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    } else {
        fmt::print("{}: {}\n{} in {} chunks\n", options.checkpoint, file.layout(),
                   byte_words(file.block_bytes()), file.n_chunks());
    }
    if (!damaged.empty())
        throw Failure(fmt::format("{}: the checksum of chunk {} does not fit ({} of {} chunks)",
                                  options.checkpoint, damaged.front(), damaged.size(),
                                  file.n_chunks()));
    if (!options.json) fmt::print("all checksums fit\n");
}

}  // namespace moe::cli
