// mxfp4: E2M1 codes, two per byte, even column in the low nibble; an E8M0 scale per 32 columns of a
// row, [rows, columns / 32].
//   W[n, k] = e2m1(code) * 2^(scale[n, k / 32] - 127)       exact; scale 0 is 2^-127, 0xFF is NaN
// The largest products overflow float32 to infinity (codes of 2 and more under scale 254).
// Encoding: scale = floor(log2(block amax)) - 2 + 127 within [0, 254] (0 for a block of zeros),
// code = the nearest E2M1 of w / 2^(scale - 127), ties to even, at most 6.
#include "libmoe/formats/block.hpp"
#include "libmoe/formats/entries.hpp"

namespace moe {
namespace {

constexpr int64_t group = 32;
constexpr int64_t group_bytes = group / 2;

void decode_group(const std::byte* __restrict codes, float scale, float* __restrict out) {
    for (int i = 0; i < group_bytes; ++i) {
        const E2m1Pair& pair = e2m1_pairs.pair[load<uint8_t>(codes + i)];
        out[2 * i] = pair.low * scale;
        out[2 * i + 1] = pair.high * scale;
    }
}

void decode(const Matrix& matrix, int64_t row, int64_t column, int64_t count, float* out) {
    const std::byte* codes = matrix.data + row * matrix.row_stride + column / 2;
    const RowScales scales = row_scales(matrix, row, column);
    for (int64_t i = 0; i < count / group; ++i)
        decode_group(codes + i * group_bytes, e8m0_to_f32(load<uint8_t>(scales.at(i))),
                     out + i * group);
}

void encode(const FormatTraits& traits, const float* source, int64_t rows, int64_t columns,
            const EncodeTarget& target) {
    require_finite(traits, source, rows, columns);
    for (int64_t i = 0; i < rows * columns / group; ++i) {
        const uint8_t scale = encode_e8m0_scale(source + i * group, group);
        store(target.scales + i, scale);
        encode_e2m1<group>(source + i * group, e8m0_to_f32(scale), target.data + i * group_bytes);
    }
}

constexpr moe_format format() {
    moe_format format = format_of(MOE_TYPE_E2M1);
    format.group_rows = 1;
    format.group_columns = group;
    format.scale_type = MOE_TYPE_F8_E8M0;
    format.packing = MOE_PACKING_NIBBLE_LOW_FIRST;
    return format;
}

}  // namespace

constinit const FormatTraits mxfp4_format = {.name = "mxfp4",
                                             .format = format(),
                                             .block_rows = 1,
                                             .block_columns = group,
                                             .block_bytes = group_bytes,
                                             .scale_bytes = 1,
                                             .decode = decode,
                                             .encode = encode};

}  // namespace moe
