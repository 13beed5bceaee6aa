// Packed weights of a layer in a file: the block of device memory as it is, behind a head that says
// whose it is. All numbers are little-endian.
//   0      8 bytes   "moepack" and a line feed
//   8      uint32    version of the file, 2
//   12     uint32    packed_layout_version
//   16     16 bytes  layout id
//   32     uint64    bytes of the block
//   40     uint64    bytes of a chunk, 524288
//   48     uint64    where the block begins, the next multiple of 4096
//   56     uint64    checksum (base/checksum.hpp) of all before the block, this field as zero
//   64     448 bytes the layout in words, for people and error sentences; zeros to the end
//   512    uint64    checksum of each chunk of the block, the last one as long as it is
// Bytes between the arrays of a block are zero in the file. The file ends with the block.
#pragma once

#include <string>

#include "libmoe/base/team.hpp"
#include "libmoe/checkpoint/file.hpp"
#include "libmoe/weights/device_block.hpp"
#include "libmoe/weights/load.hpp"

namespace moe {

constexpr uint32_t packed_file_version = 2;
// Small enough to stay in the cache of the core that has read it and takes its checksum.
constexpr uint64_t packed_chunk_bytes = uint64_t{512} << 10;

// Bytes of a staging buffer for a block: so many whole chunks are on their way at a time.
constexpr uint64_t stage_bytes_of(uint64_t block_bytes) {
    const uint64_t chunks = (block_bytes + packed_chunk_bytes - 1) / packed_chunk_bytes;
    return (chunks < 64 ? chunks : 64) * packed_chunk_bytes;
}

// The layout in words, 447 characters at most.
std::string describe_layout(const WeightsLayout& layout);

// Writes the block of these weights. staging: stage_bytes_of the block.
void save_block(const moe_weights& weights, DeviceBlock& block, std::byte* staging, Team& team,
                std::string_view path);

// A file whose head has been read and checked.
class PackedFile {
  public:
    // Fails with MOE_ERROR_CORRUPT_FILE, or MOE_ERROR_LAYOUT_MISMATCH where the file is in order
    // but of another version or layout.
    PackedFile(std::pmr::memory_resource& memory, std::string_view path,
               const WeightsLayout& layout, uint64_t block_bytes);

    // Checks every chunk and sends it to the block; then what the handle has on the host. staging:
    // twice stage_bytes_of the block.
    void load(moe_weights& weights, DeviceBlock& block, std::byte* staging, Team& team) const;

  private:
    static constexpr uint64_t stages_ahead = 4;  // that the system is asked to fetch

    void read_stage(Team& team, uint64_t offset, uint64_t bytes, std::byte* to) const;

    File file_;
    uint64_t block_bytes_ = 0;
    uint64_t block_offset_ = 0;
    std::pmr::vector<uint64_t> checksums_;
};

}  // namespace moe
