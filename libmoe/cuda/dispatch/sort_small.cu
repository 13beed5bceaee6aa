// The sort of a small batch by local expert (sort.cu has the rules and serves all others). It is
// one thread block, so that it waits for memory and four barriers only. Other blocks of the launch
// convert a given routing and arrange tokens (SortAlong). The sorting block runs its code once, so
// the code is kept short.
//
// Inputs: ids [T, k] of int32, dense, T k up to max_fused_sort_slots, n_local up to
// max_fused_sort_experts; or those of a GivenRouting. Outputs: Rows; experts begin on a
// multiple of row_alignment. Rows stay below 2^15, tiles below 2^11, tiles of large experts below
// 2^9. A thread owns one expert and one slot, or eight slots; a warp owns a range of adjacent
// slots, in groups of 32.
//   1. thread = slots: load the ids; find the experts; rank the warp's slots of one expert by
//      match_any and by the warp's own count for each expert, in shared memory
//   2. thread = expert: counts become sums over the warps before, whose total is the expert's rows;
//      one scan over packed words gives rows and tiles of all experts before
//   3. store begin, count, tiles and padding of the expert
//   4. thread = slots: row = begin + slots of the warps before + rank
// The shared expert, the last one, has a row for every token.
// Shared memory, 16 bits each: counts [warps of slots][n_local], begins [experts].
#include <algorithm>

#include "libmoe/cuda/device/dependent_launch.cuh"
#include "libmoe/cuda/device/parameters.cuh"
#include "libmoe/cuda/device/warp.cuh"
#include "libmoe/cuda/dispatch/arrange_along.cuh"
#include "libmoe/cuda/dispatch/steps.cuh"
#include "libmoe/cuda/router/take_slot.cuh"
#include "libmoe/cuda/runtime/launch.cuh"

namespace moe::cuda {
namespace {

constexpr int32_t max_threads = 1024;
constexpr int32_t max_groups = max_fused_sort_slots / max_threads;
static_assert(max_fused_sort_experts < max_threads);

// Assignment of slots to warps: each warp has the same number of groups of 32.
struct Deal {
    int32_t groups, n_warps;

    __host__ __device__ explicit Deal(int32_t n_slots)
        : groups(n_slots > max_threads ? divide_up(n_slots, max_threads) : 1),
          n_warps(divide_up(n_slots, 32 * groups)) {}
};

// Work that is fused into the launch, see SortAlong.
struct Along {
    bool takes_routing;
    GivenRouting given;
    SelectOutput published;
    bool lists_tokens;
    Rows token_rows;
    TileRule token_rule;
    ArrangeAlong arrange;
};

struct OwnSlot {
    int32_t expert;  // -1: no row
    int32_t rank;    // among the warp's slots with this expert
};

// ids[g] becomes the id of slot_of(g), or -1 from slot `end` on.
template <int32_t groups, class SlotOf>
__device__ void load_ids(const SortInput& input, const Along& along, int32_t end,
                         const SlotOf& slot_of, int32_t (&ids)[groups]) {
    const auto load = [&](const auto& id_of) {
#pragma unroll
        for (int32_t g = 0; g < groups; g++) ids[g] = slot_of(g) < end ? id_of(slot_of(g)) : -1;
    };
    const GivenRouting& given = along.given;
    const bool is_dense = given.ids_stride == given.top_k;
    int32_t n_bad = 0;  // reported where the routing is converted
    if (!along.takes_routing)
        load([&](int32_t slot) { return input.ids[slot]; });
    else if (is_dense)
        load([&](int32_t slot) { return given_id(given, 0, slot, n_bad); });
    else
        load([&](int32_t slot) {
            return given_id(given, slot / given.top_k, slot % given.top_k, n_bad);
        });
}

// Converts the caller's routing, by all threads of n_blocks thread blocks.
__device__ void take_slots(const Along& along, int32_t n_slots, int32_t block, int32_t n_blocks,
                           FaultWords* faults) {
    const auto n_threads = static_cast<int32_t>(blockDim.x);
    const int32_t k = along.given.top_k;
#pragma unroll 1
    for (int32_t slot = block * n_threads + static_cast<int32_t>(threadIdx.x); slot < n_slots;
         slot += n_blocks * n_threads)
        take_slot(along.given, along.published, slot / k, slot % k, faults);
}

// Ranks 32 adjacent slots. counts belong to the warp, one for each expert.
__device__ OwnSlot rank_in_warp(int32_t expert, uint16_t* counts) {
    const unsigned same = __match_any_sync(every_lane, expert);
    const int32_t rank = __popc(same & ((1u << lane_index()) - 1u));
    const int32_t before = expert < 0 ? 0 : counts[expert];
    __syncwarp();
    if (expert >= 0 && rank == 0) counts[expert] = static_cast<uint16_t>(before + __popc(same));
    __syncwarp();
    return {expert, before + rank};
}

// Turns the counts of an expert's warps, n_local apart, into the sums over the warps before.
// Returns the total.
__device__ int32_t scan_warps(uint16_t* counts, int32_t n_warps, int32_t n_local) {
    constexpr int32_t at_once = 8;
    int32_t sum = 0;
    for (int32_t first = 0; first < n_warps; first += at_once) {
        int32_t own[at_once];
#pragma unroll
        for (int32_t w = 0; w < at_once; w++)
            own[w] = first + w < n_warps ? counts[(first + w) * n_local] : 0;
#pragma unroll
        for (int32_t w = 0; w < at_once; w++) {
            if (first + w < n_warps) counts[(first + w) * n_local] = static_cast<uint16_t>(sum);
            sum += own[w];
        }
    }
    return sum;
}

// Rows, a multiple of row_alignment, and tiles of experts are summed as one word. There are at most
// 8,192 slots, as many rows of a shared expert, seven rows of padding for each expert, and tiles
// have at least 16 rows. Large experts (TileRule) have at least min_large_rows rows.
constexpr int32_t min_large_rows = 33;
constexpr int32_t max_rows_here =
    2 * max_fused_sort_slots + (row_alignment - 1) * (max_fused_sort_experts + 1);
static_assert(max_rows_here / row_alignment < 1 << 12);
static_assert(2 * max_fused_sort_slots / 16 + max_fused_sort_experts + 1 < 1 << 11);
static_assert(2 * max_fused_sort_slots / min_large_rows < 1 << 9);

struct LaidOut {
    int32_t rows;
    TileCount tiles;

