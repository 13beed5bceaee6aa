// A stable counting sort of slots by local expert. No result depends on the order of atomics, so
// equal ids give equal rows.
//
// Inputs: ids [T, k] of int32, dense, n_slots = T k below 2^31, up to 4096 experts. Slots of tokens
// beyond the true number, and slots without a local expert, have no row.
// Outputs: SortTarget: begin and count of each expert, slot of each row, row of each slot, tiles.
// Experts begin on a multiple of `align`.
// sort_small.cu serves small batches over up to max_fused_sort_experts experts.
//
// Up to max_block_sort_slots slots, one thread block (sort_small):
//   1. count the slots of each expert in shared memory
//   2. scan: first row and first tile of each expert, and the tiles themselves
//   3. scatter: warps take turns in the order of their slots. Inside a warp the lanes of one expert
//      find each other by match_any. A slot's rank is the expert's cursor, which earlier turns have
//      advanced, plus the number of lower lanes with its expert
//   4. fill the padding with -1
// More slots are split into at most max_runs runs, a thread block each, and take two launches:
//   1. count_runs: counts [n_runs][experts]; with it the caller's ids and weights are converted,
//      and more thread blocks arrange the tokens, if that is wanted
//   2. scatter_runs: every block sums the counts of all runs, and of the runs before its own, where
//      its cursors start. It makes step 2 above for itself, and stores the experts whose turn it
//      is; then steps 3 and 4
// The shared expert, if it takes part, is one more expert with a row for every token.
// Shared memory, int32: counts [experts], cursors [experts]; int64: begins [experts].
#include <algorithm>

#include "libmoe/cuda/device/dependent_launch.cuh"
#include "libmoe/cuda/device/warp.cuh"
#include "libmoe/cuda/dispatch/arrange_along.cuh"
#include "libmoe/cuda/dispatch/lay_out.cuh"
#include "libmoe/cuda/dispatch/steps.cuh"
#include "libmoe/cuda/router/take_slot.cuh"
#include "libmoe/cuda/runtime/launch.cuh"

