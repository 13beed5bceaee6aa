// The sort of few slots over few experts (sort.cu has the rules and does the others): one block, a
// thread for each slot and for each expert, so that the only waits are those for memory and four
// barriers. What may be done along with it (SortAlong) is done by the same threads.
//
// Shapes: ids [T, k] dense, T k up to most_few_slots, n_local up to most_few_local; experts begin
// on a multiple of row_alignment. Rows stay below 2^14, tiles below 2^10.
//   1. thread = slot: its id, taken from the caller where that is still to be done; its expert; its
//      rank among the lanes of the warp with this expert, by match_any
//   2. a count for each expert and warp of slots, in shared memory
//   3. thread = expert: counts become those of the warps before, their sum the expert's rows;
//      rows and tiles of all experts before by one scan, both in one word
//   4. begin, count, tiles and padding of the expert
//   5. thread = slot: row = begin + slots of the warps before + rank
// The shared expert, the last, has as many rows as there are tokens.
// Shared memory, 16 bits each: counts [warps of slots][n_local], begins [experts].
#include <algorithm>

#include "libmoe/cuda/device/dependent_launch.cuh"
#include "libmoe/cuda/device/parameters.cuh"
#include "libmoe/cuda/device/warp.cuh"
#include "libmoe/cuda/dispatch/steps.cuh"
#include "libmoe/cuda/router/take_slot.cuh"
#include "libmoe/cuda/runtime/launch.cuh"

namespace moe::cuda {
namespace {

constexpr int32_t most_threads = std::max(most_few_slots, most_few_local);

__host__ __device__ int32_t warps_of(int64_t n_slots) {
    return static_cast<int32_t>((n_slots + 31) / 32);
}

// What the launch does along.
struct Along {
    bool takes_routing;
    GivenRouting given;
    SelectOutput taken;
    bool lists_tokens;
    Rows token_rows;
    TileRule token_rule;
};

struct OwnSlot {
    int32_t expert;  // -1: no row
    int32_t rank;    // among the lanes of the warp with this expert
    int32_t n_same;
};

__device__ int32_t expert_of_slot(const SortInput& input, const Along& along, int32_t slot,
                                  FaultWords* faults) {
    const int32_t id = along.takes_routing ? take_slot(along.given, along.taken, slot / input.top_k,
                                                       slot % input.top_k, faults)
                                           : input.ids[slot];
    bool is_bad;
    const int32_t e = local_expert(input, id, is_bad);
    if (is_bad) report_fault(faults, MOE_FAULT_ID_OUT_OF_RANGE, 1);
    return e;
}

__device__ OwnSlot rank_in_warp(int32_t expert) {
    const unsigned same = __match_any_sync(every_lane, expert);
    return {expert, __popc(same & ((1u << lane_index()) - 1u)), __popc(same)};
}

// Turns the counts of an expert's warps, n_local apart, into those before each; answers their sum.
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

// Rows, a multiple of row_alignment, and tiles of experts, summed as one word.
struct LaidOut {
    int32_t rows;
    TileCount tiles;

    __device__ LaidOut(const TileRule& rule, int32_t count)
        : rows(static_cast<int32_t>(round_up_to(count, row_alignment))),
          tiles(count_tiles(rule, count)) {}
    __device__ explicit LaidOut(uint32_t word)
        : rows(static_cast<int32_t>(word & 0x7FFu) * row_alignment),
          tiles{static_cast<int32_t>(word >> 11 & 0x7FFu), static_cast<int32_t>(word >> 22)} {}
    __device__ uint32_t word() const {
        return static_cast<uint32_t>(rows / row_alignment) |
               static_cast<uint32_t>(tiles.all) << 11 | static_cast<uint32_t>(tiles.large) << 22;
    }
};

// Sum of the lower threads; total of all. Ends soon after a barrier.
__device__ uint32_t before_in_block(uint32_t own, uint32_t& total) {
    __shared__ uint32_t of_warp[most_threads / 32];
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

__global__ void __launch_bounds__(most_threads)
    sort_few(const __grid_constant__ SortInput input, TokenCount tokens,
             const __grid_constant__ Rows rows, TileRule rule, const __grid_constant__ Along along,
             FaultWords* faults) {
    extern __shared__ uint16_t counts[];
    const auto i = static_cast<int32_t>(threadIdx.x);
    const int32_t n_slots = tokens.n * input.top_k;
    const int32_t n_warps = warps_of(n_slots);
    uint16_t* begins = counts + n_warps * input.n_local;
#pragma unroll 1
    for (int32_t c = i; c < n_warps * input.n_local; c += static_cast<int32_t>(blockDim.x))
        counts[c] = 0;
    fetch_parameter(along);
    begin_after_previous_kernel();
    const int32_t n_tokens = true_tokens(tokens);
    const int32_t end = n_tokens * input.top_k;
    const OwnSlot own = rank_in_warp(i < end ? expert_of_slot(input, along, i, faults) : -1);
    uint16_t* of_warp = counts + min(warp_index(), n_warps - 1) * input.n_local;
    __syncthreads();
    if (own.expert >= 0 && own.rank == 0) of_warp[own.expert] = static_cast<uint16_t>(own.n_same);
    __syncthreads();

    const bool is_expert = i < experts_of(input);
    const int32_t count = i < input.n_local ? scan_warps(counts + i, n_warps, input.n_local)
                          : is_expert       ? n_tokens
                                            : 0;
    uint32_t total_word;
    const LaidOut before(
        before_in_block(LaidOut(rule, count).word(), total_word));
    const LaidOut total(total_word);
    const int32_t begin = before.rows;
    if (is_expert) begins[i] = static_cast<uint16_t>(begin);
    __syncthreads();

    if (i < n_slots) {
        const int32_t row =
            own.expert < 0 ? -1 : begins[own.expert] + of_warp[own.expert] + own.rank;
        const bool fits = row >= 0 && row < rows.capacity;
        if (fits) rows.slot[row] = i;
        if (rows.place) rows.place[i] = fits ? row : -1;
    }
    if (input.has_shared && i < n_tokens)
        store_shared_row(input, rows.slot, rows.capacity, begins[input.n_local], i);
    if (is_expert)
        store_expert(rows, rule, i, begin, count,
                     first_tile(rule, count, before.tiles, total.tiles.large));
    if (i == 0) store_tile_count(rows.n_tiles, total.tiles, rows.max_tiles);
    if (along.lists_tokens) list_token(i, n_tokens, tokens, along.token_rows, along.token_rule);
}

}  // namespace

// A thread for each token's padding, too, which a multiple of 32 covers.
void run_sort_few(const SortInput& input, const TokenCount& tokens, const Rows& rows,
                  const TileRule& rule, const SortAlong& along, FaultWords* faults,
                  cudaStream_t stream) {
    const int64_t n_slots = int64_t{tokens.n} * input.top_k;
    const int64_t n_counts = int64_t{warps_of(n_slots)} * input.n_local + experts_of(input);
    Along done{};
    done.takes_routing = along.given != nullptr;
    if (along.given) done.given = *along.given;
    done.taken = along.taken;
    done.lists_tokens = along.token_rows != nullptr;
    if (along.token_rows) done.token_rows = *along.token_rows;
    done.token_rule = along.token_rule;
    launch("sort_few", sort_few, 1, 32 * warps_of(std::max<int64_t>(n_slots, experts_of(input))),
           static_cast<size_t>(n_counts) * sizeof(uint16_t), stream, input, tokens, rows, rule,
           done, faults);
}

void prepare_sort_few() {
    load("sort_few", sort_few);
}

}  // namespace moe::cuda
