// The table of weight formats: what each is called, how large its blocks are, how a row decodes and
// how a matrix is encoded. One file per format beside this one defines it; the table in format.cpp
// names them all.
#pragma once

#include <memory_resource>
#include <span>

#include "libmoe/formats/matrix.hpp"

namespace moe {

struct EncodeTarget {
    std::byte* data;
    std::byte* scales;                   // null when the format has none
    float* global_scale;                 // null when the format has none
    const float* codebook;               // CODEBOOK formats: 2^bits values
    const moe_format* format = nullptr;  // of an entry for many; null: that of the entry
};

struct MatrixBytes {
    uint64_t row_stride;  // of dense codes
    uint64_t data;
    uint64_t scale_row_stride;  // of dense scales, per row of scale groups
    uint64_t scales;
    uint64_t zero_points;  // of formats that are not sliceable
};

// Columns of a block of 256 that are read at once, multiples of 32.
struct BlockColumns {
    int first;
    int count;
};

// The parts of an element of a format that has a code and a scale for each, of up to 8 bits, and
// perhaps a zero point; column is that of the view.
struct GridParts {
    void (*codes)(const Matrix& matrix, int64_t row, int64_t column, int64_t count, uint8_t* out);
    // In its type, or in float32 where that is Matrix::nested_scales and more.
    void (*scale)(const Matrix& matrix, int64_t row, int64_t column, std::byte* out);
    int32_t (*zero)(const Matrix& matrix, int64_t row, int64_t column);  // null: the middle
    // The codes of columns in any order; null: formats without act_order.
    void (*codes_at)(const Matrix& matrix, int64_t row, const uint32_t* columns, int64_t count,
                     uint8_t* out) = nullptr;
    // What is added to code * scale, in the scale's type; null: formats without.
    void (*bias)(const Matrix& matrix, int64_t row, int64_t column, std::byte* out) = nullptr;
};

struct FormatTraits {
    const char* name;
    moe_format format;   // what find_format compares, struct_size apart
    int32_t block_rows;  // smallest unit that decodes alone
    int32_t block_columns;
    int32_t block_bytes;  // codes of block_columns elements of one row
    int32_t scale_bytes;  // of one scale; 0: none or inside the block
    // out[i] = element (row, column + i), i < count, exact in float32 up to one rounding. column
    // and count are multiples of block_columns (any values when that is 1).
    void (*decode)(const Matrix& matrix, int64_t row, int64_t column, int64_t count, float* out);
    // Dense source [rows, columns]; null when this library does not write the format.
    void (*encode)(const FormatTraits& traits, const float* source, int64_t rows, int64_t columns,
                   const EncodeTarget& target);
    // An entry for many formats that differ in sizes of groups and the like: does it take this one?
    // null: only the equal of `format`. decode reads the numbers from Matrix::format.
    bool (*accepts)(const moe_format& format) = nullptr;
    // Not sliceable: formats whose buffers are no rows of blocks. A part is the whole and an offset
    // in it (Matrix::row_begin): the bytes of one matrix. Fails with MOE_ERROR_INVALID_ARGUMENT
    // where a size does not fit. null: rows of blocks.
    MatrixBytes (*unsliceable_bytes)(const moe_format& format, int64_t rows,
                                     int64_t columns) = nullptr;
    // ggml blocks with a code for each column: those of some columns of a block, blocks of less
    // than 256 as a whole. null: others.
    void (*read_codes)(const std::byte* block, BlockColumns columns, uint8_t* codes) = nullptr;
    const GridParts* parts = nullptr;
};

// What a format starts from: everything unset.
constexpr moe_format format_of(moe_type type) {
    moe_format format{};
    format.struct_size = sizeof(moe_format);
    format.type = type;
    return format;
}

// Those with a public name, in the order of moe.h; find_format by fields knows a few more.
std::span<const FormatTraits> all_formats();
// null when the library does not read it.
const FormatTraits* find_format(const moe_format& format);
const FormatTraits* find_format(const char* name);
// The same, failing with MOE_ERROR_UNSUPPORTED and a description of the format; `what` names whose
// it is.
const FormatTraits& get_format(const moe_format& format, const char* what);
bool same_format(const moe_format& a, const moe_format& b);
// A name for any format, known or not, into a fixed buffer.
struct FormatName {
    char text[64];
};
FormatName format_name(const moe_format& format);
// 0 for types that are not dense elements.
int32_t element_bytes(moe_type type);
// f32, f16 and bf16 without scales: what lies in memory is the weight.
bool is_plain(const moe_format& format);
// Elements of whole bytes: what lies in memory may be [columns, rows].
bool may_be_transposed(const moe_format& format);
const char* type_name(moe_type type);

// Rows or columns that share a scale: a group of -1 is all of them.
constexpr int64_t group_extent(int32_t group) {
    return group < 0 ? int64_t{1} << 40 : group;
}
constexpr int64_t nested_group = 256;  // scales that share a nested scale

// Sizes of one dense matrix of a format of the entry; fails with MOE_ERROR_INVALID_ARGUMENT when
// columns do not fit the block.
MatrixBytes matrix_bytes(const FormatTraits& traits, const moe_format& format, int64_t rows,
                         int64_t columns);
inline MatrixBytes matrix_bytes(const FormatTraits& traits, int64_t rows, int64_t columns) {
    return matrix_bytes(traits, traits.format, rows, columns);
}

// 2^bits values of a built-in codebook, those of E2M1 too; null for CODEBOOK_GIVEN and none.
const float* builtin_codebook(const moe_format& format);

}  // namespace moe
