// Second kernel of one token, a row of the grid for each:
//     out = scale * (acc over slots of weight (down h + bias))
//
// Work: tiles of 16 outputs are spread over clusters of one or two blocks. k runs over all slots;
// a slice is one k_block of one slot's part of it. The blocks of a cluster work the slices of their
// tiles, the warps of a block those of the block: slice u goes to warp u % n_warps.
// 1. ids, the list of slots and their weights; the warp's first copies; the table of the one
//    codebook, if all experts have the same: nothing of it depends on the kernel before
// 2. let the next kernel start; the shared expert's weight from x and its gate; biases; codebooks
//    of the experts, where they have their own; block barrier; the first blocks decoded; wait for
//    the kernel before
// 3. every warp: h of its own slices among pass_slices to shared memory as operands
// 4. tile after tile: wait for a k_block, multiply, times the slot's factor, refill
// 5. steps 3 and 4 again until no slices are left; block barrier
// 6. a thread per output adds the warps' accum; the first block of a cluster adds those of the
// other x, ids and their weights may be read before the wait because the kernel before waited for
// their writers.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "libmoe/cuda/device/cluster.cuh"
#include "libmoe/cuda/device/cp_async.cuh"
#include "libmoe/cuda/device/dependent_launch.cuh"
#include "libmoe/cuda/device/parameters.cuh"
#include "libmoe/cuda/device/stream_pipeline.cuh"
#include "libmoe/cuda/gemv/gemv_mainloop.cuh"
#include "libmoe/layer/activation.hpp"

namespace moe::cuda {

// Units as the kernel counts them: slot after slot, k_block after k_block.
template <class Dequant>
struct DownSlices {
    const GemvDownParams& call;
    const int32_t* table;
    int32_t slot_splits;

    __device__ __forceinline__ int32_t slot(int32_t slice) const {
        return divide(slice, call.tiling.k_block_reciprocal);
    }
    __device__ __forceinline__ int32_t k_block(int32_t slice) const {
        return slice - slot(slice) * call.tiling.n_k_blocks;
    }
    __device__ __forceinline__ int32_t splits(int32_t k_block) const {
        return min(call.tiling.k_block_splits, slot_splits - k_block * call.tiling.k_block_splits);
    }
    // Blocks of 64 k of h before the slice.
    __device__ __forceinline__ int32_t h_block(int32_t slice) const {
        return (slot(slice) * slot_splits + k_block(slice) * call.tiling.k_block_splits) *
               Dequant::min_split;
    }
    __device__ __forceinline__ StreamItem item(int32_t tile, int32_t slice) const {
        const int32_t c = k_block(slice);
        const int64_t min_split =
            static_cast<int64_t>(tile) * slot_splits + c * call.tiling.k_block_splits;
        const std::byte* from = call.matrix.data +
                                slot_expert(table[slot(slice)]) * call.matrix.expert_stride +
                                min_split * Dequant::min_split_bytes;
        return {from, splits(c) * Dequant::min_split_bytes};
    }
};

// What a block works at: tiles, and of the slices of its cluster's k its own.
struct DownWork {
    int32_t rank;  // in the cluster
    int32_t first_tile, end_tile;
    int32_t first_slice, end_slice;

    __device__ __forceinline__ explicit DownWork(const GemvDownParams& call) {
        const int32_t paired = call.tiling.cluster - 1;  // 0 or 1
        const auto block = static_cast<int32_t>(blockIdx.x);
        const EvenPartition tiles(call.matrix.n_tiles, block >> paired,
                                  call.tiling.n_blocks >> paired, call.tiling.block_reciprocal);
        rank = block & paired;
        first_tile = tiles.first;
        end_tile = tiles.last;
    }
    __device__ __forceinline__ void divide_slices(const GemvDownParams& call, int32_t n_slots) {
        const int32_t n_slices = n_slots * call.tiling.n_k_blocks;
        const int32_t paired = call.tiling.cluster - 1;
        first_slice = rank * n_slices >> paired;
        end_slice = (rank + 1) * n_slices >> paired;
    }
    __device__ __forceinline__ int32_t n_outputs() const { return 16 * (end_tile - first_tile); }
};

// The copies of one warp in the order of their use: passes, tiles, slices.
struct SliceWalk {
    int32_t warp, n_warps, pass_slices, first_tile, end_tile, end_slice;
    int32_t pass_begin, pass_end, tile, slice;

