// The three ways into a weights handle, and what it says of its memory.
#include "libmoe/weights/load.hpp"

#include "libmoe/weights/checkpoint_reader.hpp"
#include "libmoe/weights/device_load.hpp"
#include "libmoe/weights/loader.hpp"

namespace moe {
namespace {

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
    NewWeights weights = new_weights(*ref, layout, request);
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

// Reads a tensor that is not mapped, expert by expert, and only experts that are wanted.
void add_unmapped(Loader& loader, const LayerTensor& source, CheckpointReader& reader) {
    loader.check(source.tensor);
    for (int64_t i = 0; i < CheckpointReader::count(source); ++i)
        if (loader.wants(CheckpointReader::describe(source, i))) loader.add(reader.read(source, i));
}

}  // namespace

moe_weights* load_tensors(moe_runtime* runtime, const WeightsLayout& layout,
                          const LoadRequest& request, const moe_tensor* const* tensors,
                          uint32_t n_tensors) {
    if (layout.is_packed())
        return load_device_tensors(runtime, layout, request, tensors, n_tensors);
    NewWeights weights = make_weights(runtime, layout, request);
    Loader loader(*weights, request, false);
    for (uint32_t i = 0; i < n_tensors; ++i) loader.add(*tensors[i]);
    return finish_load(loader, std::move(weights));
}

moe_weights* load_checkpoint(moe_runtime* runtime, const WeightsLayout& layout,
                             const LoadRequest& request, const moe_checkpoint& checkpoint,
                             int32_t layer) {
    if (layout.is_packed())
        return load_device_checkpoint(runtime, layout, request, checkpoint, layer);
    const bool mapped = checkpoint.is_mapped();
    require(mapped || request.ownership != MOE_OWN_BORROW,
            "ownership is MOE_OWN_BORROW, but the checkpoint was opened with MOE_IO_READ");
    const auto tensors = checkpoint.tensors(layer);
    NewWeights weights = make_weights(runtime, layout, request);
    Loader loader(*weights, request, false);
    CheckpointReader reader(checkpoint, weights->runtime->memory);
    for (const LayerTensor& tensor : tensors) {
        if (mapped)
            loader.add(tensor.tensor);
        else
            add_unmapped(loader, tensor, reader);
    }
    if (request.ownership == MOE_OWN_BORROW) {
        checkpoint.retain();
        weights->source = &checkpoint;
    }
    return finish_load(loader, std::move(weights));
}

void save_weights(const moe_weights& weights, std::string_view path) {
    if (!weights.layout.is_packed())
        fail(MOE_ERROR_UNSUPPORTED,
             "moe_weights_save: these weights are not packed; a CPU plan reads its checkpoint");
    save_device_weights(weights, path);
}

moe_weights* open_weights(moe_runtime* runtime, const WeightsLayout& layout,
                          std::string_view path) {
    if (!layout.is_packed())
        fail(MOE_ERROR_UNSUPPORTED,
             "moe_weights_open: this plan takes no packed weights; a CPU plan reads a checkpoint");
    return open_device_weights(runtime, layout, path);
}

void update_tensor(moe_weights& weights, const moe_tensor& tensor, void* stream) {
    if (weights.layout.is_packed()) return update_device_tensor(weights, tensor, stream);
    // An update that fails may have kept one for nothing.
    struct Tidy {
        moe_weights& weights;
        ~Tidy() { weights.drop_unused_codebooks(); }
    } tidy{weights};
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

void moe_weights::drop_unused_codebooks() noexcept {
    const auto is_used = [&](const float* codebook) {
        for (int i = 0; i < MOE_ROLE_COUNT; ++i)
            for (const moe::Matrix& matrix : resident.matrices[static_cast<moe_role>(i)])
                if (matrix.codebook == codebook || matrix.nested_codebook == codebook) return true;
        return false;
    };
    codebooks.remove_if([&](const auto& kept) { return !is_used(kept.data()); });
}

// Tables and the handle itself, to the byte: what of them comes from the allocator.
uint64_t moe_weights::bookkeeping_bytes() const {
    constexpr uint64_t links = 2 * sizeof(void*);  // of a node of the list
    uint64_t bytes = sizeof(moe_weights) + codebooks.size() * (sizeof(codebooks.front()) + links);
    bytes += (layout.slice.local_of.capacity() + layout.slice.global_of.capacity()) *
             sizeof(layout.slice.local_of[0]);
    for (int i = 0; i < MOE_ROLE_COUNT; ++i)
        bytes += resident.matrices[static_cast<moe_role>(i)].capacity() * sizeof(moe::Matrix);
    return bytes;
}

moe_memory_report moe_weights::memory_report() const {
    moe_memory_report report{};
    report.struct_size = sizeof report;
    report.n_local_experts = static_cast<uint32_t>(layout.slice.n_local);
    report.bookkeeping_bytes = bookkeeping_bytes();
    uint64_t matrix_bytes = 0;
    for (int i = 0; i < MOE_ROLE_COUNT; ++i) {
        const auto role = static_cast<moe_role>(i);
        const uint64_t vector_bytes = resident.vectors[role].size() * sizeof(float);
        uint64_t role_matrices = 0;
        if (moe::is_matrix_role(role) && layout.needs(role))
            role_matrices =
                static_cast<uint64_t>(layout.count(role)) * layout.matrix_copy_bytes(role);
        report.role_bytes[i] = role_matrices + vector_bytes;
        report.host_bytes += vector_bytes;
        matrix_bytes += role_matrices;
    }
    report.role_bytes[MOE_ROLE_HASH_TABLE] = resident.hash_table.size() * sizeof(int32_t);
    report.host_bytes += report.role_bytes[MOE_ROLE_HASH_TABLE];
    if (layout.is_packed())
        report.device_bytes = placement.bytes;
    else
        (ownership == MOE_OWN_BORROW ? report.borrowed_bytes : report.host_bytes) += matrix_bytes;
    return report;
}
