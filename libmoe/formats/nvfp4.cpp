// nvfp4: E2M1 codes, two per byte, even column in the low nibble; an E4M3 scale per 16 columns of a
// row, [rows, columns / 16]; one float32 scale of the whole matrix.
//   W[n, k] = (e2m1(code) * e4m3(scale[n, k / 16])) * global    the first product is exact, one
//   rounding
// Read only: the same with "/ global" (compressed-tensors); and either with a float32 per column
// that is meant for the activations (pre_quant_scale, ModelOpt's AWQ), with which W x = W' (x *
// pre): decoding gives W'[n, k] = W[n, k] * pre[k], one rounding more. Encoding: global = amax / (6
// * 448), scale = the nearest E4M3 of (block amax / 6) / global within [2^-9, 448] (1 for a block
// of zeros), code = the nearest E2M1 of w / (scale * global), ties to even. A matrix of zeros has
// global = 1.
#include "libmoe/formats/block.hpp"
#include "libmoe/formats/entries.hpp"

namespace moe {
namespace {

constexpr int64_t group = 16;
constexpr int64_t group_bytes = group / 2;

template <moe_global_scale rule>
float apply_global(float value, float global) {
    return rule == MOE_GLOBAL_SCALE_DIVIDE ? value / global : value * global;
}

template <moe_global_scale rule>
void decode_group(const std::byte* __restrict codes, float scale, float global,
                  float* __restrict out) {
    for (int i = 0; i < group_bytes; ++i) {
        const E2m1Pair& pair = e2m1_pairs.pair[load<uint8_t>(codes + i)];
        out[2 * i] = apply_global<rule>(pair.low * scale, global);
        out[2 * i + 1] = apply_global<rule>(pair.high * scale, global);
    }
}

template <moe_global_scale rule>
void decode(const Matrix& matrix, int64_t row, int64_t column, int64_t count, float* out) {
    const std::byte* codes = matrix.data + row * matrix.row_stride + column / 2;
    const RowScales scales = row_scales(matrix, row, column);
    for (int64_t i = 0; i < count / group; ++i) {
        decode_group<rule>(codes + i * group_bytes, e4m3_to_f32(load<uint8_t>(scales.at(i))),
                           matrix.global_scale, out + i * group);
    }
}

void encode(const FormatTraits& traits, const float* source, int64_t rows, int64_t columns,
            const EncodeTarget& target) {
    require_finite(traits, source, rows, columns);
    const int64_t count = rows * columns;
    *target.global_scale = encode_nvfp4_global(source, count);
    for (int64_t i = 0; i < count / group; ++i) {
        const float* values = source + i * group;
        const uint8_t scale = encode_nvfp4_scale(values, group, *target.global_scale);
        store(target.scales + i, scale);
        encode_e2m1<group>(values, e4m3_to_f32(scale) * *target.global_scale,
                           target.data + i * group_bytes);
    }
}

template <moe_global_scale rule>
void decode_with_pre(const Matrix& matrix, int64_t row, int64_t column, int64_t count, float* out) {
    decode<rule>(matrix, row, column, count, out);
    for (int64_t i = 0; i < count; ++i) out[i] *= matrix.pre_quant_scale[column + i];
}

template <moe_global_scale rule>
constexpr FormatTraits entry(const char* name, decltype(FormatTraits::encode) encode) {
    moe_format format = format_of(MOE_TYPE_E2M1);
    format.group_rows = 1;
    format.group_columns = group;
    format.scale_type = MOE_TYPE_F8_E4M3;
    format.global_scale = rule;
    format.packing = MOE_PACKING_NIBBLE_LOW_FIRST;
    return {.name = name,
            .format = format,
            .block_rows = 1,
            .block_columns = group,
            .block_bytes = group_bytes,
            .scale_bytes = 1,
            .decode = decode<rule>,
            .encode = encode};
}

template <moe_global_scale rule>
constexpr FormatTraits pre_quant_entry(const char* name) {
    FormatTraits traits = entry<rule>(name, nullptr);
    traits.format.pre_quant_scale = 1;
    traits.decode = decode_with_pre<rule>;
    return traits;
}

}  // namespace

constinit const FormatTraits nvfp4_format = entry<MOE_GLOBAL_SCALE_MULTIPLY>("nvfp4", encode);
constinit const FormatTraits nvfp4_divide_format =
    entry<MOE_GLOBAL_SCALE_DIVIDE>("nvfp4_divide", nullptr);
constinit const std::array<FormatTraits, 2> nvfp4_pre_quant_formats = {
    pre_quant_entry<MOE_GLOBAL_SCALE_MULTIPLY>("nvfp4_pre_quant"),
    pre_quant_entry<MOE_GLOBAL_SCALE_DIVIDE>("nvfp4_divide_pre_quant")};

}  // namespace moe
