// Where gemv and the grouped GEMMs find the scale records of a grid: a tile begins with them,
// its codes follow (packed/layout.hpp). A pipeline stage takes two copies for its part of k: the
// codes and, behind them in the stage, the records of their columns. Host and device.
#pragma once

#include "libmoe/base/reciprocal.hpp"
#include "libmoe/packed/layout.hpp"

namespace moe::cuda {

// Groups are a row, or multiples of 32 columns, the k of a lane's column of mma.
constexpr bool gemv_reads_grid(PackedType type) {
    return grid_group(type) % 32 == 0;
}

// Hopper's grouped GEMM has so many bytes in a stage for the records of 64 columns: one of any
// kind, or two that have no float32 scales.
constexpr int32_t grouped_grid_record_bytes = 96;

constexpr bool grouped_reads_grid(PackedType type) {
    const int32_t records = grid_group(type) % 64 == 0 ? 1 : 2;
    return gemv_reads_grid(type) && records * grid_record_bytes(type) <= grouped_grid_record_bytes;
}

struct GridRecords {
    int32_t front_bytes = 0;   // of a tile: all of its records
    int32_t record_bytes = 0;  // a multiple of 8
    uint32_t reciprocal = 0;  // reciprocal_of the steps of 16 columns of a group; 0: the row is one
    GridScale scale = GridScale::f32;
    int32_t pair_bytes = 0;    // of the scales of two rows
    int32_t zeros_offset = 0;  // of the zero points in a record
    uint32_t zeros_mask = 0;   // 0: there are none
    int32_t zero_offset = 0;   // is added to a stored zero point, or is the zero point
    int32_t staged_bytes = 0;  // of a stage, behind its codes
    uint32_t blocks = 0;       // of 64 columns that a record serves
    bool are_whole = false;    // no group ends within a block

    // Bytes from the tile to the record of a column.
    MOE_HOST_DEVICE int32_t record(int32_t column) const {
        const auto twice = static_cast<uint32_t>(column) / 16 * 2;
#if defined(__CUDA_ARCH__)
        const uint32_t group = __umulhi(twice, reciprocal);
#else
        const auto group = static_cast<uint32_t>(uint64_t{twice} * reciprocal >> 32);
#endif
        return static_cast<int32_t>(group) * record_bytes;
    }
    // Do records come with a stage of the grouped GEMM that begins with this block of 64 columns?
    // That of a row comes with the first one, and is kept.
    MOE_HOST_DEVICE bool come_with(uint32_t block) const {
        return block == 0 || reciprocal != 0;
    }
    // The copied bytes: the records of n columns, in whole vectors of 16 bytes.
    MOE_HOST_DEVICE int32_t first_byte(int32_t first_column) const {
        return record(first_column) & ~15;
    }
    MOE_HOST_DEVICE int32_t bytes(int32_t first_column, int32_t n) const {
        const int32_t end = record(first_column + n - 1) + record_bytes;
        return ((end + 15) & ~15) - first_byte(first_column);
    }
};

// Bytes of a stage for the records of n columns, wherever they begin; 0 for types that are no
// grids.
constexpr int32_t staged_record_bytes(PackedType type, int32_t n) {
    if (!is_grid(type)) return 0;
    const int32_t group = grid_group(type);
    const int32_t records = group == 0        ? 1
                            : 64 % group == 0 ? n / group
                                              : (n + group - 1) / group + 1;
    return (records * grid_record_bytes(type) + 15) / 16 * 16 + 16;
}

// of_stage: columns of a pipeline stage.
constexpr GridRecords grid_records_of(PackedType type, int64_t k, int32_t of_stage) {
    if (!is_grid(type)) return {};
    const bool is_middle = grid_zero_of(type) == GridZero::middle;
    return {static_cast<int32_t>(tile_front_bytes(type, k)),
            grid_record_bytes(type),
            grid_group(type) == 0 ? 0 : reciprocal_of(grid_group(type) / 16),
            grid_scale_of(type),
            2 * grid_scale_bytes(type),
            is_middle ? 0 : 16 * grid_scale_bytes(type),
            is_middle ? 0 : ~0u,
            is_middle                                          ? 1 << (code_bits(type) - 1)
            : grid_zero_of(type) == GridZero::packed_minus_one ? 1
                                                               : 0,
            staged_record_bytes(type, of_stage),
            grid_group(type) == 0        ? 1u << 30
            : grid_group(type) % 64 == 0 ? static_cast<uint32_t>(grid_group(type) / 64)
                                         : 1u,
            grid_group(type) % 64 == 0};
}

}  // namespace moe::cuda
