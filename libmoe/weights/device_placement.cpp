// Lays out the block of packed weights:
//   1. the matrices, one role after the other, expert after expert; the shared expert follows the
//      last routed one where it has the same shape and packed types
//   2. the router
//   3. small tables and vectors, in the order of the roles
// Matrices and tables begin on 128 bytes.
#include <algorithm>
#include <optional>

#include "libmoe/base/checked.hpp"
#include "libmoe/formats/format.hpp"
#include "libmoe/weights/device_weights.hpp"

namespace moe {
namespace {

// Returns the multiple of columns on which the scale groups of a type begin.
int64_t column_grid(PackedType type) {
    if (is_grid(type) && grid_group(type)) return grid_group(type);
    return type == PackedType::e4m3 ? 32 : column_step(type);
}

// Hands out the bytes of the block.
class Cursor {
  public:
    uint64_t take(uint64_t count, uint64_t bytes) {
        const uint64_t offset = used_;
        used_ = round_up(checked_add(used_, checked_multiply(count, bytes, what), what));
        return offset;
    }
    static uint64_t round_up(uint64_t bytes) {
        checked_add(bytes, DevicePlacement::alignment, what);
        return align_up(bytes, DevicePlacement::alignment);
    }
    uint64_t used() const { return used_; }

  private:
    static constexpr const char* what = "packed weights";
    uint64_t used_ = 0;
};

class BlockLayout {
  public:
    explicit BlockLayout(const WeightsLayout& layout) : layout_(layout) {}

    DevicePlacement lay_out() {
        find_fused_roles();
        out_.shared_follows = can_follow();
        for (int i = 0; i < MOE_ROLE_COUNT; ++i) {
            const auto role = static_cast<moe_role>(i);
            if (is_packed(role)) lay_out_matrix(role);
        }
        if (layout_.needs(MOE_ROLE_ROUTER)) lay_out_router();
        lay_out_small();
        out_.bytes = cursor_.used();
        return out_;
    }

    // Returns true if every matrix has a packed type and a legal slice.
    bool can_lay_out() {
        find_fused_roles();
        for (int i = 0; i < MOE_ROLE_COUNT; ++i) {
            const auto role = static_cast<moe_role>(i);
            if (is_packed(role) && obstacle_to(role, type_of(role))) return false;
        }
        return true;
    }

  private:
    bool is_packed(moe_role role) const {
        return is_matrix_role(role) && role != MOE_ROLE_ROUTER && layout_.needs(role);
    }
    void find_fused_roles() {
        out_.is_gate_up_fused = are_fused(MOE_ROLE_GATE, MOE_ROLE_UP);
        out_.is_shared_gate_up_fused = are_fused(MOE_ROLE_SHARED_GATE, MOE_ROLE_SHARED_UP);
    }

    std::optional<Error> obstacle_to(moe_role role, PackedType type) const {
        if (type == PackedType::none)
            return make_error(MOE_ERROR_UNSUPPORTED,
                              "formats[{}]: {} of {} cannot be packed for a device",
                              static_cast<int32_t>(role), role_name(role),
                              format_name(layout_.formats[role]).text);
        const WeightsLayout::Part part = layout_.part(role);
        const int64_t step = out_.is_fused_role(role) ? 8 : 16;
        if (part.rows % step != 0 || part.columns % column_step(type) != 0)
            return make_error(MOE_ERROR_INVALID_ARGUMENT,
                              "{}: [{}, {}] cannot be packed, rows go by {} and columns by {}",
                              role_name(role), part.rows, part.columns, step, column_step(type));
        const int64_t all_columns = layout_.layer.role_shape(role).columns;
        const ColumnTable table = table_of(role);
        if (table != ColumnTable::none && part.columns > most_table_columns)
            return make_error(MOE_ERROR_UNSUPPORTED,
                              "{}: {} columns of {} cannot be packed, the most are {}",
                              role_name(role), part.columns,
                              format_name(layout_.formats[role]).text, most_table_columns);
        if (table == ColumnTable::order && part.columns != all_columns)
            return make_error(MOE_ERROR_UNSUPPORTED,
                              "{}: a slice of {} of {} columns of {} cannot be packed",
                              role_name(role), part.columns, all_columns,
                              format_name(layout_.formats[role]).text);
        const int64_t grid = column_grid(type), begin = part.column, below = begin / grid * grid;
        if (begin % grid == 0) return std::nullopt;
        return make_error(MOE_ERROR_INVALID_ARGUMENT,
                          "{}: the slice begins at {}, {} is packed by {}; the nearest legal are "
                          "{} and {}",
                          role_name(role), begin, format_name(layout_.formats[role]).text, grid,
                          below, std::min(below + grid, all_columns));
    }

