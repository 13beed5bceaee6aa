// gaussian.cpp - the quantile table and the hash.
#include "gaussian.hpp"

#include <cmath>
#include <vector>

namespace moe::cli {
namespace {

constexpr size_t table_size = 65536;

double normal_cdf(double x) {
    return 0.5 * std::erfc(-x * 0.70710678118654752440);
}
double normal_pdf(double x) {
    return 0.39894228040143267794 * std::exp(-0.5 * x * x);
}

// The upper half by Newton steps from the quantile before, the lower half by symmetry; scaled to
// variance 1.
std::vector<float> make_table() {
    std::vector<double> half(table_size / 2);
    double x = 0.0;
    double sum_of_squares = 0.0;
    for (size_t i = 0; i < half.size(); ++i) {
        const double wanted = 0.5 + (static_cast<double>(i) + 0.5) / table_size;
        for (int step = 0; step < 4; ++step) x -= (normal_cdf(x) - wanted) / normal_pdf(x);
        half[i] = x;
        sum_of_squares += x * x;
    }
    const double scale = 1.0 / std::sqrt(sum_of_squares / static_cast<double>(half.size()));
    std::vector<float> table(table_size);
    for (size_t i = 0; i < half.size(); ++i) {
        table[table_size / 2 + i] = static_cast<float>(half[i] * scale);
        table[table_size / 2 - 1 - i] = static_cast<float>(-half[i] * scale);
    }
    return table;
}

const float* quantiles() {
    static const std::vector<float> table = make_table();
    return table.data();
}

// Two multiplications by an odd constant spread every bit of a counter over all 64.
inline uint64_t mix(uint64_t value) {
    value ^= value >> 32;
    value *= 0xD6E8FEB86659FD93U;
    value ^= value >> 32;
    value *= 0xD6E8FEB86659FD93U;
    return value ^ (value >> 32);
}

constexpr uint64_t golden = 0x9E3779B97F4A7C15U;

}  // namespace

uint64_t stream_of(uint64_t seed, std::string_view name, uint64_t index) {
    uint64_t hash = mix(seed + golden);
    for (const char c : name) hash = mix((hash ^ static_cast<unsigned char>(c)) + golden);
    return mix(hash + golden * (index + 1));
}

void fill_gaussian(uint64_t stream, uint64_t first, float mean, float sigma, std::span<float> out) {
    const float* table = quantiles();
    uint64_t counter = first / 4;
    size_t i = 0;
    for (; i + 4 <= out.size(); i += 4, ++counter) {
        const uint64_t bits = mix(stream + counter * golden);
        out[i] = mean + sigma * table[bits & 0xFFFF];
        out[i + 1] = mean + sigma * table[bits >> 16 & 0xFFFF];
        out[i + 2] = mean + sigma * table[bits >> 32 & 0xFFFF];
        out[i + 3] = mean + sigma * table[bits >> 48];
    }
    uint64_t bits = mix(stream + counter * golden);
    for (; i < out.size(); ++i, bits >>= 16) out[i] = mean + sigma * table[bits & 0xFFFF];
}

}  // namespace moe::cli
