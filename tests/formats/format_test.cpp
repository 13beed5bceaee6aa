// The table: look-ups that must find and must not find, names, sizes and the errors of sizes.
#include "libmoe/formats/format.hpp"

#include <gtest/gtest.h>

#include <string>

#include "libmoe/base/error.hpp"
#include "libmoe/checkpoint/element.hpp"
#include "tests/formats/matrices.hpp"

namespace moe {
namespace {

template <class Call>
Error error_of(Call call) {
    try {
        call();
    } catch (const Error& error) {
        return error;
    }
    ADD_FAILURE() << "no error";
    return Error(MOE_OK, "", {});
}

bool mentions(const Error& error, const std::string& text) {
    return std::string(error.what()).find(text) != std::string::npos;
}

TEST(Formats, HaveTheNamesOfTheHeaderInItsOrder) {
    const char* names[] = {
        "f32",     "f16",    "bf16",       "fp8_128x128", "nvfp4",     "mxfp4",     "kbit2",
        "kbit3",   "kbit4",  "kbit5",      "kbit2_f32",   "kbit3_f32", "kbit4_f32", "kbit5_f32",
        "q8_0",    "q4_k",   "mxfp4_gguf", "q4_0",        "q4_1",      "q5_0",      "q5_1",
        "q2_k",    "q3_k",   "q5_k",       "q6_k",        "iq4_nl",    "iq4_xs",    "nvfp4_gguf",
        "iq2_xxs", "iq2_xs", "iq3_xxs",    "iq3_s"};
    ASSERT_EQ(all_formats().size(), std::size(names));
    for (size_t i = 0; i < std::size(names); ++i) EXPECT_STREQ(all_formats()[i].name, names[i]);
}

TEST(Formats, AreFoundByNameAndByFields) {
    for (const FormatTraits& traits : all_formats()) {
        EXPECT_EQ(find_format(traits.name), &traits);
        EXPECT_EQ(traits.format.struct_size, sizeof(moe_format));
        moe_format format = traits.format;
        format.struct_size = 0;
        EXPECT_EQ(find_format(format), &traits);
        EXPECT_EQ(&get_format(format, "gate"), &traits);
        EXPECT_STREQ(format_name(format).text, traits.name);
        EXPECT_NE(traits.decode, nullptr);
        const bool is_grid = traits.name[0] == 'i' && traits.name[2] != '4';
        EXPECT_EQ(traits.encode == nullptr, is_grid) << traits.name;
    }
    EXPECT_EQ(find_format("nvfp5"), nullptr);
    EXPECT_EQ(find_format(""), nullptr);
    EXPECT_EQ(find_format("kbit4_given"), nullptr);
}

TEST(Formats, WithoutAPublicNameAreFoundByFields) {
    for (int bits = 2; bits <= 5; ++bits) {
        moe_format format = find_format("kbit2")->format;
        format.bits = bits;
        format.codebook = MOE_CODEBOOK_GIVEN;
        const FormatTraits* traits = find_format(format);
        ASSERT_NE(traits, nullptr) << bits;
        EXPECT_EQ(traits->block_bytes, 4 * bits);
        EXPECT_EQ(builtin_codebook(format), nullptr);
        format.scale_type = MOE_TYPE_F32;
        ASSERT_NE(find_format(format), nullptr) << bits;
        EXPECT_EQ(find_format(format)->scale_bytes, 4);
    }
    moe_format format = find_format("nvfp4")->format;
    format.global_scale = MOE_GLOBAL_SCALE_DIVIDE;
    ASSERT_NE(find_format(format), nullptr);
    EXPECT_EQ(find_format(format)->encode, nullptr);
    format = find_format("fp8_128x128")->format;
    format.scale_type = MOE_TYPE_F8_E8M0;
    ASSERT_NE(find_format(format), nullptr);
    EXPECT_EQ(find_format(format)->scale_bytes, 1);
    format = find_format("nvfp4_gguf")->format;
    format.global_scale = MOE_GLOBAL_SCALE_NONE;
    ASSERT_NE(find_format(format), nullptr);
    EXPECT_EQ(find_format(format)->encode, nullptr);
}

// The numbers that files carry.
TEST(Formats, HaveTheIdsOfGgml) {
    const std::pair<const char*, int32_t> ids[] = {
        {"q4_0", 2},     {"q4_1", 3},        {"q5_0", 6},       {"q5_1", 7},    {"q8_0", 8},
        {"q2_k", 10},    {"q3_k", 11},       {"q4_k", 12},      {"q5_k", 13},   {"q6_k", 14},
        {"iq2_xxs", 16}, {"iq2_xs", 17},     {"iq3_xxs", 18},   {"iq4_nl", 20}, {"iq3_s", 21},
        {"iq4_xs", 23},  {"mxfp4_gguf", 39}, {"nvfp4_gguf", 40}};
    for (const auto& [name, id] : ids) {
        EXPECT_EQ(find_format(name)->format.block_id, id) << name;
        const Element* element = ggml_element(static_cast<uint32_t>(id));
        ASSERT_NE(element, nullptr);
        EXPECT_EQ(find_format(name)->block_columns, int32_t(element->block_elements)) << name;
        EXPECT_EQ(find_format(name)->block_bytes * 8, int32_t(element->block_bits)) << name;
    }
}

// FP8 takes other groups and scales, MXFP4 other scales, NVFP4 a scale of the activations: those
// are other entries.
bool is_other_format(const FormatTraits& traits, size_t field) {
    if (traits.format.type == MOE_TYPE_F8_E4M3) return field >= 2 && field <= 4;
    if (std::string(traits.name) == "mxfp4") return field == 4;
    return std::string(traits.name) == "nvfp4" && field == 12;
}

// Every field counts.
TEST(Formats, AreNotFoundWithAnyFieldChanged) {
    const int32_t odd = 9;
    for (const FormatTraits& traits : all_formats()) {
        std::vector<moe_format> wrong(13, traits.format);
        wrong[0].type = MOE_TYPE_INT;
        wrong[1].bits = odd;
        wrong[2].group_rows = odd;
        wrong[3].group_columns = odd;
        wrong[4].scale_type = MOE_TYPE_F16;
        wrong[5].global_scale = moe_global_scale(odd);
        wrong[6].zero_point = MOE_ZERO_POINT_MIDDLE;
        wrong[7].packing = MOE_PACKING_AWQ;
        wrong[8].codebook = MOE_CODEBOOK_BNB_NF4;
        wrong[9].block_id = odd;
        wrong[10].act_order = 1;
        wrong[11].nested_scales = 1;
        wrong[12].pre_quant_scale = 1;
        for (size_t i = 0; i < wrong.size(); ++i) {
            const FormatTraits* found = find_format(wrong[i]);
            EXPECT_EQ(found != nullptr, is_other_format(traits, i)) << traits.name << " " << i;
            EXPECT_NE(found, &traits) << traits.name << " field " << i;
            EXPECT_FALSE(same_format(wrong[i], traits.format)) << traits.name << " field " << i;
        }
    }
    EXPECT_EQ(find_format(moe_format{}), nullptr);
}

TEST(Formats, UnknownOnesGetANameAndAnError) {
    moe_format format{};
    format.type = MOE_TYPE_INT;
    format.bits = 4;
    format.group_rows = 1;
    format.group_columns = 128;
    format.scale_type = MOE_TYPE_F16;
    format.packing = MOE_PACKING_GPTQ;  // without zero points
    EXPECT_STREQ(format_name(format).text, "int4 gptq 1x128 f16");
    const Error error = error_of([&] { get_format(format, "expert 3 gate"); });
    EXPECT_EQ(error.status(), MOE_ERROR_UNSUPPORTED);
    EXPECT_TRUE(mentions(error, "expert 3 gate")) << error.what();
    EXPECT_TRUE(mentions(error, "int4 gptq 1x128 f16")) << error.what();

    format = {};
    format.type = MOE_TYPE_GGUF;
    format.block_id = 19;
    EXPECT_STREQ(format_name(format).text, "gguf type 19 (iq1_s)");
}

TEST(Formats, LongNamesAreCut) {
    moe_format format{};
    format.type = MOE_TYPE_CODEBOOK;
    format.bits = INT32_MIN;
    format.group_rows = INT32_MIN;
    format.group_columns = INT32_MIN;
    format.scale_type = moe_type(-5);
    format.packing = MOE_PACKING_NIBBLE_HIGH_FIRST;
    format.act_order = format.nested_scales = 1;
    const FormatName name = format_name(format);
    EXPECT_EQ(std::strlen(name.text), sizeof name.text - 1);
}

TEST(Formats, SizesOfMatrices) {
    const struct {
        const char* name;
        int64_t rows, columns;
        uint64_t row_stride, data, scale_row_stride, scales;
    } cases[] = {
        {"f32", 3, 5, 20, 60, 0, 0},
        {"bf16", 3, 5, 10, 30, 0, 0},
        {"fp8_128x128", 2048, 7168, 7168, 2048 * 7168, 56 * 4, 16 * 56 * 4},
        {"fp8_128x128", 130, 129, 129, 130 * 129, 2 * 4, 2 * 2 * 4},
        {"nvfp4", 512, 2048, 1024, 512 * 1024, 128, 512 * 128},
        {"mxfp4", 10, 2880, 1440, 14400, 90, 900},
        {"kbit3", 2, 64, 24, 48, 2, 4},
        {"kbit5_f32", 2, 64, 40, 80, 8, 16},
        {"q8_0", 2, 64, 68, 136, 0, 0},
        {"q4_k", 2, 512, 288, 576, 0, 0},
        {"q4_0", 2, 64, 36, 72, 0, 0},
        {"q5_1", 2, 64, 48, 96, 0, 0},
        {"q6_k", 2, 512, 420, 840, 0, 0},
        {"iq3_s", 2, 512, 220, 440, 0, 0},
        {"nvfp4_gguf", 2, 128, 72, 144, 0, 0},
    };
    for (const auto& c : cases) {
        const MatrixBytes bytes = matrix_bytes(*find_format(c.name), c.rows, c.columns);
        EXPECT_EQ(bytes.row_stride, c.row_stride) << c.name;
        EXPECT_EQ(bytes.data, c.data) << c.name;
        EXPECT_EQ(bytes.scale_row_stride, c.scale_row_stride) << c.name;
        EXPECT_EQ(bytes.scales, c.scales) << c.name;
    }
}

TEST(Formats, RefuseColumnsThatDoNotFit) {
    for (const FormatTraits& traits : all_formats()) {
        if (traits.block_columns == 1) continue;
        const Error error = error_of([&] { matrix_bytes(traits, 4, traits.block_columns + 8); });
        EXPECT_EQ(error.status(), MOE_ERROR_INVALID_ARGUMENT);
        EXPECT_TRUE(mentions(error, "columns")) << error.what();
        EXPECT_TRUE(mentions(error, std::to_string(traits.block_columns + 8))) << error.what();
        EXPECT_TRUE(mentions(error, traits.name)) << error.what();
    }
}

TEST(Formats, RefuseImpossibleSizes) {
    for (const FormatTraits& traits : all_formats()) {
        const int64_t large = int64_t{1} << 62;
        EXPECT_EQ(error_of([&] { matrix_bytes(traits, large, large); }).status(),
                  MOE_ERROR_INVALID_ARGUMENT);
        EXPECT_EQ(error_of([&] { matrix_bytes(traits, INT64_MAX, 256); }).status(),
                  MOE_ERROR_INVALID_ARGUMENT);
        EXPECT_TRUE(mentions(error_of([&] { matrix_bytes(traits, 0, 256); }), "rows is 0"));
        EXPECT_TRUE(mentions(error_of([&] { matrix_bytes(traits, 1, -256); }), "columns is -256"));
    }
    // fp8 columns need not be a multiple of anything, but the ceiling must not overflow.
    const MatrixBytes bytes = matrix_bytes(*find_format("fp8_128x128"), 1, INT64_MAX);
    EXPECT_EQ(bytes.data, uint64_t(INT64_MAX));
}

TEST(Formats, BytesAndNamesOfElements) {
    EXPECT_EQ(element_bytes(MOE_TYPE_F32), 4);
    EXPECT_EQ(element_bytes(MOE_TYPE_F16), 2);
    EXPECT_EQ(element_bytes(MOE_TYPE_BF16), 2);
    EXPECT_EQ(element_bytes(MOE_TYPE_I64), 8);
    EXPECT_EQ(element_bytes(MOE_TYPE_F8_E4M3), 1);
    EXPECT_EQ(element_bytes(MOE_TYPE_E2M1), 0);
    EXPECT_EQ(element_bytes(MOE_TYPE_GGUF), 0);
    EXPECT_EQ(element_bytes(moe_type(77)), 0);
    EXPECT_STREQ(type_name(MOE_TYPE_BF16), "bf16");
    EXPECT_STREQ(type_name(moe_type(77)), "unknown");
}

}  // namespace
}  // namespace moe
