// Rows that the caller has sorted by expert: listed as they lie, or converted into slots with an
// expert each.
//
// list_rows, one launch:
// Inputs: CallerRows: offsets [n_local + 1] and counts [n_local] of int64, row_ids [n_rows] of
// int32; a window of n rows, up to 4096 experts.
// Outputs: begin, count and tiles of the experts; the caller's row and the input row of each row.
//   1. every block finds the rows that each expert has in the window, and lays out the experts
//   2. blocks share the rows of all experts
// Shared memory: ListShared. By slot, clear_slots precedes.
//
// Few slots of few rows (slots_of_few_rows) are made by one thread block, in shared memory; others
// by three launches.
//
// Inputs: CallerRows: offsets [n_local + 1] and counts [n_local] of int64, row_ids [n_rows] of
// int32; a window of n slots; scratch keys [n] of uint64.
// Outputs: SlotsOut: local expert, source row and weight of each slot of the window.
//
// The three launches:
//   1. fill_keys: every key becomes no_row
//   2. mark_rows: a thread block per expert walks its rows and takes the atomic minimum of (expert,
//      row) in the key of each slot, so the lowest expert and row win in any order of execution
//   3. unpack: keys become experts, rows and weights
#include "libmoe/cuda/dispatch/caller_rows.hpp"

#include <algorithm>

#include "libmoe/cuda/device/call.cuh"
#include "libmoe/cuda/device/dependent_launch.cuh"
#include "libmoe/cuda/dispatch/lay_out.cuh"
#include "libmoe/cuda/dispatch/tiles.hpp"
#include "libmoe/cuda/runtime/launch.cuh"
#include "moe/moe.h"

