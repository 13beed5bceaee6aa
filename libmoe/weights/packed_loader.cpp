// The runtime's threads pack a batch of experts into one staging buffer while the other is copied
// to the device.
#include "libmoe/weights/packed_loader.hpp"

#include <algorithm>

#include "libmoe/base/first_failure.hpp"
#include "libmoe/base/runtime_team.hpp"
#include "libmoe/weights/tensor_roles.hpp"

namespace moe {
namespace {

// Experts smaller than this are packed several at a time.
constexpr uint64_t batch_bytes = uint64_t{32} << 20;

}  // namespace

PackedLoader::PackedLoader(moe_weights& weights, const LoadRequest& request, DeviceBlock& block,
                           std::byte* staging, uint64_t staging_each, TensorReader::Purpose purpose)
    : weights_(weights),
      placement_(weights.placement),
      block_(block),
      staging_each_(staging_each),
      purpose_(purpose),
      reader_(weights.layout, weights.runtime->memory, purpose,
              TensorReader::Spaces::host_and_device),
      vectors_(weights.layout, weights.resident, weights.runtime->memory),
      fetched_vector_(weights.runtime->memory),
      ordered_vectors_(&weights.runtime->memory),
      sources_(weights.layout, placement_, weights.runtime->memory, is_update()),
      constants_(placement_, weights.runtime->memory),
      packer_(weights.layout, placement_, sources_),
      progress_(request),
      staging_(block, staging, staging_each) {
    progress_.total = placement_.bytes;
}

uint64_t PackedLoader::staging_bytes(const DevicePlacement& placement, bool batched) {
    uint64_t largest = placement.router_bytes, whole = 0;
    for (const DevicePlacement::Region& region : placement.matrices) {
        largest = std::max(largest, region.expert_stride);
        whole = std::max(whole, static_cast<uint64_t>(region.count) * region.expert_stride);
    }
    return batched ? std::max(largest, std::min(whole, batch_bytes)) : largest;
}

void PackedLoader::add(const moe_tensor& tensor) {
    if (is_update()) read_vector_order(tensor.role);
    const bool is_on_device = tensor.space == MOE_SPACE_DEVICE;
    for (TensorPart part : reader_.read(tensor)) {
        if (is_matrix_role(part.role)) {
            sources_.give(part.role, part.index, part.matrix, is_on_device);
            continue;
        }
        if (is_on_device) part.matrix = fetched_vector_.fetch(part.matrix, block_);
        vectors_.set(tensor, part);
    }
}

void PackedLoader::pack() {
    if (is_update()) check_orders();
    with_team(*weights_.runtime, [&](Team& team) {
        for (int i = 0; i < MOE_ROLE_COUNT; ++i) pack_role(team, static_cast<moe_role>(i));
    });
    if (placement_.router_type != MOE_TYPE_NONE && sources_.of(MOE_ROLE_ROUTER, 0).is_given)
        pack_router();
}

void PackedLoader::pack_role(Team& team, moe_role role) {
    const int64_t count = placement_.matrices[role].count;
    for (int64_t index = 0, n = 1; index < count; index += n) {
        n = 1;
        if (!is_ready(role, index)) continue;
        n = batch_at(role, index);
        pack_batch(team, role, index, n);
    }
}

// A load packs gate and up once the order of down is known that their rows may take.
bool PackedLoader::is_ready(moe_role role, int64_t index) const {
    if (!sources_.is_ready(role, index)) return false;
    const moe_role down = weights_.layout.orders_rows(role);
    return is_update() || down == MOE_ROLE_NONE || sources_.of(down, index).is_given ||
           constants_.has_columns(down, index);
}

// Returns how many experts from this one on are packed together.
int64_t PackedLoader::batch_at(moe_role role, int64_t index) const {
    const DevicePlacement::Region& region = placement_.matrices[role];
    if (is_update() || sources_.is_on_device(role, index)) return 1;
    const auto most = static_cast<int64_t>(staging_each_ / region.expert_stride);
    int64_t n = 1;
    while (n < most && index + n < region.count && is_ready(role, index + n) &&
           !sources_.is_on_device(role, index + n))
        ++n;
    return n;
}

void PackedLoader::pack_batch(Team& team, moe_role role, int64_t index, int64_t n) {
    const DevicePlacement::Region& region = placement_.matrices[role];
    const uint64_t stride = region.expert_stride;
    std::byte* to = staging_.buffer();
    sources_.fetch(role, index, block_);
    if (is_update() && !sources_.is_whole(role, index)) read_back(role, index, to);
    if (is_update()) read_row_order(role, index);
    FirstFailure failure;
    team.for_each(n, [&](int32_t, int64_t i) {
        failure.run(i, [&] {
            packer_.pack(role, index + i, to + static_cast<uint64_t>(i) * stride, constants_);
        });
    });
    failure.rethrow();
    for (int64_t i = 0; i < n; ++i) check_columns(role, index + i);
    const uint64_t bytes = static_cast<uint64_t>(n) * stride;
    staging_.send(region.offset + static_cast<uint64_t>(index) * stride, bytes);
    if (is_update())
        write_updated_constants(role, index);
    else
        for (int64_t i = 0; i < n; ++i) sources_.drop(role, index + i);
    progress_.add(bytes);
}

// The half of a fused matrix that is not updated keeps its bytes.
void PackedLoader::read_back(moe_role role, int64_t index, std::byte* to) {
    const DevicePlacement::Region& region = placement_.matrices[role];
    block_.read(to, region.offset + static_cast<uint64_t>(index) * region.expert_stride,
                region.expert_stride);
}

// An update of gate or up takes the order that is in the block.
void PackedLoader::read_row_order(moe_role role, int64_t index) {
    if (const moe_role down = weights_.layout.orders_rows(role))
        constants_.read_columns(down, index, block_);
}

// An update of biases reads it before the host has the new ones: from then on nothing may fail.
void PackedLoader::read_vector_order(moe_role role) {
    const auto [first, second] = parts_of(role);
    for (const moe_role one : {first, second}) {
        const moe_role down = weights_.layout.orders_rows(one);
        if (down == MOE_ROLE_NONE || is_matrix_role(one)) continue;
        ordered_vectors_[one].resize(weights_.resident.vectors[one].size());
        for (int64_t index = 0; index < weights_.layout.count(one); ++index)
            constants_.read_columns(down, index, block_);
    }
}

// The order of down's columns stays. All experts of a stack are looked at before one is packed.
void PackedLoader::check_orders() {
    for (const moe_role role : {MOE_ROLE_DOWN, MOE_ROLE_SHARED_DOWN}) {
        const DevicePlacement::Region& region = placement_.matrices[role];
        for (int64_t index = 0; region.is_folded && index < region.count; ++index) {
            const SourceMatrix& source = sources_.of(role, index);
            if (!source.is_given) continue;
            const TensorName name = packer_.name_of(role, index);
            constants_.set_columns(role, index, TileRows::all, source.matrix, name.text);
            constants_.check_kept(role, index, block_, name.text);
        }
    }
}

void PackedLoader::check_columns(moe_role role, int64_t index) {
    if (placement_.up_role(role) == MOE_ROLE_NONE) return;
    const TensorName name = packer_.name_of(role, index);
    const bool is_whole = sources_.is_whole(role, index);
    const int unset_half = sources_.of(role, index).is_given ? 1 : 0;
    constants_.check_columns(role, index, unset_half, is_whole ? nullptr : &block_, name.text);
}

void PackedLoader::write_updated_constants(moe_role role, int64_t index) {
    if (sources_.is_whole(role, index)) return constants_.write(block_, role, index, 1);
    const bool is_gate = sources_.of(role, index).is_given;
    constants_.write_half(block_, role, index, is_gate ? 0 : 1);
}

void PackedLoader::pack_router() {
    sources_.fetch(MOE_ROLE_ROUTER, 0, block_);
    packer_.pack_router(staging_.buffer());
    if (!is_update()) sources_.drop(MOE_ROLE_ROUTER, 0);
    staging_.send(placement_.router, placement_.router_bytes);
    progress_.add(placement_.router_bytes);
}

// The vector with the entries of each expert as the rows of its gate and up lie.
const std::pmr::vector<float>& PackedLoader::by_row_order(moe_role role) {
    const moe_role down = weights_.layout.orders_rows(role);
    const auto& natural = weights_.resident.vectors[role];
    auto& ordered = ordered_vectors_[role];
    const int64_t n = weights_.layout.part(role).columns;
    ordered.resize(natural.size());
    for (int64_t index = 0; index < weights_.layout.count(role); ++index) {
        const uint32_t* order = constants_.columns(down, index);
        for (int64_t i = index * n; i < (index + 1) * n; ++i)
            ordered[static_cast<size_t>(i)] =
                natural[static_cast<size_t>(index * n + order[i - index * n])];
    }
    return ordered;
}

void PackedLoader::write_vector(moe_role role) {
    const auto& natural = weights_.resident.vectors[role];
    const bool is_ordered = !natural.empty() && weights_.layout.orders_rows(role);
    const auto& vector = is_ordered ? by_row_order(role) : natural;
    if (!vector.empty())
        block_.write(placement_.vectors[role], vector.data(), vector.size() * sizeof vector[0]);
}

void PackedLoader::write_hash_table() {
    const auto& table = weights_.resident.hash_table;
    if (!table.empty())
        block_.write(placement_.hash_table, table.data(), table.size() * sizeof table[0]);
}

void PackedLoader::finish() {
    reader_.check_complete();
    for (int i = 0; i < MOE_ROLE_COUNT; ++i) {
        const auto role = static_cast<moe_role>(i);
        if (const int64_t count = placement_.matrices[i].count)
            constants_.write(block_, role, 0, count);
        write_vector(role);
    }
    write_hash_table();
    block_.synchronize();
    weights_.codebook_tables = std::move(constants_.codebooks);
    progress_.add(placement_.bytes - progress_.done());
}

void PackedLoader::finish_update(moe_role role) {
    const auto [first, second] = parts_of(role);
    for (const moe_role one : {first, second})
        if (one != MOE_ROLE_NONE) write_vector(one);
    if (role == MOE_ROLE_HASH_TABLE) write_hash_table();
    block_.synchronize();
    keep_updated_codebooks();
}

// The host's codebooks follow the device's once these are there.
void PackedLoader::keep_updated_codebooks() {
    for (int i = 0; i < MOE_ROLE_COUNT; ++i) {
        const auto role = static_cast<moe_role>(i);
        const CodebookPair* from = constants_.codebooks.of(role);
        CodebookPair* to = weights_.codebook_tables.of(role);
        if (!from || !to) continue;
        const moe_role up = placement_.up_role(role);
        for (int64_t index = 0; index < placement_.matrices[i].count; ++index) {
            if (sources_.of(role, index).is_given) to[index][0] = from[index][0];
            if (sources_.of(up ? up : role, index).is_given) to[index][1] = from[index][1];
        }
    }
}

}  // namespace moe
