// int8_grid: two's-complement bytes row by row, [rows, columns], and a float32 scale per group of
// group_rows x group_columns, -1 being all of them: [1 or rows, ...] as ceil counts. Read only.
//   W[n, k] = code * scale[n / group_rows, k / group_columns]                   one rounding
// What bitsandbytes calls SCB is 127 times the scale of a row (group_rows 1, group_columns -1); the
// checkpoint reader divides.
#include "libmoe/formats/grid_scaled.hpp"

namespace moe {
namespace {

struct Int8Value {
    static float of(const std::byte* address) { return static_cast<float>(load<int8_t>(address)); }
};

bool accepts(const moe_format& format) {
    moe_format plain = format;
    plain.group_rows = int8_grid_format.format.group_rows;
    plain.group_columns = int8_grid_format.format.group_columns;
    return same_format(plain, int8_grid_format.format) && is_group(format.group_rows) &&
           is_group(format.group_columns);
}

constexpr moe_format format() {
    moe_format format = format_of(MOE_TYPE_I8);
    format.group_rows = 1;
    format.group_columns = -1;
    format.scale_type = MOE_TYPE_F32;
    return format;
}

}  // namespace

constinit const FormatTraits int8_grid_format = {.name = "int8_grid",
                                                 .format = format(),
                                                 .block_rows = 1,
                                                 .block_columns = 1,
                                                 .block_bytes = 1,
                                                 .scale_bytes = 4,
                                                 .decode = decode_grid<Int8Value, MOE_TYPE_F32>,
                                                 .encode = nullptr,
                                                 .accepts = accepts,
                                                 .parts = &grid_parts<0x80>};

}  // namespace moe
