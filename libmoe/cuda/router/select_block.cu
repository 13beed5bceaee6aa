// Routing of a small batch: a thread block for each token, a thread for each of up to 512 experts,
// for every rule but the sparse mixer. It computes the same bits as select.cu, with the same
// functions and order of sums, at a lower latency. Latency is the number of dependent instructions
// between the wait for the logits and the stores. So a thread loops over nothing that it can own,
// and every load that does not depend on the preceding kernel in the stream (PDL) is issued before
// the wait.
//
// Inputs: LogitParts [part][T][e] of float32, e up to 512; optional biases [e]; optional ids [T,
// k], k up to 64.
// Outputs: ids [T, k] and weights [T, k], dense, and optional copies and logits for the caller.
//
//   1. before the wait for the preceding kernel: biases, and the addresses of the parts
//   2. logits: add the parts, publish, sanitise; each stays in its thread's register from here on
//   3. scores; for a softmax the largest logit of the block, then the sum, which every warp
//      computes in the one order
//   4. keys as ranks (warp.cuh); with groups, a warp finds the two largest keys of a group, a
//      thread the position of its group, and ranks outside the best groups become that of the mask
//   5. each warp lists those of its keys that can be among the first k; the first warp sorts them,
//      or walks all ranks where there are too many; given ids are checked instead
//   6. the first warp computes the weights and stores the outputs
#include "libmoe/cuda/device/dependent_launch.cuh"
#include "libmoe/cuda/device/memory.cuh"
#include "libmoe/cuda/device/parameters.cuh"
#include "libmoe/cuda/router/select.cuh"
#include "libmoe/cuda/runtime/launch.cuh"

namespace moe::cuda {
namespace {

constexpr int32_t max_experts = max_block_select_experts;
constexpr int32_t max_block_warps = max_experts / 32;

struct alignas(16) BlockMemory {
    float terms[max_experts];  // exponentials of a softmax, 0 past the last expert
    float scores[max_experts];
    uint32_t ranks[max_experts];                // 0 past the last expert
    uint32_t ranks_of_groups[max_experts + 4];  // of the group scores, 0 past the last group
    uint32_t largest_of_parts[32];
    float maxima[max_block_warps];
    Candidate candidates[max_candidates];
    int32_t n_candidates;
};

// The expert of this thread; threads past the last expert repeat it. The constructor loads what
// does not depend on the logit.
struct OwnExpert {
    static constexpr int32_t at_once = 8;
    const float* parts[at_once];  // addresses; those past the last part repeat it
    int32_t index;
    int32_t group;
    bool exists;
    float bias;
    float selection_bias;

