// Where the plan under test keeps its activations: CUDA memory, or host memory when the program's
// own logic is tried without a GPU. Transfers wait until they are done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "moe/moe.h"

namespace moe_gpu {

// Work that was captured once and can run again and again.
class Graph {
  public:
    virtual ~Graph() = default;
    virtual void launch(void* stream) = 0;
};

struct DeviceNames {
    std::string device, driver, runtime;
};

class Device {
  public:
    virtual ~Device() = default;
    virtual moe_device_kind kind() const = 0;
    virtual DeviceNames names() const = 0;
    virtual uint64_t free_bytes() const = 0;

    virtual void* allocate(uint64_t bytes) = 0;
    virtual void release(void* memory) noexcept = 0;
    virtual void upload(void* to, const void* from, uint64_t bytes) = 0;
    virtual void download(void* to, const void* from, uint64_t bytes) = 0;
    virtual void fill(void* to, int byte, uint64_t bytes) = 0;

    virtual void* make_stream() = 0;
    virtual void destroy_stream(void* stream) noexcept = 0;
    virtual void synchronize(void* stream) = 0;
    virtual std::unique_ptr<Graph> capture(void* stream, std::function<void()> work) = 0;

    // Devices that a program could make current instead, and the context of this thread.
    virtual int count() const { return 1; }
    virtual void make_current(int) {}
    virtual void* current_context() { return nullptr; }

    // The mangled name of a kernel, by the host function that launches it; "" where nobody knows.
    virtual std::string kernel_function_name(const void*) { return ""; }

    bool is_cuda() const { return kind() == MOE_DEVICE_CUDA; }

    // The kernel_filter of plans that have none of their own, and what a case's own filter is
    // beside it.
    std::string kernels;
    std::string with_its_own(const std::string& filter) const {
        return kernels.empty() ? filter : filter + "," + kernels;
    }
};

std::unique_ptr<Device> make_host_device();
// Fails with a sentence in a build without CUDA.
std::unique_ptr<Device> make_cuda_device();

class Buffer {
  public:
    Buffer(Device& device, uint64_t bytes)
        : device_(&device), bytes_(bytes), data_(device.allocate(bytes ? bytes : 1)) {}
    ~Buffer() { device_->release(data_); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    void* data() const { return data_; }
    uint64_t bytes() const { return bytes_; }
    // 0xFF makes NaN, and -1 of an index, which may mean that there is no row; 0x7F makes huge
    // values, and of an index one that is nowhere.
    void poison(int byte = 0xFF) { device_->fill(data_, byte, bytes_); }

  private:
    Device* device_;
    uint64_t bytes_;
    void* data_;
};

class Stream {
  public:
    explicit Stream(Device& device) : device_(&device), stream_(device.make_stream()) {}
    ~Stream() { device_->destroy_stream(stream_); }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    operator void*() const { return stream_; }

  private:
    Device* device_;
    void* stream_;
};

}  // namespace moe_gpu