    PackedType type_of(moe_role role) const { return packed_type_of(layout_.formats[role]); }
    ColumnTable table_of(moe_role role) const { return column_table_of(layout_.formats[role]); }
    bool are_alike(moe_role a, moe_role b) const {
        return type_of(a) == type_of(b) && table_of(a) == table_of(b);
    }

    bool are_fused(moe_role gate, moe_role up) const {
        const bool are_kept_apart =
            layout_.keeps_tables_apart && table_of(gate) != ColumnTable::none;
        return layout_.needs(gate) && layout_.needs(up) && are_alike(gate, up) && !are_kept_apart;
    }

    static constexpr std::pair<moe_role, moe_role> followers[] = {
        {MOE_ROLE_SHARED_GATE, MOE_ROLE_GATE},
        {MOE_ROLE_SHARED_UP, MOE_ROLE_UP},
        {MOE_ROLE_SHARED_DOWN, MOE_ROLE_DOWN}};

    // Returns the routed role whose region a shared one follows, or NONE.
    moe_role before(moe_role role) const {
        for (const auto& [shared, routed] : followers)
            if (out_.shared_follows && shared == role) return routed;
        return MOE_ROLE_NONE;
    }
    int64_t followers_of(moe_role role) const {
        for (const auto& [shared, routed] : followers)
            if (out_.shared_follows && routed == role) return 1;
        return 0;
    }

    bool can_follow() const {
        const auto agree = [&](const auto& pair) {
            const auto& [shared, routed] = pair;
            if (layout_.needs(shared) != layout_.needs(routed)) return false;
            if (!layout_.needs(shared)) return true;
            const WeightsLayout::Part a = layout_.part(shared), b = layout_.part(routed);
            return are_alike(shared, routed) && a.rows == b.rows && a.columns == b.columns;
        };
        return layout_.needs(MOE_ROLE_DOWN) &&
               out_.is_gate_up_fused == out_.is_shared_gate_up_fused &&
               std::all_of(std::begin(followers), std::end(followers), agree);
    }

    void lay_out_matrix(moe_role role) {
        const PackedType type = type_of(role);
        if (auto obstacle = obstacle_to(role, type)) throw *obstacle;
        if (out_.is_up_half(role)) return;
        const WeightsLayout::Part part = layout_.part(role);
        DevicePlacement::Region& region = out_.matrices[role];
        region.type = type;
        region.table = table_of(role);
        region.is_folded = layout_.folds_order(role);
        region.count = layout_.count(role);
        region.n_tiles = static_cast<int32_t>(part.rows / (out_.is_fused_role(role) ? 8 : 16));
        region.k = static_cast<int32_t>(padded_columns(part.columns));
        region.expert_stride = Cursor::round_up(
            checked_multiply(static_cast<uint64_t>(region.n_tiles),
                             static_cast<uint64_t>(tile_bytes(type, region.k)), role_name(role)));
        if (const moe_role routed = before(role))
            region.offset = past(out_.matrices[routed].offset, routed, region.expert_stride);
        else
            region.offset = cursor_.take(with_followers(role), region.expert_stride);
    }

    // Returns how many matrices the role's region has, the following shared expert's included.
    uint64_t with_followers(moe_role role) const {
        return static_cast<uint64_t>(out_.matrices[role].count + followers_of(role));
    }
    uint64_t past(uint64_t offset, moe_role role, uint64_t bytes) const {
        return offset + static_cast<uint64_t>(out_.matrices[role].count) * bytes;
    }

    void lay_out_router() {
        const moe_format& format = layout_.formats[MOE_ROLE_ROUTER];
        const Layer::Shape shape = layout_.layer.role_shape(MOE_ROLE_ROUTER);
        out_.router_type = is_plain(format) ? format.type : MOE_TYPE_F32;
        out_.router_bytes = Cursor::round_up(
            checked_multiply(checked_multiply(static_cast<uint64_t>(shape.rows),
                                              static_cast<uint64_t>(shape.columns), "router"),
                             static_cast<uint64_t>(element_bytes(out_.router_type)), "router"));
        out_.router = cursor_.take(1, out_.router_bytes);
    }

