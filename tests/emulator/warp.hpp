// State of a running launch: warps, thread blocks, clusters and the launch itself.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "tests/emulator/instruction.hpp"

namespace emulator {

struct Block;
struct Run;

constexpr uint32_t all_lanes = ~0u;

// A cp.async copy that a thread has issued and not waited for.
struct ThreadCopy {
    uint32_t lane, to;
    const std::byte* from;
    uint32_t bytes, present;  // `present` of `bytes` are read, the others are zero
    uint64_t group;           // copy group of the thread
    uint64_t serial;
};

struct BlockBarrier {
    uint32_t arrived = 0, expected = 0;
    bool any = false, all = true;  // of the predicates of bar.red so far
};

// Lanes at the same instruction run together. Among several such groups the one with the lowest pc
// runs first, so that they reconverge.
struct Warp {
    const Instruction* code = nullptr;
    std::byte* bases[2] = {nullptr, nullptr};  // registers, constants
    uint32_t mask = 0;                         // lanes of this instruction
    uint32_t active = 0;                       // lanes of the group that runs
    uint32_t live = 0;                         // lanes that have not ended
    uint32_t waiting = 0;                      // lanes that are blocked
    uint32_t stay = 0;                         // set by handlers, see Step::blocked
    uint32_t pc = 0;
    uint32_t next_group = UINT32_MAX;  // pc of the next group
    std::array<uint32_t, 32> pcs{};    // pc of lanes outside the group
    int budget = 0;
    bool is_starved = false;                   // another group waits although this one ran long
    int barrier = -1;                          // barrier at which the warp waits
    bool is_released = false;                  // the barrier is complete
    BlockBarrier released_by;                  // it
    std::array<uint64_t, 32> cluster_phase{};  // phase of the last arrival
    uint32_t index = 0;                        // in the block
    uint64_t done = 0;                         // instructions that advanced
    Block* block = nullptr;
    Run* run = nullptr;
    std::byte* local = nullptr;
    std::vector<uint64_t> memory;  // storage of bases[0] and local
    // cp.async copies of the threads.
    std::vector<ThreadCopy> copies;
    std::array<uint64_t, 32> groups{};  // committed groups of each thread
    uint64_t copy_serial = 0;

    template <class T>
    T* lanes(uint32_t operand) const {
        return reinterpret_cast<T*>(bases[operand >> 31] + (operand & ~constant_bit));
    }
    uint32_t& predicate(uint32_t operand) const { return *lanes<uint32_t>(operand); }

    template <class T>
    void store(uint32_t operand, const T* values) {
        T* to = lanes<T>(operand);
        const uint32_t lanes = mask;
        if (lanes == all_lanes) {
            std::memcpy(to, values, 32 * sizeof(T));
        } else {
            for (int i = 0; i < 32; ++i) to[i] = lanes >> i & 1 ? values[i] : to[i];
        }
    }
    void store_predicate(uint32_t operand, uint32_t bits) {
        uint32_t& to = predicate(operand);
        to = (to & ~mask) | (bits & mask);
    }

    int first_lane() const { return std::countr_zero(mask); }
    // Runs until nothing advances or the budget is spent.
    void run_slice(int instructions);
    void regroup();
    void leave(uint32_t lanes);
    [[noreturn]] void fault(int lane, const std::string& what) const;
    std::string where() const;
};

// mbarriers are words of shared memory.
struct MemoryBarrier {
    uint64_t phase : 1, pending : 20, expected : 20;
    int64_t bytes : 23;
};
static_assert(sizeof(MemoryBarrier) == 8);

// A delayed event: a bulk copy, or an arrival behind copies of threads.
struct LateEvent {
    enum class Kind : uint8_t { load, arrival } kind;
    uint64_t due;  // turn of the block when it happens
    uint32_t to = 0, bytes = 0, barrier = 0;
    const std::byte* from = nullptr;
    uint32_t warp = 0, lanes = 0;
    uint64_t serial = 0;  // serial of the threads' last copy
};

struct BulkStore {
    uint32_t thread;
    std::byte* to;
    uint32_t from, bytes;
    uint64_t group;
};

struct Cluster;

struct Block {
    Run* run = nullptr;
    Cluster* cluster = nullptr;
    uint32_t rank = 0;
    Dim3 index;
    std::vector<std::byte> shared;  // begins at shared_base; empty until its first use
    std::vector<std::unique_ptr<Warp>> warps;
    uint32_t live_warps = 0;
    bool is_backwards = false;  // its last warp runs first
    bool lets_next_begin = false;
    std::array<BlockBarrier, 16> barriers{};
    uint64_t turn = 0;
    std::deque<LateEvent> late;
    std::vector<BulkStore> stores;
    std::vector<uint64_t> store_groups;  // committed groups of each thread

