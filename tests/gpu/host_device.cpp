// The host as a device: every buffer has exactly its bytes, so that a sanitizer sees one too many.
#include <cstdlib>
#include <cstring>
#include <new>

#include "device.hpp"
#include "handles.hpp"

namespace moe_gpu {
namespace {

class Repeated : public Graph {
  public:
    explicit Repeated(std::function<void()> work) : work_(std::move(work)) {}
    void launch(void*) override { work_(); }

  private:
    std::function<void()> work_;
};

class HostDevice : public Device {
  public:
    moe_device_kind kind() const override { return MOE_DEVICE_CPU; }
    DeviceNames names() const override {
        auto info = sized<moe_device_info>();
        must(moe_device_get_info(MOE_DEVICE_CPU, 0, &info), "moe_device_get_info");
        return {info.name, "", ""};
    }
    uint64_t free_bytes() const override { return uint64_t{4} << 30; }

    void* allocate(uint64_t bytes) override {
        void* memory = nullptr;
        if (posix_memalign(&memory, 4096, bytes)) throw std::bad_alloc();
        return memory;
    }
    void release(void* memory) noexcept override { std::free(memory); }
    void upload(void* to, const void* from, uint64_t bytes) override {
        if (bytes) std::memcpy(to, from, bytes);
    }
    void download(void* to, const void* from, uint64_t bytes) override {
        if (bytes) std::memcpy(to, from, bytes);
    }
    void fill(void* to, int byte, uint64_t bytes) override { std::memset(to, byte, bytes); }

    void* make_stream() override { return nullptr; }
    void destroy_stream(void*) noexcept override {}
    void synchronize(void*) override {}
    std::unique_ptr<Graph> capture(void*, std::function<void()> work) override {
        return std::make_unique<Repeated>(std::move(work));
    }
};

}  // namespace

std::unique_ptr<Device> make_host_device() {
    return std::make_unique<HostDevice>();
}

}  // namespace moe_gpu
