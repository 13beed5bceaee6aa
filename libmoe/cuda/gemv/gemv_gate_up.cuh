// First kernel of one token, a row of the grid for each: h[v][feature] = act(gate, up) times the
// power of two that down takes (GemvKernels), for the slots v that have an expert here.
//
// Work: a work_item is one packed tile of one slot's expert; work_items are spread evenly over the
// blocks of the token, one per SM of its share, and over the teams of a block. Inside a warp_group
// every warp owns the same part of k of every work_item. One warp_group has the shortest lookup to
// the first acc. Several take longer parts of k, so that what a work_item costs besides its
// products is paid less often; they are for calls of many bytes (gemv_tiling.cpp), a kernel of
// their own with more registers.
// 1. of one token: the shared expert's weights are asked for, as far as the L2 (gemv.cu);
// the table of the one codebook is made, if all experts have the same; neither needs ids. Every
// lane finds what it copies first, as if every slot had an expert here
// 2. wait for the kernel before; issue_loads for ids, then x; the warp's pipeline begins, every
// lane knowing the first item of one stage; the slots with an expert are listed where there are
// others or the list is needed. Where experts have codebooks of their own, these are asked for
// before the pipeline begins, and by the list
// 3. issue_loads for scales, weights and biases of rows; codebooks to shared memory; the warp's
// part of x to operands; block barrier
// 4. every warp: wait for a k_block, multiply, refill the stage; a work_item's accum to shared
// memory
// 5. barrier of the warp_group; a thread per row of a work_item adds the warps' accum, scales,
// biases, activates
//
// Steps 4 and 5 alternate for groups of as many work_items as that, with two sets of accum. The
// next kernel may start right after the wait where that was the faster
// (Dequant::starts_next_early), otherwise after the first work_item. An instruction less between
// the wait and the first product is worth as much as one less in the loop: whatever can be known
// before the wait is computed there.
#pragma once

#include <cuda_bf16.h>

#include "libmoe/cuda/device/cp_async.cuh"
#include "libmoe/cuda/device/dependent_launch.cuh"
#include "libmoe/cuda/device/fast_activation.cuh"
#include "libmoe/cuda/device/parameters.cuh"
#include "libmoe/cuda/device/stream_pipeline.cuh"
#include "libmoe/cuda/gemv/gemv_mainloop.cuh"
#include "libmoe/layer/activation.hpp"

namespace moe::cuda {

// The k of a warp, in elements.
struct PartOfK {
    int32_t first, n;
};

// Part `index` of as many as the reciprocal tells.
template <class Dequant>
__device__ __forceinline__ PartOfK part_of_k(const GemvGateUpParams& call, int32_t index,
                                             uint32_t reciprocal) {
    constexpr int32_t each = 64 * Dequant::min_split;
    const int32_t splits = call.matrix.k / each;
    const int32_t first = divide(index * splits, reciprocal);
    return {each * first, each * (divide((index + 1) * splits, reciprocal) - first)};
}

// The warps that share work_items, each with its part of k: all of a block, ...
struct WholeBlock {
    static constexpr bool are_several = false;
    static constexpr int registers = gate_up_registers;
    static constexpr int32_t index = 0;
    int32_t member;  // this warp
    int32_t thread;  // of the warp_group
    int32_t n_threads;

    __device__ __forceinline__ WholeBlock(const GemvTiling&, int32_t warp)
        : member(warp), thread(threadIdx.x), n_threads(blockDim.x) {}
    __device__ __forceinline__ void sync() const { __syncthreads(); }
};

// ... or some of them. Teams know nothing of each other once x is there.
struct SplitKGroup {
    static constexpr bool are_several = true;
    static constexpr int registers = split_k_registers;
    int32_t index;
    int32_t member;
    int32_t thread;
    int32_t n_threads;

    __device__ __forceinline__ SplitKGroup(const GemvTiling& tiling, int32_t warp)
        : index(divide(warp, tiling.group_reciprocal)),
          member(warp - index * tiling.group_warps),
          thread(static_cast<int32_t>(threadIdx.x) - 32 * index * tiling.group_warps),
          n_threads(32 * tiling.group_warps) {}
    __device__ __forceinline__ void sync() const {
        asm volatile("bar.sync %0, %1;" ::"r"(index + 1), "r"(n_threads) : "memory");
    }
};

// Several teams: the part of k of a member is made by n_groups warps, whatever their teams, and has
// one exponent.
struct LargestOfX {
    float* of_warp;  // in shared memory
    int32_t n_groups;

