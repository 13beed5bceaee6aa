// The sized structs of moe.h with the offsets of their fields, read from the header itself, so that
// a test over "every struct" cannot miss one. Tests run in the root of the source tree.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace moe_test {

struct HeaderStruct {
    std::vector<uint32_t> boundaries;  // where each field ends, without padding
    uint32_t size;
    std::vector<uint32_t> reserved;  // where fields of that name begin
};

inline std::string header_without_comments() {
    std::ifstream file("include/moe/moe.h");
    if (!file) throw std::runtime_error("include/moe/moe.h: run in the root of the source tree");
    std::stringstream whole;
    whole << file.rdbuf();
    std::string text = whole.str();
    for (size_t begin; (begin = text.find("/*")) != std::string::npos;)
        text.replace(begin, text.find("*/", begin) + 2 - begin, " ");
    return text;
}

inline bool has(const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
}

// Bytes of one element of a declaration: pointers, 64-bit numbers, characters, 32 bits for the
// rest.
inline uint32_t element_size(const std::string& declaration) {
    for (const char* wide : {"*", "int64_t", "double", "_fn "})
        if (has(declaration, wide)) return 8;
    return has(declaration, "char ") ? 1 : 4;
}

inline uint32_t element_count(const std::string& declaration) {
    const size_t bracket = declaration.find('[');
    if (bracket == std::string::npos) return 1;
    return static_cast<uint32_t>(std::stoul(declaration.substr(bracket + 1)));
}

inline HeaderStruct parse_fields(const std::string& body) {
    HeaderStruct result{{}, 0, {}};
    uint32_t alignment = 4;
    size_t begin = 0;
    for (size_t end; (end = body.find(';', begin)) != std::string::npos; begin = end + 1) {
        const std::string declaration = body.substr(begin, end - begin);
        const uint32_t size = element_size(declaration);
        result.size = (result.size + size - 1) / size * size;
        result.size += size * element_count(declaration);
        result.boundaries.push_back(result.size);
        if (has(declaration, " reserved")) result.reserved.push_back(result.size - size);
        alignment = std::max(alignment, size);
    }
    result.size = (result.size + alignment - 1) / alignment * alignment;
    return result;
}

inline std::map<std::string, HeaderStruct> parse_header() {
    std::map<std::string, HeaderStruct> structs;
    const std::string text = header_without_comments(), key = "typedef struct ";
    for (size_t at = 0; (at = text.find(key, at)) != std::string::npos;) {
        at += key.size();
        const size_t name_end = text.find_first_of(" ;", at);
        const std::string name = text.substr(at, name_end - at);
        if (text[name_end + 1] != '{') continue;  // an opaque handle
        const size_t end = text.find('}', name_end);
        structs[name] = parse_fields(text.substr(name_end + 2, end - name_end - 2));
    }
    return structs;
}

inline const std::map<std::string, HeaderStruct>& header_structs() {
    static const auto all = parse_header();
    return all;
}

}  // namespace moe_test