    __device__ __forceinline__ SliceWalk(const DownWork& work, const GemvTiling& tiling,
                                         int32_t own_warp)
        : warp(own_warp),
          n_warps(tiling.n_warps),
          pass_slices(tiling.pass_slices),
          first_tile(work.first_tile),
          end_tile(work.end_tile),
          end_slice(work.end_slice),
          pass_begin(work.first_slice),
          pass_end(min(pass_begin + pass_slices, end_slice)),
          tile(first_tile),
          slice(pass_begin + warp) {}

    __device__ __forceinline__ bool is_valid() const { return slice < pass_end; }
    __device__ __forceinline__ void advance() {
        slice += n_warps;
        if (slice < pass_end) return;
        if (++tile == end_tile) {
            tile = first_tile;
            pass_begin = pass_end;
            pass_end = min(pass_begin + pass_slices, end_slice);
        }
        slice = pass_begin + warp;
    }
};

// Of a routed slot.
__device__ __forceinline__ float slot_weight(const GemvDownParams& call, int32_t entry) {
    const float* weights = weights_of_token(call.slots);
    return call.scale * (call.weight_on_input ? 1.0f : load_global(weights + slot_index(entry)));
}

// Adds the product of four 16-bit values with four of float32.
__device__ __forceinline__ float add_product(uint32_t low, uint32_t high, moe_type type,
                                             const uint4& factors, float acc) {
    const float2 a = two_values(low, type), b = two_values(high, type);
    acc = fmaf(a.x, __uint_as_float(factors.x), acc);
    acc = fmaf(a.y, __uint_as_float(factors.y), acc);
    acc = fmaf(b.x, __uint_as_float(factors.z), acc);
    return fmaf(b.y, __uint_as_float(factors.w), acc);
}

// This warp's part of the product of x with the shared expert's gate.
__device__ __forceinline__ float gate_part(const GemvDownParams& call) {
    const std::byte* x = row_of_token(call.x, call.x_stride);
    float acc = 0.0f;
#pragma unroll 2
    for (auto i = static_cast<int32_t>(threadIdx.x); i < call.hidden / 8;
         i += static_cast<int32_t>(blockDim.x)) {
        const uint4 bits = load_global_16(vector_at(x, i));
        const uint4 first = load_global_16(call.shared.gate + 8 * i);
        const uint4 second = load_global_16(call.shared.gate + 8 * i + 4);
        acc = add_product(bits.x, bits.y, call.x_type, first, acc);
        acc = add_product(bits.z, bits.w, call.x_type, second, acc);
    }
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) acc += __shfl_xor_sync(~0u, acc, distance);
    return acc;
}

// What the product of a thread's slot and row half is multiplied by. Loaded before the weights are
// asked for, behind which it would wait. There are at least two threads for each slot.
struct SlotTerms {
    bool is_shared = false;
    float weight = 0.0f;
    float global = 1.0f;

    __device__ __forceinline__ SlotTerms(const GemvDownParams& call, const int32_t* table,
                                         int32_t n_slots) {
        const auto thread = static_cast<int32_t>(threadIdx.x);
        if (thread >= 2 * n_slots) return;
        const int32_t entry = table[thread >> 1];
        is_shared = is_shared_slot(call.slots, slot_index(entry));
        weight = is_shared ? call.scale * call.shared.scale : slot_weight(call, entry);
        global = gemv_global_scale(call.matrix, slot_expert(entry), thread & 1);
    }
    // gate_parts: those of the warps, in shared memory.
    __device__ __forceinline__ float factor(const GemvDownParams& call,
                                            const float* gate_parts) const {
        if (!is_shared || !call.shared.gate) return weight * global;
        float acc = 0.0f;
        for (int32_t warp = 0; warp < call.tiling.n_warps; ++warp) acc += gate_parts[warp];
        return weight * logistic(acc) * global;
    }
};

