// The block of packed weights as loads and files see it: bytes are written and read, ordered one
// after the other. Tests have a block in host memory.
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

// A block in memory of the current device, ordered on a stream.
class MemoryBlock final : public DeviceBlock {
  public:
    MemoryBlock(std::byte* base, void* stream) : base_(base), stream_(stream) {}

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

// Two host buffers by turns: one is filled while the other is copied to the block.
class Staging {
  public:
    Staging(DeviceBlock& block, std::byte* memory, uint64_t bytes_each)
        : block_(block), buffers_{memory, memory + bytes_each} {}
    Staging(const Staging&) = delete;
    Staging& operator=(const Staging&) = delete;
    // Waits, because the caller may release the memory afterwards.
    ~Staging() {
        try {
            block_.synchronize();
        } catch (const Error&) {  // an exception that is on its way names the failure
        }
    }

    std::byte* buffer() const { return buffers_[turn_]; }
    // Writes the buffer to the block and turns to the other, whose write has ended by then.
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
