// The constants of packed matrices beside their tiles: a global scale, a codebook and a table of
// columns for each half of every matrix, where the type has them.
#pragma once

#include "libmoe/weights/codebook_tables.hpp"
#include "libmoe/weights/lower.hpp"

namespace moe {

class PackedConstants {
  public:
    // placement must outlive it.
    PackedConstants(const DevicePlacement& placement, std::pmr::memory_resource& memory);

    // Takes the constants of a matrix, or of one half. global is what pack() returned.
    void set(moe_role role, int64_t index, TileRows rows, float global, const Matrix& source);
    // The same of its table of columns, which pack() reads: returns it; null where there is none.
    const uint32_t* set_columns(moe_role role, int64_t index, TileRows rows, const Matrix& source,
                                const char* what);
    // The table of columns of a matrix, once it has been set or read from the block.
    bool has_columns(moe_role role, int64_t index) const;
    const uint32_t* columns(moe_role role, int64_t index) const;
    void read_columns(moe_role role, int64_t index, DeviceBlock& block);
    // Fails where the table is not the one that the block has, by which rows of other matrices lie.
    void check_kept(moe_role role, int64_t index, DeviceBlock& block, const char* what) const;
    // Fails where the halves of a fused matrix have different tables: activations are gathered
    // for both at once. `block`: where the table of the half that has not been set is; null where
    // both have been.
    void check_columns(moe_role role, int64_t index, int unset_half, DeviceBlock* block,
                       const char* what);
    // Sends those of n experts from `index` on, or one half of one expert. The tables stay as they
    // are until the block is synchronized.
    void write(DeviceBlock& block, moe_role role, int64_t index, int64_t n) const;
    void write_half(DeviceBlock& block, moe_role role, int64_t index, int half) const;

    CodebookTables codebooks;

  private:
    void set_half(moe_role role, size_t index, size_t half, float global, const Matrix& source);
    void write_columns(DeviceBlock& block, moe_role role, int64_t first, int64_t halves) const;
    uint32_t* columns_at(moe_role role, int64_t index, int half);
    uint64_t columns_offset(moe_role role, int64_t index) const;

    const DevicePlacement& placement_;
    RoleTable<std::array<float, 2>> globals_;
    RoleTable<uint32_t> columns_;     // [expert][half][k]
    RoleTable<uint8_t> has_columns_;  // [expert]: of the first half
};

}  // namespace moe
