// Matrices for the format tests: deterministic values, and buffers in a format with the view of
// them.
#pragma once

#include <cmath>
#include <cstring>
#include <vector>

#include "libmoe/formats/format.hpp"
#include "tests/clients/support/normal.hpp"

namespace moe::test {

// The same sequence on every platform (splitmix64).
class Random {
  public:
    explicit Random(uint64_t seed) : state_(seed) {}

    uint64_t next() {
        uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        return z ^ (z >> 31);
    }
    double uniform() { return (static_cast<double>(next() >> 11) + 0.5) * 0x1p-53; }
    double gaussian() { return clients::nearly_normal(next()); }

  private:
    uint64_t state_;
};

inline std::vector<float> gaussian(int64_t count, uint64_t seed = 1) {
    Random random(seed);
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = static_cast<float>(random.gaussian());
    return values;
}

inline std::vector<std::byte> random_bytes(uint64_t count, uint64_t seed) {
    Random random(seed);
    std::vector<std::byte> bytes(count);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next() & 0xFF);
    return bytes;
}

// Where the f16 fields of a block are, in bytes; none in other formats.
inline std::vector<size_t> f16_places(const moe_format& format) {
    if (format.type != MOE_TYPE_GGUF) return {};
    switch (format.block_id) {
        case 3:   // q4_1
        case 7:   // q5_1
        case 12:  // q4_k
        case 13:  // q5_k
            return {0, 2};
        case 10:  // q2_k
            return {80, 82};
        case 11:  // q3_k
            return {108};
        case 14:  // q6_k
            return {208};
        case 39:  // mxfp4_gguf
        case 40:  // nvfp4_gguf
            return {};
        default:
            return {0};
    }
}

// One dense matrix in a format, with its buffers.
struct Stored {
    const FormatTraits* traits;
    int64_t rows;
    int64_t columns;
    MatrixBytes bytes;
    std::vector<std::byte> data;
    std::vector<std::byte> scales;
    float global_scale = 1.0f;
    std::vector<float> codebook;

    Stored(const FormatTraits& format, int64_t n_rows, int64_t n_columns)
        : traits(&format),
          rows(n_rows),
          columns(n_columns),
          bytes(matrix_bytes(format, n_rows, n_columns)),
          data(bytes.data),
          scales(bytes.scales) {}

    Matrix view() const {
        Matrix matrix;
        matrix.format = traits->format;
        matrix.data = data.data();
        matrix.scales = scales.empty() ? nullptr : scales.data();
        matrix.codebook = codebook.empty() ? builtin_codebook(traits->format) : codebook.data();
        matrix.rows = rows;
        matrix.columns = columns;
        matrix.row_stride = static_cast<int64_t>(bytes.row_stride);
        matrix.scale_row_stride = static_cast<int64_t>(bytes.scale_row_stride);
        matrix.global_scale = global_scale;
        return matrix;
    }
    void encode(const float* source) {
        const EncodeTarget target{data.data(), scales.data(), &global_scale, codebook.data(),
                                  &traits->format};
        traits->encode(*traits, source, rows, columns, target);
    }
};

inline std::vector<float> decode_all(const Matrix& matrix, const FormatTraits& traits) {
    std::vector<float> out(static_cast<size_t>(matrix.rows * matrix.columns));
    for (int64_t row = 0; row < matrix.rows; ++row) {
        traits.decode(matrix, row, 0, matrix.columns, out.data() + row * matrix.columns);
    }
    return out;
}

inline std::vector<float> decode_all(const Stored& stored) {
    return decode_all(stored.view(), *stored.traits);
}

inline double relative_error(const std::vector<float>& exact, const std::vector<float>& got) {
    double difference = 0;
    double norm = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
        const double d = static_cast<double>(got[i]) - exact[i];
        difference += d * d;
        norm += static_cast<double>(exact[i]) * exact[i];
    }
    return std::sqrt(difference / norm);
}

// Equal to the bit, any NaN being equal to any other.
inline bool same_float(float a, float b) {
    return (std::isnan(a) && std::isnan(b)) || std::memcmp(&a, &b, sizeof a) == 0;
}

}  // namespace moe::test