    // Of all parts together with this warp's. Meets the block.
    __device__ __forceinline__ float whole_part(float largest, int32_t lane) const {
        const auto warp = static_cast<int32_t>(threadIdx.x >> 5);
        if (lane == 0) of_warp[warp] = largest;
        __syncthreads();
        return of_member(warp / n_groups);
    }
    __device__ __forceinline__ float of_member(int32_t member) const {
        float largest = 0.0f;
#pragma unroll 1
        for (int32_t i = 0; i < n_groups; ++i)
            largest = larger(largest, of_warp[member * n_groups + i]);
        return largest;
    }
};

// A warp's part of x in shared memory: first as it is, then in the same place as operands.
template <class Dequant>
struct PartOfX {
    uint32_t at;
    int32_t n_vectors;
    const std::byte* from;  // of this lane's first vector

    __device__ __forceinline__ PartOfX(const GemvGateUpParams& call, uint32_t x,
                                       const PartOfK& part, int32_t lane)
        : at(x + 2 * part.first),
          n_vectors(part.n / 8),
          from(row_of_token(call.x, call.x_stride) + 2 * part.first + 16 * lane) {
        compute_now(from);
    }
    __device__ __forceinline__ void copy(int32_t lane) const {
        copy_vectors(at + 16 * lane, from, n_vectors - lane);
        commit_copies();
    }
    // Returns the power of two that the accum lack. A barrier must follow.
    template <class Group>
    __device__ __forceinline__ float make_operands(moe_type type, int32_t lane,
                                                   const Group& warp_group,
                                                   const LargestOfX& largest_of) const {
        using Operand = typename Dequant::Operand;
        wait_copies<0>();
        float factor = power_of_two(Dequant::x_exponent);
        float largest = 0.0f;
        if (!Operand::has_block_exponent && type == MOE_TYPE_BF16) {
            constexpr uint32_t half = (Dequant::x_exponent + 127) << 7;
#pragma unroll 1
            for (int32_t i = lane; i < n_vectors && Dequant::x_exponent != 0; i += 32)
                store_scaled_vector(at + 16 * i, load_shared_16(at + 16 * i), half << 16 | half);
            return 1.0f;
        }
        if constexpr (Operand::has_block_exponent) {
#pragma unroll 1
            for (int32_t i = lane; i < n_vectors; i += 32)
                largest = larger(largest, largest_of_vector(load_shared_16(at + 16 * i), type));
            largest = warp_largest(largest);
            if constexpr (Group::are_several) largest = largest_of.whole_part(largest, lane);
            factor = power_of_two(block_exponent<Operand>(largest));
        }
        if constexpr (Operand::are_bytes) {
#pragma unroll 1
            for (int32_t i = lane; i - lane < n_vectors; i += 32) {
                const bool is_vector = i < n_vectors;
                const uint4 bits = is_vector ? load_shared_16(at + 16 * i) : uint4{};
                __syncwarp();  // see store_vector
                if (is_vector) store_vector<Operand>(at, i, bits, type, factor);
            }
        } else {
#pragma unroll 1
            for (int32_t i = lane; i < n_vectors; i += 32)
                store_vector<Operand>(at, i, load_shared_16(at + 16 * i), type, factor);
        }
        if constexpr (Operand::has_block_exponent) {
            if constexpr (Group::are_several) largest = largest_of.of_member(warp_group.member);
            return block_scale<Operand>(largest);
        }
        return 1.0f;
    }
};

// A k_block to copy.
struct WorkItemCursor {
    const std::byte* from;  // as if of expert 0 until it is resolved
    int32_t k_block, tile, slot;
};

// The items of a warp, work_item after work_item: its part of k is the same splits of every tile.
template <class Dequant>
struct WorkItemBlocks {
    const GemvGateUpParams& call;
    const int32_t* table;
    int32_t first_split;
    int32_t n_splits;

