// Schedules blocks, clusters and their warps; warp.hpp declares them. It keeps a number of clusters
// resident, gives every warp a slice of instructions in turn, and reports a deadlock when nothing
// advances.
#include <algorithm>
#include <utility>

#include "tests/emulator/warp.hpp"

namespace emulator {
namespace {

constexpr int slice = 8192;
// This many instructions without progress are a deadlock.
constexpr uint64_t patience = 300'000'000;
constexpr uint64_t early_patience = 1'000'000;  // limit while earlier launches have not ended

uint32_t volume(const Dim3& d) {
    return d.x * d.y * d.z;
}

}  // namespace

std::byte* Block::at(uint32_t address, uint32_t bytes) {
    if (address < shared_base ||
        uint64_t{address} + bytes > uint64_t{shared_base} + run->shared_bytes)
        return nullptr;
    // Unwritten memory reads as NaN.
    if (shared.empty()) shared.assign(run->shared_bytes, std::byte{0xFF});
    return shared.data() + (address - shared_base);
}

uint32_t Block::thread_count() const {
    return volume(run->launch->block);
}

void Block::release(int barrier) {
    const BlockBarrier complete = std::exchange(barriers[static_cast<size_t>(barrier)], {});
    ++run->effects;
    for (auto& warp : warps) {
        if (warp->barrier != barrier) continue;
        warp->barrier = -1;
        warp->is_released = true;
        warp->released_by = complete;
    }
}

// A warp has ended, so barriers of all warps may be complete now.
void Block::check_barriers() {
    for (int i = 0; i < 16; ++i) {
        const BlockBarrier& barrier = barriers[static_cast<size_t>(i)];
        if (barrier.arrived && !barrier.expected && barrier.arrived >= live_warps * 32) release(i);
    }
}

void Block::let_next_begin() {
    if (std::exchange(lets_next_begin, true)) return;
    --run->holding;
}

void Cluster::arrive(uint32_t threads) {
    arrived += threads;
    if (arrived < live_threads || arrived == 0) return;
    arrived = 0;
    ++phase;
    ++blocks[0]->run->effects;
}

void Cluster::leave(uint32_t threads) {
    live_threads -= threads;
    arrive(0);
}

bool Run::is_allowed(uintptr_t address, uint64_t bytes) {
    const auto parameter_begin = reinterpret_cast<uintptr_t>(parameters.data());
    const uintptr_t parameter_end = parameter_begin + parameters.size() * 8;
    uintptr_t begin = 0;
    uintptr_t end = memory->end_of(address, &begin);
    if (!end) end = variables->end_of(address, &begin);
    if (!end && address >= parameter_begin && address < parameter_end)
        begin = parameter_begin, end = parameter_end;
    if (!end || bytes > end - address) return false;
    known[1] = known[0];
    known[0] = {begin, end};
    return true;
}

std::unique_ptr<Warp> Run::take_warp() {
    if (spare_warps.empty()) {
        auto warp = std::make_unique<Warp>();
        const size_t bytes = kernel->register_bytes + size_t{kernel->local_bytes} * 32;
        warp->memory.resize((bytes + 63) / 8 + 8);
        auto* memory = reinterpret_cast<std::byte*>(warp->memory.data());
        memory += (64 - reinterpret_cast<uintptr_t>(memory) % 64) % 64;
        warp->bases[0] = memory;
        warp->bases[1] =
            const_cast<std::byte*>(reinterpret_cast<const std::byte*>(kernel->constants.data()));
        warp->local = memory + kernel->register_bytes;
        warp->code = kernel->code.data();
        warp->run = this;
        return warp;
    }
    std::unique_ptr<Warp> warp = std::move(spare_warps.back());
    spare_warps.pop_back();
    warp->waiting = warp->pc = 0;
    warp->pcs.fill(0);
    warp->is_starved = warp->is_released = false;
    warp->barrier = -1;
    warp->cluster_phase.fill(0);
    warp->groups.fill(0);
    warp->copies.clear();
    return warp;
}

std::unique_ptr<Cluster> Run::start(uint64_t index) {
    const Dim3 &grid = launch->grid, &shape = launch->cluster;
    const uint64_t nx = grid.x / shape.x, ny = grid.y / shape.y;
    auto cluster = std::make_unique<Cluster>();
    cluster->index = {static_cast<uint32_t>(index % nx), static_cast<uint32_t>(index / nx % ny),
                      static_cast<uint32_t>(index / nx / ny)};
    const uint32_t threads = volume(launch->block);
    for (uint32_t rank = 0; rank < volume(shape); ++rank) {
        auto block = std::make_unique<Block>();
        block->run = this;
        block->cluster = cluster.get();
        block->rank = rank;
        block->index = {cluster->index.x * shape.x + rank % shape.x,
                        cluster->index.y * shape.y + rank / shape.x % shape.y,
                        cluster->index.z * shape.z + rank / shape.x / shape.y};
        for (uint32_t first = 0; first < threads; first += 32) {
            auto warp = take_warp();
            const uint32_t n = std::min(threads - first, 32u);
            warp->live = n == 32 ? all_lanes : (1u << n) - 1;
            warp->index = first / 32;
            warp->block = block.get();
            for (const auto& [offset, bytes] : kernel->unset)
                std::memset(warp->bases[0] + offset, 0xFF, bytes);
            if (kernel->local_bytes)
                std::memset(warp->local, 0xFF, size_t{kernel->local_bytes} * 32);
            block->warps.push_back(std::move(warp));
        }
        block->live_warps = static_cast<uint32_t>(block->warps.size());
        block->is_backwards = (index + rank) % 2 == 0;
        cluster->live_threads += threads;
        cluster->blocks.push_back(std::move(block));
    }
    return cluster;
}

// Runs each warp for a slice. Returns whether anything advanced.
bool Run::take_turn(Cluster& cluster, bool& is_done) {
    bool went_on = false;
    is_done = true;
    for (auto& block : cluster.blocks) {
        ++block->turn;
        went_on |= block->deliver(false);
        // Every other block runs its warps from the last to the first, so that no single order
        // hides a missing barrier.
        const size_t n = block->warps.size();
        for (size_t i = 0; i < n; ++i) {
            const auto& warp = block->warps[block->is_backwards ? n - 1 - i : i];
            if (!warp->live || warp->barrier >= 0) continue;
            const uint64_t before = warp->done;
            warp->run_slice(slice);
            time += warp->done - before;
            went_on |= warp->done != before;
        }
        is_done &= block->live_warps == 0;
    }
    return went_on;
}

// Completes pending copies and frees the memory of the cluster's warps.
void Run::retire(Cluster& cluster) {
    for (auto& block : cluster.blocks) {
        for (uint32_t thread = 0; !block->stores.empty() && thread < block->thread_count();
             ++thread)
            block->finish_stores(thread, UINT64_MAX);
        block->deliver(true);
        block->let_next_begin();
        for (auto& warp : block->warps) spare_warps.push_back(std::move(warp));
    }
}

void Run::report_deadlock(const std::vector<std::unique_ptr<Cluster>>& residents,
                          const char* why) const {
    std::string text = std::string("deadlock in ") + kernel->name + ", " + why + ":";
    int shown = 0;
    for (const auto& cluster : residents)
        for (const auto& block : cluster->blocks)
            for (const auto& warp : block->warps)
                if (warp->live && shown++ < 6) text += "\n  " + warp->where();
    throw Fault(text);
}

void Run::execute(Progress& progress, uint64_t at_once) {
    const uint64_t n = uint64_t{volume(launch->grid)} / volume(launch->cluster);
    std::vector<std::unique_ptr<Cluster>> residents;
    uint64_t own_effects = 0, last_effects = 0, last_time = 0, next = 0;
    const auto has_next = [&] { return next < n && (next = progress.next++) < n; };
    bool has_said = false;
    holding = volume(launch->grid);
    is_ahead = neighbours && neighbours->has_earlier();
    for (bool is_done = false; !progress.is_over;) {
        bool went_on = false;
        for (size_t i = 0; i < residents.size();) {
            went_on |= take_turn(*residents[i], is_done);
            if (is_done) {
                retire(*residents[i]);
                std::swap(residents[i], residents.back());
                residents.pop_back();
            } else {
                ++i;
            }
        }
        while (residents.size() < at_once && has_next()) {
            residents.push_back(start(next));
            went_on = true;
            take_turn(*residents.back(), is_done);
            if (!is_done) continue;
            retire(*residents.back());
            residents.pop_back();
        }
        if (residents.empty()) return;
        if (neighbours && holding == 0 && !std::exchange(has_said, true))
            neighbours->let_next_begin();
        if (!went_on) {
            for (auto& cluster : residents)
                for (auto& block : cluster->blocks) went_on |= block->deliver(true);
            if (!went_on && !is_ahead) report_deadlock(residents, "all threads wait");
        }
        const uint64_t all = progress.effects += effects - own_effects;
        own_effects = effects;
        if (all != last_effects) last_effects = all, last_time = time;
        // The remaining clusters wait for earlier launches, or for clusters that do.
        if (is_ahead && (!went_on || time - last_time > early_patience)) {
            neighbours->end_earlier();
            is_ahead = false;
            last_time = time;
        }
        if (time - last_time > patience) report_deadlock(residents, "threads spin in vain");
    }
}

}  // namespace emulator
