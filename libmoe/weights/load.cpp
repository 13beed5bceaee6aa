// The three ways into a weights handle, and what it says of its memory.
#include "libmoe/weights/load.hpp"

#include <memory>

#include "libmoe/checkpoint/checkpoint.hpp"
#include "libmoe/weights/loader.hpp"

namespace moe {
namespace {

// Frees a half-made handle when loading fails.
struct Destroy {
    void operator()(moe_weights* weights) const {
        RuntimeRef runtime(&*weights->runtime);
        destroy_in(runtime->memory, weights);
    }
};
using NewWeights = std::unique_ptr<moe_weights, Destroy>;

moe_weights* finish_load(const Loader& loader, NewWeights weights) {
    loader.check_complete();
    const moe_memory_report report = weights->memory_report();
    weights->runtime->log(MOE_LOG_INFO, "weights: {} experts, {} bytes copied, {} bytes borrowed",
                          report.n_local_experts, report.host_bytes, report.borrowed_bytes);
    return weights.release();
}

NewWeights make_weights(moe_runtime* runtime, const WeightsLayout& layout,
                        const LoadRequest& request) {
    RuntimeRef ref(runtime);
    NewWeights weights(create_in<moe_weights>(ref->memory, &*ref, layout));
    weights->ownership = request.ownership;
    if (request.ownership == MOE_OWN_BORROW) return weights;
    const uint64_t bytes = weights->layout.copy_bytes();
    if (request.ownership == MOE_OWN_COPY) {
        weights->owned = Block(ref->memory, bytes, copy_alignment);
        weights->copies = weights->owned.data();
        return weights;
    }
    require(bytes == 0 || request.memory != nullptr,
            "memory is NULL, MOE_OWN_CALLER needs {} bytes", bytes);
    require(reinterpret_cast<uintptr_t>(request.memory) % copy_alignment == 0,
            "memory is not aligned to {} bytes", copy_alignment);
    require(request.memory_bytes >= bytes, "memory_bytes is {}, these weights need {}",
            request.memory_bytes, bytes);
    weights->copies = static_cast<std::byte*>(request.memory);
    return weights;
}

// A range of a file, read into memory that lives until the next one.
class Staging {
  public:
    Staging(const moe_checkpoint& checkpoint, std::pmr::memory_resource& memory)
        : checkpoint_(checkpoint), bytes_(&memory) {}

    const std::byte* read(const FileRange& range, uint64_t offset, uint64_t bytes) {
        bytes_.resize(bytes);
        checkpoint_.read(range, offset, bytes, bytes_.data());
        return bytes_.data();
    }

  private:
    const moe_checkpoint& checkpoint_;
    std::pmr::vector<std::byte> bytes_;
};

// Reads a tensor that is not mapped, expert by expert, and only experts that are wanted.
void add_unmapped(Loader& loader, const LayerTensor& source, Staging& data, Staging& scales) {
    const bool stack =
        is_expert_role(source.tensor.role) && source.tensor.expert == MOE_ALL_EXPERTS;
    const int64_t n = stack ? source.tensor.n_experts : 1;
    loader.check(source.tensor);
    for (int64_t e = 0; e < n; ++e) {
        moe_tensor one = source.tensor;
        if (stack) one.expert = static_cast<int32_t>(e);
        if (!loader.wants(one, is_expert_role(one.role) ? one.expert : 0)) continue;
        one.data_bytes = source.data.bytes / n;
        one.data = data.read(source.data, e * one.data_bytes, one.data_bytes);
        one.scale_bytes = source.scales.bytes / n;
        if (one.scale_bytes)
            one.scales = scales.read(source.scales, e * one.scale_bytes, one.scale_bytes);
        if (stack && one.n_global_scales > 1) {
            one.global_scale += e;
            one.n_global_scales = 1;
        }
        loader.add(one);
    }
}

}  // namespace

moe_weights* load_tensors(moe_runtime* runtime, const WeightsLayout& layout,
                          const LoadRequest& request, const moe_tensor* const* tensors,
                          uint32_t n_tensors) {
    NewWeights weights = make_weights(runtime, layout, request);
    Loader loader(*weights, request, false);
    for (uint32_t i = 0; i < n_tensors; ++i) loader.add(*tensors[i]);
    return finish_load(loader, std::move(weights));
}

moe_weights* load_checkpoint(moe_runtime* runtime, const WeightsLayout& layout,
                             const LoadRequest& request, const moe_checkpoint& checkpoint,
                             int32_t layer) {
    const bool mapped = checkpoint.is_mapped();
    require(mapped || request.ownership != MOE_OWN_BORROW,
            "ownership is MOE_OWN_BORROW, but the checkpoint was opened with MOE_IO_READ");
    const auto tensors = checkpoint.tensors(layer);
    NewWeights weights = make_weights(runtime, layout, request);
    Loader loader(*weights, request, false);
    Staging data(checkpoint, weights->runtime->memory),
        scales(checkpoint, weights->runtime->memory);
    for (const LayerTensor& tensor : tensors) {
        if (mapped)
            loader.add(tensor.tensor);
        else
            add_unmapped(loader, tensor, data, scales);
    }
    if (request.ownership == MOE_OWN_BORROW) {
        checkpoint.retain();
        weights->source = &checkpoint;
    }
    return finish_load(loader, std::move(weights));
}

void update_tensor(moe_weights& weights, const moe_tensor& tensor) {
    LoadRequest request;
    request.ownership = weights.ownership;
    Loader loader(weights, request, true);
    loader.add(tensor);
}

}  // namespace moe

moe_weights::moe_weights(moe_runtime* shared_runtime, const moe::WeightsLayout& plan_layout)
    : runtime(shared_runtime),
      layout(runtime->memory, plan_layout),
      resident(&runtime->memory),
      codebooks(&runtime->memory) {}

moe_weights::~moe_weights() {
    if (source) source->release();
}

moe_memory_report moe_weights::memory_report() const {
    moe_memory_report report{};
    report.struct_size = sizeof report;
    report.n_local_experts = static_cast<uint32_t>(layout.slice.n_local);
    report.bookkeeping_bytes = sizeof(moe_weights) + codebooks.size() * sizeof(codebooks[0]);
    uint64_t matrix_bytes = 0;
    for (int i = 0; i < MOE_ROLE_COUNT; ++i) {
        const auto role = static_cast<moe_role>(i);
        const auto& matrices = resident.matrices[role];
        const uint64_t vector_bytes = resident.vectors[role].size() * sizeof(float);
        const uint64_t role_matrices =
            matrices.empty() ? 0 : matrices.size() * layout.matrix_copy_bytes(role);
        report.role_bytes[i] = role_matrices + vector_bytes;
        report.host_bytes += vector_bytes;
        matrix_bytes += role_matrices;
        report.bookkeeping_bytes += matrices.size() * sizeof(moe::Matrix);
    }
    report.role_bytes[MOE_ROLE_HASH_TABLE] = resident.hash_table.size() * sizeof(int32_t);
    report.host_bytes += report.role_bytes[MOE_ROLE_HASH_TABLE];
    (ownership == MOE_OWN_BORROW ? report.borrowed_bytes : report.host_bytes) += matrix_bytes;
    return report;
}
