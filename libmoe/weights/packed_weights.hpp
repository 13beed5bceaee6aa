// Packed weights in device memory: loads, files and updates.
#pragma once

#include <string_view>

#include "libmoe/weights/load_request.hpp"
#include "libmoe/weights/weights_handle.hpp"

namespace moe {

moe_weights* load_packed_tensors(moe_runtime* runtime, const WeightsLayout& layout,
                                 const LoadRequest& request, const moe_tensor* const* tensors,
                                 uint32_t n_tensors);
moe_weights* load_packed_checkpoint(moe_runtime* runtime, const WeightsLayout& layout,
                                    const LoadRequest& request, const moe_checkpoint& checkpoint,
                                    int32_t layer);
// To a file and back (packed_file.hpp).
void save_packed_weights(const moe_weights& weights, std::string_view path);
moe_weights* open_packed_weights(moe_runtime* runtime, const WeightsLayout& layout,
                                 std::string_view path);
void update_packed_tensor(moe_weights& weights, const moe_tensor& tensor, void* stream);

}  // namespace moe
