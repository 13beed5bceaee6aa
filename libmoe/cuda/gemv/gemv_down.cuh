// gemv_down: the second of the two kernels of a small batch. A row of the grid serves one token:
//
//     out[token][i] = scale * (sum over slots v of weight_v * (down_v h_v + bias_v)[i])
//
// Inputs: h [tokens][n_slots][k], bfloat16 or float16, from gemv_gate_up; ids [tokens][top_k],
// int32, and their weights, float32; the packed down matrix of every expert; optional biases
// [experts][width], float32; x [tokens][hidden], 16-bit, and a gate vector [hidden], float32, for
// the gate of the shared expert.
// Output: out [tokens][width], float32, float16 or bfloat16, stored or accumulated.
// Preconditions: n_slots is at most 64 (max_gemv_slots), k is a multiple of 64 *
// Dequant::min_split, rows of h and x begin on 16 bytes, and the grid has clusters of
// tiling.cluster (1 or 2) blocks. x, ids and their weights are read before the wait: their writers
// have ended before any kernel behind gate and up begins (gather_slots.cu).
//
// Tiles of 16 outputs are divided among the clusters. The k of a tile runs over all slots; a
// split-k slice is one k_block of one slot. The blocks of a cluster halve the slices of their
// tiles, and slice u of a block goes to warp u % n_warps.
//
// 1. Load ids, list the slots and load their weights. Start the warp's weight pipeline and fill the
//    shared codebook table. Nothing of this depends on the preceding kernel.
// 2. Let the next kernel start. Compute the shared expert's gate and weight, load biases and the
//    codebooks per expert, and synchronize the block. Dequantize the first blocks, then wait for
//    the preceding kernel in the stream (PDL).
// 3. Every warp loads h of its own slices of a pass (pass_slices) to shared memory as operands.
// 4. Mainloop, tile after tile: wait for a k_block, multiply, apply the slot's factor, refill.
// 5. Repeat 3 and 4 until no slices are left, then synchronize the block.
// 6. Epilogue: two lanes per output add the warps' accumulators; the second block of a cluster
//    sends its accumulators to the first, which adds them and stores.
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

// Slices are numbered slot by slot, then k_block by k_block.
template <class Dequant>
struct DownSlices {
    const GemvDownParams& call;
    const int32_t* slot_list;
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
    __device__ __forceinline__ StageItem<Dequant> item(int32_t tile, int32_t slice) const {
        const int32_t c = k_block(slice);
        const int32_t split_of_tile = c * call.tiling.k_block_splits;
        const std::byte* from = call.matrix.data +
                                slot_expert(slot_list[slot(slice)]) * call.matrix.expert_stride +
                                tile * tile_stride_of<Dequant>(call, slot_splits) +
                                split_offset<Dequant>(call, split_of_tile);
        return stage_item<Dequant>(call, from, split_of_tile, splits(c));
    }
    // The k_block of a tile and slice, which has arrived in the stage at this shared address.
    __device__ __forceinline__ typename Dequant::KBlock arrived(uint32_t stage, int32_t tile,
                                                                int32_t slice) const {
        return k_block_at<Dequant>(
            call, stage, tile, k_block(slice) * call.tiling.k_block_splits * Dequant::min_split);
    }
};

// The tiles of a block and its part of the slices of the cluster.
struct DownWork {
    int32_t rank;  // rank of the block in the cluster
    int32_t first_tile, end_tile;
    int32_t first_slice, end_slice;

    __device__ __forceinline__ explicit DownWork(const GemvDownParams& call) {
        const int32_t log2_cluster = call.tiling.cluster - 1;  // the cluster has 1 or 2 blocks
        const auto block = static_cast<int32_t>(blockIdx.x);
        const EvenPartition tiles(call.matrix.n_tiles, block >> log2_cluster,
                                  call.tiling.n_blocks >> log2_cluster,
                                  call.tiling.block_reciprocal);
        rank = block & log2_cluster;
        first_tile = tiles.first;
        end_tile = tiles.last;
    }
    __device__ __forceinline__ void divide_slices(const GemvDownParams& call, int32_t n_slots) {
        const int32_t n_slices = n_slots * call.tiling.n_k_blocks;
        const int32_t log2_cluster = call.tiling.cluster - 1;
        first_slice = rank * n_slices >> log2_cluster;
        end_slice = (rank + 1) * n_slices >> log2_cluster;
    }
    __device__ __forceinline__ int32_t n_outputs() const { return 16 * (end_tile - first_tile); }
};

