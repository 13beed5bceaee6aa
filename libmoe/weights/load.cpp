// Passes a call on by the residency of the layout.
#include "libmoe/weights/load.hpp"

#include "libmoe/weights/host_block.hpp"
#include "libmoe/weights/packed_weights.hpp"
#include "libmoe/weights/source_weights.hpp"

namespace moe {

moe_weights* load_tensors(moe_runtime* runtime, const WeightsLayout& layout,
                          const LoadRequest& request, const moe_tensor* const* tensors,
                          uint32_t n_tensors) {
    const auto load = layout.is_packed() ? load_packed_tensors : load_source_tensors;
    return load(runtime, layout, request, tensors, n_tensors);
}

moe_weights* load_checkpoint(moe_runtime* runtime, const WeightsLayout& layout,
                             const LoadRequest& request, const moe_checkpoint& checkpoint,
                             int32_t layer) {
    const auto load = layout.is_packed() ? load_packed_checkpoint : load_source_checkpoint;
    return load(runtime, layout, request, checkpoint, layer);
}

void save_weights(const moe_weights& weights, std::string_view path) {
    if (weights.layout.residency != MOE_RESIDENCY_PACKED)
        fail(MOE_ERROR_UNSUPPORTED,
             "moe_weights_save: these weights are not packed; a plan of residency "
             "MOE_RESIDENCY_SOURCE reads its checkpoint");
    const auto save = weights.layout.is_packed() ? save_packed_weights : save_host_weights;
    save(weights, path);
}

moe_weights* open_weights(moe_runtime* runtime, const WeightsLayout& layout,
                          std::string_view path) {
    if (layout.residency != MOE_RESIDENCY_PACKED)
        fail(MOE_ERROR_UNSUPPORTED,
             "moe_weights_open: this plan takes no packed weights; a plan of residency "
             "MOE_RESIDENCY_SOURCE reads a checkpoint");
    const auto open = layout.is_packed() ? open_packed_weights : open_host_weights;
    return open(runtime, layout, path);
}

void update_tensor(moe_weights& weights, const moe_tensor& tensor, void* stream) {
    if (weights.layout.is_packed()) return update_packed_tensor(weights, tensor, stream);
    update_source_tensor(weights, tensor);
}

}  // namespace moe
