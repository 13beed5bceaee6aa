// Gathers rows by slot and permutes or multiplies their columns (gather_slots.hpp).
//
// Inputs: rows of bfloat16 or float16; tables of the experts; ids.
// Output: a row for each slot. Precondition: k is a multiple of 64.
//
// A row of the grid serves a token. A block has one of its slots and columns_of_block columns;
// every warp lists the token's slots and finds the expert. Columns are read in any order: a row of
// 16-bit values is small enough for the L1.
//
// Between gate and up and down the next kernel may start at once, so that down's weights are on
// their way. x, ids and slot weights, which down reads before its wait (gemv_down.cuh), are there:
// gate and up let this kernel start after their own wait for the writers.
#include "libmoe/cuda/gemv/gather_slots.hpp"

#include "libmoe/cuda/device/dependent_launch.cuh"
#include "libmoe/cuda/device/element.cuh"
#include "libmoe/cuda/gemv/gemv_slots.cuh"
#include "libmoe/cuda/runtime/launch.cuh"

namespace moe::cuda {
namespace {

constexpr int n_threads = 128;
constexpr int columns_of_thread = 8;
constexpr int columns_of_block = n_threads * columns_of_thread;

struct Call {
    SlotGather gather;
    int32_t n_parts;  // blocks of a slot
    bool packets;     // rows of the input begin on 16 bytes
};

// Eight columns from k on, as they are.
__device__ void load_columns(const Call& call, const uint16_t* row, int32_t k,
                             float (&x)[columns_of_thread]) {
    const SlotGather& gather = call.gather;
    if (call.packets && k + columns_of_thread <= gather.n_columns)
        return load_values(row, gather.in.type, k, x);
    for (int i = 0; i < columns_of_thread; i++)
        x[i] = k + i < gather.n_columns ? widen(row[k + i], gather.in.type) : 0.0f;
}

__device__ float column_value(const SlotGather& gather, const uint16_t* row, int32_t k,
                              uint32_t word) {
    if (gather.table == ColumnTable::factors)
        return k < gather.n_columns ? widen(row[k], gather.in.type) * __uint_as_float(word) : 0.0f;
    const bool exists = k < gather.n_columns && word < static_cast<uint32_t>(gather.n_columns);
    return exists ? widen(row[word], gather.in.type) : 0.0f;
}

__device__ void load_by_table(const SlotGather& gather, const uint16_t* row, int32_t expert,
                              int32_t k, float (&x)[columns_of_thread]) {
    const uint32_t* table = gather.columns + int64_t{2} * expert * gather.k + k;
    const uint4 words[2] = {load_global_16(table), load_global_16(table + 4)};
    const uint32_t word[columns_of_thread] = {words[0].x, words[0].y, words[0].z, words[0].w,
                                              words[1].x, words[1].y, words[1].z, words[1].w};
#pragma unroll
    for (int i = 0; i < columns_of_thread; i++) x[i] = column_value(gather, row, k + i, word[i]);
}

__global__ void __launch_bounds__(n_threads) gather_slots(const __grid_constant__ Call call) {
    __shared__ int32_t lists[n_threads / 32][max_gemv_slots];
    const SlotGather& gather = call.gather;
    const GemvSlots& slots = gather.slots;
    const auto lane = static_cast<int32_t>(threadIdx.x & 31);
    int32_t* slot_list = lists[threadIdx.x >> 5];
    const int32_t v = static_cast<int32_t>(blockIdx.x) / call.n_parts;
    const int32_t part = static_cast<int32_t>(blockIdx.x) - v * call.n_parts;
    const int64_t own = token_index() * slots.n_slots + v;
    const IdAddresses id_addresses(slots, lane);
    const bool is_between = !gather.experts;
    if (is_between) let_next_kernel_start();
    wait_for_previous_kernel();
    if (!is_between) let_next_kernel_start();
    const SlotIds ids = id_addresses.load();
    const int32_t n_slots = list_slots(slots, find_experts(slots, ids, lane), lane, slot_list);
    const bool is_present = v < n_slots;
    const int32_t entry = is_present ? slot_list[v] : slot_entry(-1, 0);
    if (gather.experts && part == 0) {
        if (threadIdx.x == 0) {
            gather.experts[own] = is_present ? slot_expert(entry) : -1;
            const bool has_weight = is_present && !is_shared_slot(slots, slot_index(entry));
            gather.weights[own] =
                has_weight ? load_global(weights_of_token(slots) + slot_index(entry)) : 1.0f;
        }
        if (v == 0 && threadIdx.x < 32) report_bad_ids(slots, ids);
    }
    const int32_t k =
        columns_of_block * part + columns_of_thread * static_cast<int32_t>(threadIdx.x);
    if (!is_present || k >= gather.k) return;
    const auto token = static_cast<int32_t>(token_index());
    const int32_t source =
        (gather.in.index ? load_global(gather.in.index + token) : token) / gather.in.divisor;
    const auto* row = static_cast<const uint16_t*>(gather.in.data) + source * gather.in.stride +
                      v * gather.slot_stride;
    float x[columns_of_thread];
    if (gather.columns)
        load_by_table(gather, row, slot_expert(entry), k, x);
    else
        load_columns(call, row, k, x);
    store_values(gather.out, gather.in.type, own * gather.k + k, x);
}

}  // namespace

void run_gather_slots(const SlotGather& gather, int32_t n_tokens, cudaStream_t stream) {
    const int32_t n_parts = (gather.k + columns_of_block - 1) / columns_of_block;
    const dim3 grid(static_cast<unsigned>(gather.slots.n_slots * n_parts),
                    static_cast<unsigned>(n_tokens));
    launch("gather_slots", gather_slots, grid, n_threads, 0, stream,
           Call{gather, n_parts, takes_packets(gather.in.data, gather.in.stride)});
}

void prepare_gather_slots() {
    load("gather_slots", gather_slots);
}

}  // namespace moe::cuda
