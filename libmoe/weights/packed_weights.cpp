// Makes the block of packed weights, fills it by a load or from a file, and updates it.
#include "libmoe/weights/packed_weights.hpp"

#include "libmoe/base/runtime_team.hpp"
#include "libmoe/weights/packed_checkpoint.hpp"
#include "libmoe/weights/packed_file.hpp"
#include "libmoe/weights/packed_file_writer.hpp"
#include "libmoe/weights/staging_memory.hpp"

namespace moe {
namespace {

using Purpose = TensorReader::Purpose;

void give_block(moe_weights& weights, const LoadRequest& request) {
    const uint64_t bytes = weights.placement.bytes;
    constexpr uint64_t alignment = DevicePlacement::alignment;
    if (request.ownership == MOE_OWN_BORROW)
        fail(MOE_ERROR_UNSUPPORTED,
             "ownership is MOE_OWN_BORROW: packed weights are a copy, use COPY or CALLER");
    if (request.ownership == MOE_OWN_COPY) {
        weights.device_memory =
            device::DeviceMemory(weights.runtime->memory, MOE_SPACE_DEVICE, bytes, alignment,
                                 weights.layout.device_index, request.stream);
        weights.device_block = weights.device_memory.data();
        return;
    }
    check_caller_memory(request, bytes, alignment);
    weights.device_block = static_cast<std::byte*>(request.memory);
}

// Makes a handle whose block fill(weights, block) fills.
template <class Fill>
moe_weights* make_packed_weights(moe_runtime& runtime, const WeightsLayout& layout,
                                 const LoadRequest& request, Fill fill) {
    NewWeights weights = new_weights(runtime, layout, request.ownership);
    weights->placement = lay_out_on_device(layout);
    const device::UseDevice use(layout.device_index);
    give_block(*weights, request);
    MemoryBlock block(weights->device_block, request.stream);
    fill(*weights, block);
    weights->device = weights->placement.resolve(weights->layout, weights->device_block);
    note_codebooks(*weights);
    runtime.log(MOE_LOG_INFO, "weights: {} experts, {} bytes on CUDA device {}",
                layout.slice.n_local, weights->placement.bytes, layout.device_index);
    return weights.release();
}

// Loads by feed(loader, weights), which gives the tensors and packs them.
template <class Feed>
moe_weights* load_packed(moe_runtime* runtime, const WeightsLayout& layout,
                         const LoadRequest& request, Feed feed) {
    RuntimeRef ref(runtime);
    return make_packed_weights(
        *ref, layout, request, [&](moe_weights& weights, DeviceBlock& block) {
            const uint64_t each = PackedLoader::staging_bytes(weights.placement, true);
            const StagingMemory staging(*weights.runtime, layout.device_index, 2 * each,
                                        request.stream);
            PackedLoader loader(weights, request, block, staging.data(), each, Purpose::load);
            feed(loader, weights);
            loader.finish();
        });
}

}  // namespace

moe_weights* load_packed_tensors(moe_runtime* runtime, const WeightsLayout& layout,
                                 const LoadRequest& request, const moe_tensor* const* tensors,
                                 uint32_t n_tensors) {
    return load_packed(runtime, layout, request, [&](PackedLoader& loader, const moe_weights&) {
        for (uint32_t i = 0; i < n_tensors; ++i) loader.add(*tensors[i]);
        loader.reader().check_complete();
        loader.pack();
    });
}

moe_weights* load_packed_checkpoint(moe_runtime* runtime, const WeightsLayout& layout,
                                    const LoadRequest& request, const moe_checkpoint& checkpoint,
                                    int32_t layer) {
    return load_packed(runtime, layout, request,
                       [&](PackedLoader& loader, const moe_weights& weights) {
                           pack_checkpoint_layer(loader, checkpoint, layer, weights);
                       });
}

void save_packed_weights(const moe_weights& weights, std::string_view path) {
    const device::UseDevice use(weights.layout.device_index);
    MemoryBlock block(weights.device_block, nullptr);
    moe_runtime& runtime = *weights.runtime;
    const uint64_t stage = stage_bytes_of(weights.placement.bytes);
    const StagingMemory staging(runtime, weights.layout.device_index, stage, nullptr);
    with_team(runtime, [&](Team& team) { save_block(weights, block, staging.data(), team, path); });
}

moe_weights* open_packed_weights(moe_runtime* runtime, const WeightsLayout& layout,
                                 std::string_view path) {
    RuntimeRef ref(runtime);
    const PackedFile file(ref->memory, path, layout, lay_out_on_device(layout).bytes);
    return make_packed_weights(*ref, layout, {}, [&](moe_weights& weights, DeviceBlock& block) {
        const uint64_t stage = stage_bytes_of(weights.placement.bytes);
        const StagingMemory staging(*ref, layout.device_index, 2 * stage, nullptr);
        weights.codebook_tables.resize(weights.placement);
        CodebookObserver observed(block, weights.placement, weights.codebook_tables);
        with_team(*ref, [&](Team& team) { file.load(weights, observed, staging.data(), team); });
    });
}

void update_packed_tensor(moe_weights& weights, const moe_tensor& tensor, void* stream) {
    const device::UseDevice use(weights.layout.device_index);
    MemoryBlock block(weights.device_block, stream);
    const uint64_t each = PackedLoader::staging_bytes(weights.placement, false);
    const Block staging(weights.runtime->memory, 2 * each, DevicePlacement::alignment);
    LoadRequest request;
    request.ownership = weights.ownership;
    PackedLoader loader(weights, request, block, staging.data(), each, Purpose::update);
    loader.add(tensor);
    // If the rest fails, some codebooks may be others by then.
    forget_codebooks(weights);
    loader.pack();
    loader.finish_update(tensor.role);
    note_codebooks(weights);
}

}  // namespace moe
