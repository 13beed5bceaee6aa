// Memory, streams and the context of a GPU, as weights/, plan/ and api/ need them. No type of CUDA
// is visible here. cuda/runtime/ implements the functions; a build without CUDA links absent.cpp,
// whose functions answer MOE_ERROR_NOT_BUILT.
#pragma once

#include <new>

#include "libmoe/base/memory.hpp"

namespace moe::device {

// Makes the caller's current context fit for a device: keeps a current context of that device,
// makes the device's primary context current for its life when there is none, fails with
// MOE_ERROR_INVALID_ARGUMENT when the current one belongs to another device. Restores what was
// current. Fails with MOE_ERROR_FORKED in a child of the process that first used CUDA.
class UseDevice {
  public:
    explicit UseDevice(int32_t index);
    // For destructors: a current context stays current, and where the device's own cannot be made
    // current, none is. Precondition: the device has been used before.
    UseDevice(int32_t index, std::nothrow_t) noexcept;
    ~UseDevice();
    UseDevice(const UseDevice&) = delete;
    UseDevice& operator=(const UseDevice&) = delete;

  private:
    bool pushed_ = false;
};

// The context of a thread within UseDevice, for UseContext on another thread.
void* current_context();

// Makes a context current on this thread for its life. It must live as long.
class UseContext {
  public:
    explicit UseContext(void* context);
    ~UseContext();
    UseContext(const UseContext&) = delete;
    UseContext& operator=(const UseContext&) = delete;
};

// Returns true in a child of the process that first used CUDA: all memory of devices is its
// parent's.
bool is_forked() noexcept;

// The functions below are called within UseDevice, but for release.

// Allocates memory of a device, or of the host that the device reads and writes. Fails with
// MOE_ERROR_OUT_OF_MEMORY. Memory::allocate_in comes here when the caller's allocator does not
// serve the space.
void* allocate(moe_space space, uint64_t bytes);
void release(moe_space space, void* memory) noexcept;

// Copies are ordered on stream; `synchronize` waits for it. The host memory of upload must stay
// until then.
void upload(void* to, const void* from, uint64_t bytes, void* stream);
void download(void* to, const void* from, uint64_t bytes, void* stream);
void fill_zero(void* to, uint64_t bytes, void* stream);
void synchronize(void* stream);
// Either side may be host, pinned or device memory: the driver tells them by the address.
void copy(void* to, const void* from, uint64_t bytes, void* stream);

// Makes a stream of the current context that does not wait for the default stream.
void* make_stream();
void destroy_stream(void* stream);

}  // namespace moe::device
