// The ways into a weights handle whose layout is packed, in memory of a device.
#pragma once

#include <string_view>

#include "libmoe/weights/load.hpp"

namespace moe {

class DeviceBlock;
class DeviceLoader;

moe_weights* load_device_tensors(moe_runtime* runtime, const WeightsLayout& layout,
                                 const LoadRequest& request, const moe_tensor* const* tensors,
                                 uint32_t n_tensors);
moe_weights* load_device_checkpoint(moe_runtime* runtime, const WeightsLayout& layout,
                                    const LoadRequest& request, const moe_checkpoint& checkpoint,
                                    int32_t layer);
// To a file and back (packed_file.hpp).
void save_device_weights(const moe_weights& weights, std::string_view path);
moe_weights* open_device_weights(moe_runtime* runtime, const WeightsLayout& layout,
                                 std::string_view path);
void update_device_tensor(moe_weights& weights, const moe_tensor& tensor, void* stream);

// Finds out of which matrices all codebooks are the same. The functions above do; it is for those
// who fill a block themselves.
void note_codebooks(moe_weights& weights, DeviceBlock& block);

// All tensors of one layer of a checkpoint, mapped or read; what finish() does is left to do.
void load_layer(DeviceLoader& load, const moe_checkpoint& checkpoint, int32_t layer,
                moe_weights& weights);

}  // namespace moe
