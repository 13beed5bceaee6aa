// The fields of each interleaved format, and the walk over them that packs and decodes.
#include "libmoe/formats/interleaved.hpp"

#include <cstring>

#include "libmoe/base/checked.hpp"
#include "libmoe/formats/block.hpp"

namespace moe {
namespace {

using enum InterleavedField::Source;

struct OfBlock {
    int32_t id;  // of ggml
    Interleaving how;
};
// A field behind another one of the same unit is part of it: d and dmin are two units of float16.
constexpr OfBlock of_blocks[] = {
    {2, {32, 18, 0, {{codes, 2, 0, 2}, {codes, 4, 2, 16}}}},      // q4_0
    {3, {32, 20, 0, {{codes, 2, 0, 4}, {codes, 4, 4, 16}}}},      // q4_1
    {8, {32, 34, 0, {{codes, 2, 0, 2}, {codes, 4, 2, 32}}}},      // q8_0
    {12, {256, 144, 0, {{codes, 2, 0, 4}, {codes, 4, 4, 140}}}},  // q4_k
    {13, {256, 176, 0, {{codes, 2, 0, 4}, {codes, 4, 4, 172}}}},  // q5_k
    // Sixteen bytes of two high bits and the two of low bits that go with them follow each other.
    {14,  // q6_k
     {256,
      210,
      0,
      {{codes, 2, 208, 2},
       {codes, 1, 192, 16},
       {codes, 4, 128, 16},
       {codes, 4, 0, 16},
       {codes, 4, 32, 16},
       {codes, 4, 144, 16},
       {codes, 4, 16, 16},
       {codes, 4, 48, 16},
       {codes, 4, 160, 16},
       {codes, 4, 64, 16},
       {codes, 4, 96, 16},
       {codes, 4, 176, 16},
       {codes, 4, 80, 16},
       {codes, 4, 112, 16}}}},
    {20, {32, 18, 0, {{codes, 2, 0, 2}, {codes, 4, 2, 16}}}},     // iq4_nl
    {23, {256, 136, 0, {{codes, 2, 0, 4}, {codes, 4, 4, 132}}}},  // iq4_xs
    {39, {32, 17, 0, {{codes, 1, 0, 1}, {codes, 4, 1, 16}}}},     // mxfp4_gguf
    {40, {64, 36, 0, {{codes, 1, 0, 4}, {codes, 4, 4, 32}}}},     // nvfp4_gguf
};
constexpr Interleaving of_mxfp4 = {32, 16, 1, {{scales, 1, 0, 1}, {codes, 4, 0, 16}}};
constexpr Interleaving of_nvfp4 = {16, 8, 1, {{scales, 1, 0, 1}, {codes, 4, 0, 8}}};

// The bytes that the rows of a strip have of one step: of row r at codes + r * code_stride.
struct StepRows {
    const std::byte* codes;
    int64_t code_stride;
    const std::byte* scales;
    int64_t scale_stride;