// The biases of one output, weighted.
__device__ __forceinline__ float bias_sum(const GemvDownParams& call, const int32_t* table,
                                          int32_t n_slots, int32_t output) {
    float acc = 0.0f;
    for (int32_t v = 0; v < n_slots; ++v) {
        const int64_t expert = slot_expert(table[v]);
        acc = fmaf(slot_weight(call, table[v]), call.bias[expert * call.width + output], acc);
    }
    return acc;
}

template <class Out>
__device__ __forceinline__ void store_as(const GemvDownParams& call, int32_t output, float value) {
    Out* to = static_cast<Out*>(call.out) + token_index() * call.out_stride + output;
    if (call.accumulate) value += static_cast<float>(*to);
    *to = static_cast<Out>(value);
}

__device__ __forceinline__ void store_output(const GemvDownParams& call, int32_t output,
                                             float value) {
    if (call.out_type == MOE_TYPE_F32) return store_as<float>(call, output, value);
    if (call.out_type == MOE_TYPE_BF16) return store_as<__nv_bfloat16>(call, output, value);
    store_as<__half>(call, output, value);
}

// The h of a slice in vectors of 16 bytes, of which every lane brings each 32nd to its warp's part
// of shared memory.
template <class Dequant>
struct SliceOfH {
    const std::byte* from;  // of the lane's first
    uint32_t to;
    int32_t n;  // vectors from the lane's first on; not above 0 if it has none
    int32_t slice;

    __device__ __forceinline__ void compute() {
        compute_now(from);
        compute_now(to);
        compute_now(n);
    }
    // Copies wait_all_copies waits for, or operands below 2^15 whose accum lack *scale.
    __device__ __forceinline__ void bring(float* scale) const {
        if constexpr (Dequant::Operand::has_block_exponent)
            scale_block(scale);
        else
            copy_vectors(to, from, n);
    }

  private:
    static constexpr int n_held = 2;

    template <class Body>
    __device__ __forceinline__ void for_vectors(const uint4 (&held)[n_held],
                                                const Body& body) const {
#pragma unroll
        for (int i = 0; i < n_held; ++i)
            if (32 * i < n) body(32 * i, held[i]);
#pragma unroll 1
        for (int32_t i = 32 * n_held; i < n; i += 32) body(i, load_global_16(vector_at(from, i)));
    }
    __device__ __forceinline__ void scale_block(float* scale) const {
        using Operand = typename Dequant::Operand;
        uint4 held[n_held];
#pragma unroll
        for (int i = 0; i < n_held; ++i)
            if (32 * i < n) held[i] = load_global_16(vector_at(from, 32 * i));
        float largest = 0.0f;
        for_vectors(held, [&](int32_t, const uint4& bits) {
            largest = larger(largest, largest_of_vector(bits, MOE_TYPE_BF16));
        });
        largest = warp_largest(largest);
        const float factor = power_of_two(block_exponent<Operand>(largest));
        for_vectors(held, [&](int32_t i, const uint4& bits) {
            store_vector<Operand>(to, i, bits, MOE_TYPE_BF16, factor);
        });
        if ((threadIdx.x & 31) == 0) *scale = block_scale<Operand>(largest);
    }
};

// The first blocks of a warp's first slice, decoded while it would wait for h.
template <class Dequant>
struct EarlyBlocks {
    static constexpr int most = Dequant::min_split == 1 ? 2 : Dequant::min_split / Dequant::span;
    DequantizedBlocks<Dequant, Dequant::span> held[most];
    int32_t n = 0;

    __device__ __forceinline__ void dequantize(uint32_t k_block, int32_t n_blocks, int32_t lane,
                                               uint32_t tables) {
        const typename Dequant::Table table(Dequant::table_of(tables, lane));
        const typename Dequant::GroupScales head(k_block, 0, lane);
        n = min(most, n_blocks / Dequant::span);
#pragma unroll
        for (int i = 0; i < most; ++i)
            if (i < n) held[i].dequantize(k_block, i * Dequant::span, lane, table, head);
    }
    __device__ __forceinline__ void multiply(int32_t x_block, const OperandAddresses& addresses,
                                             int32_t lane, float (&acc)[2]) const {
        if (n == most) {  // together, so that the one need not wait for the other
#pragma unroll
            for (int i = 0; i < most; ++i)
                held[i].multiply(x_block + i * Dequant::span, addresses, lane, acc);
        } else if (n == 1) {
            held[0].multiply(x_block, addresses, lane, acc);
        }
    }
    __device__ __forceinline__ int32_t n_blocks() const {
        return n * Dequant::span;
    }
};

