// gemv_gate_up: the first of the two kernels of a small batch. A row of the grid serves one token:
//
//     h[token][v][feature] = act(gate, up) * h_factor
//
// v counts the slots of the token whose expert is on this GPU.
//
// Inputs: x [tokens][k], bfloat16 or float16; ids [tokens][top_k], int32; the packed gate_up matrix
// of every expert; optional biases [experts][intermediate] and slot weights, float32.
// Output: h [tokens][n_slots][k of down], bfloat16 or float16, zeros behind the features; h_factor
// is the power of two that gemv_down expects of bfloat16 (GemvKernels), and 1 of float16.
// Preconditions: n_slots is at most 64 (max_gemv_slots), k is a multiple of 64 *
// Dequant::min_split, rows of x begin on 16 bytes, and the tiling (gemv_tiling.cpp) fits the shared
// memory of a block.
//
// Gate and up of different packed types are two launches (GateUpRole). That of the gate stores its
// values before the activation, gate_values [tokens][n_slots][features], float32. That of up reads
// ids and x before its wait, because the gate's kernel has waited for their writers, and waits for
// the gate only in its epilogue.
//
// A work item is one packed tile (16 weight rows) of one slot's expert. The work items of a token
// are divided evenly among its thread blocks, then among the split-k warp groups of a block. Each
// warp of a group owns the same slice of k in every work item. One group per block (WholeBlock)
// reaches the first accumulator soonest. Several groups (SplitKGroup) take longer slices of k, so
// that the epilogue of a work item costs less per byte; they suit calls that read many bytes.
//
// 1. Before the wait for the preceding kernel: prefetch the shared expert's weights to L2, fill the
//    shared codebook table, and compute every address that ids do not change. Every lane assumes
//    that each slot has an expert here.
// 2. Wait for the preceding kernel in the stream (PDL). Load ids, then issue the copies of x. If
//    all slots are direct (all_direct), start the weight pipeline at once; otherwise list the slots
//    first. Codebooks per expert are loaded before weights.
// 3. Issue the loads of scales, slot weights and biases. Store the codebooks to shared memory and
//    convert the warp's slice of x to operands. Synchronize the block.
// 4. Mainloop, warp by warp: wait for a k_block, multiply, refill its stage. The accumulators of a
//    work item go to shared memory.
// 5. Epilogue: the group synchronizes; one thread per row adds the warps' accumulators, applies
//    scales and bias, activates and stores h.
//
// Steps 4 and 5 alternate over batches of n_threads / 16 work items, with two sets of accumulators,
// so that one barrier per batch is enough. The next kernel may start right after the wait
// (Dequant::starts_next_early) or after the first work item; the faster choice was measured per
// type. Instructions between the wait and the first mma add to the latency of the call, hence step
// 1.
#pragma once

#include "libmoe/cuda/device/cp_async.cuh"
#include "libmoe/cuda/device/dependent_launch.cuh"
#include "libmoe/cuda/device/parameters.cuh"
#include "libmoe/cuda/device/stream_pipeline.cuh"
#include "libmoe/cuda/gemv/gemv_gate_up_epilogue.cuh"

namespace moe::cuda {

// The slice of k that a warp owns, in elements.
struct KRange {
    int32_t first, n;
};

// The slices differ by one split at most. `reciprocal`: reciprocal_of the number of slices.
template <class Dequant>
__device__ __forceinline__ KRange k_range_of(const GemvGateUpParams& call, int32_t index,
                                             uint32_t reciprocal) {
    constexpr int32_t each = 64 * Dequant::min_split;
    const int32_t splits = call.matrix.k / each;
    const int32_t first = divide(index * splits, reciprocal);
    return {each * first, each * (divide((index + 1) * splits, reciprocal) - first)};
}

// All warps of a block split k among themselves.
struct WholeBlock {
    static constexpr bool are_several = false;
    static constexpr int registers = gate_up_registers;
    static constexpr int32_t index = 0;
    int32_t member;  // index of the warp in the group
    int32_t thread;  // index of the thread in the group
    int32_t n_threads;

    __device__ __forceinline__ WholeBlock(const GemvTiling&, int32_t warp)
        : member(warp), thread(threadIdx.x), n_threads(blockDim.x) {}
    __device__ __forceinline__ void sync() const { __syncthreads(); }
};

// Several warp groups per block; they synchronize with each other only until x is stored.
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

// Largest magnitudes of x. With several groups, n_groups warps convert one member's slice of k
// together, so that they must agree on one block exponent.
struct XMaxima {
    float* of_warp;  // [warps], shared memory
    int32_t n_groups;

