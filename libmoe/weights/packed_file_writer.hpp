// Saves packed weights of a layer in a file (packed_file_header.hpp).
#pragma once

#include <string_view>

#include "libmoe/base/team.hpp"
#include "libmoe/weights/device_block.hpp"
#include "libmoe/weights/load.hpp"

namespace moe {

// Writes the block of these weights. staging: stage_bytes_of the block.
void save_block(const moe_weights& weights, DeviceBlock& block, std::byte* staging, Team& team,
                std::string_view path);

}  // namespace moe
