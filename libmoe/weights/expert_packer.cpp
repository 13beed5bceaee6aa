// One expert at a time, by the packing of its type.
#include "libmoe/weights/expert_packer.hpp"

#include <cstring>

#include "libmoe/weights/matrix_copy.hpp"
#include "libmoe/weights/tensor_roles.hpp"

namespace moe {

void ExpertPacker::pack(moe_role role, int64_t index, std::byte* to,
                        PackedConstants& constants) const {
    set_row_order(role, index, constants);
    // Bytes that no code fills are the same every time.
    if (sources_.is_whole(role, index)) std::memset(to, 0, placement_.matrices[role].expert_stride);
    const moe_role up = placement_.up_role(role);
    if (up == MOE_ROLE_NONE) return pack_rows(role, index, TileRows::all, to, constants);
    if (sources_.of(role, index).is_given)
        pack_rows(role, index, TileRows::gate_half, to, constants);
    if (sources_.of(up, index).is_given) pack_rows(up, index, TileRows::up_half, to, constants);
}

// Where down has not been given, its order is known: it has been packed before, or read from the
// block.
void ExpertPacker::set_row_order(moe_role role, int64_t index, PackedConstants& constants) const {
    const moe_role down = layout_.orders_rows(role);
    if (down == MOE_ROLE_NONE || !sources_.of(down, index).is_given) return;
    constants.set_columns(down, index, TileRows::all, sources_.of(down, index).matrix,
                          name_of(down, index).text);
}

TensorName ExpertPacker::name_of(moe_role role, int64_t index) const {
    const auto& experts = layout_.slice.global_of;
    return {role, is_expert_role(role) ? experts[static_cast<size_t>(index)] : 0};
}

void ExpertPacker::pack_rows(moe_role role, int64_t index, TileRows rows, std::byte* to,
                             PackedConstants& constants) const {
    const Matrix& source = sources_.of(role, index).matrix;
    const TensorName name = name_of(role, index);
    const moe_role owner = placement_.owner_role(role);
    const DevicePlacement::Region& region = placement_.matrices[owner];
    const uint32_t* columns = constants.set_columns(owner, index, rows, source, name.text);
    const uint32_t* order = region.table == ColumnTable::order ? columns : nullptr;
    const moe_role down = layout_.orders_rows(role);
    const uint32_t* row_order = down ? constants.columns(down, index) : nullptr;
    const float global =
        moe::pack(source, region.type, rows, to, name.text, order, layout_.keeps_biases, row_order);
    constants.set(owner, index, rows, global, source);
}

void ExpertPacker::pack_router(std::byte* to) const {
    const Matrix& router = sources_.of(MOE_ROLE_ROUTER, 0).matrix;
    std::memset(to, 0, placement_.router_bytes);
    if (is_plain(router.format)) {
        copy_part(router, to);
        return;
    }
    auto* rows = reinterpret_cast<float*>(to);
    for (int64_t r = 0; r < router.rows; ++r)
        router.traits->decode(router, r, 0, router.columns, rows + r * router.columns);
}

}  // namespace moe