// The copies of one warp in the order of their use: by pass, by tile, by slice.
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

// Only routed slots have an entry in `weights`.
__device__ __forceinline__ float slot_weight(const GemvDownParams& call, int32_t entry) {
    const float* weights = weights_of_token(call.slots);
    return call.scale * (call.weight_on_input ? 1.0f : load_global(weights + slot_index(entry)));
}

// Dot product of four 16-bit and four float32 values, added to acc.
__device__ __forceinline__ float add_dot_4(uint32_t low, uint32_t high, moe_type type,
                                           const uint4& factors, float acc) {
    const float2 a = two_values(low, type), b = two_values(high, type);
    acc = fmaf(a.x, __uint_as_float(factors.x), acc);
    acc = fmaf(a.y, __uint_as_float(factors.y), acc);
    acc = fmaf(b.x, __uint_as_float(factors.z), acc);
    return fmaf(b.y, __uint_as_float(factors.w), acc);
}

// This warp's part of the dot product of x and the shared expert's gate vector.
__device__ __forceinline__ float gate_partial(const GemvDownParams& call) {
    const std::byte* x = row_of_token(call.x, call.x_stride);
    float acc = 0.0f;
#pragma unroll 2
    for (auto i = static_cast<int32_t>(threadIdx.x); i < call.hidden / 8;
         i += static_cast<int32_t>(blockDim.x)) {
        const uint4 bits = load_global_16(vector_at(x, i));
        const uint4 first = load_global_16(call.shared.gate + 8 * i);
        const uint4 second = load_global_16(call.shared.gate + 8 * i + 4);
        acc = add_dot_4(bits.x, bits.y, call.x_type, first, acc);
        acc = add_dot_4(bits.z, bits.w, call.x_type, second, acc);
    }
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) acc += __shfl_xor_sync(~0u, acc, distance);
    return acc;
}

// Factor of one slot and M half, held by one thread. Its loads are issued before the weight copies,
// behind which they would queue. A block has at least two threads per slot.
struct SlotTerms {
    bool is_shared = false;
    float weight = 0.0f;
    float global = 1.0f;

    __device__ __forceinline__ SlotTerms(const GemvDownParams& call, const int32_t* slot_list,
                                         int32_t n_slots) {
        const auto thread = static_cast<int32_t>(threadIdx.x);
        if (thread >= 2 * n_slots) return;
        const int32_t entry = slot_list[thread >> 1];
        is_shared = is_shared_slot(call.slots, slot_index(entry));
        weight = is_shared ? call.scale * call.shared.scale : slot_weight(call, entry);
        global = gemv_global_scale(call.matrix, slot_expert(entry), thread & 1);
    }
    // gate_partials: [warps], shared memory.
    __device__ __forceinline__ float factor(const GemvDownParams& call,
                                            const float* gate_partials) const {
        if (!is_shared || !call.shared.gate) return weight * global;
        float acc = 0.0f;
        for (int32_t warp = 0; warp < call.tiling.n_warps; ++warp) acc += gate_partials[warp];
        return weight * logistic(acc) * global;
    }
};

