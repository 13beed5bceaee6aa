// A mapped checkpoint gives all tensors at once. Of one that is read, one expert is in memory at a
// time: a round takes every tensor of one expert, and the last round those that belong to none.
#include "libmoe/weights/packed_checkpoint.hpp"

#include <deque>
#include <span>

#include "libmoe/weights/checkpoint_reader.hpp"

namespace moe {
namespace {

constexpr int64_t no_expert = -1;

// Returns which of a tensor's experts the round takes, or -1.
int64_t index_in_round(const LayerTensor& source, int64_t expert) {
    const moe_tensor& tensor = source.tensor;
    if (is_expert_role(tensor.role) != (expert != no_expert)) return -1;
    if (!CheckpointReader::is_stack(tensor))
        return expert == no_expert || tensor.expert == expert ? 0 : -1;
    return expert < CheckpointReader::count(source) ? expert : -1;
}

void pack_round(PackedLoader& loader, std::span<const LayerTensor> tensors, int64_t expert,
                std::pmr::deque<CheckpointReader>& readers) {
    size_t used = 0;
    for (const LayerTensor& source : tensors) {
        const int64_t index = index_in_round(source, expert);
        if (index >= 0 && loader.reader().wants(CheckpointReader::describe(source, index)))
            loader.add(readers[used++].read(source, index));
    }
    loader.pack();
}

void pack_unmapped(PackedLoader& loader, const moe_checkpoint& checkpoint,
                   std::span<const LayerTensor> tensors, const moe_weights& weights) {
    std::pmr::memory_resource& memory = weights.runtime->memory;
    std::pmr::deque<CheckpointReader> readers(&memory);
    // At most one tensor of a role in a round; those that come twice are refused.
    for (int i = 0; i <= MOE_ROLE_COUNT; ++i) readers.emplace_back(checkpoint, memory);
    for (const LayerTensor& source : tensors) loader.reader().check(source.tensor);
    for (int64_t e = 0; e < weights.layout.layer.n_experts; ++e)
        pack_round(loader, tensors, e, readers);
    pack_round(loader, tensors, no_expert, readers);
}

}  // namespace

void pack_checkpoint_layer(PackedLoader& loader, const moe_checkpoint& checkpoint, int32_t layer,
                           const moe_weights& weights) {
    const auto tensors = checkpoint.tensors(layer);
    if (!checkpoint.is_mapped()) return pack_unmapped(loader, checkpoint, tensors, weights);
    for (const LayerTensor& tensor : tensors) loader.add(tensor.tensor);
    loader.reader().check_complete();
    loader.pack();
}

}  // namespace moe
