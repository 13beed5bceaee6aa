// The order of selection, "largest key first, then lowest index", walked by one warp: lane l looks
// after the keys l, l + 32, ... Keys hold no NaN.
#pragma once

#include "libmoe/cuda/device/warp.cuh"

namespace moe::cuda {

constexpr float infinity = __builtin_huge_valf();

// A place in the order; index -1: past the end.
struct Place {
    float key = infinity;
    int32_t index = -1;
};

MOE_HOST_DEVICE inline bool comes_after(float key, int32_t index, const Place& place) {
    return key < place.key || (key == place.key && index > place.index);
}

// The first of keys[first], keys[first + step], ... after `last`.
MOE_HOST_DEVICE inline Place next_of_lane(const float* keys, int32_t n, int32_t first, int32_t step,
                                          const Place& last) {
    Place best{-infinity, -1};
    for (int32_t i = first; i < n; i += step) {
        const float key = keys[i];
        if (comes_after(key, i, last) && (best.index < 0 || key > best.key)) best = {key, i};
    }
    return best;
}

// Gives the places one after the other, to every lane.
class WarpOrder {
  public:
    __device__ WarpOrder(const float* keys, int32_t n)
        : keys_(keys), n_(n), own_(next_of_lane(keys, n, lane_index(), 32, Place{})) {}

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
    Place own_;
};

// One of the few keys that can be among the first k, in shared memory of a warp.
struct alignas(8) Candidate {
    uint32_t rank;
    int32_t index;
};
constexpr int32_t most_candidates = 32;

// The index of the j-th of n for lane j, without turns. Of the warp.
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

// The k-th largest of 32 ranks in shared memory, on 16 bytes: where each is the largest of a part
// of all ranks, the first k have this one or a larger one. 0 where fewer than k are not 0. For
// every lane of a warp.
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

// The same order for up to 32 n keys in registers, key j of a lane being that of index
// lane + 32 j: ranks, 0 past the end or once given. The largest rank of a lane and its first place
// are known before they are asked for.
template <int n>
class RegisterOrder {
  public:
    __device__ explicit RegisterOrder(const uint32_t (&ranks)[n]) {
#pragma unroll
        for (int32_t j = 0; j < n; j++) rank_[j] = ranks[j];
        find_own();
    }

    // Past the end: -1.
    __device__ int32_t next() {
        const uint32_t top = __reduce_max_sync(every_lane, own_);
        const bool wins = own_ == top && top != 0;
        const auto index = static_cast<int32_t>(__reduce_min_sync(
            every_lane, wins ? static_cast<uint32_t>(32 * place_ + lane_index()) : 0xFFFFFFFFu));
        if (wins && index == 32 * place_ + lane_index()) {
#pragma unroll
            for (int32_t j = 0; j < n; j++) rank_[j] = j == place_ ? 0 : rank_[j];
            find_own();
        }
        return index;
    }

    // Of k <= 32 and no more than there are keys. memory: of most_candidates, on 16 bytes.
    __device__ uint32_t bound_of_first(int32_t k, Candidate* memory) const {
        auto* ranks = reinterpret_cast<uint32_t*>(memory);
        ranks[lane_index()] = own_;
        __syncwarp();
        return cuda::bound_of_first(k, ranks);
    }

    // The keys of rank `bound`, not 0, and above: how many, and the first 32 found.
    __device__ int32_t find(uint32_t bound, Candidate* found) const {
        int32_t n_found = 0;
        __syncwarp();
#pragma unroll
        for (int32_t j = 0; j < n; j++) {
            const bool is_one = rank_[j] >= bound;
            const uint32_t ones = __ballot_sync(every_lane, is_one);
            const int32_t at = n_found + __popc(ones & ((1u << lane_index()) - 1u));
            if (is_one && at < most_candidates) found[at] = {rank_[j], 32 * j + lane_index()};
            n_found += __popc(ones);
        }
        __syncwarp();
        return n_found;
    }

  private:
    // Pairs, pairs of pairs, ...: no long chain of comparisons.
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
        uint32_t places = 0;
#pragma unroll
        for (int32_t j = 0; j < n; j++) places |= (rank_[j] == own_ ? 1u : 0u) << j;
        place_ = __ffs(static_cast<int32_t>(places)) - 1;
    }

    uint32_t rank_[n];
    uint32_t own_;
    int32_t place_;
};

}  // namespace moe::cuda
