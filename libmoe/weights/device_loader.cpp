// Packing while loading: the pool packs a batch of experts into one staging buffer while the other
// is on its way to the device.
#include "libmoe/weights/device_loader.hpp"

#include <algorithm>
#include <cstring>

#include "libmoe/base/first_failure.hpp"
#include "libmoe/base/runtime_team.hpp"

namespace moe {
namespace {

// Experts smaller than this are packed several at a time.
constexpr uint64_t batch_bytes = uint64_t{32} << 20;

bool is_packed_role(moe_role role) {
    return is_matrix_role(role) && role != MOE_ROLE_ROUTER;
}

}  // namespace

DeviceLoader::DeviceLoader(moe_weights& weights, const LoadRequest& request, DeviceBlock& block,
                           std::byte* staging, uint64_t staging_each, bool replacing)
    : loader(weights, request, replacing, this),
      weights_(weights),
      placement_(weights.placement),
      block_(block),
      staging_each_(staging_each),
      replacing_(replacing),
      progress_(request),
      sources_(&weights.runtime->memory),
      globals_(&weights.runtime->memory),
      codebooks_(&weights.runtime->memory),
      columns_(&weights.runtime->memory),
      fetched_{Fetched(weights.runtime->memory), Fetched(weights.runtime->memory)},
      staging_(block, staging, staging_each) {
    progress_.total = placement_.bytes;
    for (int i = 0; i < MOE_ROLE_COUNT; ++i) {
        const auto role = static_cast<moe_role>(i);
        if (!is_matrix_role(role) || !weights.layout.needs(role)) continue;
        const auto count = static_cast<size_t>(weights.layout.count(role));
        sources_[role].resize(count);
        if (placement_.matrices[i].globals) globals_[role].resize(count);
        if (placement_.matrices[i].codebooks) codebooks_[role].resize(count);
        if (placement_.matrices[i].columns)
            columns_[role].resize(count * 2 * static_cast<size_t>(placement_.matrices[i].k));
    }
}

uint64_t DeviceLoader::staging_bytes(const DevicePlacement& placement, bool batched) {
    uint64_t largest = placement.router_bytes, whole = 0;
    for (const DevicePlacement::Region& place : placement.matrices) {
        largest = std::max(largest, place.expert_stride);
        whole = std::max(whole, static_cast<uint64_t>(place.count) * place.expert_stride);
    }
    return batched ? std::max(largest, std::min(whole, batch_bytes)) : largest;
}

void DeviceLoader::take(const Matrix& part, moe_role role, int64_t place, moe_space space) {
    sources_[role][place] = {part, true, space == MOE_SPACE_DEVICE};
}

Matrix DeviceLoader::to_host(const Matrix& on_device) {
    return fetch(on_device, fetched_[0]);
}

Matrix DeviceLoader::fetch(const Matrix& on_device, Fetched& to) {
    const Extent extent = extent_of(on_device);
    Matrix matrix = on_device;
    const auto bring = [&](const std::byte*& from, uint64_t bytes, auto& buffer) {
        if (!from || !bytes) return;
        buffer.resize(bytes);
        block_.fetch(buffer.data(), from, bytes);
        from = buffer.data();
    };
    bring(matrix.data, extent.data, to.data);
    bring(matrix.scales, extent.scales, to.scales);
    bring(matrix.zero_points, extent.zero_points, to.zero_points);
    return matrix;
}

// Of the two roles of a fused matrix; NONE when it is not fused.
moe_role DeviceLoader::second_of(moe_role role) const {
    if (!placement_.is_fused_role(role)) return MOE_ROLE_NONE;
    return role == MOE_ROLE_GATE ? MOE_ROLE_UP : MOE_ROLE_SHARED_UP;
}

bool DeviceLoader::is_ready(moe_role role, int64_t place) const {
    const bool first = sources_[role][place].is_taken;
    const moe_role second_role = second_of(role);
    if (second_role == MOE_ROLE_NONE) return first;
    const bool second = sources_[second_role][place].is_taken;
    return replacing_ ? first || second : first && second;
}

bool DeviceLoader::is_on_device(moe_role role, int64_t place) const {
    const moe_role second = second_of(role);
    return sources_[role][place].is_on_device ||
           (second != MOE_ROLE_NONE && sources_[second][place].is_on_device);
}

// How many places from this one on are packed together.
int64_t DeviceLoader::batch_at(moe_role role, int64_t place) const {
    const DevicePlacement::Region& p = placement_.matrices[role];
    if (replacing_ || is_on_device(role, place)) return 1;
    const auto most = static_cast<int64_t>(staging_each_ / p.expert_stride);
    int64_t n = 1;
    while (n < most && place + n < p.count && is_ready(role, place + n) &&
           !is_on_device(role, place + n))
        ++n;
    return n;
}

void DeviceLoader::pack() {
    with_team(*weights_.runtime, [&](Team& team) {
        for (int i = 0; i < MOE_ROLE_COUNT; ++i) {
            const auto role = static_cast<moe_role>(i);
            const int64_t count = placement_.matrices[i].count;
            for (int64_t place = 0, n = 1; place < count; place += n) {
                n = 1;
                if (!is_ready(role, place)) continue;
                n = batch_at(role, place);
                pack_batch(team, role, place, n);
            }
        }
    });
    if (placement_.router_type != MOE_TYPE_NONE && sources_[MOE_ROLE_ROUTER][0].is_taken)
        pack_router();
}

void DeviceLoader::pack_batch(Team& team, moe_role role, int64_t place, int64_t n) {
    const DevicePlacement::Region& p = placement_.matrices[role];
    const auto stride = p.expert_stride;
    std::byte* to = staging_.buffer();
    bring_to_host(role, place);
    if (replacing_) read_back(role, place, to);
    FirstFailure failure;
    team.for_each(n, [&](int32_t, int64_t i) {
        failure.run(i,
                    [&] { pack_offset(role, place + i, to + static_cast<uint64_t>(i) * stride); });
    });
    failure.rethrow();
    const uint64_t bytes = static_cast<uint64_t>(n) * stride;
    staging_.send(p.offset + static_cast<uint64_t>(place) * stride, bytes);
    if (replacing_) write_constants(role, place, 1);
    progress_.add(bytes);
}

void DeviceLoader::bring_to_host(moe_role role, int64_t place) {
    int i = 0;
    for (const moe_role one : {role, second_of(role)}) {
        Fetched& to = fetched_[i++];
        if (one == MOE_ROLE_NONE) continue;
        Source& source = sources_[one][place];
        if (!source.is_taken || !source.is_on_device) continue;
        source.matrix = fetch(source.matrix, to);
        source.is_on_device = false;
    }
}

// One half of a fused matrix keeps what it has.
void DeviceLoader::read_back(moe_role role, int64_t place, std::byte* to) {
    const moe_role second = second_of(role);
    if (second == MOE_ROLE_NONE) return;
    if (sources_[role][place].is_taken && sources_[second][place].is_taken) return;
    const DevicePlacement::Region& p = placement_.matrices[role];
    block_.read(to, p.offset + static_cast<uint64_t>(place) * p.expert_stride, p.expert_stride);
}

void DeviceLoader::pack_offset(moe_role role, int64_t place, std::byte* to) {
    const moe_role second = second_of(role);
    const bool fused = second != MOE_ROLE_NONE;
    const bool has_first = sources_[role][place].is_taken;
    const bool has_second = fused && sources_[second][place].is_taken;
    // Bytes that no code fills are the same every time.
    if (!fused || (has_first && has_second))
        std::memset(to, 0, placement_.matrices[role].expert_stride);
    if (!fused) return pack_source(role, place, TileRows::all, to);
    if (has_first) pack_source(role, place, TileRows::gate_half, to);
    if (has_second) pack_source(second, place, TileRows::up_half, to);
}

void DeviceLoader::pack_source(moe_role role, int64_t place, TileRows rows, std::byte* to) {
    Source& source = sources_[role][place];
    const auto& experts = weights_.layout.slice.global_of;
    const TensorName name(role, is_expert_role(role) ? experts[place] : 0);
    const moe_role owner_role = placement_.owner_role(role);
    const float global =
        moe::pack(source.matrix, placement_.matrices[owner_role].type, rows, to, name.text);
    set_constants(owner_role, place, rows, global, source.matrix);
    if (!replacing_) source.is_taken = false;
}

void DeviceLoader::set_constants(moe_role role, int64_t place, TileRows rows, float global,
                                 const Matrix& source) {
    for (const TileRows half : {TileRows::gate_half, TileRows::up_half}) {
        if (rows != TileRows::all && rows != half) continue;
        const int i = half == TileRows::up_half;
        if (!globals_[role].empty())
            globals_[role][place][i] = global;
        else if (global != 1.0f)
            fail(MOE_ERROR_INTERNAL, "{} has a global scale that its packed type has no place for",
                 role_name(role));
        const PackedType type = placement_.matrices[role].type;
        if (!codebooks_[role].empty())
            packed_codebook(source, type, codebooks_[role][place][i].data());
        if (!columns_[role].empty())
            packed_columns(source, type, &columns_[role][(2 * place + i) * source.columns]);
    }
}

// Of n places. Replacing, halves that did not come in stay as they are.
void DeviceLoader::write_constants(moe_role role, int64_t place, int64_t n) {
    const DevicePlacement::Region& p = placement_.matrices[role];
    const auto write = [&](uint64_t offset, const auto& table) {
        if (table.empty()) return;
        const auto size = sizeof table[0];
        block_.write(offset + static_cast<uint64_t>(place) * size, &table[place], n * size);
    };
    const auto write_half = [&](uint64_t offset, const auto& table, int half) {
        if (table.empty()) return;
        const auto size = sizeof table[0][0];
        block_.write(offset + (2 * static_cast<uint64_t>(place) + half) * size, &table[place][half],
                     size);
    };
    // Of n halves from one on.
    const auto write_columns = [&](int64_t first, int64_t halves) {
        if (columns_[role].empty()) return;
        const uint64_t each = p.column_bytes() / 2;
        block_.write(p.columns + static_cast<uint64_t>(first) * each, &columns_[role][first * p.k],
                     static_cast<uint64_t>(halves) * each);
    };
    const moe_role second = replacing_ ? second_of(role) : MOE_ROLE_NONE;
    if (second == MOE_ROLE_NONE) {
        write(p.globals, globals_[role]);
        write(p.codebooks, codebooks_[role]);
        write_columns(2 * place, 2 * n);
        return;
    }
    for (const int half : {0, 1}) {
        if (!sources_[half ? second : role][place].is_taken) continue;
        write_half(p.globals, globals_[role], half);
        write_half(p.codebooks, codebooks_[role], half);
        write_columns(2 * place + half, 1);
    }
}

// Dense, in a plain format as it came.
void DeviceLoader::pack_router() {
    Source& source = sources_[MOE_ROLE_ROUTER][0];
    bring_to_host(MOE_ROLE_ROUTER, 0);
    const Matrix& matrix = source.matrix;
    std::byte* to = staging_.buffer();
    std::memset(to, 0, placement_.router_bytes);
    if (is_plain(matrix.format)) {
        copy_part(matrix, to);
    } else {
        auto* rows = reinterpret_cast<float*>(to);
        for (int64_t r = 0; r < matrix.rows; ++r)
            matrix.traits->decode(matrix, r, 0, matrix.columns, rows + r * matrix.columns);
    }
    source.is_taken = false;
    staging_.send(placement_.router, placement_.router_bytes);
    progress_.add(placement_.router_bytes);
}

void DeviceLoader::write_vector(moe_role role) {
    const auto& vector = weights_.resident.vectors[role];
    if (!vector.empty())
        block_.write(placement_.vectors[role], vector.data(), vector.size() * sizeof vector[0]);
}

void DeviceLoader::write_hash_table() {
    const auto& table = weights_.resident.hash_table;
    if (!table.empty())
        block_.write(placement_.hash_table, table.data(), table.size() * sizeof table[0]);
}

void DeviceLoader::finish() {
    loader.check_complete();
    for (int i = 0; i < MOE_ROLE_COUNT; ++i) {
        const auto role = static_cast<moe_role>(i);
        if (is_packed_role(role) && placement_.matrices[i].count)
            write_constants(role, 0, placement_.matrices[i].count);
        write_vector(role);
    }
    write_hash_table();
    block_.synchronize();
    progress_.add(placement_.bytes - progress_.done());
}

void DeviceLoader::finish_update(moe_role role) {
    const auto [first, second] = parts_of(role);
    for (const moe_role one : {first, second})
        if (one != MOE_ROLE_NONE) write_vector(one);
    if (role == MOE_ROLE_HASH_TABLE) write_hash_table();
    block_.synchronize();
}

}  // namespace moe
