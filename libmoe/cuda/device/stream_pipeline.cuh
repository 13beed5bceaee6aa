// A warp's own pipeline of shared memory that asynchronous copies fill: weights stream through it
// without a barrier of the block. Item i goes into stage i % n_stages; every lane waits for an
// item, and after a __syncwarp the warp refills the stage it has been read from.
//   BulkPipeline    sm_90: a lane asks the copy engine for a whole stage
//   AsyncPipeline   sm_80: all lanes copy 16 bytes at a time; wait_all_copies waits for these as
//   well
#pragma once

#include "libmoe/cuda/device/bulk_copy.cuh"
#include "libmoe/cuda/device/cp_async.cuh"
#include "libmoe/cuda/device/mbarrier.cuh"
#include "libmoe/cuda/device/warp.cuh"

namespace moe::cuda {

// What is copied into a stage; bytes may be 0.
struct StreamItem {
    const void* from = nullptr;
    int32_t bytes = -1;  // nothing to copy, and the stage is not waited for
};

class StreamPipeline {
  public:
    // The current item, when it has arrived.
    __device__ uint32_t wait() const {
        mbarrier_wait(barrier(stage_), parity_);
        return data(stage_);
    }

    // The same, and on to the next, of a pipeline that holds all items and is not refilled.
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
    // barriers: 8 n_stages bytes, data: n_stages stage_bytes, both of this warp alone. n_stages
    // <= 32.
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
    // The first items, by the whole warp: lane i has that of stage i.
    __device__ void begin(const StreamItem& own) const {
        if (own.bytes >= 0) fill(lane_index(), own);
    }
    // The next item of the current stage, which nobody reads any more; by the whole warp.
    __device__ void refill(const StreamItem& item) const {
        if (lane_index() == 0) fill(stage(), item);
    }
    // To the L2, by one lane: what will be an item.
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
    // As those of BulkPipeline.
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
    // Nothing: copies of 16 bytes would have to be as many as those into the pipeline.
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
