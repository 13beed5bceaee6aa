// Fills the block of packed weights: takes tensors as the reader checks and slices them, packs
// expert by expert into staging memory and sends it off. It also updates single tensors.
#pragma once

#include "libmoe/base/team.hpp"
#include "libmoe/weights/expert_packer.hpp"
#include "libmoe/weights/load_request.hpp"
#include "libmoe/weights/resident_vectors.hpp"
#include "libmoe/weights/weights_handle.hpp"

namespace moe {

class PackedLoader {
  public:
    // staging: twice staging_each bytes, see staging_bytes.
    PackedLoader(moe_weights& weights, const LoadRequest& request, DeviceBlock& block,
                 std::byte* staging, uint64_t staging_each, TensorReader::Purpose purpose);
    PackedLoader(const PackedLoader&) = delete;  // the packer refers to it
    PackedLoader& operator=(const PackedLoader&) = delete;

    // Bytes of one expert, or of a batch of small ones that are packed side by side.
    static uint64_t staging_bytes(const DevicePlacement& placement, bool batched);

    const TensorReader& reader() const { return reader_; }
    // Takes what the layout holds of one tensor. Its buffers must stay until pack().
    void add(const moe_tensor& tensor);
    // Packs every matrix that has been given whole; an update packs single halves, too.
    void pack();
    // Fails when something is missing; sends all that is small and waits until everything is there.
    void finish();
    // Ends an update: sends the vectors of one tensor's role and waits.
    void finish_update(moe_role role);

  private:
    bool is_update() const { return purpose_ == TensorReader::Purpose::update; }
    bool is_ready(moe_role role, int64_t index) const;
    int64_t batch_at(moe_role role, int64_t index) const;
    void pack_role(Team& team, moe_role role);
    void pack_batch(Team& team, moe_role role, int64_t index, int64_t n);
    void pack_router();
    void read_back(moe_role role, int64_t index, std::byte* to);
    void read_row_order(moe_role role, int64_t index);
    void read_vector_order(moe_role role);
    void check_orders();
    void check_columns(moe_role role, int64_t index);
    const std::pmr::vector<float>& by_row_order(moe_role role);
    void write_updated_constants(moe_role role, int64_t index);
    void keep_updated_codebooks();
    void write_vector(moe_role role);
    void write_hash_table();

    moe_weights& weights_;
    const DevicePlacement& placement_;
    DeviceBlock& block_;
    uint64_t staging_each_;
    TensorReader::Purpose purpose_;
    TensorReader reader_;
    ResidentVectors vectors_;
    FetchedBuffers fetched_vector_;
    RoleTable<float> ordered_vectors_;  // biases as the rows of gate and up lie
    PackSources sources_;
    PackedConstants constants_;
    ExpertPacker packer_;
    LoadProgress progress_;
    Staging staging_;
};

}  // namespace moe
