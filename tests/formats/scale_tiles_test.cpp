// moe_scale_layout_size and moe_convert_scales: known places, every place of odd sizes, padding,
// and what is refused.
#include <gtest/gtest.h>

#include "tests/formats/tiles.hpp"
#include "tests/support/api.hpp"

namespace moe {
namespace {

using Bytes = std::vector<std::byte>;
using moe_test::sized;

constexpr auto linear = MOE_SCALE_LAYOUT_LINEAR;
constexpr auto tiled = MOE_SCALE_LAYOUT_TILED_128X4;
constexpr auto bad = MOE_ERROR_INVALID_ARGUMENT;

uint64_t size_of(moe_scale_layout layout, int64_t rows, int64_t columns) {
    uint64_t bytes = 0;
    EXPECT_MOE_OK(moe_scale_layout_size(layout, rows, columns, &bytes));
    return bytes;
}

struct Conversion {
    Conversion(const Bytes& from, moe_scale_layout from_layout, moe_scale_layout to_layout,
               int64_t rows, int64_t columns)
        : out(size_of(to_layout, rows, columns), std::byte{0xA5}) {
        args.source_layout = from_layout;
        args.layout = to_layout;
        args.rows = rows;
        args.columns = columns;
        args.source = from.data();
        args.source_bytes = from.size();
        args.scales = out.data();
        args.scale_bytes = out.size();
    }
    Bytes out;
    moe_convert_scales_args args = sized<moe_convert_scales_args>();
};

Bytes convert(const Bytes& from, moe_scale_layout from_layout, moe_scale_layout to_layout,
              int64_t rows, int64_t columns) {
    Conversion made(from, from_layout, to_layout, rows, columns);
    EXPECT_MOE_OK(moe_convert_scales(&made.args));
    return made.out;
}

// Where the only scale that is not zero comes to lie.
int64_t place_of(int64_t rows, int64_t columns, int64_t row, int64_t column) {
    Bytes scales(static_cast<size_t>(rows * columns));
    scales[static_cast<size_t>(row * columns + column)] = std::byte{0x42};
    const Bytes tiles = convert(scales, linear, tiled, rows, columns);
    int64_t place = -1;
    for (size_t i = 0; i < tiles.size(); ++i) {
        if (tiles[i] == std::byte{}) continue;
        EXPECT_EQ(tiles[i], std::byte{0x42});
        EXPECT_EQ(place, -1) << "two of one";
        place = static_cast<int64_t>(i);
    }
    return place;
}

// By hand: 90 columns are 23 tiles, so a row of tiles is 23 * 512 = 11776 bytes.
TEST(ScaleTiles, KnownPlaces) {
    const struct {
        int64_t rows, columns, row, column, place;
    } cases[] = {
        {128, 4, 0, 0, 0},
        {128, 4, 0, 3, 3},
        {128, 4, 1, 0, 16},
        {128, 4, 31, 3, 499},      // 31 * 16 + 3
        {128, 4, 32, 0, 4},        // the second quarter of the tile's rows
        {128, 4, 33, 1, 21},       // 16 + 4 + 1
        {128, 4, 64, 2, 10},       // 2 * 4 + 2
        {128, 4, 96, 3, 15},       // 3 * 4 + 3
        {128, 4, 127, 3, 511},     // 31 * 16 + 3 * 4 + 3
        {129, 4, 128, 0, 512},     // the next row of tiles
        {1, 5, 0, 4, 512},         // the next tile of a row
        {129, 5, 128, 4, 1536},    // tile 3
        {2880, 90, 0, 89, 11265},  // 22 * 512 + 1
        {2880, 90, 128, 0, 11776},
        {2880, 90, 129, 89, 23057},    // 11776 + 11265 + 16
        {2880, 90, 2879, 89, 270837},  // 22 * 11776 + 11265 + 31 * 16 + 1 * 4
    };
    for (const auto& c : cases)
        EXPECT_EQ(place_of(c.rows, c.columns, c.row, c.column), c.place)
            << c.rows << " x " << c.columns << " [" << c.row << ", " << c.column << "]";
}

// The inverse as NVIDIA's documentation of cuBLAS has it.
TEST(ScaleTiles, EveryByteOfATileIsTheDocumentedScale) {
    for (int64_t offset = 0; offset < 512; ++offset)
        EXPECT_EQ(place_of(128, 4, offset % 16 / 4 * 32 + offset / 16, offset % 4), offset);
}

TEST(ScaleTiles, SizesArePadded) {
    EXPECT_EQ(size_of(tiled, 1, 1), 512u);
    EXPECT_EQ(size_of(tiled, 128, 4), 512u);
    EXPECT_EQ(size_of(tiled, 129, 4), 1024u);
    EXPECT_EQ(size_of(tiled, 128, 5), 1024u);
    EXPECT_EQ(size_of(tiled, 2880, 90), 23u * 23 * 512);
    EXPECT_EQ(size_of(linear, 2880, 90), 2880u * 90);
}

TEST(ScaleTiles, OddSizesGoThereAndBack) {
    for (const int64_t rows : {1, 127, 128, 129, 2880})
        for (const int64_t columns : {1, 3, 4, 5, 90}) {
            SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(columns));
            const Bytes scales = test::random_bytes(static_cast<uint64_t>(rows * columns), 7);
            const Bytes tiles = convert(scales, linear, tiled, rows, columns);
            size_t i = 0;
            test::walk_tiles(rows, columns, [&](int64_t row, int64_t column) {
                const bool is_padding = row >= rows || column >= columns;
                const auto wanted =
                    is_padding ? std::byte{} : scales[static_cast<size_t>(row * columns + column)];
                ASSERT_EQ(tiles[i++], wanted) << row << ", " << column;
            });
            ASSERT_EQ(i, tiles.size());
            EXPECT_EQ(convert(tiles, tiled, linear, rows, columns), scales);
            // Whatever the padding holds.
            const Bytes dirty = test::tiles_of(scales.data(), rows, columns);
            EXPECT_EQ(convert(dirty, tiled, linear, rows, columns), scales);
            EXPECT_EQ(convert(dirty, tiled, tiled, rows, columns), tiles);
            EXPECT_EQ(convert(scales, linear, linear, rows, columns), scales);
        }
}

TEST(ScaleTiles, BuffersAreCheckedToTheByte) {
    const Bytes scales(129 * 5);
    for (const auto change : {0, 1, 2, 3}) {
        Conversion made(scales, linear, tiled, 129, 5);
        const char* text = "";
        if (change == 0) made.args.source_bytes -= 1, text = "source_bytes is 644, 645 are needed";
        if (change == 1) made.args.scale_bytes -= 1, text = "scale_bytes is 2047, 2048 are needed";
        if (change == 2) made.args.source = nullptr, text = "source is NULL";
        if (change == 3) made.args.scales = nullptr, text = "scales is NULL, 2048 bytes are needed";
        EXPECT_MOE_ERROR(moe_convert_scales(&made.args), bad, text);
        EXPECT_EQ(made.out, Bytes(2048, std::byte{0xA5})) << "written by a call that failed";
    }
}

TEST(ScaleTiles, WritesNotAByteMore) {
    const Bytes scales(3, std::byte{1});
    Conversion made(scales, linear, tiled, 3, 1);
    made.out.resize(512 + 8, std::byte{0xA5});
    made.args.scales = made.out.data();
    made.args.scale_bytes = made.out.size();
    EXPECT_MOE_OK(moe_convert_scales(&made.args));
    EXPECT_EQ(Bytes(made.out.begin() + 512, made.out.end()), Bytes(8, std::byte{0xA5}));
    EXPECT_EQ(made.out[511], std::byte{});
}

TEST(ScaleTiles, OverlapIsRefused) {
    Bytes memory(1024);
    Conversion made(Bytes(4), linear, tiled, 1, 4);
    made.args.source_bytes = 4;
    for (const int64_t at : {-3, 0, 508, 511}) {
        made.args.scales = memory.data() + 100;
        made.args.source = memory.data() + 100 + at;
        EXPECT_MOE_ERROR(moe_convert_scales(&made.args), bad, "scales overlaps source");
    }
    for (const int64_t at : {-4, 512}) {
        made.args.source = memory.data() + 100 + at;
        EXPECT_MOE_OK(moe_convert_scales(&made.args));
    }
}

TEST(ScaleTiles, SizesAndLayoutsThatCannotBeAreRefused) {
    uint64_t bytes = 99;
    const auto unknown = static_cast<moe_scale_layout>(2);
    EXPECT_MOE_ERROR(moe_scale_layout_size(tiled, 0, 4, &bytes), bad, "rows is 0");
    EXPECT_MOE_ERROR(moe_scale_layout_size(linear, 4, -1, &bytes), bad, "columns is -1");
    EXPECT_MOE_ERROR(moe_scale_layout_size(unknown, 4, 4, &bytes), bad, "layout is 2");
    const int64_t most = INT64_MAX;
    for (const auto layout : {linear, tiled})
        EXPECT_MOE_ERROR(moe_scale_layout_size(layout, most, most, &bytes), bad, "overflows");
    EXPECT_MOE_ERROR(moe_scale_layout_size(tiled, 1, most, &bytes), bad, "overflows 64 bits");
    // What fits 64 bits and not 63.
    EXPECT_MOE_ERROR(moe_scale_layout_size(linear, most, 2, &bytes), bad, "too large");
    EXPECT_MOE_ERROR(moe_scale_layout_size(tiled, most / 4, 4, &bytes), bad, "too large");
    EXPECT_MOE_ERROR(moe_scale_layout_size(tiled, 4, 4, nullptr), bad, "out_bytes");
    EXPECT_EQ(bytes, 99u) << "written by a call that failed";
    const Bytes scales(16);
    Conversion made(scales, linear, tiled, 4, 4);
    made.args.layout = unknown;
    EXPECT_MOE_ERROR(moe_convert_scales(&made.args), bad, "layout is 2");
    made.args.layout = tiled;
    made.args.source_layout = unknown;
    EXPECT_MOE_ERROR(moe_convert_scales(&made.args), bad, "source_layout is 2");
    made.args.source_layout = linear;
    made.args.rows = most;
    EXPECT_MOE_ERROR(moe_convert_scales(&made.args), bad, "overflows 64 bits");
    made.args.rows = 4;
    made.args.reserved = 1;
    EXPECT_MOE_ERROR(moe_convert_scales(&made.args), bad, "reserved");
    EXPECT_MOE_ERROR(moe_convert_scales(nullptr), bad, "moe_convert_scales_args");
}

}  // namespace
}  // namespace moe
