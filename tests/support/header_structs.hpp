// The sized structs of moe.h with the offsets of their fields, read from the header itself, so that
// a test over "every struct" cannot miss one. Tests run in the root of the source tree.
#pragma once

#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace moe_test {

struct HeaderStruct {
    std::vector<uint32_t> boundaries;  // where each field ends, without padding
    uint32_t size;
};

inline std::string header_without_comments() {
    std::ifstream file("include/moe/moe.h");
    if (!file) throw std::runtime_error("include/moe/moe.h: run in the root of the source tree");
    std::stringstream text;
    text << file.rdbuf();
    return std::regex_replace(text.str(), std::regex("/\\*([^*]|\\*+[^*/])*\\*+/"), " ");
}

// Bytes of one element of a declaration: pointers, 64-bit numbers, characters, and 32 bits for the rest.
inline uint32_t element_size(const std::string& declaration) {
    if (declaration.find('*') != std::string::npos) return 8;
    if (std::regex_search(declaration, std::regex("int64_t|double|_fn "))) return 8;
    return declaration.find("char ") != std::string::npos ? 1 : 4;
}

inline HeaderStruct parse_fields(const std::string& body) {
    HeaderStruct result{{}, 0};
    uint32_t alignment = 4;
    const std::regex field("[^;]*[A-Za-z_][^;]*;"), array("\\[(\\d+)\\]");
    for (std::sregex_iterator i(body.begin(), body.end(), field), end; i != end; ++i) {
        const std::string declaration = i->str();
        const uint32_t size = element_size(declaration);
        std::smatch count;
        const bool many = std::regex_search(declaration, count, array);
        result.size = (result.size + size - 1) / size * size;
        result.size += size * (many ? static_cast<uint32_t>(std::stoul(count[1])) : 1);
        result.boundaries.push_back(result.size);
        alignment = std::max(alignment, size);
    }
    result.size = (result.size + alignment - 1) / alignment * alignment;
    return result;
}

inline const std::map<std::string, HeaderStruct>& header_structs() {
    static const auto all = [] {
        std::map<std::string, HeaderStruct> structs;
        const std::string text = header_without_comments();
        const std::regex definition("typedef struct (\\w+) \\{([^}]*)\\}");
        for (std::sregex_iterator i(text.begin(), text.end(), definition), end; i != end; ++i)
            structs[(*i)[1]] = parse_fields((*i)[2]);
        return structs;
    }();
    return all;
}

}  // namespace moe_test
