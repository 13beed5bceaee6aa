// Routing of tokens, one warp each. It gives the same ids and weights as cpu/ref/route.cpp, to the
// bit, because functions and order of sums are the same. select_block.cu serves small batches over
// up to 512 experts, except for the sparse mixer.
//
// Inputs: LogitParts [part][T][e] of float32, e = n_experts_all up to 8192; optional biases [e];
// optional ids [T, k], k up to 64.
// Outputs: ids [T, k] and weights [T, k], dense, and optional copies and logits for the caller.
// Shared memory of a warp: candidates, where keys are kept in registers, n of a lane (n = 0: in
// shared memory); float scores [e]; float keys [e] where a bias or groups make them differ from
// scores; one float per group. Lane l owns the experts l, l + 32, ... and the chosen slots l and l
// + 32.
//
// 1. logits: add the parts, publish, round, cap, sanitise, into scores
// 2. scores in place, unless the rule works on the logits
// 3. ids: given, from the hash table, or the first k keys in order
// 4. weights: score of each id, post score, renormalisation, scales; publish
// Warps are independent: no thread block synchronizes.
#include <algorithm>

#include "libmoe/cuda/device/dependent_launch.cuh"
#include "libmoe/cuda/device/memory.cuh"
#include "libmoe/cuda/router/select.cuh"
#include "libmoe/cuda/runtime/launch.cuh"

namespace moe::cuda {
namespace {

constexpr int32_t max_warps = 8;
constexpr int32_t usual_shared_bytes = 48 * 1024;
constexpr int32_t max_shared_bytes = 3 * 8192 * 4;  // one warp, the most experts, a group each

// ---- a token's memory

struct WarpMemory {
    float* scores;
    float* keys;  // may be scores
    float* group_scores;
};

__host__ __device__ int32_t warp_floats(const SelectInput& input) {
    const Routing& r = input.routing;
    return r.n_experts_all * (has_own_keys(input) ? 2 : 1) + (r.n_group > 1 ? r.n_group : 0);
}

__device__ WarpMemory memory_at(const SelectInput& input, float* scores) {
    float* keys = has_own_keys(input) ? scores + input.routing.n_experts_all : scores;
    return {scores, keys, keys + input.routing.n_experts_all};
}

// ---- logits and scores

// A lane loads this many logits at a time: `first`, `first` + 32, ...; those past the end repeat
// the last.
constexpr int32_t logits_at_once = 2;

// Its loads are issued before those of the parts, so that they overlap.
__device__ void issue_bias_loads(const LogitParts& logits, int32_t first, int32_t n_experts,
                                 float (&bias)[logits_at_once]) {
#pragma unroll
    for (int32_t j = 0; j < logits_at_once; j++)
        bias[j] =
            logits.bias ? load_global(logits.bias + min(first + 32 * j, n_experts - 1)) : 0.0f;
}

// Eight loads are in flight at once. The additions have no branches, because a branch would wait
// for a load. A part past the last one repeats it and is not added.
__device__ void add_parts(const LogitParts& logits, int32_t t, int32_t first, int32_t n_experts,
                          float (&z)[logits_at_once]) {
    constexpr int32_t parts_at_once = 8;
    const float* at[logits_at_once];
#pragma unroll
    for (int32_t j = 0; j < logits_at_once; j++) {
        at[j] = logits.data + t * logits.stride + min(first + 32 * j, n_experts - 1);
        z[j] = load_global(at[j]);
    }
#pragma unroll 1
    for (int32_t p = 1; p < logits.n_parts; p += parts_at_once) {
        float part[parts_at_once][logits_at_once];
#pragma unroll
        for (int32_t q = 0; q < parts_at_once; q++) {
            const int64_t offset = min(p + q, logits.n_parts - 1) * logits.part_stride;
#pragma unroll
            for (int32_t j = 0; j < logits_at_once; j++) part[q][j] = load_global(at[j] + offset);
        }
#pragma unroll
        for (int32_t q = 0; q < parts_at_once; q++) {
#pragma unroll
            for (int32_t j = 0; j < logits_at_once; j++) {
                const float sum = add(z[j], part[q][j]);
                z[j] = p + q < logits.n_parts ? sum : z[j];
            }
        }
    }
}

__device__ void take_logits(const SelectInput& input, const SelectOutput& output, int32_t t,
                            float* scores) {
    const int32_t n = input.routing.n_experts_all;
    float* published = output.out_logits;
    if (published) published += t * output.out_logits_stride;
    for (int32_t i = lane_index(); i < n; i += 32 * logits_at_once) {
        float z[logits_at_once], bias[logits_at_once];
        issue_bias_loads(input.logits, i, n, bias);
        add_parts(input.logits, t, i, n, z);
#pragma unroll
        for (int32_t j = 0; j < logits_at_once; j++)
            if (i + 32 * j < n)
                scores[i + 32 * j] = take_logit(input, i + 32 * j, z[j], bias[j], published);
    }
}

__device__ void softmax(int32_t n, float* values) {
    float top = -largest;
    for (int32_t i = lane_index(); i < n; i += 32) top = fmaxf(top, values[i]);
    top = warp_max(top);
    float sum = 0.0f;
    for (int32_t i = lane_index(); i < n; i += 32) {
        values[i] = exponential(subtract(values[i], top));
        sum = add(sum, values[i]);
    }
    sum = warp_sum(sum);
    for (int32_t i = lane_index(); i < n; i += 32) values[i] = divide(values[i], sum);
}

__device__ void apply_scores(moe_score score, int32_t n, float* scores) {
    if (score == MOE_SCORE_SOFTMAX) return softmax(n, scores);
    if (score == MOE_SCORE_NONE) return;
    for (int32_t i = lane_index(); i < n; i += 32) scores[i] = score_of(score, scores[i]);
}

// ---- selection

__device__ void make_keys(const SelectInput& input, int32_t t, const WarpMemory& memory) {
    const float* bias =
        uses_second_bias(input, t) ? input.second_selection_bias : input.selection_bias;
    for (int32_t i = lane_index(); i < input.routing.n_experts_all; i += 32) {
        const float score = memory.scores[i];
        memory.keys[i] = finite_logit(bias ? add(score, bias[i]) : score);
    }
    __syncwarp();
}

// The two largest of a set of keys.
struct TopTwo {
    float first = -infinity;
    float second = -infinity;

