// Opening a block of packed weights.
#include "libmoe/weights/packed_file.hpp"

#include <algorithm>
#include <cstring>

#include "libmoe/base/checksum.hpp"
#include "libmoe/checkpoint/printable.hpp"

namespace moe {
namespace {

PackedFileHeader read_header(const File& file, const WeightsLayout& layout) {
    PackedFileHeader header{};
    if (file.size() < sizeof header)
        fail(MOE_ERROR_CORRUPT_FILE, "{}: {} bytes are too few for packed weights", file.name(),
             file.size());
    file.read(0, sizeof header, &header);
    if (std::memcmp(header.magic, packed_magic, sizeof packed_magic) != 0)
        fail(MOE_ERROR_CORRUPT_FILE, "{}: is no file of packed weights", file.name());
    const bool has_types = header.version == packed_file_version;
    if (!has_types && header.version != packed_file_version_without_types)
        fail(MOE_ERROR_LAYOUT_MISMATCH, "{}: version {} of packed files, this library has {}",
             file.name(), header.version, packed_file_version);
    if (header.packed_layout != packed_layout_of(layout))
        fail(MOE_ERROR_LAYOUT_MISMATCH,
             "{}: version {} of the packed layout, {} has version {} in this library", file.name(),
             header.packed_layout, layout.is_interleaved() ? "the CPU's" : "that of CUDA",
             packed_layout_of(layout));
    header.description[sizeof header.description - 1] = '\0';
    if (!has_types) std::memset(header.types, 0, sizeof header.types);
    return header;
}

// A file whose header lists no types has the first revision of each, which their id says.
void check_types(const File& file, const PackedFileHeader& header) {
    for (const PackedFileHeader::Type& type : header.types) {
        const std::string_view name(type.name, strnlen(type.name, sizeof type.name));
        if (name.empty()) return;
        const auto own = static_cast<uint32_t>(packed_revision(name));
        if (own == 0)
            fail(MOE_ERROR_LAYOUT_MISMATCH, "{}: this library has no packed type '{}'", file.name(),
                 printable(name).text);
        if (type.revision != own)
            fail(MOE_ERROR_LAYOUT_MISMATCH,
                 "{}: packed type {} of revision {}, this library has revision {}", file.name(),
                 name, type.revision, own);
    }
}

void check_layout(const File& file, const PackedFileHeader& header, const WeightsLayout& layout) {
    if (std::equal(layout.id.begin(), layout.id.end(), header.layout_id)) return;
    const auto held = printable(header.description);
    const auto wanted = describe_layout(layout);
    if (wanted == std::string_view(held.text))
        fail(MOE_ERROR_LAYOUT_MISMATCH,
             "{}: holds {}, as the plan wants, but another part of it (slice, experts, stages) or "
             "in "
             "another packing (an earlier version of this library, or a plan with unfused = 1)",
             file.name(), held.text);
    fail(MOE_ERROR_LAYOUT_MISMATCH, "{}: holds {}; the plan wants {}", file.name(), held.text,
         wanted);
}

// Sizes first: nothing is allocated for a count that the file has no room for.
void check_sizes(const File& file, const PackedFileHeader& header) {
    const auto refuse = [&](const char* what, uint64_t value) {
        fail(MOE_ERROR_CORRUPT_FILE, "{}: {} is {}, the file has {} bytes", file.name(), what,
             value, file.size());
    };
    if (header.chunk_bytes != packed_chunk_bytes) refuse("the size of a chunk", header.chunk_bytes);
    if (header.block_bytes > file.size()) refuse("the size of the block", header.block_bytes);
    if (header.block_offset != offset_of_block(header.block_bytes) ||
        file.size() != header.block_offset + header.block_bytes)
        refuse("the beginning of the block", header.block_offset);
}

// Puts a vector of n entries for each expert, which lie as the rows of gate and up, into the order
// of the tensors.
void undo_row_order(const moe_weights& weights, moe_role down, DeviceBlock& block, int64_t n,
                    std::pmr::vector<float>& vector) {
    const DevicePlacement::Region& region = weights.placement.matrices[down];
    std::pmr::vector<uint32_t> order(static_cast<size_t>(n), &weights.runtime->memory);
    const std::pmr::vector<float> ordered(vector, &weights.runtime->memory);
    uint64_t offset = region.columns;
    for (size_t first = 0; first < vector.size(); first += order.size()) {
        block.read(order.data(), offset, order.size() * sizeof(uint32_t));
        offset += region.column_bytes();
        for (size_t i = 0; i < order.size(); ++i) vector[first + order[i]] = ordered[first + i];
    }
}

// What the handle has on the host besides: vectors and the hash table.
void read_resident(moe_weights& weights, DeviceBlock& block) {
    const WeightsLayout& layout = weights.layout;
    for (int i = 0; i < MOE_ROLE_COUNT; ++i) {
        const auto role = static_cast<moe_role>(i);
        if (is_matrix_role(role) || role == MOE_ROLE_HASH_TABLE || !layout.needs(role)) continue;
        auto& vector = weights.resident.vectors[role];
        vector.resize(static_cast<size_t>(layout.count(role) * layout.part(role).columns));
        block.read(vector.data(), weights.placement.vectors[i], vector.size() * sizeof(float));
        if (const moe_role down = layout.orders_rows(role))
            undo_row_order(weights, down, block, layout.part(role).columns, vector);
    }
    if (!layout.needs(MOE_ROLE_HASH_TABLE)) return;
    const Layer::Shape shape = layout.layer.role_shape(MOE_ROLE_HASH_TABLE);
    auto& table = weights.resident.hash_table;
    table.resize(static_cast<size_t>(shape.rows) * static_cast<size_t>(shape.columns));
    block.read(table.data(), weights.placement.hash_table, table.size() * sizeof(int32_t));
}

// Columns are offsets in a row: those of a file are proved to lie in it before a kernel reads
// there.
void check_columns(const File& file, const moe_weights& weights, DeviceBlock& block) {
    for (int i = 0; i < MOE_ROLE_COUNT; ++i) {
        const DevicePlacement::Region& region = weights.placement.matrices[i];
        if (region.table != ColumnTable::order) continue;
        const uint64_t bytes = static_cast<uint64_t>(region.count) * region.column_bytes();
        std::pmr::vector<uint32_t> columns(bytes / sizeof(uint32_t), &weights.runtime->memory);
        block.read(columns.data(), region.columns, bytes);
        const auto n_columns =
            static_cast<uint32_t>(weights.layout.part(static_cast<moe_role>(i)).columns);
        for (const uint32_t column : columns)
            if (column >= n_columns)
                fail(MOE_ERROR_CORRUPT_FILE, "{}: {}: a column is number {} of {}", file.name(),
                     role_name(static_cast<moe_role>(i)), column, n_columns);
    }
}

}  // namespace

PackedFile::PackedFile(std::pmr::memory_resource& memory, std::string_view path,
                       const WeightsLayout& layout, uint64_t block_bytes)
    : file_(memory, path, MOE_IO_READ), checksums_(&memory) {
    const PackedFileHeader header = read_header(file_, layout);
    check_sizes(file_, header);
    block_bytes_ = header.block_bytes;
    block_offset_ = header.block_offset;
    checksums_.resize(chunk_count(block_bytes_));
    file_.read(sizeof header, 8 * checksums_.size(), checksums_.data());
    std::pmr::vector<std::byte> bytes(block_offset_, &memory);
    file_.read(0, bytes.size(), bytes.data());
    std::memset(bytes.data() + offsetof(PackedFileHeader, checksum), 0, sizeof header.checksum);
    if (checksum_of(bytes.data(), bytes.size()) != header.checksum)
        fail(MOE_ERROR_CORRUPT_FILE, "{}: the checksum of the header does not fit", file_.name());
    check_types(file_, header);
    check_layout(file_, header, layout);
    if (block_bytes_ != block_bytes)
        fail(MOE_ERROR_CORRUPT_FILE, "{}: {} bytes, weights of this layout have {}", file_.name(),
             block_bytes_, block_bytes);
}

// Every chunk by one thread, checked while it is in that core's cache.
void PackedFile::read_stage(Team& team, uint64_t offset, uint64_t bytes, std::byte* to) const {
    for_chunks(team, offset, bytes, to, [&](size_t chunk, uint64_t n, std::byte* data) {
        file_.read(block_offset_ + chunk * packed_chunk_bytes, n, data);
        check_chunk(chunk, data, n);
    });
}

void PackedFile::check_chunk(size_t chunk, const std::byte* data, uint64_t bytes) const {
    if (checksum_of(data, bytes) != checksums_[chunk])
        fail(MOE_ERROR_CORRUPT_FILE, "{}: the checksum of chunk {} does not fit", file_.name(),
             chunk);
}

PrivateMap PackedFile::map(uint64_t checked) const {
    PrivateMap map = file_.map_privately();
    for (uint64_t chunk = checked / packed_chunk_bytes; chunk < checksums_.size(); ++chunk) {
        const uint64_t begin = chunk * packed_chunk_bytes;
        check_chunk(chunk, map.data() + block_offset_ + begin,
                    std::min(packed_chunk_bytes, block_bytes_ - begin));
    }
    return map;
}

void PackedFile::load(moe_weights& weights, DeviceBlock& block, std::byte* memory,
                      Team& team) const {
    const uint64_t stage = stage_bytes_of(block_bytes_);
    {
        Staging staging(block, memory, stage);
        file_.will_read(block_offset_, stages_ahead * stage);
        for (uint64_t offset = 0; offset < block_bytes_; offset += stage) {
            const uint64_t bytes = std::min(stage, block_bytes_ - offset);
            file_.will_read(block_offset_ + offset + stages_ahead * stage, stage);
            read_stage(team, offset, bytes, staging.buffer());
            staging.send(offset, bytes);
        }
    }
    check_columns(file_, weights, block);
    read_resident(weights, block);
}

}  // namespace moe