    const std::byte* at(const InterleavedField& field, int64_t row) const {
        return (field.source == InterleavedField::Source::codes ? codes + row * code_stride
                                                                : scales + row * scale_stride) +
               field.offset;
    }
};

// each(field, where its units begin in a step)
template <class Each>
void for_fields(const Interleaving& how, Each each) {
    int64_t begin = 0;
    for (const InterleavedField& field : how.fields) {
        if (!field.unit) return;
        each(field, begin);
        begin += field.bytes * interleaved_rows;
    }
}

template <int unit>
void scatter_units(const std::byte* from, int64_t count, std::byte* to) {
    for (int64_t i = 0; i < count; ++i)
        std::memcpy(to + i * unit * interleaved_rows, from + i * unit, unit);
}
template <int unit>
void gather_units(const std::byte* from, int64_t count, std::byte* to) {
    for (int64_t i = 0; i < count; ++i)
        std::memcpy(to + i * unit, from + i * unit * interleaved_rows, unit);
}

void write_step(const Interleaving& how, const StepRows& rows, int64_t n, std::byte* to) {
    for_fields(how, [&](const InterleavedField& field, int64_t begin) {
        const int64_t count = field.bytes / field.unit;
        for (int64_t row = 0; row < n; ++row) {
            const std::byte* from = rows.at(field, row);
            std::byte* first = to + begin + row * field.unit;
            if (field.unit == 1) scatter_units<1>(from, count, first);
            if (field.unit == 2) scatter_units<2>(from, count, first);
            if (field.unit == 4) scatter_units<4>(from, count, first);
        }
    });
}

// The bytes of one step that belong to a row, as its format has them.
struct RowStep {
    std::byte codes[256];
    std::byte scales[16];
};
void read_row(const Interleaving& how, const std::byte* step, int64_t row, RowStep& out) {
    for_fields(how, [&](const InterleavedField& field, int64_t begin) {
        const int64_t count = field.bytes / field.unit;
        const std::byte* first = step + begin + row * field.unit;
        std::byte* to = (field.source == codes ? out.codes : out.scales) + field.offset;
        if (field.unit == 1) gather_units<1>(first, count, to);
        if (field.unit == 2) gather_units<2>(first, count, to);
        if (field.unit == 4) gather_units<4>(first, count, to);
    });
}

}  // namespace

const Interleaving* interleaving_of(const moe_format& format) {
    if (format.pre_quant_scale) return nullptr;
    if (format.type == MOE_TYPE_GGUF)
        for (const OfBlock& one : of_blocks)
            if (one.id == format.block_id) return &one.how;
    if (format.type != MOE_TYPE_E2M1) return nullptr;
    // FP4 in other groups, or under scales of other types, is neither of the two.
    const auto is_like = [&](const Interleaving& how, moe_type scale_type) {
        return format.scale_type == scale_type && format.group_columns == how.columns;
    };
    if (is_like(of_mxfp4, MOE_TYPE_F8_E8M0)) return &of_mxfp4;
    return is_like(of_nvfp4, MOE_TYPE_F8_E4M3) ? &of_nvfp4 : nullptr;
}

uint64_t interleaved_bytes(const Interleaving& how, int64_t rows, int64_t columns) {
    const auto strips = static_cast<uint64_t>(divide_up(rows, interleaved_rows));
    const uint64_t strip = checked_multiply(static_cast<uint64_t>(columns / how.columns),
                                            static_cast<uint64_t>(how.step_bytes()), "weights");
    return checked_multiply(strips, strip, "weights");
}

Matrix view_interleaved(const Matrix& like, const std::byte* at) {
    const Interleaving& how = *interleaving_of(like.format);
    Matrix view = like;
    view.data = at;
    view.scales = nullptr;
    view.scale_row_stride = 0;
    view.scale_row_phase = view.scale_column_phase = 0;
    view.tiled = {};
    view.row_stride = like.columns / how.columns * how.step_bytes() / interleaved_rows;
    view.column_stride = 0;
    view.interleaving = &how;
    return view;
}

Matrix interleave(const Matrix& part, std::byte* to) {
    const Interleaving& how = *interleaving_of(part.format);
    const int64_t n_steps = part.columns / how.columns, step = how.step_bytes();
    const Matrix copy = view_interleaved(part, to);
    std::byte scales[interleaved_rows][sizeof RowStep::scales];
    for (int64_t row = 0; row < part.rows; row += interleaved_rows) {
        const int64_t n = std::min(interleaved_rows, part.rows - row);
        for (int64_t i = 0; i < n_steps; ++i, to += step) {
            if (n < interleaved_rows) std::memset(to, 0, static_cast<size_t>(step));
            const StepRows rows{part.data + row * part.row_stride + i * how.code_bytes,
                                part.row_stride, scales[0], sizeof scales[0]};
            for (int64_t r = 0; how.scale_bytes && r < n; ++r)
                scales[r][0] = *row_scales(part, row + r, i * how.columns).at(0);
            write_step(how, rows, n, to);
        }
    }
    return copy;
}

void decode_interleaved_row(const Matrix& matrix, int64_t row, float* out) {
    const Interleaving& how = *matrix.interleaving;
    RowStep buffer{};
    Matrix one = matrix;
    one.interleaving = nullptr;
    one.data = buffer.codes;
    one.scales = how.scale_bytes ? buffer.scales : nullptr;
    one.rows = 1;
    one.columns = how.columns;
    const std::byte* step =
        matrix.data + row / interleaved_rows * interleaved_rows * matrix.row_stride;
    for (int64_t k = 0; k < matrix.columns; k += how.columns, step += how.step_bytes()) {
        read_row(how, step, row % interleaved_rows, buffer);
        matrix.traits->decode(one, 0, 0, how.columns, out + k);
    }
}

}  // namespace moe
