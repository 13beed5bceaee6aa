// Second kernel of one token, a row of the grid for each:
//     out = scale * (sum over slots of weight (down h + bias))
//
// Work: tiles of 16 outputs are spread over clusters of one or two blocks. k runs over all slots;
// a unit is one chunk of one slot's part of it. The blocks of a cluster share the units of their
// tiles, the warps of a block those of the block: unit u goes to warp u % n_warps.
// 1. ids, the list of slots and their weights; the warp's first copies: nothing of it depends on
//    the kernel before
// 2. let the next kernel start; the shared expert's weight from x and its gate; biases; block
//    barrier; the first blocks decoded; wait for the kernel before
// 3. every warp: h of its own units among pass_units to shared memory as operands
// 4. tile after tile: wait for a chunk, multiply, times the slot's factor, refill
// 5. steps 3 and 4 again until no units are left; block barrier
// 6. a thread per output adds the warps' sums; the first block of a cluster adds those of the other
// x, ids and their weights may be read before the wait because the kernel before waited for their
// writers.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "libmoe/cuda/device/cluster.cuh"
#include "libmoe/cuda/device/cp_async.cuh"
#include "libmoe/cuda/device/dependent_launch.cuh"
#include "libmoe/cuda/device/parameters.cuh"
#include "libmoe/cuda/device/stream_ring.cuh"
#include "libmoe/cuda/experts/one_token_parts.cuh"
#include "libmoe/layer/activation.hpp"

namespace moe::cuda {

// Units as the kernel counts them: slot after slot, chunk after chunk.
template <class Raw>
struct DownUnits {
    const OneTokenDown& call;
    const int32_t* table;
    int32_t slot_grains;

    __device__ __forceinline__ int32_t slot(int32_t unit) const {
        return divide(unit, call.cut.chunk_reciprocal);
    }
    __device__ __forceinline__ int32_t chunk(int32_t unit) const {
        return unit - slot(unit) * call.cut.n_chunks;
    }
    __device__ __forceinline__ int32_t grains(int32_t chunk) const {
        return min(call.cut.chunk_grains, slot_grains - chunk * call.cut.chunk_grains);
    }
    // Blocks of 64 k of h before the unit.
    __device__ __forceinline__ int32_t h_block(int32_t unit) const {
        return (slot(unit) * slot_grains + chunk(unit) * call.cut.chunk_grains) * Raw::grain;
    }
    __device__ __forceinline__ void fill(const StreamRing& ring, int32_t stage, int32_t tile,
                                         int32_t unit) const {
        const int32_t c = chunk(unit);
        const int64_t grain = static_cast<int64_t>(tile) * slot_grains + c * call.cut.chunk_grains;
        const std::byte* from = call.matrix.data +
                                slot_expert(table[slot(unit)]) * call.matrix.expert_stride +
                                grain * Raw::grain_bytes;
        ring.fill(stage, from, static_cast<uint32_t>(grains(c) * Raw::grain_bytes));
    }
};

// The copies of one warp in the order of their use: passes, tiles, units.
struct UnitWalk {
    int32_t warp, n_warps, pass_units, first_tile, end_tile, end_unit;
    int32_t pass_begin, pass_end, tile, unit;

