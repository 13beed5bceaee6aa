// A shared-memory pipeline of one warp. Asynchronous copies fill its stages, and no block barrier
// is needed. Item i goes to stage i % n_stages. Every lane waits for an item; after __syncwarp the
// warp refills the stage.
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
    const void* from = nullptr;
    int32_t bytes = -1;  // nothing is copied, and nobody waits for the stage
};

class StreamPipeline {
  public:
    // Waits for the current item and returns its shared address.
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
                              int32_t stage_bytes, uint32_t arrivals)
        : barriers_(barriers), data_(data), n_stages_(n_stages), stage_bytes_(stage_bytes) {
        if (lane_index() < n_stages) mbarrier_init(barrier(lane_index()), arrivals);
    }
    __device__ uint32_t barrier(int32_t stage) const { return barriers_ + 8 * stage; }
    __device__ uint32_t data(int32_t stage) const { return data_ + stage * stage_bytes_; }
    __device__ int32_t stage() const { return stage_; }
    __device__ int32_t n_stages() const { return n_stages_; }

  private:
    uint32_t barriers_, data_;
    int32_t n_stages_, stage_bytes_;
    int32_t stage_ = 0;
    uint32_t parity_ = 0;
};

class BulkPipeline : public StreamPipeline {
  public:
    __device__ BulkPipeline(uint32_t barriers, uint32_t data, int32_t n_stages, int32_t stage_bytes)
        : StreamPipeline(barriers, data, n_stages, stage_bytes, 1) {
        mbarrier_fence_init();
        __syncwarp();
    }
    // The whole warp fills the stages; lane i passes the item of stage i.
    __device__ void begin(const StreamItem& own) const {
        if (own.bytes >= 0) fill(lane_index(), own);
    }
    // The whole warp refills the current stage, which no lane reads any more.
    __device__ void refill(const StreamItem& item) const {
        if (lane_index() == 0) fill(stage(), item);
    }
    // One lane prefetches a future item to L2.
    static __device__ void prefetch(const StreamItem& item) {
        bulk_prefetch(item.from, static_cast<uint32_t>(item.bytes));
    }

  private:
    __device__ void fill(int32_t stage, const StreamItem& item) const {
        const auto bytes = static_cast<uint32_t>(item.bytes);
        mbarrier_expect(barrier(stage), bytes);
        if (bytes == 0) return;
        bulk_load_once(data(stage), item.from, bytes, barrier(stage));
    }
};

class AsyncPipeline : public StreamPipeline {
  public:
    __device__ AsyncPipeline(uint32_t barriers, uint32_t data, int32_t n_stages,
                             int32_t stage_bytes)
        : StreamPipeline(barriers, data, n_stages, stage_bytes, 32) {
        __syncwarp();
    }
    // begin and refill have the contract of BulkPipeline.
    __device__ void begin(const StreamItem& own) const {
        const auto from = reinterpret_cast<uintptr_t>(own.from);
#pragma unroll 1
        for (int32_t stage = 0; stage < n_stages(); ++stage) {
            const uint64_t at = __shfl_sync(every_lane, static_cast<uint64_t>(from), stage);
            const int32_t bytes = __shfl_sync(every_lane, own.bytes, stage);
            if (bytes >= 0) fill(stage, {reinterpret_cast<const void*>(at), bytes});
        }
    }
    __device__ void refill(const StreamItem& item) const {
        fill(stage(), item);
    }
    // Does nothing: it would take as many instructions as the copies themselves.
    static __device__ void prefetch(const StreamItem&) {}

  private:
    __device__ void fill(int32_t stage, const StreamItem& item) const {
        const auto* from = static_cast<const std::byte*>(item.from);
        for (int32_t at = 16 * lane_index(); at < item.bytes; at += 16 * 32)
            copy_async_16(data(stage) + at, from + at);
        arrive_after_copies(barrier(stage));
    }
};

}  // namespace moe::cuda