    __device__ LaidOut(const TileRule& rule, int32_t count)
        : rows(static_cast<int32_t>(round_up_to(count, row_alignment))),
          tiles(count_tiles(rule, count)) {}
    __device__ explicit LaidOut(uint32_t word)
        : rows(static_cast<int32_t>(word & 0xFFFu) * row_alignment),
          tiles{static_cast<int32_t>(word >> 12 & 0x7FFu), static_cast<int32_t>(word >> 23)} {}
    __device__ uint32_t word() const {
        return static_cast<uint32_t>(rows / row_alignment) |
               static_cast<uint32_t>(tiles.all) << 12 | static_cast<uint32_t>(tiles.large) << 23;
    }
};

// Returns the sum over the lower threads; total becomes the sum over all. It ends soon after a
// barrier.
__device__ uint32_t before_in_block(uint32_t own, uint32_t& total) {
    __shared__ uint32_t of_warp[max_threads / 32];
    uint32_t up_to = own;
#pragma unroll
    for (int apart = 1; apart < 32; apart *= 2) {
        const uint32_t lower = __shfl_up_sync(every_lane, up_to, apart);
        if (lane_index() >= apart) up_to += lower;
    }
    if (lane_index() == 31) of_warp[warp_index()] = up_to;
    __syncthreads();
    const bool exists = lane_index() < static_cast<int32_t>(blockDim.x / 32);
    const uint32_t warp_total = exists ? of_warp[lane_index()] : 0;
    total = __reduce_add_sync(every_lane, warp_total);
    const uint32_t lower =
        __reduce_add_sync(every_lane, lane_index() < warp_index() ? warp_total : 0);
    return lower + up_to - own;
}

__device__ void store_expert(const Rows& rows, const TileRule& rule, int32_t e, int32_t begin,
                             int32_t count, int32_t first_tile) {
    rows.begin[e] = begin;
    rows.count[e] = count;
    store_tiles(rows.tiles, rows.max_tiles, rule, e, begin, count, first_tile);
    const auto padded = static_cast<int32_t>(round_up_to(count, row_alignment));
    const int32_t end = min(begin + padded, rows.capacity);
#pragma unroll 1
    for (int32_t r = begin + count; r < end; r++) rows.slot[r] = -1;
}

// groups is the maximum number of groups of a warp.
template <int32_t groups>
__global__ void __launch_bounds__(max_threads)
    sort_small_batch(const __grid_constant__ SortInput input, TokenCount tokens,
                     const __grid_constant__ Rows rows, TileRule rule,
                     const __grid_constant__ Along along, FaultWords* faults) {
    extern __shared__ uint16_t counts[];
    if (blockIdx.x > 0) {
        begin_after_previous_kernel();
        const auto block = static_cast<int32_t>(blockIdx.x) - 1;
        if (along.takes_routing)
            take_slots(along, true_tokens(tokens) * input.top_k, block,
                       static_cast<int32_t>(gridDim.x) - 1, faults);
        if (block < along.arrange.n_blocks) arrange(along.arrange, 1);
        return;
    }
    const auto i = static_cast<int32_t>(threadIdx.x);
    const auto n_threads = static_cast<int32_t>(blockDim.x);
    const int32_t n_slots = tokens.n * input.top_k;
    const Deal deal(n_slots);
    uint16_t* begins = counts + deal.n_warps * input.n_local;
#pragma unroll 1
    for (int32_t c = i; c < deal.n_warps * input.n_local; c += n_threads) counts[c] = 0;
    fetch_parameter(along);
    begin_after_previous_kernel();
    const int32_t n_tokens = true_tokens(tokens);
    const int32_t end = n_tokens * input.top_k;
    const int32_t first_slot = warp_index() * 32 * deal.groups + lane_index();
    const auto slot = [&](int32_t g) { return g < deal.groups ? first_slot + 32 * g : n_slots; };
    int32_t ids[groups];
    load_ids(input, along, end, slot, ids);
    uint16_t* of_warp = counts + min(warp_index(), deal.n_warps - 1) * input.n_local;
    OwnSlot own[groups];
    int32_t n_bad = 0;
    __syncthreads();
    if (warp_index() < deal.n_warps) {
#pragma unroll
        for (int32_t g = 0; g < groups; g++) {
            bool is_bad;
            own[g] = rank_in_warp(local_expert(input, ids[g], is_bad), of_warp);
            n_bad += is_bad;
        }
    }
    if (n_bad) report_fault(faults, MOE_FAULT_ID_OUT_OF_RANGE, n_bad);
    __syncthreads();

    const bool is_expert = i < experts_of(input);
    const int32_t count = i < input.n_local ? scan_warps(counts + i, deal.n_warps, input.n_local)
                          : is_expert       ? n_tokens
                                            : 0;
    uint32_t total_word;
    const LaidOut before(before_in_block(LaidOut(rule, count).word(), total_word));
    const LaidOut total(total_word);
    const int32_t begin = before.rows;
    if (is_expert) begins[i] = static_cast<uint16_t>(begin);
    __syncthreads();

#pragma unroll
    for (int32_t g = 0; g < groups; g++) {
        if (slot(g) >= n_slots) continue;
        const int32_t row =
            own[g].expert < 0 ? -1 : begins[own[g].expert] + of_warp[own[g].expert] + own[g].rank;
        const bool fits = row >= 0 && row < rows.capacity;
        if (fits) rows.slot[row] = slot(g);
        if (rows.slot_to_row) rows.slot_to_row[slot(g)] = fits ? row : -1;
    }
    if (is_expert)
        store_expert(rows, rule, i, begin, count,
                     first_tile(rule, count, before.tiles, total.tiles.large));
    if (i == 0) store_tile_count(rows.n_tiles, total.tiles, rows.max_tiles);
#pragma unroll 1
    for (int32_t t = i; input.has_shared && t < n_tokens; t += n_threads)
        store_shared_row(input, rows.slot, rows.capacity, begins[input.n_local], t);
    const int64_t n_listed = along.lists_tokens ? round_up_to(tokens.n, row_alignment) : 0;
#pragma unroll 1
    for (int32_t t = i; t < n_listed; t += n_threads)
        list_token(t, n_tokens, tokens, along.token_rows, along.token_rule);
}

}  // namespace

void run_sort_small_batch(const DeviceFacts& device, const SortInput& input,
                          const TokenCount& tokens, const Rows& rows, const TileRule& rule,
                          const SortAlong& along, FaultWords* faults, cudaStream_t stream) {
    const int32_t n_slots = tokens.n * input.top_k;
    const Deal deal(n_slots);
    const int32_t n_counts = deal.n_warps * input.n_local + experts_of(input);
    Along done{};
    done.takes_routing = along.given != nullptr;
    if (along.given) done.given = *along.given;
    done.published = along.published;
    done.lists_tokens = along.token_rows != nullptr;
    if (along.token_rows) done.token_rows = *along.token_rows;
    done.token_rule = along.token_rule;
    const int32_t n_threads = 32 * std::max(deal.n_warps, divide_up(experts_of(input), 32));
    done.arrange = arrange_along(device, along, tokens, n_threads);
    const int32_t n_taking = along.given ? divide_up(n_slots, n_threads) : 0;
    launch("sort_small_batch",
           deal.groups == 1 ? sort_small_batch<1> : sort_small_batch<max_groups>,
           1 + std::max(done.arrange.n_blocks, n_taking), n_threads,
           static_cast<size_t>(n_counts) * sizeof(uint16_t), stream, input, tokens, rows, rule,
           done, faults);
}

void prepare_sort_small_batch() {
    load("sort_small_batch", sort_small_batch<1>);
    load("sort_small_batch", sort_small_batch<max_groups>);
}

}  // namespace moe::cuda
