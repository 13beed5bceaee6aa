// Rows that the caller has sorted by expert, converted into slots with an expert each.
//
// Inputs: CallerRows: offsets [n_local + 1] and counts [n_local] of int64, row_ids [n_rows] of
// int32; a window of n slots; scratch keys [n] of uint64.
// Outputs: SlotsOut: local expert, source row and weight of each slot of the window.
//   1. fill_keys: every key becomes no_row
//   2. mark_rows: a thread block per expert walks its rows and takes the atomic minimum of (expert,
//      row) in the key of each slot, so the lowest expert and row win in any order of execution
//   3. unpack: keys become experts, rows and weights
#include "libmoe/cuda/dispatch/caller_rows.hpp"

#include "libmoe/cuda/device/call.cuh"
#include "libmoe/cuda/device/dependent_launch.cuh"
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

__global__ void unpack(CallerRows rows, int32_t n, const unsigned long long* keys, SlotsOut out) {
    begin_after_previous_kernel();
    const auto s = static_cast<int32_t>(blockIdx.x * n_threads + threadIdx.x);
    if (s >= round_up_to(n, row_alignment)) return;
    const bool found = s < n && keys[s] != no_row;
    if (s >= n) {
        if (out.source) out.source[s] = -1;  // padding row
        return;
    }
    const auto row = static_cast<int32_t>(keys[s] & 0xFFFFFFFFu);
    if (out.ids) out.ids[s] = found ? static_cast<int32_t>(keys[s] >> 32) : -1;
    if (out.source)
        out.source[s] = !found              ? -1
                        : out.token_divisor ? rows.row_ids[row] / out.token_divisor
                                            : row;
    if (out.weights) out.weights[s] = found ? row_weight(rows, out, row) : 0.0f;
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

}  // namespace

void run_rows_to_slots(const CallerRows& rows, const SlotWindow& window, unsigned long long* keys,
                       const SlotsOut& out, bool report_faults, FaultWords* faults,
                       cudaStream_t stream) {
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
    load("fill_keys", fill_keys);
    load("mark_rows", mark_rows);
    load("unpack", unpack);
    load("compose", compose);
}

}  // namespace moe::cuda