namespace moe::cuda {
namespace {

constexpr int n_threads = 256;
constexpr unsigned long long no_row = ~0ull;

__device__ int64_t first_row(const CallerRows& rows, int32_t e) {
    return rows.offsets ? clamp_to_range(rows.offsets[e], 0, rows.n_rows) : e * rows.batch_capacity;
}

__device__ int64_t end_row(const CallerRows& rows, int32_t e) {
    const int64_t first = first_row(rows, e);
    const int64_t limit = rows.offsets ? clamp_to_range(rows.offsets[e + 1], first, rows.n_rows)
                                       : first + rows.batch_capacity;
    return rows.counts ? first + clamp_to_range(rows.counts[e], 0, limit - first) : limit;
}

__device__ bool breaks_rules(const CallerRows& rows, int32_t e) {
    if (!rows.offsets)
        return rows.counts && (rows.counts[e] < 0 || rows.counts[e] > rows.batch_capacity);
    return rows.offsets[e] < 0 || rows.offsets[e + 1] < rows.offsets[e] ||
           rows.offsets[e + 1] > rows.n_rows ||
           (rows.counts &&
            (rows.counts[e] < 0 || rows.counts[e] > end_row(rows, e) - first_row(rows, e)));
}

// Returns the slot of a row, -1 for padding and for ids out of range.
__device__ int64_t slot_of(const CallerRows& rows, int64_t row) {
    const int64_t slot = rows.row_ids[row];
    return slot < 0 || (rows.n_slots && slot >= rows.n_slots) ? -1 : slot;
}

__global__ void mark_rows(CallerRows rows, SlotWindow window, unsigned long long* keys,
                          bool report_faults, FaultWords* faults) {
    begin_after_previous_kernel();
    const auto e = static_cast<int32_t>(blockIdx.x);
    unsigned long long n_bad = report_faults && threadIdx.x == 0 && breaks_rules(rows, e);
    const int64_t end = end_row(rows, e);
    for (int64_t row = first_row(rows, e) + threadIdx.x; row < end; row += n_threads) {
        const int64_t slot = rows.row_ids ? slot_of(rows, row) : row;
        if (slot < 0) {
            n_bad += report_faults && rows.row_ids[row] != -1;
            continue;
        }
        const int64_t offset = (window.by_row ? row : slot) - window.first;
        if (offset < 0 || offset >= window.n) continue;
        atomicMin(&keys[offset],
                  static_cast<unsigned long long>(e) << 32 | static_cast<uint32_t>(row));
    }
    if (n_bad) report_fault(faults, MOE_FAULT_OFFSETS_OUT_OF_RANGE, n_bad);
}

__device__ float row_weight(const CallerRows& rows, const SlotsOut& out, int64_t row) {
    if (out.row_weights) return out.row_weights[row];
    if (!out.given_weights || !rows.row_ids) return 1.0f;
    const int64_t slot = slot_of(rows, row);
    return slot < 0 ? 1.0f
                    : out.given_weights[slot / out.top_k * out.given_stride + slot % out.top_k];
}

// Slot s of n, or, beyond them, a padding row.
__device__ void store_slot(const CallerRows& rows, int32_t n, int32_t s, unsigned long long key,
                           const SlotsOut& out) {
    const bool found = key != no_row;
    if (s >= n) {
        if (out.source) out.source[s] = -1;
        return;
    }
    const auto row = static_cast<int32_t>(key & 0xFFFFFFFFu);
    if (out.ids) out.ids[s] = found ? static_cast<int32_t>(key >> 32) : -1;
    if (out.source)
        out.source[s] = !found              ? -1
                        : out.token_divisor ? rows.row_ids[row] / out.token_divisor
                                            : row;
    if (out.weights) out.weights[s] = found ? row_weight(rows, out, row) : 0.0f;
}

__global__ void unpack(CallerRows rows, int32_t n, const unsigned long long* keys, SlotsOut out) {
    begin_after_previous_kernel();
    const auto s = static_cast<int32_t>(blockIdx.x * n_threads + threadIdx.x);
    if (s < round_up_to(n, row_alignment)) store_slot(rows, n, s, s < n ? keys[s] : no_row, out);
}

constexpr int few_threads = 512;
constexpr int32_t few_slots = 1024;  // and as many rows

// 1. a warp marks the rows of an expert; of several experts with one row the first one stays
// 2. a thread takes the slot of a row; of several rows with one slot that of the lowest expert and
//    row stays
// 3. the slots are stored
__global__ void __launch_bounds__(few_threads)
    slots_of_few_rows(CallerRows rows, SlotWindow window, SlotsOut out, bool report_faults,
                      FaultWords* faults) {
    __shared__ int2 ranges[max_local];  // first row and end of every expert
    __shared__ int32_t expert_of[few_slots];
    __shared__ unsigned long long keys[few_slots];
    begin_after_previous_kernel();
    const auto thread = static_cast<int32_t>(threadIdx.x);
    for (int32_t i = thread; i < few_slots; i += few_threads) {
        expert_of[i] = rows.n_local;
        keys[i] = no_row;
    }
    __syncthreads();
    unsigned long long n_bad = 0;
    for (int32_t e = thread; e < rows.n_local; e += few_threads) {
        n_bad += report_faults && breaks_rules(rows, e);
        ranges[e] = {static_cast<int32_t>(first_row(rows, e)),
                     static_cast<int32_t>(end_row(rows, e))};
    }
    __syncthreads();
    for (int32_t e = thread / 32; e < rows.n_local; e += few_threads / 32)
        for (int32_t row = ranges[e].x + thread % 32; row < ranges[e].y; row += 32)
            atomicMin(&expert_of[row], e);
    __syncthreads();
    for (int32_t row = thread; row < rows.n_rows; row += few_threads) {
        if (expert_of[row] == rows.n_local) continue;
        const int64_t slot = rows.row_ids ? slot_of(rows, row) : row;
        n_bad += report_faults && slot < 0 && rows.row_ids[row] != -1;
        const int64_t offset = (window.by_row ? row : slot) - window.first;
        if (slot >= 0 && offset >= 0 && offset < window.n)
            atomicMin(&keys[offset], static_cast<unsigned long long>(expert_of[row]) << 32 |
                                         static_cast<uint32_t>(row));
    }
    if (n_bad) report_fault(faults, MOE_FAULT_OFFSETS_OUT_OF_RANGE, n_bad);
    __syncthreads();
    for (int32_t s = thread; s < round_up_to(window.n, row_alignment); s += few_threads)
        store_slot(rows, window.n, s, s < window.n ? keys[s] : no_row, out);
}

__global__ void fill_keys(unsigned long long* keys, int32_t n) {
    begin_after_previous_kernel();
    const auto s = static_cast<int32_t>(blockIdx.x * n_threads + threadIdx.x);
    if (s < n) keys[s] = no_row;
}

// Slots past the last row in use are undefined, so each one is checked.
__global__ void compose(const int32_t* slot, const int32_t* source, int32_t n_slots, int32_t n,
                        int32_t* in_row) {
    begin_after_previous_kernel();
    const auto r = static_cast<int32_t>(blockIdx.x * n_threads + threadIdx.x);
    if (r < n) in_row[r] = slot[r] < 0 || slot[r] >= n_slots ? -1 : source[slot[r]];
}

// Shared memory of list_rows, by expert.
struct ListShared {
    int64_t* row;       // the caller's first row
    int64_t* begins;    // row of the list
    int32_t* position;  // of the first row in the window
    int32_t* counts;