    __device__ __forceinline__ WorkItemBlocks(const GemvGateUpParams& of, const int32_t* slots,
                                              const PartOfK& part)
        : call(of),
          table(slots),
          first_split(part.first / (64 * Dequant::min_split)),
          n_splits(part.n / (64 * Dequant::min_split)) {}
    __device__ __forceinline__ int32_t tile_splits() const {
        return call.matrix.k / (64 * Dequant::min_split);
    }
    // None for the last k_block of some warps.
    __device__ __forceinline__ int32_t splits(int32_t k_block) const {
        return max(
            0, min(call.tiling.k_block_splits, n_splits - k_block * call.tiling.k_block_splits));
    }
    __device__ __forceinline__ const std::byte* place(const WorkItemCursor& at) const {
        return call.matrix.data + (static_cast<int64_t>(at.tile) * tile_splits() + first_split +
                                   at.k_block * call.tiling.k_block_splits) *
                                      Dequant::min_split_bytes;
    }
    // Of the warp's item in a warp_group that begins with first_work_item.
    __device__ __forceinline__ WorkItemCursor cursor(int32_t first_work_item, int32_t item) const {
        const int32_t item_of_group = divide(item, call.tiling.k_block_reciprocal);
        const int32_t work_item = first_work_item + item_of_group;
        WorkItemCursor at;
        at.k_block = item - item_of_group * call.tiling.n_k_blocks;
        at.slot = divide(work_item, call.tiling.tile_reciprocal);
        at.tile = work_item - at.slot * call.matrix.n_tiles;
        at.from = place(at);
        return at;
    }
    __device__ __forceinline__ void resolve(WorkItemCursor& at, int32_t expert) const {
        at.from += expert * call.matrix.expert_stride;
    }
    __device__ __forceinline__ int32_t listed_expert(const WorkItemCursor& at) const {
        return slot_expert(table[at.slot]);
    }
    // To the next k_block, which must exist.
    __device__ __forceinline__ void advance(WorkItemCursor& at) const {
        const int32_t k_block_bytes = call.tiling.k_block_splits * Dequant::min_split_bytes;
        at.from += k_block_bytes;
        if (++at.k_block < call.tiling.n_k_blocks) return;
        at.k_block = 0;
        at.from +=
            tile_splits() * Dequant::min_split_bytes - call.tiling.n_k_blocks * k_block_bytes;
        if (++at.tile < call.matrix.n_tiles) return;
        at.tile = 0;
        ++at.slot;
        at.from = place(at);
        resolve(at, listed_expert(at));
    }
    __device__ __forceinline__ int32_t bytes(const WorkItemCursor& at) const {
        return splits(at.k_block) * Dequant::min_split_bytes;
    }
};

// The work_items of a warp_group of this block.
template <class Group>
__device__ __forceinline__ EvenPartition items_of_group(const GemvGateUpParams& call,
                                                        int32_t n_slots, int32_t warp_group) {
    const int32_t n = Group::are_several ? call.tiling.n_groups : 1;
    return {n_slots * call.matrix.n_tiles, static_cast<int32_t>(blockIdx.x) * n + warp_group,
            call.tiling.n_blocks * n, call.tiling.block_reciprocal};
}

// The work_items of a warp_group, n_slots slots having an expert here, and what a lane copies
// first.
template <class Dequant, class Group>
struct WarpWorkItems {
    EvenPartition range;
    int32_t n_items;
    WorkItemCursor own;
    int32_t own_bytes;  // -1: nothing to copy

    // warp_group: of the block.
    __device__ __forceinline__ WarpWorkItems(const WorkItemBlocks<Dequant>& items,
                                             int32_t warp_group, int32_t n_slots, int32_t lane)
        : range(items_of_group<Group>(items.call, n_slots, warp_group)),
          n_items((range.last - range.first) * items.call.tiling.n_k_blocks),
          own(items.cursor(range.first, lane)),
          own_bytes(lane < min(items.call.tiling.n_stages, n_items) ? items.bytes(own) : -1) {
        compute_now(own.from);
        compute_now(own.slot);
        compute_now(own_bytes);
    }
    __device__ __forceinline__ bool copies() const { return own_bytes >= 0; }
    __device__ __forceinline__ StreamItem first_item() const { return {own.from, own_bytes}; }
};

// The slots whose work_items a block has, n_slots of them having an expert here.
struct SlotsOfBlock {
    int32_t first, end;

    template <class Group>
    static __device__ __forceinline__ SlotsOfBlock of(const GemvGateUpParams& call,
                                                      int32_t n_slots) {
        const int32_t last_group = Group::are_several ? call.tiling.n_groups - 1 : 0;
        const int32_t begin = items_of_group<Group>(call, n_slots, 0).first;
        const int32_t end = items_of_group<Group>(call, n_slots, last_group).last;
        const int32_t first = divide(begin, call.tiling.tile_reciprocal);
        return {first, begin < end ? divide(end - 1, call.tiling.tile_reciprocal) + 1 : first};
    }
};

// What becomes of the acc of one row of a work_item: scale, weight and bias of shared memory, which
// are asked for long before they are needed. Loads to registers would make others wait for them.
struct RowFinish {
    float* terms;  // three of this thread alone
    int32_t row;
    int32_t slot;  // in the list
    int32_t feature;
    const float* scales;  // of the row's half, if there are any

