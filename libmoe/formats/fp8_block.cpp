// fp8_128x128: E4M3 codes, one byte each, row by row; a float32 scale per block of 128 x 128, row
// by row, in a grid of ceil(rows / 128) x ceil(columns / 128). The blocks at the edges are smaller,
// codes are never padded.
//   W[n, k] = e4m3(code[n, k]) * scale[n / 128, k / 128]      one rounding
// Read only: the same with E8M0 scales. Encoding: scale = amax / 448 (1 for a block of zeros), code
// = the nearest E4M3 of w / scale, ties to even.
#include "libmoe/formats/block.hpp"
#include "libmoe/formats/entries.hpp"

namespace moe {
namespace {

constexpr int64_t block = 128;

struct E4m3Values {
    float value[256];

    constexpr E4m3Values() : value() {
        for (int code = 0; code < 256; ++code)
            value[code] = e4m3_to_f32(static_cast<uint8_t>(code));
    }
};

constexpr E4m3Values e4m3;

struct F32Scale {
    static constexpr moe_type type = MOE_TYPE_F32;
    static constexpr int32_t bytes = 4;
    static float decode(const std::byte* place) { return load<float>(place); }
};

struct E8m0Scale {
    static constexpr moe_type type = MOE_TYPE_F8_E8M0;
    static constexpr int32_t bytes = 1;
    static float decode(const std::byte* place) { return e8m0_to_f32(load<uint8_t>(place)); }
};

void decode_run(const std::byte* __restrict codes, float scale, int64_t count,
                float* __restrict out) {
    for (int64_t i = 0; i < count; ++i) out[i] = e4m3.value[load<uint8_t>(codes + i)] * scale;
}

// Runs between block edges; a slice may start inside a block.
template <class Scale>
void decode(const Matrix& matrix, int64_t row, int64_t column, int64_t count, float* out) {
    const std::byte* codes = matrix.data + row * matrix.row_stride + column;
    const std::byte* scales = scale_row(matrix, row, block);
    const int64_t phase = column + matrix.scale_column_phase;
    for (int64_t i = 0; i < count;) {
        const int64_t index = (phase + i) / block;
        const int64_t run = std::min((index + 1) * block - (phase + i), count - i);
        decode_run(codes + i, Scale::decode(scales + index * Scale::bytes), run, out + i);
        i += run;
    }
}

struct Extent {
    int64_t row, column, rows, columns;
};

float block_scale(const float* source, int64_t stride, const Extent& extent) {
    float largest = 0;
    for (int64_t r = 0; r < extent.rows; ++r) {
        const float* values = source + (extent.row + r) * stride + extent.column;
        largest = std::max(largest, largest_magnitude(values, extent.columns));
    }
    const float scale = largest / 448.0f;
    return scale > 0 ? scale : 1.0f;
}

void encode_block(const float* source, int64_t stride, const Extent& extent, float scale,
                  std::byte* codes) {
    for (int64_t r = 0; r < extent.rows; ++r) {
        const int64_t start = (extent.row + r) * stride + extent.column;
        for (int64_t i = start; i < start + extent.columns; ++i) {
            store(codes + i, f32_to_e4m3(source[i] / scale));
        }
    }
}

void encode(const FormatTraits& traits, const float* source, int64_t rows, int64_t columns,
            const EncodeTarget& target) {
    require_finite(traits, source, rows, columns);
    std::byte* scales = target.scales;
    for (int64_t row = 0; row < rows; row += block) {
        for (int64_t column = 0; column < columns; column += block) {
            const Extent extent{row, column, std::min(block, rows - row),
                                std::min(block, columns - column)};
            const float scale = block_scale(source, columns, extent);
            store(scales, scale);
            scales += sizeof scale;
            encode_block(source, columns, extent, scale, target.data);
        }
    }
}

template <class Scale>
constexpr FormatTraits entry(const char* name, decltype(FormatTraits::encode) encode) {
    moe_format format = format_of(MOE_TYPE_F8_E4M3);
    format.group_rows = block;
    format.group_columns = block;
    format.scale_type = Scale::type;
    return {.name = name,
            .format = format,
            .block_rows = 1,
            .block_columns = 1,
            .block_bytes = 1,
            .scale_bytes = Scale::bytes,
            .decode = decode<Scale>,
            .encode = encode};
}

}  // namespace

constinit const FormatTraits fp8_128x128_format = entry<F32Scale>("fp8_128x128", encode);
constinit const FormatTraits fp8_128x128_e8m0_format =
    entry<E8m0Scale>("fp8_128x128_e8m0", nullptr);

}  // namespace moe
