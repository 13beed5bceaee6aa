// Tables of columns: in which order act-order packs them, what cannot be packed so, and that the
// tiles are those of a matrix without a table.
#include <gtest/gtest.h>

#include "libmoe/base/error.hpp"
#include "libmoe/weights/view.hpp"
#include "tests/formats/sources.hpp"
#include "tests/packed/packing.hpp"

namespace moe {
namespace {

using test::Source;

moe_format in_any_order(int32_t bits, int32_t group, moe_packing packing = MOE_PACKING_GPTQ) {
    return test::int_format(packing, bits, group, MOE_TYPE_F16, MOE_ZERO_POINT_PACKED, true);
}

std::vector<uint32_t> order_of(const std::vector<int32_t>& groups, int32_t group) {
    Source source = test::random_source(in_any_order(4, group), 16, std::ssize(groups));
    source.permutation = groups;
    return test::columns_of(view_of(source.tensor(), 0, "down"));
}

std::string refusal_of(const std::vector<int32_t>& groups, int32_t group) {
    try {
        order_of(groups, group);
    } catch (const Error& error) {
        EXPECT_EQ(error.status(), MOE_ERROR_UNSUPPORTED);
        return error.what();
    }
    return "nothing";
}

TEST(OrderOfColumns, IsByGroupAndInAGroupTheirOwn) {
    std::vector<int32_t> groups(48);
    for (int32_t k = 0; k < 48; ++k) groups[static_cast<size_t>(k)] = (k + 1) % 3;
    const auto order = order_of(groups, 16);
    for (uint32_t i = 0; i < 16; ++i) {
        EXPECT_EQ(order[i], 3 * i + 2);  // group 0
        EXPECT_EQ(order[16 + i], 3 * i);
        EXPECT_EQ(order[32 + i], 3 * i + 1);
    }
}

TEST(OrderOfColumns, OfColumnsInOrderIsThatOrder) {
    std::vector<int32_t> groups;
    for (int32_t k = 0; k < 96; ++k) groups.push_back(k / 32);
    const auto order = order_of(groups, 32);
    for (uint32_t k = 0; k < 96; ++k) EXPECT_EQ(order[k], k);
}

// 80 columns in groups of 32: the last one has 16.
TEST(OrderOfColumns, TakesALastGroupThatIsSmaller) {
    std::vector<int32_t> groups;
    for (int32_t k = 0; k < 80; ++k) groups.push_back(k < 16 ? 2 : (k - 16) / 32);
    const auto order = order_of(groups, 32);
    for (uint32_t k = 0; k < 80; ++k) EXPECT_EQ(order[k], k < 64 ? k + 16 : k - 64);
}

TEST(OrderOfColumns, RefusesGroupsOfOtherSizes) {
    EXPECT_NE(
        refusal_of(std::vector<int32_t>(96, 1), 32)
            .find("test: permutation: group 0 has 0 columns, the packed layout has 32 for it"),
        std::string::npos);
    std::vector<int32_t> groups;
    for (int32_t k = 0; k < 96; ++k) groups.push_back(k / 32);
    groups[95] = 1;
    EXPECT_NE(refusal_of(groups, 32).find("group 1 has 33 columns, the packed layout has 32"),
              std::string::npos);
    groups[95] = 0;
    EXPECT_NE(refusal_of(groups, 32).find("group 0 has 33 columns"), std::string::npos);
}

// The same matrix with its columns written down in the order of their groups.
Source sorted(const Source& source, const std::vector<uint32_t>& order) {
    Source to = source;
    to.format.act_order = 0;
    to.permutation = std::vector<int32_t>();  // no pointer
    std::fill(to.data.begin(), to.data.end(), std::byte{0});
    const int32_t bits = source.format.bits;
    const bool is_gptq = source.format.packing == MOE_PACKING_GPTQ;
    const int64_t words = (source.columns * bits + 31) / 32;
    for (int64_t n = 0; n < source.rows; ++n)
        for (int64_t k = 0; k < source.columns; ++k) {
            const int code = source.code(n, order[static_cast<size_t>(k)]);
            for (int32_t b = 0; b < bits; ++b) {
                const int64_t bit = k * bits + b;
                const int64_t word = is_gptq ? bit / 32 * source.rows + n : n * words + bit / 32;
                to.data[static_cast<size_t>(4 * word + bit % 32 / 8)] |=
                    static_cast<std::byte>((code >> b & 1) << bit % 8);
            }
        }
    return to;
}

TEST(OrderOfColumns, PacksTheBytesOfTheSortedMatrix) {
    for (const auto packing : {MOE_PACKING_GPTQ, MOE_PACKING_BIT_STREAM})
        for (const int32_t bits : {2, 3, 4, 8})
            for (const int32_t group : {32, 64, 128}) {
                const Source source =
                    test::random_source(in_any_order(bits, group, packing), 32, 288);
                const Matrix matrix = view_of(source.tensor(), 0, "down");
                const Source in_order = sorted(source, test::columns_of(matrix));
                const auto got = test::packed(matrix);
                const auto wanted = test::packed(view_of(in_order.tensor(), 0, "down"));
                EXPECT_EQ(got.type, wanted.type);
                EXPECT_TRUE(got.bytes == wanted.bytes) << bits << " bits, groups of " << group;
                EXPECT_NE(test::columns_of(matrix)[0], 0u) << "the order proves nothing";
            }
}

// Rows of a slice keep the order of the whole; so do rows for half of a tile.
TEST(OrderOfColumns, PartsOfRowsPackWithoutLoss) {
    const Source source = test::random_source(in_any_order(4, 32), 96, 160);
    const Matrix part = part_of(view_of(source.tensor(), 0, "up"), 40, 32, 0, 160);
    const auto values =
        test::unpacked(test::packed(part, TileRows::up_half), part, TileRows::up_half);
    for (int64_t n = 0; n < 32; ++n)
        for (int64_t k = 0; k < 160; ++k)
            ASSERT_TRUE(test::same_float(values[static_cast<size_t>(n * 160 + k)],
                                         static_cast<float>(source.value(40 + n, k))));
}

// The activations are multiplied, so the tiles are those of NVFP4.
TEST(FactorsOfColumns, LeaveTheTilesAsTheyAre) {
    const auto stored = test::make(*find_format("nvfp4"), 32, 160, 4);
    const auto pre = test::gaussian(160, 5);
    Matrix with = test::view(stored);
    with.format.pre_quant_scale = 1;
    with.traits = find_format(with.format);
    with.pre_quant_scale = pre.data();
    EXPECT_EQ(column_table_of(with.format), ColumnTable::factors);
    const auto got = test::packed(with), wanted = test::packed(test::view(stored));
    EXPECT_EQ(got.type, PackedType::nvfp4);
    EXPECT_TRUE(got.bytes == wanted.bytes);
    EXPECT_EQ(got.global, wanted.global);
    const auto columns = test::columns_of(with);
    for (size_t k = 0; k < 160; ++k) EXPECT_EQ(std::bit_cast<float>(columns[k]), pre[k]);
    // A part has the factors of its columns.
    EXPECT_EQ(test::columns_of(part_of(with, 0, 16, 48, 64))[3], std::bit_cast<uint32_t>(pre[51]));
    const auto values = test::unpacked(got, with);
    const auto decoded = test::decode_all(with, *with.traits);
    for (size_t i = 0; i < values.size(); ++i)
        ASSERT_TRUE(test::same_float(values[i], decoded[i])) << i;
}

}  // namespace
}  // namespace moe
