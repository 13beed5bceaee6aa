// The tensors that weights hold for a plan, and the id by which both know that they fit.
#include <algorithm>

#include "libmoe/base/checked.hpp"
#include "libmoe/base/hash.hpp"
#include "libmoe/formats/interleaved.hpp"
#include "libmoe/packed/traits.hpp"
#include "libmoe/weights/device_weights.hpp"
#include "libmoe/weights/lower.hpp"
#include "libmoe/weights/matrix_copy.hpp"
#include "libmoe/weights/weights.hpp"

namespace moe {
namespace {

// The version of SOURCE weights on the CPU; raised when the meaning of a resident byte changes.
constexpr uint32_t layout_version = 1;

// Of tables of columns. The first one had the groups of columns and stood for values of weights.
constexpr int32_t column_table_revision = 2;

uint32_t stage_of(moe_role role, bool down_bias_in_finish) {
    switch (role) {
        case MOE_ROLE_ROUTER:
        case MOE_ROLE_ROUTER_BIAS:
        case MOE_ROLE_SELECTION_BIAS:
        case MOE_ROLE_SECOND_SELECTION_BIAS:
        case MOE_ROLE_ROUTER_NORM:
        case MOE_ROLE_HASH_TABLE:
        case MOE_ROLE_EXPERT_SCALE:
            return MOE_STAGE_ROUTE;
        case MOE_ROLE_GATE:
        case MOE_ROLE_UP:
        case MOE_ROLE_DOWN:
        case MOE_ROLE_GATE_BIAS:
        case MOE_ROLE_UP_BIAS:
        case MOE_ROLE_LATENT_IN:
        case MOE_ROLE_LATENT_IN_NORM:
        case MOE_ROLE_EXPERT_NORM:
            return MOE_STAGE_EXPERTS;
        case MOE_ROLE_DOWN_BIAS:
            return down_bias_in_finish ? MOE_STAGE_FINISH : MOE_STAGE_EXPERTS;
        default:
            return MOE_STAGE_FINISH;
    }
}

constexpr std::pair<moe_role, moe_role> halves[] = {{MOE_ROLE_GATE, MOE_ROLE_UP},
                                                    {MOE_ROLE_SHARED_GATE, MOE_ROLE_SHARED_UP}};

// The id changes with the types that it speaks of and with no others. First revisions leave it as
// it was before types had revisions.
void add_revision(Hash128& hash, PackedType type, int32_t (*revision)(PackedType)) {
    if (revision(type) > 1) hash.add_text(packed_type_name(type)).add(revision(type));
}

}  // namespace

bool may_be_fused(moe_role role) {
    return role == MOE_ROLE_GATE || role == MOE_ROLE_UP || role == MOE_ROLE_SHARED_GATE ||
           role == MOE_ROLE_SHARED_UP;
}

bool WeightsLayout::is_packed_role(moe_role role) const {
    return is_packed() && is_matrix_role(role) && role != MOE_ROLE_ROUTER && needs(role);
}

const Interleaving* WeightsLayout::interleaving(moe_role role) const {
    if (!is_interleaved() || !is_matrix_role(role) || role == MOE_ROLE_ROUTER) return nullptr;
    return interleaving_of(formats[role]);
}

bool WeightsLayout::needs(moe_role role) const {
    return layer.has_role(role) && (stages & stage_of(role, down_bias_in_finish()));
}

int64_t WeightsLayout::count(moe_role role) const {
    if (!is_expert_role(role)) return 1;
    return role == MOE_ROLE_DOWN_BIAS && down_bias_in_finish() ? layer.n_experts : slice.n_local;
}

int64_t WeightsLayout::index_of_expert(moe_role role, int64_t expert) const {
    if (!is_expert_role(role)) return 0;
    if (expert < 0 || expert >= layer.n_experts) return -1;
    if (role == MOE_ROLE_DOWN_BIAS && down_bias_in_finish()) return expert;
    return slice.local_of[expert];
}

WeightsLayout::Part WeightsLayout::part(moe_role role) const {
    const Layer::Shape shape = layer.role_shape(role);
    Part part{0, shape.rows, 0, shape.columns};
    switch (role) {
        case MOE_ROLE_GATE:
        case MOE_ROLE_UP:
            part.row = slice.intermediate_begin;
            part.rows = slice.intermediate_count;
            break;
        case MOE_ROLE_DOWN:
        case MOE_ROLE_GATE_BIAS:
        case MOE_ROLE_UP_BIAS:
            part.column = slice.intermediate_begin;
            part.columns = slice.intermediate_count;
            break;
        case MOE_ROLE_SHARED_GATE:
        case MOE_ROLE_SHARED_UP:
            part.row = slice.shared_begin;
            part.rows = slice.shared_count;
            break;
        case MOE_ROLE_SHARED_DOWN:
            part.column = slice.shared_begin;
            part.columns = slice.shared_count;
            break;
        default:
            break;
    }
    return part;
}

const moe_format& WeightsLayout::format_of(moe_role role, int64_t expert) const {
    if (expert_formats.empty() || !is_expert_role(role)) return formats[role];
    const uint16_t other = expert_formats[static_cast<size_t>(role * layer.n_experts + expert)];
    return other ? other_formats[other - 1u] : formats[role];
}

int64_t WeightsLayout::experts_with(moe_role role, size_t other) const {
    const auto first = expert_formats.begin() + role * layer.n_experts;
    return std::count(first, first + layer.n_experts, static_cast<uint16_t>(other + 1));
}

uint64_t WeightsLayout::matrix_copy_bytes(moe_role role) const {
    if (is_packed()) return lay_out_on_device(*this).matrix_bytes(role);
    const Part p = part(role);
    if (const Interleaving* how = interleaving(role))
        return align_up(interleaved_bytes(*how, p.rows, p.columns), moe::copy_alignment);
    uint64_t most = 0;
    for_each_format(role, [&](const moe_format& format) {
        most = std::max(most, source_copy_bytes(format, role));
    });
    return most;
}

uint64_t WeightsLayout::source_copy_bytes(const moe_format& format, moe_role role) const {
    const Part p = part(role);
    const FormatTraits& traits = get_format(format, role_name(role));
    const Layer::Shape shape = layer.role_shape(role);
    if (traits.unsliceable_bytes) return whole_copy_bytes(format, shape.rows, shape.columns);
    const auto bytes_from = [&](int64_t row) {
        return moe::copy_bytes(format, row, p.rows, p.column, p.columns);
    };
    if (!may_be_fused(role)) return bytes_from(p.row);
    // The rows of up in a fused matrix may begin inside a scale group and reach into one more.
    return std::max(bytes_from(p.row), bytes_from(shape.rows + p.row));
}

uint64_t WeightsLayout::copy_bytes() const {
    if (is_packed()) return lay_out_on_device(*this).bytes;
    uint64_t total = 0;
    for (int i = 0; i < MOE_ROLE_COUNT; ++i) {
        const auto role = static_cast<moe_role>(i);
        if (!is_matrix_role(role) || !needs(role)) continue;
        const auto n = static_cast<uint64_t>(count(role));
        total =
            checked_add(total, checked_multiply(n, matrix_copy_bytes(role), "weights"), "weights");
    }
    return total;
}

bool WeightsLayout::has_half_apart(moe_role role) const {
    const auto has_table = [&](moe_role one) {
        return needs(one) && column_table_of(formats[one]) != ColumnTable::none;
    };
    for (const auto& [gate, up] : halves)
        if (role == gate || role == up)
            return keeps_tables_apart && has_table(gate) && has_table(up);
    return false;
}

bool WeightsLayout::folds_order(moe_role down) const {
    const bool is_shared = down == MOE_ROLE_SHARED_DOWN;
    if (!is_packed() || keeps_tables_apart || !needs(down) || (!is_shared && down != MOE_ROLE_DOWN))
        return false;
    const auto has_rows_apart = [&](moe_role role) {
        const PackedType type = packed_type_of(formats[role]);
        return type != PackedType::none && traits(type).scales != ScaleScheme::f32_of_8_rows;
    };
    const moe_role gate = is_shared ? MOE_ROLE_SHARED_GATE : MOE_ROLE_GATE;
    const moe_role up = is_shared ? MOE_ROLE_SHARED_UP : MOE_ROLE_UP;
    return column_table_of(formats[down]) == ColumnTable::order && has_rows_apart(up) &&
           (!needs(gate) || has_rows_apart(gate));
}

moe_role WeightsLayout::orders_rows(moe_role role) const {
    moe_role down = MOE_ROLE_NONE;
    switch (role) {
        case MOE_ROLE_GATE:
        case MOE_ROLE_UP:
        case MOE_ROLE_GATE_BIAS:
        case MOE_ROLE_UP_BIAS:
            down = MOE_ROLE_DOWN;
            break;
        case MOE_ROLE_SHARED_GATE:
        case MOE_ROLE_SHARED_UP:
            down = MOE_ROLE_SHARED_DOWN;
            break;
        default:
            break;
    }
    return folds_order(down) ? down : MOE_ROLE_NONE;
}

void WeightsLayout::add_expert_formats(Hash128& hash) const {
    hash.add_text("formats per expert");
    for (const moe_role role : {MOE_ROLE_GATE, MOE_ROLE_UP, MOE_ROLE_DOWN}) {
        if (!needs(role)) continue;
        for (const int32_t global : slice.global_of) {
            moe_format format = format_of(role, global);
            format.struct_size = 0;
            hash.add(format);
        }
    }
}

std::array<uint8_t, 16> WeightsLayout::make_id(int32_t (*revision)(PackedType)) const {
    Hash128 hash;
    hash.add_text("libmoe.layout").add(layout_version);
    hash.add(static_cast<int32_t>(device)).add(static_cast<int32_t>(residency)).add(stages);
    if (is_packed()) hash.add(packed_layout_version);
    if (is_interleaved()) hash.add_text("interleaved").add(interleaved_revision);
    for (int i = 0; i < MOE_ROLE_COUNT; ++i) {
        const auto role = static_cast<moe_role>(i);
        if (!needs(role)) continue;
        const Layer::Shape shape = layer.role_shape(role);
        const Part p = part(role);
        hash.add(i).add(shape.rows).add(shape.columns);
        hash.add(p.row).add(p.rows).add(p.column).add(p.columns);
        moe_format format = formats[role];
        format.struct_size = 0;
        hash.add(format);
        if (!is_packed_role(role)) continue;
        add_revision(hash, packed_type_of(formats[role]), revision);
        // Before, the last block of such a matrix was shorter.
        if (p.columns % 64 != 0) hash.add_text("padded columns");
        if (format.zero_point == MOE_ZERO_POINT_FLOAT && format.bits < 4 && !keeps_biases)
            hash.add_text("moved codes");
        if (column_table_of(formats[role]) != ColumnTable::none)
            hash.add_text("column table").add(column_table_revision).add(has_half_apart(role));
        if (folds_order(role)) hash.add_text("folded");
    }
    if (has_mixed_experts()) add_expert_formats(hash);
    for (int32_t global : slice.global_of) hash.add(global);
    // Entries of a hash table go up to it. A router would tell, but need not be there.
    if (needs(MOE_ROLE_HASH_TABLE) && layer.n_identity_experts) hash.add(layer.n_identity_experts);
    return hash.add(layer.n_experts).bytes();
}

}  // namespace moe
