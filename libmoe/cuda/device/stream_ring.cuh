// A warp's own ring of shared memory that bulk copies fill: weights stream through it without a
// barrier of the block. Item i goes into stage i % n_stages; every lane waits for an item, and
// after a __syncwarp one lane refills the stage it has been read from.
#pragma once

#include "libmoe/cuda/device/bulk_copy.cuh"
#include "libmoe/cuda/device/mbarrier.cuh"

namespace moe::cuda {

class StreamRing {
  public:
    // barriers: 8 n_stages bytes, data: n_stages stage_bytes, both of this warp alone. n_stages
    // <= 32.
    __device__ StreamRing(uint32_t barriers, uint32_t data, int32_t n_stages, int32_t stage_bytes)
        : barriers_(barriers), data_(data), n_stages_(n_stages), stage_bytes_(stage_bytes) {
        const int32_t lane = static_cast<int32_t>(threadIdx.x) & 31;
        if (lane < n_stages) mbarrier_init(barriers + 8 * lane, 1);
        mbarrier_fence_init();
        __syncwarp();
    }

    // By one lane, for a stage that nobody reads any more. Of no bytes too.
    __device__ void fill(int32_t stage, const void* from, uint32_t bytes) const {
        mbarrier_expect(barriers_ + 8 * stage, bytes);
        if (bytes == 0) return;
        bulk_load_once(data_ + stage * stage_bytes_, from, bytes, barriers_ + 8 * stage);
    }

    // The current item, when it has arrived.
    __device__ uint32_t wait() const {
        mbarrier_wait(barriers_ + 8 * stage_, parity_);
        return data_ + stage_ * stage_bytes_;
    }

    // The same, and on to the next, of a ring that holds all items and is not refilled.
    __device__ uint32_t wait_once() {
        mbarrier_wait(barriers_ + 8 * stage_, 0);
        return data_ + stage_++ * stage_bytes_;
    }

    __device__ int32_t stage() const { return stage_; }

    __device__ void next() {
        if (++stage_ == n_stages_) {
            stage_ = 0;
            parity_ ^= 1;
        }
    }

  private:
    uint32_t barriers_, data_;
    int32_t n_stages_, stage_bytes_;
    int32_t stage_ = 0;
    uint32_t parity_ = 0;
};

}  // namespace moe::cuda
