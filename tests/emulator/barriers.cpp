// Implements bar and barrier of thread blocks and warps, barrier.cluster, and mbarrier. Lanes
// arrive, wait, or do both; a warp blocks until its barrier completes.
#include "tests/emulator/access.hpp"

namespace emulator {
namespace {

// ---- Thread blocks. immediate is 1 if the warp only arrives; mode is 1 if a count is given. Of
// bar.red, count says which result predicate d has, and immediate all bits if c is negated.

enum Reduction : uint8_t { none, any_of, all_of };

void store_reduction(Warp& w, const Instruction& in, const BlockBarrier& barrier) {
    if (in.count == none) return;
    w.store_predicate(in.d, (in.count == any_of ? barrier.any : barrier.all) ? 0xFFFFFFFFu : 0);
}

Step run_bar(Warp& w, const Instruction& in) {
    if (!gather_all(w)) return Step::blocked;
    if (w.is_released) {
        w.is_released = false;
        store_reduction(w, in, w.released_by);
        return Step::next;
    }
    const int lane = w.first_lane();
    const uint32_t id = w.lanes<uint32_t>(in.a)[lane];
    const uint32_t count = in.mode ? w.lanes<uint32_t>(in.b)[lane] : 0;
    if (id > 15) w.fault(lane, "barrier " + std::to_string(id));
    if (in.mode && (count % 32 || count == 0 || count > 1024))
        w.fault(lane, "a barrier of " + std::to_string(count) + " threads");
    BlockBarrier& barrier = w.block->barriers[id];
    if (barrier.arrived && barrier.expected != count)
        w.fault(lane, "a barrier of " + std::to_string(count) + " threads where others said " +
                          std::to_string(barrier.expected));
    barrier.arrived += 32;
    barrier.expected = count;
    if (in.count != none) {
        const uint32_t said = (w.predicate(in.c) ^ static_cast<uint32_t>(in.immediate)) & w.mask;
        barrier.any |= said != 0;
        barrier.all &= said == w.mask;
    }
    const bool is_complete =
        count ? barrier.arrived >= count : barrier.arrived >= w.block->live_warps * 32;
    if (is_complete) {
        store_reduction(w, in, barrier);
        w.block->release(static_cast<int>(id));
        return Step::next;
    }
    if (in.count == none && in.immediate) return Step::next;
    w.barrier = static_cast<int>(id);
    w.stay = w.mask;
    return Step::blocked;
}

void nothing(Warp&, const Instruction&) {}

Step run_warp_sync(Warp& w, const Instruction& in) {
    return synchronise(w, in, w.lanes<uint32_t>(in.a), nothing);
}

// ---- Clusters.

Step run_cluster_arrive(Warp& w, const Instruction&) {
    Cluster& cluster = *w.block->cluster;
    for (uint32_t i = 0; i < 32; ++i)
        if (w.mask >> i & 1) w.cluster_phase[i] = cluster.phase;
    cluster.arrive(static_cast<uint32_t>(std::popcount(w.mask)));
    return Step::next;
}

Step run_cluster_wait(Warp& w, const Instruction&) {
    w.stay = 0;
    for (uint32_t i = 0; i < 32; ++i)
        if ((w.mask >> i & 1) && w.cluster_phase[i] >= w.block->cluster->phase) w.stay |= 1u << i;
    return w.stay ? Step::blocked : Step::next;
}

void decode_cluster(Builder& b, const Statement& s) {
    allow_modifiers(s, "cluster", "arrive", "wait", "release", "acquire", "relaxed", "aligned");
    b.emit(s.has("arrive") ? run_cluster_arrive : run_cluster_wait);
}

// bar.red.{or, and}.pred d, a{, b}, {!}c
void decode_reduction(Builder& b, const Statement& s) {
    allow_modifiers(s, "red", "or", "and", "pred", "aligned", "cta");
    const size_t n = s.arguments.size();
    if (!s.has("pred") || s.has("or") == s.has("and") || n < 3 || n > 4) throw UnknownForm{};
    Instruction& in = b.emit(run_bar);
    in.count = s.has("or") ? any_of : all_of;
    in.mode = n > 3;
    in.immediate = s.arguments[n - 1].negated ? 0xFFFFFFFF : 0;
    b.write(&Instruction::d, s.arguments[0], 1);
    b.read(&Instruction::a, s.arguments[1], 32);
    if (n > 3) b.read(&Instruction::b, s.arguments[2], 32);
    b.read(&Instruction::c, s.arguments[n - 1], 1);
}

void decode_bar(Builder& b, const Statement& s) {
    if (s.has("cluster")) return decode_cluster(b, s);
    if (s.has("red")) return decode_reduction(b, s);
    allow_modifiers(s, "sync", "arrive", "warp", "aligned", "cta");
    if (s.has("warp")) {
        b.emit(run_warp_sync);
        return b.read(&Instruction::a, s.arguments.at(0), 32);
    }
    Instruction& in = b.emit(run_bar);
    in.immediate = s.has("arrive");
    in.mode = s.arguments.size() > 1;
    b.read(&Instruction::a, s.arguments.at(0), 32);
    if (s.arguments.size() > 1) b.read(&Instruction::b, s.arguments[1], 32);
}

// ---- mbarriers.

MemoryBarrier load_barrier(const std::byte* at) {
    MemoryBarrier barrier;
    std::memcpy(&barrier, at, sizeof barrier);
    return barrier;
}

void store_barrier(std::byte* at, const MemoryBarrier& barrier) {
    std::memcpy(at, &barrier, sizeof barrier);
}

constexpr uint32_t most_arrivals = (1u << 20) - 2;

const char* what_is_wrong(const MemoryBarrier& barrier) {
    if (barrier.expected == 0 || barrier.expected > most_arrivals)
        return "an mbarrier that is not initialised";
    return nullptr;
}

void end_phase(MemoryBarrier& barrier) {
    if (barrier.pending || barrier.bytes) return;
    barrier.phase ^= 1;
    barrier.pending = barrier.expected;
}

void check(Warp& w, int lane, const char* wrong) {
    if (wrong) w.fault(lane, wrong);
}

Step run_init(Warp& w, const Instruction& in) {
    LaneAddresses addresses;
    find_addresses(w, in, 8, addresses);
    for (int i = 0; i < 32; ++i) {
        if (!(w.mask >> i & 1)) continue;
        const uint32_t count = w.lanes<uint32_t>(in.b)[i];
        if (count == 0 || count > most_arrivals)
            w.fault(i, "an mbarrier of " + std::to_string(count) + " arrivals");
        MemoryBarrier barrier{};
        barrier.pending = barrier.expected = count & 0xFFFFF;
        store_barrier(addresses.at[i], barrier);
    }
    ++w.run->effects;
    return Step::next;
}

Step run_invalidate(Warp& w, const Instruction& in) {
    LaneAddresses addresses;
    find_addresses(w, in, 8, addresses);
    for (int i = 0; i < 32; ++i)
        if (w.mask >> i & 1) std::memset(addresses.at[i], 0xFF, 8);
    return Step::next;
}

// mode of an arrival, above the address's: the bytes to expect are b, the count is c.
Step run_arrive(Warp& w, const Instruction& in) {
    LaneAddresses addresses;
    find_addresses(w, in, 8, addresses);
    uint64_t before[32] = {};
    for (int i = 0; i < 32; ++i) {
        if (!(w.mask >> i & 1)) continue;
        std::memcpy(&before[i], addresses.at[i], 8);
        const int64_t bytes = in.count & 1 ? w.lanes<uint32_t>(in.b)[i] : 0;
        const uint32_t count = in.count & 4 ? 0 : in.count & 2 ? w.lanes<uint32_t>(in.c)[i] : 1;
        check(w, i, arrive_at(addresses.at[i], count, bytes));
    }
    if (in.count & 8) w.store(in.d, before);
    ++w.run->effects;
    return Step::next;
}

Step run_complete(Warp& w, const Instruction& in) {
    LaneAddresses addresses;
    find_addresses(w, in, 8, addresses);
    for (int i = 0; i < 32; ++i)
        if (w.mask >> i & 1)
            check(w, i, complete_bytes(addresses.at[i], w.lanes<uint32_t>(in.b)[i]));
    ++w.run->effects;
    return Step::next;
}

bool is_over(const MemoryBarrier& barrier, const Warp& w, const Instruction& in, int lane) {
    if (in.count & 1) return barrier.phase != (w.lanes<uint32_t>(in.b)[lane] & 1);
    const uint64_t token = w.lanes<uint64_t>(in.b)[lane];
    return barrier.phase != (token & 1);
}

// count bit 0 is set for a parity (else a token), bit 1 for test_wait, which never waits.
Step run_wait(Warp& w, const Instruction& in) {
    LaneAddresses addresses;
    find_addresses(w, in, 8, addresses);
    uint32_t over = 0;
    for (int i = 0; i < 32; ++i) {
        if (!(w.mask >> i & 1)) continue;
        const MemoryBarrier barrier = load_barrier(addresses.at[i]);
        check(w, i, what_is_wrong(barrier));
        over |= static_cast<uint32_t>(is_over(barrier, w, in, i)) << i;
    }
    const uint32_t tested = w.mask;
    if (in.count & 2) {
        w.store_predicate(in.d, over);
        return over == tested ? Step::next : Step::yielded;
    }
    w.mask = over;
    w.store_predicate(in.d, over);
    w.stay = tested & ~over;
    return w.stay ? Step::blocked : Step::next;
}

void decode_arrive(Builder& b, const Statement& s) {
    const bool expects = s.has("expect_tx"), arrives = s.has("arrive");
    const bool has_state = arrives;
    size_t next = 0;
    Instruction& in = b.emit(run_arrive);
    in.space = Space::shared;
    uint8_t form = static_cast<uint8_t>((expects ? 1 : 0) | (arrives ? 0 : 4));
    if (has_state && s.arguments.at(0).kind != Argument::Kind::address) {
        if (s.arguments[0].text != "_") form |= 8, b.write(&Instruction::d, s.arguments[0], 64);
        ++next;
    }
    b.read_address(s.arguments.at(next++));
    if (expects) {
        b.read(&Instruction::b, s.arguments.at(next++), 32);
    } else if (next < s.arguments.size()) {
        form |= 2;
        b.read(&Instruction::c, s.arguments[next++], 32);
    }
    if (next != s.arguments.size()) throw UnknownForm{};
    b.last().count = form;
}

void decode_wait(Builder& b, const Statement& s) {
    const bool by_parity = s.has("parity");
    Instruction& in = b.emit(run_wait);
    in.space = Space::shared;
    in.count = static_cast<uint8_t>((by_parity ? 1 : 0) | (s.has("test_wait") ? 2 : 0));
    b.write(&Instruction::d, s.arguments.at(0), 1);
    b.read_address(s.arguments.at(1));
    b.read(&Instruction::b, s.arguments.at(2), by_parity ? 32 : 64);
}

void decode_mbarrier(Builder& b, const Statement& s) {
    allow_modifiers(s, "init", "inval", "arrive", "expect_tx", "complete_tx", "try_wait",
                    "test_wait", "parity", "shared", "shared::cta", "shared::cluster", "release",
                    "acquire", "relaxed", "cta", "cluster");
    if (s.has("try_wait") || s.has("test_wait")) return decode_wait(b, s);
    if (s.has("arrive") || s.has("expect_tx")) return decode_arrive(b, s);
    Instruction& in = b.emit(s.has("init")    ? run_init
                             : s.has("inval") ? run_invalidate
                                              : run_complete);
    in.space = Space::shared;
    b.read_address(s.arguments.at(0));
    if (!s.has("inval")) b.read(&Instruction::b, s.arguments.at(1), 32);
}

}  // namespace

const char* arrive_at(std::byte* at, uint32_t count, int64_t expected_bytes) {
    MemoryBarrier barrier = load_barrier(at);
    if (const char* wrong = what_is_wrong(barrier)) return wrong;
    if (count > barrier.pending) return "more arrivals at an mbarrier than it expects";
    if (barrier.bytes + expected_bytes >= 1 << 20) return "an mbarrier that expects too many bytes";
    barrier.bytes += expected_bytes;
    barrier.pending -= count;
    end_phase(barrier);
    store_barrier(at, barrier);
    return nullptr;
}

const char* complete_bytes(std::byte* at, uint32_t bytes) {
    MemoryBarrier barrier = load_barrier(at);
    if (const char* wrong = what_is_wrong(barrier)) return wrong;
    if (barrier.bytes - static_cast<int64_t>(bytes) <= -(1 << 20))
        return "more bytes at an mbarrier than it can count";
    barrier.bytes -= bytes;
    end_phase(barrier);
    store_barrier(at, barrier);
    return nullptr;
}

std::vector<DecoderEntry> barrier_decoders() {
    return {{"bar", decode_bar}, {"barrier", decode_bar}, {"mbarrier", decode_mbarrier}};
}

}  // namespace emulator
