// e5m2_grid: E5M2 codes, one byte each, row by row: the upper half of a float16. Alone, or under a
// grid of scales as fp8_grid has it. Read only.
//   W[n, k] = f16(code[n, k] << 8) * scale[n / group_rows, k / group_columns]   exact without a
//   scale and for scales of up to 16 bits, else one rounding
#include "libmoe/formats/grid_scaled.hpp"

namespace moe {
namespace {

struct E5m2Value {
    static float of(const std::byte* address) {
        return f16_to_float(static_cast<uint16_t>(load<uint8_t>(address) << 8));
    }
};

void decode_alone(const Matrix& matrix, int64_t row, int64_t column, int64_t count, float* out) {
    const int64_t step = bytes_of_column(matrix);
    const std::byte* codes = matrix.data + row * matrix.row_stride + column * step;
    for (int64_t i = 0; i < count; ++i) out[i] = E5m2Value::of(codes + i * step);
}

template <moe_type scale_type>
bool accepts(const moe_format& format) {
    moe_format plain = format_of(MOE_TYPE_F8_E5M2);
    plain.group_rows = format.group_rows;
    plain.group_columns = format.group_columns;
    plain.scale_type = scale_type;
    return same_format(plain, format) && is_group(format.group_rows) &&
           is_group(format.group_columns);
}

constexpr FormatTraits alone() {
    return {.name = "f8_e5m2",
            .format = format_of(MOE_TYPE_F8_E5M2),
            .block_rows = 1,
            .block_columns = 1,
            .block_bytes = 1,
            .scale_bytes = 0,
            .decode = decode_alone,
            .encode = nullptr};
}

template <moe_type scale_type>
constexpr FormatTraits entry(const char* name) {
    FormatTraits traits = alone();
    traits.name = name;
    traits.format.group_rows = traits.format.group_columns = 128;
    traits.format.scale_type = scale_type;
    traits.scale_bytes = grid_scale_bytes<scale_type>;
    traits.decode = decode_grid<E5m2Value, scale_type>;
    traits.accepts = accepts<scale_type>;
    return traits;
}

}  // namespace

constinit const std::array<FormatTraits, 5> e5m2_formats = {
    alone(), entry<MOE_TYPE_F32>("e5m2_grid_f32"), entry<MOE_TYPE_F16>("e5m2_grid_f16"),
    entry<MOE_TYPE_BF16>("e5m2_grid_bf16"), entry<MOE_TYPE_F8_E8M0>("e5m2_grid_e8m0")};

}  // namespace moe
