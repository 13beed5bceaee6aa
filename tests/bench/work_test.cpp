// What the bench counts: bytes and products of stages by hand, and the skew of ids.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "bench/routing.hpp"
#include "bench/stage_work.hpp"

namespace moe::bench {
namespace {

const Model of_4{"of-4", 64, 48, 4, 2, 32};

TEST(StageWork, CountedByHand) {
    // Three tokens, six slots; x has 384 bytes, a row 128.
    const Work route = work_of_stage(MOE_STAGE_ROUTE, of_4, 3, 512);
    EXPECT_EQ(route.bytes, 512 + 384 + 6 * 4 + 6 * 4);
    EXPECT_EQ(route.flops, 2 * 3 * 64 * 4);
    const Work dispatch = work_of_stage(MOE_STAGE_DISPATCH, of_4, 3, 0);
    EXPECT_EQ(dispatch.bytes, 6 * 4 + 6 * 4 + 5 * 8);
    EXPECT_EQ(dispatch.flops, 0);
    const Work experts = work_of_stage(MOE_STAGE_EXPERTS, of_4, 3, 1000);
    EXPECT_EQ(experts.bytes, 1000 + 384 + 6 * 4 + 6 * 128);
    EXPECT_EQ(experts.flops, 6 * 6 * 64 * 48);
    const Work combine = work_of_stage(MOE_STAGE_COMBINE, of_4, 3, 0);
    EXPECT_EQ(combine.bytes, 6 * 128 + 6 * 8 + 384);
    EXPECT_EQ(combine.flops, 2 * 6 * 64);
    const Work finish = work_of_stage(MOE_STAGE_FINISH, of_4, 3, 2000);
    EXPECT_EQ(finish.bytes, 2000 + 3 * 384);
    EXPECT_EQ(finish.flops, 6 * 3 * 64 * 32);
}

TEST(StageWork, LargeCountsDoNotOverflow) {
    const Model large{"large", 7168, 2048, 256, 8, 2048};
    const Work experts = work_of_stage(MOE_STAGE_EXPERTS, large, 1 << 20, 0);
    EXPECT_GT(experts.flops, 7e14);
    EXPECT_GT(experts.bytes, 1.3e11);
}

// Slots of the most wanted expert over those of the average one.
double load(double zipf) {
    Router router(32, 4, zipf, 5);
    std::vector<int32_t> slots(32);
    for (const int32_t id : router.ids(4000)) ++slots[id];
    return 32.0 * *std::max_element(slots.begin(), slots.end()) /
           std::accumulate(slots.begin(), slots.end(), 0);
}

TEST(Routing, SkewGrowsWithTheExponent) {
    EXPECT_LT(load(0), 1.15);
    EXPECT_GT(load(1.2), 4);
    EXPECT_GT(load(2.0), load(1.2));
    EXPECT_LE(load(2.0), 8);  // every token at most once
}

TEST(Routing, ExpertsOfATokenDiffer) {
    Router router(8, 8, 2.0, 5);
    for (int token = 0; token < 50; ++token) EXPECT_EQ(count_distinct(router.ids(1), 8), 8);
}

}  // namespace
}  // namespace moe::bench
