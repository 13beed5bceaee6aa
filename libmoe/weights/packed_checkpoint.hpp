// The tensors of one layer of a checkpoint in the order in which packing needs them.
#pragma once

#include "libmoe/checkpoint/checkpoint.hpp"
#include "libmoe/weights/packed_loader.hpp"

namespace moe {

// Packs all tensors of the layer, mapped or read. PackedLoader::finish() is left to the caller.
void pack_checkpoint_layer(PackedLoader& loader, const moe_checkpoint& checkpoint, int32_t layer,
                           const moe_weights& weights);

}  // namespace moe
