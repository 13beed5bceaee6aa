// First kernel of one token: h[v][feature] = act(gate, up) for the slots v that have an expert
// here.
//
// Work: a slab is one packed tile of one slot's expert; slabs are spread evenly over the blocks of
// the grid, one per SM. Inside a block every warp owns the same part of k of every slab.
// 1. wait for the kernel before; ask for ids, then x; list the slots with an expert
// 2. every lane asks for one stage of the warp's ring; let the next kernel start
// 3. x to shared memory as operands; block barrier
// 4. every warp: wait for a chunk, multiply, refill the stage; a slab's sums to shared memory
// 5. block barrier; a thread per row of a slab adds the warps' sums, scales, biases, activates
// Steps 4 and 5 alternate for groups of as many slabs as that, with two sets of sums.
#pragma once

#include <cuda_bf16.h>

#include "libmoe/cuda/device/dependent_launch.cuh"
#include "libmoe/cuda/device/stream_ring.cuh"
#include "libmoe/cuda/experts/one_token_parts.cuh"
#include "libmoe/layer/activation.hpp"

namespace moe::cuda {

// The chunks of a warp, slab after slab.
template <class Raw>
struct SlabChunks {
    const OneTokenGateUp& call;
    const int32_t* table;
    int32_t first_slab;
    int32_t first_grain;
    int32_t n_grains;  // of a slab
    int32_t chunk_grains;
    int32_t n_chunks;  // of a slab
    uint32_t chunk_reciprocal;

    __device__ __forceinline__ int32_t grains(int32_t chunk) const {
        return min(chunk_grains, n_grains - chunk * chunk_grains);
    }
    __device__ __forceinline__ void fill(const StreamRing& ring, int32_t stage,
                                         int32_t item) const {
        const PackedMatrix& matrix = call.matrix;
        const int32_t slab_of_block = divide(item, chunk_reciprocal);
        const int32_t chunk = item - slab_of_block * n_chunks;
        const int32_t slab = first_slab + slab_of_block;
        const int32_t slot = divide(slab, call.cut.tile_reciprocal);
        const int64_t tile = slab - slot * matrix.n_tiles;
        const std::byte* from = matrix.data + slot_expert(table[slot]) * matrix.expert_stride +
                                tile * (matrix.k / (64 * Raw::grain)) * Raw::grain_bytes +
                                (first_grain + chunk * chunk_grains) * Raw::grain_bytes;
        ring.fill(stage, from, static_cast<uint32_t>(grains(chunk) * Raw::grain_bytes));
    }
};

// What becomes of the sum of one row of a slab, asked for before it is needed.
struct RowFinish {
    float factor;
    float bias;
    int32_t at;  // of h
};

__device__ __forceinline__ RowFinish row_finish(const OneTokenGateUp& call, const int32_t* table,
                                                int32_t slab, int32_t row, float leftover) {
    const int32_t slot = divide(slab, call.cut.tile_reciprocal);
    const int32_t tile = slab - slot * call.matrix.n_tiles;
    const int32_t entry = table[slot];
    const int32_t expert = slot_expert(entry);
    const bool gated = call.activation.gated;
    const bool is_gate = gated && row < 8;
    const int32_t feature = gated ? 8 * tile + (row & 7) : 16 * tile + row;
    const float* bias = is_gate ? call.gate_bias : call.up_bias;
    RowFinish finish;
    finish.factor = leftover * global_scale(call.matrix, expert, row >> 3);
    if (call.weight_on_input) finish.factor *= load_global(call.slots.weights + slot_index(entry));
    finish.bias = bias ? bias[static_cast<int64_t>(expert) * call.intermediate + feature] : 0.0f;
    finish.at = slot * call.intermediate + feature;
    return finish;
}

// Adds the warps' sums of a row in order; 16 lanes hold the rows of a slab.
__device__ __forceinline__ void finish_row(const OneTokenGateUp& call, const float* sums,
                                           const RowFinish& finish, int32_t row, bool stores) {
    const float sum = stores ? add_warps(sums + row, call.cut.n_warps) : 0.0f;
    const float value = fmaf(sum, finish.factor, finish.bias);
    const float other = __shfl_xor_sync(~0u, value, 8);
    if (!stores || (call.activation.gated && row >= 8)) return;
    static_cast<__nv_bfloat16*>(call.h)[finish.at] =
        __float2bfloat16(activate(call.activation, value, call.activation.gated ? other : value));
}

template <class Raw>
__global__ void __launch_bounds__(640, 1)
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

