// Lowering of scales. A NaN scale is refused in every type: no code would say so afterwards.
#include "libmoe/weights/lower_scales.hpp"

#include <cmath>

#include "libmoe/formats/block.hpp"
#include "libmoe/formats/int_codes.hpp"
#include "libmoe/packed/ggml_scales.hpp"
#include "libmoe/packed/grid.hpp"
#include "libmoe/weights/source_codes.hpp"

namespace moe {
namespace {

[[noreturn]] void fail_nan(const ScaleSource& source, int64_t row, int64_t column) {
    fail(MOE_ERROR_UNSUPPORTED, "{}: the scale of row {}, column {} is NaN", source.what, row,
         column);
}

// An E4M3 scale as it is packed; its codes become (code ^ flip) & keep.
struct Nvfp4Scale {
    uint8_t byte;
    uint8_t flip;
    uint8_t keep;
    bool is_nan;
};

constexpr uint8_t rebias_e4m3(uint8_t magnitude) {
    if (magnitude >= 8) return static_cast<uint8_t>(magnitude + (3 << 3));
    const int32_t exponent = std::bit_width(magnitude) - 1;  // m 2^-9 = 2^(exponent-9) (1 + ...)
    return static_cast<uint8_t>((exponent + 1) << 3 | ((magnitude << (3 - exponent)) & 7));
}

constexpr Nvfp4Scale scale_of_magnitude(uint8_t magnitude) {
    if (magnitude == 0) return {.byte = 0, .flip = 0, .keep = 8, .is_nan = false};
    return {.byte = rebias_e4m3(magnitude), .flip = 0, .keep = 15, .is_nan = false};
}

// ggml's (formats/nvfp4_gguf.cpp): the sign does not count, 0x7F is 0 and 0xFF is 480.
struct Nvfp4Scales {
    Nvfp4Scale of[256];
    Nvfp4Scale of_gguf[256];

    constexpr Nvfp4Scales() : of(), of_gguf() {
        for (int32_t code = 0; code < 256; ++code) {
            const auto magnitude = static_cast<uint8_t>(code & 0x7F);
            of[code] = scale_of_magnitude(magnitude);
            of[code].flip = static_cast<uint8_t>(code >> 7 << 3);
            of[code].is_nan = magnitude == 0x7F;
            of_gguf[code] = scale_of_magnitude(code == 0x7F ? uint8_t{0} : magnitude);
        }
    }
};
constexpr Nvfp4Scales nvfp4_scales;

void change_codes(uint8_t* codes, int32_t count, uint8_t flip, uint8_t keep) {
    constexpr uint64_t every = 0x0101010101010101u;
    for (int32_t i = 0; i < count; i += 8) {
        uint64_t eight;
        std::memcpy(&eight, codes + i, 8);
        eight = (eight ^ every * flip) & every * keep;
        std::memcpy(codes + i, &eight, 8);
    }
}

// One row of scales on its way: group by group.
struct Row {
    const ScaleSource& source;
    int64_t row;
    int64_t column;
    int32_t n_columns;
    int32_t tile_row;
    uint8_t* codes;
    std::byte* scales;

