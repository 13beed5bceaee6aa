// The lists of types that plan/ goes by are the instances that the build has.
#include "libmoe/cuda/kernel_types.hpp"

#include <gtest/gtest.h>

#include "libmoe/cuda/gemv/gemv.hpp"
#include "libmoe/cuda/grouped_gemm/grouped_gemm.hpp"

namespace moe::cuda {
namespace {

TEST(KernelTypes, AreThoseOfTheInstances) {
    for (auto type = static_cast<int32_t>(PackedType::none);
         type <= static_cast<int32_t>(PackedType::grid_codebook); ++type) {
        const auto packed = static_cast<PackedType>(type);
        EXPECT_EQ(gemv_supports(packed), has_gemv_instances(packed)) << type;
        EXPECT_EQ(grouped_supports(packed), has_grouped_gemm_instances(packed, MOE_TYPE_BF16))
            << type;
        EXPECT_EQ(grouped_in_f16_supports(packed), has_grouped_gemm_instances(packed, MOE_TYPE_F16))
            << type;
        EXPECT_EQ(fp8_grouped_supports(packed), has_fp8_grouped_gemm_instances(packed)) << type;
        const bool is_16_bits = packed != PackedType::none && packed != PackedType::f32;
        EXPECT_EQ(is_16_bits, has_sm80_grouped_gemm_instances(packed)) << type;
    }
}

// Groups that end within a block of 64 columns have no kernel for middle tiles.
TEST(KernelTypes, MiddleTilesWantWholeGroups) {
    for (const int32_t group : {0, 16, 32, 48, 64, 80, 128}) {
        const PackedType type =
            grid_type(PackedType::grid_4, GridScale::f16, GridZero::packed, group);
        EXPECT_EQ(sm80_has_middle(type), group % 64 == 0) << group;
        EXPECT_TRUE(has_sm80_grouped_gemm_instances(type)) << group;
    }
}

}  // namespace
}  // namespace moe::cuda
