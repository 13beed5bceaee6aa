// Top-k order of one warp: largest key first, then lowest index.
//
// Inputs: up to 32 n keys in registers or n keys [n] of float32 in shared memory, without NaN; lane
// l owns keys l, l + 32, ...
// Output: expert indices in order, the same value in every lane; -1 past the end.
//   1. WarpOrder and RegisterOrder walk the order one index at a time, by a warp reduction
//   2. bound_of_first bounds the k-th largest rank, find lists the keys at or above the bound
//   3. in_order sorts up to max_candidates listed keys at once, by counting
#pragma once

#include "libmoe/cuda/device/warp.cuh"

namespace moe::cuda {

constexpr float infinity = __builtin_huge_valf();

// A position in the order; index -1 is past the end.
struct Position {
    float key = infinity;
    int32_t index = -1;
};

MOE_HOST_DEVICE inline bool comes_after(float key, int32_t index, const Position& other) {
    return key < other.key || (key == other.key && index > other.index);
}

// Returns the first of keys[first], keys[first + step], ... that comes after `last`.
MOE_HOST_DEVICE inline Position next_of_lane(const float* keys, int32_t n, int32_t first,
                                             int32_t step, const Position& last) {
    Position best{-infinity, -1};
    for (int32_t i = first; i < n; i += step) {
        const float key = keys[i];
        if (comes_after(key, i, last) && (best.index < 0 || key > best.key)) best = {key, i};
    }
    return best;
}

// next() returns the indices one after the other, to every lane.
class WarpOrder {
  public:
    __device__ WarpOrder(const float* keys, int32_t n)
        : keys_(keys), n_(n), own_(next_of_lane(keys, n, lane_index(), 32, Position{})) {}

    __device__ int32_t next() {
        const uint32_t rank = own_.index < 0 ? 0 : rank_of(own_.key);
        const uint32_t top = __reduce_max_sync(every_lane, rank);
        const bool wins = rank == top && own_.index >= 0;
        const uint32_t first =
            __reduce_min_sync(every_lane, wins ? static_cast<uint32_t>(own_.index) : 0xFFFFFFFFu);
        const auto index = static_cast<int32_t>(first);
        if (index >= 0 && index == own_.index)
            own_ = next_of_lane(keys_, n_, lane_index(), 32, own_);
        return index;
    }

  private:
    const float* keys_;
    int32_t n_;
    Position own_;
};

// A key that can be among the first k, in shared memory of a warp.
struct alignas(8) Candidate {
    uint32_t rank;
    int32_t index;
};
constexpr int32_t max_candidates = 32;

// Returns to lane j the index of the j-th of n candidates. The whole warp calls it; it counts
// instead of walking.
__device__ inline int32_t in_order(Candidate* candidates, int32_t n) {
    constexpr int32_t at_once = 8;
    const Candidate own = candidates[lane_index()];
    int32_t before = 0;
#pragma unroll 1
    for (int32_t first = 0; first < n; first += at_once) {
#pragma unroll
        for (int32_t i = first; i < first + at_once; i++) {
            const Candidate other = candidates[i];
            const bool is_before =
                other.rank > own.rank || (other.rank == own.rank && other.index < own.index);
            before += i < n && is_before ? 1 : 0;
        }
    }
    __syncwarp();
    auto* indices = reinterpret_cast<int32_t*>(candidates);
    if (lane_index() < n) indices[before] = own.index;
    __syncwarp();
    return indices[lane_index()];
}

// Returns the k-th largest of 32 ranks in shared memory, aligned to 16 bytes, to every lane of a
// warp. Where each rank is the largest of a part of all keys, the first k keys have this rank or a
// larger one. The result is 0 where fewer than k ranks are not 0.
__device__ inline uint32_t bound_of_first(int32_t k, const uint32_t* largest_of_parts) {
    const uint32_t own = largest_of_parts[lane_index()];
    int32_t as_large = 0;
#pragma unroll
    for (int32_t i = 0; i < 32; i += 4) {
        const uint4 four = *reinterpret_cast<const uint4*>(largest_of_parts + i);
        for (const uint32_t other : {four.x, four.y, four.z, four.w})
            as_large += other >= own ? 1 : 0;
    }
    return __reduce_max_sync(every_lane, as_large >= k ? own : 0);
}

// The same order for up to 32 n keys in registers: key j of a lane has index lane + 32 j. A rank is
// 0 past the end and after its index was returned. Each lane keeps its largest rank and the first
// key that has it, so next() starts with the reduction.
template <int n>
class RegisterOrder {
  public:
    __device__ explicit RegisterOrder(const uint32_t (&ranks)[n]) {
#pragma unroll
        for (int32_t j = 0; j < n; j++) rank_[j] = ranks[j];
        find_own();
    }

    // Returns -1 past the end.
    __device__ int32_t next() {
        const uint32_t top = __reduce_max_sync(every_lane, own_);
        const bool wins = own_ == top && top != 0;
        const auto index = static_cast<int32_t>(__reduce_min_sync(
            every_lane, wins ? static_cast<uint32_t>(32 * first_ + lane_index()) : 0xFFFFFFFFu));
        if (wins && index == 32 * first_ + lane_index()) {
#pragma unroll
            for (int32_t j = 0; j < n; j++) rank_[j] = j == first_ ? 0 : rank_[j];
            find_own();
        }
        return index;
    }

    // k is at most 32 and at most the number of keys. memory has max_candidates entries, aligned to
    // 16 bytes.
    __device__ uint32_t bound_of_first(int32_t k, Candidate* memory) const {
        auto* ranks = reinterpret_cast<uint32_t*>(memory);
        ranks[lane_index()] = own_;
        __syncwarp();
        return cuda::bound_of_first(k, ranks);
    }

    // Counts the keys of rank `bound` and above, for a bound above 0, and stores the first 32 of
    // them.
    __device__ int32_t find(uint32_t bound, Candidate* found) const {
        int32_t n_found = 0;
        __syncwarp();
#pragma unroll
        for (int32_t j = 0; j < n; j++) {
            const bool is_one = rank_[j] >= bound;
            const uint32_t ones = __ballot_sync(every_lane, is_one);
            const int32_t at = n_found + __popc(ones & ((1u << lane_index()) - 1u));
            if (is_one && at < max_candidates) found[at] = {rank_[j], 32 * j + lane_index()};
            n_found += __popc(ones);
        }
        __syncwarp();
        return n_found;
    }

  private:
    // A tree of comparisons has a shorter dependency chain than a loop.
    __device__ void find_own() {
        uint32_t best[n];
#pragma unroll
        for (int32_t j = 0; j < n; j++) best[j] = rank_[j];
#pragma unroll
        for (int32_t apart = 1; apart < n; apart *= 2) {
#pragma unroll
            for (int32_t j = 0; j + apart < n; j += 2 * apart)
                best[j] = max(best[j], best[j + apart]);
        }
        own_ = best[0];
        uint32_t matches = 0;
#pragma unroll
        for (int32_t j = 0; j < n; j++) matches |= (rank_[j] == own_ ? 1u : 0u) << j;
        first_ = __ffs(static_cast<int32_t>(matches)) - 1;
    }

    uint32_t rank_[n];
    uint32_t own_;
    int32_t first_;
};

}  // namespace moe::cuda