    int32_t groups(int32_t size) const { return (n_columns + size - 1) / size; }
    RowScales from() const { return row_scales(source.matrix, row, column); }
};

void lower_nvfp4(const Row& row) {
    const Matrix& matrix = row.source.matrix;
    const bool is_gguf = !matrix.scales;
    const RowScales from =
        is_gguf ? RowScales{gguf_block(matrix, row.row, row.column, 64, 36), 1} : row.from();
    const auto& scales = is_gguf ? nvfp4_scales.of_gguf : nvfp4_scales.of;
    for (int32_t s = 0; s < row.groups(16); ++s) {
        const Nvfp4Scale& scale = scales[load<uint8_t>(from.at(s))];
        if (scale.is_nan) fail_nan(row.source, row.row, row.column + 16 * s);
        store(row.scales + scale_offset(row.tile_row, s, 4), scale.byte);
        if (scale.flip || scale.keep != 15)
            change_codes(row.codes + 16 * s, 16, scale.flip, scale.keep);
    }
}

uint8_t e8m0_at(const Matrix& matrix, int64_t row, int64_t column) {
    return load<uint8_t>(matrix.scales ? row_scales(matrix, row, column).at(0)
                                       : gguf_block(matrix, row, column, 32, 17));
}

void lower_mxfp4(const Row& row) {
    for (int32_t s = 0; s < row.groups(32); ++s) {
        const int32_t exponent = e8m0_at(row.source.matrix, row.row, row.column + 32 * s);
        const int32_t relative = std::max(exponent - row.source.largest_exponent + 127, 0);
        store(row.scales + scale_offset(row.tile_row, s, 2), static_cast<uint8_t>(relative));
        if (relative == 0) change_codes(row.codes + 32 * s, 32, 0, 8);
    }
}

void copy_e4m4(const Row& row) {
    const RowScales from = row.from();
    for (int32_t s = 0; s < row.groups(32); ++s)
        row.scales[scale_offset(row.tile_row, s, 2)] = *from.at(s);
}

void copy_f32(const Row& row) {
    const RowScales from = row.from();
    for (int32_t s = 0; s < row.groups(32); ++s) {
        const float scale = load<float>(from.at(s));
        if (std::isnan(scale)) fail_nan(row.source, row.row, row.column + 32 * s);
        store(row.scales + 4 * scale_offset(row.tile_row, s, 2), scale);
    }
}

bool is_f16_nan(const std::byte* at) {
    return (load<uint16_t>(at) & 0x7FFFu) > 0x7C00u;
}

void copy_q8_0(const Row& row) {
    for (int32_t s = 0; s < row.groups(32); ++s) {
        const int64_t column = row.column + 32 * s;
        const std::byte* d = gguf_block(row.source.matrix, row.row, column, 32, 34);
        if (is_f16_nan(d)) fail_nan(row.source, row.row, column);
        std::memcpy(row.scales + 2 * scale_offset(row.tile_row, s, 2), d, 2);
    }
}

// Where a block of ggml has what the packed scale record keeps, and where the float16 of that are.
struct GgmlScaleSource {
    int32_t begin;
    int32_t bytes;
    int32_t factors = 0;  // in the record
    int32_t n_factors = 1;
    int32_t tail = 0;  // q2_k: its factors, after the codes
};

GgmlScaleSource ggml_scale_source(PackedType type) {
    switch (type) {
        case PackedType::q4_k:
        case PackedType::q5_k:
        case PackedType::q4_1:
        case PackedType::q5_1:
            return {.begin = 0, .bytes = ggml_scale_bytes(type), .n_factors = 2};
        case PackedType::q2_k:
            return {.begin = 0, .bytes = 16, .factors = 16, .n_factors = 2, .tail = 80};
        case PackedType::q3_k:
            return {.begin = 96, .bytes = 14, .factors = 12};
        case PackedType::q6_k:
            return {.begin = 192, .bytes = 18, .factors = 16};
        default:
            return {.begin = 0, .bytes = ggml_scale_bytes(type)};
    }
}

// The scale records of a row; superblock scales once for their four blocks.
void copy_ggml_scales(const Row& row) {
    const PackedType type = row.source.type;
    const FormatTraits& traits = *row.source.matrix.traits;
    if (row.column % traits.block_columns) return;
    const GgmlScaleSource from = ggml_scale_source(type);
    for (int32_t c = 0; c < row.n_columns; c += traits.block_columns) {
        const int64_t column = row.column + c;
        const std::byte* block = gguf_block(row.source.matrix, row.row, column,
                                            traits.block_columns, traits.block_bytes);
        std::byte* to = row.scales + ggml_scale_offset(type, 4, row.tile_row, c);
        std::memcpy(to, block + from.begin, static_cast<size_t>(from.bytes));
        if (from.tail) std::memcpy(to + from.bytes, block + from.tail, 4);
        for (int32_t i = 0; i < from.n_factors; ++i)
            if (is_f16_nan(to + from.factors + 2 * i)) fail_nan(row.source, row.row, column);
    }
}

// bfloat16 below 2^-17 may lose bits, at most half of the smallest float16 (2^-25).
uint16_t narrow_to_f16(const Row& row, int64_t column, float value, const char* name) {
    if (!(std::abs(value) <= 65504.0f))
        fail(MOE_ERROR_UNSUPPORTED,
             "{}: the {} of row {}, column {} is {}, which the packed layout has no float16 for",
             row.source.what, name, row.row, column, value);
    return float_to_f16(value);
}

// Scale and bias of any group, for every 32 columns of it. Kernels of 16-bit operands multiply by
// how far a code is from the middle of its type, and round scale and bias for it, so codes of fewer
// bits are moved there. That rounds the bias here, which float32 activations would show.
void lower_affine(const Row& row) {
    const Matrix& matrix = row.source.matrix;
    const GridParts& parts = *matrix.traits->parts;
    const moe_type type = matrix.format.scale_type;
    const int32_t moved = row.source.keeps_biases ? 0
                                                  : (1 << (code_bits(row.source.type) - 1)) -
                                                        (1 << (matrix.format.bits - 1));
    for (int32_t c = 0; c < row.n_columns; c += 32) {
        const int64_t column = row.column + c;
        std::byte number[4];
        std::byte* to = row.scales + ggml_scale_offset(row.source.type, 4, row.tile_row, c);
        parts.scale(matrix, row.row, column, number);
        const uint16_t scale = narrow_to_f16(row, column, scale_value(type, number, 0), "scale");
        store(to, scale);
        parts.bias(matrix, row.row, column, number);
        const float bias = scale_value(type, number, 0);
        narrow_to_f16(row, column, bias, "bias");  // is refused by its own name
        store(to + 2,
              narrow_to_f16(row, column, bias - static_cast<float>(moved) * f16_to_float(scale),
                            "bias less a few scales"));
        for (int32_t i = 0; i < 32; ++i) row.codes[c + i] += static_cast<uint8_t>(moved);
    }
}

// The records that begin in the block: a group may have several.
void lower_grid(const Row& row) {
    const Matrix& matrix = row.source.matrix;
    const GridParts& parts = *matrix.traits->parts;
    const PackedType type = row.source.type;
    const int32_t columns = grid_record_columns(type), offset = scale_offset(row.tile_row, 0, 1);
    for (int64_t k = row.column; k < row.column + row.n_columns; k += 16) {
        if (k % columns != 0) continue;
        std::byte* record = row.scales + grid_record(type, static_cast<int32_t>(k - row.column));
        parts.scale(matrix, row.row, k, record + offset * grid_scale_bytes(type));
        if (std::isnan(grid_scale(type, record, offset))) fail_nan(row.source, row.row, k);
        if (grid_zero_of(type) == GridZero::middle) continue;
        const int32_t more = grid_zero_of(type) == GridZero::packed_minus_one ? 1 : 0;
        const auto zero = static_cast<uint8_t>(parts.zero(matrix, row.row, k) - more);
        std::byte* zeros = record + 16 * grid_scale_bytes(type);
        if (code_bits(type) > 4) {
            store(zeros + offset, zero);
            continue;
        }
        const int32_t shift = row.tile_row / 8 * 4;
        const int32_t kept = load<uint8_t>(zeros + row.tile_row % 8) & 0xF0 >> shift;
        store(zeros + row.tile_row % 8, static_cast<uint8_t>(kept | zero << shift));
    }
}

// Groups of 32 columns by 8 rows.
void lower_e4m3(const Row& row) {
    if (row.tile_row % 8) return;
    const moe_type type = row.source.matrix.format.scale_type;
    for (int32_t s = 0; s < row.groups(32); ++s) {
        const int64_t column = row.column + 32 * s;
        const std::byte* from = row_scales(row.source.matrix, row.row, column).at(0);
        const float scale = type == MOE_TYPE_F8_E8M0 ? e8m0_to_f32(load<uint8_t>(from))
                                                     : scale_value(type, from, 0);
        if (std::isnan(scale)) fail_nan(row.source, row.row, column);
        store(row.scales + 4 * (2 * s + row.tile_row / 8), scale);
    }
}

// Groups of `group` that begin `phase` before 0 must meet [0, count) on multiples of `step` only.
void check_axis(int32_t phase, int64_t group, int64_t count, int32_t step, const char* axis,
                const char* what) {
    if (phase % step == 0 || phase + count <= group) return;
    fail(
        MOE_ERROR_UNSUPPORTED,
        "{}: begins at {} {} of a scale group of {}, the packed layout needs a multiple of {}: the "
        "nearest are {} and {}",
        what, axis, phase, group, step, phase / step * step, (phase / step + 1) * step);
}

// Of a view of a whole matrix: blocks may follow each other without regard for rows, and columns
// may have any group.
void check_whole_grid(const Matrix& source, PackedType type, const char* what) {
    const int64_t group = group_extent(source.format.group_columns);
    if (source.format.type == MOE_TYPE_CODEBOOK && source.whole_columns % group != 0)
        fail(MOE_ERROR_UNSUPPORTED,
             "{}: rows of {} columns begin inside of scale groups of {}, which have no packed form",
             what, source.whole_columns, group);
    if (source.format.act_order && source.columns != source.whole_columns)
        fail(MOE_ERROR_UNSUPPORTED, "{}: {} of {} columns with act_order have no packed form", what,
             source.columns, source.whole_columns);
    check_axis(static_cast<int32_t>(source.column_begin % group), group, source.columns,
               is_grid(type) ? source.format.group_columns : 32, "column", what);
}

}  // namespace

void check_scale_grid(const Matrix& source, PackedType type, const char* what) {
    if (!source.scales) return;
    const moe_format& format = source.format;
    if (source.traits->unsliceable_bytes) return check_whole_grid(source, type, what);
    const bool is_e4m3 = type == PackedType::e4m3;
    check_axis(source.scale_row_phase, group_extent(format.group_rows), source.rows,
               is_e4m3 ? 8 : 1, "row", what);
    check_axis(source.scale_column_phase, group_extent(format.group_columns), source.columns,
               is_e4m3 ? 32 : format.group_columns, "column", what);
}

int32_t largest_exponent(const Matrix& source, const char* what) {
    int32_t largest = 0;
    for (int64_t row = 0; row < source.rows; ++row)
        for (int64_t column = 0; column < source.columns; column += 32)
            largest = std::max<int32_t>(largest, e8m0_at(source, row, column));
    if (largest < 255) return largest;
    for (int64_t row = 0; row < source.rows; ++row)
        for (int64_t column = 0; column < source.columns; column += 32)
            if (e8m0_at(source, row, column) == 255)
                fail_nan({source, PackedType::mxfp4, what}, row, column);
    return largest;
}

void lower_scales(const ScaleSource& source, int64_t row, int64_t column, int32_t n_columns,
                  int32_t tile_row, uint8_t* codes, std::byte* scales) {
    const Row one{source, row, column, n_columns, tile_row, codes, scales};
    switch (traits(source.type).scales) {
        case ScaleScheme::none:
            return;
        case ScaleScheme::f32_of_8_rows:
            return lower_e4m3(one);
        case ScaleScheme::ue5m3:
            return lower_nvfp4(one);
        case ScaleScheme::e8m0:
            return lower_mxfp4(one);
        case ScaleScheme::f16:
            return copy_q8_0(one);
        case ScaleScheme::e4m4:
            return copy_e4m4(one);
        case ScaleScheme::f32:
            return copy_f32(one);
        case ScaleScheme::ggml_block:
            return source.matrix.scales ? lower_affine(one) : copy_ggml_scales(one);
        case ScaleScheme::ggml_superblock:
            return copy_ggml_scales(one);
        case ScaleScheme::grid:
            return lower_grid(one);
    }
}

}  // namespace moe
