// First kernel of one token, a row of the grid for each: h[v][feature] = act(gate, up) times the
// power of two that down takes (OneTokenKernels), for the slots v that have an expert here.
//
// Work: a slab is one packed tile of one slot's expert; slabs are spread evenly over the blocks of
// the token, one per SM of its share. Inside a block every warp owns the same part of k of every
// slab.
// 1. every lane finds what it copies first, as if every slot had an expert here
// 2. wait for the kernel before; ask for ids, then x; every lane asks for one stage of the warp's
// ring; the slots with an expert are listed
// 3. ask for scales, weights and biases of rows; the warp's part of x to operands; block barrier
// 4. every warp: wait for a chunk, multiply, refill the stage; a slab's sums to shared memory
// 5. block barrier; a thread per row of a slab adds the warps' sums, scales, biases, activates
// Steps 4 and 5 alternate for groups of as many slabs as that, with two sets of sums. The next
// kernel may start right after the wait where that was the faster (Raw::is_quick), otherwise after
// the first slab.
#pragma once

#include <cuda_bf16.h>

#include "libmoe/cuda/device/cp_async.cuh"
#include "libmoe/cuda/device/dependent_launch.cuh"
#include "libmoe/cuda/device/parameters.cuh"
#include "libmoe/cuda/device/stream_ring.cuh"
#include "libmoe/cuda/experts/one_token_parts.cuh"
#include "libmoe/layer/activation.hpp"

namespace moe::cuda {

// Slabs [first, last) of a block: as many for each, one more for the first.
struct SlabRange {
    int32_t first, last;

    __device__ __forceinline__ SlabRange(int32_t n_slabs, const OneTokenCut& cut) {
        const int32_t block = static_cast<int32_t>(blockIdx.x);
        const int32_t each = divide(n_slabs, cut.block_reciprocal);
        const int32_t rest = n_slabs - each * cut.n_blocks;
        first = block * each + min(block, rest);
        last = first + each + (block < rest ? 1 : 0);
    }
};

// The k of a warp, in elements.
struct PartOfK {
    int32_t first, n;
};

template <class Raw>
__device__ __forceinline__ PartOfK part_of_warp(const OneTokenGateUp& call, int32_t warp) {
    constexpr int32_t each = 64 * Raw::grain;
    const int32_t grains = call.matrix.k / each;
    const int32_t first = divide(warp * grains, call.cut.warp_reciprocal);
    return {each * first, each * (divide((warp + 1) * grains, call.cut.warp_reciprocal) - first)};
}

// The warp's part of x in shared memory: first as it is, then in the same place as operands.
template <class Raw>
struct PartOfX {
    uint32_t at;
    int32_t n_pieces;

    __device__ __forceinline__ PartOfX(const OneTokenGateUp& call, uint32_t x, const PartOfK& part,
                                       int32_t lane)
        : at(x + 2 * part.first), n_pieces(part.n / 8) {
        const std::byte* from = row_of_token(call.x, call.x_stride) + 2 * part.first;
#pragma unroll 1
        for (int32_t i = lane; i < n_pieces; i += 32) copy_async_16(at + 16 * i, from + 16 * i);
        commit_copies();
    }
    // Returns the power of two that the sums lack. A barrier must follow.
    __device__ __forceinline__ float make_operands(moe_type type, int32_t lane) const {
        using Operand = typename Raw::Operand;
        wait_copies<0>();
        int32_t exponent = Raw::x_exponent;
        if constexpr (Operand::rebased) {
            float largest = 0.0f;
#pragma unroll 1
            for (int32_t i = lane; i < n_pieces; i += 32)
                largest = fmaxf(largest, largest_of_piece(load_shared_16(at + 16 * i), type));
            exponent = rebase_exponent(warp_largest(largest));
        }
#pragma unroll 1
        for (int32_t i = lane; i < n_pieces; i += 32)
            store_piece<Operand>(at, i, load_shared_16(at + 16 * i), type, power_of_two(exponent));
        return Operand::rebased ? power_of_two(-exponent) : 1.0f;
    }
};

// A chunk to copy.
struct SlabCursor {
    const std::byte* from;  // as if of expert 0 until it is resolved
    int32_t chunk, tile, slot;
};

// The chunks of a warp, slab after slab: its part of k is the same grains of every tile.
template <class Raw>
struct SlabChunks {
    const OneTokenGateUp& call;
    const int32_t* table;
    int32_t first_grain;
    int32_t n_grains;

