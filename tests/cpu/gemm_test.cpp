// The gemm kernels of AMX beside those of AVX-512, which make the same panels.
#include <gtest/gtest.h>

#include "libmoe/cpu/features.hpp"
#include "libmoe/cpu/tile_permission.hpp"
#include "tests/cpu/gemv_cases.hpp"

namespace moe::cpu {
namespace {

constexpr Arithmetic amx = Arithmetic::gemv_amx, avx512 = Arithmetic::gemv_avx512vnni;

GemmKernels kernels_of(Arithmetic arithmetic, const FormatTraits& traits, const Activations& x) {
    return gemm_kernels(*gemv_family(arithmetic), gemv_format_of(traits.format),
                        x.rows.quantization);
}

// Rows of one and several tiles, in full and in half of one; long rows take long.
std::vector<int64_t> row_counts(int64_t columns) {
    if (columns > 512) return {24};
    return {1, 8, 9, 16, 24, 40};
}

void check_beside_avx512(const FormatTraits& traits, int64_t columns, const Bound& bound) {
    const int64_t rows = rows_of(traits.format, 37);
    const Weights weights(traits, rows, columns);
    for (const int64_t n : row_counts(columns)) {
        const Activations x(amx, traits.format, bound.type, n, columns, bound.outlier, Way::panels,
                            bound.to_int8);
        const auto got = project(amx, weights, x, n), beside = project(avx512, weights, x, n);
        const RowForm form = kernels_of(amx, traits, x).rows;
        if (form == RowForm::bf16)
            // Both multiply the same bfloat16 values.
            ASSERT_LT(moe_test::worst_row_error(got, beside, rows), 2e-6)
                << traits.name << " columns " << columns << " rows " << n;
        else
            ASSERT_EQ(std::memcmp(got.data(), beside.data(), got.size() * sizeof(float)), 0)
                << traits.name << " columns " << columns << " rows " << n << " type "
                << type_name(bound.type);
    }
}

TEST(GemmAmx, IntegersHaveTheBitsOfAvx512AndBfloat16IsClose) {
    if (!has_amx() || !may_use_tiles()) GTEST_SKIP() << "no AMX";
    for (const FormatTraits& traits : known_formats())
        for (const int64_t columns : columns_of(traits))
            for (const Bound& bound : bounds)
                ASSERT_NO_FATAL_FAILURE(check_beside_avx512(traits, columns, bound));
}

// Otherwise AVX-512 would be compared with itself.
TEST(GemmAmx, TilesMultiplyAllButFloat32AndScalesOf16Columns) {
    if (!has_amx() || !may_use_tiles()) GTEST_SKIP() << "no AMX";
    for (const FormatTraits& traits : known_formats())
        for (const moe_type type : {MOE_TYPE_F32, MOE_TYPE_F16, MOE_TYPE_BF16}) {
            const Activations x(amx, traits.format, type, 1, 256, 0, Way::panels);
            const GemmKernels tiles = kernels_of(amx, traits, x);
            const GemmKernels vectors = kernels_of(avx512, traits, x);
            const bool is_left = vectors.rows == RowForm::floats ||
                                 (vectors.rows == RowForm::integers && vectors.scale_columns == 16);
            EXPECT_EQ(tiles.multiply == vectors.multiply, is_left) << traits.name;
            EXPECT_EQ(tiles.enter == nullptr, is_left) << traits.name;
            EXPECT_EQ(tiles.dequantize, vectors.dequantize) << traits.name;
        }
}

}  // namespace
}  // namespace moe::cpu