    // Returns the maximum over the slice that this warp belongs to. Synchronizes the block.
    __device__ __forceinline__ float reduce_slice(float largest, int32_t lane) const {
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

// A warp's slice of x in shared memory. It arrives as 16-bit values and becomes operands in place.
template <class Dequant>
struct XSlice {
    using Operand = typename Dequant::Operand;
    uint32_t at;
    uint32_t low;  // from operands to their low parts; 0: there are none
    int32_t n_vectors;
    int32_t n_present;      // of those; x has no more columns
    const std::byte* from;  // first vector of this lane

    __device__ __forceinline__ XSlice(const GemvGateUpParams& call, uint32_t x,
                                      const KRange& k_range, int32_t lane)
        : at(x + 2 * k_range.first),
          low(has_low_parts<Operand>(call.tiling) ? call.tiling.low_part : 0),
          n_vectors(k_range.n / 8),
          n_present(min(n_vectors, (call.x_columns - k_range.first) / 8)),
          from(row_of_token(call.x, call.x_stride) + 2 * k_range.first + 16 * lane) {
        compute_now(from);
    }
    __device__ __forceinline__ void copy(int32_t lane) const {
        copy_vectors(at + 16 * lane, from, n_present - lane);
        commit_copies();
        // A lane clears the vectors that it converts afterwards: lane, lane + 32 and so on.
        const int32_t first = lane + (max(n_present - lane + 31, 0) & ~31);
#pragma unroll 1
        for (int32_t i = first; i < n_vectors; i += 32)
            store_shared(at + 16 * i, uint4{0, 0, 0, 0});
    }
    // Returns the residual scale of the accumulators, a power of two. The caller synchronizes the
    // block afterwards.
    template <class Group>
    __device__ __forceinline__ float make_operands(moe_type type, int32_t lane,
                                                   const Group& warp_group,
                                                   const XMaxima& x_maxima) const {
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
            if constexpr (Group::are_several) largest = x_maxima.reduce_slice(largest, lane);
            factor = power_of_two(block_exponent<Operand>(largest));
        }
        if constexpr (Operand::are_bytes) {
#pragma unroll 1
            for (int32_t i = lane; i - lane < n_vectors; i += 32) {
                const bool is_vector = i < n_vectors;
                const uint4 bits = is_vector ? load_shared_16(at + 16 * i) : uint4{};
                __syncwarp();  // store_vector requires it
                if (is_vector) store_vector<Operand>(at, i, bits, type, factor);
            }
        } else {
#pragma unroll 1
            for (int32_t i = lane; i < n_vectors; i += 32) {
                const uint4 bits = load_shared_16(at + 16 * i);
                store_vector<Operand>(at, i, bits, type, factor);
                if constexpr (!Operand::has_block_exponent)
                    if (low) store_low_vector(at + low, i, bits, type, factor);
            }
        }
        if constexpr (Operand::has_block_exponent) {
            if constexpr (Group::are_several) largest = x_maxima.of_member(warp_group.member);
            return residual_scale_of_block<Operand>(largest);
        }
        return 1.0f;
    }
};

// A k_block that a warp copies next.
struct KBlockCursor {
    const std::byte* from;  // address in expert 0 until resolve() adds the expert
    int32_t k_block, tile, slot;
};

// Enumerates the k_blocks of a warp, work item after work item. The warp's slice of k covers the
// same splits in every tile.
template <class Dequant>
struct KBlockList {
    const GemvGateUpParams& call;
    const int32_t* slot_list;
    int32_t first_split;
    int32_t n_splits;

