// The sort of a small batch by local expert (sort.cu has the rules and serves all others). Every
// sorting block counts all slots for itself, so that none waits for another: one launch, and a few
// barriers. Other blocks of the launch convert a given routing and arrange tokens (SortAlong). The
// code runs once, so it is kept short: nothing hides the loads of its instructions.
//
// Inputs: ids [T, k] of int32, dense, T k up to max_fused_sort_slots, n_local up to
// max_fused_sort_experts; or those of a GivenRouting. Outputs: Rows; experts begin on a
// multiple of row_alignment. Rows stay below 2^15, tiles below 2^11, tiles of large experts below
// 2^9. A block has block_slots adjacent slots, a warp 32 of them, a thread one slot and one expert.
//   1. thread = slot: find its expert; rank the warp's slots of one expert by match_any. If there
//      are several blocks, count the slots of each expert, and those before the block's own
//   2. thread = expert: counts of the block's warps become sums over the warps before; one scan
//      over packed words gives rows and tiles of all experts before
//   3. thread = slot: row = begin + slots of the blocks and of the warps before + rank
//   4. store begin, count, tiles and padding of the experts, which the blocks share
// The shared expert, the last one, has a row for every token.
// Shared memory: sums of slots [n_local], 32 bits each; counts [warps of slots][n_local], begins
// [experts], 16 bits each.
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
constexpr int32_t block_slots = 512;
static_assert(max_fused_sort_experts < max_threads);
static_assert(max_fused_sort_slots < 1 << 16, "both counts of an expert share a word");

__host__ __device__ constexpr int32_t slot_warps(int32_t n_slots) {
    return divide_up(n_slots < block_slots ? n_slots : block_slots, 32);
}

// Work that is fused into the launch, see SortAlong.
struct Along {
    int32_t sort_blocks;
    bool takes_routing;
    GivenRouting given;
    SelectOutput published;
    bool lists_tokens;
    Rows token_rows;
    TileRule token_rule;
    ArrangeAlong arrange;
};

// Ids as 32-bit words of int32 or int64. Those out of range have no row; take_slots reports them.
struct IdWords {
    const uint32_t* words;
    int32_t words_of_id;
    int32_t n_ids;  // others have no row
    bool is_dense;
    int32_t top_k;
    int64_t stride;

    __device__ IdWords(const SortInput& input, const Along& along) {
        const GivenRouting& given = along.given;
        const bool takes = along.takes_routing;
        words = static_cast<const uint32_t*>(takes ? given.ids : input.ids);
        words_of_id = takes && given.ids_type == MOE_TYPE_I64 ? 2 : 1;
        n_ids = takes ? min(given.n_experts_all, input.n_ids) : input.n_ids;
        is_dense = !takes || given.ids_stride == given.top_k;
        top_k = input.top_k;
        stride = given.ids_stride;
    }
    // -1: it has no row.
    __device__ __forceinline__ int32_t load(int32_t slot) const {
        const int64_t at = is_dense ? slot : slot / top_k * stride + slot % top_k;
        const uint32_t low = words[at * words_of_id];
        const uint32_t high = words_of_id == 2 ? words[at * 2 + 1] : 0;
        return high == 0 && low < static_cast<uint32_t>(n_ids) ? static_cast<int32_t>(low) : -1;
    }
};