    __device__ ListShared(int64_t* memory, int32_t n_local)
        : row(memory),
          begins(memory + n_local),
          position(reinterpret_cast<int32_t*>(memory + 2 * n_local)),
          counts(position + n_local) {}
};
constexpr int32_t list_bytes_of_expert = 2 * sizeof(int64_t) + 2 * sizeof(int32_t);

// All rows of an expert from `least` on.
__device__ void take_rows(const CallerRows& rows, int32_t e, int64_t least,
                          const ListShared& shared) {
    const int64_t first = max(first_row(rows, e), least);
    shared.row[e] = first;
    shared.counts[e] = static_cast<int32_t>(max(end_row(rows, e) - first, int64_t{0}));
}

// The rows of all experts. Where offsets fall, a row may be in the ranges of two; then it is that
// of the first one. It ends with a barrier.
__device__ void take_all_rows(const CallerRows& rows, const ListShared& shared, bool reports,
                              FaultWords* faults) {
    unsigned long long n_bad = 0;
    bool falls = false;
    for (auto e = static_cast<int32_t>(threadIdx.x); e < rows.n_local; e += n_threads) {
        take_rows(rows, e, 0, shared);
        n_bad += breaks_rules(rows, e);
        falls |= rows.offsets && rows.offsets[e + 1] < rows.offsets[e];
    }
    if (n_bad && reports) report_fault(faults, MOE_FAULT_OFFSETS_OUT_OF_RANGE, n_bad);
    if (!__syncthreads_or(falls)) return;
    int64_t least = 0;
    for (int32_t e = 0; threadIdx.x == 0 && e < rows.n_local; e++) {
        take_rows(rows, e, least, shared);
        least = max(least, end_row(rows, e));
    }
    __syncthreads();
}

// Leaves the rows of the window: rows of all experts count one after the other, and what lies
// between the experts does not count. It ends with a barrier.
__device__ void keep_window(const SlotWindow& window, int32_t n_local, const ListShared& shared) {
    const int32_t each = divide_up(n_local, n_threads);
    const int32_t first = min(static_cast<int32_t>(threadIdx.x) * each, n_local);
    const int32_t end = min(first + each, n_local);
    Sums own{};
    for (int32_t e = first; e < end; e++) own.rows += shared.counts[e];
    Sums total;
    int64_t position = before_in_block(own, total).rows - window.first;
    for (int32_t e = first; e < end; e++) {
        const int64_t count = shared.counts[e];
        const int64_t skipped = clamp_to_range(-position, 0, count);
        const int64_t left = clamp_to_range(window.n - position, skipped, count);
        shared.row[e] += skipped;
        shared.position[e] = static_cast<int32_t>(max(position, int64_t{0}));
        shared.counts[e] = static_cast<int32_t>(left - skipped);
        position += count;
    }
    __syncthreads();
}

// The outputs by row of the list; out_row null: not wanted.
struct ListedRows {
    SortTarget target;
    int32_t* in_row;
    int32_t* out_row;
};

// The caller's row `row`, at `position` in the window, to row r of the list; row -1: padding. A
// slot that has several rows gets the first one. Returns whether its id breaks the rules.
__device__ bool list_row(const CallerRows& rows, const SlotsOut& out, int32_t e, int64_t row,
                         int32_t position, int64_t r, const ListedRows& listed) {
    const bool is_row = row >= 0;
    const int64_t id = is_row && rows.row_ids ? slot_of(rows, row) : 0;
    const bool exists = is_row && id >= 0;
    const int32_t slot = out.slot_to_row ? static_cast<int32_t>(id) : position;
    listed.target.slot[r] = exists ? slot : -1;
    listed.in_row[r] = !exists             ? -1
                       : out.token_divisor ? static_cast<int32_t>(id) / out.token_divisor
                                           : static_cast<int32_t>(row);
    if (listed.out_row) listed.out_row[r] = exists ? static_cast<int32_t>(row) : -1;
    if (out.weights && exists) out.weights[slot] = row_weight(rows, out, row);
    if (out.slot_to_row && exists) {
        // An unsigned -1 is the largest number.
        atomicMin(reinterpret_cast<unsigned*>(out.slot_to_row) + slot, static_cast<unsigned>(r));
        atomicMin(reinterpret_cast<unsigned*>(out.ids) + slot, static_cast<unsigned>(e));
    }
    return is_row && id < 0 && rows.row_ids[row] != -1;
}

__global__ void __launch_bounds__(n_threads)
    list_rows(CallerRows rows, SlotWindow window, SlotsOut out, ListedRows listed, int32_t parts,
              FaultWords* faults) {
    extern __shared__ int64_t memory[];
    const ListShared shared(memory, rows.n_local);
    begin_after_previous_kernel();
    take_all_rows(rows, shared, blockIdx.x == 0 && window.first == 0, faults);
    keep_window(window, rows.n_local, shared);
    lay_out_experts(listed.target, rows.n_local, shared.counts, shared.begins,
                    {static_cast<int32_t>(blockIdx.x), static_cast<int32_t>(gridDim.x)});
    unsigned long long n_bad = 0;
    for (auto item = static_cast<int32_t>(blockIdx.x); item < rows.n_local * parts;
         item += static_cast<int32_t>(gridDim.x)) {
        const int32_t e = item / parts;
        const auto end = static_cast<int32_t>(round_up_to(shared.counts[e], listed.target.align));
        for (int32_t i = item % parts * n_threads + static_cast<int32_t>(threadIdx.x); i < end;
             i += parts * n_threads) {
            const int64_t r = shared.begins[e] + i;
            const int64_t row = i < shared.counts[e] ? shared.row[e] + i : -1;
            if (r < listed.target.capacity)
                n_bad += list_row(rows, out, e, row, shared.position[e] + i, r, listed);
        }
    }
    if (n_bad) report_fault(faults, MOE_FAULT_OFFSETS_OUT_OF_RANGE, n_bad);
}

// Before list_rows by slot: no slot has a row.
__global__ void clear_slots(SlotsOut out, bool takes_weights, int32_t n) {
    begin_after_previous_kernel();
    const auto s = static_cast<int32_t>(blockIdx.x * n_threads + threadIdx.x);
    if (s >= n) return;
    out.slot_to_row[s] = -1;
    out.ids[s] = -1;
    if (takes_weights)
        out.weights[s] = out.given_weights[s / out.top_k * out.given_stride + s % out.top_k];
}

}  // namespace

void run_list_rows(const DeviceFacts& device, const CallerRows& caller, const SlotWindow& window,
                   const SlotsOut& out, const Rows& rows, const TileRule& rule, int32_t* in_row,
                   int32_t* out_row, FaultWords* faults, cudaStream_t stream) {
    const ListedRows listed{target_of(rows, rule), in_row, out_row};
    // Some four turns of a block for the rows of an expert of average size.
    const int64_t average = window.n / caller.n_local;
    const auto parts = static_cast<int32_t>(1 + average / (4 * n_threads));
    const int64_t n_items = int64_t{caller.n_local} * parts;
    launch("list_rows", list_rows, std::min<int64_t>(n_items, 2 * device.n_sms), n_threads,
           static_cast<size_t>(caller.n_local) * list_bytes_of_expert, stream, caller, window, out,
           listed, parts, faults);
}

void run_clear_slots(const SlotsOut& out, bool takes_weights, int32_t n_slots,
                     cudaStream_t stream) {
    launch("clear_slots", clear_slots, divide_up(n_slots, n_threads), n_threads, 0, stream, out,
           takes_weights, n_slots);
}

void run_rows_to_slots(const CallerRows& rows, const SlotWindow& window, unsigned long long* keys,
                       const SlotsOut& out, bool report_faults, FaultWords* faults,
                       cudaStream_t stream) {
    if (window.n <= few_slots && rows.n_rows <= few_slots)
        return launch("slots_of_few_rows", slots_of_few_rows, 1, few_threads, 0, stream, rows,
                      window, out, report_faults, faults);
    const int n_blocks = (window.n + n_threads - 1) / n_threads;
    launch("fill_keys", fill_keys, n_blocks, n_threads, 0, stream, keys, window.n);
    launch("mark_rows", mark_rows, rows.n_local, n_threads, 0, stream, rows, window, keys,
           report_faults, faults);
    launch("unpack", unpack, n_blocks, n_threads, 0, stream, rows, window.n, keys, out);
}

void run_compose(const int32_t* slot, const int32_t* source, int32_t n_slots, int32_t n_rows,
                 int32_t* in_row, cudaStream_t stream) {
    launch("compose", compose, (n_rows + n_threads - 1) / n_threads, n_threads, 0, stream, slot,
           source, n_slots, n_rows, in_row);
}

void prepare_caller_rows() {
    load("clear_slots", clear_slots);
    load("list_rows", list_rows, max_local * list_bytes_of_expert);
    load("slots_of_few_rows", slots_of_few_rows);
    load("fill_keys", fill_keys);
    load("mark_rows", mark_rows);
    load("unpack", unpack);
    load("compose", compose);
}

}  // namespace moe::cuda
