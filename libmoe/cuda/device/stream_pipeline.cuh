// A shared-memory pipeline of one warp. Asynchronous copies fill its stages, and no block barrier
// is needed. Item i goes to stage i % n_stages. Every lane waits for an item; after __syncwarp the
// warp refills the stage. An item begins line_mask bytes behind its stage at most: those bits of
// its address.
//   BulkPipeline   sm_90: one lane issues a bulk copy per stage
//   AsyncPipeline  sm_80: all lanes issue cp.async of 16 bytes; wait_all_copies waits for these,
//                  too
#pragma once

#include "libmoe/cuda/device/bulk_copy.cuh"
#include "libmoe/cuda/device/cp_async.cuh"
#include "libmoe/cuda/device/mbarrier.cuh"
#include "libmoe/cuda/device/warp.cuh"

namespace moe::cuda {

// The source of a stage; bytes may be 0.
struct StreamItem {
    static constexpr bool has_second = false;
    const void* from = nullptr;
    int32_t bytes = -1;  // nothing is copied, and nobody waits for the stage
};

// A stage of one copy or two: the second one goes second_at bytes into the stage.
struct TwoCopyItem {
    static constexpr bool has_second = true;
    const void* from = nullptr;
    int32_t bytes = -1;
    const void* second = nullptr;
    int32_t second_bytes = 0;
    int32_t second_at = 0;
};

class StreamPipeline {
  public:
    // Waits for the current item and returns the shared address of its stage.
    __device__ uint32_t wait() const {
        mbarrier_wait(barrier(stage_), parity_);
        return data(stage_);
    }

    // Waits for the current item and advances; for pipelines that hold all items and never refill.
    __device__ uint32_t wait_once() {
        mbarrier_wait(barrier(stage_), 0);
        return data(stage_++);
    }

    __device__ void next() {
        if (++stage_ == n_stages_) {
            stage_ = 0;
            parity_ ^= 1;
        }
    }

  protected:
    // barriers: 8 n_stages bytes, data: n_stages * stage_bytes; both belong to this warp alone.
    // n_stages is at most 32.
    __device__ StreamPipeline(uint32_t barriers, uint32_t data, int32_t n_stages,
                              int32_t stage_bytes, uint32_t line_mask, uint32_t arrivals)
        : barriers_(barriers),
          data_(data),
          n_stages_(n_stages),
          stage_bytes_(stage_bytes),
          line_mask_(line_mask) {
        if (lane_index() < n_stages) mbarrier_init(barrier(lane_index()), arrivals);
    }
    __device__ uint32_t barrier(int32_t stage) const { return barriers_ + 8 * stage; }
    __device__ uint32_t data(int32_t stage) const { return data_ + stage * stage_bytes_; }
    // Where an item goes.
    __device__ uint32_t place(int32_t stage, const void* from) const {
        return data(stage) +
               (static_cast<uint32_t>(reinterpret_cast<uintptr_t>(from)) & line_mask_);
    }
    __device__ int32_t stage() const { return stage_; }
    __device__ int32_t n_stages() const { return n_stages_; }

  private:
    uint32_t barriers_, data_;
    int32_t n_stages_, stage_bytes_;
    uint32_t line_mask_;
    int32_t stage_ = 0;
    uint32_t parity_ = 0;
};

class BulkPipeline : public StreamPipeline {
  public:
    __device__ BulkPipeline(uint32_t barriers, uint32_t data, int32_t n_stages, int32_t stage_bytes,
                            uint32_t line_mask)
        : StreamPipeline(barriers, data, n_stages, stage_bytes, line_mask, 1) {
        mbarrier_fence_init();
        __syncwarp();
    }
    // The whole warp fills the stages; lane i passes the item of stage i.
    template <class Item>
    __device__ void begin(const Item& own) const {
        if (own.bytes >= 0) fill(lane_index(), own);
    }
    // The whole warp refills the current stage, which no lane reads any more.
    template <class Item>
    __device__ void refill(const Item& item) const {
        if (lane_index() == 0) fill(stage(), item);
    }
    // One lane prefetches a future item to L2.
    static __device__ void prefetch(const StreamItem& item) {
        bulk_prefetch(item.from, static_cast<uint32_t>(item.bytes));
    }

  private:
    template <class Item>
    __device__ void fill(int32_t stage, const Item& item) const {
        const auto bytes = static_cast<uint32_t>(item.bytes);
        if constexpr (Item::has_second) {
            mbarrier_expect(barrier(stage), bytes + static_cast<uint32_t>(item.second_bytes));
            if (bytes == 0) return;
            if (item.second_bytes > 0)
                bulk_load_once(data(stage) + item.second_at, item.second,
                               static_cast<uint32_t>(item.second_bytes), barrier(stage));
        } else {
            mbarrier_expect(barrier(stage), bytes);
            if (bytes == 0) return;
        }
        bulk_load_once(place(stage, item.from), item.from, bytes, barrier(stage));
    }
};

class AsyncPipeline : public StreamPipeline {
  public:
    __device__ AsyncPipeline(uint32_t barriers, uint32_t data, int32_t n_stages,
                             int32_t stage_bytes, uint32_t line_mask)
        : StreamPipeline(barriers, data, n_stages, stage_bytes, line_mask, 32) {
        __syncwarp();
    }
    // begin and refill have the contract of BulkPipeline.
    template <class Item>
    __device__ void begin(const Item& own) const {
#pragma unroll 1
        for (int32_t stage = 0; stage < n_stages(); ++stage) {
            Item item;
            item.from = of_lane(own.from, stage);
            item.bytes = __shfl_sync(every_lane, own.bytes, stage);
            if constexpr (Item::has_second) {
                item.second = of_lane(own.second, stage);
                item.second_bytes = __shfl_sync(every_lane, own.second_bytes, stage);
                item.second_at = __shfl_sync(every_lane, own.second_at, stage);
            }
            if (item.bytes >= 0) fill(stage, item);
        }
    }
    template <class Item>
    __device__ void refill(const Item& item) const {
        fill(stage(), item);
    }
    // Does nothing: it would take as many instructions as the copies themselves.
    static __device__ void prefetch(const StreamItem&) {}

  private:
    static __device__ const void* of_lane(const void* pointer, int32_t lane) {
        const auto bits = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(pointer));
        return reinterpret_cast<const void*>(__shfl_sync(every_lane, bits, lane));
    }
    static __device__ void copy(uint32_t to, const void* source, int32_t bytes) {
        const auto* from = static_cast<const std::byte*>(source);
        for (int32_t at = 16 * lane_index(); at < bytes; at += 16 * 32)
            copy_async_16(to + at, from + at);
    }
    template <class Item>
    __device__ void fill(int32_t stage, const Item& item) const {
        copy(place(stage, item.from), item.from, item.bytes);
        if constexpr (Item::has_second)
            copy(data(stage) + item.second_at, item.second, item.second_bytes);
        arrive_after_copies(barrier(stage));
    }
};

}  // namespace moe::cuda