    __device__ __forceinline__ RowFinish(const GemvGateUpParams& call, float* own_terms,
                                         int32_t row_of_item, int32_t work_item)
        : terms(own_terms), row(row_of_item), scales(call.matrix.global_scale) {
        terms[0] = 1.0f;
        terms[1] = 1.0f;
        terms[2] = 0.0f;
        if (scales) scales += row >> 3;
        compute_now(scales);
        go_to(call, work_item);
    }
    __device__ __forceinline__ void go_to(const GemvGateUpParams& call, int32_t work_item) {
        slot = divide(work_item, call.tiling.tile_reciprocal);
        const int32_t tile = work_item - slot * call.matrix.n_tiles;
        feature = call.activation.gated ? 8 * tile + (row & 7) : 16 * tile + row;
        compute_now(slot);
        compute_now(feature);
    }
    // entry: of the slot. Few instructions: the other warps wait for those that have rows.
    __device__ __forceinline__ void issue_loads(const GemvGateUpParams& call, int32_t entry) const {
        if (scales) copy_async_4(terms, scales + 2 * slot_expert(entry));
        if (call.has_row_terms) issue_row_loads(call, entry);
    }
    __device__ __forceinline__ __nv_bfloat16* place(const GemvGateUpParams& call) const {
        const int32_t slot_of_call = static_cast<int32_t>(blockIdx.y) * call.slots.n_slots + slot;
        return static_cast<__nv_bfloat16*>(call.h) + slot_of_call * call.intermediate + feature;
    }

  private:
    __device__ __forceinline__ void issue_row_loads(const GemvGateUpParams& call,
                                                    int32_t entry) const {
        const float* bias = call.activation.gated && row < 8 ? call.gate_bias : call.up_bias;
        const int64_t of_expert = int64_t{slot_expert(entry)} * call.intermediate;
        if (bias) copy_async_4(terms + 2, bias + of_expert + feature);
        if (call.weight_on_input)
            copy_async_4(terms + 1, weights_of_token(call.slots) + slot_index(entry));
    }
};

// When all warps of the warp_group are done: adds their accum of a row in order; 16 lanes hold the
// rows of a work_item. Whatever needs no accum comes before the barrier. SiLU in the short form of
// the grouped kernels, half a step of the bfloat16 that it becomes from the exact one.
template <class Group>
__device__ __forceinline__ void finish_row(const GemvGateUpParams& call, const float* accum,
                                           const Group& warp_group, const RowFinish& finish,
                                           float residual_scale, bool has_work_item) {
    wait_all_copies();
    const bool gated = call.activation.gated;
    const bool is_silu = call.activation.kind == MOE_ACTIVATION_SILU && gated;
    const bool stores = has_work_item && !(gated && finish.row >= 8);
    FastActivation<ActivationClass::silu> silu(call.activation);
    float factor = residual_scale * finish.terms[0] * finish.terms[1];
    float h_factor = call.h_factor;
    const float bias = finish.terms[2];
    __nv_bfloat16* to = finish.place(call);
    warp_group.sync();
    const float value =
        fmaf(add_warps(accum + finish.row, warp_group.n_threads / 32), factor, bias);
    const float other = __shfl_xor_sync(~0u, value, 8);
    const float acted =
        is_silu ? silu(value, other) : activate(call.activation, value, gated ? other : value);
    if (stores) *to = __float2bfloat16(acted * h_factor);
}

// This block's part.
template <class Pipeline>
__device__ __forceinline__ void prefetch_to_l2(const L2Prefetch& ahead) {
    const int32_t n = ahead.bytes_of_block;
    if (n > 0) Pipeline::prefetch({ahead.from + int64_t{n} * blockIdx.x, n});
}

// A warp at its work_items: accum of its part of k, to shared memory.
template <class Dequant, class Pipeline>
struct GateUpWarp {
    const GemvGateUpParams& call;
    const WorkItemBlocks<Dequant>& items;
    Pipeline& pipeline;
    OperandAddresses addresses;
    uint32_t tables;  // one, or of the block's slots from first_slot on
    int32_t first_slot;
    int32_t member;  // of its warp_group
    int32_t first_work_item;
    int32_t n_items;
    float rescale;        // of the accum
    int32_t item;         // that comes next into the pipeline, if there are so many
    WorkItemCursor next;  // where it is

