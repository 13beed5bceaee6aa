// bnb_4bit: the 4-bit codes of bitsandbytes, NF4 or FP4. The elements of the matrix are numbered
// row by row, i = n * columns + k, and blocks of group_columns elements follow each other without
// regard for rows: a block may begin in one row and end in the next. Read only.
//   codes   one byte per two elements, the even i in the HIGH nibble
//   scales  a float32 per block; nested: a byte per block, the index of a value of nested_codebook
//   NF4     a table of 16 values; FP4: sign in bit 3, magnitudes by bits 0..2 as below, over 12
//   W[i] = table[code] * scale[i / group_columns]                              one rounding
// Nested: scale[b] = nested_codebook[byte[b]] * nested_scales[b / 256] + nested_offset, product and
// sum each rounded to float32.
#include "libmoe/formats/int_codes.hpp"

namespace moe {
namespace {

constexpr float nf4[16] = {-1.0f,
                           -0.6961928009986877f,
                           -0.5250730514526367f,
                           -0.39491748809814453f,
                           -0.28444138169288635f,
                           -0.18477343022823334f,
                           -0.09105003625154495f,
                           0.0f,
                           0.07958029955625534f,
                           0.16093020141124725f,
                           0.24611230194568634f,
                           0.33791524171829224f,
                           0.44070982933044434f,
                           0.5626170039176941f,
                           0.7229568362236023f,
                           1.0f};
constexpr float fp4[16] = {
    0.0f,  0.0625f / 12,  8.0f / 12,  12.0f / 12,  4.0f / 12,  6.0f / 12,  2.0f / 12,  3.0f / 12,
    -0.0f, -0.0625f / 12, -8.0f / 12, -12.0f / 12, -4.0f / 12, -6.0f / 12, -2.0f / 12, -3.0f / 12};

bool accepts(const moe_format& format, const moe_format& own) {
    moe_format plain = format;
    plain.group_columns = own.group_columns;
    plain.codebook = own.codebook;
    return same_format(plain, own) && format.group_columns > 0 && is_group(format.group_columns) &&
           bnb_codebook(format.codebook);
}

bool accepts_plain(const moe_format& format) {
    return accepts(format, bnb_4bit_formats[0].format);
}

bool accepts_nested(const moe_format& format) {
    return accepts(format, bnb_4bit_formats[1].format);
}

MatrixBytes unsliceable_bytes(const moe_format& format, int64_t rows, int64_t columns) {
    require_countable(rows, columns);
    const uint64_t count =
        checked_multiply(static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), "elements");
    require(count <= INT64_MAX / 4, "a matrix of {} x {} weights is too large", rows, columns);
    MatrixBytes bytes{};
    bytes.data = (count + 1) / 2;
    const auto blocks =
        static_cast<uint64_t>(divide_up(static_cast<int64_t>(count), format.group_columns));
    bytes.scales = blocks * (format.nested_scales ? 1 : 4);
    return bytes;
}

float plain_scale(const Matrix& matrix, int64_t block) {
    return load<float>(matrix.scales + 4 * block);
}

int64_t element_at(const Matrix& matrix, int64_t row, int64_t column) {
    return (matrix.row_begin + row) * matrix.whole_columns + matrix.column_begin + column;
}

uint8_t code_at(const Matrix& matrix, int64_t element) {
    return load<uint8_t>(matrix.data + element / 2) >> (element % 2 ? 0 : 4) & 15;
}

void read_codes(const Matrix& matrix, int64_t row, int64_t column, int64_t count, uint8_t* out) {
    const int64_t first = element_at(matrix, row, column);
    for (int64_t i = 0; i < count; ++i) out[i] = code_at(matrix, first + i);
}

template <float (*scale_of)(const Matrix&, int64_t)>
void read_scale(const Matrix& matrix, int64_t row, int64_t column, std::byte* out) {
    store(out, scale_of(matrix, element_at(matrix, row, column) / matrix.format.group_columns));
}

template <float (*scale_of)(const Matrix&, int64_t)>
constexpr GridParts parts{read_codes, read_scale<scale_of>, nullptr};

template <float (*scale_of)(const Matrix&, int64_t)>
void decode(const Matrix& matrix, int64_t row, int64_t column, int64_t count, float* out) {
    const float* table = bnb_codebook(matrix.format.codebook);
    const int64_t block = matrix.format.group_columns;
    int64_t element = element_at(matrix, row, column);
    for (int64_t i = 0; i < count;) {
        const int64_t end = std::min((element / block + 1) * block, element + count - i);
        const float scale = scale_of(matrix, element / block);
        for (; element < end; ++element, ++i) out[i] = table[code_at(matrix, element)] * scale;
    }
}

constexpr moe_format format(bool nested) {
    moe_format format = format_of(MOE_TYPE_CODEBOOK);
    format.bits = 4;
    format.group_rows = 1;
    format.group_columns = 64;
    format.scale_type = nested ? MOE_TYPE_U8 : MOE_TYPE_F32;
    format.packing = MOE_PACKING_NIBBLE_HIGH_FIRST;
    format.codebook = MOE_CODEBOOK_BNB_NF4;
    format.nested_scales = nested;
    return format;
}

}  // namespace

constinit const std::array<FormatTraits, 2> bnb_4bit_formats = {
    FormatTraits{.name = "bnb_4bit",
                 .format = format(false),
                 .block_rows = 1,
                 .block_columns = 1,
                 .block_bytes = 1,
                 .scale_bytes = 4,
                 .decode = decode<plain_scale>,
                 .encode = nullptr,
                 .accepts = accepts_plain,
                 .unsliceable_bytes = unsliceable_bytes,
                 .parts = &parts<plain_scale>},
    FormatTraits{.name = "bnb_4bit_nested",
                 .format = format(true),
                 .block_rows = 1,
                 .block_columns = 1,
                 .block_bytes = 1,
                 .scale_bytes = 1,
                 .decode = decode<nested_scale>,
                 .encode = nullptr,
                 .accepts = accepts_nested,
                 .unsliceable_bytes = unsliceable_bytes,
                 .parts = &parts<nested_scale>}};

const float* bnb_codebook(moe_codebook codebook) {
    if (codebook == MOE_CODEBOOK_BNB_NF4) return nf4;
    return codebook == MOE_CODEBOOK_BNB_FP4 ? fp4 : nullptr;
}

}  // namespace moe