    __device__ __forceinline__ bool is_valid() const { return unit < pass_end; }
    __device__ __forceinline__ void advance() {
        unit += n_warps;
        if (unit < pass_end) return;
        if (++tile == end_tile) {
            tile = first_tile;
            pass_begin = pass_end;
            pass_end = min(pass_begin + pass_units, end_unit);
        }
        unit = pass_begin + warp;
    }
};

// Of a routed slot.
__device__ __forceinline__ float slot_weight(const OneTokenDown& call, int32_t entry) {
    const float* weights = weights_of_token(call.slots);
    return call.scale * (call.weight_on_input ? 1.0f : load_global(weights + slot_index(entry)));
}

// Adds the product of four 16-bit values with four of float32.
__device__ __forceinline__ float add_product(uint32_t low, uint32_t high, moe_type type,
                                             const uint4& factors, float sum) {
    const float2 a = two_values(low, type), b = two_values(high, type);
    sum = fmaf(a.x, __uint_as_float(factors.x), sum);
    sum = fmaf(a.y, __uint_as_float(factors.y), sum);
    sum = fmaf(b.x, __uint_as_float(factors.z), sum);
    return fmaf(b.y, __uint_as_float(factors.w), sum);
}

// This warp's part of the product of x with the shared expert's gate.
__device__ __forceinline__ float gate_part(const OneTokenDown& call) {
    const std::byte* x = row_of_token(call.x, call.x_stride);
    float sum = 0.0f;
#pragma unroll 2
    for (auto i = static_cast<int32_t>(threadIdx.x); i < call.hidden / 8;
         i += static_cast<int32_t>(blockDim.x)) {
        const uint4 bits = load_global_16(piece_at(x, i));
        const uint4 first = load_global_16(call.shared.gate + 8 * i);
        const uint4 second = load_global_16(call.shared.gate + 8 * i + 4);
        sum = add_product(bits.x, bits.y, call.x_type, first, sum);
        sum = add_product(bits.z, bits.w, call.x_type, second, sum);
    }
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
    return sum;
}

// What the product of a thread's slot and row half is multiplied by. Loaded before the weights are
// asked for, behind which it would wait. There are at least two threads for each slot.
struct SlotTerms {
    bool is_shared = false;
    float weight = 0.0f;
    float global = 1.0f;

    __device__ __forceinline__ SlotTerms(const OneTokenDown& call, const int32_t* table,
                                         int32_t n_slots) {
        const auto thread = static_cast<int32_t>(threadIdx.x);
        if (thread >= 2 * n_slots) return;
        const int32_t entry = table[thread >> 1];
        is_shared = is_shared_slot(call.slots, slot_index(entry));
        weight = is_shared ? call.scale * call.shared.scale : slot_weight(call, entry);
        global = global_scale(call.matrix, slot_expert(entry), thread & 1);
    }
    // gate_parts: those of the warps, in shared memory.
    __device__ __forceinline__ float factor(const OneTokenDown& call,
                                            const float* gate_parts) const {
        if (!is_shared || !call.shared.gate) return weight * global;
        float sum = 0.0f;
        for (int32_t warp = 0; warp < call.cut.n_warps; ++warp) sum += gate_parts[warp];
        return weight * logistic(sum) * global;
    }
};

// The biases of one output, weighted.
__device__ __forceinline__ float bias_sum(const OneTokenDown& call, const int32_t* table,
                                          int32_t n_slots, int32_t output) {
    float sum = 0.0f;
    if (!call.bias) return sum;
    for (int32_t v = 0; v < n_slots; ++v) {
        const int64_t expert = slot_expert(table[v]);
        sum = fmaf(slot_weight(call, table[v]), call.bias[expert * call.width + output], sum);
    }
    return sum;
}

template <class Out>
__device__ __forceinline__ void store_as(const OneTokenDown& call, int32_t output, float value) {
    Out* to = static_cast<Out*>(call.out) + token_index() * call.out_stride + output;
    if (call.accumulate) value += static_cast<float>(*to);
    *to = static_cast<Out>(value);
}

__device__ __forceinline__ void store_output(const OneTokenDown& call, int32_t output,
                                             float value) {
    if (call.out_type == MOE_TYPE_F32) return store_as<float>(call, output, value);
    if (call.out_type == MOE_TYPE_BF16) return store_as<__nv_bfloat16>(call, output, value);
    store_as<__half>(call, output, value);
}

// Pieces of 16 bytes of the h of a unit, on their way to one warp's part of shared memory: the
// first of every lane wait in registers.
struct UnitOfH {
    static constexpr int32_t n_held = 2;
    const std::byte* from;
    int32_t n_pieces;
    int32_t lane;
    uint4 held[n_held];