    __device__ __forceinline__ void begin_refilling() {
        item = call.tiling.n_stages;
        if (item >= n_items) return;
        next = items.cursor(first_work_item, item);
        items.resolve(next, items.listed_expert(next));
    }
    __device__ __forceinline__ void add_work_items(int32_t begin, int32_t end, float* accum) {
        const auto lane = static_cast<int32_t>(threadIdx.x & 31);
        float* to = accum + 16 * member + (lane >> 2) + 8 * (lane & 1);
        const auto store = [&](int32_t work_item, const float(&acc)[2]) {
            if (!Dequant::starts_next_early && work_item == first_work_item)
                let_next_kernel_start();
            const float total = add_quad(acc, lane) * rescale;
            if ((lane & 3) < 2) *to = total;
            to += 16 * call.tiling.group_warps;
        };
        if (call.tiling.is_resident) {
            for (int32_t work_item = begin; work_item < end; ++work_item) {
                float acc[2] = {};
                add_k_block<Dequant>(pipeline.wait_once(), 0, items.n_splits * Dequant::min_split,
                                     first_block(), addresses, lane, tables_of(work_item), acc);
                store(work_item, acc);
            }
        } else {
#pragma unroll 1
            for (int32_t work_item = begin; work_item < end; ++work_item) {
                float acc[2] = {};
                add_refilling(work_item, lane, acc);
                store(work_item, acc);
            }
        }
    }

