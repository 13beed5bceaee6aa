// The gemv kernels: products of some weight rows with up to six activation rows, read from the
// weights where they lie. A kernel is made of a format's dequantizer (cpu/dequant) and the loops of
// an instruction family (cpu/avx2, avx512vnni, neon, i8mm). The files of each include this one, so
// nothing in it is inline.
//
// Three kinds of activations. Formats with integer codes take quantized rows: every 32 columns are
// integers of 15 or 23 bits times a float32 scale, and the integers are two or three signed bytes.
// Some others take rows of bfloat16 from a processor that multiplies them, and all others take
// float32 rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "libmoe/cpu/gemm/gemm.hpp"
#include "moe/moe.h"

namespace moe::cpu {

// The formats that kernels read. `none` is read through float32 rows that the format's own decoder
// makes.
enum class GemvFormat : uint8_t {
    none,
    // integer codes
    q4_0,
    q4_1,
    q5_0,
    q5_1,
    q8_0,
    q2_k,
    q3_k,
    q4_k,
    q5_k,
    q6_k,
    iq4_nl,
    iq4_xs,
    iq2_xxs,
    iq2_xs,
    iq3_xxs,
    iq3_s,
    mxfp4_gguf,
    nvfp4_gguf,
    mxfp4,
    nvfp4,
    int4,
    int4_nibbles,
    fp4_grid,
    int8,
    // pack_quantized with any zero points: of four bits, eight bits, and other numbers of bits
    pack4,
    pack8,
    pack,
    // integers whose rows lie beside each other
    gptq2,
    gptq3,
    gptq4,
    gptq8,
    awq,
    // integers with act-order
    gptq2_act_order,
    gptq3_act_order,
    gptq4_act_order,
    gptq8_act_order,
    pack2_act_order,
    pack4_act_order,
    pack8_act_order,
    // integer codes in rows interleaved by 16 (libmoe/formats/interleaved.hpp)
    q4_0_x16,
    q4_1_x16,
    q8_0_x16,
    q4_k_x16,
    q5_k_x16,
    q6_k_x16,
    iq4_nl_x16,
    iq4_xs_x16,
    mxfp4_gguf_x16,
    nvfp4_gguf_x16,
    mxfp4_x16,
    nvfp4_x16,
    // values
    f32,
    f16,
    bf16,
    fp8,
    // values of a transposed matrix
    f32_transposed,
    f16_transposed,
    bf16_transposed,
    bnb4,  // nf4 and fp4
    // bit planes: with a built-in codebook, and with one of the caller's
    kbit2,
    kbit3,
    kbit4,
    kbit5,
    kbit2_given,
    kbit3_given,
    kbit4_given,
    kbit5_given,
};

// Columns of 256 as the codes of a dequantizer come: four vectors of 64 bytes. In lanes of four
// bytes each lane keeps to columns under one scale, from vector to vector where the format lets it,
// so that the vectors of one sum meet their scales once.
enum class ColumnOrder : uint8_t {
    halves_of_32,  // of each 128 columns first the first halves of 32, then the second ones
    halves_of_16,  // the same with 16
    even_odd,      // of each 128 columns first the even ones, then the odd ones
    nibble_rows,   // q4_k, q5_k
    split_halves,  // q6_k
    two_bit_rows,  // q2_k, q3_k
    natural,
    count
};

// The form of quantized activation rows. Such a row is, for its columns rounded up to a multiple
// of 256: scales [columns / 16], each 32 columns have theirs twice; the sums of 16 columns [columns
// / 16], both float32 and in the natural order; for each 256 columns the scales and then the sums
// of 32 columns, eight of each; and for each order, in that of the enum, bytes [columns / 64,
// parts, 64], the most significant part first. What is beyond the row is zero.
struct Quantization {
    int32_t parts = 0;    // bytes of an integer; 0: no scales, sums and integers
    uint32_t orders = 0;  // bits, 1 << ColumnOrder
    // The row follows in bfloat16, [columns] in the natural order. Gemv and gemm kernels take it
    // where it is exact, gemm kernels alone where it was rounded.
    bool has_bf16 = false;
    bool has_words = false;  // before bfloat16, the integers follow as words; parts is 2 or 3
    // It follows in bfloat16, and what this rounded off in bfloat16, too: [2, columns]. Gemv
    // kernels take both, gemm kernels neither.
    bool has_bf16_pair = false;
    bool rounds_to_bf16 = false;
    // Gemm kernels of AMX take it for all weights that they round, not only for those of bfloat16.
    bool bf16_for_all = false;
    // Last come the sums of 32 columns of the low parts alone, [columns / 32] in float32 under
    // their scales; parts is 2. Only kernels of AVX-512 take them.
    bool has_low_sums = false;
    // Among the rows are float32 results that were not rounded to the type of the activations, so
    // that bfloat16 loses some of them. Float16 weights then keep float32.
    bool has_computed = false;
};
// Words are signed numbers of 16 bits, [columns / 32, parts - 1, 32]: the two most significant
// parts together, then the third one. Of each four columns they are 0, 2, 1 and 3.
constexpr int64_t quantized_step = 256;
// Float32 numbers of each kind before the integers of a row.
constexpr int64_t numbers_of_row(int64_t columns) {
    return (columns + quantized_step - 1) / quantized_step * 16;
}
// Bytes from the first integers of a row to its words.
int64_t offset_of_words(int64_t columns, const Quantization& how);
// Bytes from a row to its bfloat16, and to the sums of its low parts.
int64_t offset_of_bf16(int64_t columns, const Quantization& how);
int64_t offset_of_low_sums(int64_t columns, const Quantization& how);

// column[o][i] is the column in place i of 256 in order o.
struct ColumnOrders {
    uint8_t column[static_cast<int>(ColumnOrder::count)][quantized_step];
};
extern const ColumnOrders column_orders;

// One matrix. Rows are contiguous; scales of formats that keep them apart lie in rows, too. Of
// gptq, awq and transposed matrices the columns are contiguous: row_stride is from one word of
// codes of a row, or value, to the next, scale_row_stride from group to group. Of interleaved rows
// it is a sixteenth of a strip.
struct GemvWeights {
    const std::byte* data;
    const std::byte* scales;
    int64_t row_stride;
    int64_t scale_row_stride;
    int64_t columns;
    int64_t scale_rows;     // rows that share a row of scales
    int64_t scale_phase;    // of row 0 among them
    int64_t scale_shift;    // of grids: 2^scale_shift columns are under a scale, at least 5
    moe_type scale_type;    // F32, F16, BF16, E8M0 or E4M4, where it is a choice
    float global_scale;     // multiplies all
    const float* codebook;  // of the kbit formats and bnb4
    // The iq2 and iq3 formats have entries with a byte for each magnitude, and entries of two bytes
    // as iq_grids.hpp has them.
    const void* grid;
    const void* grid_entries;
    int64_t x_offset;        // bytes from the integers of a quantized row to those in its order
    int64_t x_natural;       // the same to those in the natural order
    int64_t x_bf16;          // bytes from a quantized row to its bfloat16
    int64_t x_bf16_low;      // the same to what that rounded off
    int64_t x_words;         // bytes from the integers of a quantized row to its words
    int64_t x_low_sums;      // bytes from a quantized row to the sums of its low parts
    const uint8_t* ordered;  // the columns in its order (ColumnOrders)