    __device__ __forceinline__ OwnExpert(const SelectInput& input, int32_t t) {
        const Routing& r = input.routing;
        const LogitParts& logits = input.logits;
        const auto thread = static_cast<int32_t>(threadIdx.x);
        exists = thread < r.n_experts_all;
        index = min(thread, r.n_experts_all - 1);
        group = r.n_group > 1 ? index / (r.n_experts_all / r.n_group) : 0;
        compute_now(group);
#pragma unroll
        for (int32_t p = 0; p < at_once; p++) {
            const int64_t part = min(p, logits.n_parts - 1);
            parts[p] = logits.data + part * logits.part_stride + t * logits.stride + index;
            compute_now(parts[p]);
        }
        const bool is_biased = input.selection_bias && !has_ids(input);
        bias = logits.bias ? load_global(logits.bias + index) : 0.0f;
        selection_bias = is_biased ? load_global(input.selection_bias + index) : 0.0f;
    }
    // After the wait, because the caller's flags may come from the preceding kernel. Tokens of the
    // first bias load nothing more.
    __device__ __forceinline__ void take_second_bias(const SelectInput& input, int32_t t) {
        if (uses_second_bias(input, t) && !has_ids(input))
            selection_bias = load_global(input.second_selection_bias + index);
    }
    // Issues the loads of the first parts before any other load.
    __device__ __forceinline__ void issue_loads(float (&part)[at_once]) const {
#pragma unroll
        for (int32_t p = 0; p < at_once; p++) part[p] = load_global(parts[p]);
    }
    __device__ __forceinline__ float add_parts(const LogitParts& logits,
                                               const float (&part)[at_once]) const {
        float sum = part[0];
#pragma unroll
        for (int32_t p = 1; p < at_once; p++) sum = p < logits.n_parts ? add(sum, part[p]) : sum;
#pragma unroll 1
        for (int32_t p = at_once; p < logits.n_parts; p++)
            sum = add(sum, load_global(parts[0] + p * logits.part_stride));
        return sum;
    }
    __device__ __forceinline__ float take(const SelectInput& input, const SelectOutput& output,
                                          int32_t t, const float (&part)[at_once]) const {
        float* published = output.out_logits;
        if (published) published += t * output.out_logits_stride;
        return take_logit(input, index, add_parts(input.logits, part), bias,
                          exists ? published : nullptr);
    }
};

// ---- scores

__device__ __forceinline__ float block_max(float value, BlockMemory& memory) {
    value = warp_max(value);
    if (lane_index() == 0) memory.maxima[warp_index()] = value;
    __syncthreads();
    const auto last = static_cast<int32_t>(blockDim.x / 32) - 1;
    return warp_max(memory.maxima[min(lane_index(), last)]);
}

// Returns the softmax score of this thread's logit z over the logits of the thread block.
template <int n>
__device__ __forceinline__ float softmax_of(float z, bool exists, BlockMemory& memory) {
    const float top = block_max(z, memory);
    const float own = exponential(subtract(z, top));
    memory.terms[threadIdx.x] = exists ? own : 0.0f;
    __syncthreads();
    float sum = 0.0f;
#pragma unroll
    for (int32_t j = 0; j < n; j++) sum = add(sum, memory.terms[lane_index() + 32 * j]);
    return divide(own, warp_sum(sum));
}

// ---- keys

// Finds the two largest ranks of a warp from each lane's own two, of which `first` is the larger.
__device__ __forceinline__ void largest_two(uint32_t first, uint32_t second, uint32_t& top,
                                            uint32_t& next) {
    top = __reduce_max_sync(every_lane, first);
    const uint32_t have = __ballot_sync(every_lane, first == top);
    const bool gives = lane_index() == __ffs(static_cast<int32_t>(have)) - 1;
    next = __reduce_max_sync(every_lane, gives ? second : first);
}

// Returns the rank of the group score of n keys, given their ranks.
__device__ __forceinline__ uint32_t rank_of_group(moe_group_score rule, const uint32_t* ranks,
                                                  int32_t n) {
    uint32_t first = 0, second = 0;
    for (int32_t i = lane_index(); i < n; i += 32) {
        second = max(second, min(first, ranks[i]));
        first = max(first, ranks[i]);
    }
    uint32_t top, next;
    largest_two(first, second, top, next);
    const bool is_sum = rule == MOE_GROUP_SCORE_TOP2_SUM && n > 1;
    return is_sum ? rank_of(add(key_of(top), key_of(next))) : top;
}

// Tells whether this thread's group is among the best.
__device__ __forceinline__ bool is_in_best_group(const Routing& r, int32_t group,
                                                 const uint32_t* ranks) {
    const uint32_t own = ranks[group];
    int32_t before = 0;
#pragma unroll 2
    for (int32_t h = 0; h < r.n_group; h += 4) {
        const uint4 four = *reinterpret_cast<const uint4*>(ranks + h);
        int32_t i = h;
        for (const uint32_t other : {four.x, four.y, four.z, four.w}) {
            before += other > own || (other == own && i < group) ? 1 : 0;
            i++;
        }
    }
    return before < r.topk_group;
}

// Returns the rank of this thread's key, which is that of the mask outside the best groups.
__device__ __forceinline__ uint32_t limit_to_groups(const Routing& r, const OwnExpert& own,
                                                    uint32_t rank, BlockMemory& memory) {
    const int32_t size = r.n_experts_all / r.n_group;
    const auto n_warps = static_cast<int32_t>(blockDim.x / 32);
    memory.ranks[threadIdx.x] = rank;
    __syncthreads();
    for (int32_t g = warp_index(); g < r.n_group; g += n_warps) {
        const uint32_t of_group = rank_of_group(r.group_score, memory.ranks + g * size, size);
        if (lane_index() == 0) memory.ranks_of_groups[g] = of_group;
    }
    __syncthreads();
    return is_in_best_group(r, own.group, memory.ranks_of_groups) ? rank : rank_of(masked_key(r));
}

__device__ __forceinline__ uint32_t rank_of_key(const SelectInput& input, const OwnExpert& own,
                                                float score, BlockMemory& memory) {
    const Routing& r = input.routing;
    const float key = input.selection_bias ? add(score, own.selection_bias) : score;
    uint32_t rank = rank_of(has_own_keys(input) ? finite_logit(key) : key);
    if (r.n_group > 1) rank = limit_to_groups(r, own, rank, memory);
    return own.exists ? rank : 0;
}

// ---- ids

// Lists the keys that can be among the first k, in any order, and stores all ranks. The largest
// ranks of parts of n adjacent lanes give a lower bound. It synchronizes once inside; the caller
// synchronizes afterwards.
template <int n>
__device__ __forceinline__ void find_candidates(uint32_t rank, int32_t k, BlockMemory& memory) {
    uint32_t largest_of_part = rank;
#pragma unroll
    for (int apart = 1; apart < n; apart *= 2)
        largest_of_part = max(largest_of_part, __shfl_xor_sync(every_lane, largest_of_part, apart));
    const auto thread = static_cast<int32_t>(threadIdx.x);
    if (thread % n == 0) memory.largest_of_parts[thread / n] = largest_of_part;
    memory.ranks[thread] = rank;
    __syncthreads();
    const uint32_t bound = bound_of_first(k, memory.largest_of_parts);
    const bool is_one = rank >= max(bound, 1u);
    const uint32_t ones = __ballot_sync(every_lane, is_one);
    if (ones == 0) return;
    int32_t first = 0;
    if (lane_index() == 0) first = atomicAdd(&memory.n_candidates, __popc(ones));
    const int32_t at =
        __shfl_sync(every_lane, first, 0) + __popc(ones & ((1u << lane_index()) - 1u));
    if (is_one && at < max_candidates) memory.candidates[at] = {rank, thread};
}

// The first warp calls it.
template <int n>
__device__ __forceinline__ Slots<int32_t> choose(const Routing& r, BlockMemory& memory) {
    if (r.top_k <= max_candidates && memory.n_candidates <= max_candidates) {
        const int32_t index = in_order(memory.candidates, memory.n_candidates);
        return {{lane_index() < r.top_k ? index : -1, -1}};
    }
    uint32_t ranks[n];
#pragma unroll
    for (int32_t j = 0; j < n; j++) ranks[j] = memory.ranks[lane_index() + 32 * j];
    return first_of(RegisterOrder<n>(ranks), r.top_k);
}

// ---- the kernel

// Handles up to 32 n_slots slots.
template <int n_slots>
__device__ __forceinline__ void finish(const SelectInput& input, const SelectOutput& output,
                                       int32_t t, const Slots<int32_t>& chosen,
                                       const float* scores) {
    const Slots<int32_t, n_slots> ids = first_slots<n_slots>(chosen);
    store_slots(input, output, t, ids, score_weights(input.routing, ids, scores_of(scores, ids)));
}

template <int n>
__global__ void __launch_bounds__(32 * n)
    select_in_block(const __grid_constant__ SelectInput input, TokenCount tokens,
                    const __grid_constant__ SelectOutput output, FaultWords* faults) {
    __shared__ BlockMemory memory;
    const Routing& r = input.routing;
    const auto t = static_cast<int32_t>(blockIdx.x);
    fetch_parameter(input);
    fetch_parameter(output);
    OwnExpert own(input, t);
    if (threadIdx.x == 0) memory.n_candidates = 0;
    if (threadIdx.x < 4) memory.ranks_of_groups[max(r.n_group, 0) + threadIdx.x] = 0;
    begin_after_previous_kernel();
    float parts[OwnExpert::at_once];
    own.issue_loads(parts);
    if (t >= true_tokens(tokens)) return;
    own.take_second_bias(input, t);

    const bool is_first_warp = threadIdx.x < 32;
    PrefetchedIds prefetched{};
    if (has_ids(input) && is_first_warp) prefetched = issue_id_loads(input, t);
    const float z = own.take(input, output, t, parts);
    const float score =
        r.score == MOE_SCORE_SOFTMAX ? softmax_of<n>(z, own.exists, memory) : score_of(r.score, z);
    memory.scores[threadIdx.x] = score;
    if (!has_ids(input))
        find_candidates<n>(rank_of_key(input, own, score, memory), r.top_k, memory);
    __syncthreads();
    if (!is_first_warp) return;
    const Slots<int32_t> ids =
        has_ids(input) ? check_ids(r, prefetched, faults) : choose<n>(r, memory);
    if (r.top_k <= 32)
        finish<1>(input, output, t, ids, memory.scores);
    else
        finish<2>(input, output, t, ids, memory.scores);
}

using BlockKernel = void (*)(SelectInput, TokenCount, SelectOutput, FaultWords*);

struct BlockLaunch {
    BlockKernel kernel;
    int n_threads;
};

BlockLaunch launch_of(int32_t n_experts) {
    if (n_experts <= 128) return {select_in_block<4>, 128};
    if (n_experts <= 256) return {select_in_block<8>, 256};
    return {select_in_block<16>, 512};
}

}  // namespace

void launch_block_select(cudaStream_t stream, const SelectInput& input, const TokenCount& tokens,
                         const SelectOutput& output, FaultWords* faults) {
    const auto [kernel, n_threads] = launch_of(input.routing.n_experts_all);
    launch("select_in_block", kernel, tokens.n, n_threads, 0, stream, input, tokens, output,
           faults);
}

void prepare_block_select() {
    for (const int32_t n_experts : {128, 256, 512}) {
        auto* kernel = launch_of(n_experts).kernel;
        load("select_in_block", kernel);
        want_most_shared_memory("select_in_block", kernel);  // same carveout as the gemv kernels
    }
}

}  // namespace moe::cuda
