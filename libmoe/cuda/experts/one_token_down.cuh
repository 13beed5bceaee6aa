// Second kernel of one token, a row of the grid for each:
//     out = scale * (sum over slots of weight (down h + bias))
//
// Work: tiles of 16 outputs are spread over clusters of one or two blocks. k runs over all slots;
// a unit is one chunk of one slot's part of it. The blocks of a cluster share the units of their
// tiles, the warps of a block those of the block: unit u goes to warp u % n_warps.
// 1. ids, the list of slots and their weights; the warp's first copies; the table of the one
//    codebook, if all experts have the same: nothing of it depends on the kernel before
// 2. let the next kernel start; the shared expert's weight from x and its gate; biases; codebooks
//    of the experts, where they have their own; block barrier; the first blocks decoded; wait for
//    the kernel before
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
    __device__ __forceinline__ StreamItem item(int32_t tile, int32_t unit) const {
        const int32_t c = chunk(unit);
        const int64_t grain = static_cast<int64_t>(tile) * slot_grains + c * call.cut.chunk_grains;
        const std::byte* from = call.matrix.data +
                                slot_expert(table[slot(unit)]) * call.matrix.expert_stride +
                                grain * Raw::grain_bytes;
        return {from, grains(c) * Raw::grain_bytes};
    }
};

// What a block works at: tiles, and of the units of its cluster's k its own.
struct DownShare {
    int32_t rank;  // in the cluster
    int32_t first_tile, end_tile;
    int32_t first_unit, end_unit;

    __device__ __forceinline__ explicit DownShare(const OneTokenDown& call) {
        const int32_t paired = call.cut.cluster - 1;  // 0 or 1
        const auto block = static_cast<int32_t>(blockIdx.x);
        const EvenShare tiles(call.matrix.n_tiles, block >> paired, call.cut.n_blocks >> paired,
                              call.cut.block_reciprocal);
        rank = block & paired;
        first_tile = tiles.first;
        end_tile = tiles.last;
    }
    __device__ __forceinline__ void divide_units(const OneTokenDown& call, int32_t n_slots) {
        const int32_t n_units = n_slots * call.cut.n_chunks;
        const int32_t paired = call.cut.cluster - 1;
        first_unit = rank * n_units >> paired;
        end_unit = (rank + 1) * n_units >> paired;
    }
    __device__ __forceinline__ int32_t n_outputs() const { return 16 * (end_tile - first_tile); }
};

// The copies of one warp in the order of their use: passes, tiles, units.
struct UnitWalk {
    int32_t warp, n_warps, pass_units, first_tile, end_tile, end_unit;
    int32_t pass_begin, pass_end, tile, unit;

    __device__ __forceinline__ UnitWalk(const DownShare& share, const OneTokenCut& cut,
                                        int32_t own_warp)
        : warp(own_warp),
          n_warps(cut.n_warps),
          pass_units(cut.pass_units),
          first_tile(share.first_tile),
          end_tile(share.end_tile),
          end_unit(share.end_unit),
          pass_begin(share.first_unit),
          pass_end(min(pass_begin + pass_units, end_unit)),
          tile(first_tile),
          unit(pass_begin + warp) {}

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

// The h of a unit in pieces of 16 bytes, of which every lane brings each 32nd to its warp's part of
// shared memory.
template <class Raw>
struct UnitOfH {
    const std::byte* from;  // of the lane's first
    uint32_t to;
    int32_t n;  // pieces from the lane's first on; not above 0 if it has none
    int32_t unit;

    __device__ __forceinline__ void compute() {
        compute_now(from);
        compute_now(to);
        compute_now(n);
    }
    // Copies wait_all_copies waits for, or operands below 2^15 whose sums lack *scale.
    __device__ __forceinline__ void bring(float* scale) const {
        if constexpr (Raw::Operand::rebased)
            rebase(scale);
        else
            copy_pieces(to, from, n);
    }

  private:
    static constexpr int n_held = 2;

