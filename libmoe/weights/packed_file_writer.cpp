// The arrays of a block and nothing between them, in chunks with their checksums, then the header.
#include "libmoe/weights/packed_file_writer.hpp"

#include <algorithm>
#include <cstring>

#include "libmoe/base/checksum.hpp"
#include "libmoe/weights/new_file.hpp"
#include "libmoe/weights/packed_file_header.hpp"

namespace moe {
namespace {

// Everything before the block.
std::pmr::vector<std::byte> header_bytes(std::pmr::memory_resource& memory, PackedFileHeader header,
                                         const std::pmr::vector<uint64_t>& checksums) {
    std::pmr::vector<std::byte> bytes(header.block_offset, &memory);
    header.checksum = 0;
    std::memcpy(bytes.data(), &header, sizeof header);
    std::memcpy(bytes.data() + sizeof header, checksums.data(), 8 * checksums.size());
    return bytes;
}

// Calls each(offset, bytes) for the parts of a block that its arrays fill.
template <class Each>
void for_arrays(const WeightsLayout& layout, const DevicePlacement& placement, Each each) {
    for (int i = 0; i < MOE_ROLE_COUNT; ++i) {
        const auto role = static_cast<moe_role>(i);
        const DevicePlacement::Region& region = placement.matrices[i];
        const auto count = static_cast<uint64_t>(region.count);
        if (region.type != PackedType::none) each(region.offset, count * region.expert_stride);
        if (region.globals) each(region.globals, count * 2 * sizeof(float));
        if (region.codebooks) each(region.codebooks, count * 2 * 32 * sizeof(float));
        if (region.columns) each(region.columns, count * region.column_bytes());
        if (is_matrix_role(role) || role == MOE_ROLE_HASH_TABLE || !layout.needs(role)) continue;
        const auto columns = static_cast<uint64_t>(layout.part(role).columns);
        each(placement.vectors[i],
             static_cast<uint64_t>(layout.count(role)) * columns * sizeof(float));
    }
    if (placement.router_type != MOE_TYPE_NONE) each(placement.router, placement.router_bytes);
    if (!layout.needs(MOE_ROLE_HASH_TABLE)) return;
    const Layer::Shape shape = layout.layer.role_shape(MOE_ROLE_HASH_TABLE);
    each(placement.hash_table,
         static_cast<uint64_t>(shape.rows) * static_cast<uint64_t>(shape.columns) * 4);
}

// The arrays of a block in the order of their offsets.
class Arrays {
  public:
    Arrays(std::pmr::memory_resource& memory, const moe_weights& weights) : ranges_(&memory) {
        for_arrays(weights.layout, weights.placement, [&](uint64_t offset, uint64_t bytes) {
            ranges_.push_back({offset, offset + bytes});
        });
        std::sort(ranges_.begin(), ranges_.end(),
                  [](const Range& a, const Range& b) { return a.begin < b.begin; });
    }
    // Of `bytes` of the block from `offset` on: what lies in no array becomes zero.
    void clear_gaps(uint64_t offset, uint64_t bytes, std::byte* data) const {
        const uint64_t end = offset + bytes;
        uint64_t at = offset;
        for (const Range& range : ranges_) {
            if (range.end <= at) continue;
            const uint64_t stop = std::clamp(range.begin, at, end);
            std::memset(data + (at - offset), 0, stop - at);
            at = std::min(range.end, end);
            if (at == end) return;
        }
        std::memset(data + (at - offset), 0, end - at);
    }

  private:
    struct Range {
        uint64_t begin, end;
    };
    std::pmr::vector<Range> ranges_;
};

PackedFileHeader header_of(const moe_weights& weights, uint64_t block_bytes) {
    PackedFileHeader header{};
    std::memcpy(header.magic, packed_magic, sizeof packed_magic);
    header.version = packed_file_version;
    header.packed_layout = packed_layout_of(weights.layout);
    std::copy(weights.layout.id.begin(), weights.layout.id.end(), header.layout_id);
    header.block_bytes = block_bytes;
    header.chunk_bytes = packed_chunk_bytes;
    header.block_offset = offset_of_block(header.block_bytes);
    const std::string words = describe_layout(weights.layout);
    std::memcpy(header.description, words.data(),
                std::min(words.size(), sizeof header.description - 1));
    list_types(weights.layout, header);
    return header;
}

}  // namespace

void write_packed_file(const moe_weights& weights, uint64_t block_bytes, const ReadBlock& read,
                       std::byte* staging, Team& team, std::string_view path) {
    std::pmr::memory_resource& memory = weights.runtime->memory;
    const PackedFileHeader header = header_of(weights, block_bytes);
    std::pmr::vector<uint64_t> checksums(chunk_count(block_bytes), &memory);
    const uint64_t stage = stage_bytes_of(block_bytes);
    NewFile file(memory, path);
    for (uint64_t offset = 0; offset < block_bytes; offset += stage) {
        const uint64_t bytes = std::min(stage, block_bytes - offset);
        read(staging, offset, bytes);
        for_chunks(team, offset, bytes, staging,
                   [&](size_t chunk, uint64_t n, const std::byte* data) {
                       checksums[chunk] = checksum_of(data, n);
                   });
        file.write(header.block_offset + offset, staging, bytes);
    }
    auto bytes = header_bytes(memory, header, checksums);
    const uint64_t checksum = checksum_of(bytes.data(), bytes.size());
    std::memcpy(bytes.data() + offsetof(PackedFileHeader, checksum), &checksum, sizeof checksum);
    file.write(0, bytes.data(), bytes.size());
    file.keep();
}

void save_block(const moe_weights& weights, DeviceBlock& block, std::byte* staging, Team& team,
                std::string_view path) {
    const Arrays arrays(weights.runtime->memory, weights);
    const auto read = [&](std::byte* to, uint64_t offset, uint64_t bytes) {
        block.read(to, offset, bytes);
        arrays.clear_gaps(offset, bytes, to);
    };
    write_packed_file(weights, weights.placement.bytes, read, staging, team, path);
}

}  // namespace moe
