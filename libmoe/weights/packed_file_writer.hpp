// Saves packed weights of a layer in a file (packed_file_header.hpp).
#pragma once

#include <functional>
#include <string_view>

#include "libmoe/base/team.hpp"
#include "libmoe/weights/device_block.hpp"
#include "libmoe/weights/load.hpp"

namespace moe {

// Gives `bytes` bytes of a block from `offset` on, with zeros between its arrays.
using ReadBlock = std::function<void(std::byte* to, uint64_t offset, uint64_t bytes)>;

// Writes a block of these weights. staging: stage_bytes_of the block.
void write_packed_file(const moe_weights& weights, uint64_t block_bytes, const ReadBlock& read,
                       std::byte* staging, Team& team, std::string_view path);

// Writes the block of device memory of these weights. staging: stage_bytes_of the block.
void save_block(const moe_weights& weights, DeviceBlock& block, std::byte* staging, Team& team,
                std::string_view path);

}  // namespace moe
