// The table of packed types: what its rows must agree on, and the switches and numbers beside it.
#include "libmoe/packed/traits.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "libmoe/packed/layout.hpp"

namespace moe {
namespace {

TEST(PackedTraits, NamesAreTheTypesOwn) {
    std::set<std::string_view> names;
    for (const PackedTraits& row : packed_traits) {
        EXPECT_TRUE(names.insert(packed_type_name(row.type)).second) << row.name;
        EXPECT_EQ(packed_revision(std::string_view(row.name)), row.revision) << row.name;
        EXPECT_EQ(row.revision > 0, row.type != PackedType::none) << row.name;
    }
    EXPECT_EQ(packed_type_name(PackedType::kbit4_f32), "kbit4_f32");
    EXPECT_EQ(packed_revision("a type of tomorrow"), 0);
}

// Codes and scales of every block that a type can have begin on multiples of 16 bytes.
TEST(PackedTraits, BlocksKeepTheirAlignment) {
    for (const PackedTraits& row : packed_traits) {
        for (const int32_t n : {1, 2, 4}) {
            if (16 * n < row.column_step && !(has_superblock(row.type) && n == 4)) continue;
            EXPECT_EQ(block_code_bytes(row.type, n) % 16, 0) << row.name << ' ' << n;
            EXPECT_EQ(has_superblock(row.type) ? 0 : block_scale_bytes(row.type, n) % 16, 0)
                << row.name << ' ' << n;
        }
        EXPECT_EQ(16 * ggml_scale_bytes(row.type) % 16, 0) << row.name;
    }
}

TEST(PackedTraits, ScaleRecordsAreWhereTheSchemeHasThem) {
    for (const PackedTraits& row : packed_traits) {
        const bool has_records = row.scales != ScaleScheme::none && row.scales != ScaleScheme::grid;
        EXPECT_EQ(row.group > 0, has_records) << row.name;
        EXPECT_EQ(row.record_bytes > 0, has_records) << row.name;
        EXPECT_EQ(row.column_step % 16, 0) << row.name;
        // e4m3 alone has groups that a block of one step does not fill.
        if (row.scales != ScaleScheme::f32_of_8_rows) {
            EXPECT_GE(row.column_step, row.group) << row.name;
        }
    }
}

// By the meaning of the types, for the questions that kernels ask.
TEST(PackedTraits, QuestionsHaveTheirAnswers) {
    const auto names = [](auto question) {
        std::string all;
        for (const PackedTraits& row : packed_traits)
            if (question(row.type)) all += std::string(row.name) + ' ';
        return all;
    };
    EXPECT_EQ(names(is_e2m1), "nvfp4 mxfp4 ");
    EXPECT_EQ(names(has_codebook),
              "kbit2 kbit3 kbit4 kbit5 kbit2_f32 kbit3_f32 kbit4_f32 kbit5_f32 grid_codebook ");
    EXPECT_EQ(names(has_f32_scales), "kbit2_f32 kbit3_f32 kbit4_f32 kbit5_f32 ");
    EXPECT_EQ(names(is_row_ordered), "e4m3 kbit2 kbit3 kbit2_f32 kbit3_f32 iq4_xs iq4_nl ");
    EXPECT_EQ(names(has_sign_codes), "kbit5 kbit5_f32 ");
    EXPECT_EQ(names(is_iq_grid), "iq2_xxs iq2_xs iq3_xxs iq3_s ");
    EXPECT_EQ(names(has_superblock),
              "q4_k q5_k q2_k q3_k q6_k iq4_xs iq2_xxs iq2_xs iq3_xxs iq3_s ");
    EXPECT_EQ(names(is_grid),
              "grid_e4m3 grid_1 grid_2 grid_3 grid_4 grid_5 grid_6 grid_7 grid_8 grid_codebook ");
    EXPECT_EQ(names([](PackedType type) { return has_ggml_scales(type) && !has_superblock(type); }),
              "q4_0 iq4_nl q5_0 q4_1 q5_1 ");
}

TEST(GridNumbers, ComeBackFromTheType) {
    for (const GridScale scale : {GridScale::f32, GridScale::bf16, GridScale::e4m3})
        for (const GridZero zero : {GridZero::middle, GridZero::packed_minus_one})
            for (const int32_t group : {0, 16, 128, most_grid_group}) {
                const PackedType type = grid_type(PackedType::grid_codebook, scale, zero, group);
                const GridNumbers numbers = grid_numbers(type);
                EXPECT_EQ(kind_of(type), PackedType::grid_codebook);
                EXPECT_TRUE(is_grid(type) && has_codebook(type));
                EXPECT_EQ(numbers.scale, scale);
                EXPECT_EQ(numbers.zero, zero);
                EXPECT_EQ(numbers.group, group);
            }
}

}  // namespace
}  // namespace moe
