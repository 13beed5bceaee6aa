// Loads and updates weights in their source format.
#include "libmoe/weights/source_weights.hpp"

#include <algorithm>
#include <cstring>

#include "libmoe/base/pages.hpp"
#include "libmoe/base/runtime_team.hpp"
#include "libmoe/formats/interleaved.hpp"
#include "libmoe/weights/checkpoint_reader.hpp"
#include "libmoe/weights/matrix_copy.hpp"
#include "libmoe/weights/resident_vectors.hpp"

namespace moe {
namespace {

using Purpose = TensorReader::Purpose;

// Puts what a reader returns into a handle.
class SourceLoader {
  public:
    SourceLoader(moe_weights& weights, const LoadRequest& request, Purpose purpose);

    const TensorReader& reader() const { return reader_; }
    // Keeps what the layout needs of one tensor, or fails and keeps nothing of it. The tensor's
    // buffers must stay until the weights die under BORROW.
    void add(const moe_tensor& tensor);

  private:
    void set_matrix(const TensorPart& part, const char* what);

    moe_weights& weights_;
    TensorReader reader_;
    ResidentVectors vectors_;
    LoadProgress progress_;
    uint64_t offsets_[MOE_ROLE_COUNT];  // of each role's copies
};

SourceLoader::SourceLoader(moe_weights& weights, const LoadRequest& request, Purpose purpose)
    : weights_(weights),
      reader_(weights.layout, weights.runtime->memory, purpose, TensorReader::Spaces::host),
      vectors_(weights.layout, weights.resident, weights.runtime->memory),
      progress_(request) {
    const WeightsLayout& layout = weights.layout;
    for (int i = 0; i < MOE_ROLE_COUNT; ++i) {
        const auto role = static_cast<moe_role>(i);
        offsets_[i] = progress_.total;
        if (!layout.needs(role) || !is_matrix_role(role)) continue;
        const auto count = static_cast<uint64_t>(layout.count(role));
        if (purpose == Purpose::load) weights.resident.matrices[role].resize(count);
        progress_.total += count * layout.matrix_copy_bytes(role);
    }
}

void SourceLoader::add(const moe_tensor& tensor) {
    for (const TensorPart& part : reader_.read(tensor)) {
        if (is_matrix_role(part.role))
            set_matrix(part, TensorName(tensor.role, tensor.expert).text);
        else
            vectors_.set(tensor, part);
    }
}

void SourceLoader::set_matrix(const TensorPart& part, const char* what) {
    Matrix matrix = part.matrix;
    const uint64_t bytes = weights_.layout.matrix_copy_bytes(part.role);
    // Codebooks take memory, which there may be none of; copying the codes cannot fail.
    if (matrix.codebook && !builtin_codebook(matrix.format))
        matrix.codebook = weights_.keep_codebook(matrix.codebook, int64_t{1} << matrix.format.bits);
    if (matrix.nested_codebook)
        matrix.nested_codebook = weights_.keep_codebook(matrix.nested_codebook, 256);
    if (weights_.ownership != MOE_OWN_BORROW) {
        require(weights_.copies != nullptr, "{}: there is no memory to copy it to", what);
        const uint64_t offset = offsets_[part.role] + static_cast<uint64_t>(part.index) * bytes;
        std::byte* const to = weights_.copies + offset;
        const Interleaving* how = weights_.layout.interleaving(part.role);
        // A file of packed weights has nothing of what was there before.
        const uint64_t begin = how ? interleaved_bytes(*how, matrix.rows, matrix.columns) : 0;
        if (weights_.layout.is_interleaved()) std::memset(to + begin, 0, bytes - begin);
        matrix = how ? interleave(matrix, to) : copy_part(matrix, to);
    }
    weights_.resident.matrices[part.role][static_cast<size_t>(part.index)] = matrix;
    progress_.add(bytes);
}

void check_ownership(const WeightsLayout& layout, const LoadRequest& request) {
    if (layout.is_interleaved() && request.ownership == MOE_OWN_BORROW)
        fail(MOE_ERROR_UNSUPPORTED,
             "ownership is MOE_OWN_BORROW: packed weights are a copy, use COPY or CALLER");
}

NewWeights make_weights(moe_runtime& runtime, const WeightsLayout& layout,
                        const LoadRequest& request) {
    check_ownership(layout, request);
    NewWeights weights = new_weights(runtime, layout, request.ownership);
    if (request.ownership == MOE_OWN_BORROW) return weights;
    const uint64_t bytes = weights->layout.copy_bytes();
    if (request.ownership == MOE_OWN_COPY) {
        weights->owned = Block(runtime.memory, bytes, copy_alignment);
        weights->copies = weights->owned.data();
        advise_huge_pages(weights->copies, bytes);
        // Threads are started here only where it matters who writes first.
        if (bytes >= large_memory && has_numa_nodes())
            with_team(runtime, [&](Team& team) { spread_pages(team, weights->copies, bytes); });
        return weights;
    }
    check_caller_memory(request, bytes, copy_alignment);
    weights->copies = static_cast<std::byte*>(request.memory);
    return weights;
}

moe_weights* finish_load(const SourceLoader& loader, NewWeights weights) {
    loader.reader().check_complete();
    const moe_memory_report report = weights->memory_report();
    weights->runtime->log(MOE_LOG_INFO, "weights: {} experts, {} bytes copied, {} bytes borrowed",
                          report.n_local_experts, report.host_bytes, report.borrowed_bytes);
    return weights.release();
}

// Reads a tensor that is not mapped, expert by expert, and only experts that are wanted.
void add_unmapped(SourceLoader& loader, const LayerTensor& source, CheckpointReader& file) {
    loader.reader().check(source.tensor);
    for (int64_t i = 0; i < CheckpointReader::count(source); ++i)
        if (loader.reader().wants(CheckpointReader::describe(source, i)))
            loader.add(file.read(source, i));
}

}  // namespace

moe_weights* load_source_tensors(moe_runtime* runtime, const WeightsLayout& layout,
                                 const LoadRequest& request, const moe_tensor* const* tensors,
                                 uint32_t n_tensors) {
    RuntimeRef ref(runtime);
    NewWeights weights = make_weights(*ref, layout, request);
    SourceLoader loader(*weights, request, Purpose::load);
    for (uint32_t i = 0; i < n_tensors; ++i) loader.add(*tensors[i]);
    return finish_load(loader, std::move(weights));
}

moe_weights* load_source_checkpoint(moe_runtime* runtime, const WeightsLayout& layout,
                                    const LoadRequest& request, const moe_checkpoint& checkpoint,
                                    int32_t layer) {
    RuntimeRef ref(runtime);
    check_ownership(layout, request);
    const bool mapped = checkpoint.is_mapped();
    require(mapped || request.ownership != MOE_OWN_BORROW,
            "ownership is MOE_OWN_BORROW, but the checkpoint was opened with MOE_IO_READ");
    const auto tensors = checkpoint.tensors(layer);
    NewWeights weights = make_weights(*ref, layout, request);
    SourceLoader loader(*weights, request, Purpose::load);
    CheckpointReader file(checkpoint, weights->runtime->memory);
    for (const LayerTensor& tensor : tensors) {
        if (mapped)
            loader.add(tensor.tensor);
        else
            add_unmapped(loader, tensor, file);
    }
    if (request.ownership == MOE_OWN_BORROW) {
        checkpoint.retain();
        weights->source = &checkpoint;
    }
    return finish_load(loader, std::move(weights));
}

void update_source_tensor(moe_weights& weights, const moe_tensor& tensor) {
    // An update that fails may have kept a codebook that nothing points to.
    struct Tidy {
        moe_weights& weights;
        ~Tidy() { weights.drop_unused_codebooks(); }
    } tidy{weights};
    const LoadRequest request;
    SourceLoader(weights, request, Purpose::update).add(tensor);
}

}  // namespace moe