    template <class Body>
    __device__ __forceinline__ void for_pieces(const uint4 (&held)[n_held],
                                               const Body& body) const {
#pragma unroll
        for (int i = 0; i < n_held; ++i)
            if (32 * i < n) body(32 * i, held[i]);
#pragma unroll 1
        for (int32_t i = 32 * n_held; i < n; i += 32) body(i, load_global_16(piece_at(from, i)));
    }
    __device__ __forceinline__ void rebase(float* scale) const {
        using Operand = typename Raw::Operand;
        uint4 held[n_held];
#pragma unroll
        for (int i = 0; i < n_held; ++i)
            if (32 * i < n) held[i] = load_global_16(piece_at(from, 32 * i));
        float largest = 0.0f;
        for_pieces(held, [&](int32_t, const uint4& bits) {
            largest = larger(largest, largest_of_piece(bits, MOE_TYPE_BF16));
        });
        largest = warp_largest(largest);
        const float factor = power_of_two(rebase_exponent<Operand>(largest));
        for_pieces(held, [&](int32_t i, const uint4& bits) {
            store_piece<Operand>(to, i, bits, MOE_TYPE_BF16, factor);
        });
        if ((threadIdx.x & 31) == 0) *scale = rebase_back<Operand>(largest);
    }
};

// The first blocks of a warp's first unit, decoded while it would wait for h.
template <class Raw>
struct EarlyBlocks {
    static constexpr int most = 2;
    DecodedBlocks<Raw, Raw::span> held[most];
    int32_t n = 0;

    __device__ __forceinline__ void decode(uint32_t chunk, int32_t n_blocks, int32_t lane,
                                           uint32_t tables) {
        static_assert(Raw::grain == 1 || most * Raw::span == Raw::grain, "one head, whole grains");
        const typename Raw::Table table(Raw::table_of(tables, lane));
        const typename Raw::Head head(chunk, 0, lane);
        n = min(most, n_blocks / Raw::span);
#pragma unroll
        for (int i = 0; i < most; ++i)
            if (i < n) held[i].decode(chunk, i * Raw::span, lane, table, head);
    }
    __device__ __forceinline__ void multiply(int32_t x_block, const OperandPlaces& places,
                                             int32_t lane, float (&sum)[2]) const {
        if (n == most) {  // together, so that the one need not wait for the other
#pragma unroll
            for (int i = 0; i < most; ++i)
                held[i].multiply(x_block + i * Raw::span, places, lane, sum);
        } else if (n == 1) {
            held[0].multiply(x_block, places, lane, sum);
        }
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
    const float sum = add_eight_warps(row, n);
    return sum + __shfl_xor_sync(~0u, sum, 16);
}

// Adds up and stores the outputs of a block's tiles; of a cluster's, the second block hands its
// sums to the first.
__device__ __forceinline__ void finish_outputs(const OneTokenDown& call, unsigned char* shared,
                                               const DownShare& share) {
    const OneTokenCut& cut = call.cut;
    const int32_t rank = share.rank;
    const int32_t n_outputs = share.n_outputs();
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
        if (call.bias) sum += biases[i];
        if (stores) store_output(call, 16 * share.first_tile + i, sum);
    }
}

// The first item of every stage, that of stage i by lane i.
template <class Raw, class Ring>
__device__ __forceinline__ void begin_copies(const DownUnits<Raw>& units, const Ring& ring,
                                             UnitWalk& copies) {
    const auto lane = static_cast<int32_t>(threadIdx.x & 31);
    int32_t own_tile = -1;
    int32_t own_unit = 0;
    for (int32_t stage = 0; stage < units.call.cut.n_stages && copies.is_valid(); ++stage) {
        if (lane == stage) {
            own_tile = copies.tile;
            own_unit = copies.unit;
        }
        copies.advance();
    }
    StreamItem own;
    if (own_tile >= 0) own = units.item(own_tile, own_unit);
    ring.begin(own);
}

// Into shared memory, by the whole block, what products and outputs are multiplied by or added to.
// A barrier must follow.
template <class Raw>
__device__ __forceinline__ void store_terms(const OneTokenDown& call, const DownShare& share,
                                            const SlotTerms& terms, const int32_t* table,
                                            int32_t n_slots, unsigned char* shared) {
    const OneTokenShared& at = call.cut.shared;
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
        factors[thread] = terms.factor(call, gate_parts) * leftover_of<Raw>(call.matrix);
    if (call.bias && share.rank == 0) {
        for (int32_t i = thread; i < share.n_outputs(); i += static_cast<int32_t>(blockDim.x))
            biases[i] = bias_sum(call, table, n_slots, 16 * share.first_tile + i);
    }
    if (thread < 8) store_shared(shared_address(shared) + at.zeros + 16 * thread, uint4{});
    typename TablesOf<Raw>::Slots(call.matrix, table, 0, n_slots).store(shared + at.codebooks);
}

// A warp at its units: sums of its tiles, to shared memory.
template <class Raw, class Ring>
struct DownWarp {
    const DownUnits<Raw>& units;
    const DownShare& share;
    Ring& ring;
    UnitWalk& copies;
    unsigned char* shared;
    uint32_t base;  // shared address
    int32_t warp, lane;
    OperandPlaces places;
    int32_t pass, pass_end;  // units whose h is in shared memory

