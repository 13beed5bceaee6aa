// Integers with act-order: columns may have any group, in any number, and a part may begin inside
// the columns of all groups.
#include <gtest/gtest.h>

#include <numeric>

#include "libmoe/weights/matrix_part.hpp"
#include "tests/cpu/gemv_cases.hpp"

namespace moe::cpu {
namespace {

constexpr int64_t rows = 96, groups = 9;

moe_format ordered_format(moe_packing packing, int32_t bits, int64_t columns) {
    const auto group = static_cast<int32_t>((columns + groups - 1) / groups);
    return test::int_format(packing, bits, group, MOE_TYPE_F16, MOE_ZERO_POINT_PACKED, true);
}

// The group of each column.
std::vector<std::vector<int32_t>> orders_of(int64_t columns) {
    const auto n = static_cast<size_t>(columns);
    const int64_t used = (columns - 1) / ((columns + groups - 1) / groups) + 1;
    const auto last = static_cast<int32_t>(used - 1);
    std::vector<std::vector<int32_t>> all(5, std::vector<int32_t>(n));
    for (size_t k = 0; k < n; ++k) {
        const auto of = static_cast<int32_t>(static_cast<int64_t>(k) * used / columns);
        all[0][k] = of;         // the identity
        all[1][k] = last - of;  // reversed
        all[2][k] = static_cast<int32_t>(k) % (last + 1);
        all[3][k] = last;  // the others have no columns
        all[4][k] = k % 7 ? 0 : static_cast<int32_t>(k / 7) % (last + 1);
    }
    return all;
}

void check(Arithmetic arithmetic, const Matrix& matrix, const char* what) {
    const std::vector<float> values = test::decode_all(matrix, *matrix.traits);
    GemvWeights weights;
    const GemvFormat format = gemv_format_of(matrix);
    const bool is_of_x86 = gemv_family(arithmetic)->kernels(format, 0);
    EXPECT_TRUE(!is_of_x86 || describe_gemv_weights(matrix, format, weights)) << what;
    for (const Way way : ways)
        for (const int64_t n : {1, 2, 7, 15}) {
            const Activations x(arithmetic, matrix, MOE_TYPE_F32, n, 0, way);
            ASSERT_LT(worst_error(project(arithmetic, matrix, x, n), matrix, values, x.x, n), 1e-5)
                << what << ", " << matrix.columns << " columns, " << n << " rows";
        }
}

struct Case {
    moe_packing packing;
    int32_t bits;
    int64_t columns;
};
// Columns of whole words, and of half of one.
constexpr Case cases[] = {{MOE_PACKING_GPTQ, 2, 304},      {MOE_PACKING_GPTQ, 3, 288},
                          {MOE_PACKING_GPTQ, 4, 40},       {MOE_PACKING_GPTQ, 4, 1048},
                          {MOE_PACKING_GPTQ, 8, 276},      {MOE_PACKING_BIT_STREAM, 2, 300},
                          {MOE_PACKING_BIT_STREAM, 4, 44}, {MOE_PACKING_BIT_STREAM, 4, 1044},
                          {MOE_PACKING_BIT_STREAM, 8, 272}};

TEST(ActOrder, ColumnsMayHaveAnyGroups) {
    for (const Arithmetic arithmetic : families())
        for (const Case& one : cases) {
            const moe_format format = ordered_format(one.packing, one.bits, one.columns);
            Weights weights(traits_of(format), rows, one.columns);
            for (const auto& order : orders_of(one.columns)) {
                weights.matrix.permutation = order.data();
                ASSERT_NO_FATAL_FAILURE(
                    check(arithmetic, weights.matrix, format_name(format).text));
            }
        }
}

TEST(ActOrder, PartsAreReadWhereTheyLie) {
    for (const Arithmetic arithmetic : families())
        for (const Case& one : cases) {
            if (one.columns < 256) continue;
            const moe_format format = ordered_format(one.packing, one.bits, one.columns);
            const Weights weights(traits_of(format), rows, one.columns);
            for (const int64_t column : {0, 32, 192}) {
                const int64_t to_end = one.columns - column;
                for (const int64_t columns : {int64_t{64}, to_end})
                    ASSERT_NO_FATAL_FAILURE(check(arithmetic,
                                                  part_of(weights.matrix, 24, 64, column, columns),
                                                  format_name(format).text));
            }
        }
}

}  // namespace
}  // namespace moe::cpu
