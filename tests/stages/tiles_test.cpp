// How the CUDA sort cuts an expert's rows into tiles.
#include "libmoe/cuda/dispatch/tiles.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace moe::cuda {
namespace {

std::vector<Tile> tiles_for(const TileRule& rule, int32_t begin, int32_t count) {
    std::vector<Tile> tiles;
    for (int32_t i = 0; i < tiles_of_expert(rule, count); i++)
        tiles.push_back(make_tile(rule, 3, begin, count, i));
    return tiles;
}

class Tiles : public testing::TestWithParam<TileRule> {};

TEST_P(Tiles, CoverEveryRowOnce) {
    const TileRule rule = GetParam();
    for (int32_t count = 0; count <= 5 * rule.max_rows + 3; count++) {
        int32_t next = 40;
        for (const Tile& tile : tiles_for(rule, 40, count)) {
            ASSERT_EQ(tile.expert, 3);
            ASSERT_EQ(tile.row, next) << count;
            ASSERT_GT(tile.n_rows, 0) << count;
            next += tile.n_rows;
        }
        ASSERT_EQ(next, 40 + count);
    }
}

TEST_P(Tiles, AreEven) {
    const TileRule rule = GetParam();
    const int32_t count = 3 * rule.max_rows + 1;
    const std::vector<Tile> tiles = tiles_for(rule, 0, count);
    ASSERT_EQ(tiles.size(), 4u);
    for (size_t i = 0; i + 1 < tiles.size(); i++) EXPECT_EQ(tiles[i].n_rows, tiles[0].n_rows);
    EXPECT_EQ(tiles[0].n_rows % rule.granule, 0);
    EXPECT_LT(tiles[0].n_rows, count / 4 + 1 + rule.granule);
}

INSTANTIATE_TEST_SUITE_P(Rules, Tiles,
                         testing::Values(TileRule{64, 8, 0}, TileRule{256, 8, 48},
                                         TileRule{16, 1, 0}));

TEST(Tiles, OfManyRowsDoNotOverflow) {
    const TileRule rule{64, 8, 0};
    const int32_t count = 2147483000;
    const Tile last = make_tile(rule, 0, 0, count, tiles_of_expert(rule, count) - 1);
    EXPECT_EQ(int64_t{last.row} + last.n_rows, count);
    EXPECT_GT(last.n_rows, 0);
}

// Experts of each tile in the order of the list, from sums as the sort has them.
std::vector<int32_t> listed_experts(const TileRule& rule, const std::vector<int32_t>& counts) {
    TileCount all{};
    for (const int32_t count : counts) {
        const TileCount own = count_tiles(rule, count);
        all = {all.all + own.all, all.large + own.large};
    }
    std::vector<int32_t> experts(static_cast<size_t>(all.all), -1);
    TileCount before{};
    for (size_t e = 0; e < counts.size(); e++) {
        const TileCount own = count_tiles(rule, counts[e]);
        const int32_t first = first_tile(rule, counts[e], before, all.large);
        for (int32_t i = first; i < first + own.all; i++) {
            EXPECT_EQ(experts.at(static_cast<size_t>(i)), -1) << "two experts at " << i;
            experts.at(static_cast<size_t>(i)) = static_cast<int32_t>(e);
        }
        before = {before.all + own.all, before.large + own.large};
    }
    return experts;
}

TEST(Tiles, OfLargeExpertsComeFirst) {
    const std::vector<int32_t> counts{0, 48, 49, 0, 1, 600, 256, 0, 3, 257};
    EXPECT_EQ(listed_experts({256, 8, 48}, counts),
              (std::vector<int32_t>{2, 5, 5, 5, 6, 9, 9, 1, 4, 8}));
    EXPECT_EQ(listed_experts({64, 8, INT32_MAX}, {0, 65, 3, 0, 64}),
              (std::vector<int32_t>{1, 1, 2, 4}));
    EXPECT_TRUE(listed_experts({256, 8, 48}, {0, 0}).empty());
}

TEST(Rows, BoundsHoldForEverySpread) {
    const TileRule rule{64, 8, 0};
    for (int32_t n_slots = 1; n_slots < 400; n_slots += 7) {
        for (const int32_t n_experts : {1, 3, 50, 500}) {
            // the worst: every expert that can has one row, the rest in one
            const int32_t used = std::min(n_slots, n_experts);
            const int32_t large = n_slots - used + 1;
            EXPECT_LE(used - 1 + tiles_of_expert(rule, large),
                      most_tiles(rule, n_slots, n_experts));
            EXPECT_LE((used - 1) * row_alignment + round_up_to(large, row_alignment),
                      most_rows(n_slots, n_experts));
        }
    }
}

}  // namespace
}  // namespace moe::cuda