// Two lanes add the warps' accum of an output, each of one half of the warps.
__device__ __forceinline__ float add_halves(const GemvTiling& tiling, const float* accum,
                                            int32_t output) {
    const int32_t half = static_cast<int32_t>(threadIdx.x) >> 4 & 1;
    const int32_t begin = half * tiling.n_warps / 2;
    const int32_t n = (half + 1) * tiling.n_warps / 2 - begin;
    const float* row = accum + 16 * ((output >> 4) * tiling.n_warps + begin) + (output & 15);
    const float acc = add_eight_warps(row, n);
    return acc + __shfl_xor_sync(~0u, acc, 16);
}

// Adds up and stores the outputs of a block's tiles; of a cluster's, the second block hands its
// accum to the first.
__device__ __forceinline__ void finish_outputs(const GemvDownParams& call, unsigned char* shared,
                                               const DownWork& work) {
    const GemvTiling& tiling = call.tiling;
    const int32_t rank = work.rank;
    const int32_t n_outputs = work.n_outputs();
    const float* accum = reinterpret_cast<const float*>(shared + tiling.shared.accum);
    const float* biases = reinterpret_cast<const float*>(shared + tiling.shared.biases);
    float* partial = reinterpret_cast<float*>(shared + tiling.shared.partial);
    const int32_t thread = static_cast<int32_t>(threadIdx.x);
    const int32_t stride = static_cast<int32_t>(blockDim.x) / 2;
    const int32_t first = 16 * (thread >> 5) + (thread & 15);
    const bool stores = (thread & 16) == 0;
    __syncthreads();
    const float first_sum = first < n_outputs ? add_halves(tiling, accum, first) : 0.0f;
    if (tiling.cluster > 1) {
        cluster_wait();
        for (int32_t i = first; rank > 0 && i < n_outputs; i += stride) {
            const float acc = i == first ? first_sum : add_halves(tiling, accum, i);
            if (stores) store_in_block(shared_address(partial + i), 0, acc);
        }
        cluster_arrive();
        cluster_wait();
        if (rank > 0) return;
    }
    for (int32_t i = first; i < n_outputs; i += stride) {
        float acc = i == first ? first_sum : add_halves(tiling, accum, i);
        if (tiling.cluster > 1) acc += partial[i];
        if (call.bias) acc += biases[i];
        if (stores) store_output(call, 16 * work.first_tile + i, acc);
    }
}

// The first item of every stage, that of stage i by lane i.
template <class Dequant, class Pipeline>
__device__ __forceinline__ void begin_copies(const DownSlices<Dequant>& slices,
                                             const Pipeline& pipeline, SliceWalk& copies) {
    const auto lane = static_cast<int32_t>(threadIdx.x & 31);
    int32_t own_tile = -1;
    int32_t own_slice = 0;
    for (int32_t stage = 0; stage < slices.call.tiling.n_stages && copies.is_valid(); ++stage) {
        if (lane == stage) {
            own_tile = copies.tile;
            own_slice = copies.slice;
        }
        copies.advance();
    }
    StreamItem own;
    if (own_tile >= 0) own = slices.item(own_tile, own_slice);
    pipeline.begin(own);
}

// Into shared memory, by the whole block, what products and outputs are multiplied by or added to.
// A barrier must follow.
template <class Dequant>
__device__ __forceinline__ void store_terms(const GemvDownParams& call, const DownWork& work,
                                            const SlotTerms& terms, const int32_t* table,
                                            int32_t n_slots, unsigned char* shared) {
    const GemvSmemLayout& at = call.tiling.shared;
    const auto thread = static_cast<int32_t>(threadIdx.x);
    float* const gate_parts = reinterpret_cast<float*>(shared + at.gate);
    float* const factors = reinterpret_cast<float*>(shared + at.factors);
    float* const biases = reinterpret_cast<float*>(shared + at.biases);
    if (call.shared.gate) {
        const float part = gate_part(call);
        if ((thread & 31) == 0) gate_parts[thread >> 5] = part;
        __syncthreads();
    }
    if (thread < 2 * n_slots)
        factors[thread] = terms.factor(call, gate_parts) * residual_scale_of<Dequant>(call.matrix);
    if (call.bias && work.rank == 0) {
        for (int32_t i = thread; i < work.n_outputs(); i += static_cast<int32_t>(blockDim.x))
            biases[i] = bias_sum(call, table, n_slots, 16 * work.first_tile + i);
    }
    if (thread < 8) store_shared(shared_address(shared) + at.zeros + 16 * thread, uint4{});
    typename CodebookTables<Dequant>::Slots(call.matrix, table, 0, n_slots)
        .store(shared + at.codebooks);
}