namespace moe::cuda {
namespace {

constexpr int32_t max_runs = 256;
constexpr int32_t min_run_slots = 1024;  // slots of a run
constexpr int32_t turn_groups = 4;       // groups of 32 slots that a warp takes in one turn

struct Slice32 {
    int32_t first, end;
};

__device__ void fill(int32_t* values, int32_t n, int32_t value) {
    for (auto i = static_cast<int32_t>(threadIdx.x); i < n; i += static_cast<int32_t>(blockDim.x))
        values[i] = value;
}

// The caller's routing, which is converted beside the count; or none.
struct RoutingAlong {
    bool is_given;
    GivenRouting given;
    SelectOutput published;  // its ids are those of the input
};

__device__ int32_t id_of_slot(const SortInput& input, const RoutingAlong& along, int32_t slot,
                              FaultWords* faults) {
    if (!along.is_given) return input.ids[slot];
    return take_slot(along.given, along.published, slot / input.top_k, slot % input.top_k, faults);
}

// Adds the slots of each expert to counts, which are zero before. It ends with a barrier.
__device__ void count_slots(const SortInput& input, const RoutingAlong& along, Slice32 slots,
                            int32_t* counts, FaultWords* faults) {
    int32_t n_bad = 0;
    for (int64_t s = slots.first + int64_t{threadIdx.x}; s < slots.end; s += blockDim.x) {
        bool is_bad;
        const int32_t id = id_of_slot(input, along, static_cast<int32_t>(s), faults);
        const int32_t e = local_expert(input, id, is_bad);
        if (e >= 0) atomicAdd(&counts[e], 1);
        n_bad += is_bad;
    }
    if (n_bad) report_fault(faults, MOE_FAULT_ID_OUT_OF_RANGE, n_bad);
    __syncthreads();
}

// ---- scatter

struct Ranked {
    int32_t slot;
    int32_t expert;  // -1: no row
    int32_t rank;    // among the lanes of the warp with this expert
    int32_t n_same;
};

__device__ Ranked rank_in_warp(const SortInput& input, int32_t slot, int32_t end) {
    bool is_bad;
    const int32_t e = slot < end ? local_expert(input, input.ids[slot], is_bad) : -1;
    const unsigned same = __match_any_sync(every_lane, e);
    const unsigned lower = same & ((1u << lane_index()) - 1u);
    return {slot, e, __popc(lower), __popc(same)};
}

// Advances the expert's cursor by the warp's slots and returns its old value.
__device__ int32_t take_turn(const Ranked& r, int32_t* cursor) {
    const int32_t before = r.expert >= 0 ? cursor[r.expert] : 0;
    __syncwarp();
    if (r.expert >= 0 && r.rank == 0) cursor[r.expert] = before + r.n_same;
    __syncwarp();
    return before;
}

__device__ void store_slot(const SortTarget& target, const int64_t* begins, const Ranked& r,
                           int32_t before, int32_t end) {
    if (r.slot >= end) return;
    const int64_t row = r.expert < 0 ? -1 : begins[r.expert] + before + r.rank;
    const bool fits = row >= 0 && row < target.capacity;
    if (fits) target.slot[row] = r.slot;
    if (target.slot_to_row) target.slot_to_row[r.slot] = fits ? static_cast<int32_t>(row) : -1;
}

// Assigns rows to slots. The warps of the block take turns in order, each with turn_groups times 32
// slots.
__device__ void scatter_slots(const SortInput& input, Slice32 slots, const SortTarget& target,
                              const int64_t* begins, int32_t* cursor) {
    constexpr int32_t turn_slots = 32 * turn_groups;
    const auto n_warps = static_cast<int32_t>(blockDim.x / 32);
    for (int64_t base = slots.first; base < slots.end; base += n_warps * turn_slots) {
        const int64_t own = base + warp_index() * turn_slots;
        Ranked ranked[turn_groups];
        int32_t before[turn_groups] = {};
#pragma unroll
        for (int32_t g = 0; g < turn_groups; g++) {
            const int64_t slot = own + 32 * g + lane_index();
            ranked[g] = rank_in_warp(
                input, static_cast<int32_t>(slot < slots.end ? slot : slots.end), slots.end);
        }
        const int64_t left = (slots.end - base + turn_slots - 1) / turn_slots;
        for (int32_t turn = 0; turn < (left < n_warps ? left : n_warps); turn++) {
            if (turn == warp_index()) {
#pragma unroll
                for (int32_t g = 0; g < turn_groups; g++) before[g] = take_turn(ranked[g], cursor);
            }
            __syncthreads();
        }
#pragma unroll
        for (int32_t g = 0; g < turn_groups; g++)
            store_slot(target, begins, ranked[g], before[g], slots.end);
    }
}

// Marks the slots beyond the true tokens as having no row.
__device__ void clear_slot_to_row(const SortTarget& target, int64_t first, int64_t end) {
    if (!target.slot_to_row) return;
    for (int64_t s = first + threadIdx.x; s < end; s += blockDim.x) target.slot_to_row[s] = -1;
}

// Each of n_warps warps pads one expert at a time.
__device__ void fill_padding(const SortTarget& target, const int64_t* begins, int32_t n_local,
                             const int32_t* counts, int32_t warp, int32_t n_warps) {
    if (target.align < 2) return;
    for (int32_t e = warp; e < n_local; e += n_warps) {
        const int64_t end = round_up_to(counts[e], target.align);
        int64_t row = int64_t{counts[e]} + lane_index();
        if (row >= end) continue;
        for (; row < end; row += 32)
            if (begins[e] + row < target.capacity) target.slot[begins[e] + row] = -1;
    }
}

// ---- shared expert

// Needs a barrier before it, after counts were cleared, and one behind it.
__device__ void count_shared(const SortInput& input, const TokenCount& tokens, int32_t* counts) {
    if (input.has_shared && threadIdx.x == 0) counts[input.n_local] = true_tokens(tokens);
}

__device__ void scatter_shared(const SortInput& input, const TokenCount& tokens,
                               const SortTarget& target, const int64_t* begins, int32_t first,
                               int32_t step) {
    if (!input.has_shared) return;
    const int64_t begin = begins[input.n_local];
    for (int32_t t = first; t < true_tokens(tokens); t += step)
        store_shared_row(input, target.slot, target.capacity, begin, t);
}

// ---- kernels

// Shared memory of a block.
struct SortShared {
    int64_t* begins;
    int32_t* counts;
    int32_t* cursors;