    // Returns the bytes at a shared address of this block; nullptr if they are out of range.
    std::byte* at(uint32_t address, uint32_t bytes);
    void release(int barrier);
    void check_barriers();
    void let_next_begin();
    // Delivers the events that are due, or all.
    bool deliver(bool all);
    void finish_stores(uint32_t thread, uint64_t groups);
    uint32_t thread_count() const;
};

struct Cluster {
    std::vector<std::unique_ptr<Block>> blocks;
    Dim3 index;
    uint32_t arrived = 0, live_threads = 0;
    uint64_t phase = 0;

    void arrive(uint32_t threads);
    void leave(uint32_t threads);
};

// State that the host threads of one launch share.
struct Progress {
    std::atomic<uint64_t> next{0};     // next cluster to start
    std::atomic<uint64_t> effects{0};  // sum over the host threads
    std::atomic<bool> is_over{false};  // a fault has ended the launch
};

// One launch, or the part of it that one host thread runs.
struct Run {
    const Memory* memory = nullptr;
    const Memory* variables = nullptr;
    const Kernel* kernel = nullptr;
    const Launch* launch = nullptr;
    std::vector<uint64_t> parameters;
    uint32_t shared_bytes = 0;  // per block, without the reserved bytes
    Neighbours* neighbours = nullptr;
    bool is_ahead = false;  // earlier launches have not ended
    uint64_t holding = 0;   // blocks that have not let the next launch begin
    uint64_t effects = 0;   // stores and other signs of progress
    uint64_t time = 0;
    // The last two allocations that were accessed.
    std::array<std::pair<uintptr_t, uintptr_t>, 2> known{};
    std::vector<std::unique_ptr<Warp>> spare_warps;

    // Tells whether one allocation holds all of it.
    bool is_allowed(uintptr_t address, uint64_t bytes);
    bool is_known(uintptr_t low, uintptr_t high) const {
        return (low >= known[0].first && high <= known[0].second) ||
               (low >= known[1].first && high <= known[1].second);
    }
    void execute(Progress& progress, uint64_t clusters_at_once);

  private:
    std::unique_ptr<Cluster> start(uint64_t index);
    std::unique_ptr<Warp> take_warp();
    bool take_turn(Cluster& cluster, bool& is_done);
    void retire(Cluster& cluster);
    [[noreturn]] void report_deadlock(const std::vector<std::unique_ptr<Cluster>>& residents,
                                      const char* why) const;
};

// Runs `op` for each complete set of lanes of a .sync instruction. `members` gives the lanes that
// each lane names. The handler returns the result.
using SyncHandler = void (*)(Warp&, const Instruction&);
Step synchronise(Warp& warp, const Instruction& in, const uint32_t* members, SyncHandler op);
// The same for all live lanes. It returns false while lanes are missing; the handler then returns
// Step::blocked.
bool gather_all(Warp& warp);

// Returns the shared memory behind an address, which may belong to another block of the cluster.
std::byte* shared_at(Warp& warp, int lane, uint32_t address, uint32_t bytes);
// Completes the copies of these lanes that began before `serial`, in groups before the lane's of
// `groups` (nullptr: in any, or none).
void finish_copies(Warp& warp, uint32_t lanes, const uint64_t* groups, uint64_t serial);

// Operations on an mbarrier in shared memory. They return an error text, or nullptr.
const char* arrive_at(std::byte* barrier, uint32_t count, int64_t expected_bytes);
const char* complete_bytes(std::byte* barrier, uint32_t bytes);

}  // namespace emulator
