// Implements cp.async and cp.async.bulk as late as the rules allow, so that a kernel that reads
// before it waits gets the old data. Copies of threads happen at their wait, bulk loads and the
// arrivals behind copies some turns of the block later, bulk stores when their thread waits.
#include <algorithm>

#include "tests/emulator/access.hpp"

namespace emulator {
namespace {

// Turns of the block after which an event happens without a wait.
constexpr uint64_t delay = 2;

// ---- Copies of threads. a: shared address, b: global, c: bytes to read; bytes: total.

Step run_copy(Warp& w, const Instruction& in) {
    LaneAddresses to;
    find_addresses(w, in, in.bytes, to);
    const auto* from = w.lanes<uint64_t>(in.b);
    for (uint32_t i = 0; i < 32; ++i) {
        if (!(w.mask >> i & 1)) continue;
        const int lane = static_cast<int>(i);
        const uint32_t present = in.count ? w.lanes<uint32_t>(in.c)[i] : in.bytes;
        const uint64_t source = from[i] + static_cast<uint64_t>(in.e);
        if (present > in.bytes) w.fault(lane, "cp.async of more bytes than its size");
        if (source % in.bytes) w.fault(lane, "the source of a cp.async is not aligned");
        if (present) global_address(w, lane, source, present);
        const auto offset = static_cast<uint32_t>(to.at[i] - w.block->shared.data());
        w.copies.push_back({i, offset, reinterpret_cast<const std::byte*>(source), in.bytes,
                            present, w.groups[i], w.copy_serial++});
    }
    return Step::next;
}

void decode_copy(Builder& b, const Statement& s) {
    allow_modifiers(s, "async", "ca", "cg", "shared", "shared::cta", "global", "L2::128B",
                    "L2::256B", "L2::64B", "L2::cache_hint");
    if (s.arguments.size() < 3 || s.arguments[2].kind != Argument::Kind::number)
        throw UnknownForm{};
    Instruction& in = b.emit(run_copy);
    in.space = Space::shared;
    in.bytes = static_cast<uint8_t>(s.arguments[2].bits);
    if (in.bytes != 4 && in.bytes != 8 && in.bytes != 16) throw UnknownForm{};
    const bool has_hint = s.has("L2::cache_hint");
    in.count = s.arguments.size() > (has_hint ? 4u : 3u);
    b.read_address(s.arguments[0]);
    Argument from = s.arguments[1];
    in.e = static_cast<uint32_t>(from.offset);
    if (from.offset < 0) throw UnknownForm{};
    from.kind = Argument::Kind::name;
    b.read(&Instruction::b, from, 64);
    if (in.count) b.read(&Instruction::c, s.arguments[3], 32);
}

Step run_commit(Warp& w, const Instruction&) {
    for (uint32_t i = 0; i < 32; ++i) w.groups[i] += w.mask >> i & 1;
    return Step::next;
}

// immediate is the number of groups that may stay pending. -1 also waits for copies outside of
// groups.
Step run_copy_wait(Warp& w, const Instruction& in) {
    if (in.immediate < 0) {
        finish_copies(w, w.mask, nullptr, UINT64_MAX);
        return Step::next;
    }
    const auto pending = static_cast<uint64_t>(in.immediate);
    uint64_t groups[32];
    for (size_t i = 0; i < 32; ++i) groups[i] = w.groups[i] < pending ? 0 : w.groups[i] - pending;
    finish_copies(w, w.mask, groups, UINT64_MAX);
    return Step::next;
}

// Without .noinc the mbarrier expects one more arrival.
void add_pending(std::byte* at) {
    MemoryBarrier barrier;
    std::memcpy(&barrier, at, sizeof barrier);
    barrier.pending += 1;
    std::memcpy(at, &barrier, sizeof barrier);
}

// Arrives when the threads' copies so far are complete, with one event for each mbarrier.
Step run_copy_arrive(Warp& w, const Instruction& in) {
    LaneAddresses addresses;
    find_addresses(w, in, 8, addresses);
    for (uint32_t remaining = w.mask; remaining;) {
        std::byte* at = addresses.at[std::countr_zero(remaining)];
        uint32_t same = 0;
        for (uint32_t i = 0; i < 32; ++i)
            if ((remaining >> i & 1) && addresses.at[i] == at) same |= 1u << i;
        remaining &= ~same;
        if (!in.count)
            for (int i = std::popcount(same); i > 0; --i) add_pending(at);
        LateEvent event{};
        event.kind = LateEvent::Kind::arrival;
        event.due = w.block->turn + delay;
        event.barrier = static_cast<uint32_t>(at - w.block->shared.data());
        event.warp = w.index, event.lanes = same, event.serial = w.copy_serial;
        w.block->late.push_back(event);
    }
    return Step::next;
}

// ---- Copies in bulk.

void check_bulk(Warp& w, int lane, uint64_t global, uint64_t shared, uint32_t bytes) {
    if (bytes % 16 || global % 16 || shared % 16)
        w.fault(lane, "a bulk copy of " + std::to_string(bytes) +
                          " bytes, whose size or addresses are not multiples of 16,");
    if (bytes) global_address(w, lane, global, bytes);
}

// a is the shared address, b the global one, c the bytes, e the mbarrier.
Step run_bulk_load(Warp& w, const Instruction& in) {
    for (uint32_t i = 0; i < 32; ++i) {
        if (!(w.mask >> i & 1)) continue;
        const int lane = static_cast<int>(i);
        const uint32_t to = w.lanes<uint32_t>(in.a)[i], bytes = w.lanes<uint32_t>(in.c)[i];
        const uint64_t from = w.lanes<uint64_t>(in.b)[i];
        const uint32_t barrier = w.lanes<uint32_t>(in.e)[i];
        check_bulk(w, lane, from, to, bytes);
        if (to >> cluster_shift && (to >> cluster_shift) != w.block->rank + 1)
            w.fault(lane, "a bulk copy into another block, which the emulator cannot,");
        std::byte* target = shared_at(w, lane, to, bytes);
        std::byte* word = shared_at(w, lane, barrier, 8);
        LateEvent event{};
        event.kind = LateEvent::Kind::load;
        event.due = w.block->turn + delay;
        event.to = static_cast<uint32_t>(target - w.block->shared.data());
        event.barrier = static_cast<uint32_t>(word - w.block->shared.data());
        event.from = reinterpret_cast<const std::byte*>(from);
        event.bytes = bytes;
        w.block->late.push_back(event);
    }
    return Step::next;
}

// a is the global address, b the bytes. A prefetch moves nothing, but its bytes must exist.
Step run_bulk_prefetch(Warp& w, const Instruction& in) {
    for (uint32_t i = 0; i < 32; ++i)
        if (w.mask >> i & 1)
            check_bulk(w, static_cast<int>(i), w.lanes<uint64_t>(in.a)[i], 0,
                       w.lanes<uint32_t>(in.b)[i]);
    return Step::next;
}

uint32_t thread_of(const Warp& w, uint32_t lane) {
    return w.index * 32 + lane;
}

uint64_t& store_group(Block& block, uint32_t thread) {
    if (block.store_groups.empty()) block.store_groups.resize(block.warps.size() * 32);
    return block.store_groups[thread];
}

// a is the global address, b the shared one, c the bytes.
Step run_bulk_store(Warp& w, const Instruction& in) {
    for (uint32_t i = 0; i < 32; ++i) {
        if (!(w.mask >> i & 1)) continue;
        const int lane = static_cast<int>(i);
        const uint64_t to = w.lanes<uint64_t>(in.a)[i];
        const uint32_t from = w.lanes<uint32_t>(in.b)[i], bytes = w.lanes<uint32_t>(in.c)[i];
        check_bulk(w, lane, to, from, bytes);
        std::byte* target = shared_at(w, lane, from, bytes);
        const uint32_t thread = thread_of(w, i);
        BulkStore store{};
        store.thread = thread;
        store.to = reinterpret_cast<std::byte*>(to);
        store.from = static_cast<uint32_t>(target - w.block->shared.data());
        store.bytes = bytes;
        store.group = store_group(*w.block, thread);
        w.block->stores.push_back(store);
    }
    return Step::next;
}

Step run_bulk_commit(Warp& w, const Instruction&) {
    for (uint32_t i = 0; i < 32; ++i)
        if (w.mask >> i & 1) ++store_group(*w.block, thread_of(w, i));
    return Step::next;
}

Step run_bulk_wait(Warp& w, const Instruction& in) {
    if (w.block->stores.empty()) return Step::next;
    for (uint32_t i = 0; i < 32; ++i) {
        if (!(w.mask >> i & 1)) continue;
        const uint32_t thread = thread_of(w, i);
        const uint64_t committed = store_group(*w.block, thread);
        const auto pending = static_cast<uint64_t>(in.immediate);
        if (committed > pending) w.block->finish_stores(thread, committed - pending);
    }
    return Step::next;
}

const Argument& address_argument(const Statement& s, size_t i, Argument& storage) {
    storage = s.arguments.at(i);
    if (storage.kind != Argument::Kind::address || storage.offset) throw UnknownForm{};
    storage.kind = Argument::Kind::name;
    return storage;
}

void decode_bulk(Builder& b, const Statement& s) {
    allow_modifiers(s, "async", "bulk", "shared::cluster", "shared::cta", "global",
                    "mbarrier::complete_tx::bytes", "bulk_group", "L2::cache_hint", "prefetch",
                    "L2");
    Argument storage;
    const size_t n = s.arguments.size() - s.has("L2::cache_hint");
    if (s.opcode[2] != "bulk") throw UnknownForm{};
    if (s.has("prefetch")) {
        if (n != 2 || !s.has("L2")) throw UnknownForm{};
        b.emit(run_bulk_prefetch);
        b.read(&Instruction::a, address_argument(s, 0, storage), 64);
        return b.read(&Instruction::b, s.arguments[1], 32);
    }
    if (s.has("mbarrier::complete_tx::bytes")) {
        if (n != 4 || !s.has("global")) throw UnknownForm{};
        b.emit(run_bulk_load);
        b.read(&Instruction::a, address_argument(s, 0, storage), 32);
        b.read(&Instruction::b, address_argument(s, 1, storage), 64);
        b.read(&Instruction::c, s.arguments[2], 32);
        return b.read(&Instruction::e, address_argument(s, 3, storage), 32);
    }
    if (n != 3) throw UnknownForm{};
    b.emit(run_bulk_store);
    b.read(&Instruction::a, address_argument(s, 0, storage), 64);
    b.read(&Instruction::b, address_argument(s, 1, storage), 32);
    b.read(&Instruction::c, s.arguments[2], 32);
}

void decode_wait_or_commit(Builder& b, const Statement& s) {
    const bool is_bulk = s.has("bulk");
    if (s.has("commit_group")) {
        b.emit(is_bulk ? run_bulk_commit : run_commit);
        return;
    }
    Instruction& in = b.emit(is_bulk ? run_bulk_wait : run_copy_wait);
    if (s.has("wait_all")) {
        in.immediate = -1;
    } else {
        if (s.arguments.at(0).kind != Argument::Kind::number) throw UnknownForm{};
        in.immediate = static_cast<int64_t>(s.arguments[0].bits);
    }
}

void decode_cp(Builder& b, const Statement& s) {
    if (s.opcode.size() < 3) throw UnknownForm{};
    if (s.has("commit_group") || s.has("wait_group") || s.has("wait_all"))
        return decode_wait_or_commit(b, s);
    if (s.has("mbarrier")) {
        Instruction& in = b.emit(run_copy_arrive);
        in.space = Space::shared;
        in.count = s.has("noinc");
        return b.read_address(s.arguments.at(0));
    }
    if (s.has("bulk")) return decode_bulk(b, s);
    decode_copy(b, s);
}

}  // namespace

void finish_copies(Warp& w, uint32_t lanes, const uint64_t* groups, uint64_t serial) {
    if (w.copies.empty()) return;
    std::byte* shared = w.block->shared.data();
    const auto is_due = [&](const ThreadCopy& copy) {
        if (!(lanes >> copy.lane & 1) || copy.serial >= serial) return false;
        if (groups && copy.group >= groups[copy.lane]) return false;
        std::memcpy(shared + copy.to, copy.from, copy.present);
        std::memset(shared + copy.to + copy.present, 0, copy.bytes - copy.present);
        return true;
    };
    w.run->effects += std::erase_if(w.copies, is_due);
}

bool Block::deliver(bool all) {
    bool any = false;
    while (!late.empty() && (all || late.front().due <= turn)) {
        const LateEvent event = late.front();
        late.pop_front();
        any = true;
        ++run->effects;
        Warp& warp = *warps[event.warp];
        const char* wrong = nullptr;
        if (event.kind == LateEvent::Kind::load) {
            std::memcpy(shared.data() + event.to, event.from, event.bytes);
            wrong = complete_bytes(shared.data() + event.barrier, event.bytes);
        } else {
            finish_copies(warp, event.lanes, nullptr, event.serial);
            const auto arrivals = static_cast<uint32_t>(std::popcount(event.lanes));
            wrong = arrive_at(shared.data() + event.barrier, arrivals, 0);
        }
        if (wrong && live_warps)
            throw Fault(std::string(wrong) + ", by an asynchronous copy, in " + run->kernel->name +
                        ", near " + warp.where());
    }
    return any;
}

// Completes the bulk stores of a thread in its first groups.
void Block::finish_stores(uint32_t thread, uint64_t groups) {
    std::erase_if(stores, [&](const BulkStore& store) {
        if (store.thread != thread || store.group >= groups) return false;
        std::memcpy(store.to, shared.data() + store.from, store.bytes);
        ++run->effects;
        return true;
    });
}

std::vector<DecoderEntry> copy_decoders() {
    return {{"cp", decode_cp}};
}

}  // namespace emulator
