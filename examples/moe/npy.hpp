// npy.hpp - NumPy's .npy files, two-dimensional: float32 in and out, int32 out. A file is believed
// only after its header has been checked against its size; errors name the file and what was found
// in it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moe::cli {

struct FloatArray {
    int64_t rows = 0;
    int64_t columns = 0;
    std::vector<float> values;  // row-major
};

FloatArray read_npy(const std::string& path);
void write_npy(const std::string& path, int64_t rows, int64_t columns,
               const std::vector<float>& values);
void write_npy(const std::string& path, int64_t rows, int64_t columns,
               const std::vector<int32_t>& values);

}  // namespace moe::cli
