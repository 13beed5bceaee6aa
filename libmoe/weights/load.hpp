// The ways into a weights handle and out of it, for either residency.
#pragma once

#include <string_view>

#include "libmoe/weights/load_request.hpp"
#include "libmoe/weights/weights_handle.hpp"

namespace moe {

moe_weights* load_tensors(moe_runtime* runtime, const WeightsLayout& layout,
                          const LoadRequest& request, const moe_tensor* const* tensors,
                          uint32_t n_tensors);
moe_weights* load_checkpoint(moe_runtime* runtime, const WeightsLayout& layout,
                             const LoadRequest& request, const moe_checkpoint& checkpoint,
                             int32_t layer);
// Packed weights to a file and back.
void save_weights(const moe_weights& weights, std::string_view path);
moe_weights* open_weights(moe_runtime* runtime, const WeightsLayout& layout, std::string_view path);
// Replaces what one tensor holds. stream is of the weights' device.
void update_tensor(moe_weights& weights, const moe_tensor& tensor, void* stream);

}  // namespace moe
