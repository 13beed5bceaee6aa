// checkpoint.hpp - checkpoints as the subcommands use them: open, list the MoE layers, take one.
#pragma once

#include <string>
#include <vector>

#include "commands.hpp"
#include "moe_cpp.hpp"

namespace moe::cli {

Checkpoint open_checkpoint(moe_runtime* runtime, const std::string& path,
                           const ReadAs& read_as = {}, moe_io io = MOE_IO_MMAP);
moe_checkpoint_info info_of(const moe_checkpoint* checkpoint);
// Decoder layers that are MoE layers, ascending; none is an error.
std::vector<int32_t> layers_of(const moe_checkpoint* checkpoint);
// Description and formats of a decoder layer; a layer that is no MoE layer is an error that lists
// those which are.
LayerSource source_of(const moe_checkpoint* checkpoint, const std::string& path, int32_t layer);
// The same for one that layers_of has.
LayerSource source_of(const moe_checkpoint* checkpoint, int32_t layer);
Runtime make_runtime(int32_t threads);
// Appends what the library logs to `notes`, which must live as long as the runtime.
Runtime make_noting_runtime(std::vector<std::string>& notes);

}  // namespace moe::cli