    __device__ __forceinline__ UnitOfH(const std::byte* h, int32_t n, int32_t own_lane)
        : from(h), n_pieces(n), lane(own_lane) {
#pragma unroll
        for (int i = 0; i < n_held; ++i)
            if (lane + 32 * i < n_pieces) held[i] = load_global_16(piece_at(from, lane + 32 * i));
    }
    template <class Body>
    __device__ __forceinline__ void for_pieces(const Body& body) const {
#pragma unroll
        for (int i = 0; i < n_held; ++i)
            if (lane + 32 * i < n_pieces) body(lane + 32 * i, held[i]);
#pragma unroll 1
        for (int32_t i = lane + 32 * n_held; i < n_pieces; i += 32)
            body(i, load_global_16(piece_at(from, i)));
    }
    // As operands below 2^15; returns the power of two that the sums lack.
    template <class Operand>
    __device__ __forceinline__ float store(uint32_t to) const {
        float largest = 0.0f;
        for_pieces([&](int32_t, const uint4& bits) {
            largest = fmaxf(largest, largest_of_piece(bits, MOE_TYPE_BF16));
        });
        const int32_t exponent = rebase_exponent(warp_largest(largest));
        for_pieces([&](int32_t i, const uint4& bits) {
            store_piece<Operand>(to, i, bits, MOE_TYPE_BF16, power_of_two(exponent));
        });
        return power_of_two(-exponent);
    }
};

// Every 32nd of n pieces of 16 bytes; most units have two for a lane.
__device__ __forceinline__ void copy_pieces(uint32_t to, const std::byte* from, int32_t n) {
    if (n > 0) copy_async_16(to, from);
    if (n > 32) copy_async_16(to + 512, from + 512);
#pragma unroll 1
    for (int32_t i = 64; i < n; i += 32) copy_async_16(to + 16 * i, from + 16 * i);
}

// The first blocks of a warp's first unit, decoded while it would wait for h.
template <class Raw>
struct EarlyBlocks {
    static constexpr int most = 2;
    DecodedBlocks<Raw, Raw::span> held[most];
    int32_t n = 0;