// Sum of the weighted biases of one output.
__device__ __forceinline__ float bias_sum(const GemvDownParams& call, const int32_t* slot_list,
                                          int32_t n_slots, int32_t output) {
    float acc = 0.0f;
    for (int32_t v = 0; v < n_slots; ++v) {
        const int64_t expert = slot_expert(slot_list[v]);
        acc = fmaf(slot_weight(call, slot_list[v]), call.bias[expert * call.width + output], acc);
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

// The h of a slice as 16-byte vectors. Lane i of the warp copies vectors i, i + 32, and so on.
template <class Dequant>
struct HSlice {
    using Operand = typename Dequant::Operand;
    const std::byte* from;  // first vector of this lane
    uint32_t to;
    int32_t n;  // vectors from the lane's first on; at most 0 if it has none
    int32_t slice;

    __device__ __forceinline__ void compute() {
        compute_now(from);
        compute_now(to);
        compute_now(n);
    }
    // bfloat16 h: issues copies for wait_all_copies, or stores scaled operands and the residual
    // scale of their accumulators to *scale.
    __device__ __forceinline__ void load(float* scale) const {
        if constexpr (Operand::has_block_exponent)
            scale_block(scale);
        else
            copy_vectors(to, from, n);
    }
    // float16 h: the same, or operands and their low parts, `low` bytes behind. It is as little
    // code as can be, because what lies between the instructions of bfloat16 adds to their latency.
    __device__ __forceinline__ void load_f16(float* scale, uint32_t low) const {
        float factor = power_of_two(Dequant::x_exponent);
        if constexpr (Operand::has_block_exponent) {
            float largest = 0.0f;
#pragma unroll 1
            for (int32_t i = 0; i < n; i += 32)
                largest = larger(
                    largest, largest_of_vector(load_global_16(vector_at(from, i)), MOE_TYPE_F16));
            largest = warp_largest(largest);
            factor = power_of_two(block_exponent<Operand>(largest));
            if ((threadIdx.x & 31) == 0) *scale = residual_scale_of_block<Operand>(largest);
        }
#pragma unroll 1
        for (int32_t i = 0; i < n; i += 32) {
            const uint4 bits = load_global_16(vector_at(from, i));
            store_vector<Operand>(to, i, bits, MOE_TYPE_F16, factor);
            if constexpr (!Operand::has_block_exponent)
                store_low_vector(to + low, i, bits, MOE_TYPE_F16, factor);
        }
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
        if ((threadIdx.x & 31) == 0) *scale = residual_scale_of_block<Operand>(largest);
    }
};

// A warp dequantizes the first blocks of its first slice while it would wait for h.
template <class Dequant>
struct EarlyBlocks {
    static constexpr int most = Dequant::min_split == 1 ? 2 : Dequant::min_split / Dequant::span;
    DequantizedBlocks<Dequant, Dequant::span> held[most];
    int32_t n = 0;

    __device__ __forceinline__ void dequantize(const typename Dequant::KBlock& k_block,
                                               int32_t n_blocks, int32_t lane, uint32_t tables,
                                               bool has_low) {
        const typename Dequant::Table table(Dequant::table_of(tables, lane));
        const typename Dequant::GroupScales group_scales(k_block, 0, lane);
        // Operands with low parts have no pairs of blocks.
        n = has_low && Dequant::span == 2 ? 0 : min(most, n_blocks / Dequant::span);
#pragma unroll
        for (int i = 0; i < most; ++i)
            if (i < n) held[i].dequantize(k_block, i * Dequant::span, lane, table, group_scales);
    }
    __device__ __forceinline__ void multiply(int32_t x_block, const OperandAddresses& addresses,
                                             int32_t lane, float (&acc)[2]) const {
        if (n == most) {  // both at once, so that their latencies overlap
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

// Two lanes add the warps' accumulators of an output, half of the warps each.
__device__ __forceinline__ float add_halves(const GemvTiling& tiling, const float* accum,
                                            int32_t output) {
    const int32_t half = static_cast<int32_t>(threadIdx.x) >> 4 & 1;
    const int32_t begin = half * tiling.n_warps / 2;
    const int32_t n = (half + 1) * tiling.n_warps / 2 - begin;
    const float* row = accum + 16 * ((output >> 4) * tiling.n_warps + begin) + (output & 15);
    const float acc = add_eight_warps(row, n);
    return acc + __shfl_xor_sync(~0u, acc, 16);
}

// The epilogue of a block's tiles. In a cluster, the second block sends its accumulators to the
// first through distributed shared memory.
__device__ __forceinline__ void run_epilogue(const GemvDownParams& call, unsigned char* shared,
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
    const float first_acc = first < n_outputs ? add_halves(tiling, accum, first) : 0.0f;
    if (tiling.cluster > 1) {
        cluster_wait();
        for (int32_t i = first; rank > 0 && i < n_outputs; i += stride) {
            const float acc = i == first ? first_acc : add_halves(tiling, accum, i);
            if (stores) store_remote_shared(shared_address(partial + i), 0, acc);
        }
        cluster_arrive();
        cluster_wait();
        if (rank > 0) return;
    }
    for (int32_t i = first; i < n_outputs; i += stride) {
        float acc = i == first ? first_acc : add_halves(tiling, accum, i);
        if (tiling.cluster > 1) acc += partial[i];
        if (call.bias) acc += biases[i];
        if (stores) store_output(call, 16 * work.first_tile + i, acc);
    }
}

// Fills every stage for the first time; lane i issues the copy of stage i.
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
    StageItem<Dequant> own;
    if (own_tile >= 0) own = slices.item(own_tile, own_slice);
    pipeline.begin(own);
}

// The block stores the factors of the accumulators and the biases of the outputs to shared memory.
// The caller synchronizes afterwards.
template <class Dequant>
__device__ __forceinline__ void store_terms(const GemvDownParams& call, const DownWork& work,
                                            const SlotTerms& terms, const int32_t* slot_list,
                                            int32_t n_slots, unsigned char* shared) {
    const GemvSmemLayout& at = call.tiling.shared;
    const auto thread = static_cast<int32_t>(threadIdx.x);
    float* const gate_partials = reinterpret_cast<float*>(shared + at.gate);
    float* const factors = reinterpret_cast<float*>(shared + at.factors);
    float* const biases = reinterpret_cast<float*>(shared + at.biases);
    if (call.shared.gate) {
        const float partial = gate_partial(call);
        if ((thread & 31) == 0) gate_partials[thread >> 5] = partial;
        __syncthreads();
    }
    if (thread < 2 * n_slots)
        factors[thread] =
            terms.factor(call, gate_partials) * residual_scale_of<Dequant>(call.matrix);
    if (call.bias && work.rank == 0) {
        for (int32_t i = thread; i < work.n_outputs(); i += static_cast<int32_t>(blockDim.x))
            biases[i] = bias_sum(call, slot_list, n_slots, 16 * work.first_tile + i);
    }
    if (thread < 8) store_shared(shared_address(shared) + at.zeros + 16 * thread, uint4{});
    typename CodebookTables<Dequant>::PerSlot(call.matrix, slot_list, 0, n_slots)
        .store(shared + at.codebooks);
}

// The mainloop of one warp. It stores the accumulators of its slices, tile by tile.
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
    // Offset of the slice's h in shared memory, in blocks of 64 k.
    __device__ __forceinline__ int32_t x_block(int32_t slice) const {
        return (slice - pass) * tiling().k_block_splits * Dequant::min_split;
    }
    __device__ __forceinline__ float* slice_scale(int32_t slice) const {
        return reinterpret_cast<float*>(shared + tiling().shared.slice_scales) + slice - pass;
    }
    __device__ __forceinline__ HSlice<Dequant> h_of(int32_t slice) const {
        const GemvDownParams& call = slices.call;
        const std::byte* h = row_of_token(call.h, call.slots.n_slots * call.matrix.k);
        const int32_t n = slice < pass_end ? 8 * blocks_of(slice) - lane : 0;
        return {h + 128 * slices.h_block(slice) + 16 * lane,
                base + tiling().shared.x + 128 * x_block(slice) + 16 * lane, n, slice};
    }
    __device__ __forceinline__ void load_h(const HSlice<Dequant>& h) const {
        if (h.slice < pass_end) h.load(slice_scale(h.slice));
    }
    // Loads h of this warp's slices of the pass, from `slice` on.
    __device__ __forceinline__ void load_h_from(int32_t slice) const {
        for (; slice < pass_end; slice += tiling().n_warps) load_h(h_of(slice));
        wait_all_copies();
        __syncwarp();
    }
    __device__ __forceinline__ bool has_f16_h() const { return slices.call.h_type == MOE_TYPE_F16; }
    __device__ __forceinline__ void load_f16_h_from(int32_t slice) const {
#pragma unroll 1
        for (; slice < pass_end; slice += tiling().n_warps)
            h_of(slice).load_f16(slice_scale(slice), static_cast<uint32_t>(tiling().low_part));
        __syncwarp();
    }
    __device__ __forceinline__ void next_pass() {
        pass = pass_end;
        pass_end = min(pass + tiling().pass_slices, work.end_slice);
    }
    // early_acc holds the accumulators of the first `done` blocks of the next slice.
    __device__ __forceinline__ void multiply_pass(float (&early_acc)[2], int32_t& done) {
        float* const accum = reinterpret_cast<float*>(shared + tiling().shared.accum);
        for (int32_t tile = work.first_tile; tile < work.end_tile; ++tile) {
            float total[2] = {};
            for (int32_t slice = pass + warp; slice < pass_end; slice += tiling().n_warps) {
                float acc[2] = {early_acc[0], early_acc[1]};
                add_k_block<Dequant>(slices.arrived(pipeline.wait(), tile, slice), done,
                                     blocks_of(slice), x_block(slice), addresses, lane,
                                     tables_of(slice), acc);
                done = 0;
                early_acc[0] = early_acc[1] = 0.0f;
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
    int32_t* slot_list =
        reinterpret_cast<int32_t*>(shared + tiling.shared.slots) + max_gemv_slots * warp;
    Pipeline pipeline(base + tiling.shared.barriers + 8 * tiling.n_stages * warp,
                      base + tiling.shared.pipeline + tiling.n_stages * tiling.stage_bytes * warp,
                      tiling.n_stages, tiling.stage_bytes, line_mask_of<Dequant>(tiling));
    if (tiling.cluster > 1) cluster_arrive();
    fetch_parameter(call);

    const SlotIds ids = IdAddresses(call.slots, lane).load();
    const typename CodebookTables<Dequant>::Shared shared_table(call.matrix, lane);
    DownWork work(call);
    const int32_t n_slots =
        list_slots(call.slots, find_experts(call.slots, ids, lane), lane, slot_list);
    const SlotTerms terms(call, slot_list, n_slots);
    work.divide_slices(call, n_slots);
    const DownSlices<Dequant> slices{call, slot_list, call.matrix.k / (64 * Dequant::min_split)};
    SliceWalk copies(work, tiling, warp);
    begin_copies(slices, pipeline, copies);
    shared_table.store(base + tiling.shared.codebooks);
    let_next_kernel_start();
    store_terms<Dequant>(call, work, terms, slot_list, n_slots, shared);
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
        OperandAddresses::of<typename Dequant::Operand>(
            base + tiling.shared.x, base + tiling.shared.zeros, lane, tiling.low_part),
        work.first_slice,
        min(work.first_slice + tiling.pass_slices, work.end_slice)};
    const int32_t own_slice = work.first_slice + warp;
    EarlyBlocks<Dequant> early;
    if (own_slice < worker.pass_end)
        early.dequantize(slices.arrived(pipeline.wait(), work.first_tile, own_slice),
                         worker.blocks_of(own_slice), lane, worker.tables_of(own_slice),
                         worker.addresses.has_low);
    HSlice<Dequant> first_h = worker.h_of(own_slice);
    HSlice<Dequant> second_h = worker.h_of(own_slice + tiling.n_warps);
    first_h.compute();
    if constexpr (!Dequant::Operand::has_block_exponent)
        second_h.compute();  // block exponents leave no registers for it
    wait_for_previous_kernel();

    if (worker.has_f16_h()) {
        worker.load_f16_h_from(own_slice);
    } else {
        worker.load_h(first_h);
        worker.load_h(second_h);
        worker.load_h_from(own_slice + 2 * tiling.n_warps);
    }
    float early_acc[2] = {};
    early.multiply(worker.x_block(own_slice), worker.addresses, lane, early_acc);
    int32_t done = early.n_blocks();
    for (;;) {
        worker.multiply_pass(early_acc, done);
        if (worker.pass_end >= work.end_slice) break;
        worker.next_pass();
        __syncwarp();
        if (worker.has_f16_h())
            worker.load_f16_h_from(worker.pass + warp);
        else
            worker.load_h_from(worker.pass + warp);
    }
    if (n_slots == 0 && call.keeps_absent) return;
    run_epilogue(call, shared, work);
}

}  // namespace moe::cuda
