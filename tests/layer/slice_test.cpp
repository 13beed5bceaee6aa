// Slices: membership of experts, ranges of features, and their refusals.
#include "libmoe/layer/slice.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "libmoe/base/error.hpp"

namespace moe {
namespace {

Layer layer_of(int32_t intermediate, int32_t shared) {
    Layer layer;
    layer.hidden = 64;
    layer.intermediate = intermediate;
    layer.n_experts = 6;
    layer.shared_intermediate = shared;
    return layer;
}

moe_slice empty_slice() {
    moe_slice slice{};
    slice.struct_size = sizeof slice;
    return slice;
}

moe_slice experts(int32_t begin, int32_t count) {
    moe_slice slice = empty_slice();
    slice.has_expert_range = 1;
    slice.expert_begin = begin;
    slice.expert_count = count;
    return slice;
}

moe_slice mapped(const std::vector<int32_t>& map) {
    moe_slice slice = empty_slice();
    slice.expert_to_local = map.data();
    slice.n_expert_to_local = static_cast<int32_t>(map.size());
    return slice;
}

moe_slice features(int32_t begin, int32_t count) {
    moe_slice slice = empty_slice();
    slice.has_intermediate_range = 1;
    slice.intermediate_begin = begin;
    slice.intermediate_count = count;
    return slice;
}

moe_slice shared_features(int32_t begin, int32_t count) {
    moe_slice slice = empty_slice();
    slice.has_shared_range = 1;
    slice.shared_begin = begin;
    slice.shared_count = count;
    return slice;
}

Slice make(const moe_slice* slice, const SliceGrid& grid = {},
           const Layer& layer = layer_of(80, 64)) {
    return make_slice(*std::pmr::new_delete_resource(), layer, slice, grid);
}

void expect_refused(const moe_slice& slice, const std::string& text, const SliceGrid& grid = {},
                    const Layer& layer = layer_of(80, 64)) {
    try {
        make(&slice, grid, layer);
        ADD_FAILURE() << "accepted; should say: " << text;
    } catch (const Error& error) {
        EXPECT_EQ(error.status(), MOE_ERROR_INVALID_ARGUMENT);
        EXPECT_NE(std::string(error.what()).find(text), std::string::npos)
            << error.what() << "\nshould say: " << text;
    }
}

std::vector<int32_t> plain(const std::pmr::vector<int32_t>& values) {
    return {values.begin(), values.end()};
}

TEST(Slice, NullIsTheWhole) {
    const moe_slice empty = empty_slice();
    for (const moe_slice* slice : {static_cast<const moe_slice*>(nullptr), &empty}) {
        const Slice result = make(slice);
        EXPECT_TRUE(result.whole());
        EXPECT_EQ(result.n_local, 6);
        EXPECT_EQ(plain(result.local_of), (std::vector<int32_t>{0, 1, 2, 3, 4, 5}));
        EXPECT_EQ(plain(result.global_of), plain(result.local_of));
        EXPECT_EQ(result.intermediate_count, 80);
        EXPECT_EQ(result.shared_count, 64);
        EXPECT_TRUE(result.every_id_is_local());
    }
}

TEST(Slice, ExpertRange) {
    const moe_slice slice = experts(2, 3);
    const Slice result = make(&slice);
    EXPECT_FALSE(result.whole());
    EXPECT_TRUE(result.whole_intermediate);
    EXPECT_EQ(result.n_local, 3);
    EXPECT_EQ(plain(result.local_of), (std::vector<int32_t>{-1, -1, 0, 1, 2, -1}));
    EXPECT_EQ(plain(result.global_of), (std::vector<int32_t>{2, 3, 4}));
    const moe_slice all = experts(0, 6);
    EXPECT_TRUE(make(&all).whole());
    EXPECT_TRUE(make(&all).every_id_is_local());
    const moe_slice first = experts(0, 3);
    EXPECT_FALSE(make(&first).every_id_is_local());
}

TEST(Slice, ExpertMap) {
    const std::vector<int32_t> map{2, -1, 0, -1, -1, 1};
    const moe_slice slice = mapped(map);
    const Slice result = make(&slice);
    EXPECT_FALSE(result.all_experts);
    EXPECT_EQ(plain(result.local_of), map);
    EXPECT_EQ(plain(result.global_of), (std::vector<int32_t>{2, 5, 0}));
    const std::vector<int32_t> reversed{5, 4, 3, 2, 1, 0};
    const moe_slice all = mapped(reversed);
    EXPECT_TRUE(make(&all).all_experts);
    EXPECT_EQ(plain(make(&all).global_of), reversed);
    EXPECT_FALSE(make(&all).every_id_is_local());
    EXPECT_FALSE(result.every_id_is_local());
}

TEST(Slice, RefusesExpertRanges) {
    expect_refused(experts(-1, 2), "expert_begin is -1");
    expect_refused(experts(6, 1), "expert_begin is 6");
    expect_refused(experts(2, 0), "expert_count is 0");
    expect_refused(experts(2, 5), "expert_count is 5");
    expect_refused(experts(1, INT32_MAX), "expert_count is 2147483647");
    moe_slice slice = experts(1, 0);
    slice.has_expert_range = 0;
    expect_refused(slice, "expert_begin is 1 but has_expert_range is 0");
    slice = experts(0, 2);
    slice.has_expert_range = 0;
    expect_refused(slice, "expert_count is 2 but has_expert_range is 0");
    slice.has_expert_range = 2;
    expect_refused(slice, "has_expert_range is 2");
}

TEST(Slice, RefusesExpertMaps) {
    expect_refused(mapped({0, 1, 2}), "n_expert_to_local is 3");
    expect_refused(mapped({0, 1, -2, -1, -1, -1}), "expert_to_local[2] is -2");
    expect_refused(mapped({0, 1, 2, 3, 4, 6}), "expert_to_local[5] is 6");
    expect_refused(mapped({0, 2, -1, -1, -1, -1}), "expert_to_local[1] is 2");
    expect_refused(mapped({0, 1, -1, 1, 2, -1}), "expert_to_local[3] is 1, as expert_to_local[1]");
    expect_refused(mapped({-1, -1, -1, -1, -1, -1}), "expert_to_local is -1 for all 6");
    moe_slice slice = empty_slice();
    slice.n_expert_to_local = 6;
    expect_refused(slice, "n_expert_to_local is 6 but expert_to_local is NULL");
    const std::vector<int32_t> map{0, 1, 2, 3, 4, 5};
    slice = mapped(map);
    slice.has_expert_range = 1;
    expect_refused(slice, "has_expert_range is 1");
}

TEST(Slice, IntermediateRange) {
    const moe_slice slice = features(16, 48);
    const Slice result = make(&slice);
    EXPECT_FALSE(result.whole());
    EXPECT_FALSE(result.whole_intermediate);
    EXPECT_TRUE(result.whole_shared && result.all_experts);
    EXPECT_EQ(result.intermediate_begin, 16);
    EXPECT_EQ(result.intermediate_count, 48);
    const moe_slice all = features(0, 80);
    EXPECT_TRUE(make(&all).whole());
}

// 80 features in columns of 32: the last part is 16 wide and ends at the end.
TEST(Slice, RangeEndsOnTheGridOrAtTheEnd) {
    const SliceGrid grid{{1, 32}, {1, 1}};
    const moe_slice last = features(64, 16);
    EXPECT_EQ(make(&last, grid).intermediate_count, 16);
    expect_refused(features(16, 64), "intermediate_begin is 16", grid);
    expect_refused(features(16, 64), "nearest legal are 0 and 32", grid);
    expect_refused(features(32, 16), "intermediate_begin + count is 48", grid);
    expect_refused(features(32, 16), "nearest legal are 32 and 64", grid);
    expect_refused(features(0, 72), "nearest legal are 64 and 80", grid);
}

TEST(Slice, GridsOfRowsAndColumnsBothCount) {
    expect_refused(features(0, 24), "nearest legal are 16 and 32");
    expect_refused(features(0, 32), "nearest legal are 0 and 48", {{24, 1}, {1, 1}});
    const moe_slice legal = features(0, 48);
    EXPECT_EQ(make(&legal, {{24, 8}, {1, 1}}).intermediate_count, 48);
}

TEST(Slice, RefusesRanges) {
    expect_refused(features(-16, 16), "intermediate_begin is -16");
    expect_refused(features(80, 16), "intermediate_begin is 80");
    expect_refused(features(16, 0), "intermediate_count is 0");
    expect_refused(features(16, 80), "intermediate_count is 80");
    expect_refused(shared_features(-16, 16), "shared_begin is -16");
    expect_refused(shared_features(0, 80), "shared_count is 80");
    expect_refused(shared_features(0, 24), "shared_begin + count is 24");
    expect_refused(shared_features(0, 16), "has_shared_range is 1", {}, layer_of(80, 0));
    moe_slice slice = features(16, 16);
    slice.has_intermediate_range = 0;
    expect_refused(slice, "intermediate_begin is 16 but has_intermediate_range is 0");
    slice = shared_features(0, 16);
    slice.has_shared_range = 0;
    expect_refused(slice, "shared_count is 16 but has_shared_range is 0");
}

// The norm of a sum is not the sum of norms.
TEST(Slice, RefusesAPartOfANormalisedSum) {
    Layer layer = layer_of(80, 80);
    layer.has_expert_norm = true;
    expect_refused(features(16, 32), "intermediate_count is 32 of 80, but has_expert_norm is 1", {},
                   layer);
    const moe_slice whole = features(0, 80), shared = shared_features(16, 16);
    EXPECT_TRUE(make(&whole, {}, layer).whole_intermediate);
    EXPECT_FALSE(make(&shared, {}, layer).whole_shared);
}

TEST(Slice, SharedRange) {
    const moe_slice slice = shared_features(32, 32);
    const Slice result = make(&slice, {{64, 64}, {1, 32}});
    EXPECT_TRUE(result.whole_intermediate);
    EXPECT_FALSE(result.whole_shared);
    EXPECT_EQ(result.shared_begin, 32);
    EXPECT_EQ(result.shared_count, 32);
    EXPECT_EQ(result.intermediate_count, 80);
}

}  // namespace
}  // namespace moe