    __device__ __forceinline__ KBlockList(const GemvGateUpParams& of, const int32_t* slots,
                                          const KRange& k_range)
        : call(of),
          slot_list(slots),
          first_split(k_range.first / (64 * Dequant::min_split)),
          n_splits(k_range.n / (64 * Dequant::min_split)) {}
    __device__ __forceinline__ int32_t tile_splits() const {
        return call.matrix.k / (64 * Dequant::min_split);
    }
    // The last k_block of a warp may be empty, because slices differ by one split.
    __device__ __forceinline__ int32_t splits(int32_t k_block) const {
        return max(
            0, min(call.tiling.k_block_splits, n_splits - k_block * call.tiling.k_block_splits));
    }
    __device__ __forceinline__ int32_t split_of_tile(int32_t k_block) const {
        return first_split + k_block * call.tiling.k_block_splits;
    }
    __device__ __forceinline__ const std::byte* address(const KBlockCursor& at) const {
        return call.matrix.data + at.tile * tile_stride_of<Dequant>(call, tile_splits()) +
               split_offset<Dequant>(call, split_of_tile(at.k_block));
    }
    // `index` counts the k_blocks of the warp from first_work_item on.
    __device__ __forceinline__ KBlockCursor cursor(int32_t first_work_item, int32_t index) const {
        const int32_t work_item_of_group = divide(index, call.tiling.k_block_reciprocal);
        const int32_t work_item = first_work_item + work_item_of_group;
        KBlockCursor at;
        at.k_block = index - work_item_of_group * call.tiling.n_k_blocks;
        at.slot = divide(work_item, call.tiling.tile_reciprocal);
        at.tile = work_item - at.slot * call.matrix.n_tiles;
        at.from = address(at);
        return at;
    }
    __device__ __forceinline__ void resolve(KBlockCursor& at, int32_t expert) const {
        at.from += expert * call.matrix.expert_stride;
    }
    __device__ __forceinline__ int32_t listed_expert(const KBlockCursor& at) const {
        return slot_expert(slot_list[at.slot]);
    }
    // Moves to the next k_block, which must exist.
    __device__ __forceinline__ void advance(KBlockCursor& at) const {
        const int32_t before = split_offset<Dequant>(call, split_of_tile(at.k_block));
        const bool is_last = ++at.k_block == call.tiling.n_k_blocks;
        if (is_last) at.k_block = 0;
        at.from += split_offset<Dequant>(call, split_of_tile(at.k_block)) - before;
        if (!is_last) return;
        at.from += tile_stride_of<Dequant>(call, tile_splits());
        if (++at.tile < call.matrix.n_tiles) return;
        at.tile = 0;
        ++at.slot;
        at.from = address(at);
        resolve(at, listed_expert(at));
    }
    __device__ __forceinline__ int32_t bytes(const KBlockCursor& at) const {
        return splits(at.k_block) * Dequant::min_split_bytes;
    }
    // The copy at a cursor that is resolved.
    __device__ __forceinline__ StageItem<Dequant> item(const KBlockCursor& at) const {
        StageItem<Dequant> item;
        if constexpr (Dequant::brings_records)
            if (splits(at.k_block) == 0) {
                item.bytes = 0;
                return item;
            }
        return stage_item<Dequant>(call, at.from, split_of_tile(at.k_block), splits(at.k_block));
    }
};

// The work items of one warp group of this block.
template <class Group>
__device__ __forceinline__ EvenPartition work_items_of_group(const GemvGateUpParams& call,
                                                             int32_t n_slots, int32_t warp_group) {
    const int32_t n = Group::are_several ? call.tiling.n_groups : 1;
    return {n_slots * call.matrix.n_tiles, static_cast<int32_t>(blockIdx.x) * n + warp_group,
            call.tiling.n_blocks * n, call.tiling.block_reciprocal};
}

// The work items of a warp group, and the k_block that each lane copies first. n_slots slots have
// an expert on this GPU.
template <class Dequant, class Group>
struct WarpWorkItems {
    EvenPartition range;
    int32_t n_copies;
    KBlockCursor own;
    int32_t own_bytes;  // -1: nothing to copy

    // `warp_group` is its index in the block.
    __device__ __forceinline__ WarpWorkItems(const KBlockList<Dequant>& k_blocks,
                                             int32_t warp_group, int32_t n_slots, int32_t lane)
        : range(work_items_of_group<Group>(k_blocks.call, n_slots, warp_group)),
          n_copies((range.last - range.first) * k_blocks.call.tiling.n_k_blocks),
          own(k_blocks.cursor(range.first, lane)),
          own_bytes(lane < min(k_blocks.call.tiling.n_stages, n_copies) ? k_blocks.bytes(own)
                                                                        : -1) {
        compute_now(own.from);
        compute_now(own.slot);
        compute_now(own_bytes);
    }
    __device__ __forceinline__ bool copies() const { return own_bytes >= 0; }
    __device__ __forceinline__ StageItem<Dequant> first_copy(
        const KBlockList<Dequant>& k_blocks) const {
        StageItem<Dequant> item;
        if constexpr (Dequant::brings_records)
            if (copies()) return k_blocks.item(own);
        item.from = own.from;
        item.bytes = own_bytes;
        return item;
    }
};

// The range of listed slots that a block works on. n_slots slots have an expert on this GPU.
struct SlotsOfBlock {
    int32_t first, end;

