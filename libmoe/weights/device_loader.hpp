// One load into a block of packed weights: takes tensors as the loader checks and cuts them, packs
// expert by expert into staging memory and sends it off. Also an update of some of them.
#pragma once

#include "libmoe/base/team.hpp"
#include "libmoe/weights/device_block.hpp"
#include "libmoe/weights/loader.hpp"
#include "libmoe/weights/lower.hpp"

namespace moe {

class DeviceLoader final : private MatrixTaker {
  public:
    // staging: twice staging_each bytes, see staging_bytes. replacing: an update of weights that
    // are loaded already.
    DeviceLoader(moe_weights& weights, const LoadRequest& request, DeviceBlock& block,
                 std::byte* staging, uint64_t staging_each, bool replacing);
    DeviceLoader(const DeviceLoader&) = delete;  // loader refers to it
    DeviceLoader& operator=(const DeviceLoader&) = delete;

    // One expert, or a batch of small ones that are packed side by side.
    static uint64_t staging_bytes(const DevicePlacement& placement, bool batched);

    Loader loader;  // tensors go in here; their pointers must stay until pack()
    // Packs every matrix that came in whole, and replacing also single halves of fused ones.
    void pack();
    // Fails when something is missing; sends all that is small and waits until everything is there.
    void finish();
    // Replacing: sends the vectors of one tensor's role and waits.
    void finish_update(moe_role role);

  private:
    struct Source {
        Matrix matrix;
        bool is_taken = false;
        bool is_on_device = false;
    };
    struct Fetched {
        explicit Fetched(std::pmr::memory_resource& memory)
            : data(&memory), scales(&memory), zero_points(&memory) {}

        std::pmr::vector<std::byte> data, scales, zero_points;
    };
    using Codebook = std::array<float, 32>;

    void take(const Matrix& part, moe_role role, int64_t place, moe_space space) override;
    Matrix to_host(const Matrix& on_device) override;
    Matrix fetch(const Matrix& on_device, Fetched& to);
    moe_role second_of(moe_role role) const;
    bool is_ready(moe_role role, int64_t place) const;
    bool is_on_device(moe_role role, int64_t place) const;
    int64_t batch_at(moe_role role, int64_t place) const;
    void pack_batch(Team& team, moe_role role, int64_t place, int64_t n);
    void bring_to_host(moe_role role, int64_t place);
    void read_back(moe_role role, int64_t place, std::byte* to);
    void pack_offset(moe_role role, int64_t place, std::byte* to);
    void pack_source(moe_role role, int64_t place, TileRows rows, std::byte* to);
    void set_constants(moe_role role, int64_t place, TileRows rows, float global,
                       const Matrix& source);
    void write_constants(moe_role role, int64_t place, int64_t n);
    void pack_router();
    void write_vector(moe_role role);
    void write_hash_table();

    moe_weights& weights_;
    const DevicePlacement& placement_;
    DeviceBlock& block_;
    uint64_t staging_each_;
    bool replacing_;
    Progress progress_;
    RoleTable<Source> sources_;
    RoleTable<std::array<float, 2>> globals_;
    RoleTable<std::array<Codebook, 2>> codebooks_;
    RoleTable<uint32_t> columns_;  // [place][half][k]
    Fetched fetched_[2];
    Staging staging_;
};

}  // namespace moe
