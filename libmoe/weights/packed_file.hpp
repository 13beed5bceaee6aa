// Packed weights of a layer in a file: the block of device memory as it is, behind a header that
// says whose it is (packed_file_header.hpp). This is its reader; packed_file_writer.hpp saves.
#pragma once

#include "libmoe/base/team.hpp"
#include "libmoe/checkpoint/file.hpp"
#include "libmoe/weights/device_block.hpp"
#include "libmoe/weights/load.hpp"
#include "libmoe/weights/packed_file_header.hpp"

namespace moe {

// A file whose header has been read and checked.
class PackedFile {
  public:
    // Fails with MOE_ERROR_CORRUPT_FILE, or MOE_ERROR_LAYOUT_MISMATCH where the file is in order
    // but of another version or layout.
    PackedFile(std::pmr::memory_resource& memory, std::string_view path,
               const WeightsLayout& layout, uint64_t block_bytes);

    // Checks every chunk and sends it to the block; then what the handle has on the host. staging:
    // twice stage_bytes_of the block.
    void load(moe_weights& weights, DeviceBlock& block, std::byte* staging, Team& team) const;

    // Maps the file and checks the chunks of the block from `checked` on.
    PrivateMap map(uint64_t checked) const;
    uint64_t block_offset() const { return block_offset_; }
    std::string_view name() const { return file_.name(); }

  private:
    static constexpr uint64_t stages_ahead = 4;  // that the system is asked to fetch

    void check_chunk(size_t chunk, const std::byte* data, uint64_t bytes) const;
    void read_stage(Team& team, uint64_t offset, uint64_t bytes, std::byte* to) const;

    File file_;
    uint64_t block_bytes_ = 0;
    uint64_t block_offset_ = 0;
    std::pmr::vector<uint64_t> checksums_;
};

}  // namespace moe