    void lay_out_small() {
        constexpr uint64_t globals = 2 * 4, codebook = 2 * 32 * 4;  // bytes of one expert
        for (int i = 0; i < MOE_ROLE_COUNT; ++i) {
            const auto role = static_cast<moe_role>(i);
            DevicePlacement::Region& region = out_.matrices[i];
            const moe_role routed = before(role);
            const DevicePlacement::Region& first = out_.matrices[routed];
            if (is_e2m1(region.type))
                region.globals = routed ? past(first.globals, routed, globals)
                                        : cursor_.take(with_followers(role), globals);
            if (has_codebook(region.type)) {
                region.codebooks = routed ? past(first.codebooks, routed, codebook)
                                          : cursor_.take(with_followers(role), codebook);
                region.n_codebooks = routed ? 1 : static_cast<int64_t>(with_followers(role));
            }
            if (region.table != ColumnTable::none)
                region.columns = routed ? past(first.columns, routed, region.column_bytes())
                                        : cursor_.take(with_followers(role), region.column_bytes());
        }
        for (int i = 0; i < MOE_ROLE_COUNT; ++i) {
            const auto role = static_cast<moe_role>(i);
            if (is_matrix_role(role) || role == MOE_ROLE_HASH_TABLE || !layout_.needs(role))
                continue;
            const auto columns = static_cast<uint64_t>(layout_.part(role).columns);
            out_.vectors[i] = cursor_.take(static_cast<uint64_t>(layout_.count(role)), 4 * columns);
        }
        if (layout_.needs(MOE_ROLE_HASH_TABLE)) {
            const Layer::Shape shape = layout_.layer.role_shape(MOE_ROLE_HASH_TABLE);
            out_.hash_table = cursor_.take(static_cast<uint64_t>(shape.rows),
                                           4 * static_cast<uint64_t>(shape.columns));
        }
    }

    const WeightsLayout& layout_;
    DevicePlacement out_;
    Cursor cursor_;
};

}  // namespace

DevicePlacement lay_out_on_device(const WeightsLayout& layout) {
    return BlockLayout(layout).lay_out();
}

bool can_lay_out_on_device(const WeightsLayout& layout) {
    return BlockLayout(layout).can_lay_out();
}

DeviceWeights DevicePlacement::resolve(const WeightsLayout& layout, std::byte* base) const {
    const auto floats = [&](uint64_t offset) {
        return offset ? reinterpret_cast<const float*>(base + offset) : nullptr;
    };
    DeviceWeights weights;
    weights.is_gate_up_fused = is_gate_up_fused;
    weights.is_shared_gate_up_fused = is_shared_gate_up_fused;
    for (int i = 0; i < MOE_ROLE_COUNT; ++i) {
        const Region& region = matrices[i];
        if (region.type == PackedType::none) continue;
        weights.matrices[i] = {
            base + region.offset,
            static_cast<int64_t>(region.expert_stride),
            floats(region.globals),
            floats(region.codebooks),
            region.is_folded ? nullptr : reinterpret_cast<const uint32_t*>(floats(region.columns)),
            region.type,
            region.n_tiles,
            region.k};
        weights.matrices[i].table = region.gathered();
    }
    if (const Region& down = matrices[MOE_ROLE_DOWN]; down.is_folded)
        weights.rows_of_features =
            reinterpret_cast<const uint32_t*>(base + down.columns + down.column_bytes() / 2);
    for (int i = 0; i < MOE_ROLE_COUNT; ++i) {
        const auto role = static_cast<moe_role>(i);
        if (!is_matrix_role(role) && role != MOE_ROLE_HASH_TABLE && layout.needs(role))
            weights.vectors[i] = reinterpret_cast<const float*>(base + vectors[i]);
    }
    weights.router_type = router_type;
    if (router_type != MOE_TYPE_NONE) weights.router = base + router;
    if (layout.needs(MOE_ROLE_HASH_TABLE))
        weights.hash_table = reinterpret_cast<const int32_t*>(base + hash_table);
    return weights;
}

}  // namespace moe
