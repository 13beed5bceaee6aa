// Rows interleaved by 16 against the rows that they were made of.
#include "libmoe/formats/interleaved.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "libmoe/formats/entries.hpp"
#include "libmoe/weights/matrix_part.hpp"
#include "tests/formats/sources.hpp"
#include "tests/formats/tiles.hpp"
#include "tests/support/matrices.hpp"

namespace moe {
namespace {

using test::Stored;

// Those that have kernels; another one would have to come with kernels.
const char* const interleaved_names[] = {"q4_0",       "q4_1",       "q8_0",   "q4_k",
                                         "q5_k",       "q6_k",       "iq4_nl", "iq4_xs",
                                         "mxfp4_gguf", "nvfp4_gguf", "mxfp4",  "nvfp4"};

Stored random_stored(const FormatTraits& traits, int64_t rows, int64_t columns) {
    Stored stored(traits, rows, columns);
    test::Random random(rows * 131 + columns);
    for (auto* bytes : {&stored.data, &stored.scales})
        for (std::byte& byte : *bytes) byte = static_cast<std::byte>(random.next());
    return stored;
}

Matrix view_of(const Stored& stored) {
    Matrix view = stored.view();
    view.traits = find_format(view.format);
    return view;
}

struct Packed {
    explicit Packed(const Matrix& part)
        : bytes(interleaved_bytes(*interleaving_of(part.format), part.rows, part.columns),
                std::byte{0x5A}),
          matrix(interleave(part, bytes.data())) {}
    std::vector<std::byte> bytes;
    Matrix matrix;
};

void expect_same_rows(const Matrix& part, const Matrix& packed) {
    std::vector<float> wanted(static_cast<size_t>(part.columns)), got(wanted.size());
    for (int64_t row = 0; row < part.rows; ++row) {
        part.traits->decode(part, row, 0, part.columns, wanted.data());
        decode_interleaved_row(packed, row, got.data());
        // Bytes: the codes of some values are NaN.
        ASSERT_EQ(std::memcmp(got.data(), wanted.data(), got.size() * sizeof(float)), 0)
            << "row " << row;
    }
}

TEST(Interleaved, RowsDecodeToTheBitsOfTheirFormat) {
    for (const char* name : interleaved_names) {
        const FormatTraits& traits = test::format_named(name);
        const Interleaving* how = interleaving_of(traits.format);
        ASSERT_TRUE(how) << name;
        for (const int64_t rows : {1, 15, 16, 37})
            for (const int64_t steps : {1, 3}) {
                SCOPED_TRACE(std::string(name) + ", rows " + std::to_string(rows));
                const Stored stored = random_stored(traits, rows, steps * how->columns);
                const Packed packed(view_of(stored));
                ASSERT_NO_FATAL_FAILURE(expect_same_rows(view_of(stored), packed.matrix));
            }
    }
}

TEST(Interleaved, StripsAreNoLargerThanTheirRows) {
    for (const char* name : interleaved_names) {
        const FormatTraits& traits = test::format_named(name);
        const Interleaving& how = *interleaving_of(traits.format);
        const MatrixBytes bytes = matrix_bytes(traits, traits.format, 48, 512);
        EXPECT_EQ(interleaved_bytes(how, 48, 512), bytes.data + bytes.scales) << name;
        EXPECT_EQ(interleaved_bytes(how, 33, 512), interleaved_bytes(how, 48, 512)) << name;
    }
}

// Every byte of a step belongs to one field: none is lost, and none is there twice.
TEST(Interleaved, FieldsCoverTheBytesOfARowOnce) {
    for (const char* name : interleaved_names) {
        const Interleaving& how = *interleaving_of(test::format_named(name).format);
        std::vector<int> codes(static_cast<size_t>(how.code_bytes)),
            scales(static_cast<size_t>(how.scale_bytes));
        for (const InterleavedField& field : how.fields)
            for (int i = 0; field.unit && i < field.bytes; ++i)
                ++(field.source == InterleavedField::Source::codes
                       ? codes
                       : scales)[static_cast<size_t>(field.offset + i)];
        for (const auto* counts : {&codes, &scales})
            for (const int count : *counts) EXPECT_EQ(count, 1) << name;
    }
}

TEST(Interleaved, PartsAndHalvesAreReadWhereTheyLie) {
    for (const char* name : interleaved_names) {
        SCOPED_TRACE(name);
        const FormatTraits& traits = test::format_named(name);
        const int64_t step = interleaving_of(traits.format)->columns;
        const Stored stored = random_stored(traits, 70, 4 * step);
        const Matrix part = part_of(view_of(stored), 9, 35, step, 2 * step);
        ASSERT_NO_FATAL_FAILURE(expect_same_rows(part, Packed(part).matrix));
        for (const auto order :
             {MOE_GATE_UP_GATE_FIRST, MOE_GATE_UP_UP_FIRST, MOE_GATE_UP_INTERLEAVED})
            for (const auto half : {GateUpHalf::gate, GateUpHalf::up}) {
                const Matrix one = gate_up_half(view_of(stored), order, half);
                ASSERT_NO_FATAL_FAILURE(expect_same_rows(one, Packed(one).matrix));
            }
    }
}

TEST(Interleaved, OtherFormatsKeepTheirRows) {
    for (const char* name : {"f32", "bf16", "q2_k", "q5_0", "fp8_128x128", "kbit4", "iq2_xs"})
        EXPECT_FALSE(interleaving_of(test::format_named(name).format)) << name;
    for (const FormatTraits& traits : nvfp4_pre_quant_formats)
        EXPECT_FALSE(interleaving_of(traits.format)) << traits.name;
}

}  // namespace
}  // namespace moe
