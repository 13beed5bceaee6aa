// Tiles of an expert's rows: their number, their bounds and their position in the list of tiles.
// Inputs: TileRule and counts of rows. It is plain arithmetic for the host and the device.
#pragma once

#include "libmoe/base/host_device.hpp"
#include "libmoe/cuda/rows.hpp"

namespace moe::cuda {

MOE_HOST_DEVICE constexpr int64_t round_up_to(int64_t value, int64_t step) {
    return (value + step - 1) / step * step;
}

// Arguments are not negative. The unsigned sum cannot overflow, and a 32-bit division is faster
// than a 64-bit one.
MOE_HOST_DEVICE constexpr int32_t divide_up(int32_t value, int32_t by) {
    const auto divisor = static_cast<uint32_t>(by);
    return static_cast<int32_t>((static_cast<uint32_t>(value) + divisor - 1) / divisor);
}

MOE_HOST_DEVICE constexpr int32_t tiles_of_expert(const TileRule& rule, int32_t count) {
    return divide_up(count, rule.max_rows);
}

// Returns tile `index` of an expert whose `count` rows start at `begin`. max_rows is a multiple of
// the granule, so no tile exceeds max_rows and none is empty.
MOE_HOST_DEVICE constexpr Tile make_tile(const TileRule& rule, int32_t expert, int32_t begin,
                                         int32_t count, int32_t index) {
    const int32_t n_tiles = tiles_of_expert(rule, count);
    const int32_t size = divide_up(divide_up(count, n_tiles), rule.granule) * rule.granule;
    const int32_t first = index * size;
    const int32_t n_rows = count - first < size ? count - first : size;
    return {expert, begin + first, n_rows};
}

// Counts the tiles of one expert.
MOE_HOST_DEVICE constexpr TileCount count_tiles(const TileRule& rule, int32_t count) {
    const int32_t n = tiles_of_expert(rule, count);
    return {n, count > rule.most_small ? n : 0};
}

// Returns the index of an expert's first tile, from the tiles of the experts before it and the
// large tiles of all.
MOE_HOST_DEVICE constexpr int32_t first_tile(const TileRule& rule, int32_t count,
                                             const TileCount& before, int32_t all_large) {
    return count > rule.most_small ? before.large : all_large + before.all - before.large;
}

}  // namespace moe::cuda