    __device__ void take(const TopTwo& other) {
        second = fmaxf(fminf(first, other.first), fmaxf(second, other.second));
        first = fmaxf(first, other.first);
    }
};

__device__ float group_score(moe_group_score rule, const float* keys, int32_t n) {
    TopTwo top;
    for (int32_t i = lane_index(); i < n; i += 32) top.take({keys[i], -infinity});
#pragma unroll
    for (int32_t apart = 16; apart > 0; apart /= 2)
        top.take({__shfl_xor_sync(every_lane, top.first, apart),
                  __shfl_xor_sync(every_lane, top.second, apart)});
    return rule == MOE_GROUP_SCORE_TOP2_SUM && n > 1 ? add(top.first, top.second) : top.first;
}

__device__ void score_groups(const Routing& r, const WarpMemory& memory) {
    const int32_t size = r.n_experts_all / r.n_group;
    for (int32_t g = 0; g < r.n_group; g++) {
        const float score = group_score(r.group_score, memory.keys + g * size, size);
        if (lane_index() == 0) memory.group_scores[g] = score;
    }
}

// Counts the groups that come before group g.
__device__ int32_t groups_before(const Routing& r, const float* scores, int32_t g) {
    const float own = scores[g];
    int32_t before = 0;
#pragma unroll 8
    for (int32_t h = 0; h < r.n_group; h++) before += comes_after(own, g, {scores[h], h}) ? 1 : 0;
    return before;
}

// Masks the keys of the experts outside the best topk_group groups; those groups have their scores.
__device__ void limit_groups(const Routing& r, const WarpMemory& memory) {
    const int32_t size = r.n_experts_all / r.n_group;
    const float mask = masked_key(r);
    for (int32_t base = 0; base < r.n_group; base += 32) {
        const int32_t g = base + lane_index();
        const bool leaves =
            g < r.n_group && groups_before(r, memory.group_scores, g) >= r.topk_group;
        for (uint32_t left = __ballot_sync(every_lane, leaves); left != 0; left &= left - 1) {
            float* keys = memory.keys + (base + __ffs(static_cast<int32_t>(left)) - 1) * size;
            for (int32_t i = lane_index(); i < size; i += 32) keys[i] = mask;
        }
    }
    __syncwarp();
}

// Finds the first k by sorting the candidates at once; with too many candidates it walks the order.
template <int n>
__device__ Slots<int32_t> first_of(const RegisterOrder<n>& order, int32_t k,
                                   Candidate* candidates) {
    if (k > max_candidates) return first_of(order, k);
    const int32_t n_found = order.find(order.bound_of_first(k, candidates), candidates);
    if (n_found > max_candidates) return first_of(order, k);
    const int32_t index = in_order(candidates, n_found);
    return {{lane_index() < k ? index : -1, -1}};
}

template <int n>
__device__ Slots<int32_t> first_k(const float* keys, int32_t n_keys, int32_t k,
                                  Candidate* candidates) {
    if constexpr (n == 0) {
        return first_of(WarpOrder(keys, n_keys), k);
    } else {
        uint32_t ranks[n];
#pragma unroll
        for (int32_t j = 0; j < n; j++) {
            const int32_t i = lane_index() + 32 * j;
            ranks[j] = i < n_keys ? rank_of(keys[i]) : 0;
        }
        return first_of(RegisterOrder<n>(ranks), k, candidates);
    }
}

template <int n>
__device__ Slots<int32_t> select_top_k(const SelectInput& input, int32_t t,
                                       const WarpMemory& memory, Candidate* candidates) {
    const Routing& r = input.routing;
    if (memory.keys != memory.scores) make_keys(input, t, memory);
    if (r.n_group > 1) {
        score_groups(r, memory);
        __syncwarp();
        limit_groups(r, memory);
    }
    return first_k<n>(memory.keys, r.n_experts_all, r.top_k, candidates);
}

// ---- weights

// Returns the softmax weight of expert `chosen` among those whose logit is within the jitter of its
// own; `excluded` (or -1) does not take part.
__device__ float sparsemixer_weight(const float* z, int32_t n, float jitter, int32_t chosen,
                                    int32_t excluded) {
    if (chosen < 0) return 0.0f;
    const float threshold = z[chosen];
    const auto kept = [&](int32_t i) {
        const float size = fabsf(z[i]);
        const float distance =
            divide(subtract(threshold, z[i]), size < threshold ? threshold : size);
        return i == chosen || (i != excluded && !(distance > multiply(2.0f, jitter)));
    };
    float top = threshold;
    for (int32_t i = lane_index(); i < n; i += 32)
        if (kept(i)) top = fmaxf(top, z[i]);
    top = warp_max(top);
    float sum = 0.0f;
    for (int32_t i = lane_index(); i < n; i += 32)
        sum = add(sum, kept(i) ? exponential(subtract(z[i], top)) : 0.0f);
    return divide(exponential(subtract(threshold, top)), warp_sum(sum));
}

__device__ Slots<float> sparsemixer_weights(const Routing& r, const float* logits,
                                            const Slots<int32_t>& ids) {
    const int32_t first = __shfl_sync(every_lane, ids.at[0], 0);
    const int32_t second = __shfl_sync(every_lane, ids.at[0], 1);
    const int32_t n = r.n_experts_all;
    const float w0 = sparsemixer_weight(logits, n, r.sparsemixer_jitter, first, -1);
    const float w1 = sparsemixer_weight(logits, n, r.sparsemixer_jitter, second, first);
    return {{lane_index() == 0 ? w0 : w1, 0.0f}};
}

// ---- the kernels

template <int n>
__host__ __device__ int32_t warp_bytes(const SelectInput& input) {
    const int32_t bytes = warp_floats(input) * 4 + (n > 0 ? sizeof(Candidate) * max_candidates : 0);
    return (bytes + 15) / 16 * 16;
}

// Blocks of a multiprocessor: they leave a thread 48 registers, and 40 where the keys lie in shared
// memory.
template <int n>
constexpr int least_blocks = n == 0 ? 6 : 5;

template <int n>
__global__ void __launch_bounds__(max_warps * 32, least_blocks<n>)
    select_in_warps(const __grid_constant__ SelectInput input, TokenCount tokens,
                    const __grid_constant__ SelectOutput output, FaultWords* faults) {
    extern __shared__ __align__(16) std::byte shared[];
    begin_after_previous_kernel();
    const auto t = static_cast<int32_t>(blockIdx.x * (blockDim.x / 32)) + warp_index();
    if (t >= true_tokens(tokens)) return;
    const Routing& r = input.routing;
    auto* candidates = reinterpret_cast<Candidate*>(shared + warp_index() * warp_bytes<n>(input));
    const WarpMemory memory =
        memory_at(input, reinterpret_cast<float*>(candidates + (n > 0 ? max_candidates : 0)));
    const bool on_logits = r.selection == MOE_SELECT_SPARSEMIXER;

    take_logits(input, output, t, memory.scores);
    if (!on_logits) apply_scores(r.score, r.n_experts_all, memory.scores);
    __syncwarp();

    Slots<int32_t> ids;
    if (has_ids(input))
        ids = check_ids(r, issue_id_loads(input, t), faults);
    else if (on_logits)
        ids = first_k<n>(memory.scores, r.n_experts_all, r.top_k, candidates);
    else
        ids = select_top_k<n>(input, t, memory, candidates);

    const Slots<float> weights = on_logits ? sparsemixer_weights(r, memory.scores, ids)
                                           : score_weights(r, ids, scores_of(memory.scores, ids));
    store_slots(input, output, t, ids, weights);
}

// Converts given ids and weights, one thread per slot.
__global__ void take_slots(GivenRouting given, TokenCount tokens, SelectOutput output,
                           FaultWords* faults) {
    begin_after_previous_kernel();
    const int32_t k = given.top_k;
    const int64_t slot = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (slot >= static_cast<int64_t>(true_tokens(tokens)) * k) return;
    take_slot(given, output, static_cast<int32_t>(slot / k), static_cast<int32_t>(slot % k),
              faults);
}

// Tokens are spread over the SMs; several share a thread block as far as shared memory allows.
template <int n>
void launch_warps(const DeviceFacts& device, const SelectInput& input, const TokenCount& tokens,
                  const SelectOutput& output, FaultWords* faults, cudaStream_t stream) {
    const int64_t bytes = warp_bytes<n>(input);
    const int64_t fitting = std::max<int64_t>(usual_shared_bytes / bytes, 1);
    const int64_t wanted = (int64_t{tokens.n} + device.n_sms - 1) / device.n_sms;
    const int64_t warps = std::clamp<int64_t>(wanted, 1, std::min<int64_t>(fitting, max_warps));
    const int64_t n_blocks = (tokens.n + warps - 1) / warps;
    launch("select_in_warps", select_in_warps<n>, n_blocks, static_cast<int>(warps * 32),
           static_cast<size_t>(warps * bytes), stream, input, tokens, output, faults);
}

}  // namespace

void run_select(const DeviceFacts& device, SelectKernel kernel, const SelectInput& input,
                const TokenCount& tokens, const SelectOutput& output, FaultWords* faults,
                cudaStream_t stream) {
    const Routing& r = input.routing;
    if (kernel == SelectKernel::block)
        return launch_block_select(stream, input, tokens, output, faults);
    const auto launch_with = r.n_experts_all <= 128   ? launch_warps<4>
                             : r.n_experts_all <= 256 ? launch_warps<8>
                             : r.n_experts_all <= 512 ? launch_warps<16>
                                                      : launch_warps<0>;
    launch_with(device, input, tokens, output, faults, stream);
}

void run_take_routing(const GivenRouting& given, const TokenCount& tokens,
                      const SelectOutput& output, FaultWords* faults, cudaStream_t stream) {
    constexpr int n_threads = 256;
    const int64_t n_slots = int64_t{tokens.n} * given.top_k;
    launch("take_slots", take_slots, (n_slots + n_threads - 1) / n_threads, n_threads, 0, stream,
           given, tokens, output, faults);
}

void prepare_select() {
    load("select_in_warps", select_in_warps<0>, max_shared_bytes);
    load("select_in_warps", select_in_warps<4>);
    load("select_in_warps", select_in_warps<8>);
    load("select_in_warps", select_in_warps<16>);
    load("take_slots", take_slots);
    prepare_block_select();
}

}  // namespace moe::cuda
