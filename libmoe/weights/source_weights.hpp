// Weights in their source format in host memory, as the CPU reads them: borrowed from the caller's
// tensors or the checkpoint, or copied expert by expert.
#pragma once

#include "libmoe/weights/load_request.hpp"
#include "libmoe/weights/weights_handle.hpp"

namespace moe {

moe_weights* load_source_tensors(moe_runtime* runtime, const WeightsLayout& layout,
                                 const LoadRequest& request, const moe_tensor* const* tensors,
                                 uint32_t n_tensors);
moe_weights* load_source_checkpoint(moe_runtime* runtime, const WeightsLayout& layout,
                                    const LoadRequest& request, const moe_checkpoint& checkpoint,
                                    int32_t layer);
void update_source_tensor(moe_weights& weights, const moe_tensor& tensor);

}  // namespace moe