// A warp at its slices: accum of its tiles, to shared memory.
template <class Dequant, class Pipeline>
struct DownWarp {
    const DownSlices<Dequant>& slices;
    const DownWork& work;
    Pipeline& pipeline;
    SliceWalk& copies;
    unsigned char* shared;
    uint32_t base;  // shared address
    int32_t warp, lane;
    OperandAddresses addresses;
    int32_t pass, pass_end;  // slices whose h is in shared memory

    __device__ __forceinline__ const GemvTiling& tiling() const { return slices.call.tiling; }
    __device__ __forceinline__ uint32_t tables_of(int32_t slice) const {
        const int32_t slot =
            Dequant::codebook_mode == CodebookMode::per_expert ? slices.slot(slice) : 0;
        return base + tiling().shared.codebooks +
               slot * table_bytes(Dequant::type, Dequant::codebook_mode);
    }
    __device__ __forceinline__ int32_t blocks_of(int32_t slice) const {
        return slices.splits(slices.k_block(slice)) * Dequant::min_split;
    }
    // Where the slice's h lies, in blocks.
    __device__ __forceinline__ int32_t x_block(int32_t slice) const {
        return (slice - pass) * tiling().k_block_splits * Dequant::min_split;
    }
    __device__ __forceinline__ float* slice_scale(int32_t slice) const {
        return reinterpret_cast<float*>(shared + tiling().shared.slice_scales) + slice - pass;
    }
    __device__ __forceinline__ SliceOfH<Dequant> h_of(int32_t slice) const {
        const GemvDownParams& call = slices.call;
        const std::byte* h = row_of_token(call.h, call.slots.n_slots * call.matrix.k);
        const int32_t n = slice < pass_end ? 8 * blocks_of(slice) - lane : 0;
        return {h + 128 * slices.h_block(slice) + 16 * lane,
                base + tiling().shared.x + 128 * x_block(slice) + 16 * lane, n, slice};
    }
    __device__ __forceinline__ void bring(const SliceOfH<Dequant>& h) const {
        if (h.slice < pass_end) h.bring(slice_scale(h.slice));
    }
    // The h of this warp's slices of the pass, from `slice` on.
    __device__ __forceinline__ void bring_from(int32_t slice) const {
        for (; slice < pass_end; slice += tiling().n_warps) bring(h_of(slice));
        wait_all_copies();
        __syncwarp();
    }
    __device__ __forceinline__ void next_pass() {
        pass = pass_end;
        pass_end = min(pass + tiling().pass_slices, work.end_slice);
    }
    // early_sum: of the first `done` blocks of the slice that is next.
    __device__ __forceinline__ void add_pass(float (&early_sum)[2], int32_t& done) {
        float* const accum = reinterpret_cast<float*>(shared + tiling().shared.accum);
        for (int32_t tile = work.first_tile; tile < work.end_tile; ++tile) {
            float total[2] = {};
            for (int32_t slice = pass + warp; slice < pass_end; slice += tiling().n_warps) {
                float acc[2] = {early_sum[0], early_sum[1]};
                add_k_block<Dequant>(pipeline.wait(), done, blocks_of(slice), x_block(slice),
                                     addresses, lane, tables_of(slice), acc);
                done = 0;
                early_sum[0] = early_sum[1] = 0.0f;
                refill();
                add_scaled(slice, acc, total);
            }
            float* to = accum + 16 * ((tile - work.first_tile) * tiling().n_warps + warp) +
                        (lane >> 2) + 8 * (lane & 1);
            const float row = add_quad(total, lane);
            if ((lane & 3) < 2) *to = pass == work.first_slice ? row : *to + row;
        }
    }

