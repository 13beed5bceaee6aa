// Small kernels beside the sort, each with a thread per token, slot or tile.
//
//   list_tokens: Rows of one dense "expert" whose rows are the T tokens themselves
//   count_experts: counts [E_all] of int64, the tokens per global expert, from ids [T, k] of int32
//   check_tokens: reports a number of tokens outside [0, n] as a fault
// Only count_experts shares data between threads: its counts.
#include "libmoe/cuda/device/dependent_launch.cuh"
#include "libmoe/cuda/dispatch/steps.cuh"
#include "libmoe/cuda/runtime/launch.cuh"

namespace moe::cuda {
namespace {

constexpr int n_threads = 256;
constexpr int32_t max_experts = 8192;

__global__ void list_tokens(TokenCount tokens, Rows rows, TileRule rule) {
    begin_after_previous_kernel();
    const auto i = static_cast<int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
    list_token(i, true_tokens(tokens), tokens, rows, rule);
}

// A thread block counts in shared memory first, to save global atomics. Integer sums do not depend
// on the order.
__global__ void count_experts(const int32_t* ids, int32_t top_k, int32_t n_experts_all,
                              TokenCount tokens, unsigned long long* counts) {
    extern __shared__ int32_t seen[];
    for (auto e = static_cast<int32_t>(threadIdx.x); e < n_experts_all; e += n_threads) seen[e] = 0;
    begin_after_previous_kernel();
    __syncthreads();
    const int64_t n_slots = int64_t{true_tokens(tokens)} * top_k;
    const int64_t step = int64_t{gridDim.x} * n_threads;
    for (int64_t s = int64_t{blockIdx.x} * n_threads + threadIdx.x; s < n_slots; s += step) {
        const int32_t id = ids[s];
        if (id >= 0 && id < n_experts_all) atomicAdd(&seen[id], 1);
    }
    __syncthreads();
    for (auto e = static_cast<int32_t>(threadIdx.x); e < n_experts_all; e += n_threads)
        if (seen[e] > 0) atomicAdd(&counts[e], static_cast<unsigned long long>(seen[e]));
}

__global__ void check_tokens(const int32_t* n_device, int32_t n, FaultWords* faults) {
    begin_after_previous_kernel();
    if (*n_device < 0 || *n_device > n) report_fault(faults, MOE_FAULT_TOKENS_OUT_OF_RANGE, 0);
}

}  // namespace

void run_list_tokens(const DeviceFacts&, const TokenCount& tokens, const Rows& rows,
                     const TileRule& rule, cudaStream_t stream) {
    // The grid covers the padding, and there are never more tiles than tokens.
    const int64_t n = round_up_to(tokens.n, row_alignment);
    launch("list_tokens", list_tokens, (n + n_threads - 1) / n_threads, n_threads, 0, stream,
           tokens, rows, rule);
}

void run_count_experts(const int32_t* ids, int32_t top_k, int32_t n_experts_all,
                       const TokenCount& tokens, int64_t* counts, cudaStream_t stream) {
    constexpr int64_t max_blocks = 128;
    const int64_t n_blocks = (int64_t{tokens.n} * top_k + 4 * n_threads - 1) / (4 * n_threads);
    launch("count_experts", count_experts, n_blocks < max_blocks ? n_blocks : max_blocks, n_threads,
           static_cast<size_t>(n_experts_all) * 4, stream, ids, top_k, n_experts_all, tokens,
           reinterpret_cast<unsigned long long*>(counts));
}

void run_check_tokens(const int32_t* n_device, int32_t n, FaultWords* faults, cudaStream_t stream) {
    launch("check_tokens", check_tokens, 1, 1, 0, stream, n_device, n, faults);
}

void prepare_dispatch() {
    load("list_tokens", list_tokens);
    load("count_experts", count_experts, max_experts * 4);
    load("check_tokens", check_tokens);
    prepare_sort();
    prepare_gather();
}

}  // namespace moe::cuda
