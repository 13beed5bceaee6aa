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
        tiles.push_back(cut_tile(rule, 3, begin, count, i));
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
                         testing::Values(TileRule{64, 8}, TileRule{256, 8}, TileRule{16, 1}));

TEST(Tiles, OfManyRowsDoNotOverflow) {
    const TileRule rule{64, 8};
    const int32_t count = 2147483000;
    const Tile last = cut_tile(rule, 0, 0, count, tiles_of_expert(rule, count) - 1);
    EXPECT_EQ(int64_t{last.row} + last.n_rows, count);
    EXPECT_GT(last.n_rows, 0);
}

TEST(Tiles, AreFoundAmongEmptyExperts) {
    const std::vector<int32_t> n_tiles{0, 0, 2, 0, 1, 0, 0, 3, 0};
    std::vector<int32_t> first;
    std::vector<int32_t> expected;
    for (size_t e = 0; e < n_tiles.size(); e++) {
        first.push_back(static_cast<int32_t>(expected.size()));
        expected.insert(expected.end(), static_cast<size_t>(n_tiles[e]), static_cast<int32_t>(e));
    }
    for (size_t i = 0; i < expected.size(); i++)
        EXPECT_EQ(expert_of_tile(first.data(), static_cast<int32_t>(first.size()),
                                 static_cast<int32_t>(i)),
                  expected[i]);
}

TEST(Rows, BoundsHoldForEverySpread) {
    const TileRule rule{64, 8};
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