    // The next panel, which gemm kernels prefetch while they multiply one: so many rows, and bytes
    // of each; null: there is none.
    const std::byte* ahead;
    int64_t ahead_rows, ahead_bytes;

    int32_t bits;          // of the codes of pack
    int64_t rows;          // from row 0 to the last one that may be read
    int64_t column_phase;  // of column 0 in its group, a multiple of 32
    // Of grids: elements from row to row where groups go on in the next row (bnb4), else 0.
    int64_t group_row_step;
    // Zero points, a stream of bits along the rows for each group; null: the middle.
    const std::byte* zeros;
    int64_t
        zero_stride;   // bytes from word to word of a stream, of gptq and awq from group to group
    int64_t zero_row;  // of row 0
    const std::byte*
        biases;          // added to code * scale, as the scales lie; null: there are zero points
    int32_t zero_added;  // 1: stored zero points are one less
    // With act-order: the group of each column of the matrix, and groups that there are. scales and
    // zeros begin with group 0.
    const int32_t* column_groups;
    int64_t n_groups;
};

// out[(row - first) * n + i] = weight row `row` . activation row i, i < n, for rows of
// [first, last). x[i] is a quantized or a float32 row, by the kernel.
using GemvKernel = void (*)(const GemvWeights& weights, int64_t first, int64_t last,
                            const void* const* x, float* out);

// For 1, 2 and 4 activation rows and, of formats that are often met, for 3, 5 and 6 in one and two
// bytes; else null.
struct GemvKernels {
    GemvKernel of_rows[3];
    GemvKernel of_more_rows[3] = {};
};
constexpr int64_t gemv_rows = 6;
// The most rows of kernels for any number, which want integers, scales and sums of five and six
// rows in the L1 cache.
constexpr int64_t most_gemv_rows(int64_t parts, int64_t columns) {
    constexpr int64_t most_bytes = int64_t{40} << 10;
    const int64_t bytes = parts * columns + 2 * numbers_of_row(columns) * 4;
    return gemv_rows * bytes <= most_bytes ? gemv_rows : 4;
}

// The activation of an expert (layer/activation.hpp), of a kind that is not SITU.
struct GateActivation {
    moe_activation kind;
    bool is_gated;
    bool round_to_bf16;
    float alpha, gate_limit, up_limit, up_offset, post_limit;
};
// out[i] = act(gates[i], ups[i]) for n values, rounded up to a multiple of activation_step, which
// may lie where ups do.
using ActivateKernel = void (*)(const GateActivation& how, const float* gates, const float* ups,
                                int64_t n, float* out);
constexpr int64_t activation_step = 16;

// An instruction family: its kernels, and how it quantizes.
struct GemvFamily {
    // null where the family does not read the format; parts is 0 for float32 activations, else the
    // bytes of an integer.
    const GemvKernels* (*kernels)(GemvFormat format, int32_t parts);
    // A quantized row of parts 1 to 3 in each of the orders that are bits of `orders`, of
    // quantized_row_bytes; columns is a multiple of 16.
    void (*quantize)(const float* row, int64_t columns, const Quantization& how, std::byte* out);
    // Kernels for many activation rows that are there in this form, and as float32. null: the
    // family has none.
    GemmKernels (*gemm)(GemvFormat format, const Quantization& rows) = nullptr;
    // Does it read rows that begin inside a group of scales (GemvWeights::column_phase)?
    bool reads_amid_groups = false;
    // Kernels for activations in bfloat16, or in pairs of it, where the machine has AVX-512 BF16;
    // null where the family has none.
    const GemvKernels* (*of_bf16)(GemvFormat format, bool is_pair) = nullptr;
    // null: one value after another.
    ActivateKernel activate = nullptr;
    // Does it quantize to one part and bfloat16, too?
    bool makes_every_form = false;
    // Do its gemm kernels take rows in bfloat16 as tiles, too?
    bool takes_tiles = false;
};

}  // namespace moe::cpu