  private:
    __device__ __forceinline__ void refill() {
        __syncwarp();
        if (copies.is_valid()) {
            pipeline.refill(slices.item(copies.tile, copies.slice));
            copies.advance();
        }
        pipeline.next();
    }
    __device__ __forceinline__ void add_scaled(int32_t slice, const float (&acc)[2],
                                               float (&total)[2]) const {
        const float* factor = reinterpret_cast<const float*>(shared + tiling().shared.factors) +
                              2 * slices.slot(slice);
        const float scale = Dequant::Operand::has_block_exponent ? *slice_scale(slice) : 1.0f;
        total[0] = fmaf(acc[0] * scale, factor[0], total[0]);
        total[1] = fmaf(acc[1] * scale, factor[1], total[1]);
    }
};

template <class Dequant, class Pipeline>
__global__ void __maxnreg__(down_registers) gemv_down(const __grid_constant__ GemvDownParams call) {
    extern __shared__ __align__(128) unsigned char shared[];
    const GemvTiling& tiling = call.tiling;
    const uint32_t base = shared_address(shared);
    const int32_t warp = static_cast<int32_t>(threadIdx.x) >> 5;
    const int32_t lane = static_cast<int32_t>(threadIdx.x) & 31;
    const int32_t stage_bytes = tiling.k_block_splits * Dequant::min_split_bytes;
    int32_t* table =
        reinterpret_cast<int32_t*>(shared + tiling.shared.slots) + max_gemv_slots * warp;
    Pipeline pipeline(base + tiling.shared.barriers + 8 * tiling.n_stages * warp,
                      base + tiling.shared.pipeline + tiling.n_stages * stage_bytes * warp,
                      tiling.n_stages, stage_bytes);
    if (tiling.cluster > 1) cluster_arrive();
    fetch_parameter(call);

    const SlotIds ids = IdAddresses(call.slots, lane).load();
    const typename CodebookTables<Dequant>::One one_table(call.matrix, lane);
    DownWork work(call);
    const int32_t n_slots =
        list_slots(call.slots, find_experts(call.slots, ids, lane), lane, table);
    const SlotTerms terms(call, table, n_slots);
    work.divide_slices(call, n_slots);
    const DownSlices<Dequant> slices{call, table, call.matrix.k / (64 * Dequant::min_split)};
    SliceWalk copies(work, tiling, warp);
    begin_copies(slices, pipeline, copies);
    one_table.store(base + tiling.shared.codebooks);
    let_next_kernel_start();
    store_terms<Dequant>(call, work, terms, table, n_slots, shared);
    __syncthreads();

    DownWarp<Dequant, Pipeline> worker{
        slices,
        work,
        pipeline,
        copies,
        shared,
        base,
        warp,
        lane,
        OperandAddresses::of<typename Dequant::Operand>(base + tiling.shared.x,
                                                        base + tiling.shared.zeros, lane),
        work.first_slice,
        min(work.first_slice + tiling.pass_slices, work.end_slice)};
    const int32_t own_slice = work.first_slice + warp;
    EarlyBlocks<Dequant> early;
    if (own_slice < worker.pass_end)
        early.dequantize(pipeline.wait(), worker.blocks_of(own_slice), lane,
                         worker.tables_of(own_slice));
    SliceOfH<Dequant> first_h = worker.h_of(own_slice);
    SliceOfH<Dequant> second_h = worker.h_of(own_slice + tiling.n_warps);
    first_h.compute();
    if constexpr (!Dequant::Operand::has_block_exponent)
        second_h.compute();  // registers are short there
    wait_for_previous_kernel();

    worker.bring(first_h);
    worker.bring(second_h);
    worker.bring_from(own_slice + 2 * tiling.n_warps);
    float early_sum[2] = {};
    early.multiply(worker.x_block(own_slice), worker.addresses, lane, early_sum);
    int32_t done = early.n_blocks();
    for (;;) {
        worker.add_pass(early_sum, done);
        if (worker.pass_end >= work.end_slice) break;
        worker.next_pass();
        __syncwarp();
        worker.bring_from(worker.pass + warp);
    }
    finish_outputs(call, shared, work);
}

}  // namespace moe::cuda
