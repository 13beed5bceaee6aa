// Loads and updates packed weights: the block, the staging memory, and the order of the tensors.
#include "libmoe/weights/device_load.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <deque>

#include "libmoe/base/runtime_team.hpp"
#include "libmoe/packed/shared_codebook.hpp"
#include "libmoe/weights/checkpoint_reader.hpp"
#include "libmoe/weights/device_loader.hpp"
#include "libmoe/weights/packed_file.hpp"
#include "libmoe/weights/packed_file_writer.hpp"
#include "libmoe/weights/staging_memory.hpp"

namespace moe {
namespace {

void give_block(moe_weights& weights, const LoadRequest& request) {
    const uint64_t bytes = weights.placement.bytes;
    constexpr uint64_t alignment = DevicePlacement::alignment;
    if (request.ownership == MOE_OWN_BORROW)
        fail(MOE_ERROR_UNSUPPORTED,
             "ownership is MOE_OWN_BORROW: packed weights are a copy, use COPY or CALLER");
    if (request.ownership == MOE_OWN_COPY) {
        weights.device_memory =
            cuda::DeviceMemory(weights.runtime->memory, MOE_SPACE_DEVICE, bytes, alignment,
                               weights.layout.device_index, request.stream);
        weights.device_block = weights.device_memory.data();
        return;
    }
    require(request.memory != nullptr, "memory is NULL, MOE_OWN_CALLER needs {} bytes", bytes);
    require(reinterpret_cast<uintptr_t>(request.memory) % alignment == 0,
            "memory is not aligned to {} bytes", alignment);
    require(request.memory_bytes >= bytes, "memory_bytes is {}, these weights need {}",
            request.memory_bytes, bytes);
    weights.device_block = static_cast<std::byte*>(request.memory);
}

// Of which matrices are all codebooks the same? Room to find out is taken at once, so that what
// comes between needs no memory any more.
class Codebooks {
  public:
    explicit Codebooks(moe_weights& weights)
        : weights_(weights), of_experts_(&weights.runtime->memory) {
        int64_t most = 0;
        for (const auto& place : weights.placement.matrices)
            most = std::max(most, place.n_codebooks);
        of_experts_.reserve(static_cast<size_t>(most));
    }
    void forget() {
        for (PackedMatrix& matrix : weights_.device.matrices) forget(matrix);
    }
    void note(DeviceBlock& block) {
        for (int i = 0; i < MOE_ROLE_COUNT; ++i) {
            const DevicePlacement::Region& place = weights_.placement.matrices[i];
            if (place.n_codebooks < 1) continue;
            of_experts_.resize(static_cast<size_t>(place.n_codebooks));
            block.read(of_experts_.data(), place.codebooks, of_experts_.size() * sizeof(OfExpert));
            const OfExpert& first = of_experts_.front();
            const auto is_first = [&](const OfExpert& one) { return one == first; };
            PackedMatrix& matrix = weights_.device.matrices[i];
            forget(matrix);
            if (std::all_of(of_experts_.begin(), of_experts_.end(), is_first))
                note_one(matrix, first);
        }
    }

  private:
    using OfExpert = std::array<std::byte, 2 * 32 * sizeof(float)>;

    static void forget(PackedMatrix& matrix) {
        matrix.has_one_codebook = matrix.has_mirrored_codebook = false;
        matrix.byte_codebook = {};
    }
    static void note_one(PackedMatrix& matrix, const OfExpert& book) {
        matrix.has_one_codebook = true;
        const auto halves = std::bit_cast<std::array<std::array<float, 32>, 2>>(book);
        const int32_t bits = code_bits(matrix.type);
        if (has_sign_codes(matrix.type))
            matrix.has_mirrored_codebook = is_mirrored(halves[0]) && is_mirrored(halves[1]);
        else if (!is_grid(matrix.type) && bits <= 3 && halves[0] == halves[1])
            matrix.byte_codebook = byte_codebook(halves[0], bits);
    }