    __device__ __forceinline__ SlabChunks(const OneTokenGateUp& of, const int32_t* slots,
                                          const PartOfK& part)
        : call(of),
          table(slots),
          first_grain(part.first / (64 * Raw::grain)),
          n_grains(part.n / (64 * Raw::grain)) {}
    __device__ __forceinline__ int32_t tile_grains() const {
        return call.matrix.k / (64 * Raw::grain);
    }
    // None for the last chunk of some warps.
    __device__ __forceinline__ int32_t grains(int32_t chunk) const {
        return max(0, min(call.cut.chunk_grains, n_grains - chunk * call.cut.chunk_grains));
    }
    __device__ __forceinline__ const std::byte* place(const SlabCursor& at) const {
        return call.matrix.data + (static_cast<int64_t>(at.tile) * tile_grains() + first_grain +
                                   at.chunk * call.cut.chunk_grains) *
                                      Raw::grain_bytes;
    }
    // Of the warp's item in a block that begins with first_slab.
    __device__ __forceinline__ SlabCursor cursor(int32_t first_slab, int32_t item) const {
        const int32_t slab_of_block = divide(item, call.cut.chunk_reciprocal);
        const int32_t slab = first_slab + slab_of_block;
        SlabCursor at;
        at.chunk = item - slab_of_block * call.cut.n_chunks;
        at.slot = divide(slab, call.cut.tile_reciprocal);
        at.tile = slab - at.slot * call.matrix.n_tiles;
        at.from = place(at);
        return at;
    }
    __device__ __forceinline__ void resolve(SlabCursor& at, int32_t expert) const {
        at.from += expert * call.matrix.expert_stride;
    }
    __device__ __forceinline__ int32_t listed_expert(const SlabCursor& at) const {
        return slot_expert(table[at.slot]);
    }
    // To the next chunk, which must exist.
    __device__ __forceinline__ void advance(SlabCursor& at) const {
        const int32_t chunk_bytes = call.cut.chunk_grains * Raw::grain_bytes;
        at.from += chunk_bytes;
        if (++at.chunk < call.cut.n_chunks) return;
        at.chunk = 0;
        at.from += tile_grains() * Raw::grain_bytes - call.cut.n_chunks * chunk_bytes;
        if (++at.tile < call.matrix.n_tiles) return;
        at.tile = 0;
        ++at.slot;
        at.from = place(at);
        resolve(at, listed_expert(at));
    }
    __device__ __forceinline__ void fill(const StreamRing& ring, int32_t stage,
                                         const SlabCursor& at) const {
        ring.fill(stage, at.from, static_cast<uint32_t>(grains(at.chunk) * Raw::grain_bytes));
    }
};

// Where in h, counted in slots, the slot of this token lies.
__device__ __forceinline__ int32_t h_slot(const OneTokenGateUp& call, int32_t slot) {
    return static_cast<int32_t>(blockIdx.y) * call.slots.n_slots + slot;
}

// What becomes of the sum of one row of a slab: scale, weight and bias of shared memory, which are
// asked for long before they are needed. Loads to registers would make others wait for them.
struct RowFinish {
    float* terms;  // three of this thread alone
    int32_t at;    // of h
};

__device__ __forceinline__ void ask_for(float* to, const float* from, int64_t i, float absent) {
    if (from)
        copy_async_4(to, from + i);
    else
        *to = absent;
}

__device__ __forceinline__ void ask_for_finish(const OneTokenGateUp& call, const int32_t* table,
                                               int32_t slab, int32_t row, RowFinish& finish) {
    const int32_t slot = divide(slab, call.cut.tile_reciprocal);
    const int32_t tile = slab - slot * call.matrix.n_tiles;
    const int32_t entry = table[slot];
    const int64_t expert = slot_expert(entry);
    const bool gated = call.activation.gated;
    const int32_t feature = gated ? 8 * tile + (row & 7) : 16 * tile + row;
    const float* weights = call.weight_on_input ? weights_of_token(call.slots) : nullptr;
    const float* bias = gated && row < 8 ? call.gate_bias : call.up_bias;
    ask_for(finish.terms, call.matrix.global_scale, 2 * expert + (row >> 3), 1.0f);
    ask_for(finish.terms + 1, weights, slot_index(entry), 1.0f);
    ask_for(finish.terms + 2, bias, expert * call.intermediate + feature, 0.0f);
    finish.at = h_slot(call, slot) * call.intermediate + feature;
}

// activate() with the quick exponential and division where it is SiLU: what is rounded to bfloat16
// next does not tell them apart.
__device__ __forceinline__ float activate_quickly(const Activation& activation, float gate,
                                                  float up) {
    if (activation.kind != MOE_ACTIVATION_SILU) return activate(activation, gate, up);
    const float g = at_most(activation.gated ? gate : up, activation.gate_limit);
    const float factor = __fdividef(1.0f, 1.0f + __expf(-activation.alpha * g));
    const float acted = at_most(damped(g, factor), activation.post_limit);
    return activation.gated ? acted * activate_up(activation, up) : acted;
}

// When all warps are done: adds their sums of a row in order; 16 lanes hold the rows of a slab.
// Whatever needs no sums comes before the barrier.
__device__ __forceinline__ void finish_row(const OneTokenGateUp& call, const float* sums,
                                           const RowFinish& finish, float leftover, int32_t row,
                                           bool is_slab) {
    wait_all_copies();
    const bool gated = call.activation.gated;
    const bool stores = is_slab && !(gated && row >= 8);
    const float factor = leftover * finish.terms[0] * finish.terms[1];
    const float bias = finish.terms[2];
    __nv_bfloat16* const to = static_cast<__nv_bfloat16*>(call.h) + finish.at;
    __syncthreads();
    const float value = fmaf(add_warps(sums + row, call.cut.n_warps), factor, bias);
    const float other = __shfl_xor_sync(~0u, value, 8);
    const float acted = activate_quickly(call.activation, value, gated ? other : value);
    if (stores) *to = __float2bfloat16(acted * call.h_factor);
}

template <class Raw>
__global__ void __maxnreg__(one_token_gate_up_registers)
    one_token_gate_up(const __grid_constant__ OneTokenGateUp call) {
    extern __shared__ __align__(128) unsigned char shared[];
    const OneTokenCut& cut = call.cut;
    const uint32_t base = shared_address(shared);
    const int32_t thread = static_cast<int32_t>(threadIdx.x);
    const int32_t warp = thread >> 5;
    const int32_t lane = thread & 31;
    const int32_t stage_bytes = cut.chunk_grains * Raw::grain_bytes;
    int32_t* table =
        reinterpret_cast<int32_t*>(shared + cut.shared.slots) + most_one_token_slots * warp;
    StreamRing ring(base + cut.shared.barriers + 8 * cut.n_stages * warp,
                    base + cut.shared.ring + cut.n_stages * stage_bytes * warp, cut.n_stages,
                    stage_bytes);

    fetch_parameter(call);
    const PartOfK part = part_of_warp<Raw>(call, warp);
    const SlabChunks<Raw> chunks(call, table, part);
    const int32_t row = thread & 15;
    RowFinish finish{reinterpret_cast<float*>(shared + cut.shared.terms) + 3 * thread, 0};
    const OperandPlaces places(base + cut.shared.x, base + cut.shared.zeros, lane);
    // If every slot has an expert here, it is known up to the expert before ids are.
    SlabRange range(call.slots.n_slots * call.matrix.n_tiles, cut);
    int32_t n_items = (range.last - range.first) * cut.n_chunks;
    SlabCursor own = chunks.cursor(range.first, lane);
    bool copies = lane < min(cut.n_stages, n_items);
    const bool loads = copies && !is_shared_slot(call.slots, own.slot);
    const int32_t* ids_of_token = call.slots.ids + token_index() * call.slots.ids_stride;
    if (thread < 8) store_shared(base + cut.shared.zeros + 16 * thread, uint4{0, 0, 0, 0});

    wait_for_previous_kernel();
    if constexpr (Raw::is_quick) let_next_kernel_start();
    const int32_t own_id = loads ? load_global(ids_of_token + own.slot) : -1;
    const SlotIds ids = load_ids(call.slots, lane);
    const PartOfX<Raw> x(call, base + cut.shared.x, part, lane);
    const SlotExperts experts = find_experts(call.slots, ids, lane);
    const bool complete = all_present(call.slots, experts, lane);
    chunks.resolve(own, expert_of_slot(call.slots, own.slot, own_id));
    const bool fills_at_once = complete && !Raw::has_codebook;  // codebooks are asked for first
    if (fills_at_once && copies) chunks.fill(ring, lane, own);
    const int32_t n_slots = list_slots(call.slots, experts, lane, table);
    if (!complete) {
        range = SlabRange(n_slots * call.matrix.n_tiles, cut);
        n_items = (range.last - range.first) * cut.n_chunks;
        copies = lane < min(cut.n_stages, n_items);
        own = chunks.cursor(range.first, lane);
        if (copies) chunks.resolve(own, chunks.listed_expert(own));
    }
    const auto [first, last] = range;
    const int32_t first_slot = divide(first, cut.tile_reciprocal);
    const int32_t end_slot = first < last ? divide(last - 1, cut.tile_reciprocal) + 1 : first_slot;
    const Codebooks<Raw> codebooks(call.matrix, table, first_slot, end_slot);
    if (!fills_at_once && copies) chunks.fill(ring, lane, own);
    if (first + (thread >> 4) < last)
        ask_for_finish(call, table, first + (thread >> 4), row, finish);
    codebooks.store(shared + cut.shared.codebooks);
    int32_t item = cut.n_stages;
    SlabCursor next{};
    if (item < n_items) {
        next = chunks.cursor(first, item);
        chunks.resolve(next, chunks.listed_expert(next));
    }
    if (blockIdx.x == 0 && warp == 0) report_bad_ids(call.slots, ids);
    const float rescale = x.make_operands(call.x_type, lane);
    __syncthreads();

    const int32_t group_slabs = static_cast<int32_t>(blockDim.x) / 16;
    const int32_t first_block = chunks.first_grain * Raw::grain;
    float* sums = reinterpret_cast<float*>(shared + cut.shared.sums);
    float* other_sums = sums + 16 * group_slabs * cut.n_warps;
    const auto codebook_of = [&](int32_t slab) {
        return base + cut.shared.codebooks +
               (Raw::has_codebook ? divide(slab, cut.tile_reciprocal) - first_slot : 0) *
                   codebook_bytes(Raw::type);
    };
    for (int32_t group = first; group < last; group += group_slabs) {
        const int32_t group_end = min(group + group_slabs, last);
        float* to = sums + 16 * warp + (lane >> 2) + 8 * (lane & 1);
        const auto store_sums = [&](const float(&sum)[2]) {
            const float total = add_quad(sum, lane) * rescale;
            if ((lane & 3) < 2) *to = total;
            to += 16 * cut.n_warps;
        };
        if (cut.is_resident) {
            for (int32_t slab = group; slab < group_end; ++slab) {
                float sum[2] = {};
                add_chunk<Raw>(ring.wait_once(), 0, chunks.n_grains * Raw::grain, first_block,
                               places, lane, codebook_of(slab), sum);
                if (!Raw::is_quick && slab == first) let_next_kernel_start();
                store_sums(sum);
            }
        } else {
#pragma unroll 1
            for (int32_t slab = group; slab < group_end; ++slab) {
                float sum[2] = {};
                for (int32_t chunk = 0; chunk < cut.n_chunks; ++chunk) {
                    add_chunk<Raw>(ring.wait(), 0, chunks.grains(chunk) * Raw::grain,
                                   first_block + chunk * cut.chunk_grains * Raw::grain, places,
                                   lane, codebook_of(slab), sum);
                    __syncwarp();
                    if (item < n_items) {
                        if (lane == 0) chunks.fill(ring, ring.stage(), next);
                        if (++item < n_items) chunks.advance(next);
                    }
                    ring.next();
                }
                if (!Raw::is_quick && slab == first) let_next_kernel_start();
                store_sums(sum);
            }
        }
        const int32_t own_slab = group + (thread >> 4);
        finish_row(call, sums + 16 * cut.n_warps * min(thread >> 4, last - 1 - group), finish,
                   Raw::leftover, row, own_slab < last);
        if (own_slab + group_slabs < last)
            ask_for_finish(call, table, own_slab + group_slabs, row, finish);
        float* const used = sums;
        sums = other_sums;
        other_sums = used;
    }
}

}  // namespace moe::cuda
