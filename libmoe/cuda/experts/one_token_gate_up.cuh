// First kernel of one token, a row of the grid for each: h[v][feature] = act(gate, up) times the
// power of two that down takes (OneTokenKernels), for the slots v that have an expert here.
//
// Work: a slab is one packed tile of one slot's expert; slabs are spread evenly over the blocks of
// the token, one per SM of its share, and over the teams of a block. Inside a team every warp owns
// the same part of k of every slab. One team has the shortest way to the first sum. Several take
// longer parts of k, so that what a slab costs besides its products is paid less often; they are
// for calls of many bytes (one_token_cut.cpp), a kernel of their own with more registers.
// 1. of one token: the shared expert's weights are asked for, as far as the L2 (one_token.cu);
// the table of the one codebook is made, if all experts have the same; neither needs ids. Every
// lane finds what it copies first, as if every slot had an expert here
// 2. wait for the kernel before; ask for ids, then x; the warp's ring begins, every lane knowing
// the first item of one stage; the slots with an expert are listed where there are others or the
// list is needed. Where experts have codebooks of their own, these are asked for before the ring
// begins, and by the list
// 3. ask for scales, weights and biases of rows; codebooks to shared memory; the warp's part of x
// to operands; block barrier
// 4. every warp: wait for a chunk, multiply, refill the stage; a slab's sums to shared memory
// 5. barrier of the team; a thread per row of a slab adds the warps' sums, scales, biases,
// activates
//
// Steps 4 and 5 alternate for groups of as many slabs as that, with two sets of sums. The next
// kernel may start right after the wait where that was the faster (Raw::is_quick), otherwise after
// the first slab. An instruction less between the wait and the first product is worth as much as
// one less in the loop: whatever can be known before the wait is computed there.
#pragma once

#include <cuda_bf16.h>

#include "libmoe/cuda/device/cp_async.cuh"
#include "libmoe/cuda/device/dependent_launch.cuh"
#include "libmoe/cuda/device/fast_activation.cuh"
#include "libmoe/cuda/device/parameters.cuh"
#include "libmoe/cuda/device/stream_ring.cuh"
#include "libmoe/cuda/experts/one_token_parts.cuh"
#include "libmoe/layer/activation.hpp"

namespace moe::cuda {

// The k of a warp, in elements.
struct PartOfK {
    int32_t first, n;
};

// Part `index` of as many as the reciprocal tells.
template <class Raw>
__device__ __forceinline__ PartOfK part_of_k(const OneTokenGateUp& call, int32_t index,
                                             uint32_t reciprocal) {
    constexpr int32_t each = 64 * Raw::grain;
    const int32_t grains = call.matrix.k / each;
    const int32_t first = divide(index * grains, reciprocal);
    return {each * first, each * (divide((index + 1) * grains, reciprocal) - first)};
}

// The warps that share slabs, each with its part of k: all of a block, ...
struct WholeBlock {
    static constexpr bool are_several = false;
    static constexpr int registers = one_token_gate_up_registers;
    static constexpr int32_t index = 0;
    int32_t member;  // this warp
    int32_t thread;  // of the team
    int32_t n_threads;

    __device__ __forceinline__ WholeBlock(const OneTokenCut&, int32_t warp)
        : member(warp), thread(threadIdx.x), n_threads(blockDim.x) {}
    __device__ __forceinline__ void meet() const { __syncthreads(); }
};

// ... or some of them. Teams know nothing of each other once x is there.
struct WarpTeam {
    static constexpr bool are_several = true;
    static constexpr int registers = one_token_teams_registers;
    int32_t index;
    int32_t member;
    int32_t thread;
    int32_t n_threads;

    __device__ __forceinline__ WarpTeam(const OneTokenCut& cut, int32_t warp)
        : index(divide(warp, cut.team_reciprocal)),
          member(warp - index * cut.team_warps),
          thread(static_cast<int32_t>(threadIdx.x) - 32 * index * cut.team_warps),
          n_threads(32 * cut.team_warps) {}
    __device__ __forceinline__ void meet() const {
        asm volatile("bar.sync %0, %1;" ::"r"(index + 1), "r"(n_threads) : "memory");
    }
};

// Several teams: the part of k of a member is made by n_teams warps, whatever their teams, and has
// one exponent.
struct LargestOfX {
    float* of_warp;  // in shared memory
    int32_t n_teams;

