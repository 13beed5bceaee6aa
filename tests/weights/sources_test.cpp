// Formats that are not sliceable (GPTQ, AWQ, compressed-tensors, bitsandbytes): views, parts,
// copies and stacks of random matrices against their formulas; what is refused; and which of the
// grids of FP8 scales pack, without loss.
#include "tests/formats/sources.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "libmoe/base/error.hpp"
#include "libmoe/weights/matrix_copy.hpp"
#include "libmoe/weights/view.hpp"
#include "tests/packed/packing.hpp"
#include "tests/weights/refusal.hpp"

namespace moe {
namespace {

using test::Source;

std::string name_of(const moe_format& format) {
    return format_name(format).text;
}

std::string refusal(const moe_tensor& tensor, moe_status status = MOE_ERROR_INVALID_ARGUMENT) {
    return test::refusal_of(tensor, 0, status);
}

void expect_part(const Source& source, const Matrix& part, int64_t row, int64_t column) {
    const auto values = test::decode_all(part, *part.traits);
    int64_t nonzero = 0;
    for (int64_t n = 0; n < part.rows; ++n)
        for (int64_t k = 0; k < part.columns; ++k) {
            const float got = values[static_cast<size_t>(n * part.columns + k)];
            nonzero += got != 0;
            ASSERT_TRUE(
                test::same_float(got, static_cast<float>(source.value(row + n, column + k))))
                << name_of(source.format) << " [" << row + n << ", " << column + k << "] is "
                << got;
        }
    EXPECT_GT(nonzero, part.rows * part.columns / 3) << name_of(source.format);
}

// 96 columns: a block of bitsandbytes begins in one row and ends in the next.
TEST(WholeFormats, DecodeIsTheFormulaToTheBit) {
    for (const moe_format& format : test::whole_formats()) {
        const Source source = test::random_source(format, 64, 96);
        ASSERT_NO_FATAL_FAILURE(expect_part(source, view_of(source.tensor(), 0, "down"), 0, 0));
    }
}

TEST(WholeFormats, PartsAndTheirCopiesAreThoseOfTheWhole) {
    for (const moe_format& format : test::whole_formats()) {
        const Source source = test::random_source(format, 96, 160);
        const Matrix whole = view_of(source.tensor(), 0, "down");
        const Matrix part = part_of(part_of(whole, 32, 64, 0, 160), 5, 33, 48, 96);
        ASSERT_NO_FATAL_FAILURE(expect_part(source, part, 37, 48));
        const uint64_t bytes = whole_copy_bytes(format, 96, 160);
        std::vector<std::byte> memory(bytes + copy_alignment + 1, std::byte{0x5A});
        auto* base = memory.data() + copy_alignment -
                     reinterpret_cast<uintptr_t>(memory.data()) % copy_alignment;
        Matrix copy = copy_part(part, base);
        EXPECT_EQ(base[bytes], std::byte{0x5A}) << name_of(format);
        for (const void* pointer :
             {static_cast<const void*>(copy.data), static_cast<const void*>(copy.scales),
              static_cast<const void*>(copy.zero_points),
              static_cast<const void*>(copy.permutation),
              static_cast<const void*>(copy.nested_scales)}) {
            const auto* place = static_cast<const std::byte*>(pointer);
            EXPECT_TRUE(!place || (place >= base && place < base + bytes)) << name_of(format);
        }
        ASSERT_NO_FATAL_FAILURE(expect_part(source, copy, 37, 48));
        // A piece of a row equals the row.
        std::vector<float> row(96), piece(40);
        part.traits->decode(part, 7, 0, 96, row.data());
        part.traits->decode(part, 7, 31, 40, piece.data());
        for (size_t i = 0; i < 40; ++i) ASSERT_TRUE(test::same_float(piece[i], row[31 + i]));
    }
}

TEST(WholeFormats, StacksHaveTheirBuffersExpertByExpert) {
    for (const moe_format& format : test::whole_formats()) {
        Source stack = test::random_source(format, 32, 64);
        const moe_tensor one = stack.tensor();
        const size_t n_data = stack.data.size(), n_scales = stack.scales.size();
        const size_t n_zeros = stack.zero_points.size(), n_nested = stack.nested_scales.size();
        Source second = stack;
        for (std::byte& byte : second.data) byte ^= std::byte{0x5A};
        for (std::byte& byte : second.zero_points) byte ^= std::byte{0x33};
        const auto append = [](auto& to, const auto& from, size_t n) {
            EXPECT_EQ(from.size(), n);
            to.insert(to.end(), from.begin(), from.end());
        };
        append(stack.data, second.data, n_data);
        append(stack.scales, second.scales, n_scales);
        append(stack.zero_points, second.zero_points, n_zeros);
        append(stack.nested_scales, second.nested_scales, n_nested);
        moe_tensor tensor = stack.tensor();
        EXPECT_EQ(tensor.data_bytes, 2 * one.data_bytes);
        tensor.expert = MOE_ALL_EXPERTS;
        tensor.n_experts = 2;
        ASSERT_NO_FATAL_FAILURE(expect_part(second, view_of(tensor, 1, "down"), 0, 0));
    }
}

TEST(WholeFormats, RefuseBuffersThatAreTooSmallOrAbsent) {
    for (const moe_format& format : test::whole_formats()) {
        const Source source = test::random_source(format, 32, 64);
        moe_tensor tensor = source.tensor();
        tensor.data_bytes -= 1;
        EXPECT_NE(refusal(tensor).find("data has " + std::to_string(tensor.data_bytes)),
                  std::string::npos);
        tensor = source.tensor();
        tensor.scale_bytes -= 1;
        EXPECT_NE(refusal(tensor).find("scales has"), std::string::npos);
        tensor = source.tensor();
        tensor.row_stride = 8;
        EXPECT_NE(refusal(tensor).find("row_stride is 8"), std::string::npos);
        tensor = source.tensor();
        tensor.orientation = MOE_ORIENTATION_IN_OUT;
        EXPECT_NE(refusal(tensor, MOE_ERROR_UNSUPPORTED).find("orientation IN_OUT"),
                  std::string::npos);
        if (!source.zero_points.empty()) {
            tensor = source.tensor();
            tensor.zero_points = nullptr;
            EXPECT_NE(refusal(tensor).find("zero_points is NULL"), std::string::npos);
            tensor = source.tensor();
            tensor.zero_point_bytes -= 1;
            EXPECT_NE(refusal(tensor).find("zero_points has"), std::string::npos);
        }
        if (format.act_order) {
            tensor = source.tensor();
            tensor.permutation = nullptr;
            EXPECT_NE(refusal(tensor).find("permutation is NULL"), std::string::npos);
            tensor = source.tensor();
            tensor.permutation_bytes = 4;
            EXPECT_NE(refusal(tensor).find("permutation has 4 bytes"), std::string::npos);
            Source wrong = source;
            for (const int32_t group : {-1, 2}) {
                wrong.permutation[63] = group;
                EXPECT_NE(refusal(wrong.tensor())
                              .find("the group of column 63 is " + std::to_string(group)),
                          std::string::npos);
            }
        }
        if (format.nested_scales) {
            tensor = source.tensor();
            tensor.nested_codebook = nullptr;
            EXPECT_NE(refusal(tensor).find("nested_codebook is NULL"), std::string::npos);
            tensor = source.tensor();
            tensor.nested_scale_bytes = 0;
            EXPECT_NE(refusal(tensor).find("nested_scales has 0"), std::string::npos);
        }
        EXPECT_THROW(gate_up_half(view_of(source.tensor(), 0, "gate_up"), MOE_GATE_UP_GATE_FIRST,
                                  GateUpHalf::up),
                     Error);
    }
}

// A value is packed as this. Codes of one to three bits beside a bias are moved to the middle of
// four bits, and the bias less so many scales is rounded to float16.
double packed_value(const Source& source, int64_t n, int64_t k) {
    const double value = source.value(n, k);
    if (source.format.zero_point != MOE_ZERO_POINT_FLOAT || source.format.bits >= 4) return value;
    const double scale = source.scale(n, source.group(k));
    const double moved = (8 - (1 << (source.format.bits - 1))) * scale;
    const double bias = value - source.code(n, k) * scale;
    const float rounded = f16_to_float(float_to_f16(static_cast<float>(bias - moved)));
    EXPECT_NEAR(rounded, bias - moved, std::abs(bias - moved) / 2048 + 1e-7);
    return source.code(n, k) * scale + moved + rounded;
}

// Rows [row, + rows) and columns of the source as they come back from tiles.
void expect_packed_part(const Source& source, const Matrix& part, int64_t row, int64_t column,
                        TileRows half) {
    const auto values = test::unpacked(test::packed(part, half, std::byte{0xA5}), part, half);
    for (int64_t n = 0; n < part.rows; ++n)
        for (int64_t k = 0; k < part.columns; ++k)
            ASSERT_TRUE(
                test::same_float(values[static_cast<size_t>(n * part.columns + k)],
                                 static_cast<float>(packed_value(source, row + n, column + k))))
                << name_of(source.format) << " [" << row + n << ", " << column + k << "]";
}

// Plans of float32 activations keep biases as they are.
TEST(WholeFormats, BiasesCanBeKept) {
    for (const int32_t bits : {1, 2, 3}) {
        const Source source = test::random_source(
            test::int_format(MOE_PACKING_BIT_STREAM, bits, 64, MOE_TYPE_F16, MOE_ZERO_POINT_FLOAT),
            32, 192);
        const Matrix whole = view_of(source.tensor(), 0, "down");
        const auto values = test::unpacked(test::packed(whole, TileRows::all, {}, true), whole);
        for (int64_t i = 0; i < 32 * 192; ++i)
            ASSERT_EQ(values[static_cast<size_t>(i)],
                      static_cast<float>(source.value(i / 192, i % 192)))
                << bits << " bits, " << i;
    }
}

TEST(WholeFormats, PackWithoutLoss) {
    for (const moe_format& format : test::whole_formats()) {
        if (packed_type_of(format) == PackedType::none) continue;  // biases of some widths
        const Source source = test::random_source(format, 96, 384);
        const Matrix whole = view_of(source.tensor(), 0, "down");
        for (const auto half : {TileRows::all, TileRows::gate_half, TileRows::up_half})
            ASSERT_NO_FATAL_FAILURE(expect_packed_part(source, whole, 0, 0, half));
        // A slice that begins with a group, and one inside of the only one.
        if (format.act_order) continue;
        const int32_t group = format.group_columns;
        const int64_t begin = group < 0 ? 32 : group == 128 ? 128 : 192;
        ASSERT_NO_FATAL_FAILURE(expect_packed_part(source, part_of(whole, 40, 32, begin, 96), 40,
                                                   begin, TileRows::all));
    }
}

TEST(WholeFormats, AffineIsPackedAsBlocksOfThirtyTwoAreWhereItFits) {
    const auto packed = [](int32_t bits, int32_t group, moe_type scale) {
        return packed_type_of(
            test::int_format(MOE_PACKING_BIT_STREAM, bits, group, scale, MOE_ZERO_POINT_FLOAT));
    };
    for (const int32_t bits : {1, 2, 3, 4})
        EXPECT_EQ(packed(bits, 64, MOE_TYPE_BF16), PackedType::q4_1) << bits;
    EXPECT_EQ(packed(5, 128, MOE_TYPE_F16), PackedType::q5_1);
    EXPECT_EQ(packed(4, -1, MOE_TYPE_F16), PackedType::q4_1);
    for (const int32_t bits : {6, 7, 8})
        EXPECT_EQ(packed(bits, 64, MOE_TYPE_BF16), PackedType::none) << bits;
    EXPECT_EQ(packed(4, 64, MOE_TYPE_F32), PackedType::none) << "float16 is too narrow";
    EXPECT_EQ(packed(4, 48, MOE_TYPE_BF16), PackedType::none) << "32 columns of two groups";
}

// Groups that are no power of two of columns have a record for each part that is one.
double growth_of_odd_group(const moe_format& format) {
    const int32_t columns = std::gcd(format.group_columns, 1 << 20);
    if (format.group_columns <= 0 || columns == format.group_columns) return 1.0;
    const int32_t zeros = format.zero_point == MOE_ZERO_POINT_MIDDLE ? 0 : format.bits <= 4 ? 4 : 8;
    const auto record = static_cast<double>(8 * element_bytes(format.scale_type) + zeros);
    return (format.bits + record / columns) / (format.bits + record / format.group_columns);
}

// Nested scales become float32, zero points of one and two bits four, and codes under biases those
// of q4_1 or q5_1.
double most_growth(const moe_format& format) {
    if (format.zero_point == MOE_ZERO_POINT_FLOAT)
        return 1.01 * (std::max(format.bits, 4) + 1) / (format.bits + 32.0 / format.group_columns);
    if (format.nested_scales) return 1.1;
    if (format.zero_point == MOE_ZERO_POINT_MIDDLE || format.bits > 2) return 1.02;
    return format.bits == 1 ? 1.07 : 1.03;
}

TEST(WholeFormats, PackedMatricesAreHardlyLarger) {
    constexpr int64_t rows = 1024, columns = 3072;
    for (const moe_format& format : test::whole_formats()) {
        if (packed_type_of(format) == PackedType::none) continue;
        const MatrixBytes own = matrix_bytes(*find_format(format), format, rows, columns);
        const auto bytes = static_cast<double>(own.data + own.scales + own.zero_points);
        const auto packed = rows / 16 * tile_bytes(packed_type_of(format), columns);
        EXPECT_LE(static_cast<double>(packed),
                  most_growth(format) * growth_of_odd_group(format) * bytes)
            << name_of(format);
    }
}

TEST(WholeFormats, PackingRefusesGroupsThatBeginElsewhere) {
    const auto refused = [](const Matrix& part, const char* text) {
        try {
            test::packed(part);
            ADD_FAILURE() << text;
        } catch (const Error& error) {
            EXPECT_EQ(error.status(), MOE_ERROR_UNSUPPORTED);
            EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
        }
    };
    const auto awq = test::int_format(MOE_PACKING_AWQ, 4, 64, MOE_TYPE_F16, MOE_ZERO_POINT_PACKED);
    const Source source = test::random_source(awq, 32, 192);
    const Matrix whole = view_of(source.tensor(), 0, "down");
    refused(part_of(whole, 0, 32, 32, 96), "begins at column 32 of a scale group of 64");
    const auto gptq =
        test::int_format(MOE_PACKING_GPTQ, 4, 32, MOE_TYPE_F16, MOE_ZERO_POINT_PACKED, true);
    const Source any_order = test::random_source(gptq, 32, 192);
    refused(part_of(view_of(any_order.tensor(), 0, "down"), 0, 32, 0, 96),
            "96 of 192 columns with act_order have no packed form");
    const Source nf4 =
        test::random_source(test::bnb_format(MOE_CODEBOOK_BNB_NF4, 64, false), 32, 96);
    refused(view_of(nf4.tensor(), 0, "down"),
            "rows of 96 columns begin inside of scale groups of 64");
    Source nan = source;
    store(nan.scales.data() + 2 * (32 + 5), uint16_t{0x7E00});
    refused(view_of(nan.tensor(), 0, "down"), "the scale of row 5, column 64 is NaN");
    const auto affine =
        test::int_format(MOE_PACKING_BIT_STREAM, 4, 64, MOE_TYPE_BF16, MOE_ZERO_POINT_FLOAT);
    Source large = test::random_source(affine, 32, 192);
    store(large.scales.data() + 2 * (3 * 5 + 1), float_to_bf16(131072.0f));
    refused(view_of(large.tensor(), 0, "down"),
            "the scale of row 5, column 64 is 131072, which the packed layout has no float16 for");
    large = test::random_source(affine, 32, 192);
    store(large.zero_points.data() + 2 * (3 * 7 + 2), uint16_t{0x7FC0});
    refused(view_of(large.tensor(), 0, "down"), "the bias of row 7, column 128 is nan");
}

void expect_grid_packed(const Matrix& matrix, const FormatTraits& traits) {
    const auto got = test::unpacked(test::packed(matrix), matrix);
    const auto wanted = test::decode_all(matrix, traits);
    for (size_t i = 0; i < wanted.size(); ++i)
        ASSERT_TRUE(test::same_float(got[i], wanted[i])) << i << ": " << got[i];
}

struct GridCase {
    int32_t rows, columns;
    moe_type scale_type;
    bool is_e4m3;  // a scale per 8 rows and 32 columns, of which these groups are unions
};

TEST(Fp8Grids, PackWithoutLoss) {
    const GridCase cases[] = {{-1, -1, MOE_TYPE_F32, true},     {-1, -1, MOE_TYPE_BF16, true},
                              {128, 128, MOE_TYPE_BF16, true},  {128, 128, MOE_TYPE_F16, true},
                              {32, 32, MOE_TYPE_F8_E8M0, true}, {8, 32, MOE_TYPE_F32, true},
                              {128, -1, MOE_TYPE_F32, true},    {1, -1, MOE_TYPE_F32, false},
                              {1, 32, MOE_TYPE_F8_E8M0, false}, {1, 128, MOE_TYPE_F32, false},
                              {128, 48, MOE_TYPE_F32, false},   {4, 32, MOE_TYPE_F32, false}};
    for (const GridCase& c : cases) {
        moe_format format{};
        format.type = MOE_TYPE_F8_E4M3;
        format.group_rows = c.rows;
        format.group_columns = c.columns;
        format.scale_type = c.scale_type;
        SCOPED_TRACE(name_of(format));
        ASSERT_NE(find_format(format), nullptr);
        ASSERT_EQ(packed_type_of(format) == PackedType::e4m3, c.is_e4m3);
        ASSERT_NE(packed_type_of(format), PackedType::none);
        FormatTraits traits = *find_format(format);  // with the groups that are meant
        traits.format = format;
        test::Stored stored(traits, 160, 288);
        stored.data = test::random_bytes(stored.bytes.data, 9);
        const auto values = test::gaussian(static_cast<int64_t>(stored.scales.size()), 10);
        for (size_t i = 0; i < stored.scales.size() / traits.scale_bytes; ++i) {
            std::byte* place = stored.scales.data() + i * traits.scale_bytes;
            if (c.scale_type == MOE_TYPE_F32) store(place, values[i]);
            if (c.scale_type == MOE_TYPE_F16) store(place, float_to_f16(values[i]));
            if (c.scale_type == MOE_TYPE_BF16) store(place, float_to_bf16(values[i]));
            if (c.scale_type == MOE_TYPE_F8_E8M0) store(place, static_cast<uint8_t>(110 + i % 30));
        }
        ASSERT_NO_FATAL_FAILURE(expect_grid_packed(test::view(stored), traits));
    }
}

TEST(Int8Grids, PackWithoutLoss) {
    for (const int32_t group : {-1, 64}) {
        FormatTraits traits = int8_grid_format;
        traits.format.group_columns = group;
        test::Stored stored(traits, 160, 288);
        stored.data = test::random_bytes(stored.bytes.data, 9);
        const auto values = test::gaussian(static_cast<int64_t>(stored.scales.size() / 4), 10);
        std::memcpy(stored.scales.data(), values.data(), stored.scales.size());
        ASSERT_NO_FATAL_FAILURE(expect_grid_packed(test::view(stored), traits));
    }
}

TEST(NibbleGrids, PackWithoutLoss) {
    const struct {
        moe_type type, scale_type;
        int32_t group;
    } cases[] = {{MOE_TYPE_INT, MOE_TYPE_BF16, 128},    {MOE_TYPE_INT, MOE_TYPE_F32, -1},
                 {MOE_TYPE_E2M1, MOE_TYPE_F8_E8M0, 64}, {MOE_TYPE_E2M1, MOE_TYPE_F8_E8M0, 128},
                 {MOE_TYPE_E2M1, MOE_TYPE_BF16, 128},   {MOE_TYPE_E2M1, MOE_TYPE_F8_E4M3, 32}};
    for (const auto& c : cases) {
        const moe_format format = test::nibble_format(c.type, c.scale_type, c.group);
        SCOPED_TRACE(name_of(format));
        FormatTraits traits = *find_format(format);
        traits.format = format;
        test::Stored stored(traits, 160, 288);
        stored.data = test::random_bytes(stored.bytes.data, 9);
        const auto values = test::gaussian(static_cast<int64_t>(stored.scales.size()), 10);
        for (size_t i = 0; i < stored.scales.size() / traits.scale_bytes; ++i) {
            std::byte* place = stored.scales.data() + i * traits.scale_bytes;
            if (c.scale_type == MOE_TYPE_F32) store(place, values[i]);
            if (c.scale_type == MOE_TYPE_BF16) store(place, float_to_bf16(values[i]));
            if (traits.scale_bytes == 1) store(place, static_cast<uint8_t>(90 + i % 30));
        }
        Matrix matrix = test::view(stored);
        matrix.codebook = builtin_codebook(format);
        ASSERT_NO_FATAL_FAILURE(expect_grid_packed(matrix, traits));
    }
}

// No packed type has its codes.
TEST(E5m2, DoesNotPack) {
    EXPECT_EQ(packed_type_of(format_of(MOE_TYPE_F8_E5M2)), PackedType::none);
    moe_format format = format_of(MOE_TYPE_F8_E5M2);
    format.group_rows = format.group_columns = 128;
    format.scale_type = MOE_TYPE_F32;
    ASSERT_NE(find_format(format), nullptr);
    EXPECT_EQ(packed_type_of(format), PackedType::none);
}

// Bytes that lie [columns, rows]: the same elements, parts, copies and packed weights.
TEST(TransposedGrids, AreThoseOfTheOthers) {
    constexpr int64_t rows = 160, columns = 288;
    for (const moe_type type : {MOE_TYPE_F8_E4M3, MOE_TYPE_F8_E5M2, MOE_TYPE_I8}) {
        for (const int32_t group : {-1, 128}) {
            moe_format format = format_of(type);
            format.group_rows = group < 0 ? 1 : group;
            format.group_columns = group;
            format.scale_type = MOE_TYPE_F32;
            SCOPED_TRACE(name_of(format));
            FormatTraits traits = *find_format(format);
            traits.format = format;
            test::Stored stored(traits, rows, columns);
            stored.data = test::random_bytes(stored.bytes.data, 9);
            const auto scales = test::gaussian(static_cast<int64_t>(stored.scales.size() / 4), 10);
            std::memcpy(stored.scales.data(), scales.data(), stored.scales.size());
            std::vector<std::byte> turned(stored.data.size());
            for (size_t n = 0; n < rows; ++n)
                for (size_t k = 0; k < columns; ++k)
                    turned[k * rows + n] = stored.data[n * columns + k];
            moe_tensor tensor{};
            tensor.struct_size = sizeof tensor;
            tensor.role = MOE_ROLE_DOWN;
            tensor.format = &format;
            tensor.orientation = MOE_ORIENTATION_IN_OUT;
            tensor.rows = rows;
            tensor.columns = columns;
            tensor.data = turned.data();
            tensor.data_bytes = turned.size();
            tensor.scales = stored.scales.data();
            tensor.scale_bytes = stored.scales.size();
            const Matrix view = view_of(tensor, 0, "down");
            const auto wanted = test::decode_all(stored.view(), traits);
            const auto expect = [&](const Matrix& part, int64_t row, int64_t column) {
                const auto values = test::decode_all(part, traits);
                for (int64_t n = 0; n < part.rows; ++n)
                    for (int64_t k = 0; k < part.columns; ++k)
                        ASSERT_TRUE(test::same_float(
                            values[static_cast<size_t>(n * part.columns + k)],
                            wanted[static_cast<size_t>((row + n) * columns + column + k)]))
                            << n << ", " << k;
            };
            ASSERT_NO_FATAL_FAILURE(expect(view, 0, 0));
            const Matrix part = part_of(view, 37, 64, 48, 96);
            ASSERT_NO_FATAL_FAILURE(expect(part, 37, 48));
            std::vector<std::byte> memory(copy_bytes(format, 37, 64, 48, 96) + copy_alignment);
            auto* base = memory.data() + copy_alignment -
                         reinterpret_cast<uintptr_t>(memory.data()) % copy_alignment;
            ASSERT_NO_FATAL_FAILURE(expect(copy_part(part, base), 37, 48));
            if (type != MOE_TYPE_F8_E5M2) {
                ASSERT_NO_FATAL_FAILURE(expect_grid_packed(view, traits));
            }
        }
    }
}

}  // namespace
}  // namespace moe
