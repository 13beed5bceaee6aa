// Scales in tiles of 128 x 4 by another way than the library's: in the order of memory, as
// reshaping the padded matrix to [a, 4, 32, b, 4] and permuting the axes to (0, 3, 2, 1, 4) lays
// them out.
#pragma once

#include "tests/formats/matrices.hpp"

namespace moe::test {

// Calls place(row, column) for every byte of the tiles, padding included, from the first on.
template <class Place>
void walk_tiles(int64_t rows, int64_t columns, Place place) {
    for (int64_t a = 0; a < rows; a += 128)
        for (int64_t b = 0; b < columns; b += 4)
            for (int64_t r = a; r < a + 32; ++r)
                for (int64_t row = r; row < r + 128; row += 32)
                    for (int64_t column = b; column < b + 4; ++column) place(row, column);
}

// With random padding that is never 0.
inline std::vector<std::byte> tiles_of(const std::byte* linear, int64_t rows, int64_t columns,
                                       uint64_t seed = 1) {
    Random random(seed);
    std::vector<std::byte> tiles;
    walk_tiles(rows, columns, [&](int64_t row, int64_t column) {
        const bool is_padding = row >= rows || column >= columns;
        tiles.push_back(is_padding ? static_cast<std::byte>(1 + random.next() % 255)
                                   : linear[row * columns + column]);
    });
    return tiles;
}

}  // namespace moe::test
