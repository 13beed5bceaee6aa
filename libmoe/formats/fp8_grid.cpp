// fp8: E4M3 codes, one byte each, row by row, and a grid of scales, row by row: one per group of
// group_rows x group_columns, ceil(rows / group_rows) x ceil(columns / group_columns) of them. The
// groups at the edges are smaller, codes are never padded; a group of -1 is all rows or columns.
//   W[n, k] = e4m3(code[n, k]) * scale[n / group_rows, k / group_columns]      one rounding; exact
//   with E8M0, f16 and bf16 scales
// fp8_128x128 is the one with a name: groups of 128 x 128, float32 scales. Encoding: scale = amax /
// 448, rounded to the type of the scales (1 where that is 0, 65504 beyond f16); E8M0: floor(log2
// amax) - 8 + 127, at least 0; code = the nearest E4M3 of w / scale, ties to even, at most 448.
// Groups in use: -1 x -1 (per tensor), 1 x -1 (per channel), 1 x 32 with E8M0 (MXFP8), 128 x 128
// and 32 x 32 with E8M0.
#include "libmoe/formats/grid_scaled.hpp"

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

struct E4m3Value {
    static float of(const std::byte* address) { return e4m3.value[load<uint8_t>(address)]; }
};

struct Extent {
    int64_t row, column, rows, columns;
};

float largest_in(const float* source, int64_t stride, const Extent& extent) {
    float largest = 0;
    for (int64_t r = 0; r < extent.rows; ++r) {
        const float* values = source + (extent.row + r) * stride + extent.column;
        largest = std::max(largest, largest_magnitude(values, extent.columns));
    }
    return largest;
}

// Stores the scale of a group by its largest magnitude.
template <moe_type scale_type>
void store_scale(float largest, std::byte* address) {
    if constexpr (scale_type == MOE_TYPE_F8_E8M0) {
        const auto exponent = static_cast<int>(std::bit_cast<uint32_t>(largest) >> 23);
        store(address, static_cast<uint8_t>(std::max(exponent - 8, 0)));
    } else {
        store_float_scale(scale_type, largest / 448.0f, address);
    }
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

template <moe_type scale_type>
void encode(const FormatTraits& traits, const float* source, int64_t rows, int64_t columns,
            const EncodeTarget& target) {
    require_finite(traits, source, rows, columns);
    const moe_format& format = target.format ? *target.format : traits.format;
    const int64_t group_rows = group_extent(format.group_rows);
    const int64_t group_columns = group_extent(format.group_columns);
    std::byte* scales = target.scales;
    for (int64_t row = 0; row < rows; row += group_rows) {
        for (int64_t column = 0; column < columns; column += group_columns) {
            const Extent extent{row, column, std::min(group_rows, rows - row),
                                std::min(group_columns, columns - column)};
            store_scale<scale_type>(largest_in(source, columns, extent), scales);
            encode_block(source, columns, extent, grid_scale<scale_type>(scales, 0), target.data);
            scales += traits.scale_bytes;
        }
    }
}

template <moe_type scale_type>
bool accepts(const moe_format& format) {
    moe_format plain = format_of(MOE_TYPE_F8_E4M3);
    plain.group_rows = format.group_rows;
    plain.group_columns = format.group_columns;
    plain.scale_type = scale_type;
    return same_format(plain, format) && is_group(format.group_rows) &&
           is_group(format.group_columns);
}

template <moe_type scale_type>
constexpr FormatTraits entry(const char* name) {
    moe_format format = format_of(MOE_TYPE_F8_E4M3);
    format.group_rows = block;
    format.group_columns = block;
    format.scale_type = scale_type;
    return {.name = name,
            .format = format,
            .block_rows = 1,
            .block_columns = 1,
            .block_bytes = 1,
            .scale_bytes = grid_scale_bytes<scale_type>,
            .decode = decode_grid<E4m3Value, scale_type>,
            .encode = encode<scale_type>};
}

template <moe_type scale_type>
constexpr FormatTraits family(const char* name) {
    FormatTraits traits = entry<scale_type>(name);
    traits.accepts = accepts<scale_type>;
    traits.parts = &grid_parts<0>;
    return traits;
}

}  // namespace

constinit const FormatTraits fp8_128x128_format = entry<MOE_TYPE_F32>("fp8_128x128");
constinit const FormatTraits fp8_128x128_e8m0_format = entry<MOE_TYPE_F8_E8M0>("fp8_128x128_e8m0");
constinit const std::array<FormatTraits, 4> fp8_grid_formats = {
    family<MOE_TYPE_F32>("fp8_grid_f32"), family<MOE_TYPE_F16>("fp8_grid_f16"),
    family<MOE_TYPE_BF16>("fp8_grid_bf16"), family<MOE_TYPE_F8_E8M0>("fp8_grid_e8m0")};

}  // namespace moe