// Adds the slots of each expert to sums: in the lower half all before `end`, in the upper half
// those before first_own.
__device__ __forceinline__ void count_slots(const SortInput& input, const IdWords& ids,
                                            int32_t first_own, int32_t end, uint32_t* sums) {
    constexpr int32_t at_once = 4;
    const auto n_threads = static_cast<int32_t>(blockDim.x);
#pragma unroll 1
    for (auto first = static_cast<int32_t>(threadIdx.x); first < end;
         first += at_once * n_threads) {
        int32_t id[at_once];
#pragma unroll
        for (int32_t i = 0; i < at_once; i++) {
            const int32_t slot = first + i * n_threads;
            id[i] = slot < end ? ids.load(slot) : -1;
        }
#pragma unroll
        for (int32_t i = 0; i < at_once; i++) {
            bool is_bad;
            const int32_t e = local_expert(input, id[i], is_bad);
            if (e >= 0) atomicAdd(&sums[e], first + i * n_threads < first_own ? 0x10001u : 1u);
        }
    }
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

// Ranks 32 adjacent slots of a warp by expert. counts belong to the warp, one for each expert.
__device__ int32_t rank_in_warp(int32_t expert, uint16_t* counts) {
    const unsigned same = __match_any_sync(every_lane, expert);
    const int32_t rank = __popc(same & ((1u << lane_index()) - 1u));
    if (expert >= 0 && rank == 0) counts[expert] = static_cast<uint16_t>(__popc(same));
    return rank;
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

template <bool is_alone>
__global__ void __launch_bounds__(max_threads)
    sort_small_batch(const __grid_constant__ SortInput input, TokenCount tokens,
                     const __grid_constant__ Rows rows, TileRule rule,
                     const __grid_constant__ Along along, FaultWords* faults) {
    extern __shared__ uint32_t sums[];
    const auto block = static_cast<int32_t>(blockIdx.x);
    if (block >= along.sort_blocks) {
        begin_after_previous_kernel();
        const int32_t other = block - along.sort_blocks;
        if (along.takes_routing)
            take_slots(along, true_tokens(tokens) * input.top_k, other,
                       static_cast<int32_t>(gridDim.x) - along.sort_blocks, faults);
        if (other < along.arrange.n_blocks) arrange(along.arrange, along.sort_blocks);
        return;
    }
    const auto i = static_cast<int32_t>(threadIdx.x);
    const auto n_threads = static_cast<int32_t>(blockDim.x);
    const int32_t n_slots = tokens.n * input.top_k;
    const int32_t n_warps = slot_warps(n_slots);
    auto* counts = reinterpret_cast<uint16_t*>(sums + input.n_local);
    uint16_t* begins = counts + n_warps * input.n_local;
#pragma unroll 1
    for (int32_t c = i; c < (n_warps + 2) * input.n_local / 2 + 1; c += n_threads) sums[c] = 0;
    fetch_parameter(along);
    begin_after_previous_kernel();
    const int32_t n_tokens = true_tokens(tokens);
    const int32_t end = n_tokens * input.top_k;
    const int32_t first_own = block * block_slots;
    const int32_t slot = first_own + i;
    const bool has_slot = i < 32 * n_warps && slot < n_slots;
    const IdWords ids(input, along);
    bool is_bad;
    const int32_t expert =
        local_expert(input, has_slot && slot < end ? ids.load(slot) : -1, is_bad);
    if (is_bad) report_fault(faults, MOE_FAULT_ID_OUT_OF_RANGE, 1);
    uint16_t* of_warp = counts + min(warp_index(), n_warps - 1) * input.n_local;
    __syncthreads();
    int32_t rank = 0;
    if (warp_index() < n_warps) rank = rank_in_warp(expert, of_warp);
    if constexpr (!is_alone) count_slots(input, ids, first_own, end, sums);
    __syncthreads();

    const bool is_expert = i < experts_of(input);
    int32_t count = is_expert ? n_tokens : 0;  // of the shared expert
    int32_t before_block = 0;
    if (i < input.n_local) {
        count = scan_warps(counts + i, n_warps, input.n_local);
        if constexpr (!is_alone) {
            count = static_cast<int32_t>(sums[i] & 0xFFFFu);
            before_block = static_cast<int32_t>(sums[i] >> 16);
        }
    }
    uint32_t total_word;
    const LaidOut before(before_in_block(LaidOut(rule, count).word(), total_word));
    const LaidOut total(total_word);
    if (is_expert) begins[i] = static_cast<uint16_t>(before.rows + before_block);
    __syncthreads();

    if (has_slot) {
        const int32_t row = expert < 0 ? -1 : begins[expert] + of_warp[expert] + rank;
        const bool fits = row >= 0 && row < rows.capacity;
        if (fits) rows.slot[row] = slot;
        if (rows.slot_to_row) rows.slot_to_row[slot] = fits ? row : -1;
    }
    if (is_expert && i % along.sort_blocks == block)
        store_expert(rows, rule, i, before.rows, count,
                     first_tile(rule, count, before.tiles, total.tiles.large));
    const int32_t thread = block * n_threads + i;
    const int32_t step = along.sort_blocks * n_threads;
    if (thread == 0) store_tile_count(rows.n_tiles, total.tiles, rows.max_tiles);
#pragma unroll 1
    for (int32_t t = thread; input.has_shared && t < n_tokens; t += step)
        store_shared_row(input, rows.slot, rows.capacity, begins[input.n_local], t);
    const int64_t n_listed = along.lists_tokens ? round_up_to(tokens.n, row_alignment) : 0;
#pragma unroll 1
    for (int32_t t = thread; t < n_listed; t += step)
        list_token(t, n_tokens, tokens, along.token_rows, along.token_rule);
}

}  // namespace

void run_sort_small_batch(const DeviceFacts& device, const SortInput& input,
                          const TokenCount& tokens, const Rows& rows, const TileRule& rule,
                          const SortAlong& along, FaultWords* faults, cudaStream_t stream) {
    const int32_t n_slots = tokens.n * input.top_k;
    const int32_t n_warps = slot_warps(n_slots);
    const size_t bytes =
        static_cast<size_t>(input.n_local) * (sizeof(uint32_t) + n_warps * sizeof(uint16_t)) +
        static_cast<size_t>(experts_of(input) + 1) * sizeof(uint16_t);
    Along done{};
    done.sort_blocks = std::max(divide_up(n_slots, block_slots), 1);
    done.takes_routing = along.given != nullptr;
    if (along.given) done.given = *along.given;
    done.published = along.published;
    done.lists_tokens = along.token_rows != nullptr;
    if (along.token_rows) done.token_rows = *along.token_rows;
    done.token_rule = along.token_rule;
    // Several blocks have more threads than slots of their own, because each counts all slots.
    const int32_t n_threads = done.sort_blocks > 1
                                  ? max_threads
                                  : 32 * std::max({n_warps, divide_up(experts_of(input), 32), 1});
    done.arrange = arrange_along(device, along, tokens, n_threads);
    const int32_t n_taking = along.given ? divide_up(n_slots, n_threads) : 0;
    launch("sort_small_batch",
           done.sort_blocks == 1 ? sort_small_batch<true> : sort_small_batch<false>,
           done.sort_blocks + std::max(done.arrange.n_blocks, n_taking), n_threads, bytes, stream,
           input, tokens, rows, rule, done, faults);
}

void prepare_sort_small_batch() {
    load("sort_small_batch", sort_small_batch<true>);
    load("sort_small_batch", sort_small_batch<false>);
}

}  // namespace moe::cuda