    __device__ SortShared(int64_t* memory, int32_t n_experts)
        : begins(memory),
          counts(reinterpret_cast<int32_t*>(memory + n_experts)),
          cursors(counts + n_experts) {}
};
constexpr int32_t shared_bytes_of_expert = sizeof(int64_t) + 2 * sizeof(int32_t);

__global__ void __launch_bounds__(max_threads)
    sort_small(SortInput input, TokenCount tokens, const __grid_constant__ RoutingAlong along,
               const __grid_constant__ ArrangeAlong arranged, SortTarget target,
               FaultWords* faults) {
    extern __shared__ int64_t memory[];
    if (blockIdx.x > 0) {
        begin_after_previous_kernel();
        return arrange(arranged, 1);
    }
    const SortShared shared(memory, experts_of(input));
    fill(shared.counts, 2 * experts_of(input), 0);
    begin_after_previous_kernel();
    const Slice32 slots{0, true_slots(input, tokens)};
    __syncthreads();
    count_shared(input, tokens, shared.counts);
    count_slots(input, along, slots, shared.counts, faults);
    lay_out_experts(target, experts_of(input), shared.counts, shared.begins, {0, 1});
    scatter_slots(input, slots, target, shared.begins, shared.cursors);
    fill_padding(target, shared.begins, experts_of(input), shared.counts, warp_index(),
                 static_cast<int32_t>(blockDim.x / 32));
    scatter_shared(input, tokens, target, shared.begins, static_cast<int32_t>(threadIdx.x),
                   static_cast<int32_t>(blockDim.x));
    clear_slot_to_row(target, slots.end, int64_t{tokens.n} * input.top_k);
}

struct Runs {
    int32_t n;
    int32_t slots;    // slots of a run
    int32_t* counts;  // [n][experts]
};

__device__ Slice32 slots_of_run(const Runs& runs, int32_t n_slots) {
    const int64_t first = int64_t{blockIdx.x} * runs.slots;
    const int64_t end = first + runs.slots;
    return {static_cast<int32_t>(first < n_slots ? first : n_slots),
            static_cast<int32_t>(end < n_slots ? end : n_slots)};
}

__global__ void __launch_bounds__(max_threads)
    count_runs(SortInput input, TokenCount tokens, const __grid_constant__ RoutingAlong along,
               const __grid_constant__ ArrangeAlong arranged, Runs runs, FaultWords* faults) {
    extern __shared__ int32_t counts[];
    if (static_cast<int32_t>(blockIdx.x) >= runs.n) {
        begin_after_previous_kernel();
        return arrange(arranged, runs.n);
    }
    fill(counts, experts_of(input), 0);
    begin_after_previous_kernel();
    __syncthreads();
    if (blockIdx.x == 0) count_shared(input, tokens, counts);
    count_slots(input, along, slots_of_run(runs, true_slots(input, tokens)), counts, faults);
    for (auto e = static_cast<int32_t>(threadIdx.x); e < experts_of(input);
         e += static_cast<int32_t>(blockDim.x))
        runs.counts[int64_t{blockIdx.x} * experts_of(input) + e] = counts[e];
}

// Sums the counts of all runs, and those of the runs before this block's. Sums of integers do not
// depend on the order of the atomics.
__device__ void sum_runs(const Runs& runs, int32_t n_experts, const SortShared& shared) {
    const int64_t own = int64_t{blockIdx.x} * n_experts;
    const int64_t n = int64_t{runs.n} * n_experts;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        const int32_t count = runs.counts[i];
        const auto e = static_cast<int32_t>(i % n_experts);
        if (count == 0) continue;
        atomicAdd(&shared.counts[e], count);
        if (i < own) atomicAdd(&shared.cursors[e], count);
    }
    __syncthreads();
}

__global__ void __launch_bounds__(max_threads)
    scatter_runs(SortInput input, TokenCount tokens, Runs runs, SortTarget target) {
    extern __shared__ int64_t memory[];
    const int32_t n_experts = experts_of(input);
    const SortShared shared(memory, n_experts);
    fill(shared.counts, 2 * n_experts, 0);
    begin_after_previous_kernel();
    __syncthreads();
    sum_runs(runs, n_experts, shared);
    lay_out_experts(target, n_experts, shared.counts, shared.begins,
                    {static_cast<int32_t>(blockIdx.x), static_cast<int32_t>(gridDim.x)});
    const int32_t n_slots = true_slots(input, tokens);
    scatter_slots(input, slots_of_run(runs, n_slots), target, shared.begins, shared.cursors);
    const auto warps = static_cast<int32_t>(blockDim.x / 32);
    fill_padding(target, shared.begins, n_experts, shared.counts,
                 static_cast<int32_t>(blockIdx.x) * warps + warp_index(),
                 static_cast<int32_t>(gridDim.x) * warps);
    const auto block_threads = static_cast<int32_t>(blockDim.x);
    scatter_shared(
        input, tokens, target, shared.begins,
        static_cast<int32_t>(blockIdx.x) * block_threads + static_cast<int32_t>(threadIdx.x),
        static_cast<int32_t>(gridDim.x) * block_threads);
    const Slice32 all = slots_of_run(runs, tokens.n * input.top_k);
    clear_slot_to_row(target, all.first > n_slots ? all.first : n_slots, all.end);
}

// ---- host

Runs make_runs(int64_t n_slots, std::byte* scratch) {
    const int64_t even = (n_slots + max_runs - 1) / max_runs;
    Runs runs{};
    runs.slots = static_cast<int32_t>(round_up_to(std::max<int64_t>(even, min_run_slots), 1024));
    runs.n = static_cast<int32_t>((n_slots + runs.slots - 1) / runs.slots);
    runs.counts = reinterpret_cast<int32_t*>(scratch);
    return runs;
}

RoutingAlong routing_of(const SortAlong& along) {
    RoutingAlong routing{};
    routing.is_given = along.given != nullptr;
    if (along.given) routing.given = *along.given;
    routing.published = along.published;
    return routing;
}

void sort(SortKernel kernel, const SortInput& input, const TokenCount& tokens,
          const SortTarget& target, const SortAlong& along, const ArrangeAlong& arranged,
          FaultWords* faults, cudaStream_t stream) {
    const size_t n_experts = static_cast<size_t>(experts_of(input));
    const size_t bytes = n_experts * shared_bytes_of_expert;
    const RoutingAlong routing = routing_of(along);
    if (kernel == SortKernel::block)
        return launch("sort_small", sort_small, 1 + arranged.n_blocks, max_threads, bytes, stream,
                      input, tokens, routing, arranged, target, faults);
    const Runs runs = make_runs(int64_t{tokens.n} * input.top_k, input.scratch);
    launch("count_runs", count_runs, runs.n + arranged.n_blocks, max_threads,
           n_experts * sizeof(int32_t), stream, input, tokens, routing, arranged, runs, faults);
    launch("scatter_runs", scatter_runs, runs.n, max_threads, bytes, stream, input, tokens, runs,
           target);
}

}  // namespace

