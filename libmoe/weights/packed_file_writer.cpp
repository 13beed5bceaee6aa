// The arrays of a block and nothing between them, in chunks with their checksums, then the head.
#include "libmoe/weights/packed_file_writer.hpp"

#include <algorithm>
#include <cstring>

#include "libmoe/base/checksum.hpp"
#include "libmoe/weights/new_file.hpp"
#include "libmoe/weights/packed_file_header.hpp"

namespace moe {
namespace {

// Everything before the block.
std::pmr::vector<std::byte> ggml_scale_bytes(std::pmr::memory_resource& memory,
                                             PackedFileHeader head,
                                             const std::pmr::vector<uint64_t>& checksums) {
    std::pmr::vector<std::byte> bytes(head.block_offset, &memory);
    head.checksum = 0;
    std::memcpy(bytes.data(), &head, sizeof head);
    std::memcpy(bytes.data() + sizeof head, checksums.data(), 8 * checksums.size());
    return bytes;
}

// Calls each(offset, bytes) for the parts of a block that its arrays fill.
template <class Each>
void for_arrays(const WeightsLayout& layout, const DevicePlacement& placement, Each each) {
    for (int i = 0; i < MOE_ROLE_COUNT; ++i) {
        const auto role = static_cast<moe_role>(i);
        const DevicePlacement::Region& place = placement.matrices[i];
        const auto count = static_cast<uint64_t>(place.count);
        if (place.type != PackedType::none) each(place.offset, count * place.expert_stride);
        if (place.globals) each(place.globals, count * 2 * sizeof(float));
        if (place.codebooks) each(place.codebooks, count * 2 * 32 * sizeof(float));
        if (place.columns) each(place.columns, count * place.column_bytes());
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

// The arrays of a block in the order of their places.
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

PackedFileHeader ggml_scales_of(const moe_weights& weights) {
    PackedFileHeader head{};
    std::memcpy(head.magic, packed_magic, sizeof packed_magic);
    head.version = packed_file_version;
    head.packed_layout = packed_layout_version;
    std::copy(weights.layout.id.begin(), weights.layout.id.end(), head.layout_id);
    head.block_bytes = weights.placement.bytes;
    head.chunk_bytes = packed_chunk_bytes;
    head.block_offset = offset_of_block(head.block_bytes);
    const std::string words = describe_layout(weights.layout);
    std::memcpy(head.description, words.data(),
                std::min(words.size(), sizeof head.description - 1));
    return head;
}

}  // namespace

void save_block(const moe_weights& weights, DeviceBlock& block, std::byte* staging, Team& team,
                std::string_view path) {
    std::pmr::memory_resource& memory = weights.runtime->memory;
    const PackedFileHeader head = ggml_scales_of(weights);
    const Arrays arrays(memory, weights);
    std::pmr::vector<uint64_t> checksums(chunk_count(head.block_bytes), &memory);
    const uint64_t stage = stage_bytes_of(head.block_bytes);
    NewFile file(memory, path);
    for (uint64_t offset = 0; offset < head.block_bytes; offset += stage) {
        const uint64_t bytes = std::min(stage, head.block_bytes - offset);
        block.read(staging, offset, bytes);
        arrays.clear_gaps(offset, bytes, staging);
        for_chunks(team, offset, bytes, staging,
                   [&](size_t chunk, uint64_t n, const std::byte* data) {
                       checksums[chunk] = checksum_of(data, n);
                   });
        file.write(head.block_offset + offset, staging, bytes);
    }
    auto bytes = ggml_scale_bytes(memory, head, checksums);
    const uint64_t checksum = checksum_of(bytes.data(), bytes.size());
    std::memcpy(bytes.data() + offsetof(PackedFileHeader, checksum), &checksum, sizeof checksum);
    file.write(0, bytes.data(), bytes.size());
    file.keep();
}

}  // namespace moe
