// Rows interleaved by 16: the packed layout of the CPU. A matrix is split into strips of 16 rows, a
// strip into steps of some columns, and the steps of a strip follow each other. A step has fields,
// the scales first: the units of a field lie as [units, 16 rows], so that a vector has a unit of
// each row and a kernel reads a strip from its first byte to its last. What a row has of a field is
// unchanged from its format, so packing moves bytes and loses nothing. Rows that the last strip
// lacks are zero bytes.
//
//   q4_k, a step of 256 columns   d [16], dmin [16]       float16
//                                 levels [3, 16]          words of 4 bytes
//                                 nibbles [32, 16]        words of 4 bytes
//
// Formats that interleaving_of does not know keep their rows in a packed layout, too.
#pragma once

#include "libmoe/formats/format.hpp"

namespace moe {

constexpr int64_t interleaved_rows = 16;
// Raised when a byte moves; part of the layout id.
constexpr int32_t interleaved_revision = 1;

struct InterleavedField {
    enum class Source : uint8_t { codes, scales };
    Source source;   // the buffer of the matrix that it comes from
    uint8_t unit;    // bytes
    int16_t offset;  // in the bytes that a row has of a step
    int16_t bytes;
};

struct Interleaving {
    int32_t columns;      // of a step
    int32_t code_bytes;   // that a row has of a step
    int32_t scale_bytes;  // of the scales apart; 0: none
    InterleavedField fields[14];

    int64_t step_bytes() const { return (code_bytes + scale_bytes) * interleaved_rows; }
};

// null: matrices of the format keep their rows.
const Interleaving* interleaving_of(const moe_format& format);

// Bytes of a matrix with interleaved rows.
uint64_t interleaved_bytes(const Interleaving& how, int64_t rows, int64_t columns);

// The view of a copy at `at` of a matrix with the format, rows and columns of `like`.
Matrix view_interleaved(const Matrix& like, const std::byte* at);

// Copies a matrix whose format is interleaved to `to` (interleaved_bytes), and returns the view of
// the copy: Matrix::interleaving is set, scales lie among the codes, and row_stride is a sixteenth
// of a strip.
Matrix interleave(const Matrix& part, std::byte* to);

// FormatTraits::decode for a whole row of such a view.
void decode_interleaved_row(const Matrix& matrix, int64_t row, float* out);

}  // namespace moe
