// The writer and the reader of packed files share the file header, the chunks and the order of the
// parts. All numbers are little-endian.
//   0      8 bytes   "moepack" and a line feed
//   8      uint32    version of the file, 4; 3 is read, too
//   12     uint32    packed_layout_version; of the CPU interleaved_revision
//   16     16 bytes  layout id
//   32     uint64    bytes of the block
//   40     uint64    bytes of a chunk, 131072
//   48     uint64    where the block begins, the next multiple of 4096
//   56     uint64    checksum (base/checksum.hpp) of all before the block, this field as zero
//   64     288 bytes the layout in words, for people and error sentences; zeros to the end
//   352    8 times   a packed type of the block: 16 bytes of name, uint32 revision; zeros after the
//                    last. Version 3 has 448 bytes of words and no types: all are of revision 1.
//   512    uint64    checksum of each chunk of the block, the last one as long as it is
// Bytes between the arrays of a block are zero in the file. The file ends with the block.
#pragma once

#include <algorithm>
#include <bit>
#include <string>

#include "libmoe/base/first_failure.hpp"
#include "libmoe/base/team.hpp"
#include "libmoe/weights/weights.hpp"

namespace moe {

constexpr uint32_t packed_file_version = 4;
constexpr uint32_t packed_file_version_without_types = 3;
// Small enough to stay in the cache of the core that has read it and takes its checksum, and that
// threads which share the chunks of a buffer end together.
constexpr uint64_t packed_chunk_bytes = uint64_t{128} << 10;

// Bytes of a staging buffer for a block: so many whole chunks are on their way at a time. Between
// two buffers all threads wait for the last one.
constexpr uint64_t stage_bytes_of(uint64_t block_bytes) {
    const uint64_t chunks = (block_bytes + packed_chunk_bytes - 1) / packed_chunk_bytes;
    return (chunks < 256 ? chunks : 256) * packed_chunk_bytes;
}

constexpr char packed_magic[8] = {'m', 'o', 'e', 'p', 'a', 'c', 'k', '\n'};

struct PackedFileHeader {
    char magic[8];
    uint32_t version;
    uint32_t packed_layout;
    uint8_t layout_id[16];
    uint64_t block_bytes;
    uint64_t chunk_bytes;
    uint64_t block_offset;
    uint64_t checksum;
    char description[288];
    struct Type {
        char name[16];
        uint32_t revision;
    } types[8];  // of the block, each once; empty names after the last
};
static_assert(sizeof(PackedFileHeader) == 512 && std::endian::native == std::endian::little);

// Of a size that a file may claim.
constexpr uint64_t chunk_count(uint64_t block_bytes) {
    return block_bytes / packed_chunk_bytes + (block_bytes % packed_chunk_bytes != 0);
}

constexpr uint64_t offset_of_block(uint64_t block_bytes) {
    constexpr uint64_t page = 4096;
    return (sizeof(PackedFileHeader) + 8 * chunk_count(block_bytes) + page - 1) / page * page;
}

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

// The version that files of a layout have.
uint32_t packed_layout_of(const WeightsLayout& layout);

// The layout in words, 287 characters at most.
std::string describe_layout(const WeightsLayout& layout);

// Fills PackedFileHeader::types.
void list_types(const WeightsLayout& layout, PackedFileHeader& header);

}  // namespace moe
