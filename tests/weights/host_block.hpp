// Packed weights in host memory: what a load or an update would have put on a device, and its
// values back.
#pragma once

#include <cstring>
#include <vector>

#include "libmoe/packed/unpack.hpp"
#include "libmoe/plan/plan.hpp"
#include "libmoe/weights/packed_checkpoint.hpp"
#include "tests/support/matrices.hpp"

namespace moe::test {

// Counts and bounds what is written; poisoned, so that what nobody wrote shows.
class HostBlock final : public DeviceBlock {
  public:
    explicit HostBlock(uint64_t bytes)
        : bytes_(bytes + DevicePlacement::alignment, std::byte{0x5A}), size_(bytes) {}

    std::byte* base() {
        const auto address = reinterpret_cast<uintptr_t>(bytes_.data());
        return bytes_.data() + (DevicePlacement::alignment - address % DevicePlacement::alignment) %
                                   DevicePlacement::alignment;
    }
    void write(uint64_t offset, const void* from, uint64_t bytes) override {
        ASSERT_LE(offset + bytes, size_);
        pending_.push_back({offset, from, bytes});
        ++n_writes;
    }
    void read(void* to, uint64_t offset, uint64_t bytes) override {
        synchronize();
        ASSERT_LE(offset + bytes, size_);
        std::memcpy(to, base() + offset, bytes);
        ++n_reads;
    }
    void fetch(void* to, const void* from, uint64_t bytes) override {
        const auto* source = static_cast<const std::byte*>(from);
        for (uint64_t i = 0; i < bytes; ++i)
            static_cast<std::byte*>(to)[i] = source[i] ^ fetches_as;
        ++n_fetches;
    }
    // As late as a device may: whoever reuses a buffer too early is seen.
    void synchronize() override {
        for (const Write& w : pending_) std::memcpy(base() + w.offset, w.from, w.bytes);
        pending_.clear();
    }
    int n_writes = 0, n_reads = 0, n_fetches = 0;
    std::byte fetches_as{};  // its bits differ in what a caller has there

  private:
    struct Write {
        uint64_t offset;
        const void* from;
        uint64_t bytes;
    };
    std::vector<std::byte> bytes_;
    uint64_t size_;
    std::vector<Write> pending_;
};

inline WeightsLayout packed_layout(const moe_plan& plan) {
    WeightsLayout layout(plan.runtime->memory, plan.layout);
    layout.device = MOE_DEVICE_CUDA;
    layout.residency = MOE_RESIDENCY_PACKED;
    layout.id = layout.make_id();
    return layout;
}

struct PackedWeights {
    explicit PackedWeights(const moe_plan& plan)
        : handle(&*plan.runtime, packed_layout(plan)),
          block(lay_out_on_device(handle.layout).bytes) {
        handle.placement = lay_out_on_device(handle.layout);
        handle.device = handle.placement.resolve(handle.layout, block.base());
    }

    // feed(PackedLoader&) gives the tensors.
    template <class Feed>
    void load(const LoadRequest& request, bool batched, Feed feed) {
        const uint64_t each = PackedLoader::staging_bytes(handle.placement, batched);
        std::vector<std::byte> staging(2 * each, std::byte{0xA5});
        PackedLoader loader(handle, request, block, staging.data(), each,
                            TensorReader::Purpose::load);
        feed(loader);
        loader.finish();
    }
    void load(const std::vector<const moe_tensor*>& tensors, bool batched = true) {
        load(LoadRequest{}, batched, [&](PackedLoader& loader) {
            for (const moe_tensor* tensor : tensors) loader.add(*tensor);
            loader.pack();
        });
    }
    void update(const moe_tensor& tensor) {
        const uint64_t each = PackedLoader::staging_bytes(handle.placement, false);
        std::vector<std::byte> staging(2 * each, std::byte{0xA5});
        const LoadRequest request;
        PackedLoader loader(handle, request, block, staging.data(), each,
                            TensorReader::Purpose::update);
        loader.add(tensor);
        loader.pack();
        loader.finish_update(tensor.role);
    }

    // [rows, columns] of the slice.
    std::vector<float> values(moe_role role, int64_t place) const {
        const WeightsLayout::Part part = handle.layout.part(role);
        std::vector<float> out(static_cast<size_t>(part.rows * part.columns));
        if (role == MOE_ROLE_ROUTER) {
            read_router(out);
            return out;
        }
        const moe_role owner_role = handle.placement.owner_role(role);
        const PackedMatrix& matrix = handle.device.matrices[owner_role];
        const bool fused = handle.placement.is_fused_role(role);
        const int half = handle.placement.is_up_half(role);
        unpack(matrix.data + place * matrix.expert_stride, matrix.type,
               !fused ? TileRows::all
               : half ? TileRows::up_half
                      : TileRows::gate_half,
               part.rows, part.columns,
               {matrix.global_scale ? matrix.global_scale[2 * place + half] : 1.0f,
                matrix.codebook ? matrix.codebook + (2 * place + half) * 32 : nullptr,
                matrix.columns ? matrix.columns + (2 * place + half) * matrix.k : nullptr,
                matrix.table},
               out.data());
        return out;
    }

    moe_weights handle;
    HostBlock block;

  private:
    void read_router(std::vector<float>& out) const {
        moe_format format{};
        format.type = handle.device.router_type;
        const FormatTraits* traits = nullptr;
        for (const FormatTraits& one : all_formats())
            if (is_plain(one.format) && one.format.type == format.type) traits = &one;
        Matrix matrix;
        matrix.format = traits->format;
        matrix.data = static_cast<const std::byte*>(handle.device.router);
        matrix.rows = 1;
        matrix.columns = static_cast<int64_t>(out.size());
        traits->decode(matrix, 0, 0, matrix.columns, out.data());
    }
};

}  // namespace moe::test
