// recipe.cpp - pieces and matrices, whatever the container.
#include "recipe.hpp"

#include <algorithm>
#include <cmath>

#include "floats.hpp"
#include "gaussian.hpp"

namespace moe::cli {
namespace {

// Large plain tensors are made in parts of so many elements, by several threads.
constexpr int64_t plain_part = int64_t{1} << 24;

}  // namespace

uint64_t Recipe::total_bytes() const {
    uint64_t total = 0;
    for (const Piece& piece : pieces) total += piece.bytes;
    return total;
}

int32_t RecipeBuilder::piece(const std::string& name, const std::string& dtype,
                             std::vector<int64_t> shape, uint64_t bytes) {
    Piece piece;
    piece.name = name;
    piece.dtype = dtype;
    piece.shape = std::move(shape);
    piece.bytes = bytes;
    recipe_.pieces.push_back(std::move(piece));
    return static_cast<int32_t>(recipe_.pieces.size()) - 1;
}

void RecipeBuilder::plain(const std::string& name, const std::string& type,
                          const std::vector<int64_t>& shape, float mean, float sigma) {
    const moe_format format = format_by_name(type);
    int64_t elements = 1;
    for (const int64_t size : shape) elements *= size;
    const uint64_t element = element_bytes(format.type);
    const int32_t data =
        piece(name, dtype_of(type), shape, static_cast<uint64_t>(elements) * element);
    recipe_.pieces.back().ggml_type = type == "f32" ? 0 : (type == "f16" ? 1 : 30);
    for (int64_t first = 0; first < elements; first += plain_part) {
        Matrix matrix;
        matrix.stream = stream_of(seed_, name, static_cast<uint64_t>(first));
        matrix.rows = 1;
        matrix.columns = std::min(plain_part, elements - first);
        matrix.mean = mean;
        matrix.sigma = sigma;
        matrix.format = format;
        matrix.data = {data, static_cast<uint64_t>(first) * element};
        recipe_.matrices.push_back(matrix);
    }
}

void RecipeBuilder::stack(const std::string& stream_name, int64_t n, int64_t rows, int64_t columns,
                          const moe_format& format, float sigma, int32_t data, int32_t scales,
                          int32_t global_scale) {
    const FormatSize size = format_size(format, rows, columns);
    for (int64_t i = 0; i < n; ++i) {
        const auto index = static_cast<uint64_t>(i);
        Matrix matrix;
        matrix.stream = stream_of(seed_, stream_name, index);
        matrix.rows = rows;
        matrix.columns = columns;
        matrix.sigma = sigma;
        matrix.format = format;
        matrix.data = {data, index * size.data};
        matrix.scales = {scales, index * size.scales};
        matrix.global_scale = {global_scale, index * sizeof(float)};
        recipe_.matrices.push_back(matrix);
    }
}

float weight_sigma(int64_t columns) {
    return 1.0F / std::sqrt(static_cast<float>(columns));
}

std::string dtype_of(const std::string& type) {
    if (type == "f32") return "F32";
    return type == "f16" ? "F16" : "BF16";
}

FormatSize format_size(const moe_format& format, int64_t rows, int64_t columns) {
    FormatSize size;
    check(moe_format_size(&format, rows, columns, &size.data, &size.scales));
    return size;
}

}  // namespace moe::cli
