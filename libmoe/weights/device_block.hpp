// The block of packed weights as those see it who fill it: bytes go in and out, ordered one after
// the other. A device's block is behind the CUDA door; a test has one in host memory.
#pragma once

#include "libmoe/device/device_memory.hpp"

namespace moe {

class DeviceBlock {
  public:
    virtual ~DeviceBlock() = default;
    // `from` must stay as it is until synchronize().
    virtual void write(uint64_t offset, const void* from, uint64_t bytes) = 0;
    // The bytes are there on return, after all that was written before.
    virtual void read(void* to, uint64_t offset, uint64_t bytes) = 0;
    // Bytes of a caller's tensor in device memory; there on return.
    virtual void fetch(void* to, const void* from, uint64_t bytes) = 0;
    virtual void synchronize() = 0;
};

class CudaBlock final : public DeviceBlock {
  public:
    CudaBlock(std::byte* base, void* stream) : base_(base), stream_(stream) {}

    void write(uint64_t offset, const void* from, uint64_t bytes) override {
        device::upload(base_ + offset, from, bytes, stream_);
    }
    void read(void* to, uint64_t offset, uint64_t bytes) override {
        fetch(to, base_ + offset, bytes);
    }
    void fetch(void* to, const void* from, uint64_t bytes) override {
        device::download(to, from, bytes, stream_);
        device::synchronize(stream_);
    }
    void synchronize() override { device::synchronize(stream_); }

  private:
    std::byte* base_;
    void* stream_;
};

// Two host buffers by turns: one is filled while the other is on its way.
class Staging {
  public:
    Staging(DeviceBlock& block, std::byte* memory, uint64_t bytes_each)
        : block_(block), buffers_{memory, memory + bytes_each} {}
    Staging(const Staging&) = delete;
    Staging& operator=(const Staging&) = delete;
    // The memory may go when this is gone.
    ~Staging() {
        try {
            block_.synchronize();
        } catch (const Error&) {  // whatever failed has been said already
        }
    }

    std::byte* buffer() const { return buffers_[turn_]; }
    // Sends the buffer off and turns to the other, which has arrived by then.
    void send(uint64_t offset, uint64_t bytes) {
        block_.synchronize();
        block_.write(offset, buffers_[turn_], bytes);
        turn_ ^= 1;
    }

  private:
    DeviceBlock& block_;
    std::byte* buffers_[2];
    int turn_ = 0;
};

}  // namespace moe