    moe_weights& weights_;
    std::pmr::vector<OfExpert> of_experts_;
};

// A handle with its block, filled by fill(weights, block).
template <class Fill>
moe_weights* make_device_weights(moe_runtime* runtime, const WeightsLayout& layout,
                                 const LoadRequest& request, Fill fill) {
    RuntimeRef ref(runtime);
    NewWeights weights = new_weights(*ref, layout, request);
    weights->placement = lay_out_on_device(layout);
    const cuda::UseDevice use(layout.device_index);
    give_block(*weights, request);
    CudaBlock block(weights->device_block, request.stream);
    fill(*weights, block);
    weights->device = weights->placement.resolve(weights->layout, weights->device_block);
    note_codebooks(*weights, block);
    ref->log(MOE_LOG_INFO, "weights: {} experts, {} bytes on CUDA device {}", layout.slice.n_local,
             weights->placement.bytes, layout.device_index);
    return weights.release();
}

template <class Feed>
moe_weights* load_device(moe_runtime* runtime, const WeightsLayout& layout,
                         const LoadRequest& request, Feed feed) {
    return make_device_weights(
        runtime, layout, request, [&](moe_weights& weights, DeviceBlock& block) {
            const uint64_t each = DeviceLoader::staging_bytes(weights.placement, true);
            const StagingMemory staging(*weights.runtime, layout.device_index, 2 * each,
                                        request.stream);
            DeviceLoader load(weights, request, block, staging.data(), each, false);
            feed(load, weights);
            load.finish();
        });
}

// One expert of a checkpoint that is not mapped (no_expert: what belongs to none) is in memory at a
// time.
constexpr int64_t no_expert = -1;

void add_round(DeviceLoader& load, std::span<const LayerTensor> tensors, int64_t expert,
               std::pmr::deque<CheckpointReader>& readers) {
    size_t used = 0;
    for (const LayerTensor& source : tensors) {
        if (is_expert_role(source.tensor.role) != (expert != no_expert)) continue;
        const bool stack = CheckpointReader::is_stack(source.tensor);
        if (!stack && expert != no_expert && source.tensor.expert != expert) continue;
        const int64_t index = stack ? expert : 0;
        if (index >= CheckpointReader::count(source) ||
            !load.loader.wants(CheckpointReader::describe(source, index)))
            continue;
        load.loader.add(readers[used++].read(source, index));
    }
    load.pack();
}

void add_unmapped(DeviceLoader& load, const moe_checkpoint& checkpoint,
                  std::span<const LayerTensor> tensors, moe_weights& weights) {
    std::pmr::memory_resource& memory = weights.runtime->memory;
    std::pmr::deque<CheckpointReader> readers(&memory);
    // At most one tensor of a role in a round; those that come twice are refused.
    for (int i = 0; i <= MOE_ROLE_COUNT; ++i) readers.emplace_back(checkpoint, memory);
    for (const LayerTensor& source : tensors) load.loader.check(source.tensor);
    for (int64_t e = 0; e < weights.layout.layer.n_experts; ++e)
        add_round(load, tensors, e, readers);
    add_round(load, tensors, no_expert, readers);
}

}  // namespace

void load_layer(DeviceLoader& load, const moe_checkpoint& checkpoint, int32_t layer,
                moe_weights& weights) {
    const auto tensors = checkpoint.tensors(layer);
    if (!checkpoint.is_mapped()) return add_unmapped(load, checkpoint, tensors, weights);
    for (const LayerTensor& tensor : tensors) load.loader.add(tensor.tensor);
    load.loader.check_complete();
    load.pack();
}

moe_weights* load_device_tensors(moe_runtime* runtime, const WeightsLayout& layout,
                                 const LoadRequest& request, const moe_tensor* const* tensors,
                                 uint32_t n_tensors) {
    return load_device(runtime, layout, request, [&](DeviceLoader& load, moe_weights&) {
        for (uint32_t i = 0; i < n_tensors; ++i) load.loader.add(*tensors[i]);
        load.loader.check_complete();
        load.pack();
    });
}

moe_weights* load_device_checkpoint(moe_runtime* runtime, const WeightsLayout& layout,
                                    const LoadRequest& request, const moe_checkpoint& checkpoint,
                                    int32_t layer) {
    return load_device(runtime, layout, request, [&](DeviceLoader& load, moe_weights& weights) {
        load_layer(load, checkpoint, layer, weights);
    });
}

void save_device_weights(const moe_weights& weights, std::string_view path) {
    const cuda::UseDevice use(weights.layout.device_index);
    CudaBlock block(weights.device_block, nullptr);
    moe_runtime& runtime = *weights.runtime;
    const uint64_t stage = stage_bytes_of(weights.placement.bytes);
    const StagingMemory staging(runtime, weights.layout.device_index, stage, nullptr);
    with_team(runtime, [&](Team& team) { save_block(weights, block, staging.data(), team, path); });
}

moe_weights* open_device_weights(moe_runtime* runtime, const WeightsLayout& layout,
                                 std::string_view path) {
    RuntimeRef ref(runtime);
    const PackedFile file(ref->memory, path, layout, lay_out_on_device(layout).bytes);
    return make_device_weights(runtime, layout, {}, [&](moe_weights& weights, DeviceBlock& block) {
        const uint64_t stage = stage_bytes_of(weights.placement.bytes);
        const StagingMemory staging(*ref, layout.device_index, 2 * stage, nullptr);
        with_team(*ref, [&](Team& team) { file.load(weights, block, staging.data(), team); });
    });
}

void update_device_tensor(moe_weights& weights, const moe_tensor& tensor, void* stream) {
    const cuda::UseDevice use(weights.layout.device_index);
    CudaBlock block(weights.device_block, stream);
    const uint64_t each = DeviceLoader::staging_bytes(weights.placement, false);
    const Block staging(weights.runtime->memory, 2 * each, DevicePlacement::alignment);
    LoadRequest request;
    request.ownership = weights.ownership;
    DeviceLoader load(weights, request, block, staging.data(), each, true);
    load.loader.add(tensor);
    Codebooks codebooks(weights);
    // Should the rest fail, some may be others by then.
    codebooks.forget();
    load.pack();
    load.finish_update(tensor.role);
    codebooks.note(block);
}

void note_codebooks(moe_weights& weights, DeviceBlock& block) {
    Codebooks(weights).note(block);
}

}  // namespace moe
