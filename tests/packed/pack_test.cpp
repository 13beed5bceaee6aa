// What is packed decodes to the values of its source: every format, shape, orientation, half of
// fused tiles and slice; and what cannot be packed is refused by name.
#include <gtest/gtest.h>

#include "libmoe/base/error.hpp"
#include "libmoe/weights/view.hpp"
#include "tests/packed/packing.hpp"

namespace moe {
namespace {

using namespace test;

void check_round_trip(const Matrix& source, const std::string& what) {
    expect_values(unpacked(packed(source), source), source, what);
}

class Pack : public testing::TestWithParam<const FormatTraits*> {};

TEST_P(Pack, UnpacksToTheFormatsOwnValues) {
    const FormatTraits& traits = *GetParam();
    for (const int64_t k : {16, 32, 64, 80, 96, 112, 192, 256, 512, 2880})
        for (const int64_t rows : {16, 48}) {
            if (k % traits.block_columns || (k == 2880 && rows == 48)) continue;
            const auto stored = make(traits, rows, k, static_cast<uint64_t>(k + rows));
            ASSERT_NO_FATAL_FAILURE(check_round_trip(
                view(stored),
                std::string(traits.name) + " " + std::to_string(rows) + " x " + std::to_string(k)));
        }
}

TEST_P(Pack, HalvesOfJointTilesDoNotTouchEachOther) {
    const FormatTraits& traits = *GetParam();
    const int64_t unit = traits.block_columns;
    const int64_t k = unit == 256 ? 256 : unit == 64 ? 128 : unit == 32 ? 96 : 112;
    const auto gate = make(traits, 24, k, 1), up = make(traits, 24, k, 2);
    const Matrix matrices[2] = {view(gate), view(up)};
    const TileRows halves[2] = {TileRows::gate_half, TileRows::up_half};
    std::vector<std::byte> whole[2];
    for (const int first : {0, 1}) {
        // Bytes that are no scale padding are all written, whatever was there.
        Packed both = packed(matrices[first], halves[first], std::byte{0xA5});
        Packed other = both;
        other.global =
            pack(matrices[1 - first], both.type, halves[1 - first], other.bytes.data(), "test");
        ASSERT_NO_FATAL_FAILURE(expect_values(
            unpacked({other.bytes, both.type, both.global}, matrices[first], halves[first]),
            matrices[first], "first packed"));
        ASSERT_NO_FATAL_FAILURE(
            expect_values(unpacked(other, matrices[1 - first], halves[1 - first]),
                          matrices[1 - first], "packed over it"));
        whole[first] = other.bytes;
    }
    EXPECT_EQ(whole[0], whole[1]) << "the order of packing shows";
}

TEST_P(Pack, StridedRowsAndInterleavedHalves) {
    const FormatTraits& traits = *GetParam();
    if (traits.format.group_rows > 1) return;
    const auto stored = make(traits, 48, 256, 5);
    for (const auto half : {GateUpHalf::gate, GateUpHalf::up}) {
        Matrix every_other = gate_up_half(view(stored), MOE_GATE_UP_INTERLEAVED, half);
        const auto got =
            unpacked(packed(every_other, TileRows::gate_half), every_other, TileRows::gate_half);
        ASSERT_NO_FATAL_FAILURE(expect_values(got, every_other, "interleaved"));
    }
}

TEST_P(Pack, SlicesKeepTheirScales) {
    const FormatTraits& traits = *GetParam();
    const auto stored = make(traits, 320, 1024, 6);
    const bool is_grid = traits.format.group_rows == 128;
    // On the grid of 128 x 128, slices may begin and end inside a group, on 8 rows and 32 columns.
    const struct {
        int64_t row, rows, column, columns;
    } parts[] = {{72, 96, 256, 512}, {120, 16, 768, 256}, {0, 16, 512, 256}, {8, 16, 32, 96},
                 {200, 16, 96, 160}, {3, 16, 64, 192},    {130, 16, 32, 32}};
    for (const auto& part : parts) {
        if (part.column % traits.block_columns || part.columns % traits.block_columns) continue;
        const bool crosses = part.row % 8 && part.row / 128 != (part.row + part.rows - 1) / 128;
        if (is_grid && crosses) continue;
        const Matrix slice = part_of(view(stored), part.row, part.rows, part.column, part.columns);
        ASSERT_NO_FATAL_FAILURE(check_round_trip(slice, std::string(traits.name) + " slice at " +
                                                            std::to_string(part.row) + ", " +
                                                            std::to_string(part.column)));
    }
}

TEST_P(Pack, TakesHardlyMoreBytesThanTheFormat) {
    const FormatTraits& traits = *GetParam();
    const int64_t rows = 256;
    for (const int64_t k : {256, 768, 2880}) {
        if (k % 64 || k % traits.block_columns) continue;
        const MatrixBytes own = matrix_bytes(traits, rows, k);
        const auto bytes = rows / 16 * tile_bytes(packed_type_of(traits.format), k);
        EXPECT_LE(static_cast<double>(bytes), 1.02 * static_cast<double>(own.data + own.scales))
            << traits.name << " of k " << k;
    }
}

std::string name_of_pack(const testing::TestParamInfo<const FormatTraits*>& info) {
    return info.param->name;
}
INSTANTIATE_TEST_SUITE_P(Formats, Pack, testing::ValuesIn(formats()), name_of_pack);

TEST(PackPlain, TransposedSourcesArePackedAsTheirTransposes) {
    for (const char* name : {"f32", "f16", "bf16"}) {
        const FormatTraits& traits = *find_format(name);
        const auto stored = make(traits, 112, 48, 7);  // [k, rows]
        Matrix turned = view(stored);
        std::swap(turned.rows, turned.columns);
        turned.column_stride = turned.row_stride;
        turned.row_stride = element_bytes(traits.format.type);
        ASSERT_NO_FATAL_FAILURE(check_round_trip(turned, name));
        const Matrix slice = part_of(turned, 16, 32, 32, 80);
        ASSERT_NO_FATAL_FAILURE(check_round_trip(slice, name));
    }
}

std::string sentence_of(const Matrix& source, PackedType type, TileRows rows, moe_status status) {
    std::vector<std::byte> bytes(1 << 20);
    try {
        pack(source, type, rows, bytes.data(), "down of expert 7");
    } catch (const Error& error) {
        EXPECT_EQ(error.status(), status) << error.what();
        return error.what();
    }
    return "no error";
}

void expect_refused(const Matrix& source, TileRows rows, moe_status status, const char* text) {
    const auto sentence = sentence_of(source, packed_type_of(source.format), rows, status);
    EXPECT_NE(sentence.find("down of expert 7"), std::string::npos) << sentence;
    EXPECT_NE(sentence.find(text), std::string::npos) << sentence;
}

TEST(PackRefuses, NanScalesByTheirPlace) {
    const auto check = [](const FormatTraits& traits, bool in_data, size_t at,
                          std::vector<uint8_t> nan, const char* place) {
        auto stored = make(traits, 16, 256, 3);
        auto& bytes = in_data ? stored.data : stored.scales;
        std::memcpy(&bytes[at], nan.data(), nan.size());
        expect_refused(view(stored), TileRows::all, MOE_ERROR_UNSUPPORTED, place);
    };
    const char* place = "row 3, column 64 is NaN";
    for (const uint8_t nan : {0x7F, 0xFF})
        check(*find_format("nvfp4"), false, 3 * 16 + 4, {nan}, place);
    check(*find_format("mxfp4"), false, 3 * 8 + 2, {0xFF}, place);
    check(*find_format("mxfp4_gguf"), true, (3 * 8 + 2) * 17, {0xFF}, place);
    check(*find_format("kbit3_f32"), false, (3 * 8 + 2) * 4, {0, 0, 0xC0, 0x7F}, place);
    check(*find_format("q8_0"), true, (3 * 8 + 2) * 34, {1, 0x7C}, place);
    check(*find_format("q4_k"), true, 3 * 144 + 2, {1, 0xFC}, "row 3, column 0 is NaN");
    check(*find_format("q4_0"), true, (3 * 8 + 2) * 18, {1, 0x7C}, place);
    check(*find_format("q5_1"), true, (3 * 8 + 2) * 24 + 2, {1, 0x7C}, place);
    check(*find_format("q2_k"), true, 3 * 84 + 82, {1, 0x7C}, "row 3, column 0 is NaN");
    check(*find_format("q3_k"), true, 3 * 110 + 108, {1, 0x7C}, "row 3, column 0 is NaN");
    check(*find_format("q6_k"), true, 3 * 210 + 208, {1, 0x7C}, "row 3, column 0 is NaN");
    check(*find_format("iq3_s"), true, 3 * 110, {1, 0x7C}, "row 3, column 0 is NaN");
    check(*find_format("fp8_128x128"), false, 4, {0, 0, 0xC0, 0x7F}, "row 0, column 128 is NaN");
    check(fp8_128x128_e8m0_format, false, 1, {0xFF}, "row 0, column 128 is NaN");
}

TEST(PackRefuses, SlicesOffTheGridNamingTheNearest) {
    const auto stored = make(*find_format("fp8_128x128"), 320, 1024, 6);
    const Matrix whole = view(stored);
    expect_refused(part_of(whole, 125, 16, 0, 64), TileRows::all, MOE_ERROR_UNSUPPORTED,
                   "begins at row 125 of a scale group of 128, the packed layout needs a multiple "
                   "of 8: the nearest are 120 and 128");
    expect_refused(
        part_of(whole, 0, 16, 80, 64), TileRows::all, MOE_ERROR_UNSUPPORTED,
        "begins at column 80 of a scale group of 128, the packed layout needs a multiple "
        "of 32: the nearest are 64 and 96");
}

TEST(PackRefuses, ShapesAndTypesThatDoNotFit) {
    const auto bf16 = make(*find_format("bf16"), 24, 72);
    expect_refused(view(bf16), TileRows::all, MOE_ERROR_INVALID_ARGUMENT, "rows is 24");
    expect_refused(view(bf16), TileRows::gate_half, MOE_ERROR_INVALID_ARGUMENT, "columns is 72");
    expect_refused(part_of(view(bf16), 0, 12, 0, 64), TileRows::up_half, MOE_ERROR_INVALID_ARGUMENT,
                   "rows is 12");
    EXPECT_NE(sentence_of(view(make(*find_format("nvfp4"), 16, 64)), PackedType::mxfp4,
                          TileRows::all, MOE_ERROR_UNSUPPORTED)
                  .find("nvfp4"),
              std::string::npos);
    auto divide = make(nvfp4_divide_format, 16, 64);
    divide.global_scale = 0;
    expect_refused(view(divide), TileRows::all, MOE_ERROR_UNSUPPORTED, "global_scale 0");
}

// ggml's scales have no sign, and two codes of their own.
TEST(PackedTypes, EveryScaleByteOfGgmlsNvfp4KeepsItsValue) {
    auto stored = make(*find_format("nvfp4_gguf"), 64, 64, 3);
    for (int code = 0; code < 256; ++code)
        stored.data[static_cast<size_t>(code / 4 * 36 + code % 4)] = static_cast<std::byte>(code);
    expect_values(unpacked(packed(view(stored)), view(stored)), view(stored), "every scale");
}

TEST(PackedTypes, EveryNamedFormatHasOneAndUnknownOnesNone) {
    for (const FormatTraits& traits : all_formats())
        EXPECT_NE(packed_type_of(traits.format), PackedType::none) << traits.name;
    for (const FormatTraits* traits : formats())
        EXPECT_NE(packed_type_of(traits->format), PackedType::none) << traits->name;
    EXPECT_EQ(packed_type_of(find_format("kbit5_f32")->format), PackedType::kbit5_f32);
    EXPECT_EQ(packed_type_of(find_format("kbit2")->format), PackedType::kbit2);
    EXPECT_EQ(packed_type_of(find_format("mxfp4_gguf")->format), PackedType::mxfp4);
    EXPECT_EQ(packed_type_of(nvfp4_divide_format.format), PackedType::nvfp4);
    moe_format unknown = find_format("q8_0")->format;
    unknown.block_id = 999;
    EXPECT_EQ(packed_type_of(unknown), PackedType::none);
    unknown.type = MOE_TYPE_INT;
    EXPECT_EQ(packed_type_of(unknown), PackedType::none);
}

}  // namespace
}  // namespace moe
