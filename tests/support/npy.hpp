// Reads the .npy files that the scripts of the fixtures write: version 1, little-endian, C order,
// float32, int32 or uint8.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace moe_test {

template <class T>
std::vector<T> read_npy(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    if (bytes.size() < 10 || bytes.compare(1, 5, "NUMPY") != 0)
        throw std::runtime_error(path + " is not a npy file");
    uint16_t header;
    std::memcpy(&header, bytes.data() + 8, sizeof header);
    const char* type = sizeof(T) == 1 ? "'|u1'" : std::is_floating_point_v<T> ? "'<f4'" : "'<i4'";
    if (bytes.substr(10, header).find(type) == std::string::npos)
        throw std::runtime_error(path + " does not hold " + type);
    const size_t begin = 10 + header;
    std::vector<T> values((bytes.size() - begin) / sizeof(T));
    std::memcpy(values.data(), bytes.data() + begin, values.size() * sizeof(T));
    return values;
}

}  // namespace moe_test
