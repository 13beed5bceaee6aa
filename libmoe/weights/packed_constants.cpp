// Tables by role; a table is empty where the packed type has no such constant.
#include "libmoe/weights/packed_constants.hpp"

#include <algorithm>

namespace moe {
namespace {

// Sends n entries of a table of the block.
template <class Entry>
void write_entries(DeviceBlock& block, uint64_t offset, const Entry* table, int64_t index,
                   int64_t n) {
    constexpr uint64_t size = sizeof(Entry);
    block.write(offset + static_cast<uint64_t>(index) * size, table + index,
                static_cast<uint64_t>(n) * size);
}

template <class Half>
void write_entry_half(DeviceBlock& block, uint64_t offset, const std::array<Half, 2>* table,
                      int64_t index, int half) {
    write_entries(block, offset, table->data(), 2 * index + half, 1);
}

}  // namespace

PackedConstants::PackedConstants(const DevicePlacement& placement,
                                 std::pmr::memory_resource& memory)
    : codebooks(&memory),
      placement_(placement),
      globals_(&memory),
      columns_(&memory),
      has_columns_(&memory) {
    codebooks.resize(placement);
    for (int i = 0; i < MOE_ROLE_COUNT; ++i) {
        const auto role = static_cast<moe_role>(i);
        const DevicePlacement::Region& region = placement.matrices[i];
        const auto count = static_cast<size_t>(region.count);
        if (region.globals) globals_[role].resize(count);
        if (!region.columns) continue;
        columns_[role].resize(count * 2 * static_cast<size_t>(region.k));
        has_columns_[role].resize(count);
    }
}

void PackedConstants::set(moe_role role, int64_t index, TileRows rows, float global,
                          const Matrix& source) {
    const auto i = static_cast<size_t>(index);
    if (rows != TileRows::up_half) set_half(role, i, 0, global, source);
    if (rows != TileRows::gate_half) set_half(role, i, 1, global, source);
}

void PackedConstants::set_half(moe_role role, size_t index, size_t half, float global,
                               const Matrix& source) {
    if (!globals_[role].empty())
        globals_[role][index][half] = global;
    else if (global != 1.0f)
        fail(MOE_ERROR_INTERNAL, "{} has a global scale that its packed type does not store",
             role_name(role));
    const PackedType type = placement_.matrices[role].type;
    if (CodebookPair* pairs = codebooks.of(role))
        packed_codebook(source, type, pairs[index][half].data());
}

uint32_t* PackedConstants::columns_at(moe_role role, int64_t index, int half) {
    return columns_[role].data() + (2 * index + half) * placement_.matrices[role].k;
}

const uint32_t* PackedConstants::set_columns(moe_role role, int64_t index, TileRows rows,
                                             const Matrix& source, const char* what) {
    if (columns_[role].empty()) return nullptr;
    uint32_t* columns = columns_at(role, index, rows == TileRows::up_half ? 1 : 0);
    packed_columns(source, columns, what);
    if (rows != TileRows::up_half) has_columns_[role][static_cast<size_t>(index)] = 1;
    if (rows != TileRows::all) return columns;
    uint32_t* second = columns_at(role, index, 1);
    const auto n = static_cast<uint32_t>(source.columns);
    if (placement_.matrices[role].is_folded)
        for (uint32_t i = 0; i < n; ++i) second[columns[i]] = i;
    else
        std::copy_n(columns, n, second);
    return columns;
}

bool PackedConstants::has_columns(moe_role role, int64_t index) const {
    return has_columns_[role][static_cast<size_t>(index)];
}

const uint32_t* PackedConstants::columns(moe_role role, int64_t index) const {
    return columns_[role].data() + 2 * index * placement_.matrices[role].k;
}

// In the block, of the first half.
uint64_t PackedConstants::columns_offset(moe_role role, int64_t index) const {
    const DevicePlacement::Region& region = placement_.matrices[role];
    return region.columns + static_cast<uint64_t>(index) * region.column_bytes();
}

void PackedConstants::read_columns(moe_role role, int64_t index, DeviceBlock& block) {
    block.read(columns_at(role, index, 0), columns_offset(role, index),
               placement_.matrices[role].column_bytes());
    has_columns_[role][static_cast<size_t>(index)] = 1;
}

void PackedConstants::check_kept(moe_role role, int64_t index, DeviceBlock& block,
                                 const char* what) const {
    const auto k = static_cast<size_t>(placement_.matrices[role].k);
    std::pmr::vector<uint32_t> kept(k, columns_[role].get_allocator());
    block.read(kept.data(), columns_offset(role, index), k * sizeof(uint32_t));
    if (std::equal(kept.begin(), kept.end(), columns(role, index))) return;
    fail(MOE_ERROR_UNSUPPORTED,
         "{}: permutation differs from the one by which the rows of gate and up are packed; load "
         "the weights anew, or with a plan with unfused = 1",
         what);
}

void PackedConstants::check_columns(moe_role role, int64_t index, int unset_half,
                                    DeviceBlock* block, const char* what) {
    if (columns_[role].empty()) return;
    const DevicePlacement::Region& region = placement_.matrices[role];
    const uint64_t bytes = region.column_bytes() / 2;
    const auto first = static_cast<uint64_t>(2 * index);
    if (block)
        block->read(columns_at(role, index, unset_half),
                    region.columns + (first + static_cast<uint64_t>(unset_half)) * bytes, bytes);
    if (std::equal(columns_at(role, index, 0), columns_at(role, index, 1),
                   columns_at(role, index, 1)))
        return;
    fail(MOE_ERROR_UNSUPPORTED,
         "{}: {} differs from that of {}, and they are packed together; a plan with unfused = 1 "
         "packs them apart",
         what, region.table == ColumnTable::order ? "permutation" : "pre_quant_scale",
         role_name(placement_.up_role(role)));
}

void PackedConstants::write(DeviceBlock& block, moe_role role, int64_t index, int64_t n) const {
    const DevicePlacement::Region& region = placement_.matrices[role];
    if (!globals_[role].empty())
        write_entries(block, region.globals, globals_[role].data(), index, n);
    if (const CodebookPair* pairs = codebooks.of(role))
        write_entries(block, region.codebooks, pairs, index, n);
    write_columns(block, role, 2 * index, 2 * n);
}

void PackedConstants::write_half(DeviceBlock& block, moe_role role, int64_t index, int half) const {
    const DevicePlacement::Region& region = placement_.matrices[role];
    if (!globals_[role].empty())
        write_entry_half(block, region.globals, globals_[role].data(), index, half);
    if (const CodebookPair* pairs = codebooks.of(role))
        write_entry_half(block, region.codebooks, pairs, index, half);
    write_columns(block, role, 2 * index + half, 1);
}

// Sends `halves` halves from the half `first` on.
void PackedConstants::write_columns(DeviceBlock& block, moe_role role, int64_t first,
                                    int64_t halves) const {
    const auto& columns = columns_[role];
    if (columns.empty()) return;
    const DevicePlacement::Region& region = placement_.matrices[role];
    const uint64_t each = region.column_bytes() / 2;
    block.write(region.columns + static_cast<uint64_t>(first) * each,
                columns.data() + first * region.k, static_cast<uint64_t>(halves) * each);
}

}  // namespace moe