    __device__ __forceinline__ const OneTokenCut& cut() const { return units.call.cut; }
    __device__ __forceinline__ uint32_t tables_of(int32_t unit) const {
        const int32_t slot = Raw::book == Book::of_expert ? units.slot(unit) : 0;
        return base + cut().shared.codebooks + slot * table_bytes(Raw::type, Raw::book);
    }
    __device__ __forceinline__ int32_t blocks_of(int32_t unit) const {
        return units.grains(units.chunk(unit)) * Raw::grain;
    }
    // Where the unit's h lies, in blocks.
    __device__ __forceinline__ int32_t x_block(int32_t unit) const {
        return (unit - pass) * cut().chunk_grains * Raw::grain;
    }
    __device__ __forceinline__ float* unit_scale(int32_t unit) const {
        return reinterpret_cast<float*>(shared + cut().shared.unit_scales) + unit - pass;
    }
    __device__ __forceinline__ UnitOfH<Raw> h_of(int32_t unit) const {
        const OneTokenDown& call = units.call;
        const std::byte* h = row_of_token(call.h, call.slots.n_slots * call.matrix.k);
        const int32_t n = unit < pass_end ? 8 * blocks_of(unit) - lane : 0;
        return {h + 128 * units.h_block(unit) + 16 * lane,
                base + cut().shared.x + 128 * x_block(unit) + 16 * lane, n, unit};
    }
    __device__ __forceinline__ void bring(const UnitOfH<Raw>& h) const {
        if (h.unit < pass_end) h.bring(unit_scale(h.unit));
    }
    // The h of this warp's units of the pass, from `unit` on.
    __device__ __forceinline__ void bring_from(int32_t unit) const {
        for (; unit < pass_end; unit += cut().n_warps) bring(h_of(unit));
        wait_all_copies();
        __syncwarp();
    }
    __device__ __forceinline__ void next_pass() {
        pass = pass_end;
        pass_end = min(pass + cut().pass_units, share.end_unit);
    }
    // early_sum: of the first `done` blocks of the unit that is next.
    __device__ __forceinline__ void add_pass(float (&early_sum)[2], int32_t& done) {
        float* const sums = reinterpret_cast<float*>(shared + cut().shared.sums);
        for (int32_t tile = share.first_tile; tile < share.end_tile; ++tile) {
            float total[2] = {};
            for (int32_t unit = pass + warp; unit < pass_end; unit += cut().n_warps) {
                float sum[2] = {early_sum[0], early_sum[1]};
                add_chunk<Raw>(ring.wait(), done, blocks_of(unit), x_block(unit), places, lane,
                               tables_of(unit), sum);
                done = 0;
                early_sum[0] = early_sum[1] = 0.0f;
                refill();
                add_scaled(unit, sum, total);
            }
            float* to = sums + 16 * ((tile - share.first_tile) * cut().n_warps + warp) +
                        (lane >> 2) + 8 * (lane & 1);
            const float row = add_quad(total, lane);
            if ((lane & 3) < 2) *to = pass == share.first_unit ? row : *to + row;
        }
    }