    __device__ __forceinline__ void decode(uint32_t chunk, int32_t n_blocks, int32_t lane,
                                           uint32_t codebook) {
        n = min(most, n_blocks / Raw::span);
#pragma unroll
        for (int i = 0; i < most; ++i)
            if (i < n) held[i].decode(chunk, i * Raw::span, lane, codebook);
    }
    __device__ __forceinline__ void multiply(int32_t x_block, const OperandPlaces& places,
                                             int32_t lane, float (&sum)[2]) const {
#pragma unroll
        for (int i = 0; i < most; ++i)
            if (i < n) held[i].multiply(x_block + i * Raw::span, places, lane, sum);
    }
    __device__ __forceinline__ int32_t n_blocks() const {
        return n * Raw::span;
    }
};

// Two lanes add the warps' sums of an output, each of one half of the warps.
__device__ __forceinline__ float add_halves(const OneTokenCut& cut, const float* sums,
                                            int32_t output) {
    const int32_t half = static_cast<int32_t>(threadIdx.x) >> 4 & 1;
    const int32_t begin = half * cut.n_warps / 2;
    const int32_t n = (half + 1) * cut.n_warps / 2 - begin;
    const float* row = sums + 16 * ((output >> 4) * cut.n_warps + begin) + (output & 15);
    const float sum = add_warps(row, n);
    return sum + __shfl_xor_sync(~0u, sum, 16);
}

// Adds up and stores the outputs of a block's tiles; of a cluster's, the second block hands its
// sums to the first.
__device__ __forceinline__ void finish_outputs(const OneTokenDown& call, unsigned char* shared,
                                               int32_t rank, int32_t first_tile,
                                               int32_t n_outputs) {
    const OneTokenCut& cut = call.cut;
    const float* sums = reinterpret_cast<const float*>(shared + cut.shared.sums);
    const float* biases = reinterpret_cast<const float*>(shared + cut.shared.biases);
    float* partial = reinterpret_cast<float*>(shared + cut.shared.partial);
    const int32_t thread = static_cast<int32_t>(threadIdx.x);
    const int32_t stride = static_cast<int32_t>(blockDim.x) / 2;
    const int32_t first = 16 * (thread >> 5) + (thread & 15);
    const bool stores = (thread & 16) == 0;
    __syncthreads();
    const float first_sum = first < n_outputs ? add_halves(cut, sums, first) : 0.0f;
    if (cut.cluster > 1) {
        cluster_wait();
        for (int32_t i = first; rank > 0 && i < n_outputs; i += stride) {
            const float sum = i == first ? first_sum : add_halves(cut, sums, i);
            if (stores) store_in_block(shared_address(partial + i), 0, sum);
        }
        cluster_arrive();
        cluster_wait();
        if (rank > 0) return;
    }
    for (int32_t i = first; i < n_outputs; i += stride) {
        float sum = i == first ? first_sum : add_halves(cut, sums, i);
        if (cut.cluster > 1) sum += partial[i];
        if (stores) store_output(call, 16 * first_tile + i, sum + biases[i]);
    }
}

template <class Raw>
__global__ void __maxnreg__(one_token_down_registers)
    one_token_down(const __grid_constant__ OneTokenDown call) {
    extern __shared__ __align__(128) unsigned char shared[];
    const OneTokenCut& cut = call.cut;
    const uint32_t base = shared_address(shared);
    const int32_t thread = static_cast<int32_t>(threadIdx.x);
    const int32_t n_threads = static_cast<int32_t>(blockDim.x);
    const int32_t warp = thread >> 5;
    const int32_t lane = thread & 31;
    const int32_t stage_bytes = cut.chunk_grains * Raw::grain_bytes;
    int32_t* table =
        reinterpret_cast<int32_t*>(shared + cut.shared.slots) + most_one_token_slots * warp;
    StreamRing ring(base + cut.shared.barriers + 8 * cut.n_stages * warp,
                    base + cut.shared.ring + cut.n_stages * stage_bytes * warp, cut.n_stages,
                    stage_bytes);
    if (cut.cluster > 1) cluster_arrive();
    fetch_parameter(call);

    const SlotIds ids = load_ids(call.slots, lane);
    const int32_t rank = static_cast<int32_t>(blockIdx.x) % cut.cluster;
    const int32_t cluster = static_cast<int32_t>(blockIdx.x) / cut.cluster;
    const int32_t n_clusters = static_cast<int32_t>(gridDim.x) / cut.cluster;
    const int32_t first_tile = cluster * call.matrix.n_tiles / n_clusters;
    const int32_t end_tile = (cluster + 1) * call.matrix.n_tiles / n_clusters;
    const int32_t n_slots =
        list_slots(call.slots, find_experts(call.slots, ids, lane), lane, table);
    const SlotTerms terms(call, table, n_slots);
    const int32_t n_units = n_slots * cut.n_chunks;
    const int32_t first_unit = rank * n_units / cut.cluster;
    const int32_t end_unit = (rank + 1) * n_units / cut.cluster;
    const DownUnits<Raw> units{call, table, call.matrix.k / (64 * Raw::grain)};
    UnitWalk copies{
        warp,       cut.n_warps,      cut.pass_units, first_tile,
        end_tile,   end_unit,         first_unit,     min(first_unit + cut.pass_units, end_unit),
        first_tile, first_unit + warp};
    for (int32_t stage = 0; stage < cut.n_stages && copies.is_valid(); ++stage) {
        if (lane == 0) units.fill(ring, stage, copies.tile, copies.unit);
        copies.advance();
    }
    let_next_kernel_start();

    float* const gate_parts = reinterpret_cast<float*>(shared + cut.shared.gate);
    if (call.shared.gate) {
        const float part = gate_part(call);
        if (lane == 0) gate_parts[warp] = part;
        __syncthreads();
    }
    float* factors = reinterpret_cast<float*>(shared + cut.shared.factors);
    if (thread < 2 * n_slots) factors[thread] = terms.factor(call, gate_parts) * Raw::leftover;
    const int32_t n_outputs = 16 * (end_tile - first_tile);
    float* const biases = reinterpret_cast<float*>(shared + cut.shared.biases);
    for (int32_t i = thread; rank == 0 && i < n_outputs; i += n_threads)
        biases[i] = bias_sum(call, table, n_slots, 16 * first_tile + i);
    if (thread < 8) store_shared(base + cut.shared.zeros + 16 * thread, uint4{0, 0, 0, 0});
    float* const sums = reinterpret_cast<float*>(shared + cut.shared.sums);
    Codebooks<Raw>(call.matrix, table, 0, n_slots).store(shared + cut.shared.codebooks);
    const auto codebook_of = [&](int32_t unit) {
        return base + cut.shared.codebooks + units.slot(unit) * codebook_bytes(Raw::type);
    };
    const auto blocks_of = [&](int32_t unit) {
        return units.grains(units.chunk(unit)) * Raw::grain;
    };
    __syncthreads();
    const int32_t own_unit = first_unit + warp;
    const int32_t unit_blocks = cut.chunk_grains * Raw::grain;
    const OperandPlaces places(base + cut.shared.x, base + cut.shared.zeros, lane);
    int32_t pass = first_unit;
    int32_t pass_end = min(pass + cut.pass_units, end_unit);
    EarlyBlocks<Raw> early;
    if (own_unit < pass_end)
        early.decode(ring.wait(), blocks_of(own_unit), lane, codebook_of(own_unit));
    wait_for_previous_kernel();

    // Every warp brings the h of its own units, to a place for each of the pass.
    float* const unit_scales = reinterpret_cast<float*>(shared + cut.shared.unit_scales);
    const std::byte* h_of_token = row_of_token(call.h, call.slots.n_slots * call.matrix.k);
    const auto x_block = [&](int32_t unit) { return (unit - pass) * unit_blocks; };
    const auto stage_h = [&] {
        __syncwarp();
        for (int32_t unit = pass + warp; unit < pass_end; unit += cut.n_warps) {
            const std::byte* from = h_of_token + 128 * units.h_block(unit);
            const int32_t n_pieces = 8 * blocks_of(unit);
            const uint32_t to = base + cut.shared.x + 128 * x_block(unit);
            if constexpr (Raw::Operand::rebased) {
                const float scale = UnitOfH(from, n_pieces, lane).store<typename Raw::Operand>(to);
                if (lane == 0) unit_scales[unit - pass] = scale;
            } else {
                copy_pieces(to + 16 * lane, from + 16 * lane, n_pieces - lane);
            }
        }
        wait_all_copies();
        __syncwarp();
    };
    stage_h();
    float early_sum[2] = {};
    early.multiply(x_block(own_unit), places, lane, early_sum);
    int32_t done = early.n_blocks();  // of the unit that is next
    for (;;) {
        for (int32_t tile = first_tile; tile < end_tile; ++tile) {
            float total[2] = {};
            for (int32_t unit = pass + warp; unit < pass_end; unit += cut.n_warps) {
                float sum[2] = {early_sum[0], early_sum[1]};
                add_chunk<Raw>(ring.wait(), done, blocks_of(unit), x_block(unit), places, lane,
                               codebook_of(unit), sum);
                done = 0;
                early_sum[0] = early_sum[1] = 0.0f;
                __syncwarp();
                if (copies.is_valid()) {
                    if (lane == 0) units.fill(ring, ring.stage(), copies.tile, copies.unit);
                    copies.advance();
                }
                ring.next();
                const float* factor = factors + 2 * units.slot(unit);
                const float scale = Raw::Operand::rebased ? unit_scales[unit - pass] : 1.0f;
                total[0] = fmaf(sum[0] * scale, factor[0], total[0]);
                total[1] = fmaf(sum[1] * scale, factor[1], total[1]);
            }
            float* to = sums + 16 * ((tile - first_tile) * cut.n_warps + warp) + (lane >> 2) +
                        8 * (lane & 1);
            const float row = add_quad(total, lane);
            if ((lane & 3) < 2) *to = pass == first_unit ? row : *to + row;
        }
        pass = pass_end;
        if (pass >= end_unit) break;
        pass_end = min(pass + cut.pass_units, end_unit);
        stage_h();
    }
    finish_outputs(call, shared, rank, first_tile, n_outputs);
}

}  // namespace moe::cuda
