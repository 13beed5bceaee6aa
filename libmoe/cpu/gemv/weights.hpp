// Which gemv format a weight format is, and a matrix as the gemv kernels read it.
#pragma once

#include "libmoe/cpu/gemv/gemv.hpp"
#include "libmoe/formats/matrix.hpp"

namespace moe::cpu {

// `none` where no kernel reads the format. interleaved: of a packed layout, in which some formats
// have interleaved rows.
GemvFormat gemv_format_of(const moe_format& format, bool interleaved = false);
// The same of a matrix: of the formats that may be transposed, another where this one is.
GemvFormat gemv_format_of(const Matrix& matrix);

// Activation rows before a matrix, and what kernels may do with them.
struct RowUse {
    moe_type type;
    bool to_int8;                  // the policy INT8
    bool for_panels;               // gemm kernels take them, too
    bool has_avx512bf16;           // the processor multiplies bfloat16
    bool is_computed = false;      // they may be float32 results that were not rounded to the type
    bool beside_computed = false;  // rows that are share their form
};

// The form in which the kernels of a family and a format want activations: as they are where these
// take float32 rows, else integers of one byte under the policy INT8 where the family has such
// kernels, of two bytes for activations of 16 bits, and of three for float32, whose results are
// exact to 1e-5.
Quantization quantization_for(const GemvFamily& family, GemvFormat format, const RowUse& use);
// The form of rows that kernels of both share.
Quantization merged(const Quantization& a, const Quantization& b);
bool reads(const GemvFamily& family, GemvFormat format);
// The gemm kernels of a family for rows in this form; empty where it has none.
GemmKernels gemm_kernels(const GemvFamily& family, GemvFormat format, const Quantization& rows);

// False where this matrix lies in a way that the kernels do not read: a slice that begins inside 32
// columns of a group, or transposed rows that do not touch. Scales in tiles are not described: they
// must be copied; neither are nested ones, and the caller multiplies x by pre_quant_scale.
bool describe_gemv_weights(const Matrix& matrix, GemvFormat format, GemvWeights& out);

// The order in which the gemv kernels of a format take columns.
ColumnOrder order_of(GemvFormat format);
// Does a kernel of integer activations take the sums of their low parts?
bool has_integer_codebook(GemvFormat format);
constexpr uint32_t bit_of(ColumnOrder order) {
    return 1u << static_cast<int>(order);
}
int64_t padded_columns(int64_t columns);
// Are float32 rows all that is wanted?
inline bool is_empty(const Quantization& how) {
    return !how.parts && !how.has_bf16 && !how.has_bf16_pair;
}
// Do the codes of a row lie one after another, at a distance from those of the next row?
bool rows_are_contiguous(const Matrix& matrix);
// Bytes of the codes of a row, wherever they lie; at least one.
int64_t row_bytes(const Matrix& matrix);

// Bytes of a quantized row; 0 where it is empty.
int64_t quantized_row_bytes(int64_t columns, const Quantization& how);
// Bytes from the first integers of a row to those in an order.
int64_t offset_of_order(int64_t columns, const Quantization& how, ColumnOrder order);

// Bytes of the scales of a row of a matrix whose scales are in tiles, and a copy of them for the
// rows [first, last).
int64_t untiled_row_bytes(const Matrix& matrix);
void copy_untiled_scales(const Matrix& matrix, int64_t first, int64_t last, std::byte* out);
// The scales of a row of a matrix of nested ones as float32: one more than columns / group_columns
// at most. Returns the columns from the begin of the first group to column 0.
int64_t copy_nested_scales(const Matrix& matrix, int64_t row, float* out);

// Floats of scratch memory for rows of some columns: of one decoded row, of copied scales, or of a
// row of activations with its integers.
constexpr int64_t gemv_scratch_floats(int64_t columns) {
    return 2 * ((columns + quantized_step - 1) / quantized_step * quantized_step);
}

}  // namespace moe::cpu