  private:
    __device__ __forceinline__ void refill() {
        __syncwarp();
        if (copies.is_valid()) {
            ring.refill(units.item(copies.tile, copies.unit));
            copies.advance();
        }
        ring.next();
    }
    __device__ __forceinline__ void add_scaled(int32_t unit, const float (&sum)[2],
                                               float (&total)[2]) const {
        const float* factor =
            reinterpret_cast<const float*>(shared + cut().shared.factors) + 2 * units.slot(unit);
        const float scale = Raw::Operand::rebased ? *unit_scale(unit) : 1.0f;
        total[0] = fmaf(sum[0] * scale, factor[0], total[0]);
        total[1] = fmaf(sum[1] * scale, factor[1], total[1]);
    }
};

template <class Raw, class Ring>
__global__ void __maxnreg__(one_token_down_registers)
    one_token_down(const __grid_constant__ OneTokenDown call) {
    extern __shared__ __align__(128) unsigned char shared[];
    const OneTokenCut& cut = call.cut;
    const uint32_t base = shared_address(shared);
    const int32_t warp = static_cast<int32_t>(threadIdx.x) >> 5;
    const int32_t lane = static_cast<int32_t>(threadIdx.x) & 31;
    const int32_t stage_bytes = cut.chunk_grains * Raw::grain_bytes;
    int32_t* table =
        reinterpret_cast<int32_t*>(shared + cut.shared.slots) + most_one_token_slots * warp;
    Ring ring(base + cut.shared.barriers + 8 * cut.n_stages * warp,
              base + cut.shared.ring + cut.n_stages * stage_bytes * warp, cut.n_stages,
              stage_bytes);
    if (cut.cluster > 1) cluster_arrive();
    fetch_parameter(call);

    const SlotIds ids = IdPlaces(call.slots, lane).load();
    const typename TablesOf<Raw>::One one_table(call.matrix, lane);
    DownShare share(call);
    const int32_t n_slots =
        list_slots(call.slots, find_experts(call.slots, ids, lane), lane, table);
    const SlotTerms terms(call, table, n_slots);
    share.divide_units(call, n_slots);
    const DownUnits<Raw> units{call, table, call.matrix.k / (64 * Raw::grain)};
    UnitWalk copies(share, cut, warp);
    begin_copies(units, ring, copies);
    one_table.store(base + cut.shared.codebooks);
    let_next_kernel_start();
    store_terms<Raw>(call, share, terms, table, n_slots, shared);
    __syncthreads();

    DownWarp<Raw, Ring> worker{units,
                               share,
                               ring,
                               copies,
                               shared,
                               base,
                               warp,
                               lane,
                               OperandPlaces::of<typename Raw::Operand>(
                                   base + cut.shared.x, base + cut.shared.zeros, lane),
                               share.first_unit,
                               min(share.first_unit + cut.pass_units, share.end_unit)};
    const int32_t own_unit = share.first_unit + warp;
    EarlyBlocks<Raw> early;
    if (own_unit < worker.pass_end)
        early.decode(ring.wait(), worker.blocks_of(own_unit), lane, worker.tables_of(own_unit));
    UnitOfH<Raw> first_h = worker.h_of(own_unit);
    UnitOfH<Raw> second_h = worker.h_of(own_unit + cut.n_warps);
    first_h.compute();
    if constexpr (!Raw::Operand::rebased) second_h.compute();  // registers are short there
    wait_for_previous_kernel();

    worker.bring(first_h);
    worker.bring(second_h);
    worker.bring_from(own_unit + 2 * cut.n_warps);
    float early_sum[2] = {};
    early.multiply(worker.x_block(own_unit), worker.places, lane, early_sum);
    int32_t done = early.n_blocks();
    for (;;) {
        worker.add_pass(early_sum, done);
        if (worker.pass_end >= share.end_unit) break;
        worker.next_pass();
        __syncwarp();
        worker.bring_from(worker.pass + warp);
    }
    finish_outputs(call, shared, share);
}

}  // namespace moe::cuda