uint64_t sort_scratch_bytes(int64_t n_slots, int32_t n_local) {
    if (n_slots <= max_block_sort_slots) return 0;
    // The size must not fall as n_slots grows, although the number of runs may.
    const int64_t runs = std::min<int64_t>((n_slots + min_run_slots - 1) / min_run_slots, max_runs);
    return static_cast<uint64_t>(n_local) * static_cast<uint64_t>(runs) * 4;
}

void run_sort(const DeviceFacts& device, SortKernel kernel, const SortInput& input,
              const TokenCount& tokens, const Rows& rows, const TileRule& rule,
              const SortAlong& along, FaultWords* faults, cudaStream_t stream) {
    if (kernel == SortKernel::fused)
        return run_sort_small_batch(device, input, tokens, rows, rule, along, faults, stream);
    SortTarget target = target_of(rows, rule);
    target.slot_to_row = rows.slot_to_row;
    sort(kernel, input, tokens, target, along, arrange_along(device, along, tokens, max_threads),
         faults, stream);
}

void run_dispatch(SortKernel kernel, const SortInput& input, const TokenCount& tokens,
                  const DispatchOutput& output, const SortAlong& along, FaultWords* faults,
                  cudaStream_t stream) {
    SortTarget target{};
    target.offsets = output.offsets;
    target.counts = output.counts;
    target.slot = output.row_ids;
    target.capacity = output.row_capacity;
    target.align = std::max(output.block_rows, 1);
    sort(kernel, input, tokens, target, along, {}, faults, stream);
}

void prepare_sort() {
    prepare_sort_small_batch();
    constexpr int32_t most_bytes = (max_local + 1) * shared_bytes_of_expert;
    load("sort_small", sort_small, most_bytes);
    load("count_runs", count_runs);
    load("scatter_runs", scatter_runs, most_bytes);
}

}  // namespace moe::cuda