    template <class Group>
    static __device__ __forceinline__ SlotsOfBlock of(const GemvGateUpParams& call,
                                                      int32_t n_slots) {
        const int32_t last_group = Group::are_several ? call.tiling.n_groups - 1 : 0;
        const int32_t begin = work_items_of_group<Group>(call, n_slots, 0).first;
        const int32_t end = work_items_of_group<Group>(call, n_slots, last_group).last;
        const int32_t first = divide(begin, call.tiling.tile_reciprocal);
        return {first, begin < end ? divide(end - 1, call.tiling.tile_reciprocal) + 1 : first};
    }
};

// Every block prefetches its own part of the bytes.
template <class Pipeline>
__device__ __forceinline__ void prefetch_to_l2(const L2Prefetch& ahead) {
    const int32_t n = ahead.bytes_of_block;
    if (n > 0) Pipeline::prefetch({ahead.from + int64_t{n} * blockIdx.x, n});
}

// The mainloop of one warp. It stores the accumulators of its slice of k to shared memory.
template <class Dequant, class Pipeline>
struct GateUpWarp {
    const GemvGateUpParams& call;
    const KBlockList<Dequant>& k_blocks;
    Pipeline& pipeline;
    OperandAddresses addresses;
    uint32_t tables;  // one table, or one per slot from first_slot on
    int32_t first_slot;
    int32_t member;  // index in its warp group
    int32_t first_work_item;
    int32_t n_copies;
    float rescale;      // residual scale of the accumulators
    int32_t next_copy;  // next k_block to copy, if below n_copies
    KBlockCursor next;  // its address

