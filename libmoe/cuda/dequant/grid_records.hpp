// Where gemv and the grouped GEMMs find the scale records of a grid: a tile is units, each its
// records and the blocks that they serve (packed/layout.hpp). A pipeline stage is one copy of the
// bytes that its blocks take; with a unit's first block come its records. gemv, whose stages may
// begin within a unit, then copies the records apart. Host and device.
#pragma once

#include <bit>

#include "libmoe/packed/layout.hpp"

namespace moe::cuda {

// Records serve a row, or multiples of 32 columns, the k of a lane's column of mma.
constexpr bool gemv_reads_grid(PackedType type) {
    return grid_record_columns(type) >= 32;
}

// Hopper's grouped GEMM has so many bytes in a stage for the records of 64 columns: one of any
// kind, or two that have no float32 scales.
constexpr int32_t grouped_grid_record_bytes = 96;

constexpr bool grouped_reads_grid(PackedType type) {
    return gemv_reads_grid(type) && grid_front_bytes(type) <= grouped_grid_record_bytes;
}

// Grids with a dequantizer that takes records at a shared address and no table. It keeps the scales
// of groups that are whole blocks.
constexpr bool is_grouped_grid(PackedType kind) {
    return kind == PackedType::grid_2 || kind == PackedType::grid_3 || kind == PackedType::grid_4 ||
           kind == PackedType::grid_8 || kind == PackedType::grid_e4m3;
}

// Offsets of bytes are those of a packed tile, numbers of blocks of 64 columns those of a row.
struct GridRecords {
    int32_t tile_bytes = 0;
    int32_t block_bytes = 0;
    int32_t front_bytes = 0;   // of a unit, before its first block
    int32_t unit_shift = 0;    // log2 of the blocks of a unit
    int32_t record_bytes = 0;  // a multiple of 8
    int32_t record_shift = 0;  // log2 of the 16 columns of a block that a record serves
    GridScale scale = GridScale::f32;
    int32_t pair_bytes = 0;     // of the scales of two rows
    int32_t zeros_offset = 0;   // of the zero points in a record
    uint32_t zeros_mask = 0;    // 0: there are none
    int32_t zero_offset = 0;    // is added to a stored zero point, or is the zero point
    uint32_t group_blocks = 0;  // that have the same scales; 1 also where a block has several
    bool are_whole = false;     // no group ends within a block

    MOE_HOST_DEVICE int32_t codes(int32_t block) const {
        return block * block_bytes + (block >> unit_shift) * front_bytes + front_bytes;
    }
    MOE_HOST_DEVICE bool begins_unit(int32_t block) const {
        return (block >> unit_shift << unit_shift) == block;
    }
    // Where the bytes begin that come with a block: with the first of a unit its records.
    MOE_HOST_DEVICE int32_t begin(int32_t block) const {
        return codes(block) - (begins_unit(block) ? front_bytes : 0);
    }
    MOE_HOST_DEVICE int32_t end(int32_t first, int32_t n) const {
        return codes(first + n - 1) + block_bytes;
    }
    // The records of a block's unit.
    MOE_HOST_DEVICE int32_t records(int32_t block) const {
        return (block >> unit_shift) * ((block_bytes << unit_shift) + front_bytes);
    }
    // From those to the record of columns 16 t to 16 t + 15 of the block.
    MOE_HOST_DEVICE int32_t record(int32_t t) const { return (t >> record_shift) * record_bytes; }
    // Does the unit of a block begin before block `first`?
    MOE_HOST_DEVICE bool begins_before(int32_t block, int32_t first) const {
        return block >> unit_shift << unit_shift < first;
    }
    // Copies are of whole vectors of 16 bytes.
    MOE_HOST_DEVICE static int32_t align_down(int32_t offset) { return offset & ~15; }
    MOE_HOST_DEVICE static constexpr int32_t align_up(int32_t offset) {
        return (offset + 15) & ~15;
    }
    // The bytes for a front that is copied apart, wherever it begins in a vector.
    MOE_HOST_DEVICE static constexpr int32_t room_apart(int32_t front) {
        return align_up(front) + 16;
    }
};

// The most bytes that n blocks of a tile take in a stage, wherever they begin.
constexpr int32_t staged_grid_bytes(PackedType type, int32_t n) {
    const int32_t fronts = (n - 1) / grid_unit_blocks(type) + 1;
    const int32_t aligned = grid_front_bytes(type) % 16 == 0 ? 0 : 16;
    return n * block_code_bytes(type, 4) + fronts * grid_front_bytes(type) + aligned;
}
// Records that gemv copies apart, of a unit that began before the stage, take so many bytes of it.
constexpr int32_t staged_record_bytes(PackedType type) {
    if (!is_grid(type) || grid_unit_blocks(type) == 1) return 0;
    return GridRecords::room_apart(grid_front_bytes(type));
}

constexpr GridRecords grid_records_of(PackedType type, int64_t k) {
    if (!is_grid(type)) return {};
    const int32_t group = grid_group(type), columns = grid_record_columns(type);
    const bool is_middle = grid_zero_of(type) == GridZero::middle;
    return {static_cast<int32_t>(tile_bytes(type, k)),
            block_code_bytes(type, 4),
            grid_front_bytes(type),
            std::countr_zero(static_cast<uint32_t>(grid_unit_blocks(type))),
            grid_record_bytes(type),
            columns == 16   ? 0
            : columns == 32 ? 1
                            : 2,
            grid_scale_of(type),
            2 * grid_scale_bytes(type),
            is_middle ? 0 : 16 * grid_scale_bytes(type),
            is_middle ? 0 : ~0u,
            is_middle                                          ? 1 << (code_bits(type) - 1)
            : grid_zero_of(type) == GridZero::packed_minus_one ? 1
                                                               : 0,
            group == 0        ? 1u << 30
            : group % 64 == 0 ? static_cast<uint32_t>(group / 64)
                              : 1u,
            group % 64 == 0};
}

}  // namespace moe::cuda
