// The stages of the portable grouped GEMM fit the shared memory of every architecture, for every
// packed type and every grid.
#include <gtest/gtest.h>

#include <vector>

#include "libmoe/cuda/dequant/dequant.cuh"
#include "libmoe/cuda/grouped_gemm/sm80_tile_shape.hpp"

namespace moe::cuda {
namespace {

constexpr int32_t static_bytes = 3072;  // more than the kernels have

std::vector<PackedType> types_of(PackedType kind) {
    if (!is_grid(kind)) return {kind};
    std::vector<PackedType> types;
    for (const GridScale scale : {GridScale::f32, GridScale::f16, GridScale::e8m0})
        for (const GridZero zero : {GridZero::middle, GridZero::packed})
            for (const int32_t group : {0, 16, 32, 48, 64, 80, 128, 256})
                types.push_back(grid_type(kind, scale, zero, group));
    return types;
}

template <PackedType kind, class Shape>
void expect_stages(int32_t shared_bytes) {
    DeviceFacts device;
    device.shared_bytes = shared_bytes;
    for (const PackedType type : types_of(kind)) {
        const Sm80Config config = sm80_config<kind, Shape>(device, type, static_bytes);
        const std::string name = std::string(packed_type_name(type)) + " group " +
                                 std::to_string(is_grid(kind) ? grid_group(type) : 0);
        for (int width = 0; width < Shape::widths; ++width) {
            const Sm80Stages& stages = config.stages[width];
            EXPECT_GE(stages.n, 2) << name << " in " << shared_bytes;
            EXPECT_LE(stages.n, sm80_max_stages) << name;
            EXPECT_EQ(stages.all_bytes, stages.n * stages.bytes) << name;
            EXPECT_EQ(stages.tile_bytes % 16, 0) << name;
            EXPECT_LE(stages.all_bytes, config.shared_bytes) << name;
        }
        if constexpr (Shape::few_rows > 0) {
            const Sm80FewRowsStages& few = config.few_rows;
            const int32_t of_k_block = Shape::few_rows * sm80_row_bytes;
            EXPECT_LE(few.of_warp.n, 3) << name;
            const int32_t least = shared_bytes > 200 * 1024 ? 3 : 2;
            EXPECT_GE(few.of_warp.n, least) << name << " in " << shared_bytes;
            EXPECT_EQ(few.of_warp.tile_bytes % 16, 0) << name;
            EXPECT_EQ(few.token_bytes % (sm80_few_k_blocks<kind> * of_k_block), 0)
                << name << ": a chunk is whole stages";
            EXPECT_EQ(few.all_bytes,
                      sm80_tiles_of_block * few.of_warp.all_bytes + 2 * few.token_bytes)
                << name;
            EXPECT_LE(few.all_bytes, config.shared_bytes) << name << " in " << shared_bytes;
        }
        EXPECT_GE(config.shared_bytes, sm80_epilogue_bytes<Shape>) << name;
        EXPECT_GE(config.blocks_per_sm, 1) << name;
        EXPECT_LE(config.blocks_per_sm * (config.shared_bytes + static_bytes + sm80_system_bytes),
                  shared_bytes + sm80_system_bytes)
            << name;
    }
}

TEST(PortableTiles, TwoStagesFitEveryArchitecture) {
    int n_kinds = 0;
    for (const PackedTraits& row : packed_traits) {
        with_packed_type(row.type, [&]<PackedType kind>() {
            if constexpr (kind != PackedType::none && kind != PackedType::f32) {
                ++n_kinds;
                // The sizes are those of sm_86, 89 and 120, then sm_80, then sm_90 and 100.
                for (const int32_t kilobytes : {99, 163, 227}) {
                    expect_stages<kind, Sm80Narrow>(kilobytes * 1024);
                    expect_stages<kind, Sm80Middle>(kilobytes * 1024);
                    expect_stages<kind, Sm80NarrowByValue>(kilobytes * 1024);
                    expect_stages<kind, Sm80Wide>(kilobytes * 1024);
                    expect_stages<kind, Sm80Wide16>(kilobytes * 1024);
                }
            }
        });
    }
    EXPECT_EQ(n_kinds, static_cast<int>(packed_traits.size()) - 2);
}

// Wherever a stage begins, what its blocks take fits, and so do the records that are copied apart.
TEST(PortableTiles, AStageHoldsItsBlocksAndTheirRecords) {
    for (const PackedType type : types_of(PackedType::grid_2)) {
        const GridRecords grid = grid_records_of(type, 64 * 61);
        const int32_t bytes = sm80_staged_tile_bytes<PackedType::grid_2, 4>(type);
        int32_t most = 0;
        for (int32_t first = 0; first + 4 <= 61; ++first)
            most = std::max(most,
                            grid.align_up(grid.end(first, 4)) - grid.align_down(grid.begin(first)));
        EXPECT_GE(bytes, most) << grid_group(type);
        EXPECT_LE(bytes, most + 48) << grid_group(type);
    }
    const PackedType by_value =
        grid_type(PackedType::grid_5, GridScale::f32, GridZero::packed, 128);
    EXPECT_GE((sm80_staged_tile_bytes<PackedType::grid_5, 1>(by_value)), 640 + 80 + 80);
}

}  // namespace
}  // namespace moe::cuda
