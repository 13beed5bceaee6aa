// The slots of a token: reads its ids, finds the local experts and lists the slots that have one. A
// row of the grid (blockIdx.y) serves a token, and each warp lists the slots for itself.
#pragma once

#include "libmoe/cuda/device/call.cuh"
#include "libmoe/cuda/device/memory.cuh"
#include "libmoe/cuda/device/warp.cuh"
#include "libmoe/cuda/gemv/gemv_params.hpp"

namespace moe::cuda {

// The token that this block works for.
__device__ __forceinline__ int64_t token_index() {
    return blockIdx.y;
}

// The row of this block's token, of 16-bit values.
__device__ __forceinline__ const std::byte* row_of_token(const void* rows, int64_t stride) {
    return static_cast<const std::byte*>(rows) + 2 * token_index() * stride;
}

// Ids of slots lane and lane + 32; -1 past the last slot.
struct SlotIds {
    int32_t id[2];
};

// Addresses of a lane's ids.
struct IdAddresses {
    const int32_t* first;
    int32_t n;  // 0 to 2

    __device__ __forceinline__ IdAddresses(const GemvSlots& slots, int32_t lane)
        : first(slots.ids + token_index() * slots.ids_stride + lane),
          n((slots.top_k + 31 - lane) >> 5) {}
    __device__ __forceinline__ SlotIds load() const {
        SlotIds ids{{-1, -1}};
        if (n > 0) ids.id[0] = load_global(first);
        if (n > 1) ids.id[1] = load_global(first + 32);
        return ids;
    }
};

// Reports ids that are out of range or whose map entry is. One warp per token calls it.
__device__ __forceinline__ void report_bad_ids(const GemvSlots& slots, const SlotIds& ids) {
    const auto is_bad = [&](int32_t id) {
        if (id < -1 || id >= slots.n_ids_all) return true;
        if (!slots.local_of || id < 0 || id >= slots.n_ids) return false;
        const int32_t local = load_global(slots.local_of + id);
        return local < -1 || local >= slots.n_local;
    };
    const int n_bad = __popc(__ballot_sync(~0u, is_bad(ids.id[0]))) +
                      __popc(__ballot_sync(~0u, is_bad(ids.id[1])));
    if (n_bad > 0 && threadIdx.x == 0) report_fault(slots.faults, MOE_FAULT_ID_OUT_OF_RANGE, n_bad);
}

__device__ __forceinline__ const float* weights_of_token(const GemvSlots& slots) {
    return slots.weights + token_index() * slots.weights_stride;
}

// The shared expert has the last slot, if the layer has one.
__device__ __forceinline__ bool is_shared_slot(const GemvSlots& slots, int32_t slot) {
    return slot == slots.top_k && slot < slots.n_slots;
}

// Local experts of slots lane and lane + 32; -1 where the expert is not on this GPU.
struct SlotExperts {
    int32_t expert[2];
};

__device__ __forceinline__ SlotExperts find_experts(const GemvSlots& slots, const SlotIds& ids,
                                                    int32_t lane) {
    const auto n_ids = static_cast<uint32_t>(slots.n_ids);
    SlotExperts experts;
#pragma unroll
    for (int i = 0; i < 2; ++i)
        experts.expert[i] = static_cast<uint32_t>(ids.id[i]) < n_ids ? ids.id[i] : -1;
    if (slots.local_of) {
#pragma unroll
        for (int i = 0; i < 2; ++i)
            if (experts.expert[i] >= 0)
                experts.expert[i] = load_global(slots.local_of + experts.expert[i]);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        if (experts.expert[i] >= slots.n_local) experts.expert[i] = -1;
        if (is_shared_slot(slots, lane + 32 * i)) experts.expert[i] = slots.n_local;
    }
    return experts;
}

// True if every id is a local expert as it stands, so that neither a map nor the list is needed.
__device__ __forceinline__ bool all_direct(const GemvSlots& slots, const SlotIds& ids,
                                           int32_t lane) {
    const auto n_direct = static_cast<uint32_t>(slots.n_direct);
    const bool first = static_cast<uint32_t>(ids.id[0]) < n_direct || lane >= slots.top_k;
    const bool second = static_cast<uint32_t>(ids.id[1]) < n_direct || lane + 32 >= slots.top_k;
    return __all_sync(~0u, first && second);
}

// Loads the expert of one slot if all_direct holds. Its address is known before ids arrive, so that
// one load is the whole latency.
class DirectExpert {
  public:
    __device__ __forceinline__ DirectExpert(const GemvSlots& slots, int32_t slot)
        : id_(slots.ids + token_index() * slots.ids_stride + min(slot, slots.top_k - 1)),
          shared_(is_shared_slot(slots, slot) ? slots.n_local : -1) {
        compute_now(id_);
        compute_now(shared_);
    }
    __device__ __forceinline__ int32_t load() const {
        const int32_t id = load_global(id_);
        return shared_ < 0 ? id : shared_;
    }

  private:
    const int32_t* id_;
    int32_t shared_;
};

// A list entry packs local expert and slot.
__device__ __forceinline__ int32_t slot_entry(int32_t expert, int32_t slot) {
    return expert << 6 | slot;
}
__device__ __forceinline__ int32_t slot_expert(int32_t entry) {
    return entry >> 6;
}
__device__ __forceinline__ int32_t slot_index(int32_t entry) {
    return entry & 63;
}

// Writes the entries of slots with a local expert to slot_list in order; returns their
// number.
__device__ __forceinline__ int32_t list_slots(const GemvSlots& slots, const SlotExperts& experts,
                                              int32_t lane, int32_t* slot_list) {
    int32_t n = 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        if (32 * i >= slots.n_slots) break;
        const int32_t expert = experts.expert[i];
        const uint32_t present = __ballot_sync(~0u, expert >= 0);
        const uint32_t below = present & ((1u << lane) - 1);
        if (expert >= 0) slot_list[n + __popc(below)] = slot_entry(expert, lane + 32 * i);
        n += __popc(present);
    }
    __syncwarp();
    return n;
}

}  // namespace moe::cuda
