// Implements ld and st. access.hpp documents the address checks.
#include "tests/emulator/access.hpp"

#include <algorithm>
#include <cstdio>

namespace emulator {
namespace {

std::string hex(uint64_t value) {
    char text[24];
    std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
    return text;
}

void lane_addresses(const Warp& w, const Instruction& in, uint64_t (&out)[32]) {
    const auto offset = static_cast<uint64_t>(in.immediate);
    if (in.mode == 1) {
        const auto* a = w.lanes<uint64_t>(in.a);
        for (int i = 0; i < 32; ++i) out[i] = a[i] + offset;
    } else if (in.mode == 0) {
        const auto* a = w.lanes<uint32_t>(in.a);
        for (int i = 0; i < 32; ++i) out[i] = static_cast<uint32_t>(a[i] + offset);
    } else {
        for (uint64_t& address : out) address = w.run->kernel->dynamic_shared + offset;
    }
}

std::byte* local_place(Warp& w, int lane, uint64_t address, uint32_t bytes) {
    const uint32_t size = w.run->kernel->local_bytes;
    if (address + bytes > size || address > size)
        w.fault(lane, "local address " + hex(address) + " beyond " + std::to_string(size));
    return w.local + static_cast<size_t>(lane) * size + address;
}

}  // namespace

std::byte* global_address(Warp& w, int lane, uint64_t address, uint64_t bytes) {
    auto& run = *w.run;
    if (!run.is_known(address, address + bytes) && !run.is_allowed(address, bytes))
        w.fault(lane, "global address " + hex(address) + ", " + std::to_string(bytes) +
                          " bytes, which no allocation holds,");
    return reinterpret_cast<std::byte*>(address);
}

std::byte* shared_at(Warp& w, int lane, uint32_t address, uint32_t bytes) {
    const uint32_t rank = address >> cluster_shift;
    Block* block = w.block;
    if (rank) {
        auto& blocks = w.block->cluster->blocks;
        if (rank > blocks.size()) w.fault(lane, "shared address " + hex(address));
        block = blocks[rank - 1].get();
        if (block->live_warps == 0)
            w.fault(lane, "shared address " + hex(address) + " of a block that has ended");
    }
    std::byte* target = block->at(address & ((1u << cluster_shift) - 1), bytes);
    if (!target)
        w.fault(lane, "shared address " + hex(address) + ", " + std::to_string(bytes) +
                          " bytes, beyond the block's " + std::to_string(w.run->shared_bytes) +
                          " from " + hex(shared_base));
    return target;
}

std::byte* find_address(Warp& w, int lane, Space space, uint64_t address, uint32_t bytes) {
    if (space == Space::generic) {
        const uint64_t window = address & window_mask;
        space = window == shared_window  ? Space::shared
                : window == local_window ? Space::local
                                         : Space::global;
        if (space != Space::global) address &= ~window_mask;
    }
    switch (space) {
        case Space::shared:
            if (address >> 32) w.fault(lane, "shared address " + hex(address));
            return shared_at(w, lane, static_cast<uint32_t>(address), bytes);
        case Space::local:
            return local_place(w, lane, address, bytes);
        default:
            return global_address(w, lane, address, bytes);
    }
}

void find_addresses(Warp& w, const Instruction& in, uint32_t bytes, LaneAddresses& addresses) {
    uint64_t address[32];
    lane_addresses(w, in, address);
    uint64_t low = UINT64_MAX, high = 0, all = 0;
    for (int i = 0; i < 32; ++i) {
        const bool is_on = w.mask >> i & 1;
        low = std::min(low, is_on ? address[i] : UINT64_MAX);
        high = std::max(high, is_on ? address[i] : 0);
        all |= is_on ? address[i] : 0;
    }
    if (all & (bytes - 1)) {
        for (int i = 0; i < 32; ++i)
            if ((w.mask >> i & 1) && (address[i] & (bytes - 1)))
                w.fault(i,
                        "address " + hex(address[i]) + " not aligned to " + std::to_string(bytes));
    }
    if ((in.space == Space::global || in.space == Space::generic) &&
        w.run->is_known(low, high + bytes)) {
        for (int i = 0; i < 32; ++i) addresses.at[i] = reinterpret_cast<std::byte*>(address[i]);
        return;
    }
    if (in.space == Space::shared && high < 1u << cluster_shift) {
        // The whole range is good if both ends are. Otherwise each lane is checked alone, to name
        // the bad one.
        std::byte* first = w.block->at(static_cast<uint32_t>(low), bytes);
        if (first && w.block->at(static_cast<uint32_t>(high), bytes)) {
            for (int i = 0; i < 32; ++i) addresses.at[i] = first + (address[i] - low);
            return;
        }
    }
    for (int i = 0; i < 32; ++i)
        if (w.mask >> i & 1) addresses.at[i] = find_address(w, i, in.space, address[i], bytes);
}

Space space_of(const Statement& s) {
    for (std::string_view part : s.opcode) {
        if (part == "global" || part == "const") return Space::global;
        if (part.starts_with("shared")) return Space::shared;
        if (part == "local") return Space::local;
        if (part == "param" || part.starts_with("param::")) return Space::param;
    }
    return Space::generic;
}

namespace {

template <class Memory, class Register>
Step run_load(Warp& w, const Instruction& in) {
    LaneAddresses addresses;
    find_addresses(w, in, static_cast<uint32_t>(sizeof(Memory) * in.count), addresses);
    const uint32_t* list = w.run->kernel->lists.data() + in.list;
    Register out[4][32];
    const int n = in.count;
    for (int i = 0; i < 32; ++i) {
        if (!(w.mask >> i & 1)) continue;
        for (int part = 0; part < n; ++part) {
            Memory value;
            std::memcpy(&value, addresses.at[i] + static_cast<size_t>(part) * sizeof value,
                        sizeof value);
            out[part][i] = static_cast<Register>(value);
        }
    }
    for (int part = 0; part < n; ++part) w.store(list[part], out[part]);
    w.budget -= in.e;
    return Step::next;
}

template <class Memory, class Register>
Step run_store(Warp& w, const Instruction& in) {
    LaneAddresses addresses;
    find_addresses(w, in, static_cast<uint32_t>(sizeof(Memory) * in.count), addresses);
    const uint32_t* list = w.run->kernel->lists.data() + in.list;
    for (int part = 0; part < in.count; ++part) {
        const Register* from = w.lanes<Register>(list[part]);
        for (int i = 0; i < 32; ++i) {
            if (!(w.mask >> i & 1)) continue;
            const auto value = static_cast<Memory>(from[i]);
            std::memcpy(addresses.at[i] + static_cast<size_t>(part) * sizeof value, &value,
                        sizeof value);
        }
    }
    ++w.run->effects;
    return Step::next;
}

// All lanes read the same bytes of the parameters.
template <class Memory, class Register>
Step run_parameter(Warp& w, const Instruction& in) {
    const auto* from = reinterpret_cast<const std::byte*>(w.run->parameters.data()) + in.immediate;
    const uint32_t* list = w.run->kernel->lists.data() + in.list;
    for (int part = 0; part < in.count; ++part) {
        Memory value;
        std::memcpy(&value, from + static_cast<size_t>(part) * sizeof value, sizeof value);
        Register out[32];
        for (Register& lane : out) lane = static_cast<Register>(value);
        w.store(list[part], out);
    }
    return Step::next;
}

enum class Access { load, store, parameter };

template <class Memory, class Register>
Handler access_handler(Access access) {
    return access == Access::load    ? run_load<Memory, Register>
           : access == Access::store ? run_store<Memory, Register>
                                     : run_parameter<Memory, Register>;
}

template <class Memory>
Handler access_handler(Access access, unsigned bits) {
    if constexpr (sizeof(Memory) <= 2)
        if (bits == 16) return access_handler<Memory, uint16_t>(access);
    if constexpr (sizeof(Memory) <= 4)
        if (bits == 32) return access_handler<Memory, uint32_t>(access);
    if (bits == 64) return access_handler<Memory, uint64_t>(access);
    throw UnknownForm{};
}

Handler access_handler(Access access, Type type, unsigned bits) {
    switch (type) {
        case Type::s8:
            return access_handler<int8_t>(access, bits);
        case Type::s16:
            return access_handler<int16_t>(access, bits);
        case Type::s32:
            return access_handler<int32_t>(access, bits);
        default:
            break;
    }
    switch (bits_of(type)) {
        case 8:
            return access_handler<uint8_t>(access, bits);
        case 16:
            return access_handler<uint16_t>(access, bits);
        case 32:
            return access_handler<uint32_t>(access, bits);
        case 64:
            return access_handler<uint64_t>(access, bits);
        default:
            throw UnknownForm{};
    }
}

void check_modifiers(const Statement& s) {
    for (size_t i = 1; i < s.opcode.size(); ++i) {
        const std::string_view part = s.opcode[i];
        constexpr std::string_view known[] = {
            "global",  "const",   "shared",       "shared::cta", "shared::cluster",
            "local",   "param",   "nc",           "weak",        "relaxed",
            "acquire", "release", "volatile",     "cta",         "cluster",
            "gpu",     "sys",     "ca",           "cg",          "cs",
            "cv",      "lu",      "wb",           "wt",          "v2",
            "v4",      "mmio",    "param::entry", "param::func"};
        const bool is_hint = part.starts_with("L1::") || part.starts_with("L2::");
        if (!is_hint && type_named(part) == Type::none &&
            std::find(std::begin(known), std::end(known), part) == std::end(known))
            throw UnknownForm{};
    }
}

// A spin loop reads with these instructions, so they yield to other warps.
bool may_wait(const Statement& s) {
    return s.has("volatile") || s.has("acquire") || s.has("relaxed") || s.has("mmio");
}

void decode_access(Builder& b, const Statement& s, bool is_load) {
    check_modifiers(s);
    const Argument& address = s.arguments.at(is_load ? 1 : 0);
    const Argument& value = s.arguments.at(is_load ? 0 : 1);
    const Type type = s.last_type();
    std::vector<Argument> parts = value.parts;
    if (value.kind != Argument::Kind::vector) parts = {value};
    const size_t wanted = s.has("v2") ? 2 : s.has("v4") ? 4 : 1;
    if (parts.size() != wanted) throw UnknownForm{};
    unsigned bits = 0;
    for (const Argument& part : parts) bits = std::max(bits, b.width(part));
    if (bits == 0) bits = std::max(bits_of(type), 16u);
    const auto symbol = b.symbol(address.text);
    const bool is_parameter = symbol && symbol->space == Space::param;
    if (is_parameter && !is_load) throw UnknownForm{};
    const Access access = is_parameter ? Access::parameter : is_load ? Access::load : Access::store;
    Instruction& in = b.emit(access_handler(access, type, bits));
    in.space = space_of(s);
    in.count = static_cast<uint8_t>(parts.size());
    in.bytes = static_cast<uint8_t>(bits_of(type) / 8);
    in.e = may_wait(s) ? 64 : 0;
    if (is_parameter)
        in.immediate = static_cast<int64_t>(symbol->at) + address.offset;
    else
        b.read_address(address);
    b.begin_list();
    for (const Argument& part : parts) is_load ? b.list_write(part, bits) : b.list_read(part, bits);
}

void decode_ld(Builder& b, const Statement& s) {
    decode_access(b, s, true);
}
void decode_st(Builder& b, const Statement& s) {
    if (s.has("async")) throw UnknownForm{};
    decode_access(b, s, false);
}

}  // namespace

std::vector<DecoderEntry> access_decoders() {
    return {{"ld", decode_ld}, {"ldu", decode_ld}, {"st", decode_st}};
}

}  // namespace emulator
