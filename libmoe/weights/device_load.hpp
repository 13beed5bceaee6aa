// The ways into a weights handle whose layout is packed, in memory of a device.
#pragma once

#include "libmoe/weights/load.hpp"

namespace moe {

class DeviceLoader;

moe_weights* load_device_tensors(moe_runtime* runtime, const WeightsLayout& layout,
                                 const LoadRequest& request, const moe_tensor* const* tensors,
                                 uint32_t n_tensors);
moe_weights* load_device_checkpoint(moe_runtime* runtime, const WeightsLayout& layout,
                                    const LoadRequest& request, const moe_checkpoint& checkpoint,
                                    int32_t layer);
void update_device_tensor(moe_weights& weights, const moe_tensor& tensor, void* stream);

// All tensors of one layer of a checkpoint, mapped or read; what finish() does is left to do.
void load_layer(DeviceLoader& load, const moe_checkpoint& checkpoint, int32_t layer,
                moe_weights& weights);

}  // namespace moe
