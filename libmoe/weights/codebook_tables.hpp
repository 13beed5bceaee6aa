// The codebooks of packed weights on the host. Kernels look codes up faster where one codebook
// serves every expert, so a load compares them here, where the bytes are before they go to a
// device.
#pragma once

#include "libmoe/weights/device_block.hpp"
#include "libmoe/weights/device_weights.hpp"

struct moe_weights;

namespace moe {

// Those of the two halves of a tile's rows; equal where the matrix is not fused.
using Codebook = std::array<float, 32>;
using CodebookPair = std::array<Codebook, 2>;

// By role and expert, for the roles whose region has codebooks.
class CodebookTables {
  public:
    explicit CodebookTables(std::pmr::memory_resource* memory) : pairs_(memory) {}

    void resize(const DevicePlacement& placement);
    CodebookPair* of(moe_role role) { return pairs_[role].empty() ? nullptr : pairs_[role].data(); }
    const CodebookPair* of(moe_role role) const {
        return pairs_[role].empty() ? nullptr : pairs_[role].data();
    }
    // Copies the codebooks that lie in `bytes` bytes of a block, from `offset` on.
    void copy_from(const DevicePlacement& placement, uint64_t offset, const void* from,
                   uint64_t bytes);
    // Returns true if all codebooks of a region are the same, those of a shared expert that follows
    // among them.
    bool are_same(const DevicePlacement& placement, moe_role role) const;
    uint64_t allocated_bytes() const;

  private:
    RoleTable<CodebookPair> pairs_;
};

// Sets has_one_codebook, has_mirrored_codebook and byte_codebook of the handle's matrices from the
// tables on the host. Needs no memory.
void note_codebooks(moe_weights& weights);
// Clears them: every expert's own codebook is then used, which is always right.
void forget_codebooks(moe_weights& weights);
// Reads the codebooks of a block that something else than a load filled, and notes them.
void read_codebooks(moe_weights& weights, DeviceBlock& block);

// A block whose codebooks are copied to the host while they are written.
class CodebookObserver final : public DeviceBlock {
  public:
    CodebookObserver(DeviceBlock& block, const DevicePlacement& placement, CodebookTables& tables)
        : block_(block), placement_(placement), tables_(tables) {}

    void write(uint64_t offset, const void* from, uint64_t bytes) override {
        tables_.copy_from(placement_, offset, from, bytes);
        block_.write(offset, from, bytes);
    }
    void read(void* to, uint64_t offset, uint64_t bytes) override {
        block_.read(to, offset, bytes);
    }
    void fetch(void* to, const void* from, uint64_t bytes) override {
        block_.fetch(to, from, bytes);
    }
    void synchronize() override { block_.synchronize(); }

  private:
    DeviceBlock& block_;
    const DevicePlacement& placement_;
    CodebookTables& tables_;
};

}  // namespace moe
