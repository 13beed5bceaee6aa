// Keeps the views of source matrices until they are packed.
#include "libmoe/weights/pack_sources.hpp"

#include "libmoe/weights/matrix_extent.hpp"

namespace moe {

Matrix FetchedBuffers::fetch(const Matrix& on_device, DeviceBlock& block) {
    const Extent extent = extent_of(on_device);
    Matrix matrix = on_device;
    const auto fetch_one = [&](const std::byte*& from, uint64_t bytes, auto& buffer) {
        if (!from || !bytes) return;
        buffer.resize(bytes);
        block.fetch(buffer.data(), from, bytes);
        from = buffer.data();
    };
    fetch_one(matrix.data, extent.data, data_);
    fetch_one(matrix.scales, extent.scales, scales_);
    fetch_one(matrix.zero_points, extent.zero_points, zero_points_);
    return matrix;
}

PackSources::PackSources(const WeightsLayout& layout, const DevicePlacement& placement,
                         std::pmr::memory_resource& memory, bool single_halves)
    : placement_(placement),
      single_halves_(single_halves),
      sources_(&memory),
      fetched_{FetchedBuffers(memory), FetchedBuffers(memory)} {
    for (int i = 0; i < MOE_ROLE_COUNT; ++i) {
        const auto role = static_cast<moe_role>(i);
        if (is_matrix_role(role) && layout.needs(role))
            sources_[role].resize(static_cast<size_t>(layout.count(role)));
    }
}

void PackSources::give(moe_role role, int64_t index, const Matrix& matrix, bool is_on_device) {
    sources_[role][static_cast<size_t>(index)] = {matrix, true, is_on_device};
}

void PackSources::drop(moe_role role, int64_t index) {
    sources_[role][static_cast<size_t>(index)].is_given = false;
    if (const moe_role up = placement_.up_role(role))
        sources_[up][static_cast<size_t>(index)].is_given = false;
}

bool PackSources::is_whole(moe_role role, int64_t index) const {
    const moe_role up = placement_.up_role(role);
    return of(role, index).is_given && (up == MOE_ROLE_NONE || of(up, index).is_given);
}

bool PackSources::is_ready(moe_role role, int64_t index) const {
    if (is_whole(role, index)) return true;
    const moe_role up = placement_.up_role(role);
    return single_halves_ && up != MOE_ROLE_NONE &&
           (of(role, index).is_given || of(up, index).is_given);
}

bool PackSources::is_on_device(moe_role role, int64_t index) const {
    const moe_role up = placement_.up_role(role);
    return of(role, index).is_on_device || (up != MOE_ROLE_NONE && of(up, index).is_on_device);
}

void PackSources::fetch(moe_role role, int64_t index, DeviceBlock& block) {
    FetchedBuffers* to = fetched_;
    for (const moe_role half : {role, placement_.up_role(role)}) {
        FetchedBuffers& buffers = *to++;
        if (half == MOE_ROLE_NONE) continue;
        SourceMatrix& source = sources_[half][static_cast<size_t>(index)];
        if (!source.is_given || !source.is_on_device) continue;
        source.matrix = buffers.fetch(source.matrix, block);
        source.is_on_device = false;
    }
}

}  // namespace moe
