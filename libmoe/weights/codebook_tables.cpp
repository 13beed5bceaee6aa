// Compares codebooks bit by bit and looks for the forms that kernels read faster.
#include "libmoe/weights/codebook_tables.hpp"

#include <algorithm>
#include <cstring>

#include "libmoe/packed/shared_codebook.hpp"
#include "libmoe/weights/weights_handle.hpp"

namespace moe {
namespace {

bool same_bits(const CodebookPair& a, const CodebookPair& b) {
    return std::memcmp(&a, &b, sizeof a) == 0;
}

moe_role shared_role_of(moe_role role) {
    switch (role) {
        case MOE_ROLE_GATE:
            return MOE_ROLE_SHARED_GATE;
        case MOE_ROLE_UP:
            return MOE_ROLE_SHARED_UP;
        case MOE_ROLE_DOWN:
            return MOE_ROLE_SHARED_DOWN;
        default:
            return MOE_ROLE_NONE;
    }
}

void forget(PackedMatrix& matrix) {
    matrix.has_one_codebook = matrix.has_mirrored_codebook = false;
    matrix.byte_codebook = {};
}

void note(PackedMatrix& matrix, const CodebookPair& halves) {
    matrix.has_one_codebook = true;
    const int32_t bits = code_bits(matrix.type);
    if (has_sign_codes(matrix.type))
        matrix.has_mirrored_codebook = is_mirrored(halves[0]) && is_mirrored(halves[1]);
    else if (!is_grid(matrix.type) && bits <= 3 && halves[0] == halves[1])
        matrix.byte_codebook = byte_codebook(halves[0], bits);
}

// Calls each(role, region) for the regions that have codebooks.
template <class Each>
void for_regions(const DevicePlacement& placement, Each each) {
    for (int i = 0; i < MOE_ROLE_COUNT; ++i)
        if (placement.matrices[i].n_codebooks > 0)
            each(static_cast<moe_role>(i), placement.matrices[i]);
}

}  // namespace

void CodebookTables::resize(const DevicePlacement& placement) {
    for_regions(placement, [&](moe_role role, const DevicePlacement::Region& region) {
        pairs_[role].resize(static_cast<size_t>(region.count));
    });
}

void CodebookTables::copy_from(const DevicePlacement& placement, uint64_t offset, const void* from,
                               uint64_t bytes) {
    for_regions(placement, [&](moe_role role, const DevicePlacement::Region& region) {
        auto& pairs = pairs_[role];
        const uint64_t begin = std::max(offset, region.codebooks);
        const uint64_t end =
            std::min(offset + bytes, region.codebooks + pairs.size() * sizeof(CodebookPair));
        if (begin >= end) return;
        std::memcpy(reinterpret_cast<std::byte*>(pairs.data()) + (begin - region.codebooks),
                    static_cast<const std::byte*>(from) + (begin - offset), end - begin);
    });
}

bool CodebookTables::are_same(const DevicePlacement& placement, moe_role role) const {
    const auto& pairs = pairs_[role];
    const CodebookPair& first = pairs.front();
    const auto is_first = [&](const CodebookPair& pair) { return same_bits(pair, first); };
    const DevicePlacement::Region& region = placement.matrices[role];
    const bool shared_follows = region.n_codebooks > region.count;
    return std::all_of(pairs.begin(), pairs.end(), is_first) &&
           (!shared_follows || is_first(pairs_[shared_role_of(role)].front()));
}

uint64_t CodebookTables::allocated_bytes() const {
    uint64_t bytes = 0;
    for (int i = 0; i < MOE_ROLE_COUNT; ++i)
        bytes += pairs_[static_cast<moe_role>(i)].capacity() * sizeof(CodebookPair);
    return bytes;
}

void note_codebooks(moe_weights& weights) {
    const CodebookTables& tables = weights.codebook_tables;
    for_regions(weights.placement, [&](moe_role role, const DevicePlacement::Region&) {
        PackedMatrix& matrix = weights.device.matrices[role];
        forget(matrix);
        if (tables.of(role) && tables.are_same(weights.placement, role))
            note(matrix, tables.of(role)[0]);
    });
}

void forget_codebooks(moe_weights& weights) {
    for (PackedMatrix& matrix : weights.device.matrices) forget(matrix);
}

void read_codebooks(moe_weights& weights, DeviceBlock& block) {
    CodebookTables& tables = weights.codebook_tables;
    tables.resize(weights.placement);
    for_regions(weights.placement, [&](moe_role role, const DevicePlacement::Region& region) {
        block.read(tables.of(role), region.codebooks,
                   static_cast<uint64_t>(region.count) * sizeof(CodebookPair));
    });
    note_codebooks(weights);
}

}  // namespace moe
