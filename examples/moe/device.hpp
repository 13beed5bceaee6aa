// device.hpp - memory and a stream of the device that a plan is for, through moe.h alone. On the
// CPU it is host memory and the stream is NULL, so that one way through serves both.
#pragma once

#include "moe_cpp.hpp"

namespace moe::cli {

struct Device {
    moe_device_kind kind = MOE_DEVICE_CPU;
    int32_t index = 0;

    bool is_cpu() const { return kind == MOE_DEVICE_CPU; }
};

inline Device device_of(const moe_plan* plan) {
    Device device;
    check(moe_plan_device(plan, &device.kind, &device.index, nullptr));
    return device;
}

class Stream {
  public:
    explicit Stream(Device device) : device_(device) {
        check(moe_stream_create(device.kind, device.index, &stream_));
    }
    ~Stream() { moe_stream_destroy(device_.kind, device_.index, stream_); }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    void synchronize() const {
        check(moe_stream_synchronize(device_.kind, device_.index, stream_));
    }
    void* get() const { return stream_; }
    Device device() const { return device_; }

  private:
    Device device_;
    void* stream_ = nullptr;
};

// So many bytes of the device, filled from and read into host memory on a stream. A copy is done
// when the stream has been synchronised.
class DeviceArray {
  public:
    DeviceArray(const Stream& stream, uint64_t bytes) : stream_(stream), bytes_(bytes) {
        const Device device = stream.device();
        check(moe_memory_allocate(nullptr, device.kind, device.index, MOE_SPACE_DEVICE, bytes,
                                  &data_));
    }
    ~DeviceArray() {
        const Device device = stream_.device();
        moe_memory_free(nullptr, device.kind, device.index, MOE_SPACE_DEVICE, bytes_, data_);
    }
    DeviceArray(const DeviceArray&) = delete;
    DeviceArray& operator=(const DeviceArray&) = delete;

    void upload(const void* from) { copy(data_, from); }
    void download(void* to) const { copy(to, data_); }
    template <class T>
    T* as() const {
        return static_cast<T*>(data_);
    }
    void* data() const { return data_; }

  private:
    void copy(void* to, const void* from) const {
        const Device device = stream_.device();
        check(moe_memory_copy(device.kind, device.index, to, from, bytes_, stream_.get()));
    }

    const Stream& stream_;
    uint64_t bytes_;
    void* data_ = nullptr;
};

}  // namespace moe::cli
