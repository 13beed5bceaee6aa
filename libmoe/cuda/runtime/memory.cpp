// Device memory, pinned host memory, streams and copies on a stream. Precondition: all functions but
// release are called within UseDevice.
#include "libmoe/cuda/backend.hpp"
#include "libmoe/cuda/runtime/check.hpp"
#include "libmoe/cuda/runtime/driver.hpp"

namespace moe::cuda {
namespace {

cudaStream_t stream_of(void* stream) {
    return static_cast<cudaStream_t>(stream);
}

// Makes the owner's context current for a free when the thread has none, because the runtime
// library would make one on device 0. Memory whose context is gone is already free.
class OwningContext {
  public:
    explicit OwningContext(void* memory) {
        CUcontext current = nullptr, owner = nullptr;
        if (driver().get_current(&current) != CUDA_SUCCESS) return;
        is_current_ = current != nullptr;
        if (is_current_) return;
        const auto address = reinterpret_cast<CUdeviceptr>(memory);
        if (driver().pointer_attribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, address) !=
                CUDA_SUCCESS ||
            !owner)
            return;
        pushed_ = driver().push(owner) == CUDA_SUCCESS;
        is_current_ = pushed_;
    }
    ~OwningContext() {
        CUcontext popped = nullptr;
        if (pushed_) driver().pop(&popped);
    }
    OwningContext(const OwningContext&) = delete;
    OwningContext& operator=(const OwningContext&) = delete;

    bool is_current() const { return is_current_; }

  private:
    bool is_current_ = false;
    bool pushed_ = false;
};

// Without a context the runtime library would choose device 0.
void check_current_context() {
    CUcontext current = nullptr;
    check(driver().get_current(&current), "cuCtxGetCurrent");
    if (!current) fail(MOE_ERROR_INTERNAL, "device memory was asked for without a CUDA context");
}

}  // namespace

void* allocate(moe_space space, uint64_t bytes) {
    require(space == MOE_SPACE_PINNED || space == MOE_SPACE_DEVICE,
            "space is {}, CUDA serves MOE_SPACE_PINNED and MOE_SPACE_DEVICE",
            static_cast<int32_t>(space));
    check_current_context();
    const bool pinned = space == MOE_SPACE_PINNED;
    void* memory = nullptr;
    const cudaError_t error =
        pinned ? cudaHostAlloc(&memory, bytes, cudaHostAllocMapped | cudaHostAllocPortable)
               : cudaMalloc(&memory, bytes);
    if (error == cudaErrorMemoryAllocation)
        fail(MOE_ERROR_OUT_OF_MEMORY, "{} bytes of {} memory: {}", bytes,
             pinned ? "pinned" : "device", cudaGetErrorString(error));
    check(error, pinned ? "cudaHostAlloc" : "cudaMalloc");
    return memory;
}

void release(moe_space space, void* memory) noexcept {
    if (is_forked()) return;  // the memory is the parent's
    const OwningContext context(memory);
    if (!context.is_current()) return;
    if (space == MOE_SPACE_PINNED)
        cudaFreeHost(memory);
    else
        cudaFree(memory);
}

void upload(void* to, const void* from, uint64_t bytes, void* stream) {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_of(stream)),
          "cudaMemcpyAsync to the device");
}

void download(void* to, const void* from, uint64_t bytes, void* stream) {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_of(stream)),
          "cudaMemcpyAsync from the device");
}

void fill_zero(void* to, uint64_t bytes, void* stream) {
    check(cudaMemsetAsync(to, 0, bytes, stream_of(stream)), "cudaMemsetAsync");
}

void synchronize(void* stream) {
    check(cudaStreamSynchronize(stream_of(stream)), "cudaStreamSynchronize");
}

void copy(void* to, const void* from, uint64_t bytes, void* stream) {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_of(stream)),
          "cudaMemcpyAsync");
}

void* make_stream() {
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    return stream;
}

void destroy_stream(void* stream) {
    check(cudaStreamDestroy(stream_of(stream)), "cudaStreamDestroy");
}

}  // namespace moe::cuda
