// Bytes are tried at every quarter of a scale from 64 to 127, and the best kept. Nothing depends on
// the rounding mode of the caller.
#include "libmoe/packed/shared_codebook.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "libmoe/base/half.hpp"

namespace moe {
namespace {

struct Bytes {
    std::array<double, 8> values{};
    double scale = 0;
    double error = INFINITY;  // squared, of all
    bool is_near = false;     // each to its value
};

double dot(std::span<const float> a, const std::array<double, 8>& b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
}

// Rounds values of at most `largest`, which becomes `top`, to the nearest bytes, and finds the
// scale that leaves the least error.
Bytes rounded_to(std::span<const float> values, double largest, double top) {
    Bytes bytes;
    double squares = 0;
    for (size_t i = 0; i < values.size(); ++i) {
        bytes.values[i] = std::round(values[i] / largest * top);
        squares += bytes.values[i] * bytes.values[i];
    }
    bytes.scale = dot(values, bytes.values) / squares;
    bytes.error = 0;
    bytes.is_near = true;
    for (size_t i = 0; i < values.size(); ++i) {
        const double error = std::abs(bytes.values[i] * bytes.scale - values[i]);
        bytes.error += error * error;
        bytes.is_near &= error <= std::abs(values[i]) / 64;
    }
    return bytes;
}

}  // namespace

bool is_mirrored(std::span<const float, 32> values) {
    for (size_t i = 0; i < 16; ++i)
        if ((float_to_f16(values[i]) ^ 0x8000) != float_to_f16(values[i + 16])) return false;
    return true;
}

ByteCodebook byte_codebook(std::span<const float, 32> all, int32_t bits) {
    const auto values = all.first(size_t{1} << bits);
    double largest = 0, squares = 0;
    for (const float value : values) {
        largest = std::max(largest, std::abs(double{value}));
        squares += double{value} * value;
    }
    // Neither zeros nor infinities; scales must be normal numbers.
    if (!(largest > 0x1p-100 && largest < 0x1p100)) return {};
    Bytes best;
    for (double top = 64; top <= 127; top += 0.25) {
        const Bytes bytes = rounded_to(values, largest, top);
        if (bytes.is_near && bytes.error < best.error) best = bytes;
    }
    constexpr double bf16_error = 0x1p-18 / 3;  // squared, of a half step of 2^-8 evenly
    if (!(best.error <= bf16_error * squares)) return {};
    ByteCodebook codebook{{}, static_cast<float>(best.scale)};
    for (size_t i = 0; i < values.size(); ++i) {
        const auto byte = static_cast<uint8_t>(static_cast<int8_t>(best.values[i]));
        codebook.values[i / 4] |= uint32_t{byte} << 8 * (i % 4);
    }
    return codebook;
}

}  // namespace moe