  private:
    __device__ __forceinline__ uint32_t tables_of(int32_t work_item) const {
        if (Dequant::codebook_mode != CodebookMode::per_expert) return tables;
        const int32_t slot = divide(work_item, call.tiling.tile_reciprocal) - first_slot;
        return tables + slot * table_bytes(Dequant::type, CodebookMode::per_expert);
    }
    __device__ __forceinline__ int32_t first_block() const {
        return items.first_split * Dequant::min_split;
    }
    __device__ __forceinline__ void add_refilling(int32_t work_item, int32_t lane,
                                                  float (&acc)[2]) {
        for (int32_t k_block = 0; k_block < call.tiling.n_k_blocks; ++k_block) {
            add_k_block<Dequant>(
                pipeline.wait(), 0, items.splits(k_block) * Dequant::min_split,
                first_block() + k_block * call.tiling.k_block_splits * Dequant::min_split,
                addresses, lane, tables_of(work_item), acc);
            __syncwarp();
            if (item < n_items) {
                pipeline.refill({next.from, items.bytes(next)});
                if (++item < n_items) items.advance(next);
            }
            pipeline.next();
        }
    }
};

template <class Dequant, class Pipeline, class Group>
__global__ void __maxnreg__(Group::registers)
    gemv_gate_up(const __grid_constant__ GemvGateUpParams call) {
    extern __shared__ __align__(128) unsigned char shared[];
    const GemvTiling& tiling = call.tiling;
    const uint32_t base = shared_address(shared);
    const int32_t thread = static_cast<int32_t>(threadIdx.x);
    const int32_t warp = thread >> 5;
    const int32_t lane = thread & 31;
    const int32_t stage_bytes = tiling.k_block_splits * Dequant::min_split_bytes;
    int32_t* table =
        reinterpret_cast<int32_t*>(shared + tiling.shared.slots) + max_gemv_slots * warp;
    Pipeline pipeline(base + tiling.shared.barriers + 8 * tiling.n_stages * warp,
                      base + tiling.shared.pipeline + tiling.n_stages * stage_bytes * warp,
                      tiling.n_stages, stage_bytes);

    fetch_parameter(call);
    if (thread < 2) prefetch_to_l2<Pipeline>(call.ahead[thread]);
    const typename CodebookTables<Dequant>::One one_table(call.matrix, lane);
    const Group warp_group(tiling, warp);
    const WorkItemBlocks<Dequant> items(
        call, table, part_of_k<Dequant>(call, warp_group.member, tiling.group_reciprocal));
    // If every slot has an expert here, all is known up to the expert before ids are.
    WarpWorkItems<Dequant, Group> work(items, warp_group.index, call.slots.n_slots, lane);
    PartOfX<Dequant> x(call, base + tiling.shared.x,
                       part_of_k<Dequant>(call, warp, tiling.warp_reciprocal), lane);
    IdAddresses id_addresses(call.slots, lane);
    RowFinish finish(call, reinterpret_cast<float*>(shared + tiling.shared.terms) + 3 * thread,
                     thread & 15, work.range.first + (warp_group.thread >> 4));
    const DirectExpert own_slot(call.slots, work.own.slot);
    const DirectExpert finish_slot(call.slots, finish.slot);
    const int32_t group_work_items = warp_group.n_threads / 16;
    const bool needs_list =
        !tiling.is_resident || work.range.last - work.range.first > group_work_items;
    const OperandAddresses addresses = OperandAddresses::of<typename Dequant::Operand>(
        base + tiling.shared.x, base + tiling.shared.zeros, lane);
    if (thread < 8) store_shared(base + tiling.shared.zeros + 16 * thread, uint4{0, 0, 0, 0});
    one_table.store(base + tiling.shared.codebooks);

    wait_for_previous_kernel();
    if constexpr (Dequant::starts_next_early) let_next_kernel_start();
    const SlotIds ids = id_addresses.load();
    const int32_t own_expert = own_slot.load();
    const int32_t finish_expert = finish_slot.load();
    x.copy(lane);
    // Codebooks of slots are asked for before weights.
    const bool fills_at_once =
        Dequant::codebook_mode != CodebookMode::per_expert && all_direct(call.slots, ids, lane);
    if (fills_at_once) {
        items.resolve(work.own, own_expert);
        pipeline.begin(work.first_item());
    }
    int32_t entry = slot_entry(finish_expert, finish.slot);
    int32_t n_slots = call.slots.n_slots;
    // The list is for those who cannot do without: it takes its time.
    if (!fills_at_once || needs_list) {
        n_slots = list_slots(call.slots, find_experts(call.slots, ids, lane), lane, table);
        entry = table[min(finish.slot, max_gemv_slots - 1)];
    }
    if (!fills_at_once) {
        if (n_slots < call.slots.n_slots) {
            work = WarpWorkItems<Dequant, Group>(items, warp_group.index, n_slots, lane);
            finish.go_to(call, work.range.first + (warp_group.thread >> 4));
            entry = table[min(finish.slot, max_gemv_slots - 1)];
        }
        if (work.copies()) items.resolve(work.own, items.listed_expert(work.own));
    }
    const auto [first, last] = work.range;
    const auto slots = SlotsOfBlock::of<Group>(call, n_slots);
    const typename CodebookTables<Dequant>::Slots tables(call.matrix, table, slots.first,
                                                         slots.end);
    if (!fills_at_once) pipeline.begin(work.first_item());
    if (first + (warp_group.thread >> 4) < last) finish.issue_loads(call, entry);
    tables.store(shared + tiling.shared.codebooks);
    GateUpWarp<Dequant, Pipeline> worker{call,
                                         items,
                                         pipeline,
                                         addresses,
                                         base + tiling.shared.codebooks,
                                         slots.first,
                                         warp_group.member,
                                         first,
                                         work.n_items,
                                         1.0f,
                                         0,
                                         {}};
    worker.begin_refilling();
    const LargestOfX largest_of{reinterpret_cast<float*>(shared + tiling.shared.largest),
                                tiling.n_groups};
    worker.rescale = x.make_operands(call.x_type, lane, warp_group, largest_of);
    __syncthreads();

    float* accum = reinterpret_cast<float*>(shared + tiling.shared.accum +
                                            warp_group.index * tiling.accum_bytes_of_group);
    float* other_sums = accum + 16 * group_work_items * tiling.group_warps;
    for (int32_t group = first; group < last; group += group_work_items) {
        worker.add_work_items(group, min(group + group_work_items, last), accum);
        const int32_t own_work_item = group + (warp_group.thread >> 4);
        finish_row(
            call, accum + 16 * tiling.group_warps * min(warp_group.thread >> 4, last - 1 - group),
            warp_group, finish, residual_scale_of<Dequant>(call.matrix), own_work_item < last);
        if (own_work_item + group_work_items < last) {
            finish.go_to(call, own_work_item + group_work_items);
            finish.issue_loads(call, table[finish.slot]);
        }
        float* const used = accum;
        accum = other_sums;
        other_sums = used;
    }
    // By a block that has no more work_items than the others.
    if (static_cast<int32_t>(blockIdx.x) == tiling.n_blocks - 1 && warp == 0)
        report_bad_ids(call.slots, id_addresses.load());
}

}  // namespace moe::cuda