    // Of all parts together with this warp's. Meets the block.
    __device__ __forceinline__ float whole_part(float largest, int32_t lane) const {
        const auto warp = static_cast<int32_t>(threadIdx.x >> 5);
        if (lane == 0) of_warp[warp] = largest;
        __syncthreads();
        return of_member(warp / n_teams);
    }
    __device__ __forceinline__ float of_member(int32_t member) const {
        float largest = 0.0f;
#pragma unroll 1
        for (int32_t i = 0; i < n_teams; ++i)
            largest = larger(largest, of_warp[member * n_teams + i]);
        return largest;
    }
};

// A warp's part of x in shared memory: first as it is, then in the same place as operands.
template <class Raw>
struct PartOfX {
    uint32_t at;
    int32_t n_pieces;
    const std::byte* from;  // of this lane's first piece

    __device__ __forceinline__ PartOfX(const OneTokenGateUp& call, uint32_t x, const PartOfK& part,
                                       int32_t lane)
        : at(x + 2 * part.first),
          n_pieces(part.n / 8),
          from(row_of_token(call.x, call.x_stride) + 2 * part.first + 16 * lane) {
        compute_now(from);
    }
    __device__ __forceinline__ void copy(int32_t lane) const {
        copy_pieces(at + 16 * lane, from, n_pieces - lane);
        commit_copies();
    }
    // Returns the power of two that the sums lack. A barrier must follow.
    template <class Team>
    __device__ __forceinline__ float make_operands(moe_type type, int32_t lane, const Team& team,
                                                   const LargestOfX& largest_of) const {
        using Operand = typename Raw::Operand;
        wait_copies<0>();
        float factor = power_of_two(Raw::x_exponent);
        float largest = 0.0f;
        if (!Operand::rebased && type == MOE_TYPE_BF16) {
            constexpr uint32_t half = (Raw::x_exponent + 127) << 7;
#pragma unroll 1
            for (int32_t i = lane; i < n_pieces && Raw::x_exponent != 0; i += 32)
                store_scaled_piece(at + 16 * i, load_shared_16(at + 16 * i), half << 16 | half);
            return 1.0f;
        }
        if constexpr (Operand::rebased) {
#pragma unroll 1
            for (int32_t i = lane; i < n_pieces; i += 32)
                largest = larger(largest, largest_of_piece(load_shared_16(at + 16 * i), type));
            largest = warp_largest(largest);
            if constexpr (Team::are_several) largest = largest_of.whole_part(largest, lane);
            factor = power_of_two(rebase_exponent<Operand>(largest));
        }
        if constexpr (Operand::are_bytes) {
#pragma unroll 1
            for (int32_t i = lane; i - lane < n_pieces; i += 32) {
                const bool is_piece = i < n_pieces;
                const uint4 bits = is_piece ? load_shared_16(at + 16 * i) : uint4{};
                __syncwarp();  // see store_piece
                if (is_piece) store_piece<Operand>(at, i, bits, type, factor);
            }
        } else {
#pragma unroll 1
            for (int32_t i = lane; i < n_pieces; i += 32)
                store_piece<Operand>(at, i, load_shared_16(at + 16 * i), type, factor);
        }
        if constexpr (Operand::rebased) {
            if constexpr (Team::are_several) largest = largest_of.of_member(team.member);
            return rebase_back<Operand>(largest);
        }
        return 1.0f;
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
    // Of the warp's item in a team that begins with first_slab.
    __device__ __forceinline__ SlabCursor cursor(int32_t first_slab, int32_t item) const {
        const int32_t slab_of_team = divide(item, call.cut.chunk_reciprocal);
        const int32_t slab = first_slab + slab_of_team;
        SlabCursor at;
        at.chunk = item - slab_of_team * call.cut.n_chunks;
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
    __device__ __forceinline__ int32_t bytes(const SlabCursor& at) const {
        return grains(at.chunk) * Raw::grain_bytes;
    }
};

// The slabs of a team of this block.
template <class Team>
__device__ __forceinline__ EvenShare share_of_team(const OneTokenGateUp& call, int32_t n_slots,
                                                   int32_t team) {
    const int32_t n = Team::are_several ? call.cut.n_teams : 1;
    return {n_slots * call.matrix.n_tiles, static_cast<int32_t>(blockIdx.x) * n + team,
            call.cut.n_blocks * n, call.cut.block_reciprocal};
}

// The slabs of a team, n_slots slots having an expert here, and what a lane copies first.
template <class Raw, class Team>
struct SlabWork {
    EvenShare range;
    int32_t n_items;
    SlabCursor own;
    int32_t own_bytes;  // -1: nothing to copy

    // team: of the block.
    __device__ __forceinline__ SlabWork(const SlabChunks<Raw>& chunks, int32_t team,
                                        int32_t n_slots, int32_t lane)
        : range(share_of_team<Team>(chunks.call, n_slots, team)),
          n_items((range.last - range.first) * chunks.call.cut.n_chunks),
          own(chunks.cursor(range.first, lane)),
          own_bytes(lane < min(chunks.call.cut.n_stages, n_items) ? chunks.bytes(own) : -1) {
        compute_now(own.from);
        compute_now(own.slot);
        compute_now(own_bytes);
    }
    __device__ __forceinline__ bool copies() const { return own_bytes >= 0; }
    __device__ __forceinline__ StreamItem first_item() const { return {own.from, own_bytes}; }
};

// The slots whose slabs a block has, n_slots of them having an expert here.
struct SlotsOfBlock {
    int32_t first, end;

    template <class Team>
    static __device__ __forceinline__ SlotsOfBlock of(const OneTokenGateUp& call, int32_t n_slots) {
        const int32_t last_team = Team::are_several ? call.cut.n_teams - 1 : 0;
        const int32_t begin = share_of_team<Team>(call, n_slots, 0).first;
        const int32_t end = share_of_team<Team>(call, n_slots, last_team).last;
        const int32_t first = divide(begin, call.cut.tile_reciprocal);
        return {first, begin < end ? divide(end - 1, call.cut.tile_reciprocal) + 1 : first};
    }
};

// What becomes of the sum of one row of a slab: scale, weight and bias of shared memory, which are
// asked for long before they are needed. Loads to registers would make others wait for them.
struct RowFinish {
    float* terms;  // three of this thread alone
    int32_t row;
    int32_t slot;  // in the list
    int32_t feature;
    const float* scales;  // of the row's half, if there are any

    __device__ __forceinline__ RowFinish(const OneTokenGateUp& call, float* own_terms,
                                         int32_t row_of_slab, int32_t slab)
        : terms(own_terms), row(row_of_slab), scales(call.matrix.global_scale) {
        terms[0] = 1.0f;
        terms[1] = 1.0f;
        terms[2] = 0.0f;
        if (scales) scales += row >> 3;
        compute_now(scales);
        go_to(call, slab);
    }
    __device__ __forceinline__ void go_to(const OneTokenGateUp& call, int32_t slab) {
        slot = divide(slab, call.cut.tile_reciprocal);
        const int32_t tile = slab - slot * call.matrix.n_tiles;
        feature = call.activation.gated ? 8 * tile + (row & 7) : 16 * tile + row;
        compute_now(slot);
        compute_now(feature);
    }
    // entry: of the slot. Few instructions: the other warps wait for those that have rows.
    __device__ __forceinline__ void ask(const OneTokenGateUp& call, int32_t entry) const {
        if (scales) copy_async_4(terms, scales + 2 * slot_expert(entry));
        if (call.has_row_terms) ask_for_rest(call, entry);
    }
    __device__ __forceinline__ __nv_bfloat16* place(const OneTokenGateUp& call) const {
        const int32_t slot_of_call = static_cast<int32_t>(blockIdx.y) * call.slots.n_slots + slot;
        return static_cast<__nv_bfloat16*>(call.h) + slot_of_call * call.intermediate + feature;
    }

  private:
    __device__ __forceinline__ void ask_for_rest(const OneTokenGateUp& call, int32_t entry) const {
        const float* bias = call.activation.gated && row < 8 ? call.gate_bias : call.up_bias;
        const int64_t of_expert = int64_t{slot_expert(entry)} * call.intermediate;
        if (bias) copy_async_4(terms + 2, bias + of_expert + feature);
        if (call.weight_on_input)
            copy_async_4(terms + 1, weights_of_token(call.slots) + slot_index(entry));
    }
};

// When all warps of the team are done: adds their sums of a row in order; 16 lanes hold the rows of
// a slab. Whatever needs no sums comes before the barrier. SiLU in the short form of the grouped
// kernels, half a step of the bfloat16 that it becomes from the exact one.
template <class Team>
__device__ __forceinline__ void finish_row(const OneTokenGateUp& call, const float* sums,
                                           const Team& team, const RowFinish& finish,
                                           float leftover, bool is_slab) {
    wait_all_copies();
    const bool gated = call.activation.gated;
    const bool is_silu = call.activation.kind == MOE_ACTIVATION_SILU && gated;
    const bool stores = is_slab && !(gated && finish.row >= 8);
    FastActivation<ActivationClass::silu> silu(call.activation);
    float factor = leftover * finish.terms[0] * finish.terms[1];
    float h_factor = call.h_factor;
    const float bias = finish.terms[2];
    __nv_bfloat16* to = finish.place(call);
    team.meet();
    const float value = fmaf(add_warps(sums + finish.row, team.n_threads / 32), factor, bias);
    const float other = __shfl_xor_sync(~0u, value, 8);
    const float acted =
        is_silu ? silu(value, other) : activate(call.activation, value, gated ? other : value);
    if (stores) *to = __float2bfloat16(acted * h_factor);
}

// This block's part.
template <class Ring>
__device__ __forceinline__ void ask_ahead(const OneTokenAhead& ahead) {
    const int32_t n = ahead.bytes_of_block;
    if (n > 0) Ring::prefetch({ahead.from + int64_t{n} * blockIdx.x, n});
}

// A warp at its slabs: sums of its part of k, to shared memory.
template <class Raw, class Ring>
struct GateUpWarp {
    const OneTokenGateUp& call;
    const SlabChunks<Raw>& chunks;
    Ring& ring;
    OperandPlaces places;
    uint32_t tables;  // one, or of the block's slots from first_slot on
    int32_t first_slot;
    int32_t member;  // of its team
    int32_t first_slab;
    int32_t n_items;
    float rescale;    // of the sums
    int32_t item;     // that comes next into the ring, if there are so many
    SlabCursor next;  // where it is

    __device__ __forceinline__ void begin_refilling() {
        item = call.cut.n_stages;
        if (item >= n_items) return;
        next = chunks.cursor(first_slab, item);
        chunks.resolve(next, chunks.listed_expert(next));
    }
    __device__ __forceinline__ void add_slabs(int32_t begin, int32_t end, float* sums) {
        const auto lane = static_cast<int32_t>(threadIdx.x & 31);
        float* to = sums + 16 * member + (lane >> 2) + 8 * (lane & 1);
        const auto store = [&](int32_t slab, const float(&sum)[2]) {
            if (!Raw::is_quick && slab == first_slab) let_next_kernel_start();
            const float total = add_quad(sum, lane) * rescale;
            if ((lane & 3) < 2) *to = total;
            to += 16 * call.cut.team_warps;
        };
        if (call.cut.is_resident) {
            for (int32_t slab = begin; slab < end; ++slab) {
                float sum[2] = {};
                add_chunk<Raw>(ring.wait_once(), 0, chunks.n_grains * Raw::grain, first_block(),
                               places, lane, tables_of(slab), sum);
                store(slab, sum);
            }
        } else {
#pragma unroll 1
            for (int32_t slab = begin; slab < end; ++slab) {
                float sum[2] = {};
                add_refilling(slab, lane, sum);
                store(slab, sum);
            }
        }
    }

  private:
    __device__ __forceinline__ uint32_t tables_of(int32_t slab) const {
        if (Raw::book != Book::of_expert) return tables;
        const int32_t slot = divide(slab, call.cut.tile_reciprocal) - first_slot;
        return tables + slot * table_bytes(Raw::type, Book::of_expert);
    }
    __device__ __forceinline__ int32_t first_block() const {
        return chunks.first_grain * Raw::grain;
    }
    __device__ __forceinline__ void add_refilling(int32_t slab, int32_t lane, float (&sum)[2]) {
        for (int32_t chunk = 0; chunk < call.cut.n_chunks; ++chunk) {
            add_chunk<Raw>(ring.wait(), 0, chunks.grains(chunk) * Raw::grain,
                           first_block() + chunk * call.cut.chunk_grains * Raw::grain, places, lane,
                           tables_of(slab), sum);
            __syncwarp();
            if (item < n_items) {
                ring.refill({next.from, chunks.bytes(next)});
                if (++item < n_items) chunks.advance(next);
            }
            ring.next();
        }
    }
};

template <class Raw, class Ring, class Team>
__global__ void __maxnreg__(Team::registers)
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
    Ring ring(base + cut.shared.barriers + 8 * cut.n_stages * warp,
              base + cut.shared.ring + cut.n_stages * stage_bytes * warp, cut.n_stages,
              stage_bytes);

    fetch_parameter(call);
    if (thread < 2) ask_ahead<Ring>(call.ahead[thread]);
    const typename TablesOf<Raw>::One one_table(call.matrix, lane);
    const Team team(cut, warp);
    const SlabChunks<Raw> chunks(call, table,
                                 part_of_k<Raw>(call, team.member, cut.team_reciprocal));
    // If every slot has an expert here, all is known up to the expert before ids are.
    SlabWork<Raw, Team> work(chunks, team.index, call.slots.n_slots, lane);
    PartOfX<Raw> x(call, base + cut.shared.x, part_of_k<Raw>(call, warp, cut.warp_reciprocal),
                   lane);
    IdPlaces id_places(call.slots, lane);
    RowFinish finish(call, reinterpret_cast<float*>(shared + cut.shared.terms) + 3 * thread,
                     thread & 15, work.range.first + (team.thread >> 4));
    const DirectExpert own_slot(call.slots, work.own.slot);
    const DirectExpert finish_slot(call.slots, finish.slot);
    const int32_t group_slabs = team.n_threads / 16;
    const bool needs_list = !cut.is_resident || work.range.last - work.range.first > group_slabs;
    const OperandPlaces places = OperandPlaces::of<typename Raw::Operand>(
        base + cut.shared.x, base + cut.shared.zeros, lane);
    if (thread < 8) store_shared(base + cut.shared.zeros + 16 * thread, uint4{0, 0, 0, 0});
    one_table.store(base + cut.shared.codebooks);

    wait_for_previous_kernel();
    if constexpr (Raw::is_quick) let_next_kernel_start();
    const SlotIds ids = id_places.load();
    const int32_t own_expert = own_slot.load();
    const int32_t finish_expert = finish_slot.load();
    x.copy(lane);
    // Codebooks of slots are asked for before weights.
    const bool fills_at_once = Raw::book != Book::of_expert && all_direct(call.slots, ids, lane);
    if (fills_at_once) {
        chunks.resolve(work.own, own_expert);
        ring.begin(work.first_item());
    }
    int32_t entry = slot_entry(finish_expert, finish.slot);
    int32_t n_slots = call.slots.n_slots;
    // The list is for those who cannot do without: it takes its time.
    if (!fills_at_once || needs_list) {
        n_slots = list_slots(call.slots, find_experts(call.slots, ids, lane), lane, table);
        entry = table[min(finish.slot, most_one_token_slots - 1)];
    }
    if (!fills_at_once) {
        if (n_slots < call.slots.n_slots) {
            work = SlabWork<Raw, Team>(chunks, team.index, n_slots, lane);
            finish.go_to(call, work.range.first + (team.thread >> 4));
            entry = table[min(finish.slot, most_one_token_slots - 1)];
        }
        if (work.copies()) chunks.resolve(work.own, chunks.listed_expert(work.own));
    }
    const auto [first, last] = work.range;
    const auto slots = SlotsOfBlock::of<Team>(call, n_slots);
    const typename TablesOf<Raw>::Slots tables(call.matrix, table, slots.first, slots.end);
    if (!fills_at_once) ring.begin(work.first_item());
    if (first + (team.thread >> 4) < last) finish.ask(call, entry);
    tables.store(shared + cut.shared.codebooks);
    GateUpWarp<Raw, Ring> worker{
        call,        chunks,      ring,  places,       base + cut.shared.codebooks,
        slots.first, team.member, first, work.n_items, 1.0f,
        0,           {}};
    worker.begin_refilling();
    const LargestOfX largest_of{reinterpret_cast<float*>(shared + cut.shared.largest), cut.n_teams};
    worker.rescale = x.make_operands(call.x_type, lane, team, largest_of);
    __syncthreads();

    float* sums =
        reinterpret_cast<float*>(shared + cut.shared.sums + team.index * cut.sums_of_team);
    float* other_sums = sums + 16 * group_slabs * cut.team_warps;
    for (int32_t group = first; group < last; group += group_slabs) {
        worker.add_slabs(group, min(group + group_slabs, last), sums);
        const int32_t own_slab = group + (team.thread >> 4);
        finish_row(call, sums + 16 * cut.team_warps * min(team.thread >> 4, last - 1 - group), team,
                   finish, leftover_of<Raw>(call.matrix), own_slab < last);
        if (own_slab + group_slabs < last) {
            finish.go_to(call, own_slab + group_slabs);
            finish.ask(call, table[finish.slot]);
        }
        float* const used = sums;
        sums = other_sums;
        other_sums = used;
    }
    // By a block that has no more slabs than the others.
    if (static_cast<int32_t>(blockIdx.x) == cut.n_blocks - 1 && warp == 0)
        report_bad_ids(call.slots, id_places.load());
}

}  // namespace moe::cuda
