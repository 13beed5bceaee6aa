// An input as a list of byte strings: u16 length and bytes, one after the other.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace moe_fuzz {

inline std::vector<std::string> split_chunks(std::string_view input) {
    std::vector<std::string> chunks;
    while (input.size() >= 2) {
        uint16_t length;
        std::memcpy(&length, input.data(), sizeof length);
        chunks.emplace_back(input.substr(2, length));
        input.remove_prefix(2 + chunks.back().size());
    }
    return chunks;
}

inline std::string join_chunks(const std::vector<std::string>& chunks) {
    std::string out;
    for (const std::string& chunk : chunks) {
        const auto length = static_cast<uint16_t>(std::min<size_t>(chunk.size(), UINT16_MAX));
        out.append(reinterpret_cast<const char*>(&length), sizeof length);
        out.append(chunk, 0, length);
    }
    return out;
}

}  // namespace moe_fuzz
