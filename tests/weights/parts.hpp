// Parts of matrices, at random.
#pragma once

#include "libmoe/weights/view.hpp"
#include "tests/formats/matrices.hpp"

namespace moe::test {

struct Range {
    int64_t row, rows, column, columns;
};

inline Range random_range(Random& random, const Matrix& matrix) {
    const auto below = [&](int64_t n) {
        return static_cast<int64_t>(random.next() % static_cast<uint64_t>(n));
    };
    const int64_t step = matrix.traits->block_columns;
    Range range{};
    range.row = below(matrix.rows);
    range.rows = 1 + below(matrix.rows - range.row);
    range.column = below(matrix.columns / step) * step;
    range.columns = (1 + below((matrix.columns - range.column) / step)) * step;
    return range;
}

}  // namespace moe::test