    wait_for_previous_kernel();
    const SlotIds ids = load_ids(call.slots, lane);
    const VectorLoad<4> x(call.x, call.x_type, call.matrix.k);
    const int32_t n_slabs = list_slots(call.slots, ids, lane, table) * call.matrix.n_tiles;
    const int32_t block = static_cast<int32_t>(blockIdx.x);
    const int32_t first = static_cast<int32_t>(static_cast<int64_t>(block) * n_slabs / gridDim.x);
    const int32_t last =
        static_cast<int32_t>(static_cast<int64_t>(block + 1) * n_slabs / gridDim.x);

    const int32_t grains = call.matrix.k / (64 * Raw::grain);
    const int32_t first_grain = warp * grains / cut.n_warps;
    const int32_t n_grains = (warp + 1) * grains / cut.n_warps - first_grain;
    const int32_t n_chunks = (n_grains + cut.chunk_grains - 1) / cut.chunk_grains;
    const SlabChunks<Raw> chunks{call,     table,
                                 first,    first_grain,
                                 n_grains, cut.chunk_grains,
                                 n_chunks, reciprocal_of(n_chunks)};
    const int32_t n_items = (last - first) * n_chunks;
    if (lane < min(cut.n_stages, n_items)) chunks.fill(ring, lane, lane);
    let_next_kernel_start();
    if (block == 0 && warp == 0) report_bad_ids(call.slots, ids);

    const int32_t row = thread & 15;
    RowFinish finish{};
    if (first + (thread >> 4) < last)
        finish = row_finish(call, table, first + (thread >> 4), row, Raw::leftover);
    if (thread < 8) store_shared(base + cut.shared.zeros + 16 * thread, uint4{0, 0, 0, 0});
    const int32_t first_slot = divide(first, cut.tile_reciprocal);
    const int32_t end_slot = first < last ? divide(last - 1, cut.tile_reciprocal) + 1 : first_slot;
    store_codebooks<Raw>(call.matrix, table, first_slot, end_slot, shared + cut.shared.codebooks);
    const float rescale = store_operands<Raw>(x, base + cut.shared.x,
                                              reinterpret_cast<float*>(shared + cut.shared.maxima));
    __syncthreads();

    const OperandPlaces places(base + cut.shared.x, base + cut.shared.zeros, lane);
    const int32_t group_slabs = static_cast<int32_t>(blockDim.x) / 16;
    float* sums = reinterpret_cast<float*>(shared + cut.shared.sums);
    float* other_sums = sums + 16 * group_slabs * cut.n_warps;
    int32_t item = cut.n_stages;
    for (int32_t group = first; group < last; group += group_slabs) {
        const int32_t group_end = min(group + group_slabs, last);
        for (int32_t slab = group; slab < group_end; ++slab) {
            float sum[2] = {};
            uint32_t codebook = base + cut.shared.codebooks;
            if constexpr (Raw::has_codebook)
                codebook +=
                    (divide(slab, cut.tile_reciprocal) - first_slot) * codebook_bytes(Raw::type);
            for (int32_t chunk = 0; chunk < n_chunks; ++chunk, ++item) {
                const uint32_t at = ring.wait();
                add_chunk<Raw, 2>(at, chunks.grains(chunk) * Raw::grain,
                                  (first_grain + chunk * cut.chunk_grains) * Raw::grain, places,
                                  lane, codebook, sum);
                __syncwarp();
                if (item < n_items && lane == 0) chunks.fill(ring, ring.stage(), item);
                ring.next();
            }
            add_quad(sum);
            float* to = sums + 16 * ((slab - group) * cut.n_warps + warp) + (lane >> 2);
            if ((lane & 3) == 0) {
                to[0] = sum[0] * rescale;
                to[8] = sum[1] * rescale;
            }
        }
        __syncthreads();
        const int32_t slab = group + (thread >> 4);
        finish_row(call, sums + 16 * cut.n_warps * (thread >> 4), finish, row, slab < last);
        if (slab + group_slabs < last)
            finish = row_finish(call, table, slab + group_slabs, row, Raw::leftover);
        float* const used = sums;
        sums = other_sums;
        other_sums = used;
    }
}

}  // namespace moe::cuda
