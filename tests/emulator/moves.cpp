// Implements mov, with special registers, addresses and vectors, and cvta and mapa.
#include <cstring>

#include "tests/emulator/lanes.hpp"

namespace emulator {
namespace {

template <class T>
constexpr auto same = [](T a) { return a; };

Step move_predicate(Warp& w, const Instruction& in) {
    w.store_predicate(in.d, w.predicate(in.a));
    return Step::next;
}

Handler move_of(unsigned bits) {
    switch (bits) {
        case 1:
            return move_predicate;
        case 16:
            return one<uint16_t, uint16_t, same<uint16_t>>;
        case 32:
            return one<uint32_t, uint32_t, same<uint32_t>>;
        case 64:
            return one<uint64_t, uint64_t, same<uint64_t>>;
        default:
            throw UnknownForm{};
    }
}

void store_all(Warp& w, const Instruction& in, const uint64_t (&values)[32]) {
    if (in.bytes == 8) return w.store(in.d, values);
    uint32_t narrow[32];
    for (int i = 0; i < 32; ++i) narrow[i] = static_cast<uint32_t>(values[i]);
    w.store(in.d, narrow);
}

// ---- Special registers.

struct Special {
    std::string_view name;
    uint64_t (*value)(const Warp&, int lane);
};

uint32_t part(const Dim3& d, int axis) {
    return axis == 0 ? d.x : axis == 1 ? d.y : d.z;
}

Dim3 thread_of(const Warp& w, int lane) {
    const uint32_t i = w.index * 32 + static_cast<uint32_t>(lane);
    const Dim3& block = w.run->launch->block;
    return {i % block.x, i / block.x % block.y, i / block.x / block.y};
}

Dim3 clusters_of(const Launch& l) {
    return {l.grid.x / l.cluster.x, l.grid.y / l.cluster.y, l.grid.z / l.cluster.z};
}

Dim3 index_in_cluster(const Warp& w) {
    const Dim3 &b = w.block->index, &c = w.run->launch->cluster;
    return {b.x % c.x, b.y % c.y, b.z % c.z};
}

template <int axis>
uint64_t thread(const Warp& w, int lane) {
    return part(thread_of(w, lane), axis);
}
template <int axis>
uint64_t threads(const Warp& w, int) {
    return part(w.run->launch->block, axis);
}
template <int axis>
uint64_t block(const Warp& w, int) {
    return part(w.block->index, axis);
}
template <int axis>
uint64_t blocks(const Warp& w, int) {
    return part(w.run->launch->grid, axis);
}
template <int axis>
uint64_t cluster(const Warp& w, int) {
    return part(w.block->index, axis) / part(w.run->launch->cluster, axis);
}
template <int axis>
uint64_t clusters(const Warp& w, int) {
    return part(clusters_of(*w.run->launch), axis);
}
template <int axis>
uint64_t in_cluster(const Warp& w, int) {
    return part(index_in_cluster(w), axis);
}
template <int axis>
uint64_t of_cluster(const Warp& w, int) {
    return part(w.run->launch->cluster, axis);
}
uint64_t zero(const Warp&, int) {
    return 0;
}
uint64_t lane_number(const Warp&, int lane) {
    return static_cast<uint64_t>(lane);
}
uint64_t warp_number(const Warp& w, int) {
    return w.index;
}
uint64_t warp_count(const Warp& w, int) {
    return (w.block->thread_count() + 31) / 32;
}
uint64_t time_of(const Warp& w, int) {
    return w.run->time;
}
uint64_t linear_block(const Warp& w) {
    const Dim3 &b = w.block->index, &g = w.run->launch->grid;
    return b.x + uint64_t{g.x} * (b.y + uint64_t{g.y} * b.z);
}
uint64_t multiprocessor(const Warp& w, int) {
    return linear_block(w) % w.run->launch->multiprocessors;
}
uint64_t multiprocessors(const Warp& w, int) {
    return w.run->launch->multiprocessors;
}
uint64_t rank(const Warp& w, int) {
    return w.block->rank;
}
uint64_t ranks(const Warp& w, int) {
    return w.block->cluster->blocks.size();
}
uint64_t mask_eq(const Warp&, int lane) {
    return 1u << lane;
}
uint64_t mask_lt(const Warp&, int lane) {
    return (1u << lane) - 1;
}
uint64_t mask_le(const Warp&, int lane) {
    return (2ull << lane) - 1;
}
uint64_t mask_gt(const Warp&, int lane) {
    return ~static_cast<uint32_t>((2ull << lane) - 1);
}
uint64_t mask_ge(const Warp&, int lane) {
    return ~((1u << lane) - 1);
}
uint64_t dynamic_bytes(const Warp& w, int) {
    return w.run->launch->dynamic_shared_bytes;
}
uint64_t total_bytes(const Warp& w, int) {
    return w.run->shared_bytes;
}

constexpr Special specials[] = {
    {"%tid.x", thread<0>},
    {"%tid.y", thread<1>},
    {"%tid.z", thread<2>},
    {"%ntid.x", threads<0>},
    {"%ntid.y", threads<1>},
    {"%ntid.z", threads<2>},
    {"%ctaid.x", block<0>},
    {"%ctaid.y", block<1>},
    {"%ctaid.z", block<2>},
    {"%nctaid.x", blocks<0>},
    {"%nctaid.y", blocks<1>},
    {"%nctaid.z", blocks<2>},
    {"%clusterid.x", cluster<0>},
    {"%clusterid.y", cluster<1>},
    {"%clusterid.z", cluster<2>},
    {"%nclusterid.x", clusters<0>},
    {"%nclusterid.y", clusters<1>},
    {"%nclusterid.z", clusters<2>},
    {"%cluster_ctaid.x", in_cluster<0>},
    {"%cluster_ctaid.y", in_cluster<1>},
    {"%cluster_ctaid.z", in_cluster<2>},
    {"%cluster_nctaid.x", of_cluster<0>},
    {"%cluster_nctaid.y", of_cluster<1>},
    {"%cluster_nctaid.z", of_cluster<2>},
    {"%cluster_ctarank", rank},
    {"%cluster_nctarank", ranks},
    {"%laneid", lane_number},
    {"%warpid", warp_number},
    {"%nwarpid", warp_count},
    {"%smid", multiprocessor},
    {"%nsmid", multiprocessors},
    {"%gridid", zero},
    {"%clock", time_of},
    {"%clock_hi", zero},
    {"%clock64", time_of},
    {"%globaltimer", time_of},
    {"%globaltimer_lo", time_of},
    {"%globaltimer_hi", zero},
    {"%lanemask_eq", mask_eq},
    {"%lanemask_lt", mask_lt},
    {"%lanemask_le", mask_le},
    {"%lanemask_gt", mask_gt},
    {"%lanemask_ge", mask_ge},
    {"%dynamic_smem_size", dynamic_bytes},
    {"%total_smem_size", total_bytes},
    {"%aggr_smem_size", total_bytes},
};

Step run_special(Warp& w, const Instruction& in) {
    uint64_t values[32];
    for (int i = 0; i < 32; ++i) values[i] = specials[in.immediate].value(w, i);
    store_all(w, in, values);
    return Step::next;
}

// ---- Addresses of symbols.

Step run_symbol(Warp& w, const Instruction& in) {
    uint64_t value = static_cast<uint64_t>(in.immediate);
    if (in.space == Space::param) value += reinterpret_cast<uint64_t>(w.run->parameters.data());
    if (in.mode == 2) value += w.run->kernel->dynamic_shared;
    uint64_t values[32];
    for (uint64_t& v : values) v = value;
    store_all(w, in, values);
    return Step::next;
}

void decode_symbol(Builder& b, const Statement& s, const Symbol& symbol, unsigned bits) {
    Instruction& in = b.emit(run_symbol);
    const bool is_dynamic = symbol.space == Space::shared && symbol.at == UINT64_MAX;
    in.immediate = is_dynamic ? 0 : static_cast<int64_t>(symbol.at);
    in.mode = is_dynamic ? 2 : 0;
    in.space = symbol.space;
    in.bytes = static_cast<uint8_t>(bits / 8);
    b.write(&Instruction::d, s.arguments[0], bits);
}

// ---- Vectors: {a, b} to one register of twice the bits, and back.

Step run_join(Warp& w, const Instruction& in) {
    uint64_t out[32] = {};
    const uint32_t* list = w.run->kernel->lists.data() + in.list;
    const unsigned bits = in.mode;
    for (int part = 0; part < in.count; ++part) {
        if (bits == 16) {
            const auto* from = w.lanes<uint16_t>(list[part]);
            for (int i = 0; i < 32; ++i) out[i] |= uint64_t{from[i]} << 16 * part;
        } else {
            const auto* from = w.lanes<uint32_t>(list[part]);
            for (int i = 0; i < 32; ++i) out[i] |= uint64_t{from[i]} << 32 * part;
        }
    }
    store_all(w, in, out);
    return Step::next;
}

Step run_cut(Warp& w, const Instruction& in) {
    uint64_t from[32];
    if (in.bytes == 8) {
        std::memcpy(from, w.lanes<uint64_t>(in.a), sizeof from);
    } else {
        for (int i = 0; i < 32; ++i) from[i] = w.lanes<uint32_t>(in.a)[i];
    }
    const uint32_t* list = w.run->kernel->lists.data() + in.list;
    for (int part = 0; part < in.count; ++part) {
        if (in.mode == 16) {
            uint16_t out[32];
            for (int i = 0; i < 32; ++i) out[i] = static_cast<uint16_t>(from[i] >> 16 * part);
            w.store(list[part], out);
        } else {
            uint32_t out[32];
            for (int i = 0; i < 32; ++i) out[i] = static_cast<uint32_t>(from[i] >> 32 * part);
            w.store(list[part], out);
        }
    }
    return Step::next;
}

void decode_vector(Builder& b, const Statement& s, unsigned bits, bool joins) {
    const auto& parts = s.arguments[joins ? 1 : 0].parts;
    if (parts.empty() || bits % parts.size()) throw UnknownForm{};
    const auto part_bits = static_cast<unsigned>(bits / parts.size());
    if ((part_bits != 16 && part_bits != 32) || (bits != 32 && bits != 64)) throw UnknownForm{};
    Instruction& in = b.emit(joins ? run_join : run_cut);
    in.bytes = static_cast<uint8_t>(bits / 8);
    in.count = static_cast<uint8_t>(parts.size());
    in.mode = static_cast<uint8_t>(part_bits);
    if (joins)
        b.write(&Instruction::d, s.arguments[0], bits);
    else
        b.read(&Instruction::a, s.arguments[1], bits);
    b.begin_list();
    for (const Argument& part : parts)
        joins ? b.list_read(part, part_bits) : b.list_write(part, part_bits);
}

void decode_mov(Builder& b, const Statement& s) {
    allow_no_modifiers(s);
    if (s.arguments.size() != 2) throw UnknownForm{};
    const unsigned bits = bits_of(s.last_type());
    const Argument &to = s.arguments[0], &from = s.arguments[1];
    if (to.kind == Argument::Kind::vector) return decode_vector(b, s, bits, false);
    if (from.kind == Argument::Kind::vector) return decode_vector(b, s, bits, true);
    if (from.kind == Argument::Kind::name && !b.width(from)) {
        for (size_t i = 0; i < std::size(specials); ++i) {
            if (specials[i].name != from.text) continue;
            Instruction& in = b.emit(run_special);
            in.immediate = static_cast<int64_t>(i);
            in.bytes = static_cast<uint8_t>(bits / 8);
            return b.write(&Instruction::d, to, bits);
        }
        if (const auto symbol = b.symbol(from.text)) return decode_symbol(b, s, *symbol, bits);
        throw UnknownForm{};
    }
    decode_one(b, s, move_of(bits), bits, bits);
}

// ---- Generic addresses: global ones are unchanged, the others have windows far from them.

constexpr auto into_shared = [](uint64_t a) { return shared_window | (a & ~window_mask); };
constexpr auto into_local = [](uint64_t a) { return local_window | (a & ~window_mask); };
constexpr auto out_of_window = [](uint64_t a) { return a & ~window_mask; };

void decode_cvta(Builder& b, const Statement& s) {
    allow_modifiers(s, "to", "global", "shared", "shared::cta", "shared::cluster", "local", "const",
                    "param");
    using U = uint64_t;
    const bool is_shared = s.has("shared") || s.has("shared::cta") || s.has("shared::cluster");
    Handler run = move_of(64);
    if (is_shared || s.has("local"))
        run = s.has("to") ? one<U, U, out_of_window>
              : is_shared ? one<U, U, into_shared>
                          : one<U, U, into_local>;
    // The address may be a symbol.
    if (s.arguments.size() == 2 && !b.width(s.arguments[1]) && !s.has("to")) {
        const auto symbol = b.symbol(s.arguments[1].text);
        if (!symbol) throw UnknownForm{};
        decode_symbol(b, s, *symbol, 64);
        if (is_shared) b.last().immediate |= static_cast<int64_t>(shared_window);
        if (s.has("local")) b.last().immediate |= static_cast<int64_t>(local_window);
        return;
    }
    decode_one(b, s, run, 64, 64);
}

template <class T>
Step run_mapa(Warp& w, const Instruction& in) {
    const T* a = w.lanes<T>(in.a);
    const auto* rank = w.lanes<uint32_t>(in.b);
    T out[32];
    for (int i = 0; i < 32; ++i) {
        const T offset = a[i] & ((T{1} << cluster_shift) - 1);
        const T window = sizeof(T) == 8 ? a[i] & static_cast<T>(window_mask) : T{0};
        out[i] = window | offset | static_cast<T>(rank[i] + 1) << cluster_shift;
        if ((w.mask >> i & 1) && rank[i] >= w.block->cluster->blocks.size())
            w.fault(i, "mapa to block " + std::to_string(rank[i]) + ", which the cluster has not");
    }
    w.store(in.d, out);
    return Step::next;
}

void decode_mapa(Builder& b, const Statement& s) {
    allow_modifiers(s, "shared::cluster");
    const unsigned bits = bits_of(s.last_type());
    decode_two(b, s, bits == 64 ? run_mapa<uint64_t> : run_mapa<uint32_t>, bits, bits, 32);
}

}  // namespace

std::vector<DecoderEntry> move_decoders() {
    return {{"mov", decode_mov}, {"cvta", decode_cvta}, {"mapa", decode_mapa}};
}

}  // namespace emulator
