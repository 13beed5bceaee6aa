// Saving and opening a block of packed weights.
#include "libmoe/weights/packed_file.hpp"

#include <algorithm>
#include <cstring>

#include "libmoe/base/checked.hpp"
#include "libmoe/base/checksum.hpp"
#include "libmoe/base/first_failure.hpp"
#include "libmoe/checkpoint/printable.hpp"
#include "libmoe/formats/format.hpp"
#include "libmoe/weights/new_file.hpp"

namespace moe {
namespace {

constexpr char magic[8] = {'m', 'o', 'e', 'p', 'a', 'c', 'k', '\n'};
constexpr uint64_t page = 4096;

struct Head {
    char magic[8];
    uint32_t version;
    uint32_t packed_layout;
    uint8_t layout_id[16];
    uint64_t block_bytes;
    uint64_t chunk_bytes;
    uint64_t block_offset;
    uint64_t checksum;
    char description[448];
};
static_assert(sizeof(Head) == 512 && std::endian::native == std::endian::little);

// Of a size that a file may claim.
uint64_t chunk_count(uint64_t block_bytes) {
    return block_bytes / packed_chunk_bytes + (block_bytes % packed_chunk_bytes != 0);
}

uint64_t offset_of_block(uint64_t block_bytes) {
    return (sizeof(Head) + 8 * chunk_count(block_bytes) + page - 1) / page * page;
}

// Everything before the block.
std::pmr::vector<std::byte> head_bytes(std::pmr::memory_resource& memory, Head head,
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
        const DevicePlacement::Place& place = placement.matrices[i];
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

// each(index of the chunk, its bytes, where it lies) for the chunks of a stage, by a team.
template <class Each>
void for_chunks(Team& team, uint64_t offset, uint64_t bytes, std::byte* stage, Each each) {
    FirstFailure failure;
    team.for_each(static_cast<int64_t>(chunk_count(bytes)), [&](int32_t, int64_t i) {
        const uint64_t begin = static_cast<uint64_t>(i) * packed_chunk_bytes;
        failure.run(i, [&] {
            each(static_cast<size_t>(offset / packed_chunk_bytes) + static_cast<size_t>(i),
                 std::min(packed_chunk_bytes, bytes - begin), stage + begin);
        });
    });
    failure.rethrow();
}

Head head_of(const moe_weights& weights) {
    Head head{};
    std::memcpy(head.magic, magic, sizeof magic);
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

Head read_head(const File& file) {
    Head head{};
    if (file.size() < sizeof head)
        fail(MOE_ERROR_CORRUPT_FILE, "{}: {} bytes are too few for packed weights", file.name(),
             file.size());
    file.read(0, sizeof head, &head);
    if (std::memcmp(head.magic, magic, sizeof magic) != 0)
        fail(MOE_ERROR_CORRUPT_FILE, "{}: is no file of packed weights", file.name());
    if (head.version != packed_file_version)
        fail(MOE_ERROR_LAYOUT_MISMATCH, "{}: version {} of packed files, this library has {}",
             file.name(), head.version, packed_file_version);
    if (head.packed_layout != packed_layout_version)
        fail(MOE_ERROR_LAYOUT_MISMATCH, "{}: version {} of the packed layout, this library has {}",
             file.name(), head.packed_layout, packed_layout_version);
    head.description[sizeof head.description - 1] = '\0';
    return head;
}

// Sizes first: nothing is allocated for a count that the file has no room for.
void check_sizes(const File& file, const Head& head) {
    const auto refuse = [&](const char* what, uint64_t value) {
        fail(MOE_ERROR_CORRUPT_FILE, "{}: {} is {}, the file has {} bytes", file.name(), what,
             value, file.size());
    };
    if (head.chunk_bytes != packed_chunk_bytes) refuse("the size of a chunk", head.chunk_bytes);
    if (head.block_bytes > file.size()) refuse("the size of the block", head.block_bytes);
    if (head.block_offset != offset_of_block(head.block_bytes) ||
        file.size() != head.block_offset + head.block_bytes)
        refuse("the beginning of the block", head.block_offset);
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
    }
    if (!layout.needs(MOE_ROLE_HASH_TABLE)) return;
    const Layer::Shape shape = layout.layer.role_shape(MOE_ROLE_HASH_TABLE);
    auto& table = weights.resident.hash_table;
    table.resize(static_cast<size_t>(shape.rows) * static_cast<size_t>(shape.columns));
    block.read(table.data(), weights.placement.hash_table, table.size() * sizeof(int32_t));
}

}  // namespace

std::string describe_layout(const WeightsLayout& layout) {
    const Layer& layer = layout.layer;
    std::string words = fmt::format("hidden {}, intermediate {} of {}, {} of {} experts",
                                    layer.hidden, layout.slice.intermediate_count,
                                    layer.intermediate, layout.slice.n_local, layer.n_experts);
    for (int i = 0; i < MOE_ROLE_COUNT; ++i) {
        const auto role = static_cast<moe_role>(i);
        if (!is_matrix_role(role) || role == MOE_ROLE_ROUTER || !layout.needs(role)) continue;
        words += fmt::format(", {} {}", role_name(role), format_name(layout.formats[i]).text);
    }
    words.resize(std::min<size_t>(words.size(), 447));
    return words;
}

void save_block(const moe_weights& weights, DeviceBlock& block, std::byte* staging, Team& team,
                std::string_view path) {
    std::pmr::memory_resource& memory = weights.runtime->memory;
    const Head head = head_of(weights);
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
    auto bytes = head_bytes(memory, head, checksums);
    const uint64_t checksum = checksum_of(bytes.data(), bytes.size());
    std::memcpy(bytes.data() + offsetof(Head, checksum), &checksum, sizeof checksum);
    file.write(0, bytes.data(), bytes.size());
    file.keep();
}

PackedFile::PackedFile(std::pmr::memory_resource& memory, std::string_view path,
                       const WeightsLayout& layout, uint64_t block_bytes)
    : file_(memory, path, MOE_IO_READ), checksums_(&memory) {
    const Head head = read_head(file_);
    check_sizes(file_, head);
    block_bytes_ = head.block_bytes;
    block_offset_ = head.block_offset;
    checksums_.resize(chunk_count(block_bytes_));
    file_.read(sizeof head, 8 * checksums_.size(), checksums_.data());
    std::pmr::vector<std::byte> bytes(block_offset_, &memory);
    file_.read(0, bytes.size(), bytes.data());
    std::memset(bytes.data() + offsetof(Head, checksum), 0, sizeof head.checksum);
    if (checksum_of(bytes.data(), bytes.size()) != head.checksum)
        fail(MOE_ERROR_CORRUPT_FILE, "{}: the checksum of the head does not fit", file_.name());
    if (!std::equal(layout.id.begin(), layout.id.end(), head.layout_id))
        fail(MOE_ERROR_LAYOUT_MISMATCH, "{}: holds {}; the plan wants {}", file_.name(),
             printable(head.description).text, describe_layout(layout));
    if (block_bytes_ != block_bytes)
        fail(MOE_ERROR_CORRUPT_FILE, "{}: {} bytes, weights of this layout have {}", file_.name(),
             block_bytes_, block_bytes);
}

// Every chunk by one thread, checked while it is in that core's cache.
void PackedFile::read_stage(Team& team, uint64_t offset, uint64_t bytes, std::byte* to) const {
    for_chunks(team, offset, bytes, to, [&](size_t chunk, uint64_t n, std::byte* data) {
        file_.read(block_offset_ + chunk * packed_chunk_bytes, n, data);
        if (checksum_of(data, n) != checksums_[chunk])
            fail(MOE_ERROR_CORRUPT_FILE, "{}: the checksum of chunk {} does not fit", file_.name(),
                 chunk);
    });
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
    read_resident(weights, block);
}

}  // namespace moe