    __device__ __forceinline__ void begin_refilling() {
        next_copy = call.tiling.n_stages;
        if (next_copy >= n_copies) return;
        next = k_blocks.cursor(first_work_item, next_copy);
        k_blocks.resolve(next, k_blocks.listed_expert(next));
    }
    __device__ __forceinline__ void multiply_work_items(int32_t begin, int32_t end, float* accum) {
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
                const auto k_block =
                    k_block_at<Dequant>(call, pipeline.wait_once(), work_item, first_block());
                add_k_block<Dequant>(k_block, 0, k_blocks.n_splits * Dequant::min_split,
                                     first_block(), addresses, lane, tables_of(work_item), acc);
                store(work_item, acc);
            }
        } else {
#pragma unroll 1
            for (int32_t work_item = begin; work_item < end; ++work_item) {
                float acc[2] = {};
                multiply_refilling(work_item, lane, acc);
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
        return k_blocks.first_split * Dequant::min_split;
    }
    __device__ __forceinline__ void multiply_refilling(int32_t work_item, int32_t lane,
                                                       float (&acc)[2]) {
        for (int32_t k_block = 0; k_block < call.tiling.n_k_blocks; ++k_block) {
            const int32_t block =
                first_block() + k_block * call.tiling.k_block_splits * Dequant::min_split;
            add_k_block<Dequant>(k_block_at<Dequant>(call, pipeline.wait(), work_item, block), 0,
                                 k_blocks.splits(k_block) * Dequant::min_split, block, addresses,
                                 lane, tables_of(work_item), acc);
            __syncwarp();
            if (next_copy < n_copies) {
                pipeline.refill(k_blocks.item(next));
                if (++next_copy < n_copies) k_blocks.advance(next);
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
    int32_t* slot_list =
        reinterpret_cast<int32_t*>(shared + tiling.shared.slots) + max_gemv_slots * warp;
    Pipeline pipeline(base + tiling.shared.barriers + 8 * tiling.n_stages * warp,
                      base + tiling.shared.pipeline + tiling.n_stages * tiling.stage_bytes * warp,
                      tiling.n_stages, tiling.stage_bytes, line_mask_of<Dequant>(tiling));

    fetch_parameter(call);
    if (thread < n_gemv_prefetches) prefetch_to_l2<Pipeline>(call.ahead[thread]);
    const typename CodebookTables<Dequant>::Shared shared_table(call.matrix, lane);
    const Group warp_group(tiling, warp);
    const KBlockList<Dequant> k_blocks(
        call, slot_list, k_range_of<Dequant>(call, warp_group.member, tiling.group_reciprocal));
    // If every slot has an expert here, only the expert index is unknown before ids arrive.
    WarpWorkItems<Dequant, Group> work(k_blocks, warp_group.index, call.slots.n_slots, lane);
    XSlice<Dequant> x(call, base + tiling.shared.x,
                      k_range_of<Dequant>(call, warp, tiling.warp_reciprocal), lane);
    IdAddresses id_addresses(call.slots, lane);
    RowEpilogue epilogue(call, reinterpret_cast<float*>(shared + tiling.shared.terms) + 3 * thread,
                         thread & 15, work.range.first + (warp_group.thread >> 4));
    const DirectExpert own_slot(call.slots, work.own.slot);
    const DirectExpert row_slot(call.slots, epilogue.slot);
    const int32_t group_work_items = warp_group.n_threads / 16;
    const bool needs_list =
        !tiling.is_resident || work.range.last - work.range.first > group_work_items;
    const OperandAddresses addresses = OperandAddresses::of<typename Dequant::Operand>(
        base + tiling.shared.x, base + tiling.shared.zeros, lane, tiling.low_part);
    if (thread < 8) store_shared(base + tiling.shared.zeros + 16 * thread, uint4{0, 0, 0, 0});
    shared_table.store(base + tiling.shared.codebooks);

    if (call.role != GateUpRole::up_after_gate) wait_for_previous_kernel();
    // Up begins beside its gate, whose work it waits for only in the end.
    if (Dequant::starts_next_early || call.role == GateUpRole::gate) let_next_kernel_start();
    const SlotIds ids = id_addresses.load();
    const int32_t own_expert = own_slot.load();
    const int32_t row_expert = row_slot.load();
    x.copy(lane);
    // Codebooks per expert must be loaded before weights, which would delay them.
    const bool fills_at_once =
        Dequant::codebook_mode != CodebookMode::per_expert && all_direct(call.slots, ids, lane);
    if (fills_at_once) {
        k_blocks.resolve(work.own, own_expert);
        pipeline.begin(work.first_copy(k_blocks));
    }
    int32_t entry = slot_entry(row_expert, epilogue.slot);
    int32_t n_slots = call.slots.n_slots;
    // Only warps that need the list pay for its latency.
    if (!fills_at_once || needs_list) {
        n_slots = list_slots(call.slots, find_experts(call.slots, ids, lane), lane, slot_list);
        entry = slot_list[min(epilogue.slot, max_gemv_slots - 1)];
    }
    if (!fills_at_once) {
        if (n_slots < call.slots.n_slots) {
            work = WarpWorkItems<Dequant, Group>(k_blocks, warp_group.index, n_slots, lane);
            epilogue.go_to(call, work.range.first + (warp_group.thread >> 4));
            entry = slot_list[min(epilogue.slot, max_gemv_slots - 1)];
        }
        if (work.copies()) k_blocks.resolve(work.own, k_blocks.listed_expert(work.own));
    }
    const auto [first, last] = work.range;
    const auto slots = SlotsOfBlock::of<Group>(call, n_slots);
    const typename CodebookTables<Dequant>::PerSlot tables(call.matrix, slot_list, slots.first,
                                                           slots.end);
    if (!fills_at_once) pipeline.begin(work.first_copy(k_blocks));
    if (first + (warp_group.thread >> 4) < last) epilogue.issue_loads(call, entry);
    tables.store(shared + tiling.shared.codebooks);
    GateUpWarp<Dequant, Pipeline> worker{call,
                                         k_blocks,
                                         pipeline,
                                         addresses,
                                         base + tiling.shared.codebooks,
                                         slots.first,
                                         warp_group.member,
                                         first,
                                         work.n_copies,
                                         1.0f,
                                         0,
                                         {}};
    worker.begin_refilling();
    const XMaxima x_maxima{reinterpret_cast<float*>(shared + tiling.shared.largest),
                           tiling.n_groups};
    worker.rescale = x.make_operands(call.x_type, lane, warp_group, x_maxima);
    __syncthreads();

    float* accum = reinterpret_cast<float*>(shared + tiling.shared.accum +
                                            warp_group.index * tiling.accum_bytes_of_group);
    float* other_accum = accum + 16 * group_work_items * tiling.group_warps;
    for (int32_t group = first; group < last; group += group_work_items) {
        worker.multiply_work_items(group, min(group + group_work_items, last), accum);
        const int32_t own_work_item = group + (warp_group.thread >> 4);
        store_row(
            call, accum + 16 * tiling.group_warps * min(warp_group.thread >> 4, last - 1 - group),
            warp_group, epilogue, residual_scale_of<Dequant>(call.matrix), own_work_item < last);
        if (own_work_item + group_work_items < last) {
            epilogue.go_to(call, own_work_item + group_work_items);
            epilogue.issue_loads(call, slot_list[epilogue.slot]);
        }
        float* const used = accum;
        accum = other_accum;
        other_accum = used;
    }
    // This kernel must not end before the one of the gate, also where it stored nothing.
    if (call.role == GateUpRole::up_after_gate) wait_for_previous_kernel();
    // The last block never has more work items than the others, so it has time to report.
    if (static_cast<int32_t>(blockIdx.x) == tiling.n_blocks - 1 && warp == 0 &&
        call.role != GateUpRole::up_after_gate)
        report_bad_ids(call.slots, id_addresses.load());
}

}  // namespace moe::cuda
